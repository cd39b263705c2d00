//! Writes and changes database URLs.
//!
//! Promises: a URL that comes out is understood by libpq, tokio-postgres and sqlx, whatever characters are in its parts. Must
//! not open a connection.

use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio_postgres::config::{Config, SslMode};

use crate::error::with_causes;

/// The user that owns every cluster that this crate makes.
pub(crate) const SUPERUSER: &str = "postgres";

/// What may stand unquoted in any part of a URL.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// What may also stand unquoted in a query.
const PLAIN_IN_QUERY: &AsciiSet = &PLAIN.remove(b'/');

/// The URL of a database behind a Unix socket.
pub(crate) fn socket_url(socket_dir: &Path, port: u16, dbname: &str) -> String {
    let host = socket_dir.to_string_lossy();
    let host = utf8_percent_encode(&host, PLAIN_IN_QUERY);
    let dbname = utf8_percent_encode(dbname, PLAIN);
    format!("postgresql:///{dbname}?host={host}&port={port}&user={SUPERUSER}")
}

/// The URL of a database behind a TCP port of this machine.
pub(crate) fn tcp_url(port: u16, dbname: &str) -> String {
    let dbname = utf8_percent_encode(dbname, PLAIN);
    format!("postgresql://{SUPERUSER}@127.0.0.1:{port}/{dbname}")
}

/// The URL of what `config` describes, but through a TCP port of this machine.
pub(crate) fn through_port(config: &Config, port: u16) -> String {
    let quoted = |text: &str| utf8_percent_encode(text, PLAIN).to_string();
    let user = config.get_user().map(quoted).unwrap_or_default();
    let password = config
        .get_password()
        .map(|password| quoted(&String::from_utf8_lossy(password)));
    let login = match (user.as_str(), password) {
        ("", _) => String::new(),
        (user, None) => format!("{user}@"),
        (user, Some(password)) => format!("{user}:{password}@"),
    };
    let dbname = config
        .get_dbname()
        .map(|dbname| format!("/{}", quoted(dbname)))
        .unwrap_or_default();
    let mut query = Vec::new();
    match config.get_ssl_mode() {
        SslMode::Disable => query.push("sslmode=disable".to_owned()),
        SslMode::Require => query.push("sslmode=require".to_owned()),
        _ => {}
    }
    query.extend(
        config
            .get_options()
            .map(|options| format!("options={}", quoted(options))),
    );
    query.extend(
        config
            .get_application_name()
            .map(|name| format!("application_name={}", quoted(name))),
    );
    let query = if query.is_empty() {
        String::new()
    } else {
        format!("?{}", query.join("&"))
    };
    format!("postgresql://{login}127.0.0.1:{port}{dbname}{query}")
}

/// The same URL with another database in it. The error says what is wrong with the URL, without its password.
pub(crate) fn with_dbname(url: &str, dbname: &str) -> Result<String, String> {
    let schemes = ["postgresql://", "postgres://"];
    let Some(scheme) = schemes.into_iter().find(|scheme| url.starts_with(scheme)) else {
        return Err("it does not begin with postgresql://".to_owned());
    };
    url.parse::<Config>().map_err(|error| with_causes(&error))?;
    let rest = &url[scheme.len()..];
    let (before_query, query) = match rest.split_once('?') {
        Some((before, query)) => (before, format!("?{query}")),
        None => (rest, String::new()),
    };
    if query.contains("dbname=") {
        return Err("it names its database in the query, not in the path".to_owned());
    }
    let authority = before_query
        .split_once('/')
        .map_or(before_query, |(authority, _)| authority);
    let dbname = utf8_percent_encode(dbname, PLAIN);
    Ok(format!("{scheme}{authority}/{dbname}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_postgres::config::Host;

    #[test]
    fn a_socket_url_is_read_back_by_the_driver() {
        let url = socket_url(Path::new("/tmp/a b&c/s"), 5433, "my/db?");
        let config: Config = url.parse().unwrap();
        assert_eq!(config.get_hosts(), [Host::Unix("/tmp/a b&c/s".into())]);
        assert_eq!(config.get_ports(), [5433]);
        assert_eq!(config.get_user(), Some("postgres"));
        assert_eq!(config.get_dbname(), Some("my/db?"));
    }

    #[test]
    fn a_tcp_url_is_read_back_by_the_driver() {
        let config: Config = tcp_url(6000, "jobs").parse().unwrap();
        assert_eq!(config.get_hosts(), [Host::Tcp("127.0.0.1".into())]);
        assert_eq!(
            (config.get_ports(), config.get_dbname()),
            (&[6000][..], Some("jobs"))
        );
    }

    #[test]
    fn another_database_changes_nothing_else() {
        let same =
            |url: &str, expected: &str| assert_eq!(with_dbname(url, "new one").unwrap(), expected);
        same(
            "postgres://u:p%2F@h:1/old",
            "postgres://u:p%2F@h:1/new%20one",
        );
        same("postgresql://u@h", "postgresql://u@h/new%20one");
        same(
            "postgresql:///old?host=/tmp/s&user=u",
            "postgresql:///new%20one?host=/tmp/s&user=u",
        );
        assert!(
            with_dbname("host=localhost user=u", "x")
                .unwrap_err()
                .contains("begin with")
        );
        assert!(with_dbname("postgresql:///?dbname=x", "x").is_err());
        let error = with_dbname("postgresql://u:secret@h/db?port=x", "x").unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_url_through_a_port_keeps_everything_but_the_host() {
        let url = "postgresql:///d%2Fb?host=/tmp/s&user=u%40x&password=p%3Aw&options=-c%20a%3Db&sslmode=disable";
        let through: Config = through_port(&url.parse().unwrap(), 7).parse().unwrap();
        assert_eq!(through.get_hosts(), [Host::Tcp("127.0.0.1".into())]);
        assert_eq!(through.get_ports(), [7]);
        assert_eq!(
            (through.get_user(), through.get_dbname()),
            (Some("u@x"), Some("d/b"))
        );
        assert_eq!(
            (through.get_password(), through.get_options()),
            (Some(&b"p:w"[..]), Some("-c a=b"))
        );
        assert_eq!(through.get_ssl_mode(), SslMode::Disable);
        assert_eq!(through_port(&Config::new(), 7), "postgresql://127.0.0.1:7");
    }
}
