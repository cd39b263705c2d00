//! Connection URLs, as libpq reads them: `postgresql://user:password@host:port,host:port/dbname?keyword=value&...`.
//!
//! Promises: what libpq accepts gives the same values here, with two exceptions that protect passwords: an `@` that is not
//! percent-encoded may stand only between user information and hosts, and percent-encoded text must be UTF-8.
//! Must not: repeat any part of a URL that could belong to a password.

use percent_encoding::percent_decode_str;

use super::ConnInfoError;
use super::keywords::{Settings, looks_like_keyword, lookup};

/// The URL without its scheme, if the text is a connection URL.
pub(super) fn strip_scheme(text: &str) -> Option<&str> {
    ["postgresql://", "postgres://"]
        .into_iter()
        .find_map(|scheme| {
            let start = text.get(..scheme.len())?;
            start
                .eq_ignore_ascii_case(scheme)
                .then(|| &text[scheme.len()..])
        })
}

/// Reads what follows `postgresql://`.
pub(super) fn parse(rest: &str) -> Result<Settings, ConnInfoError> {
    let (userinfo, rest) = split_userinfo(rest);
    parse_parts(userinfo, rest).map_err(|error| {
        // With an "@" left over, the parts were cut in the wrong places and any of them may hold the password.
        if rest.contains('@') {
            ConnInfoError::UnencodedPassword
        } else {
            error
        }
    })
}

fn parse_parts(userinfo: Option<&str>, rest: &str) -> Result<Settings, ConnInfoError> {
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    if rest.contains('@') {
        return Err(ConnInfoError::UnencodedPassword);
    }
    let (hosts, dbname) = match rest.split_once('/') {
        Some((hosts, dbname)) => (hosts, Some(dbname)),
        None => (rest, None),
    };

    let mut settings = Settings::default();
    if let Some(userinfo) = userinfo {
        read_userinfo(userinfo, &mut settings)?;
    }
    read_hosts(hosts, &mut settings)?;
    if let Some(dbname) = dbname.filter(|dbname| !dbname.is_empty()) {
        settings.set("dbname", decode(dbname, "the database name")?);
    }
    for pair in query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        read_parameter(pair, &mut settings)?;
    }
    Ok(settings)
}

/// Cuts at the first `@` that comes before the path, as libpq does.
fn split_userinfo(rest: &str) -> (Option<&str>, &str) {
    match rest.find(['@', '/']) {
        Some(at) if rest.as_bytes()[at] == b'@' => (Some(&rest[..at]), &rest[at + 1..]),
        _ => (None, rest),
    }
}

fn read_userinfo(userinfo: &str, settings: &mut Settings) -> Result<(), ConnInfoError> {
    let (user, password) = match userinfo.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (userinfo, None),
    };
    if !user.is_empty() {
        settings.set("user", decode(user, "the user name")?);
    }
    if let Some(password) = password.filter(|password| !password.is_empty()) {
        settings.set("password", decode(password, "the password")?);
    }
    Ok(())
}

/// Hosts and ports become two comma-separated lists, which is also what `host=` and `port=` take.
fn read_hosts(hosts: &str, settings: &mut Settings) -> Result<(), ConnInfoError> {
    if hosts.is_empty() {
        return Ok(());
    }
    let mut names = Vec::new();
    let mut ports = Vec::new();
    for entry in hosts.split(',') {
        let (name, port) = split_port(entry)?;
        names.push(name);
        ports.push(port.unwrap_or_default());
    }
    // A list of empty entries stands for that many defaults.
    for (keyword, list, what) in [("host", names, "the host"), ("port", ports, "the port")] {
        let list = decode(&list.join(","), what)?;
        if !list.is_empty() {
            settings.set(keyword, list);
        }
    }
    Ok(())
}

fn split_port(entry: &str) -> Result<(&str, Option<&str>), ConnInfoError> {
    let Some(bracketed) = entry.strip_prefix('[') else {
        return Ok(match entry.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (entry, None),
        });
    };
    let wrong = |problem: &str| Err(ConnInfoError::Url(problem.to_owned()));
    match bracketed.split_once(']') {
        None => wrong("an IPv6 address that starts with \"[\" must end with \"]\""),
        Some(("", _)) => wrong("the IPv6 address between \"[\" and \"]\" is empty"),
        Some((address, "")) => Ok((address, None)),
        Some((address, after)) => match after.strip_prefix(':') {
            Some(port) => Ok((address, Some(port))),
            None => wrong(
                "after the \"]\" of an IPv6 address only \":port\", \",\", \"/\" or \"?\" may follow",
            ),
        },
    }
}

