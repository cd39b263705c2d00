//! Enqueue: the builders that are awaited, and the statements they become. (Single ones go by the batcher.)

use std::collections::BTreeMap;
use std::future::IntoFuture;

use futures_util::future::BoxFuture;
use tokio_postgres::types::Type;

use crate::client::Client;
use crate::db::{Connection, Micros, Param, RawJson};
use crate::error::{Error, Result};
use crate::job::{Due, Enqueued, JobId, NewJob, job_option_methods, whole_ms};
use crate::schema::Schema;
use crate::tx::Transaction;
use crate::validate;

pub(crate) const DOING: &str = "enqueue";

/// Most jobs in one statement.
pub(crate) const BATCH_JOBS_MAX: usize = 500;

/// One plain job…
const SQL_ONE: &str = "select rowlock.enqueue_plain($1, $2, $3, $4)";
/// …and any others of one queue.
const SQL: &str = "select id, duplicate from rowlock.enqueue_batch($1, $2, $3, $4, $5, $6, $7)";
/// …and where each has to be measured.
const SQL_LIST: &str = "select id, duplicate from rowlock.enqueue_many($1::text::jsonb) order by n";
/// In the caller's transaction, where nothing may stay prepared: one plain job…
const SQL_ONE_IN_TX: &str =
    "select rowlock.enqueue_plain($1, $2, $3::jsonb, $4::integer)::text, 'false'";
/// …and anything else.
const SQL_IN_TX: &str =
    "select id::text, duplicate::text from rowlock.enqueue_many($1::text::jsonb) order by n";

/// An enqueue that happens when it is awaited.
#[must_use = "nothing is enqueued until this is awaited"]
pub struct Enqueue<'a> {
    client: &'a Client,
    job: Result<NewJob>,
}

impl<'a> Enqueue<'a> {
    pub(crate) fn new(client: &'a Client, job: Result<NewJob>) -> Self {
        Self {
            client,
            job: job.map(carry_trace),
        }
    }

    /// Enqueues inside the caller's own transaction: the job exists exactly if that commits.
    ///
    /// ```no_run
    /// # #[derive(serde::Serialize, serde::Deserialize, rowlock::Job)]
    /// # #[job(kind = "receipt")]
    /// # struct Receipt { order: i64 }
    /// # async fn f(client: &rowlock::Client, pg: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pg.transaction().await?;
    /// tx.execute("insert into orders (id) values (7)", &[]).await?;
    /// client.enqueue(Receipt { order: 7 }).in_tx(&mut tx).await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_tx<T: Transaction>(self, tx: &'a mut T) -> EnqueueInTx<'a, T, Enqueued> {
        EnqueueInTx {
            schema: self.client.schema().clone(),
            jobs: self.job.map(|job| vec![job]),
            tx,
            answer: |mut all| all.swap_remove(0),
        }
    }

    /// `None` if it could not even be serialised; that error comes when this is awaited.
    fn job_mut(&mut self) -> Option<&mut NewJob> {
        self.job.as_mut().ok()
    }

    job_option_methods!();
}

impl<'a> IntoFuture for Enqueue<'a> {
    type Output = Result<Enqueued>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let job = self.job?;
            job.check()?;
            self.client.batcher().enqueue(job).await
        })
    }
}

/// Many enqueues in one transaction, which happen when this is awaited.
#[must_use = "nothing is enqueued until this is awaited"]
pub struct EnqueueMany<'a> {
    client: &'a Client,
    jobs: Result<Vec<NewJob>>,
}

impl<'a> EnqueueMany<'a> {
    pub(crate) fn new(client: &'a Client, jobs: Result<Vec<NewJob>>) -> Self {
        Self {
            client,
            jobs: jobs.map(|jobs| jobs.into_iter().map(carry_trace).collect()),
        }
    }

    /// Puts them all in this queue.
    pub fn queue(mut self, queue: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        let queue = queue.into();
        if let Ok(jobs) = &mut self.jobs {
            for job in jobs {
                job.queue = queue.clone();
            }
        }
        self
    }

