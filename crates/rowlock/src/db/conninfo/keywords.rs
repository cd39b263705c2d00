//! The connection keywords: which exist, which environment variable stands in for each, and what to say about others.
//!
//! Knows names only. What a value means is decided in `build`.

use std::collections::BTreeMap;
use std::fmt;

use super::ConnInfoError;

/// The keywords that are honoured, with the environment variable that libpq reads when one is not given.
pub(super) const KEYWORDS: &[(&str, Option<&str>)] = &[
    ("application_name", Some("PGAPPNAME")),
    ("channel_binding", Some("PGCHANNELBINDING")),
    ("client_encoding", None),
    ("connect_timeout", Some("PGCONNECT_TIMEOUT")),
    ("dbname", Some("PGDATABASE")),
    ("fallback_application_name", None),
    ("gssencmode", None),
    ("host", Some("PGHOST")),
    ("hostaddr", Some("PGHOSTADDR")),
    ("keepalives", None),
    ("keepalives_count", None),
    ("keepalives_idle", None),
    ("keepalives_interval", None),
    ("load_balance_hosts", Some("PGLOADBALANCEHOSTS")),
    ("options", Some("PGOPTIONS")),
    ("passfile", Some("PGPASSFILE")),
    ("password", Some("PGPASSWORD")),
    ("port", Some("PGPORT")),
    ("service", Some("PGSERVICE")),
    ("sslcert", Some("PGSSLCERT")),
    ("sslkey", Some("PGSSLKEY")),
    ("sslmode", Some("PGSSLMODE")),
    ("sslrootcert", Some("PGSSLROOTCERT")),
    ("target_session_attrs", Some("PGTARGETSESSIONATTRS")),
    ("tcp_user_timeout", None),
    ("user", Some("PGUSER")),
];

/// Keywords of libpq that would be silently wrong to ignore.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("gssdelegation", "there is no GSSAPI here"),
    ("gsslib", "there is no GSSAPI here"),
    ("krbsrvname", "there is no GSSAPI here"),
    (
        "max_protocol_version",
        "the protocol version is fixed at 3.0",
    ),
    (
        "min_protocol_version",
        "the protocol version is fixed at 3.0",
    ),
    ("oauth_client_id", "OAuth is not supported"),
    ("oauth_client_secret", "OAuth is not supported"),
    ("oauth_issuer", "OAuth is not supported"),
    ("oauth_scope", "OAuth is not supported"),
    ("replication", "a job queue needs an ordinary session"),
    (
        "require_auth",
        "use channel_binding=require or sslmode=verify-full",
    ),
    (
        "requirepeer",
        "use a TCP connection with sslmode=verify-full",
    ),
    ("requiressl", "use sslmode=require"),
    ("scram_client_key", "use password or passfile"),
    ("scram_server_key", "use password or passfile"),
    ("servicefile", "use the environment variable PGSERVICEFILE"),
    ("ssl_max_protocol_version", "TLS 1.2 and 1.3 are used"),
    ("ssl_min_protocol_version", "TLS 1.2 and 1.3 are used"),
    (
        "sslcertmode",
        "leave sslcert out to send no client certificate",
    ),
    ("sslcompression", "TLS compression is never used"),
    ("sslcrl", "certificate revocation lists are not checked"),
    ("sslcrldir", "certificate revocation lists are not checked"),
    ("sslkeylogfile", "TLS secrets are never written"),
    ("sslnegotiation", "TLS is negotiated the classic way"),
    (
        "sslpassword",
        "encrypted key files are not read; decrypt the key",
    ),
    ("sslsni", "the server name is always sent"),
];

/// What people type who come from other drivers.
const HABITS: &[(&str, &str)] = &[
    ("currentschema", "options"),
    ("database", "dbname"),
    ("db", "dbname"),
    ("hostname", "host"),
    ("pass", "password"),
    ("pwd", "password"),
    ("schema", "options"),
    ("search_path", "options"),
    ("server", "host"),
    ("ssl", "sslmode"),
    ("timeout", "connect_timeout"),
    ("tls", "sslmode"),
    ("username", "user"),
];

/// Keyword values as given, before they mean anything.
///
/// A keyword that is present with an empty value stays present: it keeps the environment from filling it in.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Settings(BTreeMap<&'static str, String>);

impl Settings {
    pub(super) fn set(&mut self, keyword: &'static str, value: impl Into<String>) {
        self.0.insert(keyword, value.into());
    }

    pub(super) fn set_if_missing(&mut self, keyword: &'static str, value: impl Into<String>) {
        self.0.entry(keyword).or_insert_with(|| value.into());
    }

