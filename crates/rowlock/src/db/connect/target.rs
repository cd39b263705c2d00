//! `target_session_attrs`: which servers of a list will do. Pure.

use crate::db::conninfo::TargetSessionAttrs;

/// What one pass over the servers looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted(TargetSessionAttrs);

impl Wanted {
    /// The passes to make, one after the other until one finds a server.
    pub(super) fn passes(attrs: TargetSessionAttrs) -> Vec<Self> {
        match attrs {
            TargetSessionAttrs::PreferStandby => {
                vec![
                    Self(TargetSessionAttrs::Standby),
                    Self(TargetSessionAttrs::Any),
                ]
            }
            attrs => vec![Self(attrs)],
        }
    }

    pub(super) fn attrs(self) -> TargetSessionAttrs {
        self.0
    }

    /// Whether a server will do; if not, why.
    pub(super) fn check(self, in_recovery: bool, read_only: bool) -> Result<(), &'static str> {
        match self.0 {
            TargetSessionAttrs::ReadWrite | TargetSessionAttrs::Primary if in_recovery => {
                Err("it is a standby")
            }
            TargetSessionAttrs::ReadWrite if read_only => {
                Err("its transactions are read-only by default (default_transaction_read_only)")
            }
            TargetSessionAttrs::ReadOnly if !in_recovery && !read_only => {
                Err("its transactions may write")
            }
            TargetSessionAttrs::Standby if !in_recovery => Err("it is not a standby"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_takes_the_servers_that_libpq_takes() {
        use TargetSessionAttrs::{Any, PreferStandby, Primary, ReadOnly, ReadWrite, Standby};
        // Columns: primary, read-only primary, standby, standby that is set read-only as well.
        let servers = [(false, false), (false, true), (true, false), (true, true)];
        let table = [
            (Any, [true, true, true, true]),
            (ReadWrite, [true, false, false, false]),
            (ReadOnly, [false, true, true, true]),
            (Primary, [true, true, false, false]),
            (Standby, [false, false, true, true]),
        ];
        for (attrs, expected) in table {
            assert_eq!(Wanted::passes(attrs), [Wanted(attrs)]);
            let taken = servers.map(|(in_recovery, read_only)| {
                Wanted(attrs).check(in_recovery, read_only).is_ok()
            });
            assert_eq!(taken, expected, "{attrs}");
        }
        assert_eq!(
            Wanted::passes(PreferStandby),
            [Wanted(Standby), Wanted(Any)]
        );
    }
}
