//! The claim keeps to the index, whatever the statistics say.

use rowlock::{TableQueue, TableRow};

use super::*;

async fn queue(f: &Fixture) -> TableQueue {
    let built = items()
        .handler(async |_: TableRow<Item>| {})
        .build(&f.client);
    built.await.unwrap()
}

/// The pending rows in their order from the index, and for each a probe of what is remembered.
async fn assert_good_plan(queue: &TableQueue, when: &str) {
    let plan = queue.explain().await.unwrap();
    assert!(
        plan.contains("Index Scan using work_items_pending on work_items"),
        "{when}:\n{plan}"
    );
    assert!(
        plan.contains("Index Scan using table_failure_pkey on table_failure rowlock_f"),
        "{when}:\n{plan}"
    );
    for bad in ["Sort", "Seq Scan", "Hash", "Bitmap"] {
        assert!(!plan.contains(bad), "{when}: {bad}\n{plan}");
    }
}

#[tokio::test]
async fn the_claim_uses_the_index_and_probes_the_failures() {
    let f = Fixture::new().await;
    f.sql("alter table work_items set (autovacuum_enabled = off); alter table rowlock.table_failure set (autovacuum_enabled = off)")
        .await;
    let queue = queue(&f).await;
    assert_good_plan(&queue, "empty, never analysed").await;
    f.add(50_000).await;
    assert_good_plan(&queue, "just loaded, never analysed").await;
    f.sql("analyze work_items").await;
    assert_good_plan(&queue, "analysed").await;
    f.sql("insert into rowlock.table_failure select 'public.work_items', n::text, 1, 0, 'infinity', now(), 'x' from generate_series(1, 20000) n")
        .await;
    assert_good_plan(&queue, "many failures, not analysed").await;
    f.sql("vacuum analyze rowlock.table_failure").await;
    assert_good_plan(&queue, "many failures, analysed").await;
    // Nearly all done when the statistics were taken, and then a load of new ones.
    f.sql("update work_items set status = 'done' where id > 100")
        .await;
    f.sql("vacuum analyze work_items").await;
    f.add(50_000).await;
    assert_good_plan(
        &queue,
        "a load of pending rows that the statistics do not know",
    )
    .await;
    assert!(
        queue
            .index_to_create()
            .contains(r#"on "public"."work_items" (created_at, id) where status = 'pending'"#)
    );
}

#[tokio::test]
async fn the_claim_is_held_to_an_index_only_if_that_fits() {
    let f = Fixture::new().await;
    f.sql("drop index work_items_pending; alter table work_items set (autovacuum_enabled = off)")
        .await;
    f.add(20_000).await;
    f.sql("analyze work_items").await;
    assert!(queue(&f).await.explain().await.unwrap().contains("Sort"));
    // In order, but with all the rows that are done in between: Postgres may choose.
    f.sql("update work_items set status = 'done' where id > 10; create index in_order on work_items (created_at, id); create index by_status on work_items (status); analyze work_items")
        .await;
    let plan = queue(&f).await.explain().await.unwrap();
    assert!(!plan.contains("in_order"), "{plan}");
    // In order within the condition.
    f.sql("create index fits on work_items (status, created_at, id)")
        .await;
    let plan = queue(&f).await.explain().await.unwrap();
    assert!(plan.contains("Index Scan using fits"), "{plan}");
    assert!(!plan.contains("Sort"), "{plan}");
}
