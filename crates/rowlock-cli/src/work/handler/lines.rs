//! What a command says on its standard error, line by line, for the log: bounded, however long a line is. Pure.

/// Of a line so many bytes are told.
const LINE_MAX: usize = 2048;

/// A stream that is cut into lines as it comes.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The beginning of a line whose end has not come yet.
    begun: Vec<u8>,
    /// Whether the rest of it is left out.
    cut: bool,
}

impl Lines {
    /// Tells the lines that are complete with these bytes.
    pub(super) fn push(&mut self, bytes: &[u8], mut tell: impl FnMut(&str)) {
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            let (text, ends) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            let room = LINE_MAX - self.begun.len();
            self.cut |= text.len() > room;
            self.begun.extend_from_slice(&text[..text.len().min(room)]);
            if ends {
                self.end(&mut tell);
            }
        }
    }

    /// Tells what came after the last line break.
    pub(super) fn end(&mut self, mut tell: impl FnMut(&str)) {
        let line = String::from_utf8_lossy(&self.begun);
        let line = crate::say::plain(line.trim_end());
        if !line.is_empty() {
            tell(&if self.cut { line + "…" } else { line });
        }
        self.begun.clear();
        self.cut = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(parts: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut told) = (Lines::default(), Vec::new());
        for part in parts {
            lines.push(part, |line| told.push(line.to_owned()));
        }
        lines.end(|line| told.push(line.to_owned()));
        told
    }

    #[test]
    fn lines_are_told_when_they_are_complete() {
        assert_eq!(
            told(&[b"one\ntw", b"o\r\n\n", b"three"]),
            ["one", "two", "three"]
        );
        assert_eq!(told(&[]), [""; 0]);
        assert_eq!(told(&[b"\x1b[31mred\xff\n"]), ["[31mred\u{fffd}"]);
    }

    #[test]
    fn long_lines_are_cut() {
        let long = vec![b'x'; 3 * LINE_MAX];
        let told = told(&[&long, &long, b"\nshort\n"]);
        assert_eq!(told[0], format!("{}…", "x".repeat(LINE_MAX)));
        assert_eq!(told[1], "short");
    }
}
