//! What the database is told of jobs that are over: one statement for each verb.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::{Ack, Verb, Verdict};
use crate::db::{Link, Param, Place, RawJson};
use crate::error::{Error, Result};
use crate::job::whole_ms;
use crate::validate;
use crate::worker::core::Core;
use crate::worker::outcome::Outcome;

const NOT_COMMITTED: &str = "the handler completed the job in a transaction that was not committed";

/// What the database answers: the jobs of which it was too late to say anything, and those that somebody has locked.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) lost: Vec<i64>,
    pub(super) busy: Vec<i64>,
}

impl Core {
    /// Says the same of all these jobs of one queue.
    pub(super) async fn call(&self, link: &Link, verb: Verb, acks: &[Ack]) -> Result<Answer> {
        match verb {
            Verb::Complete => self.complete(link, acks).await,
            Verb::Fail => self.fail(link, acks).await,
            Verb::Snooze => self.snooze(link, acks).await,
            Verb::Release => self.release(link, acks).await,
        }
    }

    async fn complete(&self, link: &Link, acks: &[Ack]) -> Result<Answer> {
        let places: Option<Vec<Place>> = match self.complete_untouched(link, acks).await? {
            Untouched::Done => return Ok(Answer::default()),
            // A delete that was undone leaves its sign in the rows: they have to be looked up.
            Untouched::Undone => None,
            Untouched::NotTried => Some(acks.iter().map(|a| a.attempt.place()).collect()),
        };
        let results: Vec<Option<RawJson<'_>>> = acks.iter().map(result).collect();
        let results = results.iter().any(Option::is_some).then_some(results);
        let ran_ms = |ack: &Ack| {
            let ms = ack.ran?.as_millis();
            Some(i32::try_from(ms).unwrap_or(i32::MAX))
        };
        let ran: Vec<Option<i32>> = acks.iter().map(ran_ms).collect();
        let rest: [Param<'_>; 3] = [
            (&places, Type::TID_ARRAY),
            (&results, Type::JSONB_ARRAY),
            (&ran, Type::INT4_ARRAY),
        ];
        let sql = "select lost, busy from rowlock.complete_batch($1, $2, $3, $4, $5, $6)";
        self.tell(link, "complete jobs", sql, acks, &rest).await
    }

    async fn fail(&self, link: &Link, acks: &[Ack]) -> Result<Answer> {
        let said: Vec<_> = acks.iter().map(|a| failure(&a.verdict)).collect();
        let errors: Vec<&str> = said.iter().map(|s| &*s.0).collect();
        let retry_ms: Vec<Option<i64>> = said.iter().map(|s| s.1).collect();
        let fates: Vec<Option<&str>> = said.iter().map(|s| s.2).collect();
        let rest: [Param<'_>; 3] = [
            (&errors, Type::TEXT_ARRAY),
            (&retry_ms, Type::INT8_ARRAY),
            (&fates, Type::TEXT_ARRAY),
        ];
        let sql = "select lost, busy from rowlock.fail($1, $2, $3, $4, $5, $6)";
        self.tell(link, "record failures", sql, acks, &rest).await
    }

