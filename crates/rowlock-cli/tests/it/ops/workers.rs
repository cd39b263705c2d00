//! `rowlock workers`.

use rowlock_testkit::TestQueue;

use super::support::{redacted, rowlock, sql};

#[tokio::test]
async fn workers_are_listed_the_lost_ones_too() {
    let queue = TestQueue::new().await.unwrap();
    let none = rowlock(&queue, &["workers"]).await.expect(0);
    assert_eq!(none.out, "no worker has been seen lately\n");
    sql(
        &queue,
        "select rowlock.register_worker('a', 'host-a', 1, '0.1.0', '{mail*}', '{}', 10);
         select rowlock.register_worker('b', 'host-b', 2, '0.1.0', '{reports}', '{report}', 5);
         update rowlock.worker set seen_at = seen_at - interval '1 hour' where name = 'b'",
    )
    .await;
    let listed = rowlock(&queue, &["workers"]).await.expect(0);
    assert!(listed.out.contains("lost"), "{}", listed.out);
    let json = rowlock(&queue, &["workers", "--queue", "mail.eu", "--json"])
        .await
        .expect(0)
        .json();
    insta::assert_json_snapshot!(redacted(json));
    let alive = rowlock(&queue, &["workers", "--alive", "--json"])
        .await
        .expect(0)
        .json();
    assert_eq!(alive["workers"].as_array().unwrap().len(), 1);
}
