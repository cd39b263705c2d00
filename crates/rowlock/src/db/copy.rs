//! COPY in the binary format. The driver has a writer of its own, which sends 4 kB at a time: each is a message from task to task, a system call
//! and a wake-up of the server for some 40 rows. Larger pieces make a bulk load 3 % faster.

use std::pin::Pin;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use tokio_postgres::types::{IsNull, ToSql, Type};
use tokio_postgres::{CopyInSink, Error};

/// What is gathered before it is sent.
const PIECE_BYTES: usize = 64 * 1024;
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// A COPY under way. The server forgets it unless it is finished.
pub(crate) struct CopyIn {
    sink: Pin<Box<CopyInSink<Bytes>>>,
    types: Vec<Type>,
    piece: BytesMut,
}

impl CopyIn {
    pub(crate) fn new(sink: CopyInSink<Bytes>, types: Vec<Type>) -> Self {
        let mut piece = new_piece();
        piece.put_slice(SIGNATURE);
        piece.put_u32(0); // flags
        piece.put_u32(0); // bytes of this header that are still to come
        Self {
            sink: Box::pin(sink),
            types,
            piece,
        }
    }

    /// Adds a row. Its values must be of the types of this COPY. After a call that was dropped before it answered, rows are missing.
    pub(crate) async fn write(&mut self, values: &[&(dyn ToSql + Sync)]) -> Result<(), Error> {
        write_row(&mut self.piece, &self.types, values);
        if self.piece.len() < PIECE_BYTES {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, new_piece());
        self.sink.send(piece.freeze()).await
    }

    /// Sends the rest and hears what the server has against it.
    pub(crate) async fn finish(mut self) -> Result<(), Error> {
        self.piece.put_i16(-1);
        self.sink.send(self.piece.freeze()).await?;
        self.sink.as_mut().finish().await?;
        Ok(())
    }
}

/// Room for the row that makes it full, if that is like most.
fn new_piece() -> BytesMut {
    BytesMut::with_capacity(PIECE_BYTES + 4096)
}

fn write_row(to: &mut BytesMut, types: &[Type], values: &[&(dyn ToSql + Sync)]) {
    assert_eq!(values.len(), types.len(), "a value for each column");
    to.put_i16(values.len() as i16);
    for (value, ty) in values.iter().zip(types) {
        let at = to.len();
        to.put_i32(-1);
        match value.to_sql_checked(ty, to) {
            Ok(IsNull::Yes) => {}
            Ok(IsNull::No) => {
                let bytes = (to.len() - at - 4) as u32;
                to[at..at + 4].copy_from_slice(&bytes.to_be_bytes());
            }
            // Only of a value that is of another type.
            Err(e) => unreachable!("{e}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_count_and_values_with_their_lengths() {
        let mut row = BytesMut::new();
        write_row(
            &mut row,
            &[Type::TEXT, Type::INT2, Type::TEXT],
            &[&"ab", &7_i16, &None::<&str>],
        );
        assert_eq!(
            row[..],
            *b"\0\x03\0\0\0\x02ab\0\0\0\x02\0\x07\xff\xff\xff\xff"
        );
    }
}
