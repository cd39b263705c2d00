//! Values as they stand on the wire, where the driver's own conversions would cost more or cannot say `-infinity`.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, de};
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
        Self::from_unix(t.as_microsecond())
    }

    /// From microseconds since 1970.
    pub(crate) fn from_unix(us: i64) -> Self {
        Self(us.saturating_sub(EPOCH_SHIFT))
    }

    /// How long it is after another; nothing if it is before.
    pub(crate) fn since(self, other: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(other.0)).unwrap_or(0))
    }

    /// So long before.
    pub(crate) fn before(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)),
        )
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

/// From JSON, as Postgres writes a time there.
impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match &*<Cow<'de, str>>::deserialize(from)? {
            "-infinity" => Ok(Self::NEG_INFINITY),
            "infinity" => Ok(Self(i64::MAX)),
            time => time
                .parse()
                .map(Self::from_timestamp)
                .map_err(de::Error::custom),
        }
    }
}

/// Where a row is (`ctid`): block and line in one number, which orders as the places do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(pub(crate) u64);

impl Place {
    /// A text that is none becomes a place where no row is.
    pub(crate) fn parse(text: &str) -> Self {
        let parse = || {
            let (block, line) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
            Some(
                (u64::from(block.parse::<u32>().ok()?) << 16)
                    | u64::from(line.parse::<u16>().ok()?),
            )
        };
        Self(parse().unwrap_or(0))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "({},{})", self.0 >> 16, self.0 & 0xffff)
    }
}

impl ToSql for Place {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_uint(self.0, 6);
        Ok(IsNull::No)
    }
    accepts!(TID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Place {
    fn from_sql(_: &Type, mut raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        if raw.len() != 6 {
            return Err("a tid has six bytes".into());
        }
        Ok(Self(raw.get_uint(6)))
    }
    accepts!(TID);
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
    fn places_are_read_and_written() {
        for (text, place) in [
            ("(0,1)", 1),
            ("(1,0)", 65_536),
            ("(4294967295,65535)", 0xffff_ffff_ffff),
        ] {
            assert_eq!(Place::parse(text), Place(place), "{text}");
            assert_eq!(Place(place).to_string(), text);
            let mut wire = BytesMut::new();
            Place(place).to_sql(&Type::TID, &mut wire).unwrap();
            assert_eq!(Place::from_sql(&Type::TID, &wire).unwrap(), Place(place));
        }
        for none in ["what", "(1,2,3)", "(1,70000)", "(9999999999,1)", ""] {
            assert_eq!(Place::parse(none), Place(0), "{none}");
        }
        assert!(Place::from_sql(&Type::TID, b"short").is_err());
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
