//! From keyword values to [`ConnInfo`]: fills in the environment and the defaults, and checks every rule.
//!
//! Promises: pure, all of the outside comes through [`Surroundings`]. What was given wins over the service file, that over
//! the environment, that over the defaults, as in libpq.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::keywords::{KEYWORDS, Settings};
use super::options::{
    ChannelBinding, ClientCert, Keepalive, LoadBalanceHosts, Roots, SslMode, TargetSessionAttrs,
    TlsSettings,
};
use super::surroundings::Surroundings;
use super::{ConnInfo, ConnInfoError, endpoints, service};

pub(super) const DEFAULT_APPLICATION_NAME: &str = "rowlock";

// libpq waits for ever for a connection and leaves a dead one to the operating system (two hours on Linux). A queue must
// notice sooner: its jobs are leased for half a minute.
pub(super) const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const DEFAULT_TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const DEFAULT_KEEPALIVE: Keepalive = Keepalive {
    idle: Some(Duration::from_secs(30)),
    interval: Some(Duration::from_secs(10)),
    retries: Some(3),
};

/// What was understood, and what the user should be told about it.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) info: ConnInfo,
    pub(super) warnings: Vec<String>,
}

pub(super) fn build(
    mut settings: Settings,
    around: &dyn Surroundings,
) -> Result<Built, ConnInfoError> {
    service::fill(&mut settings, around)?;
    fill_from_environment(&mut settings, around);
    refuse_nul_bytes(&settings)?;
    refuse_foreign_modes(&settings)?;

    let user = user(&settings, around)?;
    let dbname = settings.get("dbname").unwrap_or(&user).to_owned();
    let mut warnings = Vec::new();
    let endpoints = endpoints::endpoints(&settings, &dbname, &user, around, &mut warnings)?;
    let info = ConnInfo {
        endpoints,
        dbname,
        user,
        application_name: application_name(&settings),
        options: settings.get("options").map(str::to_owned),
        connect_timeout: seconds(&settings, "connect_timeout", Some(DEFAULT_CONNECT_TIMEOUT))?,
        keepalive: keepalive(&settings)?,
        tcp_user_timeout: tcp_user_timeout(&settings)?,
        tls: tls(&settings, around)?,
        channel_binding: word(&settings, "channel_binding", ChannelBinding::parse)?,
        target_session_attrs: word(&settings, "target_session_attrs", TargetSessionAttrs::parse)?,
        load_balance_hosts: word(&settings, "load_balance_hosts", LoadBalanceHosts::parse)?,
    };
    Ok(Built { info, warnings })
}

fn fill_from_environment(settings: &mut Settings, around: &dyn Surroundings) {
    for (keyword, variable) in KEYWORDS {
        let value = variable.and_then(|variable| around.var(variable));
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            settings.set_if_missing(keyword, value);
        }
    }
}

/// The protocol ends its strings with NUL, so one inside would cut the rest off.
fn refuse_nul_bytes(settings: &Settings) -> Result<(), ConnInfoError> {
    for (keyword, _) in KEYWORDS {
        if settings
            .get(keyword)
            .is_some_and(|value| value.contains('\0'))
        {
            return Err(ConnInfoError::InvalidValue {
                keyword,
                value: "(not shown)".to_owned(),
                rule: "must not contain a NUL character".to_owned(),
            });
        }
    }
    Ok(())
}

/// Keywords of which only the value that changes nothing is accepted.
fn refuse_foreign_modes(settings: &Settings) -> Result<(), ConnInfoError> {
    if let Some(encoding) = settings.get("client_encoding") {
        let known = ["utf8", "utf-8", "unicode", "auto"];
        if !known.iter().any(|name| encoding.eq_ignore_ascii_case(name)) {
            return Err(ConnInfoError::invalid(
                "client_encoding",
                encoding,
                "only UTF8 is spoken",
            ));
        }
    }
    match settings.get("gssencmode") {
        None | Some("disable" | "prefer") => Ok(()),
        Some(mode) => Err(ConnInfoError::invalid(
            "gssencmode",
            mode,
            "there is no GSSAPI here; use disable and sslmode=verify-full",
        )),
    }
}

fn user(settings: &Settings, around: &dyn Surroundings) -> Result<String, ConnInfoError> {
    let given = settings.get("user").map(str::to_owned);
    given
        .or_else(|| around.os_user())
        .ok_or(ConnInfoError::NoUser)
}

fn application_name(settings: &Settings) -> String {
    settings
        .get("application_name")
        .or(settings.get("fallback_application_name"))
        .unwrap_or(DEFAULT_APPLICATION_NAME)
        .to_owned()
}

// --- TLS -----------------------------------------------------------------------------------------------------------

