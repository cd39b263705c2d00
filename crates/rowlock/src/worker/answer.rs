//! What a claim or a full scan answers: sorted out by queue, but not decoded. Decoding takes a while, and the next statement need not wait
//! for it.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Instant;

use bytes::Buf;
use serde::Deserialize;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type, accepts};

use super::core::Core;
use super::lane::Lane;
use super::settled::Seen;
use crate::db::{Micros, RawJson};
use crate::error::{Error, Result};

/// The columns, by their place.
pub(super) mod column {
    pub(in super::super) const ID: usize = 0;
    pub(in super::super) const TID: usize = 1;
    pub(in super::super) const KIND: usize = 2;
    pub(in super::super) const PAYLOAD: usize = 3;
    pub(in super::super) const RUN_AT: usize = 4;
    pub(in super::super) const REST: usize = 5;
}

/// The rows of one statement.
pub(super) struct Answer {
    pub(super) token: i64,
    /// Just before the statement was sent.
    pub(super) began: Instant,
    pub(super) parts: Vec<Part>,
}

/// What there was of one queue.
pub(super) struct Part {
    pub(super) lane: Arc<Lane>,
    pub(super) jobs: Vec<Row>,
    /// The database's time.
    pub(super) clock: Micros,
    pub(super) end: End,
}

/// What the last row of a queue says of all of it.
#[derive(Debug, Deserialize)]
pub(super) struct End {
    queue: Box<str>,
    /// Without it nobody looked.
    clock: Option<Micros>,
    #[serde(flatten)]
    pub(super) lease: Option<Lease>,
    #[serde(default)]
    pub(super) parked: u32,
    /// Of a claim: whether it stopped for its own bound. Of a full scan: whether it had no room for more.
    #[serde(default)]
    pub(super) more: bool,
    /// Of a claim: whether it came as far as the one before it, and left nothing on the way.
    #[serde(default)]
    pub(super) caught_up: bool,
    /// Of a claim: whether it passed over jobs that somebody had locked.
    #[serde(default)]
    locked: bool,
    /// Of a claim: whether its jobs have one lease in common.
    #[serde(default)]
    pub(super) bundle: bool,
    /// Whether they have not only because there are too few.
    #[serde(default)]
    few: bool,
    /// Of a claim that asked for a bundle: what it saw and did not take, …
    #[serde(default)]
    left: usize,
    /// …and the transactions beside it.
    #[serde(flatten)]
    seen: Option<Seen>,
    /// Of a claim: the number of the worker whose the one before it was, if that is another.
    other: Option<u8>,
    /// Where the one before it stopped.
    last_at: Option<Micros>,
    last_id: Option<i64>,
    /// How far it looked, where the jobs do not show it.
    cursor_at: Option<Vec<Micros>>,
    cursor_id: Option<Vec<i64>>,
}

/// What holds for all jobs of a claim.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Lease {
    #[serde(rename = "lease_until")]
    pub(super) until: Micros,
    /// Of the jobs that say nothing else.
    pub(super) max_attempts: i16,
    /// By which the database knows what the claim has written.
    pub(super) mark: Option<i64>,
}

impl End {
    pub(super) fn last(&self) -> Option<(Micros, i64)> {
        self.last_at.zip(self.last_id)
    }

    pub(super) fn passed(&self) -> Option<(&[Micros], &[i64])> {
        self.cursor_at.as_deref().zip(self.cursor_id.as_deref())
    }
}

