//! `[http]` and `[log]`: what the worker tells of itself.

use std::net::SocketAddr;

use serde_json::{Value, json};
use toml::de::DeValue;
use tracing_subscriber::EnvFilter;

use super::section::Section;
use super::value::Setting;
use crate::nearest::did_you_mean;

/// Where health and metrics are served.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServerSettings {
    /// `None`: nowhere.
    pub(crate) address: Option<SocketAddr>,
}

impl ServerSettings {
    pub(super) fn read(section: Section<'_, '_>) -> Self {
        let address = section.optional("address");
        section.finish();
        Self { address }
    }
}

impl Setting for SocketAddr {
    const WANTED: &'static str = "an address such as \"127.0.0.1:9090\"";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        Self::from_text(value.as_str().ok_or(None)?).map_err(Some)
    }

    fn from_text(text: &str) -> Result<Self, String> {
        // `:9090` is what people write for "on all addresses".
        let whole = if text.starts_with(':') {
            format!("0.0.0.0{text}")
        } else {
            text.to_owned()
        };
        whole.parse().map_err(|_| {
            format!(
                "{text:?} is no address: write an IP address and a port, such as \"127.0.0.1:9090\""
            )
        })
    }

    fn shown(&self) -> Value {
        json!(self.to_string())
    }
}

/// What is logged and how.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogSettings {
    /// A level, or directives as `RUST_LOG` takes them.
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl LogSettings {
    pub(super) fn read(section: Section<'_, '_>) -> Self {
        let settings = Self {
            level: section.value("level", "info".to_owned()),
            format: section.value("format", LogFormat::Text),
        };
        if let Err(e) = settings.level.parse::<EnvFilter>() {
            let message = format!(
                "log.level {:?} cannot be read: {e}; say error, warn, info, debug or trace",
                settings.level
            );
            section.complain("level", message);
        }
        section.finish();
        settings
    }
}

impl Setting for LogFormat {
    const WANTED: &'static str = "\"text\" or \"json\"";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        Self::from_text(value.as_str().ok_or(None)?).map_err(Some)
    }

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!(
                "{other:?} is no format of a log; {}",
                did_you_mean(other, ["text", "json"])
            )),
        }
    }

    fn shown(&self) -> Value {
        json!(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}
