//! What connection settings may take from around the program: environment, files, the operating system's user.
//!
//! The only part of `conninfo` that touches the process. The rest asks through [`Surroundings`], so that it can be tested
//! without setting environment variables, which would race with other tests.

use std::io;
use std::path::{Path, PathBuf};

/// The outside as the parser sees it.
pub(super) trait Surroundings {
    /// An environment variable.
    fn var(&self, name: &str) -> Option<String>;
    /// The name of the user that runs the program.
    fn os_user(&self) -> Option<String>;
    /// That user's home directory.
    fn home(&self) -> Option<PathBuf>;
    /// What kind of file lies at a path, if any.
    fn stat(&self, path: &Path) -> Option<FileStat>;
    /// The text of a small file.
    fn read(&self, path: &Path) -> io::Result<String>;
}

/// The little that is asked about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStat {
    pub(super) is_regular: bool,
    /// Whether group or others may do anything with it; always false where the system has no such notion.
    pub(super) open_to_others: bool,
}

/// The real process.
pub(super) struct Process;

/// Password and service files larger than this are not what they claim to be.
const FILE_LIMIT_BYTES: u64 = 1024 * 1024;

impl Surroundings for Process {
    fn var(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn os_user(&self) -> Option<String> {
        whoami::username().ok().filter(|name| !name.is_empty())
    }

    #[allow(
        deprecated,
        reason = "deprecated until Rust 1.87, for a flaw on Windows only"
    )]
    fn home(&self) -> Option<PathBuf> {
        std::env::home_dir().filter(|home| !home.as_os_str().is_empty())
    }

    fn stat(&self, path: &Path) -> Option<FileStat> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(FileStat {
            is_regular: metadata.is_file(),
            open_to_others: open_to_others(&metadata),
        })
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        if std::fs::metadata(path)?.len() > FILE_LIMIT_BYTES {
            return Err(io::Error::other(format!(
                "it is larger than {FILE_LIMIT_BYTES} bytes"
            )));
        }
        std::fs::read_to_string(path)
    }
}

#[cfg(unix)]
fn open_to_others(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o077 != 0
}

#[cfg(not(unix))]
fn open_to_others(_metadata: &std::fs::Metadata) -> bool {
    false
}

/// Made-up surroundings for tests.
#[cfg(test)]
#[derive(Default, Clone)]
pub(super) struct Pretend {
    pub(super) vars: std::collections::HashMap<String, String>,
    pub(super) files: std::collections::HashMap<PathBuf, (FileStat, String)>,
    pub(super) nameless: bool,
}

#[cfg(test)]
impl Pretend {
    /// A user called `ann` with the home directory `/home/ann` and nothing in it.
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(super) fn file(self, path: &str, text: &str) -> Self {
        self.file_with(
            path,
            text,
            FileStat {
                is_regular: true,
                open_to_others: false,
            },
        )
    }

    pub(super) fn file_with(mut self, path: &str, text: &str, stat: FileStat) -> Self {
        self.files
            .insert(PathBuf::from(path), (stat, text.to_owned()));
        self
    }
}

#[cfg(test)]
impl Surroundings for Pretend {
    fn var(&self, name: &str) -> Option<String> {
        self.vars.get(name).cloned()
    }

    fn os_user(&self) -> Option<String> {
        (!self.nameless).then(|| "ann".to_owned())
    }

    fn home(&self) -> Option<PathBuf> {
        Some(PathBuf::from("/home/ann"))
    }

    fn stat(&self, path: &Path) -> Option<FileStat> {
        self.files.get(path).map(|(stat, _)| *stat)
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        match self.files.get(path) {
            Some((_, text)) => Ok(text.clone()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}
