//! The search through servers, addresses and encryptions for a connection that will do.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use rand::seq::SliceRandom;
use tokio_postgres::config::SslMode as DriverSslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{
    Cause, Failure, classify, depends_on_encryption, more_telling, refuses_options,
};
use super::login::{Opened, SessionMark, facts, log_in};
use super::target::Wanted;
use super::{Attempt, ConnectError, ConnectOptions, Connection};
use crate::db::conninfo::{ConnInfo, Endpoint, Host, LoadBalanceHosts, SslMode};
use crate::db::tls;

const OLDEST_VERSION_NUM: u32 = 140_000;

/// Opens one connection to the first server that will do.
pub(super) async fn search(
    info: &ConnInfo,
    options: &ConnectOptions,
) -> Result<Connection, ConnectError> {
    let tls = tls_connector(info).await?;
    let search = Search {
        info,
        options,
        tls: tls.as_ref(),
    };
    let passes = Wanted::passes(info.target_session_attrs);
    let mut outcome = search.pass(passes[0]).await;
    for wanted in &passes[1..] {
        if let Err(ConnectError::NoMatchingServer { .. }) = outcome {
            outcome = search.pass(*wanted).await;
        }
    }
    outcome
}

/// Reads the TLS files off the async threads: the system's store can be large.
async fn tls_connector(info: &ConnInfo) -> Result<Option<MakeRustlsConnect>, ConnectError> {
    let needs_tls = info.tls.mode != SslMode::Disable && info.endpoints.iter().any(is_tcp);
    if !needs_tls {
        return Ok(None);
    }
    let settings = info.tls.clone();
    let task = tokio::task::spawn_blocking(move || tls::connector(&settings));
    match task.await {
        Ok(connector) => Ok(Some(connector?)),
        Err(join_error) => Err(tls::TlsError::Provider(join_error.to_string()).into()),
    }
}

fn is_tcp(endpoint: &Endpoint) -> bool {
    matches!(endpoint.host, Host::Tcp(_))
}

/// The search for a server that will do.
struct Search<'a> {
    info: &'a ConnInfo,
    options: &'a ConnectOptions,
    tls: Option<&'a MakeRustlsConnect>,
}

