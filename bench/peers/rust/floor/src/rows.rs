//! Rows for COPY in binary form, written by hand: the thinnest client there can be.

use std::ops::Range;
use std::pin::pin;
use std::time::SystemTime;

use adapter::Result;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use tokio_postgres::Client;

const COPY: &str = "copy rowlock.job (queue, kind, payload, priority, created_at, run_at) from stdin (format binary)";
/// Every such COPY begins with these bytes, flags, and the length of nothing more.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Bytes that are sent at once.
const CHUNK: usize = 64 * 1024;
/// From 1970, where the clock of Unix begins, to 2000, where that of Postgres does.
const EPOCH_US: i64 = 946_684_800_000_000;

/// Copies jobs with these numbers in.
pub(crate) async fn copy(client: &Client, numbers: Range<u64>) -> Result<()> {
    let mut sink = pin!(client.copy_in::<_, Bytes>(COPY).await?);
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let now_us = i64::try_from(unix.as_micros())? - EPOCH_US;
    let mut buffer = BytesMut::with_capacity(2 * CHUNK);
    buffer.put_slice(HEADER);
    for n in numbers {
        row(&mut buffer, n, now_us);
        if buffer.len() >= CHUNK {
            sink.send(buffer.split().freeze()).await?;
            buffer.reserve(2 * CHUNK);
        }
    }
    buffer.put_i16(-1);
    sink.send(buffer.freeze()).await?;
    sink.finish().await?;
    Ok(())
}

fn row(out: &mut BytesMut, n: u64, now_us: i64) {
    out.put_i16(6);
    field(out, |out| out.put_slice(b"bench"));
    field(out, |out| out.put_slice(b"noop"));
    field(out, |out| {
        // The version of the form in which JSON travels.
        out.put_u8(1);
        out.put_slice(adapter::payload(n).as_bytes());
    });
    field(out, |out| out.put_i16(0));
    field(out, |out| out.put_i64(now_us));
    field(out, |out| out.put_i64(now_us));
}

/// A value with its length before it.
fn field(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_i32(0);
    write(out);
    let length = i32::try_from(out.len() - start - 4).unwrap_or(i32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}
