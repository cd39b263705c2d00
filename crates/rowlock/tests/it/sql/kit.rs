//! What the tests of the SQL contract share: a migrated database, statements as text, jobs that are held, time that moves,
//! sessions whose notices and notifications are read.

use std::time::{Duration, Instant};

use rowlock::Client;
use rowlock_testkit::TestDb;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client as Pg, NoTls, SimpleQueryMessage};

use crate::support;

/// The longest that a test waits for something that must happen. Nothing waits this long when all is well.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A database with the schema in it, the library's client of it, and a plain connection.
pub(super) struct Installed {
    pub(super) pg: Pg,
    pub(super) client: Client,
    /// Last, so that the connections are gone first.
    pub(super) db: TestDb,
}

impl Installed {
    /// Another plain connection.
    pub(super) async fn another(&self) -> Pg {
        self.db.connect().await.expect("another connection")
    }
}

pub(super) async fn installed() -> Installed {
    let (db, client) = support::queue().await;
    let pg = db.connect().await.expect("a connection");
    Installed { pg, client, db }
}

/// Runs statements.
pub(super) async fn run(pg: &Pg, sql: &str) {
    if let Err(e) = pg.batch_execute(sql).await {
        panic!("{}\nin: {sql}", told(&e));
    }
}

/// The rows of the last statement that has any, each as `a|b|null`.
pub(super) async fn rows(pg: &Pg, sql: &str) -> Vec<String> {
    match pg.simple_query(sql).await {
        Ok(messages) => messages.iter().filter_map(line).collect(),
        Err(e) => panic!("{}\nin: {sql}", told(&e)),
    }
}

fn line(message: &SimpleQueryMessage) -> Option<String> {
    let SimpleQueryMessage::Row(row) = message else {
        return None;
    };
    let cells = (0..row.len()).map(|n| row.get(n).unwrap_or("null"));
    Some(cells.collect::<Vec<_>>().join("|"))
}

/// The one row of a statement.
pub(super) async fn one(pg: &Pg, sql: &str) -> String {
    let mut all = rows(pg, sql).await;
    assert_eq!(all.len(), 1, "one row was expected of: {sql}\ngot {all:?}");
    all.remove(0)
}

/// The one number of a statement.
pub(super) async fn number(pg: &Pg, sql: &str) -> i64 {
    let text = one(pg, sql).await;
    text.parse()
        .unwrap_or_else(|_| panic!("{text:?} is no number, from: {sql}"))
}

/// Whether a statement says yes.
pub(super) async fn is(pg: &Pg, sql: &str) -> bool {
    one(pg, sql).await == "t"
}

/// SQLSTATE and message of a statement that must be refused.
pub(super) async fn refused(pg: &Pg, sql: &str) -> String {
    match pg.simple_query(sql).await {
        Ok(messages) => {
            let all: Vec<_> = messages.iter().filter_map(line).collect();
            let short: String = sql.chars().take(300).collect();
            panic!("this was to be refused, but gave {all:?}: {short}")
        }
        Err(e) => told(&e),
    }
}

/// What the server said, with its SQLSTATE in front.
pub(super) fn told(e: &tokio_postgres::Error) -> String {
    match e.as_db_error() {
        Some(db) => format!("{} {}", db.code().code(), db.message()),
        None => format!("no answer: {e}"),
    }
}

/// Waits until a statement says yes: for what another session is about to do.
pub(super) async fn until(pg: &Pg, sql: &str, why: &str) {
    let start = Instant::now();
    while !is(pg, sql).await {
        assert!(start.elapsed() < PATIENCE, "waited in vain {why}: {sql}");
        tokio::task::yield_now().await;
    }
}

/// Waits for something that must happen.
pub(super) async fn within<T>(why: &str, what: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, what).await {
        Ok(value) => value,
        Err(_) => panic!("did not happen within {PATIENCE:?}: {why}"),
    }
}

/// Moves the clock of the queue: it is then this interval ahead of the real one.
pub(super) async fn move_clock(pg: &Pg, ahead: &str) {
    run(
        pg,
        &format!(
            "create or replace function rowlock.clock() returns timestamptz language sql volatile parallel safe \
             return clock_timestamp() + interval '{ahead}'"
        ),
    )
    .await;
}

/// Stops the clock of the queue: this many ms after the year 2040 began. For what must not depend on how long a statement takes.
pub(super) async fn stop_clock(pg: &Pg, ms: i64) {
    run(
        pg,
        &format!(
            "create or replace function rowlock.clock() returns timestamptz language sql volatile parallel safe \
             return timestamptz '2040-01-01 00:00:00+00' + {ms} * interval '1 ms'"
        ),
    )
    .await;
}

/// A job that was claimed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Held {
    pub(super) id: i64,
    pub(super) token: i64,
    pub(super) attempt: i32,
    pub(super) tid: String,
}

/// `select … from rowlock.claim(arguments)`.
pub(super) async fn claim(pg: &Pg, arguments: &str) -> Vec<Held> {
    let sql = format!("select id, token, attempt, tid from rowlock.claim({arguments})");
    rows(pg, &sql)
        .await
        .iter()
        .map(|row| {
            let cells: Vec<&str> = row.split('|').collect();
            Held {
                id: cells[0].parse().expect("an id"),
                token: cells[1].parse().expect("a token"),
                attempt: cells[2].parse().expect("an attempt"),
                tid: cells[3].to_owned(),
            }
        })
        .collect()
}

