//! Values as they stand on the wire, where the driver's own conversions would cost more or cannot say `-infinity`.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use jiff::Timestamp;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// JSON text that is known to be valid, passed through unparsed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawJson<'a>(pub(crate) &'a str);

impl ToSql for RawJson<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        if *ty == Type::JSONB {
            out.put_u8(1); // the version of the binary format
        }
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
    accepts!(JSON, JSONB);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for RawJson<'a> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let text = match (ty, raw) {
            (&Type::JSONB, [1, text @ ..]) => text,
            (&Type::JSONB, _) => return Err("unknown version of the jsonb format".into()),
            _ => raw,
        };
        Ok(Self(std::str::from_utf8(text)?))
    }
    accepts!(JSON, JSONB);
}

/// A `timestamptz` as Postgres has it: microseconds since 2000-01-01, with the two infinities at the ends. Compares like the
/// database compares, and goes back to it unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Micros(pub(crate) i64);

/// Microseconds from 1970 to 2000.
const EPOCH_SHIFT: i64 = 946_684_800_000_000;

impl Micros {
    pub(crate) const NEG_INFINITY: Self = Self(i64::MIN);

    pub(crate) fn from_timestamp(t: Timestamp) -> Self {
        Self(t.as_microsecond() - EPOCH_SHIFT)
    }

    /// `None` for the infinities and for years that only Postgres knows.
    pub(crate) fn to_timestamp(self) -> Option<Timestamp> {
        Timestamp::from_microsecond(self.0.checked_add(EPOCH_SHIFT)?).ok()
    }
}

impl ToSql for Micros {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_i64(self.0);
        Ok(IsNull::No)
    }
    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Micros {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(i64::from_be_bytes(raw.try_into()?)))
    }
    accepts!(TIMESTAMPTZ);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn times_go_there_and_back(us in 0i64..250_000_000_000_000_000) {
            let t = Timestamp::from_microsecond(us).unwrap();
            prop_assert_eq!(Micros::from_timestamp(t).to_timestamp(), Some(t));
        }
    }

    #[test]
    fn infinity_is_no_timestamp() {
        assert_eq!(Micros::NEG_INFINITY.to_timestamp(), None);
        assert_eq!(Micros(i64::MAX).to_timestamp(), None);
        assert!(
            Micros::NEG_INFINITY < Micros::from_timestamp("2000-01-01T00:00:00Z".parse().unwrap())
        );
    }
}
