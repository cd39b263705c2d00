//! Whether a command is there to be run: said before the first job fails of it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Why the program cannot be run here, if it cannot.
pub(crate) fn missing(program: &str, dir: Option<&Path>) -> Option<String> {
    if let Some(dir) = dir.filter(|d| !d.is_dir()) {
        return Some(format!(
            "the directory {} does not exist here",
            dir.display()
        ));
    }
    if program.contains('/') {
        let path = dir.map_or_else(|| PathBuf::from(program), |dir| dir.join(program));
        return (!is_executable(&path))
            .then(|| format!("the command {} cannot be run here", path.display()));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|place| is_executable(&place.join(program)));
    (!found).then(|| format!("there is no command {program:?} on the PATH here"))
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