impl Answer {
    pub(super) fn new(core: &Core, rows: Vec<Row>, token: i64, began: Instant) -> Result<Self> {
        let (mut parts, mut jobs) = (Vec::new(), Vec::with_capacity(rows.len()));
        for row in rows {
            if row.get::<_, Option<i64>>(column::ID).is_some() {
                jobs.push(row);
                continue;
            }
            let jobs = std::mem::take(&mut jobs);
            let end: End = serde_json::from_str(row.get::<_, RawJson<'_>>(column::PAYLOAD).0)
                .map_err(|e| Error::json("read how a claim went", e))?;
            if !jobs.is_empty() && end.lease.is_none() {
                let e = serde::de::Error::missing_field("lease_until, max_attempts");
                return Err(Error::json("read how a claim went", e));
            }
            if let (Some(number), Some(clock)) = (core.lane_of(&end.queue), end.clock) {
                let lane = core.lane(number);
                parts.push(Part {
                    lane,
                    jobs,
                    clock,
                    end,
                });
            }
        }
        Ok(Self {
            token,
            began,
            parts,
        })
    }

    pub(super) fn jobs(&self) -> usize {
        self.parts.iter().map(|p| p.jobs.len()).sum()
    }

    /// How many of them have lost a worker before.
    pub(super) fn suspects(&self) -> usize {
        let crashed = |job: &&Row| Rest::of(job).is_some_and(|rest| rest.crashes > 0);
        let jobs = self.parts.iter().flat_map(|p| &p.jobs);
        jobs.filter(crashed).count()
    }

    /// The queues that brought at least so many.
    pub(super) fn queues_with(&self, jobs: usize) -> Vec<String> {
        let many = self.parts.iter().filter(|p| p.jobs.len() >= jobs);
        many.map(|p| p.lane.queue.to_string()).collect()
    }

    pub(super) fn parked(&self) -> u32 {
        self.parts.iter().map(|p| p.end.parked).sum()
    }

    pub(super) fn more(&self) -> bool {
        self.parts.iter().any(|p| p.end.more)
    }

    /// The number of another worker who claims jobs of one of these queues too.
    pub(super) fn other(&self) -> Option<u8> {
        self.parts.iter().find_map(|p| p.end.other)
    }

    /// Whether there is no bundle only because there are too few jobs for one.
    pub(super) fn few(&self) -> bool {
        self.parts.iter().any(|p| p.end.few)
    }

    /// How many jobs it saw and did not take.
    pub(super) fn left(&self) -> usize {
        self.parts.iter().map(|p| p.end.left).sum()
    }

    /// Whether it passed over jobs that somebody had locked, or changed meanwhile, and may give free again.
    pub(super) fn met_locks(&self) -> bool {
        self.parts.iter().any(|p| p.end.locked)
    }

    /// Whether some of its jobs are due since before they came in.
    pub(super) fn any_backdated(&self) -> bool {
        let backdated =
            |job: &Row| Rest::of(job).is_some_and(|rest| rest.created_at > job.get(column::RUN_AT));
        self.parts.iter().flat_map(|p| &p.jobs).any(backdated)
    }

    /// The database's time when it looked, and, where a bundle was asked for, the transactions that there were.
    pub(super) fn seen(&self) -> Option<(Micros, Option<Seen>)> {
        let part = self.parts.first()?;
        Some((part.clock, part.end.seen))
    }

    /// Whether it was somebody else's turn to look.
    pub(super) fn nobody_looked(&self) -> bool {
        self.parts.is_empty()
    }
}

/// What is different about a job that is not like most: those have none.
#[derive(Debug, PartialEq)]
pub(super) struct Rest<'a> {
    pub(super) priority: i16,
    pub(super) attempt: i32,
    pub(super) failures: i16,
    pub(super) crashes: i16,
    pub(super) max_attempts: i16,
    pub(super) created_at: Micros,
    pub(super) timeout_ms: Option<i64>,
    pub(super) tags: Option<Vec<&'a str>>,
    pub(super) metadata: Option<&'a str>,
    pub(super) trace: Option<&'a str>,
}

impl<'a> Rest<'a> {
    pub(super) fn of(job: &'a Row) -> Option<Self> {
        job.get(column::REST)
    }
}

impl<'a> FromSql<'a> for Rest<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        let mut fields = Fields::new(raw)?;
        Ok(Self {
            priority: fields.get(&Type::INT2)?,
            attempt: fields.get(&Type::INT4)?,
            failures: fields.get(&Type::INT2)?,
            crashes: fields.get(&Type::INT2)?,
            max_attempts: fields.get(&Type::INT2)?,
            created_at: fields.get(&Type::TIMESTAMPTZ)?,
            timeout_ms: fields.get(&Type::INT8)?,
            tags: fields.get(&Type::TEXT_ARRAY)?,
            metadata: fields
                .get::<Option<RawJson<'_>>>(&Type::JSONB)?
                .map(|json| json.0),
            trace: fields.get(&Type::TEXT)?,
        })
    }
    accepts!(RECORD);
}

