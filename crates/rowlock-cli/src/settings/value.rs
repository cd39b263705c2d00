//! What a setting can be: how each type is read from TOML or from the text of a flag or variable, and how it is shown.

use std::time::Duration;

use rowlock::{Backoff, Order};
use serde_json::{Value, json};
use toml::de::DeValue;

use crate::backoff::parse_backoff;
use crate::nearest::did_you_mean;
use crate::units::{duration_text, parse_duration, parse_size, size_text};

/// A type of setting.
pub(crate) trait Setting: Sized {
    /// What it should have been, for the message when it is something else.
    const WANTED: &'static str;

    /// From a value of the file. `Err(None)`: it is of another type.
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>>;

    /// From the text of a flag or a variable.
    fn from_text(text: &str) -> Result<Self, String>;

    /// As it is shown and compared: equal meanings give equal values.
    fn shown(&self) -> Value;
}

impl Setting for String {
    const WANTED: &'static str = "a text in quotes";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        value.as_str().map(ToOwned::to_owned).ok_or(None)
    }

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn shown(&self) -> Value {
        json!(self)
    }
}

impl Setting for bool {
    const WANTED: &'static str = "true or false";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        value.as_bool().ok_or(None)
    }

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("{text:?} is neither true nor false"))
    }

    fn shown(&self) -> Value {
        json!(self)
    }
}

impl Setting for u64 {
    const WANTED: &'static str = "a whole number";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        let number = value.as_integer().ok_or(None)?;
        i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .and_then(|n| u64::try_from(n).ok())
            .ok_or_else(|| Some(format!("{} is out of range", number.as_str())))
    }

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("{text:?} is no whole number"))
    }

    fn shown(&self) -> Value {
        json!(self)
    }
}

impl Setting for Duration {
    const WANTED: &'static str = "a duration such as \"30s\"";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        let text = value.as_str().ok_or(None)?;
        parse_duration(text).map_err(Some)
    }

    fn from_text(text: &str) -> Result<Self, String> {
        parse_duration(text)
    }

    fn shown(&self) -> Value {
        json!(duration_text(*self))
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) struct Size(pub(crate) u64);

impl Setting for Size {
    const WANTED: &'static str = "a size such as \"64KiB\"";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        match value.as_str() {
            Some(text) => parse_size(text).map(Self).map_err(Some),
            None => u64::from_toml(value).map(Self),
        }
    }

    fn from_text(text: &str) -> Result<Self, String> {
        parse_size(text).map(Self)
    }

    fn shown(&self) -> Value {
        json!(size_text(self.0))
    }
}

/// A share of a whole: 0 is none of it, 1 all.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Share(pub(crate) f64);

impl Setting for Share {
    const WANTED: &'static str = "a number from 0 to 1";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        match value.as_float() {
            Some(number) => Self::from_text(&number.as_str().replace('_', "")).map_err(Some),
            None => u64::from_toml(value)
                .map(|n| Self(n as f64))
                .map_err(|_| None),
        }
    }

    fn from_text(text: &str) -> Result<Self, String> {
        text.trim()
            .parse()
            .map(Self)
            .map_err(|_| format!("{text:?} is no number"))
    }

    fn shown(&self) -> Value {
        json!(self.0)
    }
}

impl Setting for Vec<String> {
    const WANTED: &'static str = "a list of texts";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        let list = value.as_array().ok_or(None)?;
        list.iter()
            .map(|item| String::from_toml(item.get_ref()))
            .collect()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text
            .split(',')
            .map(|item| item.trim().to_owned())
            .filter(|item| !item.is_empty())
            .collect())
    }

    fn shown(&self) -> Value {
        json!(self)
    }
}

impl Setting for Order {
    const WANTED: &'static str = "\"weighted\" or \"strict\"";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        Self::from_text(value.as_str().ok_or(None)?).map_err(Some)
    }

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "weighted" => Ok(Self::Weighted),
            "strict" => Ok(Self::Strict),
            other => Err(format!(
                "{other:?} is no order; {}",
                did_you_mean(other, ["weighted", "strict"])
            )),
        }
    }

    fn shown(&self) -> Value {
        json!(match self {
            Self::Strict => "strict",
            _ => "weighted",
        })
    }
}

impl Setting for Backoff {
    const WANTED: &'static str = "a backoff such as \"exponential 1m, max 1h\"";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        parse_backoff(value.as_str().ok_or(None)?).map_err(Some)
    }

    fn from_text(text: &str) -> Result<Self, String> {
        parse_backoff(text)
    }

    fn shown(&self) -> Value {
        // It was read from text, and its plain fields always serialise.
        serde_json::to_value(self).unwrap_or_default()
    }
}
