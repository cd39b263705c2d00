//! Finishing a job in the handler's own transaction, effects that happen once, and progress.

use std::time::Duration;

use rowlock::{Backoff, BoxError, Ctx, Error, Fail};
use serde_json::json;

use super::kit::{Bench, Gate, Note, SOON, Tally, Tx, errors, note, start, within};

/// What the handler does around `complete_in_tx`.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Commit,
    RollBack,
    FailAfterCommit,
    /// Commits after the handler has returned.
    CommitLate,
}

/// Whether an acknowledgement has come and been answered.
const ACKNOWLEDGED: &str = "select exists (select from pg_stat_activity where datname = current_database() and state = 'idle' \
    and (query like '%from rowlock.fail(%' or query like '%from rowlock.complete(%'))";
/// Whether a handler has tried to complete its job in its transaction, and been answered.
const TRIED_IN_TX: &str = "select exists (select from pg_stat_activity where datname = current_database() \
    and state = 'idle in transaction' and query like '%from rowlock.complete(%')";

async fn effect(ctx: &Ctx, url: &str, way: Way, released: Gate) -> Result<(), BoxError> {
    let (mut sql, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    if way == Way::CommitLate {
        let ctx = ctx.clone();
        let (held, holds) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let mut tx = Tx(sql.transaction().await.unwrap());
            tx.0.batch_execute("insert into effect values (1)")
                .await
                .unwrap();
            ctx.complete_in_tx(&mut tx).await.unwrap();
            held.send(()).unwrap();
            released.pass().await;
            tx.0.commit().await.unwrap();
        });
        return Ok(holds.await?);
    }
    let mut tx = Tx(sql.transaction().await?);
    tx.0.batch_execute("insert into effect values (1)").await?;
    ctx.complete_in_tx_with(&mut tx, &json!({"attempt": ctx.attempt()}))
        .await?;
    if way == Way::RollBack && ctx.attempt() == 1 {
        tx.0.rollback().await?;
        return Ok(());
    }
    tx.0.commit().await?;
    if way == Way::FailAfterCommit {
        return Err("too late to matter".into());
    }
    Ok(())
}

/// Runs one job in the given way, and returns its id.
async fn run(bench: &Bench, way: Way) -> i64 {
    bench
        .sql
        .batch_execute("create table effect (n int)")
        .await
        .unwrap();
    let job = note(1)
        .max_attempts(3)
        .backoff(Backoff::fixed(Duration::ZERO));
    let id = bench.enqueue(job).await;
    let url = bench.db.url().to_owned();
    let gate = Gate::closed();
    let released = gate.clone();
    let worker = start(bench.worker().handle(move |_: Note, ctx: Ctx| {
        let (url, released) = (url.clone(), released.clone());
        async move { effect(&ctx, &url, way, released).await }
    }))
    .await;
    if way == Way::CommitLate {
        let what = "the worker hears that the transaction still has the job";
        bench.until(SOON, what, ACKNOWLEDGED, "true").await;
        gate.let_through(1);
    }
    bench.finish(&worker).await;
    id
}

async fn effects(bench: &Bench) -> i64 {
    bench.number("select count(*) from effect").await
}

#[tokio::test]
async fn a_commit_finishes_the_job_with_its_effects() {
    let bench = Bench::new().await;
    let id = run(&bench, Way::Commit).await;
    let done = bench.finished(id).await;
    assert_eq!(
        (&done["result"], &done["failures"]),
        (&json!({"attempt": 1}), &json!(0))
    );
    assert_eq!(effects(&bench).await, 1);
}

#[tokio::test]
async fn a_rollback_counts_as_a_failure_that_says_so() {
    let bench = Bench::new().await;
    let id = run(&bench, Way::RollBack).await;
    let done = bench.finished(id).await;
    assert_eq!(
        (&done["result"], &done["failures"]),
        (&json!({"attempt": 2}), &json!(1))
    );
    assert!(errors(&done)[0].contains("was not committed"), "{done}");
    assert_eq!(
        effects(&bench).await,
        1,
        "only the committed attempt has effects"
    );
}

#[tokio::test]
async fn an_error_after_the_commit_changes_nothing() {
    let bench = Bench::new().await;
    let id = run(&bench, Way::FailAfterCommit).await;
    let done = bench.finished(id).await;
    assert_eq!(
        (&done["attempt"], &done["errors"]),
        (&json!(1), &json!(null))
    );
    assert_eq!(effects(&bench).await, 1);
}

