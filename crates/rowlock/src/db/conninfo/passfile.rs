//! Password files: lines of `host:port:database:user:password`, the first that matches wins.
//!
//! Reads as libpq does: `*` alone matches anything, `\` takes the next character as it is, `#` starts a comment line.
//! Must not: put anything of the file into a message.

use super::secret::Secret;

/// What a line must match.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) dbname: &'a str,
    pub(super) user: &'a str,
}

/// The password of the first line that matches.
pub(super) fn find(text: &str, wanted: Wanted<'_>) -> Option<Secret> {
    let port = wanted.port.to_string();
    let fields = [wanted.host, &port, wanted.dbname, wanted.user];
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| password_of(line, fields))
}

fn password_of(line: &str, wanted: [&str; 4]) -> Option<Secret> {
    let mut rest = line;
    for value in wanted {
        rest = match rest.strip_prefix("*:") {
            Some(after) => after,
            None => {
                let (field, after) = take_field(rest);
                after.filter(|_| field == value)?
            }
        };
    }
    // libpq stops the password at a bare colon, too.
    let (password, _) = take_field(rest);
    Some(Secret::new(password))
}

/// The first field without its escapes, and what follows its colon.
fn take_field(text: &str) -> (String, Option<&str>) {
    let mut field = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            ':' => return (field, Some(&text[at + 1..])),
            '\\' => field.extend(chars.next().map(|(_, escaped)| escaped)),
            _ => field.push(c),
        }
    }
    (field, None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WANTED: Wanted<'_> = Wanted {
        host: "db.example",
        port: 5432,
        dbname: "app",
        user: "ann",
    };

    fn password(text: &str) -> Option<String> {
        find(text, WANTED).map(|secret| secret.expose().to_owned())
    }

    #[test]
    fn the_first_matching_line_wins() {
        let text = "# db.example:5432:app:ann:comment\n\nother:5432:app:ann:1\ndb.example:5432:app:ann:2\n*:*:*:*:3\n";
        assert_eq!(password(text).as_deref(), Some("2"));
        assert_eq!(password("*:*:*:*:3\r\n").as_deref(), Some("3"));
        assert_eq!(password("*:5432:*:ann:4").as_deref(), Some("4"));
    }

    #[test]
    fn other_fields_do_not_match() {
        for line in [
            "db.example:5433:app:ann:x",
            "db.example:5432:app:bob:x",
            "db.example:5432:ap:ann:x",
            "db.example:5432:apps:ann:x",
            "db*:*:*:*:x",
            "**:*:*:*:x",
            "db.example:5432:app:ann",
            "db.example",
            "",
        ] {
            assert_eq!(password(line), None, "{line}");
        }
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(password(r"*:*:*:*:a\:b\\c:junk").as_deref(), Some(r"a:b\c"));
        assert_eq!(password(r"db\.example:*:*:*:x").as_deref(), Some("x"));
        let wanted = Wanted {
            host: "::1",
            ..WANTED
        };
        assert!(find(r"\:\:1:*:*:*:x", wanted).is_some());
        assert!(find("::1:*:*:*:x", wanted).is_none());
    }

    fn escape(text: &str) -> String {
        text.replace('\\', r"\\").replace(':', r"\:")
    }

    proptest! {
        #[test]
        fn any_escaped_line_matches(
            host in r"[^\r\n#][^\r\n]*", dbname in r"[^\r\n]+", user in r"[^\r\n]+", secret in r"[^\r\n]+",
        ) {
            let line = format!("{}:1:{}:{}:{}", escape(&host), escape(&dbname), escape(&user), escape(&secret));
            // A lone star is the wildcard; it matches itself as well.
            let found = find(&line, Wanted { host: &host, port: 1, dbname: &dbname, user: &user });
            prop_assert_eq!(found, Some(Secret::new(secret)));
        }
    }
}
