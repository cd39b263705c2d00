//! What does not fit the table is refused at the start, each with an error of its own.

use rowlock::{Client, TableQueue, TableRow};

use super::*;

async fn refusal(client: &Client, builder: TableQueueBuilder) -> String {
    let builder = builder.handler(async |_: TableRow<serde_json::Value>| {});
    builder.build(client).await.unwrap_err().to_string()
}

fn over(table: &str) -> TableQueueBuilder {
    TableQueue::builder(table).on_done(OnDone::Delete)
}

#[tokio::test]
async fn each_misfit_is_named() {
    let f = Fixture::new().await;
    f.sql(
        "create view items_view as select * from work_items;
         create table no_key (a int, b int not null, c int not null);
         create unique index on no_key (a);
         create unique index on no_key (c) where c > 0",
    )
    .await;
    let bad = [
        (
            over("no_such_table"),
            r#"there is no table "no_such_table" in the search_path"#,
        ),
        (over("nowhere.work_items"), r#"in schema "nowhere""#),
        (over("items_view"), "items_view is a view"),
        (over("no_key"), "public.no_key has no primary key"),
        (over("no_key").key(["a"]), "may be null"),
        (
            over("no_key").key(["b"]),
            r#"key ("b") of public.no_key is not unique"#,
        ),
        // A partial index does not make it unique.
        (over("no_key").key(["c"]), "is not unique"),
        (
            over("work_items").key(["Id", "nope"]),
            r#"key: public.work_items has no column "nope": it has "id", "created_at""#,
        ),
        (
            over("work_items").columns(["nope"]),
            r#"columns: public.work_items has no column "nope""#,
        ),
        (
            over("work_items").pending("stat = 1"),
            r#"column "stat" does not exist"#,
        ),
        (over("work_items").pending("note"), "must be type boolean"),
        (
            over("work_items").pending("id = $1"),
            "it has a parameter ($1)",
        ),
        (
            over("work_items").pending("true; drop table ledger"),
            "syntax error",
        ),
        (
            over("work_items").order_by("nope"),
            r#"order_by "nope" does not fit public.work_items"#,
        ),
        (
            items().on_done(OnDone::set("status = 1 +")),
            r#"on_done "status = 1 +" does not fit"#,
        ),
        (
            items().on_failed(OnFailed::default().set("nope = 1")),
            r#"on_failed "nope = 1" does not fit"#,
        ),
    ];
    for (builder, text) in bad {
        let error = refusal(&f.client, builder).await;
        assert!(error.contains(text), "{error}\n  should say: {text}");
    }
    assert_eq!(f.number("select count(*) from ledger").await, 0);
}

#[tokio::test]
async fn each_missing_privilege_is_named_with_its_grant() {
    let f = Fixture::new().await;
    let role = format!("reader_{}", f.db.name());
    f.sql(&format!(
        "create role {role} login; select rowlock.grant_access('{role}', 'worker');
         create schema closed; create table closed.items (id int primary key)"
    ))
    .await;
    let client = f.client_with(&format!("-c%20role%3D{role}"));

    let error = refusal(&client, over("closed.items")).await;
    assert!(error.contains(r#"may not use schema "closed""#), "{error}");
    let error = refusal(&client, over("work_items")).await;
    let grant = format!(r#"grant select, update, delete on "public"."work_items" to "{role}""#);
    assert!(error.contains(&grant), "{error}");
    f.sql(&format!(
        "grant select, update (status) on work_items to {role}"
    ))
    .await;
    let error = refusal(&client, over("work_items")).await;
    assert!(error.contains("grant delete on"), "{error}");
    drop(client);
    f.sql(&format!("drop owned by {role}; drop role {role}"))
        .await;
}

#[tokio::test]
async fn failures_with_another_key_are_not_taken_for_ours() {
    let f = Fixture::with_items(1).await;
    f.sql(
        "insert into rowlock.table_failure values ('public.work_items', 'not a number', 1, 0, 'infinity', now(), 'x')",
    )
    .await;
    let queue = items()
        .handler(async |_: TableRow<Item>| {})
        .build(&f.client)
        .await
        .unwrap();
    let error = soon(queue.drain()).await.unwrap_err().to_string();
    assert!(
        error.contains("with another key") && error.contains("delete from rowlock.table_failure"),
        "{error}"
    );
}

#[tokio::test]
async fn without_the_queues_schema_nothing_starts() {
    let db = TestDb::new().await.unwrap();
    let pg = db.connect().await.unwrap();
    pg.batch_execute(ITEMS).await.unwrap();
    let error = refusal(&client(db.url()), over("work_items")).await;
    assert!(error.contains("run `rowlock migrate`"), "{error}");
}

/// The guide's SQL makes a table that its settings fit, and its index is the one that claims use.
#[tokio::test]
async fn the_guide_works() {
    let guide = include_str!("../../../../../docs/guide/any-table-as-a-queue.md");
    let sql: String = guide
        .split("```sql\n")
        .skip(1)
        .take(2)
        .map(|block| block.split("```").next().unwrap())
        .collect();
    let f = Fixture::new().await;
    f.sql("drop table work_items").await;
    // Not in a transaction with others, as `concurrently` asks for.
    for statement in sql.split_inclusive(';').filter(|s| s.contains("create")) {
        f.sql(statement).await;
    }
    let settings: Vec<&str> = guide.lines().map(str::trim).collect();
    for setting in [
        r#".pending("status = 'pending'")"#,
        r#".order_by("created_at, id")"#,
        r#".on_done(OnDone::set("status = 'done', done_at = now()"))"#,
    ] {
        assert!(settings.contains(&setting), "{setting}");
    }
    let queue = items()
        .on_failed(OnFailed::park_after(5).set("status = 'failed'"))
        .handler(async |_: TableRow<serde_json::Value>| {})
        .build(&f.client)
        .await
        .unwrap();
    f.sql("insert into work_items (payload) values ('{}'), ('{}')")
        .await;
    let plan = queue.explain().await.unwrap();
    assert!(plan.contains("Index Scan using work_items_"), "{plan}");
    assert_eq!(soon(queue.drain()).await.unwrap().done, 2);
}
