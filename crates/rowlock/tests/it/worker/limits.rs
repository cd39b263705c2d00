//! How many at once, and which first.

use std::time::Duration;

use rowlock::{Ctx, NewJob, Order, Queue};

use super::kit::{Bench, Crowd, Gate, Note, SOON, Tally, note, notes, start, within};

fn on(queue: &'static str) -> impl Fn(NewJob) -> NewJob {
    move |job| job.queue(queue)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_per_queue_and_in_total_are_used_up_and_never_passed() {
    let bench = Bench::new().await;
    for (queue, n) in [("a", 60), ("b", 60), ("c", 200)] {
        bench.enqueue_all(notes(n).map(on(queue))).await;
    }
    let (all, a, b) = (Crowd::default(), Crowd::default(), Crowd::default());
    let (started, gate) = (Tally::new(), Gate::closed());
    let crowds = (all.clone(), a.clone(), b.clone());
    let (tally, door) = (started.clone(), gate.clone());
    let builder = rowlock::Worker::builder(bench.client.clone())
        .queue(Queue::named("a").concurrency(3))
        .queue(Queue::named("b").concurrency(2))
        .queue("c")
        .concurrency(8)
        .handle(move |job: Note, ctx: Ctx| {
            let (all, a, b) = crowds.clone();
            let (started, gate) = (tally.clone(), door.clone());
            async move {
                let _all = all.enter();
                let _one = match ctx.queue() {
                    "a" => Some(a.enter()),
                    "b" => Some(b.enter()),
                    _ => None,
                };
                started.add(job.n);
                gate.pass().await;
            }
        });
    let worker = start(builder).await;
    // With nobody let through, exactly as many are running as may.
    started.reach(8).await;
    assert_eq!(worker.running(), 8);
    for n in 1..=150 {
        gate.let_through(1);
        started.reach(8 + n).await;
    }
    gate.let_through(320);
    within(SOON, "the queues are drained", worker.drained()).await;
    within(SOON, "the worker stops", worker.shutdown()).await;
    assert_eq!((all.most(), a.most(), b.most()), (8, 3, 2));
    bench.assert_all_done(320).await;
}

/// Runs what is there, one at a time, and returns the queues in the order in which they were served.
async fn order_of(bench: &Bench, builder: rowlock::WorkerBuilder) -> Vec<String> {
    let told: Tally<String> = Tally::new();
    let tally = told.clone();
    let worker = start(builder.concurrency(1).handle(move |job: Note, ctx: Ctx| {
        tally.add(format!("{}{}", ctx.queue(), job.n));
        async {}
    }))
    .await;
    bench.finish(&worker).await;
    told.all()
}

#[tokio::test]
async fn strict_order_serves_the_first_queue_as_long_as_it_has_jobs() {
    let bench = Bench::new().await;
    bench.enqueue_all(notes(3).map(on("b"))).await;
    bench.enqueue_all(notes(3).map(on("a"))).await;
    let builder = rowlock::Worker::builder(bench.client.clone())
        .queue("a")
        .queue("b")
        .order(Order::Strict);
    assert_eq!(
        order_of(&bench, builder).await,
        ["a0", "a1", "a2", "b0", "b1", "b2"]
    );
}

/// Queues named outright came before all patterns, whatever the order in which they were added.
#[tokio::test]
async fn strict_order_is_the_order_of_the_subscriptions_also_for_patterns() {
    let bench = Bench::new().await;
    bench.enqueue_all(notes(2).map(on("plain"))).await;
    bench.enqueue_all(notes(2).map(on("vip-1"))).await;
    let builder = rowlock::Worker::builder(bench.client.clone())
        .queue("vip-*")
        .queue("plain")
        .order(Order::Strict);
    assert_eq!(
        order_of(&bench, builder).await,
        ["vip-10", "vip-11", "plain0", "plain1"]
    );
}

/// With one free slot at a time, the same queue was asked first each time, and the other starved.
#[tokio::test]
async fn weights_share_a_single_slot() {
    let bench = Bench::new().await;
    for queue in ["a", "b"] {
        bench.enqueue_all(notes(100).map(on(queue))).await;
    }
    let builder = rowlock::Worker::builder(bench.client.clone())
        .queue(Queue::named("a").weight(3))
        .queue(Queue::named("b").weight(1))
        .ahead(0);
    let order = order_of(&bench, builder).await;
    let a = order[..100].iter().filter(|s| s.starts_with('a')).count();
    assert!(
        (58..=92).contains(&a),
        "{a} of the first 100 are of the queue that should have 3 of 4"
    );
    assert_eq!(order.len(), 200);
}

#[tokio::test]
async fn weights_share_what_is_claimed_ahead() {
    let bench = Bench::new().await;
    for queue in ["a", "b"] {
        bench.enqueue_all(notes(300).map(on(queue))).await;
    }
    let builder = rowlock::Worker::builder(bench.client.clone())
        .queue(Queue::named("a").weight(3))
        .queue(Queue::named("b").weight(1));
    let order = order_of(&bench, builder).await;
    let a = order[..200].iter().filter(|s| s.starts_with('a')).count();
    assert!(
        (115..=185).contains(&a),
        "{a} of the first 200 are of the queue that should have 3 of 4"
    );
}

#[tokio::test]
async fn higher_priorities_go_first_and_equals_in_the_order_they_came() {
    let bench = Bench::new().await;
    let priorities = [0, -4, 4, 0, 2, 4, -1];
    let jobs = (0..).zip(priorities).map(|(n, p)| note(n).priority(p));
    bench.enqueue_all(jobs).await;
    assert_eq!(
        order_of(&bench, bench.worker()).await,
        [2, 5, 4, 0, 3, 6, 1].map(|n| format!("default{n}"))
    );
}

#[tokio::test]
async fn queues_that_appear_later_are_served_if_the_pattern_means_them() {
    let bench = Bench::new().await;
    let told: Tally<String> = Tally::new();
    let tally = told.clone();
    let builder = rowlock::Worker::builder(bench.client.clone())
        .queue(Queue::matching("tenant-*").concurrency(2))
        .poll(Duration::from_secs(3600))
        .handle(move |job: Note, ctx: Ctx| {
            tally.add(format!("{} {}", ctx.queue(), job.n));
            async {}
        });
    let worker = start(builder).await;
    let others = bench.enqueue(note(0).queue("other")).await;
    for n in 1..=3 {
        let queue = format!("tenant-{n}");
        bench.enqueue(note(n).queue(queue.clone())).await;
        let told = told.reach(usize::try_from(n).unwrap()).await;
        assert_eq!(told.last(), Some(&format!("{queue} {n}")));
    }
    within(SOON, "the worker stops", worker.shutdown()).await;
    assert!(bench.live(others).await.is_some(), "nobody serves it");
}

#[tokio::test]
async fn nothing_is_claimed_ahead_of_handlers_whose_pace_is_unknown() {
    let bench = Bench::new().await;
    bench.enqueue_all(notes(50)).await;
    let (started, gate) = (Tally::new(), Gate::closed());
    let (tally, door) = (started.clone(), gate.clone());
    let worker = start(bench.worker().concurrency(2).handle(move |job: Note| {
        let (started, gate) = (tally.clone(), door.clone());
        async move {
            started.add(job.n);
            gate.pass().await;
        }
    }))
    .await;
    assert_eq!(started.reach(2).await, [0, 1]);
    let leased = "select count(*) from rowlock.job where lease_until > clock_timestamp()";
    assert_eq!(
        bench.number(leased).await,
        2,
        "the others may be run by others"
    );
    gate.let_through(100);
    bench.finish(&worker).await;
    bench.assert_all_done(50).await;
}
