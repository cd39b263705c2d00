//! Handlers that take several jobs at once.

use rowlock::{Ctx, Item, NewJob, Outcome, State};
use serde_json::json;

use super::kit::{Bench, Gate, Note, SOON, Tally, errors, note, notes, start, within};

#[tokio::test]
async fn jobs_come_in_chunks_and_each_has_its_own_outcome() {
    let bench = Bench::new().await;
    let ids = bench
        .enqueue_all(notes(25).map(|j| j.max_attempts(1)))
        .await;
    let sizes: Tally<usize> = Tally::new();
    let handler = |jobs: Vec<Item<Note>>, State(sizes): State<Tally<usize>>| async move {
        sizes.add(jobs.len());
        jobs.iter()
            .map(|item| match item.job.n {
                3 => Outcome::dead("not the third"),
                4 => Outcome::retry(format!("job {} failed", item.ctx.id())),
                5 => Outcome::Cancel("not wanted".into()),
                n => Outcome::done(&n),
            })
            .collect::<Vec<_>>()
    };
    let worker = start(
        bench
            .worker()
            .concurrency(1)
            .state(sizes.clone())
            .handle_batch(10, handler),
    )
    .await;
    bench.finish(&worker).await;
    let sizes = sizes.all();
    assert_eq!(sizes.iter().sum::<usize>(), 25, "{sizes:?}");
    assert!(sizes.iter().all(|n| *n <= 10), "{sizes:?}");
    assert_eq!(sizes[0], 10, "all were waiting, so the first is full");
    assert_eq!(errors(&bench.dead(ids[3]).await), ["not the third"]);
    assert_eq!(
        errors(&bench.dead(ids[4]).await),
        [format!("job {} failed", ids[4])]
    );
    assert_eq!(bench.finished(ids[5]).await["outcome"], "cancelled");
    assert_eq!(bench.finished(ids[6]).await["result"], 6);
    assert_eq!(bench.counts().await, (0, 22, 2));
}

#[tokio::test]
async fn a_payload_that_cannot_be_read_fails_alone() {
    let bench = Bench::new().await;
    let bad = NewJob::new("note", &json!({"n": "seven"})).unwrap();
    let ids = bench
        .enqueue_all([note(1), bad.max_attempts(1), note(2)])
        .await;
    let told: Tally<Vec<i64>> = Tally::new();
    let tally = told.clone();
    let worker = start(bench.worker().concurrency(1).handle_batch(
        10,
        move |jobs: Vec<Item<Note>>| {
            tally.add(jobs.iter().map(|item| item.job.n).collect());
            async {}
        },
    ))
    .await;
    bench.finish(&worker).await;
    assert_eq!(told.all(), [[1, 2]]);
    let dead = bench.dead(ids[1]).await;
    assert!(
        errors(&dead)[0].contains("\"note\"") && errors(&dead)[0].contains("i64"),
        "{dead}"
    );
    assert_eq!(bench.counts().await, (0, 2, 1));
}

#[tokio::test]
async fn what_stands_beside_the_items_is_of_the_first_that_can_be_read() {
    let bench = Bench::new().await;
    let bad = NewJob::new("note", &json!({"n": "seven"})).unwrap();
    let ids = bench
        .enqueue_all([bad.max_attempts(1), note(1), note(2)])
        .await;
    let told: Tally<String> = Tally::new();
    let tally = told.clone();
    let worker = start(bench.worker().concurrency(1).handle_batch(
        10,
        move |_: Vec<Item<Note>>, ctx: Ctx| {
            tally.add(ctx.id().to_string());
            async {}
        },
    ))
    .await;
    bench.finish(&worker).await;
    assert_eq!(told.all(), [ids[1].to_string()]);
    assert_eq!(bench.counts().await, (0, 2, 1));
}

#[tokio::test]
async fn a_batch_that_panics_fails_all_of_its_jobs_and_a_short_answer_the_rest() {
    let bench = Bench::new().await;
    let ids = bench
        .enqueue_all(notes(3).map(|j| j.max_attempts(2).backoff(at_once())))
        .await;
    let gate = Gate::closed();
    gate.let_through(2);
    let passes = gate.clone();
    let worker = start(bench.worker().concurrency(1).handle_batch(
        10,
        move |jobs: Vec<Item<Note>>| {
            let gate = passes.clone();
            async move {
                gate.pass().await;
                assert!(jobs[0].ctx.failures() > 0, "the first time is bad");
                // One answer, however many they are.
                vec![Ok::<(), String>(())]
            }
        },
    ))
    .await;
    within(SOON, "both attempts are over", worker.drained()).await;
    bench.finish(&worker).await;
    assert_eq!(bench.finished(ids[0]).await["failures"], 1);
    for id in &ids[1..] {
        assert_eq!(
            errors(&bench.dead(*id).await),
            [
                "panicked: the first time is bad",
                "the batch handler answered for 1 jobs of 3"
            ]
        );
    }
}

fn at_once() -> rowlock::Backoff {
    rowlock::Backoff::fixed(std::time::Duration::ZERO)
}
