//! Reading what the management functions answer.

use std::str::FromStr;

use jiff::Timestamp;
use serde_json::value::RawValue;
use tokio_postgres::Row;

use crate::db::{Micros, RawJson};
use crate::error::{Error, Invalid, Result};

/// A time that may be missing. Times that only Postgres knows, such as infinity, are missing too.
pub(super) fn time(row: &Row, column: &str) -> Option<Timestamp> {
    row.get::<_, Option<Micros>>(column)
        .and_then(Micros::to_timestamp)
}

/// A time that is never missing. What only Postgres knows becomes the nearest that is known here: one strange row must not
/// make a whole list unreadable.
pub(super) fn moment(row: &Row, column: &str) -> Timestamp {
    let micros: Micros = row.get(column);
    micros.to_timestamp().unwrap_or(if micros.0 < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

/// A count: never negative.
pub(super) fn count(row: &Row, column: &str) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}

/// JSON of other people, unparsed: it may hold numbers that no Rust type takes.
pub(super) fn raw(row: &Row, column: &str) -> Result<Option<Box<RawValue>>> {
    row.get::<_, Option<RawJson<'_>>>(column)
        .map(|json| {
            RawValue::from_string(json.0.to_owned())
                .map_err(|e| Error::json(format!("read {column}"), e))
        })
        .transpose()
}

/// JSON of our own making.
pub(super) fn json<T: serde::de::DeserializeOwned>(row: &Row, column: &str) -> Result<Option<T>> {
    row.get::<_, Option<RawJson<'_>>>(column)
        .map(|json| {
            serde_json::from_str(json.0).map_err(|e| Error::json(format!("read {column}"), e))
        })
        .transpose()
}

/// A word of the contract.
pub(super) fn word<T: FromStr<Err = Invalid>>(row: &Row, column: &str) -> Result<T> {
    Ok(row.get::<_, &str>(column).parse()?)
}