    /// Enqueues inside the caller's own transaction: the jobs exist exactly if that commits.
    pub fn in_tx<T: Transaction>(self, tx: &'a mut T) -> EnqueueInTx<'a, T, Vec<Enqueued>> {
        EnqueueInTx {
            schema: self.client.schema().clone(),
            jobs: self.jobs,
            tx,
            answer: |all| all,
        }
    }
}

impl<'a> IntoFuture for EnqueueMany<'a> {
    type Output = Result<Vec<Enqueued>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let jobs = self.jobs?;
            jobs.iter().try_for_each(NewJob::check)?;
            if jobs.is_empty() {
                return Ok(Vec::new());
            }
            let schema = self.client.schema();
            let connection = self.client.connection().await?;
            // One queue is one statement, which is a transaction by itself.
            if jobs.iter().all(|j| j.queue == jobs[0].queue) && jobs.len() <= 10_000 {
                return send(&connection, schema, &jobs.iter().collect::<Vec<_>>()).await;
            }
            connection
                .begin()
                .await
                .map_err(|e| Error::database(DOING, schema.as_str(), e))?;
            let answers = send_all(&connection, schema, &jobs).await;
            connection.end(schema, DOING, answers).await
        })
    }
}

/// An enqueue inside the caller's transaction, which happens when this is awaited.
#[must_use = "nothing is enqueued until this is awaited"]
pub struct EnqueueInTx<'a, T, A> {
    schema: Schema,
    jobs: Result<Vec<NewJob>>,
    tx: &'a mut T,
    answer: fn(Vec<Enqueued>) -> A,
}

impl<'a, T: Transaction, A: Send + 'a> IntoFuture for EnqueueInTx<'a, T, A> {
    type Output = Result<A>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let jobs = self.jobs?;
            jobs.iter().try_for_each(NewJob::check)?;
            let mut answers = Vec::with_capacity(jobs.len());
            for chunk in jobs.chunks(BATCH_JOBS_MAX) {
                let rows = match chunk {
                    [job] if job.is_plain() => {
                        let (sql, priority) =
                            (self.schema.sql(SQL_ONE_IN_TX), job.priority.to_string());
                        let values: [&str; 4] =
                            [&job.queue, &job.kind, job.payload.get(), &priority];
                        self.tx.query_text(&sql, &values.map(Some)).await
                    }
                    chunk => {
                        let list = json_list(chunk.iter());
                        let sql = self.schema.sql(SQL_IN_TX);
                        self.tx.query_text(&sql, &[Some(&list)]).await
                    }
                };
                let rows =
                    rows.map_err(|e| Error::driver("enqueue in the caller's transaction", e))?;
                for row in rows {
                    answers.push(parse_answer(&row)?);
                }
            }
            if answers.len() != jobs.len() {
                return Err(Error::Setup(format!(
                    "{} jobs were enqueued, but {} were answered for",
                    jobs.len(),
                    answers.len()
                )));
            }
            Ok((self.answer)(answers))
        })
    }
}

fn parse_answer(row: &[Option<String>]) -> Result<Enqueued> {
    let unreadable = || {
        Error::Setup(format!(
            "an enqueue was answered with {row:?}, which is no id"
        ))
    };
    let [Some(id), Some(duplicate)] = row else {
        return Err(unreadable());
    };
    Ok(Enqueued {
        id: JobId(id.parse().map_err(|_| unreadable())?),
        duplicate: duplicate.starts_with('t'),
    })
}

/// A job enqueued by a handler carries on the trace of the job that is being handled.
fn carry_trace(mut job: NewJob) -> NewJob {
    if job.trace.is_none() {
        job.trace = crate::worker::current_trace();
    }
    job
}

