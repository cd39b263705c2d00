//! Archive: jobs that have ended, written out as lines of JSON and then deleted.
//!
//! A batch is deleted only when it has been written and flushed. A crash in between leaves its jobs in both places: a job may
//! stand in the archive twice, but none is lost.

use std::future::IntoFuture;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio_postgres::types::Type;

use super::jobs::Place;
use super::rounds::OnProgress;
use super::row;
use crate::client::Client;
use crate::db::{Micros, RawJson};
use crate::error::{Error, Invalid, Result};
use crate::validate;

const DOING: &str = "archive jobs";
const READ: &str = "select id, ended_at, line, next from rowlock.archive_batch(place => $1, ended_before => $2, of_queue => $3, from_next => $4)";
const DELETE: &str = "select rowlock.archive_done($1, $2, $3)";

/// What an archive took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Archived {
    /// How many jobs were written.
    pub archived: u64,
    /// How many bytes that were.
    pub bytes: u64,
    /// How many jobs were then deleted.
    pub deleted: u64,
}

/// An archiving, which happens when this is awaited.
#[must_use = "nothing is archived until this is awaited"]
pub struct Archive<'a, W> {
    client: &'a Client,
    writer: W,
    ended_before: Timestamp,
    places: Vec<Place>,
    queue: Option<String>,
    copy_only: bool,
    on_progress: Option<OnProgress<'a, Archived>>,
}

impl<'a, W> Archive<'a, W> {
    /// Takes the dead too.
    pub fn with_dead(mut self) -> Self {
        self.places = vec![Place::Finished, Place::Dead];
        self
    }

    /// Takes the dead, and not the finished.
    pub fn only_dead(mut self) -> Self {
        self.places = vec![Place::Dead];
        self
    }

    /// Takes only jobs of this queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Writes the jobs and deletes none.
    pub fn copy_only(mut self) -> Self {
        self.copy_only = true;
        self
    }

    /// Is told after each batch what has been done so far.
    pub fn on_progress(mut self, tell: impl FnMut(&Archived) + Send + 'a) -> Self {
        self.on_progress = Some(Box::new(tell));
        self
    }
}

impl<'a, W: AsyncWrite + Unpin + Send + 'a> Archive<'a, W> {
    async fn run(mut self) -> Result<Archived> {
        if let Some(queue) = &self.queue {
            validate::name("queue", queue)?;
        }
        let now = self.client.clock().await?;
        if self.ended_before > now {
            let rule = "lies ahead: an archive takes what has ended already";
            return Err(Invalid::new("ended_before", self.ended_before, rule).into());
        }
        let mut total = Archived::default();
        for place in std::mem::take(&mut self.places) {
            let mut next: Option<String> = None;
            loop {
                next = self.batch(place, next.as_deref(), &mut total).await?;
                if let Some(tell) = &mut self.on_progress {
                    tell(&total);
                }
                if next.is_none() {
                    break;
                }
            }
        }
        Ok(total)
    }

    /// Writes and deletes one batch; returns where to go on.
    async fn batch(
        &mut self,
        place: Place,
        from: Option<&str>,
        total: &mut Archived,
    ) -> Result<Option<String>> {
        let mut rows = self
            .client
            .rows(
                DOING,
                READ,
                &[
                    (&place.as_str(), Type::TEXT),
                    (
                        &Micros::from_timestamp(self.ended_before),
                        Type::TIMESTAMPTZ,
                    ),
                    (&self.queue, Type::TEXT),
                    (&from.map(RawJson), Type::JSONB),
                ],
            )
            .await?;
        // The last row is no job: it says where to go on.
        let Some(last) = rows.pop() else {
            return Err(Error::Setup("a batch came back without its end".into()));
        };
        if !rows.is_empty() {
            let failed = |e| Error::Io {
                doing: "write the archive".into(),
                source: Arc::new(e),
            };
            let (mut ids, mut ended_ats) = (Vec::new(), Vec::new());
            for r in &rows {
                let line: &str = r.get("line");
                self.writer
                    .write_all(line.as_bytes())
                    .await
                    .map_err(failed)?;
                self.writer.write_all(b"\n").await.map_err(failed)?;
                total.bytes += line.len() as u64 + 1;
                ids.push(r.get::<_, i64>("id"));
                ended_ats.push(r.get::<_, Micros>("ended_at"));
            }
            self.writer.flush().await.map_err(failed)?;
            total.archived += ids.len() as u64;
            if !self.copy_only {
                total.deleted += delete(self.client, place, &ids, &ended_ats).await?;
            }
        }
        Ok(row::raw(&last, "next")?.map(|next| next.get().to_owned()))
    }
}

async fn delete(client: &Client, place: Place, ids: &[i64], ended_ats: &[Micros]) -> Result<u64> {
    let params = [
        (&place.as_str() as _, Type::TEXT),
        (&ids as _, Type::INT8_ARRAY),
        (&ended_ats as _, Type::TIMESTAMPTZ_ARRAY),
    ];
    let rows = client.rows(DOING, DELETE, &params).await?;
    Ok(row::count(&rows[0], "archive_done"))
}

impl<'a, W: AsyncWrite + Unpin + Send + 'a> IntoFuture for Archive<'a, W> {
    type Output = Result<Archived>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl Client {
    /// Writes finished jobs that ended before a time, a line of JSON each, and deletes them. A line has the words of
    /// [`JobInfo`](super::JobInfo), which can be read from it.
    ///
    /// What was flushed counts as safe, and is deleted: give it a writer whose `flush` keeps what it is given as well as you need.
    /// Takes some megabytes of memory, however many jobs there are, and holds no connection while it writes.
    ///
    /// ```no_run
    /// # async fn f(client: rowlock::Client, before: jiff::Timestamp) -> rowlock::Result<()> {
    /// let mut lines = Vec::new();
    /// let did = client.archive_to(&mut lines, before).queue("mail").with_dead().await?;
    /// println!("{} jobs in {} bytes", did.archived, did.bytes);
    /// # Ok(())
    /// # }
    /// ```
    pub fn archive_to<W: AsyncWrite + Unpin + Send>(
        &self,
        writer: W,
        ended_before: Timestamp,
    ) -> Archive<'_, W> {
        Archive {
            client: self,
            writer,
            ended_before,
            places: vec![Place::Finished],
            queue: None,
            copy_only: false,
            on_progress: None,
        }
    }
}
