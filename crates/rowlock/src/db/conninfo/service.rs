//! Service files: named sets of connection keywords, as in libpq's `pg_service.conf`.
//!
//! Must not: repeat the value of a line in an error, it may be a password.

use std::path::{Path, PathBuf};

use super::ConnInfoError;
use super::keywords::{Settings, looks_like_keyword, lookup};
use super::surroundings::Surroundings;

/// Fills what is missing from the service that the settings or `PGSERVICE` name, if any.
pub(super) fn fill(
    settings: &mut Settings,
    around: &dyn Surroundings,
) -> Result<(), ConnInfoError> {
    let from_env = || around.var("PGSERVICE").filter(|name| !name.is_empty());
    let Some(service) = settings.get("service").map(str::to_owned).or_else(from_env) else {
        return Ok(());
    };
    let mut searched = Vec::new();
    for file in candidates(around)? {
        let text = around
            .read(&file)
            .map_err(|error| ConnInfoError::UnreadableFile {
                what: "the service file",
                file: file.clone(),
                reason: error.to_string(),
            })?;
        if fill_from(settings, &text, &service, &file)? {
            return Ok(());
        }
        searched.push(file);
    }
    Err(ConnInfoError::UnknownService { service, searched })
}

/// The files to look into: the user's, then the system's.
fn candidates(around: &dyn Surroundings) -> Result<Vec<PathBuf>, ConnInfoError> {
    let mut files = Vec::new();
    let named = around.var("PGSERVICEFILE").filter(|name| !name.is_empty());
    match named.map(PathBuf::from) {
        Some(file) if around.stat(&file).is_none() => {
            return Err(ConnInfoError::UnreadableFile {
                what: "the service file",
                file,
                reason: "it does not exist (PGSERVICEFILE names it)".to_owned(),
            });
        }
        Some(file) => files.push(file),
        None => files.extend(around.home().map(|home| home.join(".pg_service.conf"))),
    }
    let system = around.var("PGSYSCONFDIR").filter(|name| !name.is_empty());
    files.extend(system.map(|directory| Path::new(&directory).join("pg_service.conf")));
    files.retain(|file| around.stat(file).is_some());
    Ok(files)
}

/// Whether the service was found.
fn fill_from(
    settings: &mut Settings,
    text: &str,
    service: &str,
    file: &Path,
) -> Result<bool, ConnInfoError> {
    let mut found = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let wrong = |problem: String| ConnInfoError::ServiceFile {
            file: file.to_owned(),
            line: index + 1,
            problem,
        };
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            if found {
                break;
            }
            found = section.strip_suffix(']') == Some(service);
            continue;
        }
        if !found {
            continue;
        }
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| wrong("expected keyword=value".to_owned()))?;
        if name == "service" {
            return Err(wrong(
                "a service cannot refer to another service".to_owned(),
            ));
        }
        let keyword = lookup(name).map_err(|error| {
            if looks_like_keyword(name) {
                return wrong(error.to_string());
            }
            wrong("a keyword must consist of letters and \"_\"".to_owned())
        })?;
        settings.set_if_missing(keyword, value);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::surroundings::Pretend;
    use super::*;

    const FILE: &str = "# services\n[other]\nhost=wrong\n\n[app]\nhost=db.example\nport=6000\nuser=svc\n[later]\nhost=no\n";

    fn fill_service(text: &str, given: &[(&'static str, &str)]) -> Result<Settings, ConnInfoError> {
        let around = Pretend::new().file("/home/ann/.pg_service.conf", text);
        let mut settings = Settings::default();
        for (keyword, value) in given {
            settings.set(keyword, *value);
        }
        fill(&mut settings, &around).map(|()| settings)
    }

    #[test]
    fn a_service_fills_what_is_missing() {
        let settings = fill_service(FILE, &[("service", "app"), ("port", "1")]).unwrap();
        assert_eq!(settings.get("host"), Some("db.example"));
        assert_eq!(settings.get("port"), Some("1"));
        assert_eq!(settings.get("user"), Some("svc"));
    }

    #[test]
    fn the_environment_can_name_service_and_file() {
        let around = Pretend::new()
            .var("PGSERVICE", "app")
            .var("PGSERVICEFILE", "/etc/s.conf")
            .file("/etc/s.conf", FILE);
        let mut settings = Settings::default();
        fill(&mut settings, &around).unwrap();
        assert_eq!(settings.get("host"), Some("db.example"));
    }

    #[test]
    fn the_system_file_comes_after_the_users() {
        let around = Pretend::new()
            .var("PGSYSCONFDIR", "/etc/pg")
            .file("/home/ann/.pg_service.conf", "[mine]\nhost=a\n")
            .file("/etc/pg/pg_service.conf", FILE);
        let mut settings = Settings::default();
        settings.set("service", "app");
        fill(&mut settings, &around).unwrap();
        assert_eq!(settings.get("host"), Some("db.example"));
    }

    #[test]
    fn mistakes_are_named() {
        let error = fill_service(FILE, &[("service", "nope")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("\"nope\"") && error.contains(".pg_service.conf"),
            "{error}"
        );
        let error = fill_service("[app]\nhosst=a\n", &[("service", "app")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("line 2") && error.contains("did you mean \"host\"?"),
            "{error}"
        );
        let error = fill_service("[app]\nservice=b\n", &[("service", "app")])
            .unwrap_err()
            .to_string();
        assert!(error.contains("another service"), "{error}");
        let error = fill_service("[app]\nhunter2\n", &[("service", "app")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("expected keyword=value") && !error.contains("hunter2"),
            "{error}"
        );
    }

    #[test]
    fn without_a_service_nothing_is_read() {
        assert_eq!(fill_service("nonsense", &[]).unwrap(), Settings::default());
    }
}