    async fn snooze(&self, link: &Link, acks: &[Ack]) -> Result<Answer> {
        let delay_ms = |ack: &Ack| match &ack.verdict {
            Verdict::Outcome(Outcome::Snooze(delay)) => within_a_year(*delay),
            _ => 0,
        };
        let delays: Vec<i64> = acks.iter().map(delay_ms).collect();
        let rest: [Param<'_>; 1] = [(&delays, Type::INT8_ARRAY)];
        let sql = "select lost, busy from rowlock.snooze($1, $2, $3, $4)";
        self.tell(link, "snooze jobs", sql, acks, &rest).await
    }

    async fn release(&self, link: &Link, acks: &[Ack]) -> Result<Answer> {
        let sql = "select lost, busy from rowlock.release($1, $2, $3)";
        self.tell(link, "give jobs back", sql, acks, &[]).await
    }

    /// Runs one of these statements: they name the jobs first, by queue, ids and tokens, and then say the rest.
    async fn tell(
        &self,
        link: &Link,
        doing: &str,
        sql: &str,
        acks: &[Ack],
        rest: &[Param<'_>],
    ) -> Result<Answer> {
        let queue: &str = acks[0].attempt.queue();
        let ids: Vec<i64> = acks.iter().map(|a| a.attempt.id).collect();
        let tokens: Vec<i64> = acks.iter().map(|a| a.attempt.origin.token).collect();
        let mut params: Vec<Param<'_>> = vec![
            (&queue, Type::TEXT),
            (&ids, Type::INT8_ARRAY),
            (&tokens, Type::INT8_ARRAY),
        ];
        params.extend_from_slice(rest);
        let rows = self.rows(link, doing, sql, &params).await?;
        let row = rows.first().ok_or_else(|| Error::Closed {
            doing: format!("{doing}: read the answer"),
        })?;
        Ok(Answer {
            lost: row.get(0),
            busy: row.get(1),
        })
    }

    /// Completes jobs that nobody has touched since they were claimed, all or none: of those not even the ids have to be sent.
    async fn complete_untouched(&self, link: &Link, acks: &[Ack]) -> Result<Untouched> {
        let Some(runs) = Runs::of(acks) else {
            return Ok(Untouched::NotTried);
        };
        let queue: &str = acks[0].attempt.queue();
        let places: Vec<Place> = acks.iter().map(|a| a.attempt.place()).collect();
        let closed = self.closed.take();
        let answer = self
            .rows(
                link,
                "complete jobs",
                "select rowlock.complete_untouched($1, $2, $3, $4, $5, $6)",
                &[
                    (&queue, Type::TEXT),
                    (&places, Type::TID_ARRAY),
                    (&runs.lengths, Type::INT4_ARRAY),
                    (&runs.tokens, Type::INT8_ARRAY),
                    (&runs.marks, Type::INT8_ARRAY),
                    (&closed, Type::INT8_ARRAY),
                ],
            )
            .await;
        let done = answer.map(|rows| rows.first().is_some_and(|row| row.get(0)));
        if matches!(done, Ok(true)) {
            return Ok(Untouched::Done);
        }
        self.closed.add(closed);
        done?;
        // Whatever becomes of the next try: this way is closed to them.
        acks.iter().for_each(|a| a.attempt.touched());
        Ok(Untouched::Undone)
    }
}

/// How it went with jobs that nobody was known to have touched.
enum Untouched {
    Done,
    Undone,
    NotTried,
}

/// Jobs in the order of their claims: how many of each, and its token and mark.
struct Runs {
    lengths: Vec<i32>,
    tokens: Vec<i64>,
    marks: Vec<i64>,
}

impl Runs {
    /// `None` if any of them was touched since.
    fn of(acks: &[Ack]) -> Option<Self> {
        let (mut lengths, mut tokens, mut marks) = (Vec::new(), Vec::new(), Vec::new());
        for run in acks.chunk_by(|a, b| a.attempt.origin.token == b.attempt.origin.token) {
            let mark = run[0].attempt.mark()?;
            if run.iter().any(|ack| ack.attempt.mark() != Some(mark)) {
                return None;
            }
            lengths.push(i32::try_from(run.len()).ok()?);
            tokens.push(run[0].attempt.origin.token);
            marks.push(mark);
        }
        Some(Self {
            lengths,
            tokens,
            marks,
        })
    }
}

/// What a handler gave, to be kept in the history.
fn result(ack: &Ack) -> Option<RawJson<'_>> {
    match &ack.verdict {
        Verdict::Outcome(Outcome::Done(result)) => result.as_deref().map(|r| RawJson(r.get())),
        _ => None,
    }
}

/// What `rowlock.fail` is told: the error, when to try again, and the fate.
fn failure(verdict: &Verdict) -> (String, Option<i64>, Option<&'static str>) {
    match verdict {
        Verdict::Outcome(Outcome::Retry { error, after }) => {
            (validate::storable(error), after.map(within_a_year), None)
        }
        Verdict::Outcome(Outcome::Cancel(reason)) => {
            (validate::storable(reason), None, Some("cancelled"))
        }
        Verdict::Outcome(Outcome::Dead(error)) => {
            (validate::storable(error), None, Some("refused"))
        }
        _ => (NOT_COMMITTED.into(), None, None),
    }
}

fn within_a_year(d: Duration) -> i64 {
    whole_ms(d).min(365 * 86_400 * 1000)
}
