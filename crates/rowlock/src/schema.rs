//! The schema of the queue: its name, and its SQL with that name put in.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::error::Invalid;

/// The name of the schema that holds one Rowlock: `rowlock` unless told otherwise. Several can live in one database.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Schema(Arc<str>);

impl Schema {
    /// Letters, digits and underscores, not starting with a digit, at most 40 bytes, lower case: a name that needs no quotes
    /// anywhere.
    pub fn new(name: &str) -> Result<Self, Invalid> {
        let mut chars = name.chars();
        let fine = chars
            .next()
            .is_some_and(|c| c.is_ascii_lowercase() || c == '_')
            && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && name.len() <= 40
            && !name.starts_with("pg_");
        if fine {
            Ok(Self(name.into()))
        } else {
            let rule = "is no name for a schema here: use lower-case letters, digits and _, at most 40, not starting with a digit or pg_";
            Err(Invalid::new("schema", name, rule))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Puts the name into a text of ours, in which `rowlock.` and `'@schema'` stand for it.
    pub(crate) fn sql<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if &*self.0 == "rowlock" && !text.contains("'@schema'") {
            return Cow::Borrowed(text);
        }
        Cow::Owned(
            text.replace("rowlock.", &format!("{}.", self.0))
                .replace("'@schema'", &format!("'{}'", self.0)),
        )
    }
}

impl Default for Schema {
    fn default() -> Self {
        Self("rowlock".into())
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_put_in() {
        let schema = Schema::new("tenant_7").unwrap();
        assert_eq!(
            schema.sql("select rowlock.clock(), '@schema'"),
            "select tenant_7.clock(), 'tenant_7'"
        );
        assert_eq!(
            Schema::default().sql("select rowlock.clock()"),
            "select rowlock.clock()"
        );
    }

    #[test]
    fn names_that_would_need_quotes_are_refused() {
        for bad in [
            "",
            "7up",
            "a-b",
            "A",
            "a b",
            "a\"",
            "a'",
            "pg_x",
            &"x".repeat(41),
        ] {
            assert!(Schema::new(bad).is_err(), "{bad}");
        }
    }
}
