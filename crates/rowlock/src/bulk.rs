//! Bulk: jobs straight into the table by binary COPY, in one transaction.
//!
//! COPY passes by the functions and their checks, so everything is checked here; unique keys need the functions' care and take
//! that way, in the same transaction.

use std::collections::HashMap;

use futures_util::pin_mut;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};

use crate::client::Client;
use crate::db::{Connection, Micros, RawJson};
use crate::error::{Error, Invalid, Result};
use crate::job::{Due, Expiry, NewJob, whole_ms};
use crate::validate;

const DOING: &str = "load jobs by COPY";

/// Jobs in memory at once.
const CHUNK_JOBS: usize = 10_000;

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
    let failed = |e| Error::database(DOING, schema.as_str(), e);
    let connection = client.connection().await?;
    connection.begin().await.map_err(failed)?;
    let loaded = load_chunks(client, &connection, jobs).await;
    connection.end(schema, DOING, loaded).await
}

async fn load_chunks(
    client: &Client,
    connection: &Connection,
    mut jobs: impl Iterator<Item = NewJob>,
) -> Result<u64> {
    let mut count = 0;
    // What each queue takes at most.
    let mut limits: HashMap<String, usize> = HashMap::new();
    loop {
        let chunk: Vec<NewJob> = jobs.by_ref().take(CHUNK_JOBS).collect();
        if chunk.is_empty() {
            break;
        }
        for job in &chunk {
            job.check()?;
            let limit = match limits.get(&*job.queue) {
                Some(limit) => *limit,
                None => {
                    let (limit, _) = queue_limit(client, connection, &job.queue).await?;
                    limits.insert(job.queue.to_string(), limit);
                    limit
                }
            };
            validate::json_object("payload", job.payload.get(), limit)?;
        }
        let (unique, plain): (Vec<_>, Vec<_>) =
            chunk.into_iter().partition(|job| job.unique_key.is_some());
        count += unique.len() as u64 + plain.len() as u64;
        crate::enqueue::send_all(connection, client.schema(), &unique).await?;
        copy(client, connection, &plain).await?;
    }
    for queue in limits.keys() {
        call(client, connection, "select rowlock.announce($1)", queue).await?;
    }
    Ok(count)
}

/// What the queue takes at most, and the database's time.
async fn queue_limit(
    client: &Client,
    connection: &Connection,
    queue: &str,
) -> Result<(usize, Micros)> {
    let row = call(
        client,
        connection,
        "select (rowlock.ensure_queue($1)).max_payload_bytes, rowlock.clock()",
        queue,
    )
    .await?;
    Ok((
        usize::try_from(row.get::<_, i32>(0)).unwrap_or(0),
        row.get(1),
    ))
}

async fn call(
    client: &Client,
    connection: &Connection,
    sql: &str,
    queue: &str,
) -> Result<tokio_postgres::Row> {
    let schema = client.schema();
    connection
        .row(&schema.sql(sql), &[(&queue, Type::TEXT)])
        .await
        .map_err(|e| Error::database(DOING, schema.as_str(), e))
}

async fn copy(client: &Client, connection: &Connection, jobs: &[NewJob]) -> Result<()> {
    let Some(first) = jobs.first() else {
        return Ok(());
    };
    let schema = client.schema();
    let failed = |e| Error::database(DOING, schema.as_str(), e);
    let whole = jobs.iter().any(|job| job.options_json().is_some());
    let (_, now) = queue_limit(client, connection, &first.queue).await?;
    for job in jobs {
        if let Some(Expiry::At(at)) = job.expiry {
            if Micros::from_timestamp(at) <= now {
                let rule = "has passed: such a job would never run";
                return Err(Invalid::new("expires_at", at, rule).into());
            }
        }
    }

    let sink = connection
        .client
        .copy_in(&*schema.sql(if whole { WHOLE } else { PLAIN }))
        .await
        .map_err(failed)?;
    let types: Vec<Type> = PLAIN_TYPES
        .into_iter()
        .chain(if whole {
            MORE_TYPES.to_vec()
        } else {
            Vec::new()
        })
        .collect();
    let writer = BinaryCopyInWriter::new(sink, &types);
    pin_mut!(writer);
    for job in jobs {
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
        if !whole {
            writer.as_mut().write(&plain).await.map_err(failed)?;
            continue;
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
        writer.as_mut().write(&row).await.map_err(failed)?;
    }
    writer.finish().await.map_err(failed)?;
    Ok(())
}