#[tokio::test]
async fn a_commit_after_the_handler_has_returned_counts() {
    let bench = Bench::new().await;
    let id = run(&bench, Way::CommitLate).await;
    let done = bench.finished(id).await;
    assert_eq!(
        (&done["attempt"], &done["failures"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(effects(&bench).await, 1);
}

#[tokio::test]
async fn with_a_lost_lease_it_is_an_error_and_the_transaction_is_not_to_be_committed() {
    let bench = Bench::new().await;
    bench.enqueue(note(1)).await;
    let told: Tally<String> = Tally::new();
    let gate = Gate::closed();
    let (tally, door, url) = (told.clone(), gate.clone(), bench.db.url().to_owned());
    let worker = start(bench.worker().handle(move |_: Note, ctx: Ctx| {
        let (told, gate, url) = (tally.clone(), door.clone(), url.clone());
        async move {
            told.add("started".into());
            gate.pass().await;
            let (mut sql, connection) =
                tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            let mut tx = Tx(sql.transaction().await?);
            let refused = ctx.complete_in_tx(&mut tx).await;
            told.add(format!(
                "{}",
                matches!(refused, Err(Error::LeaseLost { .. }))
            ));
            told.add(format!("{:?}", ctx.cancel_reason()));
            refused.map_err(BoxError::from)
        }
    }))
    .await;
    told.reach(1).await;
    bench.steal().await;
    gate.let_through(1);
    assert_eq!(told.reach(3).await[1..], ["true", "Some(LeaseLost)"]);
    bench.finish_leased(&worker).await;
    assert_eq!(
        bench.counts().await,
        (1, 0, 0),
        "the new attempt still has it"
    );
}

/// Our own renewal of the lease made it fail.
#[tokio::test]
async fn a_row_that_is_locked_for_a_moment_is_waited_for() {
    let bench = Bench::new().await;
    let id = bench.enqueue(note(1)).await;
    let told: Tally<String> = Tally::new();
    let gate = Gate::closed();
    let (tally, door, url) = (told.clone(), gate.clone(), bench.db.url().to_owned());
    let worker = start(bench.worker().handle(move |_: Note, ctx: Ctx| {
        let (told, gate, url) = (tally.clone(), door.clone(), url.clone());
        async move {
            let (mut sql, connection) =
                tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            let mut tx = Tx(sql.transaction().await?);
            told.add("started".into());
            gate.pass().await;
            told.add("completing".into());
            ctx.complete_in_tx(&mut tx).await?;
            Ok::<_, BoxError>(tx.0.commit().await?)
        }
    }))
    .await;
    told.reach(1).await;
    let mut other = bench.db.connect().await.unwrap();
    let lock = other.transaction().await.unwrap();
    lock.execute("select from rowlock.job where id = $1 for update", &[&id])
        .await
        .unwrap();
    gate.let_through(1);
    told.reach(2).await;
    let what = "the handler hears that somebody has the row";
    bench.until(SOON, what, TRIED_IN_TX, "true").await;
    lock.rollback().await.unwrap();
    bench.finish(&worker).await;
    let done = bench.finished(id).await;
    assert_eq!(
        (&done["attempt"], &done["failures"]),
        (&json!(1), &json!(0)),
        "{done}"
    );
}

/// The renewal found the job gone, and told the handler that its lease was lost.
#[tokio::test]
async fn a_handler_that_goes_on_after_its_commit_is_left_alone() {
    let bench = Bench::new().await;
    let id = bench.enqueue(note(1)).await;
    let told: Tally<String> = Tally::new();
    let (tally, url) = (told.clone(), bench.db.url().to_owned());
    let builder = bench.worker().lease(Duration::from_secs(1));
    let worker = start(builder.handle(move |_: Note, ctx: Ctx| {
        let (told, url) = (tally.clone(), url.clone());
        async move {
            effectless(&ctx, &url).await?;
            // For more than two leases, in which it would have been told.
            let reason = tokio::time::timeout(Duration::from_millis(2500), ctx.cancelled()).await;
            told.add(format!("{reason:?}"));
            Ok::<_, BoxError>(())
        }
    }))
    .await;
    assert_eq!(told.reach(1).await, ["Err(Elapsed(()))"]);
    bench.finish(&worker).await;
    assert_eq!(bench.finished(id).await["attempt"], 1);
}

async fn effectless(ctx: &Ctx, url: &str) -> Result<(), BoxError> {
    let (mut sql, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    let mut tx = Tx(sql.transaction().await?);
    ctx.complete_in_tx(&mut tx).await?;
    Ok(tx.0.commit().await?)
}

#[tokio::test]
async fn what_was_done_once_is_not_done_again() {
    let bench = Bench::new().await;
    let job = note(1)
        .max_attempts(3)
        .backoff(Backoff::fixed(Duration::ZERO));
    let id = bench.enqueue(job).await;
    let told: Tally<String> = Tally::new();
    let tally = told.clone();
    let worker = start(bench.worker().handle(move |_: Note, ctx: Ctx| {
        let told = tally.clone();
        async move {
            let charge = || async {
                told.add(format!("charged in attempt {}", ctx.attempt()));
                Ok::<_, Fail>(json!({"receipt": ctx.attempt()}))
            };
            let receipt = ctx.once("charge", charge).await?;
            told.add(receipt.to_string());
            let refused: Result<i64, Error> = ctx
                .once("mail", || async {
                    told.add(format!("mail {}", ctx.attempt()));
                    if ctx.attempt() < 3 {
                        Err("the mail is down")
                    } else {
                        Ok(1)
                    }
                })
                .await;
            // Another type than what is stored is an error, not a second charge.
            assert!(
                ctx.once::<bool, Fail, _, _>("charge", || async { Ok(true) })
                    .await
                    .is_err()
            );
            refused.map(drop)
        }
    }))
    .await;
    bench.finish(&worker).await;
    assert_eq!(
        told.all(),
        [
            "charged in attempt 1",
            "{\"receipt\":1}",
            "mail 1",
            "{\"receipt\":1}",
            "mail 2",
            "{\"receipt\":1}",
            "mail 3"
        ]
    );
    let done = bench.finished(id).await;
    assert_eq!(done["failures"], 2);
    assert!(errors(&done)[0].contains("mail"), "{done}");
}

#[tokio::test]
async fn progress_is_seen_while_the_job_runs() {
    let bench = Bench::new().await;
    let id = bench.enqueue(note(1)).await;
    let (told, gate) = (Tally::new(), Gate::closed());
    let (tally, door) = (told.clone(), gate.clone());
    let worker = start(bench.worker().handle(move |_: Note, ctx: Ctx| {
        let (told, gate) = (tally.clone(), door.clone());
        async move {
            ctx.progress(&json!({"done": 40, "of": 100})).await?;
            told.add(1);
            gate.pass().await;
            let nul = ctx.progress(&"\0").await.unwrap_err();
            let large = ctx.progress(&"x".repeat(70_000)).await.unwrap_err();
            assert!(nul.to_string().contains("NUL"), "{nul}");
            assert!(large.to_string().contains("too large"), "{large}");
            Ok::<_, Error>(())
        }
    }))
    .await;
    told.reach(1).await;
    let job = bench.live(id).await.expect("it runs");
    assert_eq!(job["progress"], json!({"done": 40, "of": 100}));
    gate.let_through(1);
    bench.finish(&worker).await;
    assert_eq!(bench.finished(id).await["errors"], json!(null));
    within(SOON, "the worker has stopped", worker.stopped()).await;
}

/// The job is gone with the handler's transaction: that is no loss, and nobody stops the handler for it.
#[tokio::test]
async fn progress_after_the_end_is_nothing() {
    let bench = Bench::new().await;
    let id = bench.enqueue(note(1)).await;
    let url = bench.db.url().to_owned();
    let worker = start(bench.worker().handle(move |_: Note, ctx: Ctx| {
        let url = url.clone();
        async move {
            let (mut sql, connection) =
                tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            let mut tx = Tx(sql.transaction().await?);
            ctx.complete_in_tx(&mut tx).await?;
            tx.0.commit().await?;
            ctx.progress(&"all of it").await?;
            assert_eq!(ctx.cancel_reason(), None);
            Ok::<_, BoxError>(())
        }
    }))
    .await;
    bench.finish(&worker).await;
    let job = bench.finished(id).await;
    assert_eq!((&job["attempt"], &job["errors"]), (&json!(1), &json!(null)));
}
