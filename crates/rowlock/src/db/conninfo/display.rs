//! How connection settings are shown: as a URL that is safe to log, and that reads back as the same settings but for the
//! password.

use std::fmt::{self, Write};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

use super::build::{
    DEFAULT_APPLICATION_NAME, DEFAULT_CONNECT_TIMEOUT, DEFAULT_KEEPALIVE, DEFAULT_TCP_USER_TIMEOUT,
};
use super::{ConnInfo, Endpoint, Host, Roots};

/// All but what RFC 3986 leaves alone everywhere in a URL.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

fn escape(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, ESCAPED)
}

impl fmt::Display for ConnInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_password = self
            .endpoints
            .iter()
            .any(|endpoint| endpoint.password.is_some());
        let password = if has_password { ":***" } else { "" };
        write!(f, "postgresql://{}{password}@", escape(&self.user))?;
        for (i, endpoint) in self.endpoints.iter().enumerate() {
            if i > 0 {
                f.write_char(',')?;
            }
            write_endpoint(f, endpoint)?;
        }
        write!(f, "/{}", escape(&self.dbname))?;
        let mut separator = '?';
        for (keyword, value) in self.parameters() {
            write!(f, "{separator}{keyword}={}", escape(&value))?;
            separator = '&';
        }
        Ok(())
    }
}

impl fmt::Debug for ConnInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnInfo({self})")
    }
}

fn write_endpoint(f: &mut fmt::Formatter<'_>, endpoint: &Endpoint) -> fmt::Result {
    match &endpoint.host {
        Host::Socket(directory) => write!(f, "{}", escape(&directory.to_string_lossy()))?,
        Host::Tcp(name) if name.contains(':') => write!(f, "[{}]", escape(name))?,
        Host::Tcp(name) => write!(f, "{}", escape(name))?,
    }
    write!(f, ":{}", endpoint.port)
}

impl ConnInfo {
    /// The settings that differ from their defaults.
    fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut list = Vec::new();
        let mut add = |differs: bool, keyword, value: String| {
            if differs {
                list.push((keyword, value));
            }
        };
        add(
            self.endpoints.iter().any(|e| e.hostaddr.is_some()),
            "hostaddr",
            self.addresses(),
        );
        add(
            self.tls.mode != Default::default(),
            "sslmode",
            self.tls.mode.to_string(),
        );
        match &self.tls.roots {
            Roots::None => {}
            Roots::System => add(true, "sslrootcert", "system".to_owned()),
            Roots::File(file) => add(true, "sslrootcert", file.to_string_lossy().into_owned()),
        }
        if let Some(client) = &self.tls.client {
            add(true, "sslcert", client.cert.to_string_lossy().into_owned());
            add(true, "sslkey", client.key.to_string_lossy().into_owned());
        }
        add(
            self.channel_binding != Default::default(),
            "channel_binding",
            self.channel_binding.to_string(),
        );
        add(
            self.target_session_attrs != Default::default(),
            "target_session_attrs",
            self.target_session_attrs.to_string(),
        );
        add(
            self.load_balance_hosts != Default::default(),
            "load_balance_hosts",
            self.load_balance_hosts.to_string(),
        );
        add(
            self.application_name != DEFAULT_APPLICATION_NAME,
            "application_name",
            self.application_name.clone(),
        );
        if let Some(options) = &self.options {
            add(true, "options", options.clone());
        }
        add(
            self.connect_timeout != Some(DEFAULT_CONNECT_TIMEOUT),
            "connect_timeout",
            seconds(self.connect_timeout),
        );
        add(
            self.tcp_user_timeout != Some(DEFAULT_TCP_USER_TIMEOUT),
            "tcp_user_timeout",
            self.tcp_user_timeout
                .map_or(0, |timeout| timeout.as_millis())
                .to_string(),
        );
        match self.keepalive {
            None => add(true, "keepalives", "0".to_owned()),
            Some(keepalive) => {
                let usual = DEFAULT_KEEPALIVE;
                add(
                    keepalive.idle != usual.idle,
                    "keepalives_idle",
                    seconds(keepalive.idle),
                );
                add(
                    keepalive.interval != usual.interval,
                    "keepalives_interval",
                    seconds(keepalive.interval),
                );
                add(
                    keepalive.retries != usual.retries,
                    "keepalives_count",
                    keepalive.retries.unwrap_or(0).to_string(),
                );
            }
        }
        list
    }

    fn addresses(&self) -> String {
        let shown =
            |endpoint: &Endpoint| endpoint.hostaddr.map(|a| a.to_string()).unwrap_or_default();
        self.endpoints
            .iter()
            .map(shown)
            .collect::<Vec<_>>()
            .join(",")
    }
}

fn seconds(duration: Option<Duration>) -> String {
    duration
        .map_or(0, |duration| duration.as_secs())
        .to_string()
}
