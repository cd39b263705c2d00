//! Finds the PostgreSQL programs.
//!
//! Promises: a directory that was named (by the caller or by `ROWLOCK_PG_BIN`) is the only one looked at; otherwise the `PATH`
//! comes first, then where packages put PostgreSQL, the highest major version first. Must not start a server.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// The environment variable that names the directory of `initdb` and `postgres`.
const BIN_DIR_VARIABLE: &str = "ROWLOCK_PG_BIN";

/// The oldest major version that Rowlock works with.
const OLDEST_MAJOR: u32 = 14;

/// Directories whose children may be `<major>/bin` or `<something>-<major>/bin`: Debian, Red Hat, Homebrew, Postgres.app.
const PACKAGE_PARENTS: [&str; 6] = [
    "/usr/lib/postgresql",
    "/usr",
    "/usr/local/opt",
    "/opt/homebrew/opt",
    "/usr/local",
    "/Applications/Postgres.app/Contents/Versions",
];

/// The version of a PostgreSQL server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    major: u32,
    text: String,
}

impl Version {
    /// The major version: 15 in `15.4`.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.major
    }

    /// Reads the answer of `postgres --version`, which is like `postgres (PostgreSQL) 15.4 (Debian 15.4-1)`.
    fn parse(answer: &str) -> Option<Version> {
        let text = answer.split_once(") ")?.1.split_whitespace().next()?;
        let digits = text.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(Version {
            major: digits.parse().ok()?,
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One set of PostgreSQL programs.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    bin_dir: PathBuf,
    version: Version,
}

impl Installation {
    pub(crate) fn bin_dir(&self) -> &Path {
        &self.bin_dir
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }

    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// Whether the server can load this module. Looks where packages put modules: beside the programs.
    pub(crate) fn has_module(&self, name: &str) -> bool {
        let root = self.bin_dir.parent().unwrap_or(Path::new("/"));
        let dirs = ["lib", "lib/postgresql", "lib64", "lib64/postgresql"];
        let has =
            |dir: &str, suffix: &str| root.join(dir).join(format!("{name}.{suffix}")).is_file();
        dirs.iter().any(|dir| has(dir, "so") || has(dir, "dylib"))
    }

    fn at(bin_dir: PathBuf) -> Result<Installation> {
        let program = bin_dir.join("postgres");
        let output = Command::new(&program)
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .map_err(|source| Error::Spawn {
                program: program.clone(),
                source,
            })?;
        let answer = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let version = Version::parse(&answer).ok_or(Error::UnknownVersion { program, answer })?;
        if version.major < OLDEST_MAJOR {
            return Err(Error::UnsupportedVersion {
                bin_dir,
                major: version.major,
            });
        }
        Ok(Installation { bin_dir, version })
    }
}

/// Finds the programs for a new cluster, or those of `data_major` for data that are already there.
///
/// The error for a missing major needs the directory of the data, which is `data_dir`.
pub(crate) fn find(explicit: Option<&Path>, data: Option<(&Path, u32)>) -> Result<Installation> {
    let Some((data_dir, data_major)) = data else {
        return Installation::at(first_bin_dir(explicit)?);
    };
    let mut found = Vec::new();
    for bin_dir in bin_dirs(explicit)? {
        // One broken installation must not hide a good one further on.
        let Ok(installation) = Installation::at(bin_dir) else {
            continue;
        };
        if installation.version.major == data_major {
            return Ok(installation);
        }
        found.push(installation.version.major);
    }
    Err(Error::OtherMajor {
        path: data_dir.to_owned(),
        data_major,
        found,
    })
}

/// The directory whose programs a new cluster would use. Cheap: runs nothing.
pub(crate) fn first_bin_dir(explicit: Option<&Path>) -> Result<PathBuf> {
    let mut bin_dirs = bin_dirs(explicit)?;
    Ok(bin_dirs.swap_remove(0))
}

/// All directories with the programs, best first; never empty.
fn bin_dirs(explicit: Option<&Path>) -> Result<Vec<PathBuf>> {
    if let Some(dir) = explicit {
        return named(dir.to_owned(), "named by the caller").map(|dir| vec![dir]);
    }
    if let Some(dir) = env::var_os(BIN_DIR_VARIABLE).filter(|dir| !dir.is_empty()) {
        return named(PathBuf::from(dir), "named by ROWLOCK_PG_BIN").map(|dir| vec![dir]);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let parents = PACKAGE_PARENTS.map(PathBuf::from);
    search(&path, &parents)
}

fn named(dir: PathBuf, named_by: &'static str) -> Result<PathBuf> {
    match missing_program(&dir) {
        Some(missing) => Err(Error::NotABinDir {
            dir,
            named_by,
            missing,
        }),
        None => Ok(real_dir(dir)),
    }
}

/// The directory that the programs are really in: theirs may hold only links, and modules are found from the real one.
fn real_dir(dir: PathBuf) -> PathBuf {
    let postgres = dir.join("postgres").canonicalize();
    let real = postgres
        .ok()
        .and_then(|postgres| postgres.parent().map(Path::to_owned));
    match real {
        Some(real) if missing_program(&real).is_none() => real,
        // Relative names would cease to work in a child that starts in another directory.
        _ => dir.canonicalize().unwrap_or(dir),
    }
}

fn search(path: &OsStr, package_parents: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let on_path: Vec<PathBuf> = env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .collect();
    let candidates = on_path.iter().cloned().chain(package_dirs(package_parents));
    let mut found: Vec<PathBuf> = Vec::new();
    for dir in candidates
        .filter(|dir| missing_program(dir).is_none())
        .map(real_dir)
    {
        if !found.contains(&dir) {
            found.push(dir);
        }
    }
    if found.is_empty() {
        let packages = PathBuf::from("/usr/lib/postgresql/*/bin");
        return Err(Error::NoPostgres {
            searched: on_path.into_iter().chain([packages]).collect(),
        });
    }
    Ok(found)
}

/// `<parent>/<name that ends in a major version>/bin`, highest version first.
fn package_dirs(parents: &[PathBuf]) -> Vec<PathBuf> {
    let mut dirs: Vec<(u32, PathBuf)> = Vec::new();
    for parent in parents {
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            if let Some(major) = major_in_name(&entry.file_name().to_string_lossy()) {
                dirs.push((major, entry.path().join("bin")));
            }
        }
    }
    dirs.sort_by(|(a, _), (b, _)| b.cmp(a));
    dirs.into_iter().map(|(_, dir)| dir).collect()
}

/// `15`, `pgsql-15` and `postgresql@15` are 15; `lib64` and `python3` are nothing.
fn major_in_name(name: &str) -> Option<u32> {
    let digits = ["pgsql-", "postgresql@", "postgresql-", ""]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))?;
    digits.parse().ok()
}