/// Sends jobs of one queue in one statement.
pub(crate) async fn send(
    connection: &Connection,
    schema: &Schema,
    jobs: &[&NewJob],
) -> Result<Vec<Enqueued>> {
    let queue: &str = &jobs[0].queue;
    if let [job] = jobs {
        if job.is_plain() {
            return send_plain(connection, schema, job).await;
        }
    }
    // The arrays of a batch go by what is stored.
    if jobs.iter().any(|j| validate::is_inflated(j.payload.get())) {
        return send_as_list(connection, schema, jobs).await;
    }
    let kinds: Vec<&str> = jobs.iter().map(|j| &*j.kind).collect();
    let payloads: Vec<RawJson<'_>> = jobs.iter().map(|j| RawJson(j.payload.get())).collect();
    let priorities: Option<Vec<i32>> = jobs
        .iter()
        .any(|j| j.priority != 0)
        .then(|| jobs.iter().map(|j| j.priority).collect());
    let run_ats: Option<Vec<Option<Micros>>> =
        jobs.iter().any(|j| matches!(j.due, Due::At(_))).then(|| {
            let at = |j: &&NewJob| {
                if let Due::At(at) = j.due {
                    Some(Micros::from_timestamp(at))
                } else {
                    None
                }
            };
            jobs.iter().map(at).collect()
        });
    let delays: Option<Vec<Option<i64>>> = jobs
        .iter()
        .any(|j| matches!(j.due, Due::After(_)))
        .then(|| {
            let after = |j: &&NewJob| {
                if let Due::After(d) = j.due {
                    Some(whole_ms(d))
                } else {
                    None
                }
            };
            jobs.iter().map(after).collect()
        });
    let options: Vec<Option<String>> = jobs.iter().map(|j| j.options_json()).collect();
    let options: Option<Vec<Option<RawJson<'_>>>> = options
        .iter()
        .any(Option::is_some)
        .then(|| options.iter().map(|o| o.as_deref().map(RawJson)).collect());

    let rows = connection
        .rows(
            &schema.sql(SQL),
            &[
                (&queue, Type::TEXT),
                (&kinds, Type::TEXT_ARRAY),
                (&payloads, Type::JSONB_ARRAY),
                (&priorities, Type::INT4_ARRAY),
                (&run_ats, Type::TIMESTAMPTZ_ARRAY),
                (&delays, Type::INT8_ARRAY),
                (&options, Type::JSONB_ARRAY),
            ],
        )
        .await
        .map_err(|e| Error::database(DOING, schema.as_str(), e))?;
    Ok(rows.iter().map(enqueued).collect())
}

async fn send_as_list(
    connection: &Connection,
    schema: &Schema,
    jobs: &[&NewJob],
) -> Result<Vec<Enqueued>> {
    let rows = connection
        .rows(
            &schema.sql(SQL_LIST),
            &[(&json_list(jobs.iter().copied()), Type::TEXT)],
        )
        .await
        .map_err(|e| Error::database(DOING, schema.as_str(), e))?;
    Ok(rows.iter().map(enqueued).collect())
}

fn json_list<'a>(jobs: impl Iterator<Item = &'a NewJob>) -> String {
    let jobs: Vec<String> = jobs.map(NewJob::whole_json).collect();
    format!("[{}]", jobs.join(","))
}

/// Of `id, duplicate`.
fn enqueued(row: &tokio_postgres::Row) -> Enqueued {
    Enqueued {
        id: JobId(row.get(0)),
        duplicate: row.get(1),
    }
}

async fn send_plain(
    connection: &Connection,
    schema: &Schema,
    job: &NewJob,
) -> Result<Vec<Enqueued>> {
    let params: [Param<'_>; 4] = [
        (&job.queue, Type::TEXT),
        (&job.kind, Type::TEXT),
        (&RawJson(job.payload.get()), Type::JSONB),
        (&job.priority, Type::INT4),
    ];
    let row = connection
        .row(&schema.sql(SQL_ONE), &params)
        .await
        .map_err(|e| Error::database(DOING, schema.as_str(), e))?;
    Ok(vec![Enqueued {
        id: JobId(row.get(0)),
        duplicate: false,
    }])
}

/// Sends jobs of any queues, in the open transaction of the connection, and answers in their order.
pub(crate) async fn send_all(
    connection: &Connection,
    schema: &Schema,
    jobs: &[NewJob],
) -> Result<Vec<Enqueued>> {
    let mut answers = vec![None; jobs.len()];
    for places in by_queue(jobs).into_values() {
        for chunk in places.chunks(BATCH_JOBS_MAX) {
            let batch: Vec<&NewJob> = chunk.iter().map(|n| &jobs[*n]).collect();
            for (n, answer) in chunk.iter().zip(send(connection, schema, &batch).await?) {
                answers[*n] = Some(answer);
            }
        }
    }
    Ok(answers.into_iter().flatten().collect())
}

/// The places of the jobs of each queue. Queues and unique keys come in an order that is the same for everybody, so that two
/// callers with the same keys wait for each other instead of deadlocking.
fn by_queue(jobs: &[NewJob]) -> BTreeMap<&str, Vec<usize>> {
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (n, job) in jobs.iter().enumerate() {
        places.entry(&job.queue).or_default().push(n);
    }
    for places in places.values_mut() {
        places.sort_by_key(|n| jobs[*n].unique_key.as_deref());
    }
    places
}