impl Search<'_> {
    /// Goes through all servers once.
    async fn pass(&self, wanted: Wanted) -> Result<Connection, ConnectError> {
        let mut failures = Vec::new();
        for endpoint in self.shuffled(self.info.endpoints.iter().collect()) {
            let places = match self.places(endpoint).await {
                Ok(places) => places,
                Err(cause) => {
                    failures.push((endpoint.to_string(), cause));
                    continue;
                }
            };
            for place in places {
                let server = place.to_string();
                let attempt = self.try_place(&place, &server, wanted);
                let outcome = self
                    .in_time(attempt)
                    .await
                    .unwrap_or(Err(Failure::TryNext(Cause::Timeout)));
                match outcome {
                    Ok(connection) => return Ok(connection),
                    Err(Failure::Stop(error)) => return Err(error),
                    Err(Failure::TryNext(cause)) => failures.push((server, cause)),
                }
            }
        }
        Err(self.sum_up(failures, wanted))
    }

    fn shuffled<T>(&self, mut list: Vec<T>) -> Vec<T> {
        if self.info.load_balance_hosts == LoadBalanceHosts::Random {
            list.shuffle(&mut rand::rng());
        }
        list
    }

    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        match self.info.connect_timeout {
            None => Some(work.await),
            Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        }
    }

    /// The addresses of a server; a socket has one.
    async fn places<'e>(&self, endpoint: &'e Endpoint) -> Result<Vec<Place<'e>>, Cause> {
        let Host::Tcp(name) = &endpoint.host else {
            return Ok(vec![Place {
                endpoint,
                address: None,
            }]);
        };
        if endpoint.hostaddr.is_some() {
            return Ok(vec![Place {
                endpoint,
                address: endpoint.hostaddr,
            }]);
        }
        let looked_up = self
            .in_time(tokio::net::lookup_host((name.as_str(), endpoint.port)))
            .await;
        let addresses = match looked_up {
            None => return Err(Cause::Timeout),
            Some(Err(error)) => {
                return Err(Cause::Unreachable(format!(
                    "cannot look the name up: {error}"
                )));
            }
            Some(Ok(addresses)) => addresses.map(|address| Place {
                endpoint,
                address: Some(address.ip()),
            }),
        };
        let places = self.shuffled(addresses.collect());
        if places.is_empty() {
            return Err(Cause::Unreachable("the name has no address".to_owned()));
        }
        Ok(places)
    }

    /// Logs in at one address, with the encryptions that `sslmode` allows.
    async fn try_place(
        &self,
        place: &Place<'_>,
        server: &str,
        wanted: Wanted,
    ) -> Result<Connection, Failure> {
        let mut session = Some(SessionMark::random());
        let (first, fallback) = self.encryptions(place.endpoint);
        let opened = match self.log_in_marked(place, first, &mut session).await {
            Ok(opened) => opened,
            Err(refusal) => match fallback {
                Some(fallback) if depends_on_encryption(&refusal) => self
                    .log_in_marked(place, fallback, &mut session)
                    .await
                    .map_err(|error| classify(&more_telling(refusal, error), server, self.info))?,
                _ => return Err(classify(&refusal, server, self.info)),
            },
        };
        self.set_up(opened, server, session.as_ref(), wanted).await
    }

    /// The encryption to try, and what to try if it depends on that. A socket never has any: it does not leave the host.
    fn encryptions(&self, endpoint: &Endpoint) -> (DriverSslMode, Option<DriverSslMode>) {
        match self.info.tls.mode {
            _ if !is_tcp(endpoint) => (DriverSslMode::Disable, None),
            SslMode::Disable => (DriverSslMode::Disable, None),
            SslMode::Allow => (DriverSslMode::Disable, Some(DriverSslMode::Require)),
            SslMode::Prefer => (DriverSslMode::Prefer, Some(DriverSslMode::Disable)),
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => {
                (DriverSslMode::Require, None)
            }
        }
    }

    /// Logs in with our mark on the session, or, if that is refused, without it.
    async fn log_in_marked(
        &self,
        place: &Place<'_>,
        encryption: DriverSslMode,
        session: &mut Option<SessionMark>,
    ) -> Result<Opened, tokio_postgres::Error> {
        match self.log_in(place, encryption, session.as_ref()).await {
            Err(error) if session.is_some() && refuses_options(&error) => {
                *session = None;
                self.log_in(place, encryption, None).await
            }
            outcome => outcome,
        }
    }

    async fn log_in(
        &self,
        place: &Place<'_>,
        encryption: DriverSslMode,
        session: Option<&SessionMark>,
    ) -> Result<Opened, tokio_postgres::Error> {
        log_in(
            self.info,
            self.options,
            place,
            encryption,
            self.tls,
            session,
        )
        .await
    }

    /// Asks the server, in one round trip, all that decides whether it will do and what it can.
    async fn set_up(
        &self,
        opened: Opened,
        server: &str,
        session: Option<&SessionMark>,
        wanted: Wanted,
    ) -> Result<Connection, Failure> {
        let facts = facts(&opened.client)
            .await
            .map_err(|error| classify(&error, server, self.info))?;
        if facts.server_version_num < OLDEST_VERSION_NUM {
            return Err(Failure::Stop(ConnectError::ServerTooOld {
                server: server.to_owned(),
                version_num: facts.server_version_num,
            }));
        }
        wanted
            .check(facts.in_recovery, facts.read_only)
            .map_err(|reason| Failure::TryNext(Cause::WrongKind(reason.to_owned())))?;
        Ok(Connection {
            client: opened.client,
            notifications: opened.notifications,
            direct: session.is_some_and(|mark| mark.is(facts.session.as_deref())),
            server_version_num: facts.server_version_num,
            server: server.to_owned(),
            prepared: Default::default(),
            in_transaction: Default::default(),
            unanswered: Default::default(),
            driver: opened.driver,
        })
    }

    fn sum_up(&self, failures: Vec<(String, Cause)>, wanted: Wanted) -> ConnectError {
        let after = self.info.connect_timeout.unwrap_or(Duration::MAX);
        let any_of_wrong_kind = failures
            .iter()
            .any(|(_, cause)| matches!(cause, Cause::WrongKind(_)));
        let all_timed_out = failures
            .iter()
            .all(|(_, cause)| matches!(cause, Cause::Timeout));
        let attempts = failures
            .into_iter()
            .map(|(server, cause)| {
                let reason = match cause {
                    Cause::Unreachable(reason) | Cause::WrongKind(reason) => reason,
                    Cause::Timeout => format!("no answer within {after:?}"),
                };
                Attempt { server, reason }
            })
            .collect();
        if any_of_wrong_kind {
            ConnectError::NoMatchingServer {
                wanted: wanted.attrs(),
                attempts,
            }
        } else if all_timed_out {
            ConnectError::Timeout { after, attempts }
        } else {
            ConnectError::Unreachable { attempts }
        }
    }
}

/// One address of one server.
pub(super) struct Place<'a> {
    pub(super) endpoint: &'a Endpoint,
    /// `None` for a socket.
    pub(super) address: Option<IpAddr>,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.endpoint)?;
        match (&self.endpoint.host, self.address) {
            (Host::Tcp(name), Some(address)) if *name != address.to_string() => {
                write!(f, " ({address})")
            }
            _ => Ok(()),
        }
    }
}