fn missing_program(dir: &Path) -> Option<&'static str> {
    ["initdb", "postgres"]
        .into_iter()
        .find(|name| !dir.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_postgres_answers() {
        let parse = |answer| Version::parse(answer).map(|version| (version.major, version.text));
        assert_eq!(
            parse("postgres (PostgreSQL) 15.4 (Debian 15.4-1)"),
            Some((15, "15.4".to_owned()))
        );
        assert_eq!(
            parse("postgres (PostgreSQL) 18.0"),
            Some((18, "18.0".to_owned()))
        );
        assert_eq!(
            parse("postgres (PostgreSQL) 19beta1"),
            Some((19, "19beta1".to_owned()))
        );
        assert_eq!(
            parse("postgres (EnterpriseDB) 16.1"),
            Some((16, "16.1".to_owned()))
        );
        assert_eq!(parse("command not found"), None);
        assert_eq!(parse("postgres (PostgreSQL) devel"), None);
    }

    #[test]
    fn package_directories_are_recognised_by_their_names() {
        assert_eq!(major_in_name("15"), Some(15));
        assert_eq!(major_in_name("pgsql-17"), Some(17));
        assert_eq!(major_in_name("postgresql@18"), Some(18));
        assert_eq!(major_in_name("lib64"), None);
        assert_eq!(major_in_name("latest"), None);
    }

    fn programs_in(dir: &Path) -> PathBuf {
        std::fs::create_dir_all(dir).unwrap();
        for name in ["initdb", "postgres"] {
            std::fs::write(dir.join(name), "").unwrap();
        }
        dir.to_owned()
    }

    #[test]
    fn the_path_comes_first_then_the_highest_major() {
        let root = tempfile::tempdir().unwrap();
        let packages = root.path().join("packages");
        let old = programs_in(&packages.join("9/bin"));
        let newer = programs_in(&packages.join("16/bin"));
        std::fs::create_dir_all(packages.join("18/bin")).unwrap(); // a client-only package: no server in it
        let on_path = programs_in(&root.path().join("mine"));
        let path = env::join_paths([root.path().join("empty"), on_path.clone()]).unwrap();

        let found = search(&path, std::slice::from_ref(&packages)).unwrap();
        assert_eq!(found, [on_path, newer, old]);
    }

    #[test]
    fn links_to_the_programs_are_followed() {
        let root = tempfile::tempdir().unwrap();
        let real = programs_in(&root.path().join("real"));
        let links = root.path().join("links");
        std::fs::create_dir(&links).unwrap();
        for name in ["initdb", "postgres"] {
            std::os::unix::fs::symlink(real.join(name), links.join(name)).unwrap();
        }
        assert_eq!(search(links.as_os_str(), &[]).unwrap(), [real]);
    }

    #[test]
    fn nothing_found_says_where_it_looked() {
        let root = tempfile::tempdir().unwrap();
        let error = search(root.path().as_os_str(), &[])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&root.path().display().to_string()),
            "{error}"
        );
        assert!(error.contains("ROWLOCK_PG_BIN"), "{error}");
    }
}
