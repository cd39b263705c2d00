//! What only the database knows: how full the queues are, how large the tables, how far back the horizon lies.
//!
//! Read when somebody scrapes, at most every few seconds, however many scrape. What could not be read is left out, and
//! `rowlock_database_up` says so: a chart with a gap is better than one with a wrong zero.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use rowlock::Client;
use tokio::sync::Mutex;

/// For so long an answer is given again.
const FRESH_FOR: Duration = Duration::from_secs(5);

/// The view caps its counts, so a queue of millions costs no more than one of thousands.
const QUEUES: &str = "select q.name, q.ready::text, q.running::text, q.scheduled::text, q.dead::text, \
     coalesce(extract(epoch from q.oldest_wait), 0)::float8::text, q.paused::int::text from rowlock.queues q order by q.name limit 1000";

/// Partitions count for their table. Sizes come from the catalog and need no right on the tables.
const TABLES: &str = "select c.relname::text, \
       coalesce(sum(pg_table_size(p.relid)), 0)::text, coalesce(sum(pg_indexes_size(p.relid)), 0)::text \
  from pg_class c cross join lateral ( \
       select relid from pg_partition_tree(c.oid) where isleaf \
       union all select c.oid::regclass where c.relkind = 'r') p \
 where c.oid in ('rowlock.job'::regclass, 'rowlock.dead'::regclass, 'rowlock.finished'::regclass) \
 group by c.relname order by c.relname";

/// What vacuum may not pass. Other people's sessions show their transaction only to members of pg_read_all_stats.
const HORIZON: &str = "select coalesce(max(age(x.xmin)), 0)::text, coalesce(max(extract(epoch from clock_timestamp() - x.since)), 0)::float8::text \
  from (select backend_xmin as xmin, xact_start as since from pg_stat_activity where backend_xmin is not null and pid <> pg_backend_pid() \
        union all select transaction, prepared from pg_prepared_xacts \
        union all select xmin, null from pg_replication_slots where xmin is not null \
        union all select catalog_xmin, null from pg_replication_slots where catalog_xmin is not null) x";

/// The last answer.
#[derive(Default)]
pub(super) struct Cache(Mutex<Option<(Instant, String)>>);

impl Cache {
    /// The numbers as Prometheus reads them.
    pub(super) async fn get(&self, client: &Client, within: Duration) -> String {
        // Whoever comes while another asks waits for the same answer.
        let mut cached = self.0.lock().await;
        if let Some((at, text)) = &*cached {
            if at.elapsed() < FRESH_FOR {
                return text.clone();
            }
        }
        let text = match tokio::time::timeout(within, read(client)).await {
            Ok(text) => text,
            Err(_) => {
                tracing::warn!(?within, "the database did not answer a scrape in time");
                up(false)
            }
        };
        *cached = Some((Instant::now(), text.clone()));
        text
    }
}

async fn read(client: &Client) -> String {
    let mut text = Families::default();
    let mut whole = true;
    for (what, sql, add) in [
        (
            "queues",
            QUEUES,
            Families::queue as fn(&mut Families, &[Option<String>]),
        ),
        ("tables", TABLES, Families::table),
        ("horizon", HORIZON, Families::horizon),
    ] {
        match client.query_text("read metrics", sql, &[]).await {
            Ok(rows) => rows.iter().for_each(|row| add(&mut text, row)),
            Err(error) => {
                whole = false;
                tracing::warn!(%error, what, "cannot read metrics from the database");
            }
        }
    }
    format!("{}{}", text.render(), up(whole))
}

fn up(up: bool) -> String {
    format!(
        "# HELP rowlock_database_up Whether the numbers from the database could be read\n# TYPE rowlock_database_up gauge\n\
         rowlock_database_up {}\n",
        u8::from(up)
    )
}

/// The samples of each metric together, as the format wants them.
#[derive(Default)]
struct Families(Vec<(&'static str, &'static str, String)>);

impl Families {
    fn queue(&mut self, row: &[Option<String>]) {
        let queue = cell(row, 0);
        for (n, name, help) in [
            (
                1,
                "rowlock_queue_ready",
                "Jobs that are due and wait for a worker; counts up to 10000",
            ),
            (
                2,
                "rowlock_queue_running",
                "Jobs that are leased by a worker; counts up to 10000",
            ),
            (
                3,
                "rowlock_queue_scheduled",
                "Jobs that are due later; counts up to 10000",
            ),
            (4, "rowlock_queue_dead", "Dead letters; counts up to 10000"),
            (
                5,
                "rowlock_queue_oldest_wait_seconds",
                "How long the oldest ready job has been due",
            ),
            (6, "rowlock_queue_paused", "1 while the queue is paused"),
        ] {
            self.add(
                name,
                help,
                &format!("{{queue=\"{}\"}}", escape(queue)),
                cell(row, n),
            );
        }
    }

    fn table(&mut self, row: &[Option<String>]) {
        let labels = format!("{{table=\"{}\"}}", escape(cell(row, 0)));
        self.add(
            "rowlock_table_bytes",
            "Size of a table with its partitions, without indexes",
            &labels,
            cell(row, 1),
        );
        self.add(
            "rowlock_index_bytes",
            "Size of the indexes of a table with its partitions",
            &labels,
            cell(row, 2),
        );
    }

    fn horizon(&mut self, row: &[Option<String>]) {
        let name = "rowlock_horizon_age_transactions";
        self.add(
            name,
            "Transactions since the oldest snapshot that vacuum must respect",
            "",
            cell(row, 0),
        );
        let name = "rowlock_horizon_age_seconds";
        self.add(
            name,
            "Age of the oldest transaction that holds vacuum back",
            "",
            cell(row, 1),
        );
    }

    fn add(&mut self, name: &'static str, help: &'static str, labels: &str, value: &str) {
        let line = format!("{name}{labels} {value}\n");
        match self.0.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, _, lines)) => lines.push_str(&line),
            None => self.0.push((name, help, line)),
        }
    }

    fn render(&self) -> String {
        let mut text = String::new();
        for (name, help, lines) in &self.0 {
            // Writing to a string does not fail.
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{lines}");
        }
        text
    }
}

fn cell(row: &[Option<String>], n: usize) -> &str {
    row.get(n).and_then(Option::as_deref).unwrap_or("0")
}

/// A label's value: backslash, quote and line break have to be escaped.
fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_metric_stand_together_and_labels_are_escaped() {
        let mut families = Families::default();
        for queue in ["mail", "a\"b\\"] {
            let row: Vec<Option<String>> = [queue, "1", "2", "3", "4", "0.5", "0"]
                .map(|v| Some(v.to_owned()))
                .to_vec();
            families.queue(&row);
        }
        let text = families.render();
        assert_eq!(text.matches("# TYPE rowlock_queue_ready gauge").count(), 1);
        assert!(text.contains("rowlock_queue_ready{queue=\"mail\"} 1\nrowlock_queue_ready{queue=\"a\\\"b\\\\\"} 1\n"), "{text}");
    }
}
