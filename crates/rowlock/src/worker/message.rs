//! The messages on the channel (see `sql/functions/06_wake.sql`). Pure.

use crate::db::Micros;

/// What somebody says to the workers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// There is something to do in this queue.
    Ring(&'a str),
    /// There will be, soon: whoever waits is to ask when.
    Schedule(&'a str),
    /// Nobody rings for this queue any more, until somebody arms its bell again.
    Disarm(&'a str),
    /// Something came up behind the cursors of this queue, nobody knows where…
    Rewind(&'a str),
    /// …or not before this time.
    Since(&'a str, Micros),
    /// There is a new queue.
    Queue(&'a str),
    /// A running job is asked to stop.
    Cancel(i64),
    /// A worker tests whether it hears anything.
    Ping(&'a str),
}

impl<'a> Message<'a> {
    /// `None` for messages that are not for this version.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (verb, rest) = text.split_once(' ')?;
        match verb {
            "ring" => Some(Self::Ring(rest)),
            "schedule" => Some(Self::Schedule(rest)),
            "disarm" => Some(Self::Disarm(rest)),
            "rewind" => Some(Self::Rewind(rest)),
            "queue" => Some(Self::Queue(rest)),
            // A queue may have spaces in its name; the number is the last word.
            "cancel" => Some(Self::Cancel(rest.rsplit(' ').next()?.parse().ok()?)),
            "since" => {
                let (queue, at) = rest.rsplit_once(' ')?;
                Some(Self::Since(queue, Micros::from_unix(at.parse().ok()?)))
            }
            "ping" => Some(Self::Ping(rest)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read() {
        assert_eq!(
            Message::parse("ring my queue"),
            Some(Message::Ring("my queue"))
        );
        assert_eq!(
            Message::parse("cancel my queue 42"),
            Some(Message::Cancel(42))
        );
        assert_eq!(Message::parse("cancel my queue x"), None);
        assert_eq!(
            Message::parse("since my queue 946684800000007"),
            Some(Message::Since("my queue", Micros(7)))
        );
        assert_eq!(Message::parse("since my queue"), None);
        assert_eq!(Message::parse("since 7"), None);
        assert_eq!(Message::parse("sing q"), None);
        assert_eq!(Message::parse(""), None);
    }
}