fn tls(settings: &Settings, around: &dyn Surroundings) -> Result<TlsSettings, ConnInfoError> {
    let roots = roots(settings, around);
    let mode = match settings.get("sslmode") {
        Some(mode) => SslMode::parse(mode)?,
        // The system trusts many authorities: without the name, a certificate of any of them would do.
        None if roots == Roots::System => SslMode::VerifyFull,
        None => SslMode::default(),
    };
    if mode == SslMode::Disable {
        return Ok(TlsSettings {
            mode,
            ..TlsSettings::default()
        });
    }
    if roots == Roots::System && mode != SslMode::VerifyFull {
        return Err(ConnInfoError::Conflict(format!(
            "sslmode={mode} is too weak for sslrootcert=system: anyone can get a certificate that the system trusts; \
             use sslmode=verify-full"
        )));
    }
    if roots == Roots::None && matches!(mode, SslMode::VerifyCa | SslMode::VerifyFull) {
        return Err(ConnInfoError::Conflict(format!(
            "sslmode={mode} needs root certificates to verify by: name a file as sslrootcert, put one at \
             ~/.postgresql/root.crt, or use sslrootcert=system"
        )));
    }
    Ok(TlsSettings {
        mode,
        roots,
        client: client_cert(settings, around)?,
    })
}

fn roots(settings: &Settings, around: &dyn Surroundings) -> Roots {
    match settings.get("sslrootcert") {
        Some("system") => Roots::System,
        Some(file) => Roots::File(PathBuf::from(file)),
        None => default_file("root.crt", around).map_or(Roots::None, Roots::File),
    }
}

fn client_cert(
    settings: &Settings,
    around: &dyn Surroundings,
) -> Result<Option<ClientCert>, ConnInfoError> {
    let named = |keyword: &str| settings.get(keyword).map(PathBuf::from);
    let cert = named("sslcert").or_else(|| default_file("postgresql.crt", around));
    let key = named("sslkey").or_else(|| default_file("postgresql.key", around));
    match (cert, key) {
        (Some(cert), Some(key)) => Ok(Some(ClientCert { cert, key })),
        (Some(cert), None) => Err(ConnInfoError::Conflict(format!(
            "the client certificate {} needs its key: name the file as sslkey",
            cert.display()
        ))),
        (None, Some(key)) if settings.is_given("sslkey") => Err(ConnInfoError::Conflict(format!(
            "the client key {} needs its certificate: name the file as sslcert",
            key.display()
        ))),
        (None, _) => Ok(None),
    }
}

/// A file that libpq uses if it is there.
fn default_file(name: &str, around: &dyn Surroundings) -> Option<PathBuf> {
    let directory = if cfg!(windows) {
        Path::new(&around.var("APPDATA")?).join("postgresql")
    } else {
        around.home()?.join(".postgresql")
    };
    let file = directory.join(name);
    around.stat(&file).map(|_| file)
}

// --- Numbers and words ---------------------------------------------------------------------------------------------

fn word<T: Default>(
    settings: &Settings,
    keyword: &str,
    parse: fn(&str) -> Result<T, ConnInfoError>,
) -> Result<T, ConnInfoError> {
    settings
        .get(keyword)
        .map_or_else(|| Ok(T::default()), parse)
}

fn number(settings: &Settings, keyword: &'static str) -> Result<Option<i32>, ConnInfoError> {
    let Some(text) = settings.get(keyword) else {
        return Ok(None);
    };
    match text.trim().parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(ConnInfoError::invalid(
            keyword,
            text,
            "must be a whole number",
        )),
    }
}

/// Whole seconds; zero and less mean that the choice is left to the system (or that there is no limit).
fn seconds(
    settings: &Settings,
    keyword: &'static str,
    default: Option<Duration>,
) -> Result<Option<Duration>, ConnInfoError> {
    Ok(match number(settings, keyword)? {
        None => default,
        Some(seconds) => positive(seconds).map(Duration::from_secs),
    })
}

fn positive(number: i32) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| *number > 0)
}

fn tcp_user_timeout(settings: &Settings) -> Result<Option<Duration>, ConnInfoError> {
    Ok(match number(settings, "tcp_user_timeout")? {
        None => Some(DEFAULT_TCP_USER_TIMEOUT),
        Some(milliseconds) => positive(milliseconds).map(Duration::from_millis),
    })
}

fn keepalive(settings: &Settings) -> Result<Option<Keepalive>, ConnInfoError> {
    match number(settings, "keepalives")? {
        Some(0) => return Ok(None),
        None | Some(1) => {}
        Some(other) => {
            return Err(ConnInfoError::invalid(
                "keepalives",
                &other.to_string(),
                "must be 0 or 1",
            ));
        }
    }
    let retries = match number(settings, "keepalives_count")? {
        None => DEFAULT_KEEPALIVE.retries,
        Some(count) => u32::try_from(count).ok().filter(|count| *count > 0),
    };
    Ok(Some(Keepalive {
        idle: seconds(settings, "keepalives_idle", DEFAULT_KEEPALIVE.idle)?,
        interval: seconds(settings, "keepalives_interval", DEFAULT_KEEPALIVE.interval)?,
        retries,
    }))
}
