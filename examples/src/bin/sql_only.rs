//! A worker without the library: nothing but SQL over an ordinary connection, as it would be written in any language.
//!
//! Claim a few jobs, do the work, say what became of each. The three values that identify an attempt are queue, id and token.
//!
//! ```text
//! cargo run -p rowlock-examples --bin sql_only
//! ```

use tokio_postgres::Client;

/// The work itself.
fn resize(payload: &serde_json::Value) -> Result<serde_json::Value, String> {
    match payload["width"].as_i64() {
        Some(width) if width > 0 => Ok(serde_json::json!({"bytes": width * 3})),
        _ => Err(format!("width {} is no width", payload["width"])),
    }
}

/// One round: claims up to ten jobs and deals with them. Returns how many there were.
async fn round(pg: &Client) -> anyhow::Result<usize> {
    // In a transaction of its own, which autocommit is.
    let jobs = pg
        .query(
            "select queue, id, token, payload from rowlock.claim('{images}', 10, lease_ms => 30000)",
            &[],
        )
        .await?;
    for job in &jobs {
        let (queue, id, token): (&str, i64, i64) = (job.get(0), job.get(1), job.get(2));
        let payload: serde_json::Value = job.get(3);
        let answer = match resize(&payload) {
            Ok(result) => {
                pg.query_one(
                    "select done, lost from rowlock.complete($1, array[$2::bigint], array[$3::bigint], results => array[$4::jsonb])",
                    &[&queue, &id, &token, &result],
                )
                .await?
            }
            Err(error) => {
                pg.query_one(
                    "select done, lost from rowlock.fail($1, array[$2::bigint], array[$3::bigint], array[$4::text])",
                    &[&queue, &id, &token, &error],
                )
                .await?
            }
        };
        // Lost: the lease ran out and the job is somebody else's by now. What was said of it changed nothing.
        let lost: Vec<i64> = answer.get(1);
        println!(
            "job {id}: {}",
            if lost.is_empty() { "answered" } else { "lost" }
        );
    }
    Ok(jobs.len())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let db = rowlock_examples::database().await?;
    let pg = rowlock_examples::connect(&db.url).await?;
    pg.batch_execute(
        "select rowlock.enqueue('resize', '{\"width\": 640}', queue => 'images');
         select rowlock.enqueue('resize', '{\"width\": 320}', queue => 'images');
         select rowlock.enqueue('resize', '{\"width\": -1}', queue => 'images', max_attempts => 1);",
    )
    .await?;

    // A service would wait here (LISTEN on the channel `rowlock`, or about a second) instead of ending.
    while round(&pg).await? > 0 {}

    for row in pg
        .query(
            "select outcome, result::text from rowlock.finished where queue = 'images' order by id",
            &[],
        )
        .await?
    {
        println!("{} {}", row.get::<_, &str>(0), row.get::<_, &str>(1));
    }
    let dead = pg
        .query_one(
            "select reason, errors -> -1 ->> 'error' from rowlock.dead where queue = 'images' order by id desc limit 1",
            &[],
        )
        .await?;
    println!(
        "dead ({}): {}",
        dead.get::<_, &str>(0),
        dead.get::<_, &str>(1)
    );
    Ok(())
}
