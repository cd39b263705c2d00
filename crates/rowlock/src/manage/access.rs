//! Access: which database role may do what.

use tokio_postgres::types::Type;

use super::words;
use crate::client::Client;
use crate::error::Result;
use crate::validate;

words! {
    /// What a role may do.
    pub enum Access ("access", "is no kind of access") {
        /// Enqueue.
        Producer = "producer",
        /// Enqueue, and work.
        Worker = "worker",
        /// Look at everything, payloads too.
        Reader = "reader",
        /// All of it, and manage jobs, queues and access.
        Admin = "admin",
    }
}

impl Client {
    /// Gives a database role access to this queue schema. Safe to repeat; kinds of access add up.
    pub async fn grant_access(&self, role: &str, access: Access) -> Result<()> {
        validate::name("role_name", role)?;
        self.rows(
            "grant access",
            "select rowlock.grant_access($1, $2)",
            &[(&role, Type::TEXT), (&access.as_str(), Type::TEXT)],
        )
        .await?;
        Ok(())
    }

    /// Takes all access to this queue schema from a database role.
    pub async fn revoke_access(&self, role: &str) -> Result<()> {
        validate::name("role_name", role)?;
        let sql = "select rowlock.revoke_access($1)";
        self.rows("revoke access", sql, &[(&role, Type::TEXT)])
            .await?;
        Ok(())
    }
}
