//! The servers to try: hosts, addresses, ports, and the password for each.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::ConnInfoError;
use super::keywords::Settings;
use super::options::{Endpoint, Host};
use super::passfile::{self, Wanted};
use super::secret::Secret;
use super::surroundings::Surroundings;

const DEFAULT_PORT: u16 = 5432;

/// Where servers of the usual packages put their sockets.
const SOCKET_DIRECTORIES: [&str; 3] = ["/var/run/postgresql", "/run/postgresql", "/tmp"];

/// All servers that the settings name, or the default one.
pub(super) fn endpoints(
    settings: &Settings,
    dbname: &str,
    user: &str,
    around: &dyn Surroundings,
    warnings: &mut Vec<String>,
) -> Result<Vec<Endpoint>, ConnInfoError> {
    let mut endpoints = places(settings, around)?;
    if let Some(password) = settings.get("password") {
        for endpoint in &mut endpoints {
            endpoint.password = Some(Secret::new(password));
        }
    } else if let Some(text) = passfile_text(settings, around, warnings) {
        for endpoint in &mut endpoints {
            endpoint.password = passfile::find(
                &text,
                Wanted {
                    host: &passfile_host(endpoint),
                    port: endpoint.port,
                    dbname,
                    user,
                },
            );
        }
    }
    Ok(endpoints)
}

fn places(settings: &Settings, around: &dyn Surroundings) -> Result<Vec<Endpoint>, ConnInfoError> {
    let hosts = entries(settings, "host");
    let addresses = entries(settings, "hostaddr");
    let count = hosts.len().max(addresses.len()).max(1);
    let ports = ports(settings, count)?;
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err(ConnInfoError::Conflict(format!(
            "host names {} and hostaddr names {}: each host needs its own address (an empty one is looked up)",
            entries_count(hosts.len()),
            entries_count(addresses.len()),
        )));
    }
    (0..count)
        .map(|i| {
            let hostaddr = address(addresses.get(i).copied().unwrap_or_default())?;
            let host = host(
                hosts.get(i).copied().unwrap_or_default(),
                hostaddr,
                ports[i],
                around,
            )?;
            Ok(Endpoint {
                host,
                hostaddr,
                port: ports[i],
                password: None,
            })
        })
        .collect()
}

/// The entries of a comma-separated list; none if the keyword is not given.
fn entries<'a>(settings: &'a Settings, keyword: &str) -> Vec<&'a str> {
    settings
        .get(keyword)
        .map(|list| list.split(',').map(str::trim).collect())
        .unwrap_or_default()
}

fn entries_count(count: usize) -> String {
    if count == 1 {
        "1 server".to_owned()
    } else {
        format!("{count} servers")
    }
}

/// One port for each of `count` hosts.
fn ports(settings: &Settings, count: usize) -> Result<Vec<u16>, ConnInfoError> {
    let list = entries(settings, "port");
    let ports = list
        .iter()
        .map(|text| port(text))
        .collect::<Result<Vec<_>, _>>()?;
    match ports.len() {
        0 => Ok(vec![DEFAULT_PORT; count]),
        1 => Ok(vec![ports[0]; count]),
        n if n == count => Ok(ports),
        n => Err(ConnInfoError::Conflict(format!(
            "port has {n} entries for {}: give one port for all, or one for each",
            entries_count(count)
        ))),
    }
}

fn port(text: &str) -> Result<u16, ConnInfoError> {
    match text.parse() {
        _ if text.is_empty() => Ok(DEFAULT_PORT),
        Ok(port) if port > 0 => Ok(port),
        _ => Err(ConnInfoError::invalid(
            "port",
            text,
            "must be a number from 1 to 65535",
        )),
    }
}

fn address(text: &str) -> Result<Option<IpAddr>, ConnInfoError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        ConnInfoError::invalid(
            "hostaddr",
            text,
            "must be an IP address; names go into host",
        )
    })
}

fn host(
    name: &str,
    hostaddr: Option<IpAddr>,
    port: u16,
    around: &dyn Surroundings,
) -> Result<Host, ConnInfoError> {
    match (name, hostaddr) {
        ("", Some(address)) => Ok(Host::Tcp(address.to_string())),
        ("", None) => Ok(default_host(port, around)),
        (name, _) if name.starts_with('/') => socket_directory(name),
        (name, _) if name.starts_with('@') => Err(ConnInfoError::invalid(
            "host",
            name,
            "sockets in the abstract namespace are not supported",
        )),
        (name, _) => Ok(Host::Tcp(name.to_owned())),
    }
}

fn socket_directory(name: &str) -> Result<Host, ConnInfoError> {
    if cfg!(unix) {
        Ok(Host::Socket(PathBuf::from(name)))
    } else {
        Err(ConnInfoError::invalid(
            "host",
            name,
            "there are no Unix-domain sockets on this system",
        ))
    }
}

/// A local server's socket if there is one in the usual places, else `localhost`.
fn default_host(port: u16, around: &dyn Surroundings) -> Host {
    let has_socket = |directory: &str| {
        let socket = Path::new(directory).join(format!(".s.PGSQL.{port}"));
        around.stat(&socket).is_some_and(|stat| !stat.is_regular)
    };
    match SOCKET_DIRECTORIES.into_iter().find(|d| has_socket(d)) {
        Some(directory) if cfg!(unix) => Host::Socket(PathBuf::from(directory)),
        _ => Host::Tcp("localhost".to_owned()),
    }
}

/// A password file that cannot be used is not an error: the server may not ask for a password at all.
fn passfile_text(
    settings: &Settings,
    around: &dyn Surroundings,
    warnings: &mut Vec<String>,
) -> Option<String> {
    let named = settings.get("passfile").map(PathBuf::from);
    let file = named.clone().or_else(|| default_passfile(around))?;
    let shown = file.display();
    let Some(stat) = around.stat(&file) else {
        if named.is_some() {
            warnings.push(format!(
                "password file {shown} does not exist; going on without it"
            ));
        }
        return None;
    };
    if !stat.is_regular {
        warnings.push(format!(
            "password file {shown} is not a plain file; going on without it"
        ));
        return None;
    }
    if stat.open_to_others {
        warnings.push(format!(
            "password file {shown} is open to group or others; going on without it (chmod 0600 makes it right)"
        ));
        return None;
    }
    match around.read(&file) {
        Ok(text) => Some(text),
        Err(error) => {
            warnings.push(format!(
                "password file {shown} cannot be read: {error}; going on without it"
            ));
            None
        }
    }
}

fn default_passfile(around: &dyn Surroundings) -> Option<PathBuf> {
    if cfg!(windows) {
        let roaming = around.var("APPDATA")?;
        return Some(Path::new(&roaming).join("postgresql").join("pgpass.conf"));
    }
    Some(around.home()?.join(".pgpass"))
}

/// The host as a password file names it: the default socket goes by `localhost`.
fn passfile_host(endpoint: &Endpoint) -> String {
    match &endpoint.host {
        Host::Tcp(name) => name.clone(),
        Host::Socket(directory)
            if SOCKET_DIRECTORIES
                .iter()
                .any(|usual| directory == Path::new(usual)) =>
        {
            "localhost".to_owned()
        }
        Host::Socket(directory) => directory.to_string_lossy().into_owned(),
    }
}