/// The fields of a `record`: their number, then the type, length and value of each.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn new(mut raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        raw.try_get_i32()?;
        Ok(Self(raw))
    }

    fn get<T: FromSql<'a>>(&mut self, ty: &Type) -> Result<T, Box<dyn StdError + Sync + Send>> {
        let found = self.0.try_get_u32()?;
        if found != ty.oid() {
            return Err(format!("a field has type {found}, expected {ty}").into());
        }
        // A length of -1 says null.
        let Ok(length) = usize::try_from(self.0.try_get_i32()?) else {
            return T::from_sql_null(ty);
        };
        let (value, after) = self
            .0
            .split_at_checked(length)
            .ok_or("a field is cut short")?;
        self.0 = after;
        T::from_sql(ty, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BufMut;
    use tokio_postgres::types::ToSql;

    fn record(fields: &[(&dyn ToSql, Type)]) -> Vec<u8> {
        let mut out = bytes::BytesMut::new();
        out.put_i32(fields.len() as i32);
        for (value, ty) in fields {
            let mut raw = bytes::BytesMut::new();
            let is_null = value.to_sql_checked(ty, &mut raw).unwrap();
            out.put_u32(ty.oid());
            match is_null {
                tokio_postgres::types::IsNull::Yes => out.put_i32(-1),
                tokio_postgres::types::IsNull::No => {
                    out.put_i32(raw.len() as i32);
                    out.put_slice(&raw);
                }
            }
        }
        out.to_vec()
    }

    #[test]
    fn a_rest_is_read_and_what_is_none_is_refused() {
        let tags = vec!["a", "b"];
        let none: Option<i64> = None;
        let fields: [(&dyn ToSql, Type); 10] = [
            (&-4i16, Type::INT2),
            (&7i32, Type::INT4),
            (&2i16, Type::INT2),
            (&1i16, Type::INT2),
            (&25i16, Type::INT2),
            (&Micros(99), Type::TIMESTAMPTZ),
            (&none, Type::INT8),
            (&tags, Type::TEXT_ARRAY),
            (&RawJson("{}"), Type::JSONB),
            (&"00-1", Type::TEXT),
        ];
        let raw = record(&fields);
        let rest = Rest {
            priority: -4,
            attempt: 7,
            failures: 2,
            crashes: 1,
            max_attempts: 25,
            created_at: Micros(99),
            timeout_ms: None,
            tags: Some(tags.clone()),
            metadata: Some("{}"),
            trace: Some("00-1"),
        };
        assert_eq!(Rest::from_sql(&Type::RECORD, &raw).unwrap(), rest);

        for length in 0..raw.len() {
            let cut = Rest::from_sql(&Type::RECORD, &raw[..length]);
            assert!(cut.is_err(), "{length} bytes were taken for a rest");
        }
        let mut other = fields;
        other[0].1 = Type::INT4;
        other[0].0 = &1i32;
        let e = Rest::from_sql(&Type::RECORD, &record(&other)).unwrap_err();
        assert_eq!(e.to_string(), "a field has type 23, expected int2");
    }

    #[test]
    fn an_end_is_read() {
        let end: End = serde_json::from_str(
            r#"{"queue": "a", "clock": "2000-01-01T00:00:01.5+00:00", "parked": 2, "more": true, "last_at": "2000-01-01T00:00:00+00:00", "last_id": 7,
                "lease_until": "2000-01-01T00:00:31.5+00:00", "max_attempts": 3, "mark": -5,
                "cursor_at": ["-infinity", "2000-01-01T01:00:00+01:00"], "cursor_id": [0, 5]}"#,
        )
        .unwrap();
        assert_eq!(end.clock, Some(Micros(1_500_000)));
        assert_eq!((end.parked, end.more), (2, true));
        assert_eq!(end.last(), Some((Micros(0), 7)));
        let lease = end.lease.unwrap();
        assert_eq!(
            (lease.until, lease.max_attempts, lease.mark),
            (Micros(31_500_000), 3, Some(-5))
        );
        assert_eq!(
            end.passed(),
            Some((&[Micros::NEG_INFINITY, Micros(0)][..], &[0, 5][..]))
        );
        let end: End = serde_json::from_str(r#"{"queue": "a"}"#).unwrap();
        assert!(end.clock.is_none() && end.lease.is_none() && !end.more);
        assert!(end.passed().is_none() && end.last().is_none());
    }
}
