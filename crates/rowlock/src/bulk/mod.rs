//! Bulk: jobs straight into the table by binary COPY, in one transaction.
//!
//! COPY passes by the functions and their checks, so everything is checked here; unique keys need the functions' care and take
//! that way, in the same transaction.

mod turns;

use std::collections::HashMap;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::client::Client;
use crate::db::{Connection, CopyIn, Micros, RawJson};
use crate::error::{Error, Invalid, Result};
use crate::job::{Due, Expiry, NewJob, whole_ms};
use crate::validate;

use turns::Turn;
pub(crate) use turns::Turns;

const DOING: &str = "load jobs by COPY";

/// Jobs in one COPY. What the server has against it is heard at its end, and the time is asked for anew.
const COPY_JOBS: usize = 100_000;
/// A COPY of fewer jobs takes no turn: it is over in a moment, unless they are very large.
const TURN_JOBS: usize = 1000;
/// Jobs with a unique key that are kept in memory until they are sent together.
const UNIQUE_AT_ONCE: usize = 10_000;

const PLAIN: &str = "copy rowlock.job (queue, kind, payload, priority, created_at, run_at) from stdin (format binary)";
const WHOLE: &str = "copy rowlock.job (queue, kind, payload, priority, created_at, run_at, max_attempts, timeout_ms, expires_at, backoff, tags, \
                     metadata, trace) from stdin (format binary)";

const PLAIN_TYPES: [Type; 6] = [
    Type::TEXT,
    Type::TEXT,
    Type::JSONB,
    Type::INT2,
    Type::TIMESTAMPTZ,
    Type::TIMESTAMPTZ,
];
const MORE_TYPES: [Type; 7] = [
    Type::INT2,
    Type::INT8,
    Type::TIMESTAMPTZ,
    Type::JSONB,
    Type::TEXT_ARRAY,
    Type::JSONB,
    Type::TEXT,
];

/// Loads the jobs, all or none; returns how many.
pub(crate) async fn load(client: &Client, jobs: impl Iterator<Item = NewJob>) -> Result<u64> {
    let schema = client.schema();
    let connection = client.connection().await?;
    let failed = |e| Error::database(DOING, schema.as_str(), e);
    connection.begin().await.map_err(failed)?;
    // It takes as long as the jobs take to come.
    let unlimited = connection
        .client
        .batch_execute("set local statement_timeout = 0");
    let loaded = match unlimited.await {
        Ok(()) => load_all(client, &connection, jobs).await,
        Err(e) => Err(failed(e)),
    };
    connection.end(schema, DOING, loaded).await
}

async fn load_all(
    client: &Client,
    connection: &Connection,
    jobs: impl Iterator<Item = NewJob>,
) -> Result<u64> {
    let mut load = Load {
        client,
        connection,
        copy: None,
        copied: 0,
        turn: None,
        takes_turns: false,
        waited_in_vain: false,
        whole: false,
        limits: HashMap::new(),
        now: Micros::NEG_INFINITY,
        unique: Vec::new(),
    };
    let mut count = 0;
    for job in jobs {
        load.add(job).await?;
        count += 1;
    }
    load.finish().await?;
    Ok(count)
}

/// A load under way. While COPY is, nothing else can be said on its connection: it is ended first.
struct Load<'a> {
    client: &'a Client,
    connection: &'a Connection,
    copy: Option<CopyIn>,
    /// Jobs in it.
    copied: usize,
    /// Held from the time that it has many jobs to the time that the server has taken them all in.
    turn: Option<Turn>,
    /// Whether the server's cores are those of this machine.
    takes_turns: bool,
    /// Whether no turn came in time. Those before it may stay that slow: it waits no second time.
    waited_in_vain: bool,
    /// Whether COPY takes the columns that most jobs have no use for.
    whole: bool,
    /// What each queue takes at most.
    limits: HashMap<Box<str>, usize>,
    /// The database's time, not long ago.
    now: Micros,
    unique: Vec<NewJob>,
}

