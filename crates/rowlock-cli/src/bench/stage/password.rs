//! The password of a connection string. The library keeps it to itself, so it is looked for where it may have come from, and the library says
//! whether it is the right one. Pure, but for the environment.

use percent_encoding::percent_decode_str;
use rowlock::ConnInfo;

/// The password that `text` and the environment gave to `info`.
pub(super) fn find(info: &ConnInfo, text: &str) -> anyhow::Result<String> {
    let right = |password: &String| info.clone().with_password(password) == *info;
    let candidates = in_url(text)
        .into_iter()
        .chain(in_pairs(text))
        .chain(std::env::var("PGPASSWORD"));
    candidates.into_iter().find(right).ok_or_else(|| {
        anyhow::anyhow!(
            "the password for {info} comes from a file, where a benchmark does not look: say it in -d or in PGPASSWORD"
        )
    })
}

/// Of `postgres://user:password@host/…` and `…?password=…`.
fn in_url(text: &str) -> Vec<String> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let Some((_, rest)) = text.trim().split_once("://") else {
        return Vec::new();
    };
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let user = place.rsplit_once('@').map_or("", |(user, _)| user);
    let beside_user = user.split_once(':').map(|(_, password)| password);
    let parameter = parameters
        .split('&')
        .find_map(|p| p.strip_prefix("password="));
    beside_user
        .into_iter()
        .chain(parameter)
        .map(decoded)
        .collect()
}

/// Of `host=… password='…'`: whatever follows that word.
fn in_pairs(text: &str) -> Vec<String> {
    let after = |(at, word): (usize, &str)| {
        let value = text[at + word.len()..].trim_start().strip_prefix('=')?;
        Some(value_at(value.trim_start()))
    };
    text.match_indices("password").filter_map(after).collect()
}

/// A value up to its end: a quote, if it begins with one, else a blank. A backslash makes the next character an ordinary one.
fn value_at(text: &str) -> String {
    let (quoted, text) = match text.strip_prefix('\'') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut value = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => value.extend(letters.next()),
            '\'' if quoted => break,
            c if !quoted && c.is_whitespace() => break,
            c => value.push(c),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_found_in_every_form() {
        for (text, password) in [
            ("postgres://ann:s%40cret@localhost/app", "s@cret"),
            (
                "postgres://ann@localhost/app?password=x%20y&sslmode=disable",
                "x y",
            ),
            ("host=localhost user=ann password=plain dbname=app", "plain"),
            (
                r"host=localhost user=ann password = 'it\'s \\ so' dbname=app",
                r"it's \ so",
            ),
            ("user=password password=real host=localhost", "real"),
        ] {
            let info = ConnInfo::parse(text).unwrap();
            assert_eq!(find(&info, text).unwrap(), password, "{text}");
        }
    }

    #[test]
    fn one_from_elsewhere_is_not_guessed() {
        let info = ConnInfo::parse("host=localhost user=ann password=elsewhere").unwrap();
        let said = find(&info, "host=localhost user=ann")
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("PGPASSWORD") && !said.contains("elsewhere"),
            "{said}"
        );
    }
}
