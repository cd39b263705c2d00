//! The end of what a command prints: a bounded memory, however much comes. Pure.

/// The last bytes of a stream.
#[derive(Debug)]
pub(super) struct Tail {
    keep: usize,
    /// Up to twice `keep`, so that the front is cut off now and then and not at every write.
    bytes: Vec<u8>,
    /// How many came in all.
    total: u64,
}

impl Tail {
    pub(super) fn new(keep: usize) -> Self {
        Self {
            keep,
            bytes: Vec::new(),
            total: 0,
        }
    }

    pub(super) fn push(&mut self, more: &[u8]) {
        self.total += more.len() as u64;
        let more = &more[more.len().saturating_sub(self.keep)..];
        if self.bytes.len() + more.len() > 2 * self.keep {
            let cut = (self.bytes.len() + more.len() - self.keep).min(self.bytes.len());
            self.bytes.drain(..cut);
        }
        self.bytes.extend_from_slice(more);
    }

    fn kept(&self) -> &[u8] {
        &self.bytes[self.bytes.len().saturating_sub(self.keep)..]
    }

    /// The last `at_most` bytes as text without the space around it; says how much is missing before it.
    pub(super) fn text(&self, at_most: usize) -> String {
        let kept = self.kept();
        let start = kept.len().saturating_sub(at_most);
        let text = String::from_utf8_lossy(&kept[start..]);
        let cut = self.total - (kept.len() - start) as u64;
        if cut > 0 {
            // The first line is probably half a line.
            let text = text.split_once('\n').map_or(&*text, |(_, rest)| rest);
            format!("[{cut} bytes cut] {}", text.trim())
        } else {
            text.trim().to_owned()
        }
    }

    /// The last line that is not empty, if all of it is here.
    pub(super) fn last_line(&self) -> Option<&str> {
        let kept = self.kept().trim_ascii_end();
        let start = kept.iter().rposition(|b| *b == b'\n').map(|at| at + 1);
        let cut = self.total > self.kept().len() as u64;
        let line = match start {
            Some(start) => &kept[start..],
            None if cut => return None,
            None => kept,
        };
        std::str::from_utf8(line)
            .ok()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_and_the_rest_counted() {
        let mut tail = Tail::new(10);
        for _ in 0..1000 {
            tail.push(b"0123456789abcdef\n");
        }
        tail.push(b"the end");
        assert!(tail.bytes.capacity() < 100);
        assert_eq!(tail.last_line(), Some("the end"));
        assert_eq!(tail.text(100), "[16997 bytes cut] the end");
    }

    #[test]
    fn half_a_line_is_no_last_line() {
        let mut tail = Tail::new(4);
        tail.push(b"abcdefgh\n");
        assert_eq!(tail.last_line(), None);
        let mut tail = Tail::new(100);
        tail.push(b"one\ntwo\n\n  \n");
        assert_eq!(tail.last_line(), Some("two"));
        assert_eq!(tail.text(100), "one\ntwo");
        assert_eq!(Tail::new(5).last_line(), None);
    }
}
