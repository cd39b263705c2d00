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
        let readable = settings.level.parse::<EnvFilter>();
        let readable = readable.map_err(|e| format!("{e}; say error, warn, info, debug or trace"));
        if let Err(why) = readable.and_then(|_| check_levels(&settings.level)) {
            let level = &settings.level;
            section.complain(
                "level",
                format!("log.level {level:?} cannot be read: {why}"),
            );
        }
        section.finish();
        settings
    }
}

/// A level that is mistyped would be taken for the name of a module, and everything else would be silent.
fn check_levels(directives: &str) -> Result<(), String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for part in directives.split(',').map(str::trim) {
        let level = match part.rsplit_once('=') {
            // A span or a module alone.
            _ if part.ends_with(']') || part.contains("::") && !part.contains('=') => continue,
            Some((_, level)) => level,
            None => part,
        };
        if !LEVELS.contains(&level.to_lowercase().as_str()) {
            let meant = did_you_mean(level, LEVELS);
            return Err(format!("{level:?} is no level; {meant}"));
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_told_from_slips() {
        for good in [
            "info",
            "WARN",
            "off",
            "info,rowlock=debug",
            "rowlock::worker",
            "warn, rowlock::handler=debug",
            "info,rowlock[job{id=7}]",
            "rowlock[job{id=7}]=trace",
        ] {
            assert_eq!(check_levels(good), Ok(()), "{good}");
        }
        for (bad, said) in [
            ("inof", "\"inof\" is no level; did you mean \"info\"?"),
            ("info,rowlock=", "\"\" is no level"),
            ("rowlock=debgu", "did you mean \"debug\"?"),
            ("", "\"\" is no level"),
        ] {
            let why = check_levels(bad).unwrap_err();
            assert!(why.contains(said), "{bad}: {why}");
        }
    }
}
