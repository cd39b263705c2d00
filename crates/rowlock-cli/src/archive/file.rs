//! The file of an archive, from its temporary name to its own.
//!
//! Promises: a file under its own name is complete; one that ends in `.part` is never overwritten, as it may hold the only copy of jobs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::sink::Sink;

/// A file in the making.
pub(super) struct Part {
    path: PathBuf,
    part: PathBuf,
    sink: Sink,
}

impl Part {
    pub(super) fn create(path: PathBuf, force: bool) -> anyhow::Result<Self> {
        anyhow::ensure!(
            !path.is_dir(),
            "{} is a directory: name a file",
            path.display()
        );
        anyhow::ensure!(
            force || !path.exists(),
            "{} is there already: choose another name, or say --force to replace it",
            path.display()
        );
        let mut part = OsString::from(&path);
        part.push(".part");
        let part = PathBuf::from(part);
        let file = create_new(&part).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => anyhow::anyhow!(
                "{} is left of an archive that was interrupted, or another is at it now. It may hold the only copy of jobs: move it away first; \
                 it can be read like any other archive",
                part.display()
            ),
            _ => anyhow::Error::from(e).context(format!("cannot make {}", part.display())),
        })?;
        let sink =
            Sink::new(file, &path).with_context(|| format!("cannot write {}", part.display()))?;
        Ok(Self { path, part, sink })
    }

    pub(super) fn sink(&mut self) -> &mut Sink {
        &mut self.sink
    }

    /// Completes the file and gives it its own name. Returns the name and the size.
    pub(super) fn finish(self) -> anyhow::Result<(PathBuf, u64)> {
        let Self { path, part, sink } = self;
        let failed = || {
            format!(
                "cannot complete {}; what was archived is in there",
                part.display()
            )
        };
        let file = sink.finish().with_context(failed)?;
        let bytes = file.metadata().with_context(failed)?.len();
        fs::rename(&part, &path).with_context(failed)?;
        sync_directory(&path);
        Ok((path, bytes))
    }

    /// Ends early: what was written can be read, and keeps its temporary name. Says so beside the reason.
    pub(super) fn give_up(self, reason: anyhow::Error) -> anyhow::Error {
        let Self { part, sink, .. } = self;
        if !sink.is_used() {
            let _ = fs::remove_file(&part);
            return reason;
        }
        let text = format!(
            "{reason}; what was archived so far is safe in {}",
            part.display()
        );
        match sink.finish() {
            Ok(_) => anyhow::Error::msg(text),
            Err(e) => anyhow::Error::msg(format!(
                "{text}, up to its end, which could not be written: {e}"
            )),
        }
    }

    /// For an archive of nothing.
    pub(super) fn remove(self) -> anyhow::Result<()> {
        drop(self.sink);
        fs::remove_file(&self.part)
            .with_context(|| format!("cannot remove {}", self.part.display()))
    }
}

/// Payloads are nobody else's business.
fn create_new(path: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// So that the new name survives a crash of the machine. Where a directory cannot be opened, that is the system's business.
fn sync_directory(path: &Path) {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    if let Ok(directory) = File::open(parent.unwrap_or(Path::new("."))) {
        let _ = directory.sync_all();
    }
}