fn read_parameter(pair: &str, settings: &mut Settings) -> Result<(), ConnInfoError> {
    let Some((name, value)) = pair.split_once('=') else {
        return Err(ConnInfoError::Url(
            "a parameter after \"?\" has no \"=\"".to_owned(),
        ));
    };
    let name = decode(name, "a parameter name")?;
    if value.contains('=') {
        return Err(ConnInfoError::Url(format!(
            "a parameter after \"?\"{} has a second \"=\"; write it as %3D",
            if looks_like_keyword(&name) {
                format!(" ({name})")
            } else {
                String::new()
            }
        )));
    }
    let value = decode(value, "a parameter value")?;
    // JDBC's spelling, which libpq understands too.
    if name == "ssl" && value == "true" {
        settings.set("sslmode", "require");
        return Ok(());
    }
    let keyword = lookup(&name).map_err(|error| {
        if looks_like_keyword(&name) {
            return error;
        }
        ConnInfoError::Url("a parameter name must consist of letters and \"_\"".to_owned())
    })?;
    settings.set(keyword, value);
    Ok(())
}

fn decode(text: &str, what: &str) -> Result<String, ConnInfoError> {
    let wrong = |rule: &str| Err(ConnInfoError::Url(format!("{what} {rule}")));
    let well_formed = text.match_indices('%').all(|(at, _)| {
        let digits = text.as_bytes().get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    if !well_formed {
        return wrong(
            "has a \"%\" without two hexadecimal digits after it; a plain \"%\" is written %25",
        );
    }
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) if decoded.contains('\0') => wrong("contains %00, which Postgres cannot take"),
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => wrong("is not UTF-8 after percent-decoding"),
    }
}

