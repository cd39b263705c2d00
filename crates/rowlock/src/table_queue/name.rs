//! Names of tables, columns and channels, read and written as SQL does. Pure.

use crate::error::Invalid;

/// Longest name that Postgres keeps whole, in bytes.
const IDENTIFIER_BYTES_MAX: usize = 63;

/// A table's name: with its schema, or without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableName {
    pub(super) schema: Option<String>,
    pub(super) table: String,
}

impl TableName {
    pub(super) fn parse(text: &str) -> Result<Self, Invalid> {
        let mut parts = parse("table", text)?;
        let table = parts.pop().unwrap_or_default();
        let schema = parts.pop();
        if !parts.is_empty() {
            let rule = "has too many parts: write it as table or as schema.table";
            return Err(Invalid::new("table", text, rule));
        }
        Ok(Self { schema, table })
    }
}

/// A name of one part: a column, a channel.
pub(super) fn parse_one(what: &'static str, text: &str) -> Result<String, Invalid> {
    match <[String; 1]>::try_from(parse(what, text)?) {
        Ok([name]) => Ok(name),
        Err(_) => Err(Invalid::new(
            what,
            text,
            "has a dot: a name of one part belongs here (in double quotes if the dot is part of it)",
        )),
    }
}

/// The parts of a dotted name. As in SQL, a part without quotes is folded to lower case.
fn parse(what: &'static str, text: &str) -> Result<Vec<String>, Invalid> {
    let invalid = |rule: &str| Err(Invalid::new(what, text, rule));
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let part;
        if let Some(quoted) = rest.strip_prefix('"') {
            let Some((name, after)) = unquote(quoted) else {
                return invalid("has a double quote that is not closed");
            };
            (part, rest) = (name, after);
        } else {
            let end = rest.find('.').unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            if !is_plain(name) && !name.is_empty() {
                return invalid(
                    "needs double quotes, as in SQL: a name with spaces or signs is written \"like this\"",
                );
            }
            (part, rest) = (name.to_lowercase(), after);
        }
        if part.is_empty() {
            return invalid("is no name: a part of it is empty");
        }
        if part.len() > IDENTIFIER_BYTES_MAX {
            return invalid("is too long: Postgres keeps 63 bytes of a name");
        }
        if part.contains('\0') {
            return invalid("has a NUL character");
        }
        parts.push(part);
        if rest.is_empty() {
            return Ok(parts);
        }
        let Some(next) = rest.strip_prefix('.') else {
            return invalid("goes on after a closing quote: only a dot may follow");
        };
        rest = next;
    }
}

/// Reads up to the closing quote; a doubled quote is one of the name.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let at = rest.find('"')?;
        name.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(next) = rest.strip_prefix('"') else {
            return Some((name, rest));
        };
        name.push('"');
        rest = next;
    }
}

fn is_plain(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_' || c == '$')
}

/// A name as it stands in a statement.
pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(text: &str) -> (Option<String>, String) {
        let name = TableName::parse(text).unwrap();
        (name.schema, name.table)
    }

    #[test]
    fn names_are_read_as_sql_reads_them() {
        assert_eq!(table("work_items"), (None, "work_items".into()));
        assert_eq!(table("Work_Items"), (None, "work_items".into()));
        assert_eq!(table("shop.orders"), (Some("shop".into()), "orders".into()));
        assert_eq!(table("\"Weird Table\""), (None, "Weird Table".into()));
        assert_eq!(
            table("shop.\"a.b\"\"c\""),
            (Some("shop".into()), "a.b\"c".into())
        );
    }

    #[test]
    fn what_is_no_name_says_why() {
        for (bad, why) in [
            ("", "empty"),
            ("a.", "empty"),
            ("a.b.c", "too many parts"),
            ("Weird Table", "double quotes"),
            ("a;b", "double quotes"),
            ("\"a", "not closed"),
            ("\"a\"b", "goes on"),
            (&"x".repeat(64), "63 bytes"),
        ] {
            let error = TableName::parse(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
        assert!(parse_one("key", "a.b").is_err());
    }

    proptest! {
        /// Whatever a name holds, quoting and reading gives it back.
        #[test]
        fn quoting_is_undone_by_reading(name in "[^\\x00]{1,15}") {
            prop_assert_eq!(parse_one("key", &quote(&name)).unwrap(), name);
        }
    }
}
