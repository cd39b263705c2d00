//! Which database the commands talk to.

use clap::Args;
use rowlock::{Client, ConnInfo};

/// Where the queue is.
#[derive(Args, Clone)]
pub(crate) struct Database {
    /// The database, as a libpq URL or keywords. What is missing comes from the PG* environment.
    #[arg(
        long,
        short = 'd',
        global = true,
        env = "DATABASE_URL",
        hide_env_values = true,
        value_name = "CONNINFO"
    )]
    pub(crate) database: Option<String>,

    /// The schema of the queue in that database.
    #[arg(
        long,
        global = true,
        env = "ROWLOCK_SCHEMA",
        default_value = "rowlock",
        value_name = "NAME"
    )]
    pub(crate) schema: String,
}

impl Database {
    /// A client that has not connected yet.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let info = match &self.database {
            Some(text) => ConnInfo::parse(text)?,
            None => ConnInfo::from_env()?,
        };
        self.client_of(info)
    }

    pub(crate) fn client_of(&self, info: ConnInfo) -> anyhow::Result<Client> {
        Ok(Client::builder().schema(&self.schema).lazy(info)?)
    }
}
