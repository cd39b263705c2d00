//! Which server is measured, and connections to it beside those of the queue.
//!
//! What the queue is compared with must travel as the queue's own connections do, to the same server. The library gives its connections to
//! nobody, so these are made here, from what it has understood of the connection string; where they could not be of the same kind, that is said
//! before anything is measured.

use std::time::Duration;

use anyhow::Context;
use rowlock::{Client, ConnInfo};
use rowlock_testkit::PrivatePostgres;
use serde::Deserialize;
use tokio_postgres::{Config, NoTls};

use super::password;

/// Any of these says where a database is. The others, such as PGUSER, only say how to get in.
const PLACES: [&str; 5] = ["PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE"];

/// How long the first look at a server may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server, and how to get in.
pub(super) struct Server {
    pub(super) info: ConnInfo,
    /// The connection string, for worker processes; what it leaves out they find in the environment, as we do. It may hold a password.
    pub(super) text: String,
    /// If it is ours; it ends with this.
    private: Option<PrivatePostgres>,
    measuring: Config,
}

/// What tells one server from another, and a connection to it.
#[derive(Debug, PartialEq, Deserialize)]
struct Identity {
    started: String,
    database: String,
    encrypted: bool,
}

const IDENTITY: &str = "select extract(epoch from pg_postmaster_start_time())::text as started, current_database()::text as database,
        coalesce((select ssl from pg_stat_ssl where pid = pg_backend_pid()), false) as encrypted";

impl Server {
    /// The given one, else the one that the environment names, as everywhere; else one of our own.
    pub(super) fn find(given: Option<&str>) -> anyhow::Result<Self> {
        let named = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let (private, text) = match given {
            Some(text) => (None, text.to_owned()),
            None if PLACES.into_iter().any(named) => (None, String::new()),
            None => {
                let server = PrivatePostgres::builder()
                    .setting("shared_buffers", "1GB")
                    .setting("max_wal_size", "8GB")
                    .setting("max_connections", "300")
                    .start()?;
                let url = server.url("postgres");
                // Whatever PGSSLMODE says of other servers.
                let separator = if url.contains('?') { '&' } else { '?' };
                let text = format!("{url}{separator}sslmode=disable");
                (Some(server), text)
            }
        };
        let info = match text.as_str() {
            "" => ConnInfo::from_env()?,
            text => ConnInfo::parse(text)?,
        };
        Ok(Self {
            measuring: measuring(&info, &text)?,
            info,
            text,
            private,
        })
    }

    pub(super) fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// Fails unless the queue and what it is compared with get to the same server in the same way. Changes nothing.
    pub(super) async fn check(
        &self,
        client: &Client,
        sql: &tokio_postgres::Client,
    ) -> anyhow::Result<()> {
        anyhow::ensure!(
            !client.is_pooled().await?,
            "a pooler stands between this program and {}, which shares sessions: name the server itself",
            self.info
        );
        let theirs = self.identity(client).await?;
        let row = sql.query_one(IDENTITY, &[]).await?;
        let ours = Identity {
            started: row.get("started"),
            database: row.get("database"),
            encrypted: row.get("encrypted"),
        };
        anyhow::ensure!(
            ours == theirs,
            "{} leads to several servers: name the one that is to be measured",
            self.info
        );
        Ok(())
    }

    /// Connects as the queue does, which says best what is wrong, and refuses what we cannot do likewise.
    pub(super) async fn check_encryption(&self, client: &Client) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.identity(client).await?.encrypted,
            "the queue's connections to {} are encrypted, and those that it is compared with cannot be: \
             with sslmode=disable (in -d or as PGSSLMODE) neither are, if the server allows it",
            self.info
        );
        Ok(())
    }

    async fn identity(&self, client: &Client) -> anyhow::Result<Identity> {
        let rows: Vec<Identity> = client
            .look("look at the server", IDENTITY, PATIENCE)
            .await?;
        let row = rows.into_iter().next();
        row.context("the server does not say what it is")
    }

    /// A connection that is nobody else's.
    pub(super) async fn connect(&self) -> anyhow::Result<tokio_postgres::Client> {
        let (client, connection) = self
            .measuring
            .connect(NoTls)
            .await
            .with_context(|| format!("cannot open another connection to {}", self.info))?;
        tokio::spawn(connection);
        Ok(client)
    }

    pub(super) fn stop(self) -> anyhow::Result<()> {
        if let Some(mut server) = self.private {
            server.stop()?;
        }
        Ok(())
    }
}

/// What the library has understood, for the driver: the servers, the database, the user, and what else both know.
fn measuring(info: &ConnInfo, text: &str) -> anyhow::Result<Config> {
    const KNOWN: [&str; 5] = [
        "hostaddr",
        "options",
        "application_name",
        "connect_timeout",
        "load_balance_hosts",
    ];
    let shown = info.to_string();
    let (place, parameters) = shown.split_once('?').unwrap_or((&shown, ""));
    let name = |parameter: &str| parameter.split('=').next().unwrap_or_default().to_owned();
    let mut url = format!("{place}?sslmode=disable");
    for parameter in parameters.split('&') {
        if KNOWN.contains(&name(parameter).as_str()) {
            url.push('&');
            url.push_str(parameter);
        }
    }
    let mut config: Config = url
        .parse()
        .with_context(|| format!("cannot understand {info}"))?;
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(PATIENCE);
    }
    if config.get_password().is_some() {
        // A mark stands where it was.
        config.password(password::find(info, text)?);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::Host;

    use super::*;

    #[test]
    fn what_the_library_understood_is_what_the_driver_is_told() {
        let text = "host=/run/pg,db.example port=5433 user='ann lee' password='a b' dbname=app sslmode=verify-full sslrootcert=system options='-c jit=off'";
        let info = ConnInfo::parse(text).unwrap();
        let config = measuring(&info, text).unwrap();
        assert_eq!(
            config.get_hosts(),
            [
                Host::Unix("/run/pg".into()),
                Host::Tcp("db.example".to_owned())
            ]
        );
        assert_eq!(config.get_ports(), [5433, 5433]);
        assert_eq!(
            (config.get_user(), config.get_dbname()),
            (Some("ann lee"), Some("app"))
        );
        assert_eq!(config.get_password(), Some(&b"a b"[..]));
        assert_eq!(config.get_options(), Some("-c jit=off"));
        assert_eq!(config.get_connect_timeout(), Some(&PATIENCE));
    }
}