#[cfg(test)]
mod tests {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn read(url: &str) -> Settings {
        let rest = strip_scheme(url).unwrap_or_else(|| panic!("{url} is no URL"));
        parse(rest).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[track_caller]
    fn check(url: &str, expected: &[(&'static str, &str)]) {
        let mut settings = Settings::default();
        for (keyword, value) in expected {
            settings.set(keyword, *value);
        }
        assert_eq!(read(url), settings, "{url}");
    }

    /// The cases of libpq's own test of its URL parser that name keywords known here.
    #[test]
    fn reads_what_libpq_reads() {
        check("postgresql://", &[]);
        check("postgres://", &[]);
        check("PostgreSQL://", &[]);
        check("postgresql:///", &[]);
        check("postgresql://host", &[("host", "host")]);
        check("postgresql://host/", &[("host", "host")]);
        check("postgresql://@host", &[("host", "host")]);
        check(
            "postgresql://host:12345/",
            &[("host", "host"), ("port", "12345")],
        );
        check("postgresql://:12345/", &[("port", "12345")]);
        check(
            "postgresql://:12345/db",
            &[("port", "12345"), ("dbname", "db")],
        );
        check("postgresql:///db", &[("dbname", "db")]);
        check(
            "postgresql://host/db?user=u",
            &[("host", "host"), ("dbname", "db"), ("user", "u")],
        );
        check("postgresql://u@host", &[("user", "u"), ("host", "host")]);
        check("postgresql://u:@host", &[("user", "u"), ("host", "host")]);
        check(
            "postgresql://:p@host",
            &[("password", "p"), ("host", "host")],
        );
        check(
            "postgresql://u:p?q@host",
            &[("user", "u"), ("password", "p?q"), ("host", "host")],
        );
        check(
            "postgresql://uri-user:secret@host:12345/",
            &[
                ("user", "uri-user"),
                ("password", "secret"),
                ("host", "host"),
                ("port", "12345"),
            ],
        );
        check("postgresql://%68ost/", &[("host", "host")]);
        check(
            "postgresql://host?u%73er=someotheruser&port=12345",
            &[
                ("host", "host"),
                ("user", "someotheruser"),
                ("port", "12345"),
            ],
        );
        check(
            "postgresql://host:12345?user=u",
            &[("host", "host"), ("port", "12345"), ("user", "u")],
        );
        check("postgresql://[::1]", &[("host", "::1")]);
        check(
            "postgresql://[2001:db8::1234]:5433/db",
            &[
                ("host", "2001:db8::1234"),
                ("port", "5433"),
                ("dbname", "db"),
            ],
        );
        check(
            "postgresql:///?host=/path/to/socket/dir",
            &[("host", "/path/to/socket/dir")],
        );
        check(
            "postgresql://otheruser@/?host=/no/such/directory",
            &[("user", "otheruser"), ("host", "/no/such/directory")],
        );
        check(
            "postgres://%2Fvar%2Flib%2Fpostgresql/dbname",
            &[("host", "/var/lib/postgresql"), ("dbname", "dbname")],
        );
        check(
            "postgresql://host/db?ssl=true",
            &[("host", "host"), ("dbname", "db"), ("sslmode", "require")],
        );
        check("postgresql:///?user=a@b", &[("user", "a@b")]);
    }

    #[test]
    fn several_hosts_become_lists() {
        check(
            "postgresql://a:1,b:2,c/db",
            &[("host", "a,b,c"), ("port", "1,2,"), ("dbname", "db")],
        );
        check(
            "postgresql://[::1]:1,b",
            &[("host", "::1,b"), ("port", "1,")],
        );
        check("postgresql://a,b", &[("host", "a,b"), ("port", ",")]);
        check("postgresql://,", &[("host", ","), ("port", ",")]);
    }

    #[test]
    fn refuses_what_libpq_refuses() {
        for url in [
            "postgresql://host/?user",
            "postgresql://host/?user=a=b",
            "postgresql://host/?zzz",
            "postgresql://host/?value1=value2",
            "postgresql://host?uzer=",
            "postgresql://[::1",
            "postgresql://[]",
            "postgresql://[::1]z",
            "postgresql://%",
            "postgres://host/%1",
            "postgres://host/%zz",
            "postgres://host/%00",
            "postgres://host/%ff",
        ] {
            assert!(
                parse(strip_scheme(url).unwrap()).is_err(),
                "{url} was accepted"
            );
        }
    }

    #[test]
    fn a_password_that_is_not_encoded_is_never_shown() {
        for url in [
            "postgres://u:hun/ter2@host/db",
            "postgres://u:hun@ter2@host/db",
            "postgres://u:hun@ter2/x@host/db",
            "postgres://u:5432/hunter2@host/db",
            "postgres://u:5432/hun?ter2@host/db",
            "postgres://u:5432/x?ter2=hun@host/db",
            "postgres://u:hunter2%@host/db",
            "postgres://u:hun%zzter2@host/db",
        ] {
            let error = parse(strip_scheme(url).unwrap()).unwrap_err().to_string();
            assert!(
                !error.contains("hun") && !error.contains("ter2"),
                "{url}: {error}"
            );
        }
    }

    #[test]
    fn other_text_is_no_url() {
        for text in [
            "",
            "postgres",
            "postgres:/",
            "mysql://a",
            "host=postgres://",
        ] {
            assert_eq!(strip_scheme(text), None, "{text}");
        }
    }

    fn encode(text: &str) -> String {
        utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
    }

    proptest! {
        #[test]
        fn any_encoded_value_comes_back(
            user in "[^\0]*", password in "[^\0]*", dbname in "[^\0]*", name in "[^\0]*",
        ) {
            let url = format!(
                "{}:{}@host/{}?application_name={}", encode(&user), encode(&password), encode(&dbname), encode(&name)
            );
            let settings = parse(&url).unwrap();
            prop_assert_eq!(settings.get("user").unwrap_or_default(), user);
            prop_assert_eq!(settings.get("password").unwrap_or_default(), password);
            prop_assert_eq!(settings.get("dbname").unwrap_or_default(), dbname);
            prop_assert_eq!(settings.get("application_name").unwrap_or_default(), name);
            prop_assert_eq!(settings.get("host"), Some("host"));
        }

        #[test]
        fn no_text_panics(text in r"[a-z%0-9:/?@,=&\[\]é]{0,40}") {
            let _ = parse(&text);
        }
    }
}
