//! `rowlock archive`: move jobs that have ended out of the database, to a file or to a table.

mod file;
mod sink;

use std::path::PathBuf;

use clap::Args;
use rowlock::Client;
use rowlock::manage::{Archived, PartitionStep};
use serde::Serialize;

use crate::Global;
use crate::exit::{Exit, mistake};
use crate::output::{self, Format};
use crate::times::{self, Moment};
use crate::{progress, say};
use file::Part;

/// Move jobs that have ended out of the database: to a file, a line of JSON each, or to a table.
///
/// A file that ends in .gz or .zst is compressed. It is written under its name with .part at the end, and gets its own name when all is
/// done. Jobs are deleted batch by batch, when they are safe on the disk: a crash may leave a job in both places, never in none.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock archive jobs-2030-01.ndjson.zst --older-than 30d\n  \
    rowlock archive mail.ndjson.gz --older-than 2030-01-31 --queue mail --with-dead\n  \
    rowlock archive copy.ndjson --older-than 0s --keep         # write only, delete nothing\n  \
    rowlock archive --table                                    # old days of history, from now on\n\n\
    To read one: zstd -dc jobs-2030-01.ndjson.zst | jq 'select(.kind == \"email\")'\n\
    Exits with 3 when there was nothing to archive; then no file is made.")]
pub(crate) struct Archive {
    /// The file to write.
    #[arg(
        value_name = "FILE",
        required_unless_present = "table",
        requires = "older_than"
    )]
    file: Option<PathBuf>,

    /// Jobs that ended longer ago than this, such as 30d, or before this time, such as 2030-01-31 (UTC).
    #[arg(long, value_name = "TIME", value_parser = times::moment)]
    older_than: Option<Moment>,

    /// Only jobs of this queue.
    #[arg(long, short, value_name = "NAME")]
    queue: Option<String>,

    /// The dead too. Without it, only what finished: done, cancelled, expired.
    #[arg(long)]
    with_dead: bool,

    /// The dead, and not what finished.
    #[arg(long, conflicts_with = "with_dead")]
    only_dead: bool,

    /// Write the jobs and delete none.
    #[arg(long)]
    keep: bool,

    /// Replace the file if it is there.
    #[arg(long)]
    force: bool,

    /// Move days of history that are past the longest retention to a table instead: the one named (with its schema), or `archive` in the
    /// queue's schema, which is made, and which maintenance then fills by itself.
    #[arg(long, value_name = "TABLE", num_args = 0..=1,
          conflicts_with_all = ["file", "older_than", "queue", "with_dead", "only_dead", "keep", "force"])]
    table: Option<Option<String>>,
}

/// What `rowlock archive FILE` answers with `--json`.
#[derive(Serialize)]
struct FileAnswer {
    file: String,
    #[serde(flatten)]
    did: Archived,
    /// The size of the file, compressed if it is.
    file_bytes: u64,
}

/// What `rowlock archive --table` answers with `--json`.
#[derive(Serialize)]
struct TableAnswer {
    table: String,
    partitions: Vec<PartitionStep>,
}

impl Archive {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        match (&self.table, &self.file) {
            (Some(table), _) => to_table(&client, table.as_deref(), global).await,
            (None, Some(file)) => self.to_file(&client, file.clone(), global).await,
            (None, None) => Err(mistake("name a file, or say --table")),
        }
    }

    async fn to_file(
        &self,
        client: &Client,
        path: PathBuf,
        global: &Global,
    ) -> anyhow::Result<Exit> {
        // Everything that can be refused is refused before a file is made.
        let now = client.clock().await?;
        let before = self.older_than.unwrap_or(Moment::At(now)).from(now)?;
        let mut part = Part::create(path, self.force)?;
        let bar = progress::of("archiving", None);
        let mut archive = client
            .archive_to(part.sink(), before)
            .on_progress(|did| bar.set_position(did.archived));
        if let Some(queue) = &self.queue {
            archive = archive.queue(queue);
        }
        if self.with_dead {
            archive = archive.with_dead();
        }
        if self.only_dead {
            archive = archive.only_dead();
        }
        if self.keep {
            archive = archive.copy_only();
        }
        let ended = tokio::select! {
            ended = archive => ended.map_err(anyhow::Error::from),
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        };
        bar.finish_and_clear();
        let did = match ended {
            Ok(did) => did,
            Err(e) => return Err(part.give_up(e)),
        };
        if did.archived == 0 {
            part.remove()?;
            output::note("there is nothing to archive");
            return Ok(Exit::NothingFound);
        }
        let (path, file_bytes) = part.finish()?;
        let answer = FileAnswer {
            file: path.display().to_string(),
            did,
            file_bytes,
        };
        match global.format() {
            Format::Json => output::json(&answer)?,
            Format::Table => output::text(&answer.text(self.keep)),
        }
        Ok(Exit::Success)
    }
}

impl FileAnswer {
    fn text(&self, keep: bool) -> String {
        let deleted = if keep {
            "; none was deleted".to_owned()
        } else if self.did.deleted == self.did.archived {
            " and deleted".to_owned()
        } else {
            // Redriven or deleted by somebody else while it was being written.
            format!(
                "; {} deleted, the others had changed meanwhile",
                say::number(self.did.deleted)
            )
        };
        format!(
            "{} archived to {}{deleted} ({} of JSON, {} on disk)\n",
            say::count(self.did.archived, "job"),
            self.file,
            say::bytes(self.did.bytes),
            say::bytes(self.file_bytes)
        )
    }
}

async fn to_table(client: &Client, table: Option<&str>, global: &Global) -> anyhow::Result<Exit> {
    if table.is_none() {
        client.start_archive().await?;
    }
    let bar = progress::of("moving history", None);
    let answer = TableAnswer {
        table: table.map_or_else(|| format!("{}.archive", client.schema()), str::to_owned),
        partitions: client.drop_partitions(table).await?,
    };
    bar.finish_and_clear();
    let failed = answer
        .partitions
        .iter()
        .any(|p| p.answer.starts_with("failed"));
    if global.format() == Format::Json {
        output::json(&answer)?;
    } else {
        let mut text = String::new();
        for step in &answer.partitions {
            text += &format!("{}: {}\n", step.partition, step.answer);
        }
        if answer.partitions.is_empty() {
            text += "no day of history is past its retention yet\n";
        }
        if table.is_none() {
            text += &format!(
                "from now on, history that is past its retention goes to {}\n",
                answer.table
            );
        }
        output::text(&text);
    }
    Ok(if failed { Exit::Failure } else { Exit::Success })
}
