//! One log-in at one address with one encryption: what is sent to the server, and what it is asked afterwards.

use tokio::sync::mpsc;
use tokio_postgres::config::SslMode as DriverSslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::driver::Driver;
use super::search::Place;
use super::{ConnectOptions, Notification};
use crate::db::conninfo::{ChannelBinding, ConnInfo, Host};

/// A connection before anything is known about it.
pub(super) struct Opened {
    pub(super) client: Client,
    pub(super) notifications: Option<mpsc::UnboundedReceiver<Notification>>,
    pub(super) driver: Driver,
}

pub(super) async fn log_in(
    info: &ConnInfo,
    options: &ConnectOptions,
    place: &Place<'_>,
    encryption: DriverSslMode,
    tls: Option<&MakeRustlsConnect>,
    session: Option<&SessionMark>,
) -> Result<Opened, tokio_postgres::Error> {
    let mut config = driver_config(info, place);
    config.ssl_mode(encryption);
    if let Some(options) = startup_options(info.options.as_deref(), session) {
        config.options(options);
    }
    match tls {
        Some(tls) if encryption != DriverSslMode::Disable => {
            open(&config, tls.clone(), options).await
        }
        _ => open(&config, NoTls, options).await,
    }
}

async fn open<T>(
    config: &Config,
    tls: T,
    options: &ConnectOptions,
) -> Result<Opened, tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, connection) = config.connect(tls).await?;
    let (sender, notifications) = if options.notifications {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Some(sender), Some(receiver))
    } else {
        (None, None)
    };
    Ok(Opened {
        client,
        notifications,
        driver: Driver::spawn(connection, sender),
    })
}

/// The random value by which a session is recognised as ours.
pub(super) struct SessionMark(String);

impl SessionMark {
    pub(super) fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()))
    }

    /// Whether that is what the session says.
    pub(super) fn is(&self, value: Option<&str>) -> bool {
        value == Some(&self.0)
    }
}

/// The user's options, then ours, which win.
fn startup_options(given: Option<&str>, session: Option<&SessionMark>) -> Option<String> {
    let ours = session.map(|SessionMark(mark)| {
        format!(r"-c rowlock.session={mark} -c default_transaction_isolation=read\ committed")
    });
    match (given, ours) {
        (Some(given), Some(ours)) => Some(format!("{given} {ours}")),
        (given, ours) => ours.or(given.map(str::to_owned)),
    }
}

fn driver_config(info: &ConnInfo, place: &Place<'_>) -> Config {
    let mut config = Config::new();
    config
        .user(&info.user)
        .dbname(&info.dbname)
        .application_name(&info.application_name)
        .port(place.endpoint.port)
        .channel_binding(match info.channel_binding {
            ChannelBinding::Disable => tokio_postgres::config::ChannelBinding::Disable,
            ChannelBinding::Prefer => tokio_postgres::config::ChannelBinding::Prefer,
            ChannelBinding::Require => tokio_postgres::config::ChannelBinding::Require,
        });
    match &place.endpoint.host {
        Host::Tcp(name) => config.host(name),
        #[cfg(unix)]
        Host::Socket(directory) => config.host_path(directory),
        #[cfg(not(unix))]
        Host::Socket(directory) => config.host(directory.to_string_lossy()),
    };
    if let Some(address) = place.address {
        config.hostaddr(address);
    }
    if let Some(password) = &place.endpoint.password {
        config.password(password.expose());
    }
    if let Some(timeout) = info.tcp_user_timeout {
        config.tcp_user_timeout(timeout);
    }
    config.keepalives(info.keepalive.is_some());
    if let Some(keepalive) = info.keepalive {
        keepalive.idle.map(|idle| config.keepalives_idle(idle));
        keepalive
            .interval
            .map(|interval| config.keepalives_interval(interval));
        keepalive
            .retries
            .map(|retries| config.keepalives_retries(retries));
    }
    config
}

/// What the set-up round trip found out.
pub(super) struct Facts {
    pub(super) session: Option<String>,
    pub(super) server_version_num: u32,
    pub(super) in_recovery: bool,
    pub(super) read_only: bool,
}

/// A simple query: one round trip, and nothing stays prepared behind a pooler.
const FACTS: &str = "select current_setting('rowlock.session', true), current_setting('server_version_num'), \
                     pg_catalog.pg_is_in_recovery(), current_setting('default_transaction_read_only')";

/// Asks the server, in one round trip, all that decides whether it will do and what it can.
pub(super) async fn facts(client: &Client) -> Result<Facts, tokio_postgres::Error> {
    let messages = client.simple_query(FACTS).await?;
    let mut facts = Facts {
        session: None,
        server_version_num: 0,
        in_recovery: false,
        read_only: false,
    };
    for message in &messages {
        if let SimpleQueryMessage::Row(row) = message {
            facts = Facts {
                session: row.try_get(0)?.map(str::to_owned),
                // A server that does not say its version is treated as too old.
                server_version_num: row
                    .try_get(1)?
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(0),
                in_recovery: row.try_get(2)? == Some("t"),
                read_only: row.try_get(3)? == Some("on"),
            };
        }
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_options_come_last_and_so_win() {
        let mark = SessionMark("ff".to_owned());
        let ours = r"-c rowlock.session=ff -c default_transaction_isolation=read\ committed";
        assert_eq!(startup_options(None, Some(&mark)).as_deref(), Some(ours));
        assert_eq!(
            startup_options(Some("-c a=b"), Some(&mark)),
            Some(format!("-c a=b {ours}"))
        );
        assert_eq!(
            startup_options(Some("-c a=b"), None).as_deref(),
            Some("-c a=b")
        );
        assert_eq!(startup_options(None, None), None);
    }

    #[test]
    fn session_marks_differ() {
        let (a, b) = (SessionMark::random().0, SessionMark::random().0);
        assert_ne!(a, b);
        assert_eq!(a.len(), 32);
    }
}
