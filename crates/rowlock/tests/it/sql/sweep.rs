//! Full scans: what they find, when, and what they say of it. (How they go: [`super::slices`].)

use super::kit::{enqueue, installed, is, number, one, rows, run};

#[tokio::test]
async fn a_sweep_finds_what_lies_behind_and_takes_turns() {
    let own = installed().await;
    let (pg, other) = (&own.pg, own.another().await);
    let all = enqueue(pg, 3).await;
    let sweep = "select coalesce(id, 0), coalesce(payload ->> 'more', 'not my turn') from rowlock.sweep('default', 2, 0, 7";
    let before = number(
        pg,
        "select (extract(epoch from clock_timestamp()) * 1000)::bigint",
    )
    .await;
    run(pg, "begin").await;
    assert_eq!(
        rows(pg, &format!("{sweep})")).await,
        [
            format!("{}|not my turn", all[0]),
            format!("{}|not my turn", all[1]),
            "0|true".to_owned()
        ],
        "two jobs, and a last row that says that there may be more"
    );
    assert_eq!(
        rows(&other, &format!("{sweep}, overdue => true)")).await,
        ["0|not my turn"],
        "one at a time in the whole fleet"
    );
    run(pg, "commit").await;
    // When the next one is due is kept in the queue's sequence: a second from now, or later.
    let sequence = one(pg, "select 'rowlock.sweep_' || no % 32 from rowlock.queue").await;
    let due = format!("select pg_sequence_last_value('{sequence}') >= {before} + 1000");
    assert!(
        is(pg, &due).await,
        "the next one is due in a second or more"
    );
    run(
        pg,
        &format!(
            "select setval('{sequence}', ((extract(epoch from now()) + 3600) * 1000)::bigint)"
        ),
    )
    .await;
    assert_eq!(
        rows(&other, &format!("{sweep})")).await,
        ["0|not my turn"],
        "it is not due yet"
    );
    assert_eq!(
        rows(&other, &format!("{sweep}, overdue => true)")).await,
        ["0|not my turn"],
        "an hour is the price of a dear scan, also for one who is overdue"
    );
    run(
        pg,
        &format!("select setval('{sequence}', ((extract(epoch from now()) + 1) * 1000)::bigint)"),
    )
    .await;
    assert_eq!(
        rows(&other, &format!("{sweep}, overdue => true)"))
            .await
            .len(),
        2,
        "the cheap scans of a queue that shares the sequence do not stop one who is overdue"
    );
}

#[tokio::test]
async fn a_sweep_is_not_used_up_by_the_poison_it_puts_away() {
    let own = installed().await;
    let pg = &own.pg;
    enqueue(pg, 50).await;
    run(pg, "update rowlock.job set lease_until = rowlock.clock() - interval '1 s', token = 5, crashes = 9").await;
    let fine = one(pg, "select id from rowlock.enqueue('k')").await;
    assert_eq!(
        rows(
            pg,
            "select coalesce(id, 0), coalesce((payload ->> 'parked')::integer, 0) from rowlock.sweep('default', 5, 0, 7)"
        )
        .await,
        [format!("{fine}|0"), "0|50".to_owned()],
        "all of the poison is parked, and what stood behind it is found"
    );
}

/// The scan goes on after it has put something away. What it found before still has its lease.
#[tokio::test]
async fn a_sweep_says_of_its_jobs_how_long_they_are_leased_whatever_it_finds_last() {
    let own = installed().await;
    let pg = &own.pg;
    enqueue(pg, 2).await;
    run(
        pg,
        "select rowlock.set_queue('default', '{\"retention\": \"0\"}');
         update rowlock.job set lease_until = rowlock.clock() - interval '1 s', token = 5, crashes = 9 where id = (select min(id) from rowlock.job)",
    )
    .await;
    let end = "select payload ->> 'parked', (payload ->> 'lease_until')::timestamptz > rowlock.clock(), payload -> 'max_attempts', payload ->> 'mark' is not null \
               from rowlock.sweep('default', 5, 0, 7) where id is null";
    assert_eq!(one(pg, end).await, "1|t|5|t");
    run(
        pg,
        "select setval(('rowlock.sweep_' || no % 32)::regclass, 1) from rowlock.queue",
    )
    .await;
    assert_eq!(
        one(pg, &end.replace("5, 0, 7", "0, 0, 7")).await,
        "0|null|null|f",
        "who wants none gets none"
    );
}
