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
        help_heading = crate::EVERYWHERE,
        env = "DATABASE_URL",
        hide_env_values = true,
        value_name = "CONNINFO"
    )]
    pub(crate) database: Option<String>,

    /// The schema of the queue in that database: rowlock, if nothing is said.
    #[arg(long, global = true, help_heading = crate::EVERYWHERE, env = "ROWLOCK_SCHEMA", value_name = "NAME")]
    pub(crate) schema: Option<String>,
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
        let schema = self.schema.as_deref().unwrap_or("rowlock");
        Ok(Client::builder().schema(schema).lazy(info)?)
    }
}
