//! A configuration file and what is wrong with it: problems point at their place and show the line.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use anyhow::Context;

/// The text of a file and the name it goes by.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Configuration files are small; a larger one is something else.
const BYTES_MAX: u64 = 1 << 20;

impl Source {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let doing = || format!("cannot read the configuration {name}");
        let size = std::fs::metadata(path).with_context(doing)?.len();
        anyhow::ensure!(
            size <= BYTES_MAX,
            "{name} has {size} bytes: that is no configuration"
        );
        let text = std::fs::read_to_string(path).with_context(doing)?;
        Ok(Self { name, text })
    }

    /// The line and column of a byte, both from 1; the column counts characters.
    pub(crate) fn place(&self, byte: usize) -> (usize, usize) {
        let before = &self.text[..self.boundary(byte)];
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        (line, before[start..].chars().count() + 1)
    }

    fn boundary(&self, byte: usize) -> usize {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        byte
    }

    /// The problem with its place and line, as people and editors read it.
    pub(crate) fn render(&self, problem: &Problem) -> String {
        let level = match problem.level {
            Level::Error | Level::Missing => "",
            Level::Warning => "warning: ",
        };
        let help = problem
            .help
            .as_ref()
            .map_or(String::new(), |h| format!("; {h}"));
        let text = format!("{level}{}{help}", problem.message);
        let Some(span) = &problem.span else {
            return format!("{}: {text}", self.name);
        };
        let (line, column) = self.place(span.start);
        let shown = self.text.lines().nth(line - 1).unwrap_or_default();
        // A span of several lines is marked up to the end of its first.
        let marked = self.text[self.boundary(span.start)..self.boundary(span.end.max(span.start))]
            .lines()
            .next()
            .map_or(0, |l| l.chars().count());
        // Tabs stay tabs, so that the mark stands below its text.
        let indent: String = shown
            .chars()
            .take(column - 1)
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        format!(
            "{}:{line}:{column}: {text}\n{line:>4} | {shown}\n     | {indent}{}",
            self.name,
            "^".repeat(marked.max(1))
        )
    }
}

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// The configuration cannot be used.
    Error,
    /// Something that it refers to is not here: a variable, a file. An error where the configuration is used, and a warning where it is
    /// only checked.
    Missing,
    /// It can, but something will probably not work.
    Warning,
}

/// Something wrong, and where.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) level: Level,
    pub(crate) span: Option<Range<usize>>,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl Problem {
    pub(crate) fn error(span: Option<Range<usize>>, message: impl Into<String>) -> Self {
        Self {
            level: Level::Error,
            span,
            message: message.into(),
            help: None,
        }
    }

    pub(crate) fn warning(span: Option<Range<usize>>, message: impl Into<String>) -> Self {
        Self {
            level: Level::Warning,
            ..Self::error(span, message)
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Why a configuration was refused: all its errors, rendered.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Vec<String>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_shows_its_line() {
        let source = Source {
            name: "x.toml".into(),
            text: "a = 1\n\tbé = \"zwei\"\n".into(),
        };
        let at = source.text.find("\"zwei\"").unwrap();
        let problem = Problem::error(Some(at..at + 6), "is no number").help("say 2");
        assert_eq!(
            source.render(&problem),
            "x.toml:2:7: is no number; say 2\n   2 | \tbé = \"zwei\"\n     | \t     ^^^^^^"
        );
    }

    #[test]
    fn a_place_at_the_end_or_inside_of_a_character_is_a_place() {
        let source = Source {
            name: "x".into(),
            text: "é".into(),
        };
        assert_eq!(source.place(1), (1, 1));
        assert_eq!(source.place(99), (1, 2));
        source.render(&Problem::error(Some(1..99), "?"));
    }
}
