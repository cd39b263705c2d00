//! What became of the jobs.

use rowlock::Stopped;

use super::super::ledger::Ledger;
use super::{SCHEMA, Stage, signed};

impl Stage {
    /// Fails unless each job ran exactly once and was acknowledged, durably, exactly once.
    pub(in crate::bench) async fn check(
        &self,
        ledger: &Ledger,
        jobs: u64,
        stopped: Stopped,
        history: bool,
    ) -> anyhow::Result<()> {
        anyhow::ensure!(
            stopped.unsettled == 0 && stopped.interrupted == 0,
            "{} jobs were not settled, {} were interrupted",
            stopped.unsettled,
            stopped.interrupted
        );
        self.check_acknowledged(ledger, jobs, history).await
    }

    pub(in crate::bench) async fn check_acknowledged(
        &self,
        ledger: &Ledger,
        jobs: u64,
        history: bool,
    ) -> anyhow::Result<()> {
        ledger.check()?;
        let sql = format!(
            "select (select count(*) from {SCHEMA}.job), (select count(*) from {SCHEMA}.dead),
                    (select count(*) from {SCHEMA}.finished where outcome = 'done'), (select count(distinct id) from {SCHEMA}.finished)"
        );
        let row = self.sql.query_one(&sql, &[]).await?;
        let [left, dead, done, distinct]: [i64; 4] = std::array::from_fn(|n| row.get(n));
        let kept = if history { signed(jobs) } else { 0 };
        anyhow::ensure!(
            left == 0 && dead == 0 && done == kept && distinct == kept,
            "not acknowledged exactly once: {left} jobs are left, {dead} are dead, the history has {done} entries of {distinct} jobs and \
             should have {kept}"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rowlock_testkit::TestDb;

    use super::*;

    #[tokio::test]
    async fn what_was_not_acknowledged_is_noticed() {
        let db = TestDb::new().await.unwrap();
        let stage = Stage::of_test(&db).await;
        let ledger = Ledger::new(3);
        (0..3).for_each(|n| ledger.ran(n));
        stage.check_acknowledged(&ledger, 3, false).await.unwrap();
        let said = |checked: anyhow::Result<()>| checked.unwrap_err().to_string();

        let unkept = said(stage.check_acknowledged(&ledger, 3, true).await);
        assert!(unkept.contains("has 0 entries of 0 jobs"), "{unkept}");
        stage.load(3).await.unwrap();
        let left = said(stage.check_acknowledged(&ledger, 3, false).await);
        assert!(left.contains("3 jobs are left"), "{left}");
        let mut stopped = Stopped::default();
        stopped.unsettled = 2;
        let unsettled = said(stage.check(&ledger, 3, stopped, false).await);
        assert!(unsettled.contains("2 jobs were not settled"), "{unsettled}");
        stage.take_down().await.unwrap();
    }
}
