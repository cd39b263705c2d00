//! `keyword=value` strings, as libpq reads them.
//!
//! Promises: everything libpq accepts gives the same values here. In addition a quote inside a quoted value may be
//! doubled (`'it''s'`), which libpq always refuses, so no string changes its meaning.
//! Must not: repeat any part of the text in an error that could belong to a password.

use std::iter::Peekable;
use std::str::Chars;

use super::ConnInfoError;
use super::keywords::{Settings, looks_like_keyword, lookup};

/// Reads `host=... user=... password='...'`.
pub(super) fn parse(text: &str) -> Result<Settings, ConnInfoError> {
    let mut settings = Settings::default();
    let mut previous: Option<Pair> = None;
    let mut chars = text.chars().peekable();
    loop {
        skip_blanks(&mut chars);
        if chars.peek().is_none() {
            return Ok(settings);
        }
        let keyword = keyword(&mut chars, previous)?;
        skip_blanks(&mut chars);
        let quoted = chars.next_if_eq(&'\'').is_some();
        let value = if quoted {
            quoted_value(&mut chars, keyword)?
        } else {
            bare_value(&mut chars)
        };
        settings.set(keyword, value);
        previous = Some(Pair { keyword, quoted });
    }
}

/// The pair before the current one: it decides what an error may show.
#[derive(Clone, Copy)]
struct Pair {
    keyword: &'static str,
    quoted: bool,
}

impl Pair {
    /// What follows a bare password may be the rest of it.
    fn may_go_on_with_a_secret(self) -> bool {
        self.keyword == "password" && !self.quoted
    }
}

fn keyword(
    chars: &mut Peekable<Chars<'_>>,
    previous: Option<Pair>,
) -> Result<&'static str, ConnInfoError> {
    let mut name = String::new();
    while let Some(c) = chars.next_if(|c| *c != '=' && !is_blank(*c)) {
        name.push(c);
    }
    skip_blanks(chars);
    if chars.next_if_eq(&'=').is_none() {
        return Err(missing_equals(&name, previous));
    }
    lookup(&name).map_err(|error| {
        if previous.is_some_and(Pair::may_go_on_with_a_secret) {
            return missing_equals("", previous);
        }
        if !looks_like_keyword(&name) {
            return ConnInfoError::KeyValue(
                "a keyword must consist of letters and \"_\"".to_owned(),
            );
        }
        error
    })
}

fn missing_equals(name: &str, previous: Option<Pair>) -> ConnInfoError {
    let place = match previous {
        None if looks_like_keyword(name) => format!("expected \"=\" after {name:?}"),
        None => "expected keyword=value".to_owned(),
        Some(pair) => format!(
            "expected another keyword=value after the value of {:?}; values with spaces need single quotes",
            pair.keyword
        ),
    };
    ConnInfoError::KeyValue(place)
}

fn bare_value(chars: &mut Peekable<Chars<'_>>) -> String {
    let mut value = String::new();
    while let Some(c) = chars.next_if(|c| !is_blank(*c)) {
        // A backslash at the very end stands for nothing, as in libpq.
        value.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    value
}

fn quoted_value(chars: &mut Peekable<Chars<'_>>, keyword: &str) -> Result<String, ConnInfoError> {
    let mut value = String::new();
    loop {
        match chars.next() {
            Some('\'') if chars.next_if_eq(&'\'').is_some() => value.push('\''),
            Some('\'') => return Ok(value),
            Some('\\') => value.extend(chars.next()),
            Some(c) => value.push(c),
            None => {
                return Err(ConnInfoError::KeyValue(format!(
                    "the quoted value of {keyword:?} has no closing quote"
                )));
            }
        }
    }
}

fn skip_blanks(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| is_blank(*c)).is_some() {}
}

/// C's `isspace` in the C locale.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str, keyword: &str) -> String {
        let settings = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        settings.get(keyword).unwrap_or_default().to_owned()
    }

    #[test]
    fn reads_what_libpq_reads() {
        assert_eq!(value("host=a user=b", "user"), "b");
        assert_eq!(value("  host = a\n\tuser\t=\nb ", "user"), "b");
        assert_eq!(value("password=a\\ b", "password"), "a b");
        assert_eq!(value("password='a b'", "password"), "a b");
        assert_eq!(value(r"password='it\'s \\'", "password"), r"it's \");
        assert_eq!(value(r"password=\'x\'", "password"), "'x'");
        assert_eq!(value("password='' user=b", "user"), "b");
        assert_eq!(value("password=''user=b", "user"), "b");
        assert_eq!(value("user=a user=b", "user"), "b");
        assert_eq!(value("user=a\\", "user"), "a");
        assert_eq!(value("options='-c a=b'", "options"), "-c a=b");
        assert_eq!(value("options=a=b", "options"), "a=b");
        assert_eq!(parse(" ").unwrap(), Settings::default());
    }

    #[test]
    fn a_doubled_quote_is_a_quote() {
        assert_eq!(value("password='it''s' user=b", "password"), "it's");
        assert_eq!(value("password=''''", "password"), "'");
    }

    #[test]
    fn errors_never_repeat_a_stray_part_of_the_password() {
        for text in [
            "password=correct horse",
            "password=correct horse host=x",
            "password=correct horse=x",
            "user=a password=correct horse battery=staple",
            "horse!://a:horse@b?sslmode=require",
            "password='horse",
            "a horse",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(!error.contains("horse"), "{text}: {error}");
        }
    }

    #[test]
    fn errors_say_what_is_missing() {
        let error = parse("host").unwrap_err().to_string();
        assert!(error.contains("expected \"=\" after \"host\""), "{error}");
        let error = parse("user='a").unwrap_err().to_string();
        assert!(error.contains("\"user\" has no closing quote"), "{error}");
    }

    fn quote(value: &str) -> String {
        format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'"))
    }

    proptest! {
        #[test]
        fn any_quoted_value_comes_back(user in any::<String>(), password in any::<String>()) {
            let text = format!("user={} password={}", quote(&user), quote(&password));
            let settings = parse(&text).unwrap();
            prop_assert_eq!(settings.get("user").unwrap_or_default(), user);
            prop_assert_eq!(settings.get("password").unwrap_or_default(), password);
        }

        #[test]
        fn any_escaped_value_comes_back(password in "(?s).{1,20}") {
            let escaped: String = password.chars().flat_map(|c| ['\\', c]).collect();
            let settings = parse(&format!("password={escaped} user=u")).unwrap();
            prop_assert_eq!(settings.get("password").unwrap_or_default(), password);
            prop_assert_eq!(settings.get("user"), Some("u"));
        }

        #[test]
        fn no_text_panics(text in r"[a-z_=' \\]{0,40}") {
            let _ = parse(&text);
        }
    }
}