    pub(super) fn is_given(&self, keyword: &str) -> bool {
        self.0.contains_key(keyword)
    }

    /// The value of a keyword, if it is given and not empty.
    pub(super) fn get(&self, keyword: &str) -> Option<&str> {
        self.0
            .get(keyword)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (keyword, value) in &self.0 {
            map.entry(
                keyword,
                if *keyword == "password" {
                    &"***"
                } else {
                    value
                },
            );
        }
        map.finish()
    }
}

/// The keyword as the table spells it, or an error that helps.
pub(super) fn lookup(name: &str) -> Result<&'static str, ConnInfoError> {
    if let Some((keyword, _)) = KEYWORDS.iter().find(|(keyword, _)| *keyword == name) {
        return Ok(keyword);
    }
    if let Some((keyword, reason)) = UNSUPPORTED.iter().find(|(keyword, _)| *keyword == name) {
        return Err(ConnInfoError::UnsupportedKeyword {
            keyword: (*keyword).to_owned(),
            reason,
        });
    }
    Err(ConnInfoError::UnknownKeyword {
        keyword: name.to_owned(),
        nearest: Nearest(nearest(name)),
    })
}

/// Whether text could be meant as a keyword, and so may be repeated in an error. Anything else could be a secret that
/// ended up in the wrong place.
pub(super) fn looks_like_keyword(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 40
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The known keyword that looks most like a mistyped one; prints as the end of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nearest(Option<&'static str>);

impl Nearest {
    /// The keyword.
    #[must_use]
    pub fn keyword(self) -> Option<&'static str> {
        self.0
    }
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some("options") => f.write_str(
                " (server settings go into options, as in options='-c search_path=app')",
            ),
            Some(keyword) => write!(f, " (did you mean {keyword:?}?)"),
            None => Ok(()),
        }
    }
}

fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    if let Some((_, keyword)) = HABITS.iter().find(|(habit, _)| *habit == name) {
        return Some(keyword);
    }
    let (distance, keyword) = KEYWORDS
        .iter()
        .map(|(keyword, _)| (edit_distance(&name, keyword), *keyword))
        .min()?;
    // Further away than half of its letters it is another word, not a typo.
    (distance <= keyword.len() / 2).then_some(keyword)
}

/// Letters to insert, delete or replace to get from one word to the other (Levenshtein).
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replace = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn suggestion(name: &str) -> Option<&'static str> {
        match lookup(name) {
            Err(ConnInfoError::UnknownKeyword { nearest, .. }) => nearest.keyword(),
            other => panic!("{name} should be unknown, got {other:?}"),
        }
    }

    #[test]
    fn a_typo_names_the_keyword_that_was_meant() {
        assert_eq!(suggestion("sslmod"), Some("sslmode"));
        assert_eq!(suggestion("aplication_name"), Some("application_name"));
        assert_eq!(suggestion("HOST"), Some("host"));
        assert_eq!(suggestion("keepalive_idle"), Some("keepalives_idle"));
        assert_eq!(suggestion("database"), Some("dbname"));
        assert_eq!(suggestion("username"), Some("user"));
        assert_eq!(suggestion("zzzzzzzzzzzz"), None);
    }

    #[test]
    fn the_message_carries_the_suggestion() {
        let error = lookup("conect_timeout").unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown connection keyword \"conect_timeout\" (did you mean \"connect_timeout\"?)"
        );
    }

    #[test]
    fn keywords_of_libpq_that_are_not_honoured_are_refused_with_a_reason() {
        let error = lookup("sslcrl").unwrap_err();
        assert!(error.to_string().contains("revocation"), "{error}");
    }

    #[test]
    fn edit_distance_of_known_pairs() {
        assert_eq!(edit_distance("", ""), 0);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("user", ""), 4);
    }

    #[test]
    fn no_keyword_is_both_known_and_refused() {
        for (name, _) in UNSUPPORTED {
            assert!(
                !KEYWORDS.iter().any(|(keyword, _)| keyword == name),
                "{name}"
            );
        }
        for (_, keyword) in HABITS {
            assert!(
                KEYWORDS.iter().any(|(known, _)| known == keyword),
                "{keyword}"
            );
        }
    }

    #[test]
    fn settings_do_not_show_the_password() {
        let mut settings = Settings::default();
        settings.set("password", "hunter2");
        settings.set("user", "ann");
        let shown = format!("{settings:?}");
        assert!(
            !shown.contains("hunter2") && shown.contains("ann"),
            "{shown}"
        );
    }
}