/// The ids of these jobs.
pub(super) fn ids(held: &[Held]) -> Vec<i64> {
    held.iter().map(|h| h.id).collect()
}

/// `queue, ids, tokens` as the arguments of an acknowledgement.
pub(super) fn named(held: &[Held]) -> String {
    let list = |of: &dyn Fn(&Held) -> i64| {
        held.iter()
            .map(|h| of(h).to_string())
            .collect::<Vec<_>>()
            .join(",")
    };
    format!(
        "'default', '{{{}}}', '{{{}}}'",
        list(&|h| h.id),
        list(&|h| h.token)
    )
}

/// The places of these rows, as an array of text.
pub(super) fn tids(held: &[Held]) -> String {
    let all: Vec<String> = held.iter().map(|h| format!("'{}'", h.tid)).collect();
    format!("array[{}]::text[]", all.join(","))
}

/// Completes jobs of the default queue; answers `done|lost|busy`.
pub(super) async fn complete(pg: &Pg, held: &[Held]) -> String {
    let (named, tids) = (named(held), tids(held));
    one(
        pg,
        &format!("select done, lost, busy from rowlock.complete({named}, {tids})"),
    )
    .await
}

/// Enqueues this many jobs of kind `k` into the default queue; their ids, which rise.
pub(super) async fn enqueue(pg: &Pg, count: usize) -> Vec<i64> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(number(pg, "select id from rowlock.enqueue('k')").await);
    }
    ids
}

/// What a refused call must not have changed.
pub(super) async fn everything(pg: &Pg) -> String {
    one(
        pg,
        "select (select jsonb_agg(to_jsonb(j) order by id) from rowlock.job j), (select count(*) from rowlock.queue), \
         (select count(*) from rowlock.finished), (select count(*) from rowlock.dead)",
    )
    .await
}

/// A connection whose notices and notifications can be read.
pub(super) struct Session {
    pub(super) pg: Pg,
    notices: mpsc::UnboundedReceiver<String>,
    notifications: mpsc::UnboundedReceiver<(String, String)>,
}

impl Session {
    pub(super) async fn open(url: &str) -> Session {
        let (pg, mut connection) = tokio_postgres::connect(url, NoTls)
            .await
            .expect("a connection");
        let (notice, notices) = mpsc::unbounded_channel();
        let (notification, notifications) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) =
                std::future::poll_fn(|context| connection.poll_message(context)).await
            {
                match message {
                    AsyncMessage::Notice(n) => drop(notice.send(n.message().to_owned())),
                    AsyncMessage::Notification(n) => {
                        drop(notification.send((n.channel().to_owned(), n.payload().to_owned())));
                    }
                    _ => {}
                }
            }
        });
        Session {
            pg,
            notices,
            notifications,
        }
    }

    /// The notices of all statements that have been answered. They come before the answer.
    pub(super) fn notices(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.notices.try_recv().ok()).collect()
    }

    /// The next notification.
    pub(super) async fn heard(&mut self) -> (String, String) {
        within("a notification", self.notifications.recv())
            .await
            .expect("the connection is open")
    }

    /// What was notified on this channel so far. Sends a last one itself: notifications come in the order of the commits, so
    /// everything that was committed before has come when this one does.
    pub(super) async fn heard_so_far(&mut self, channel: &str) -> Vec<String> {
        run(
            &self.pg,
            &format!("select pg_notify('{channel}', 'the end')"),
        )
        .await;
        let mut all = Vec::new();
        loop {
            let (from, payload) = self.heard().await;
            if payload == "the end" && from == channel {
                return all;
            }
            all.push(payload);
        }
    }
}

/// Enqueues a job with a time and a priority; its id.
pub(super) async fn job(pg: &Pg, run_at: &str, priority: i32) -> i64 {
    number(
        pg,
        &format!(
            "select id from rowlock.enqueue('k', run_at => '{run_at}', priority => {priority})"
        ),
    )
    .await
}

/// A claim of the library's form: the ids, and its last row as `cursor|parked|more`.
pub(super) async fn claim_batch(pg: &Pg, arguments: &str) -> (Vec<i64>, String) {
    let all = rows(
        pg,
        &format!("select id, payload ? 'cursor_at', payload ->> 'parked', payload ->> 'more' from rowlock.claim_batch('{{default}}', '{{10}}', 10, 0, 99, {arguments})"),
    )
    .await;
    let (end, jobs): (Vec<&String>, Vec<&String>) =
        all.iter().partition(|row| row.starts_with("null|"));
    assert_eq!(
        end.len(),
        1,
        "each queue ends with one row that is no job: {all:?}"
    );
    let mut jobs: Vec<i64> = jobs
        .iter()
        .map(|row| {
            row.split('|')
                .next()
                .and_then(|id| id.parse().ok())
                .expect("an id")
        })
        .collect();
    jobs.sort_unstable();
    (jobs, end[0]["null|".len()..].to_owned())
}
