//! What the examples share: a database to run on.
//!
//! Each example takes the database that `DATABASE_URL` names. Without it, it starts a private PostgreSQL in a temporary directory
//! and removes that at the end, so that `cargo run -p rowlock-examples --bin hello` works on a machine with nothing but the
//! PostgreSQL programs.
//!
//! The pages of `docs/guide` are compiled as doctests of this crate, and their SQL is run by `tests/docs.rs`.

use rowlock::Client;
use rowlock_testkit::PrivatePostgres;

/// A migrated queue to run an example on. Keep it until the end: dropping it stops the private server.
pub struct Database {
    /// A client of the queue.
    pub client: Client,
    /// Where the database is, for examples that open connections of their own.
    pub url: String,
    _server: Option<PrivatePostgres>,
}

/// The database of `DATABASE_URL`, or a private one.
pub async fn database() -> anyhow::Result<Database> {
    let (url, server) = match std::env::var("DATABASE_URL") {
        Ok(url) => (url, None),
        Err(_) => {
            let server = PrivatePostgres::builder().fsync(false).start()?;
            (server.url("postgres"), Some(server))
        }
    };
    // Lazy, because `connect` refuses a database that has not been migrated yet.
    let client = Client::builder().lazy(url.parse()?)?;
    client.migrate().await?;
    Ok(Database {
        client,
        url,
        _server: server,
    })
}

/// A connection of the example's own, as an application has them.
pub async fn connect(url: &str) -> anyhow::Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Compiles the Rust of the guide.
#[cfg(doctest)]
mod guide {
    macro_rules! pages {
        ($($name:ident: $page:literal),* $(,)?) => { $(#[doc = include_str!($page)] struct $name;)* };
    }

    pages! {
        Readme: "../../README.md",
        AnyTableAsAQueue: "../../docs/guide/any-table-as-a-queue.md",
        Connections: "../../docs/guide/connections.md",
        Enqueue: "../../docs/guide/enqueue.md",
        GettingStarted: "../../docs/guide/getting-started.md",
        IdempotentHandlers: "../../docs/guide/idempotent-handlers.md",
        HistoryAndRetention: "../../docs/guide/history-and-retention.md",
        ManagingJobs: "../../docs/guide/managing-jobs.md",
        QueuesAndSettings: "../../docs/guide/queues-and-settings.md",
        LeasesAndShutdown: "../../docs/guide/leases-and-shutdown.md",
        Pgbouncer: "../../docs/guide/pgbouncer.md",
        RetriesAndDeadLetters: "../../docs/guide/retries-and-dead-letters.md",
        SchedulingAndPriorities: "../../docs/guide/scheduling-and-priorities.md",
        TestingYourJobs: "../../docs/guide/testing-your-jobs.md",
        Workers: "../../docs/guide/workers.md",
    }

    #[cfg(feature = "drivers")]
    pages! { Transactions: "../../docs/guide/transactions.md" }
}
