//! Many small jobs, one insert: a batch handler gets as many as are there, up to a limit, and answers for each.
//!
//! ```text
//! cargo run -p rowlock-examples --bin batch_inserts
//! ```

use rowlock::{Item, Job, Outcome, State, Worker};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "click", queue = "clicks")]
struct Click {
    page: String,
}

/// Stores a whole batch with one statement. What cannot be stored is answered for by itself.
async fn store(
    clicks: Vec<Item<Click>>,
    State(url): State<String>,
) -> anyhow::Result<Vec<Outcome>> {
    println!("storing up to {} clicks at once", clicks.len());
    let (mut pages, mut outcomes) = (Vec::new(), Vec::new());
    for Item { job, .. } in clicks {
        if job.page.is_empty() {
            outcomes.push(Outcome::dead("a click without a page"));
        } else {
            pages.push(job.page);
            outcomes.push(Outcome::Done(None));
        }
    }
    let pg = rowlock_examples::connect(&url).await?;
    pg.execute(
        "insert into click (page) select unnest($1::text[])",
        &[&pages],
    )
    .await?;
    Ok(outcomes)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let db = rowlock_examples::database().await?;
    let pg = rowlock_examples::connect(&db.url).await?;
    pg.batch_execute("create table if not exists click (page text not null); truncate click")
        .await?;

    let page = |n: u32| match n {
        13 => String::new(),
        n => format!("/page/{n}"),
    };
    let clicks = (1..=1000).map(|n| Click { page: page(n) });
    db.client.enqueue_many(clicks).await?;

    let worker = Worker::builder(db.client.clone())
        .queue("clicks")
        .state(db.url.clone())
        .handle_batch(250, store)
        .build()?;
    let stopped = worker.drain().await?;
    let stored: i64 = pg
        .query_one("select count(*) from click", &[])
        .await?
        .get(0);
    println!("handled {}, stored {stored}", stopped.handled);
    anyhow::ensure!((stopped.handled, stored) == (1000, 999));
    Ok(())
}
