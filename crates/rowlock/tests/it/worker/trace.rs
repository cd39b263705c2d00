//! A trace goes from the one who enqueues to the run, and on to what the handler enqueues.

use rowlock::{Ctx, NewJob, RawJob};
use serde_json::json;

use super::kit::{Bench, Note, Tally, Tx, note, raw, start};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn a_trace_is_carried_on() {
    let bench = Bench::new().await;
    let told: Tally<String> = Tally::new();
    let (first, blocking, child) = (told.clone(), told.clone(), told.clone());
    let url = bench.db.url().to_owned();
    bench.enqueue(note(1).trace(PARENT)).await;
    bench.enqueue(raw("untraced")).await;
    let worker = start(
        bench
            .worker()
            .handle(move |_: Note, ctx: Ctx| {
                let (told, url) = (first.clone(), url.clone());
                async move {
                    told.add(format!("first {:?}", ctx.trace()));
                    let client = ctx.client();
                    let child = |how: &str| NewJob::new("child", &json!({ "how": how })).unwrap();
                    client.enqueue_new(child("one")).await.unwrap();
                    client.enqueue_all([child("many")]).await.unwrap();
                    client
                        .enqueue_new(child("own").trace("its own"))
                        .await
                        .unwrap();
                    let (mut sql, connection) =
                        tokio_postgres::connect(&url, tokio_postgres::NoTls)
                            .await
                            .unwrap();
                    tokio::spawn(connection);
                    let mut tx = Tx(sql.transaction().await.unwrap());
                    client
                        .enqueue_new(child("in tx"))
                        .in_tx(&mut tx)
                        .await
                        .unwrap();
                    tx.0.commit().await.unwrap();
                    client.enqueue_new(raw("blocking")).await.unwrap();
                }
            })
            .handle_blocking(move |_: Blocking, ctx: Ctx| {
                blocking.add(format!("blocking {:?}", ctx.trace()));
                let handle = tokio::runtime::Handle::current();
                let job = NewJob::new("child", &json!({"how": "blocking"})).unwrap();
                handle
                    .block_on(async { ctx.client().enqueue_new(job).await })
                    .unwrap();
            })
            .handle_kind("child", move |job: RawJob, ctx: Ctx| {
                child.add(format!("{} {:?}", job.payload, ctx.trace()));
                async {}
            })
            .handle_kind("untraced", |_, ctx: Ctx| async move {
                assert_eq!(ctx.trace(), None);
            }),
    )
    .await;
    told.reach(7).await;
    bench.finish(&worker).await;
    let mut told = told.all();
    told.sort();
    assert_eq!(
        told,
        [
            format!("blocking Some({PARENT:?})"),
            format!("first Some({PARENT:?})"),
            format!("{{\"how\": \"blocking\"}} Some({PARENT:?})"),
            format!("{{\"how\": \"in tx\"}} Some({PARENT:?})"),
            format!("{{\"how\": \"many\"}} Some({PARENT:?})"),
            format!("{{\"how\": \"one\"}} Some({PARENT:?})"),
            "{\"how\": \"own\"} Some(\"its own\")".to_owned(),
        ]
    );
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Blocking {}

impl rowlock::Job for Blocking {
    const KIND: &'static str = "blocking";
}
