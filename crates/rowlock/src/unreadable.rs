//! Why JSON is not what somebody expects there, without anything of what is in it: what serde quotes may be anybody's secret, and errors are logged
//! and kept. Pure.

use serde_json::error::Category;

/// What serde says, but for the values that it quotes.
///
/// A type that reads itself in code of its own says what it likes, as a handler's errors do.
pub(crate) fn why(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match error.classify() {
        Category::Data => without_values(&text),
        // Nothing is quoted of what is no JSON at all.
        Category::Syntax | Category::Eof | Category::Io => text,
    }
}

/// The same as an error.
pub(crate) fn error(error: &serde_json::Error) -> serde_json::Error {
    serde::de::Error::custom(why(error))
}

/// `invalid type: string "…", expected i64 at line 1 column 9` keeps all but the string.
fn without_values(text: &str) -> String {
    const QUOTING: [&str; 5] = [
        "invalid type: ",
        "invalid value: ",
        "invalid length ",
        "unknown variant ",
        "unknown field ",
    ];
    let Some(start) = QUOTING.into_iter().find(|start| text.starts_with(start)) else {
        return text.to_owned();
    };
    let rest = &text[start.len()..];
    // A value that says "expected" itself comes before what is expected. Of a name it may be left out; then what looks like it is part of the name.
    let sign_of = |sign: &'static str| {
        let quoted = start.starts_with("unknown");
        rest.rmatch_indices(sign)
            .map(|(at, _)| at)
            .find(|&at| !quoted || rest[..at].ends_with('`'))
    };
    let expected = [", expected ", ", there are no "].map(sign_of);
    let end = expected.into_iter().flatten().max();
    let (value, end) = end.map_or((rest, place(text)), |at| rest.split_at(at));
    // Of what sort it is comes before the quote: `string "…"`, ``integer `7` ``.
    let sort = value.split(['"', '`']).next().unwrap_or("");
    let what = format!("{start}{sort}");
    format!("{}{end}", what.trim_end_matches([' ', ':']))
}

/// Where it was, if the text ends with that.
fn place(text: &str) -> &str {
    text.rfind(" at line ").map_or("", |at| &text[at..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "read, and then thrown away")]
    struct Mail {
        to: String,
        n: Option<u8>,
        how: Option<How>,
        pair: Option<(u8, u8)>,
    }

    #[derive(Debug, Deserialize)]
    enum How {
        Fast,
        Slow,
    }

    fn why_not(payload: &str) -> String {
        why(&serde_json::from_str::<Mail>(payload).expect_err("it is no mail"))
    }

    #[test]
    fn it_says_what_is_wrong_and_where_and_quotes_nothing() {
        for (payload, text) in [
            (
                r#"{"to":7}"#,
                "invalid type: integer, expected a string at line 1 column 7",
            ),
            (
                r#"{"to":"a","n":"x"}"#,
                "invalid type: string, expected u8 at line 1 column 17",
            ),
            (
                r#"{"to":"a","n":777}"#,
                "invalid value: integer, expected u8 at line 1 column 17",
            ),
            (
                r#"{"to":"a","how":"S3cret"}"#,
                "unknown variant, expected `Fast` or `Slow` at line 1 column 24",
            ),
            (
                r#"{"to":"a","s3cret":1}"#,
                "unknown field, expected one of `to`, `n`, `how`, `pair` at line 1 column 18",
            ),
            (r#"{"n":1}"#, "missing field `to` at line 1 column 7"),
            (
                r#"["a"]"#,
                "invalid length 1, expected struct Mail with 4 elements at line 1 column 5",
            ),
            (
                r#"{"to":"a","pair":[1]}"#,
                "invalid length 1, expected a tuple of size 2 at line 1 column 20",
            ),
            ("{", "EOF while parsing an object at line 1 column 1"),
        ] {
            assert_eq!(why_not(payload), text);
        }
    }

    /// serde does not say then what is expected.
    #[test]
    fn a_field_beside_flattened_ones_is_not_named() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "read, and then thrown away")]
        struct Outer {
            #[serde(flatten)]
            inner: Inner,
        }

        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "read, and then thrown away")]
        struct Inner {
            n: Option<u8>,
        }

        for key in ["S3cret", "a, expected S3cret", "a at line 7 S3cret"] {
            let payload = format!(r#"{{"{key}":1}}"#);
            let error = serde_json::from_str::<Outer>(&payload).expect_err("it has another field");
            let column = payload.len();
            assert_eq!(
                why(&error),
                format!("unknown field at line 1 column {column}")
            );
        }
    }

    proptest! {
        /// Also of a value that looks like what serde says itself.
        #[test]
        fn no_value_is_ever_quoted(
            before in "[ -~]{0,12}",
            sign in prop::sample::select(vec!["", ", expected ", "`", "\", expected u8", " at line 1 column 2"]),
            field in prop::sample::select(vec!["n", "how", "pair", "to"]),
        ) {
            let value = format!("{before}{sign}S3CRET");
            let payload = match field {
                "to" => serde_json::json!({ (value): 1 }),
                field => serde_json::json!({ "to": "a", (field): value }),
            };
            let text = why_not(&payload.to_string());
            prop_assert!(!text.contains("S3CRET"), "{text}");
        }
    }
}