impl Load<'_> {
    async fn add(&mut self, job: NewJob) -> Result<()> {
        job.check()?;
        let limit = match self.limits.get(&*job.queue) {
            Some(limit) => *limit,
            None => self.look_up(&job.queue).await?,
        };
        validate::size("payload", job.payload.get(), limit)?;
        if job.unique_key.is_some() {
            self.unique.push(job);
            if self.unique.len() >= UNIQUE_AT_ONCE {
                self.send_unique().await?;
            }
            return Ok(());
        }
        if let Some(Expiry::At(at)) = job.expiry {
            if Micros::from_timestamp(at) <= self.now {
                let rule = "has passed: such a job would never run";
                return Err(Invalid::new("expires_at", at, rule).into());
            }
        }
        if job.has_options() && !self.whole {
            self.end_copy().await?;
            self.whole = true;
        }
        self.copy(&job).await?;
        self.copied += 1;
        if self.copied == TURN_JOBS && self.takes_turns && !self.waited_in_vain {
            self.turn = self.client.load_turns().take().await;
            self.waited_in_vain = self.turn.is_none();
        }
        if self.copied >= COPY_JOBS {
            self.look_up(&job.queue).await?;
        }
        Ok(())
    }

    /// Asks for the limit of a queue, the time, and whether the server sees its own address at the other end (or both have none: a socket).
    /// Of a pooler in between that says nothing.
    async fn look_up(&mut self, queue: &str) -> Result<usize> {
        self.end_copy().await?;
        let sql = "select (rowlock.ensure_queue($1)).max_payload_bytes, rowlock.stamp(), \
                   inet_client_addr() is not distinct from inet_server_addr()";
        let row = self.call(sql, queue).await?;
        let limit = usize::try_from(row.get::<_, i32>(0)).unwrap_or(0);
        self.now = row.get(1);
        self.takes_turns = self.connection.direct && row.get(2);
        self.limits.insert(queue.into(), limit);
        Ok(limit)
    }

    async fn copy(&mut self, job: &NewJob) -> Result<()> {
        let (now, whole) = (self.now, self.whole);
        let after = |d| Micros(now.0.saturating_add(whole_ms(d).saturating_mul(1000)));
        let run_at = match job.due {
            Due::Now => now,
            Due::At(at) => Micros::from_timestamp(at),
            Due::After(d) => after(d),
        };
        let (queue, kind, payload, priority) = (
            &*job.queue,
            &*job.kind,
            RawJson(job.payload.get()),
            job.priority as i16,
        );
        let plain: [&(dyn ToSql + Sync); 6] = [&queue, &kind, &payload, &priority, &now, &run_at];
        let schema = self.client.schema();
        let failed = |e| Error::database(DOING, schema.as_str(), e);
        let writer = self.writer().await?;
        if !whole {
            return writer.write(&plain).await.map_err(failed);
        }
        let expires_at = job.expiry.map(|e| match e {
            Expiry::At(at) => Micros::from_timestamp(at),
            Expiry::After(d) => after(d),
        });
        let backoff = job
            .backoff
            .as_ref()
            .and_then(|b| serde_json::to_string(b).ok());
        let metadata = job
            .metadata
            .as_ref()
            .and_then(|m| serde_json::to_string(m).ok());
        let more: [&(dyn ToSql + Sync); 7] = [
            &job.max_attempts.map(|n| n as i16),
            &job.timeout.map(whole_ms),
            &expires_at,
            &backoff.as_deref().map(RawJson),
            &(!job.tags.is_empty()).then_some(&job.tags),
            &metadata.as_deref().map(RawJson),
            &job.trace,
        ];
        let row: Vec<&(dyn ToSql + Sync)> = plain.into_iter().chain(more).collect();
        writer.write(&row).await.map_err(failed)
    }

    /// The COPY under way, or a new one.
    async fn writer(&mut self) -> Result<&mut CopyIn> {
        let copy = match self.copy.take() {
            Some(copy) => copy,
            None => self.begin_copy().await?,
        };
        Ok(self.copy.insert(copy))
    }

    async fn begin_copy(&self) -> Result<CopyIn> {
        let schema = self.client.schema();
        let (sql, types) = if self.whole {
            (WHOLE, [&PLAIN_TYPES[..], &MORE_TYPES].concat())
        } else {
            (PLAIN, PLAIN_TYPES.to_vec())
        };
        let sql = schema.sql(sql);
        let sink = self.connection.client.copy_in(&*sql).await;
        let sink = sink.map_err(|e| Error::database(DOING, schema.as_str(), e))?;
        Ok(CopyIn::new(sink, types))
    }

    async fn end_copy(&mut self) -> Result<()> {
        self.copied = 0;
        let turn = self.turn.take();
        if let Some(copy) = self.copy.take() {
            let schema = self.client.schema();
            copy.finish()
                .await
                .map_err(|e| Error::database(DOING, schema.as_str(), e))?;
        }
        drop(turn);
        Ok(())
    }

    async fn send_unique(&mut self) -> Result<()> {
        self.end_copy().await?;
        let jobs = std::mem::take(&mut self.unique);
        crate::enqueue::send_all(self.connection, self.client.schema(), &jobs).await?;
        Ok(())
    }

    /// Sends what is left, and wakes whoever waits for it.
    async fn finish(mut self) -> Result<()> {
        self.send_unique().await?;
        for queue in self.limits.keys() {
            self.call("select rowlock.announce($1)", queue).await?;
        }
        Ok(())
    }

    async fn call(&self, sql: &str, queue: &str) -> Result<Row> {
        let schema = self.client.schema();
        self.connection
            .row(&schema.sql(sql), &[(&queue, Type::TEXT)])
            .await
            .map_err(|e| Error::database(DOING, schema.as_str(), e))
    }
}
