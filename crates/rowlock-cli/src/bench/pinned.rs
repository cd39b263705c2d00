//! Somebody holds vacuum back, the way Postgres queues die: a reader with an old snapshot, or a writer with an open transaction. A constant rate for
//! a while, and a backlog worked off before and after as many jobs have left their dead rows behind; each beside the same with nobody.
//!
//! Each round begins with another of the three. Who holds vacuum back does so from before the few seconds at the same rate that come before the time that counts (see `offered`).

use super::Session;
use super::offered;
use super::report::{Line, Ratio};
use super::stage::Stage;

const WHO: [(Who, &str); 3] = [
    (Who::Nobody, "nobody"),
    (Who::Reader, "a reader"),
    (Who::Writer, "a writer"),
];

const RATE_OF_CLEAN: &[Ratio] = &[Ratio::new("of_clean", "per_second")];
const WAIT_OF_CLEAN: &[Ratio] = &[
    Ratio::new("start_p99_of_clean", "start_p99_ms"),
    Ratio::of_worst("start_p99_worst_of_clean", "start_p99_ms"),
    Ratio::new("postgres_cpu_of_clean", "postgres_cpu_us"),
    Ratio::of_worst("postgres_cpu_worst_of_clean", "postgres_cpu_us"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Nobody,
    Reader,
    Writer,
}

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    at_a_rate(session).await?;
    drains(session).await
}

async fn at_a_rate(session: &mut Session<'_>) -> anyhow::Result<()> {
    let (stage, options) = (session.stage, session.options);
    for (who, name) in session.in_turn(&WHO) {
        stage.clear(options.history).await?;
        let pin = Pin::hold(stage, who).await?;
        let offered =
            offered::offer(stage, options.rate, options.duration, options.history).await?;
        pin.release(stage).await?;
        let case = |who| format!("{} a second, held back by {who}", options.rate);
        let mut line = Line::new("pinned", case(name), offered.jobs, offered.figures);
        line.windows = offered.windows;
        session.report.add(match who {
            Who::Nobody => line,
            _ => line.against(case("nobody"), WAIT_OF_CLEAN),
        });
    }
    Ok(())
}

async fn drains(session: &mut Session<'_>) -> anyhow::Result<()> {
    let (stage, jobs, history) = (session.stage, session.options.jobs, session.options.history);
    for (who, name) in session.in_turn(&WHO) {
        stage.clear(history).await?;
        let pin = Pin::hold(stage, who).await?;
        for (time, when) in ["first", "again, over its dead rows"]
            .into_iter()
            .enumerate()
        {
            stage.load(jobs).await?;
            let figures = stage.work_off_again(jobs, history, time as u64).await?;
            let case = |who| format!("drain {when}, held back by {who}");
            let line = Line::new("pinned", case(name), jobs, figures);
            session.report.add(match who {
                Who::Nobody => line,
                _ => line.against(case("nobody"), RATE_OF_CLEAN),
            });
        }
        pin.release(stage).await?;
    }
    Ok(())
}

/// A transaction that keeps vacuum from removing what has died since.
struct Pin(Option<(tokio_postgres::Client, i32)>);

impl Pin {
    async fn hold(stage: &Stage, who: Who) -> anyhow::Result<Self> {
        let sql = match who {
            Who::Nobody => return Ok(Self(None)),
            Who::Reader => "begin isolation level repeatable read; select count(*) from pg_class",
            Who::Writer => {
                "create temp table if not exists pin (n int); begin; insert into pin values (1)"
            }
        };
        let client = stage.another().await?;
        // A server may end transactions that do nothing.
        client
            .batch_execute("set idle_in_transaction_session_timeout = 0")
            .await?;
        let pid = client
            .query_one("select pg_backend_pid()", &[])
            .await?
            .get(0);
        client.batch_execute(sql).await?;
        let pin = Self(Some((client, pid)));
        pin.check(stage).await?;
        Ok(pin)
    }

    /// Fails unless it still holds, so that nothing was measured without it.
    async fn check(&self, stage: &Stage) -> anyhow::Result<()> {
        let Some((_, pid)) = &self.0 else {
            return Ok(());
        };
        let sql = "select count(*) from pg_stat_activity where pid = $1 and (backend_xmin is not null or backend_xid is not null)";
        let held: i64 = stage.sql.query_one(sql, &[pid]).await?.get(0);
        anyhow::ensure!(held == 1, "nobody holds vacuum back any more");
        Ok(())
    }

    async fn release(self, stage: &Stage) -> anyhow::Result<()> {
        self.check(stage).await?;
        if let Some((client, _)) = self.0 {
            client.batch_execute("rollback").await?;
        }
        Ok(())
    }
}
