//! JSON laid out for people, without reading its values: numbers that no Rust type holds stay what they are. Pure.

/// Longest value that stays on one line.
const LINE_MAX: usize = 60;

/// Valid JSON with line breaks and indentation.
pub(crate) fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    lay_out(text.trim(), 0, &mut out);
    out
}

fn lay_out(value: &str, depth: usize, out: &mut String) {
    let parts = match value.as_bytes().first() {
        Some(b'{' | b'[') if value.chars().count() > LINE_MAX => split(value),
        _ => Vec::new(),
    };
    if parts.is_empty() {
        out.push_str(value);
        return;
    }
    out.push_str(&value[..1]);
    for (n, part) in parts.iter().enumerate() {
        out.push_str(if n == 0 { "\n" } else { ",\n" });
        out.push_str(&"  ".repeat(depth + 1));
        match key_end(part) {
            Some(end) => {
                out.push_str(part[..end].trim_end());
                out.push_str(": ");
                lay_out(part[end + 1..].trim(), depth + 1, out);
            }
            None => lay_out(part, depth + 1, out),
        }
    }
    out.push('\n');
    out.push_str(&"  ".repeat(depth));
    out.push_str(&value[value.len() - 1..]);
}

/// The members of an object or array.
fn split(value: &str) -> Vec<&str> {
    let inner = &value[1..value.len() - 1];
    let (mut parts, mut begin) = (Vec::new(), 0);
    walk(inner, |at, c, depth| {
        if c == b',' && depth == 0 {
            parts.push(inner[begin..at].trim());
            begin = at + 1;
        }
    });
    if !inner[begin..].trim().is_empty() {
        parts.push(inner[begin..].trim());
    }
    parts
}

/// Where the colon after a key is; none for a member of an array.
fn key_end(part: &str) -> Option<usize> {
    let mut end = None;
    walk(part, |at, c, depth| {
        if c == b':' && depth == 0 {
            end.get_or_insert(at);
        }
    });
    end
}

/// Visits what stands outside of strings, with how deep it is nested.
fn walk(text: &str, mut visit: impl FnMut(usize, u8, i32)) {
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (at, c) in text.bytes().enumerate() {
        match c {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => visit(at, c, depth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_values_stay_on_one_line() {
        assert_eq!(json(r#"{"a": 1}"#), r#"{"a": 1}"#);
        assert_eq!(json("[]"), "[]");
    }

    #[test]
    fn long_ones_are_laid_out_and_numbers_kept() {
        let text = r#"{"name": "a, b: {c} \" d", "n": 123456789012345678901234567890.50, "list": [1, 2], "deep": {"x": "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"}}"#;
        let laid_out = json(text);
        assert_eq!(
            laid_out,
            r#"{
  "name": "a, b: {c} \" d",
  "n": 123456789012345678901234567890.50,
  "list": [1, 2],
  "deep": {
    "x": "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"
  }
}"#
        );
    }
}
