//! Tables of somebody's own as queues: `[table.NAME]`.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use rustix::process::Signal;
use serde_json::json;

use crate::support::{Endpoint, Place, Ran, Reply, Running, program, run};

const TABLE: &str = "create table work_items (
    id bigint primary key generated always as identity, status text not null default 'pending', note text not null default '', big numeric)";

/// A section over that table, with a handler and whatever else.
fn section(more: &str) -> String {
    format!(
        "[table.items]\ntable = \"work_items\"\npending = \"status = 'pending'\"\norder_by = \"id\"\n\
         on_done = {{ set = \"status = 'done'\" }}\n{more}\n"
    )
}

/// A shell script as the handler.
fn script(script: &str, more: &str) -> String {
    let script = serde_json::to_string(script).unwrap();
    section(&format!("command = {script}\n{more}"))
}

async fn place(config: &str) -> Place {
    let place = Place::new(config).await;
    place.sql(TABLE).await;
    place
}

/// The rows as `id=status`, in their order.
async fn rows(place: &Place) -> String {
    let sql =
        "select coalesce(string_agg(id || '=' || status, ' ' order by id), '') from work_items";
    place.ask(sql).await.unwrap()
}

/// What is remembered of failures: key, failures, whether it waits, whether it is parked; then the errors.
async fn remembered(place: &Place) -> String {
    let sql = "select coalesce(string_agg(concat_ws(':', row_key, failures, \
                 case when retry_at = 'infinity' then 'parked' when retry_at = '-infinity' then 'noted' else 'waits' end, error), \
               ' | ' order by row_key), '') from rowlock.table_failure where source = 'items'";
    place.ask(sql).await.unwrap()
}

#[tokio::test]
async fn a_row_is_on_stdin_and_about_it_in_the_environment() {
    let handler = "{ cat; printf ' %s %s %s %s %s %s %s\\n' \"$ROWLOCK_TABLE\" \"$ROWLOCK_ROW_KEY\" \"$ROWLOCK_ATTEMPT\" \
         \"$ROWLOCK_FAILURES\" \"$ROWLOCK_MAX_ATTEMPTS\" \"$ROWLOCK_LAST_ATTEMPT\" \"$ROWLOCK_KEY\"; } >> DIR/seen";
    let config = script(
        handler,
        "columns = [\"id\", \"big\"]\non_failed = { park_after = 1 }",
    );
    let place = place(&config).await;
    place
        .sql("insert into work_items (big) values (12345678901234567890)")
        .await;
    let ran = place.run(&["work", "--drain", "--json"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let answer: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        answer["tables"]["items"],
        json!({"done": 1, "failed": 0, "parked": 0, "snoozed": 0})
    );
    assert_eq!(rows(&place).await, "1=done");
    let seen = std::fs::read_to_string(place.path("seen")).unwrap();
    let schema = place.queue.db().schema();
    assert_eq!(
        seen,
        format!("{{\"id\":1,\"big\":12345678901234567890}} items 1 1 0 1 1 {schema}-items-1\n")
    );
}

#[tokio::test]
async fn every_outcome_of_a_command_has_its_meaning_for_a_row() {
    let handler = "code=$(sed 's/.*code \\([0-9]*\\).*/\\1/'); case $code in \
         20) echo '{\"rowlock\": {\"outcome\": \"snooze\", \"after\": \"1h\"}}';; \
         21) echo '{\"rowlock\": {\"outcome\": \"done\", \"result\": 5}}'; exit 1;; \
         22) echo '{\"rowlock\": {\"outcome\": \"dead\", \"error\": \"no such user\"}}';; \
         *) echo oh no >&2; exit $code;; esac";
    let exits = "exit = { 10 = \"dead\", 11 = \"cancel\", 12 = \"snooze 1h\", 13 = \"retry 1h\", 14 = \"done\" }\n\
         on_failed = { park_after = 3, set = \"status = 'failed'\" }";
    let place = place(&script(handler, exits)).await;
    place
        .sql("insert into work_items (note) select 'code ' || n from unnest('{0,1,10,11,12,13,14,20,21,22}'::int[]) n")
        .await;
    let ran = place.drain().await;
    assert_eq!(
        rows(&place).await,
        "1=done 2=pending 3=failed 4=done 5=pending 6=pending 7=done 8=pending 9=done 10=failed"
    );
    let remembered = remembered(&place).await;
    for part in [
        "2:1:waits:exited with code 1: oh no",
        "3:1:noted:exited with code 10: oh no",
        "5:0:waits:snoozed by its handler",
        "6:1:waits:exited with code 13: oh no",
        "8:0:waits:snoozed by its handler",
        "10:1:noted:no such user",
    ] {
        assert!(remembered.contains(part), "{part} is not in {remembered}");
    }
    assert_eq!(remembered.matches(" | ").count(), 5, "{remembered}");
    assert!(
        ran.out
            .contains("table items: 4 rows done, 2 failures, 2 parked, 2 snoozed"),
        "{}",
        ran.out
    );
    let hour = place.ask("select bool_and(retry_at between clock_timestamp() + '55 min' and clock_timestamp() + '1 h')::text from rowlock.table_failure where row_key in ('5', '6', '8')");
    assert_eq!(hour.await.as_deref(), Some("true"));
}

#[tokio::test]
async fn a_row_that_keeps_failing_is_parked_and_stops_no_other() {
    let handler = "echo \"$ROWLOCK_ROW_KEY $ROWLOCK_ATTEMPT $ROWLOCK_LAST_ATTEMPT\" >> DIR/seen; ! grep -q bad";
    let config = script(
        handler,
        "exit = { other = \"retry 0s\" }\nat_once = 1\non_failed = { park_after = 3, set = \"status = 'failed', note = 'gave up'\" }",
    );
    let place = place(&config).await;
    place
        .sql("insert into work_items (note) values ('bad'), ('good'), ('good')")
        .await;
    place.drain().await;
    assert_eq!(rows(&place).await, "1=failed 2=done 3=done");
    let seen = std::fs::read_to_string(place.path("seen")).unwrap();
    let of_the_bad: Vec<&str> = seen.lines().filter(|l| l.starts_with("1 ")).collect();
    assert_eq!(of_the_bad, ["1 1 0", "1 2 0", "1 3 1"], "{seen}");
    // Made pending again by somebody, it begins anew.
    place
        .sql("update work_items set status = 'pending', note = 'mended' where id = 1")
        .await;
    place.drain().await;
    assert_eq!(rows(&place).await, "1=done 2=done 3=done");
}

#[tokio::test]
async fn rows_are_deleted_if_that_is_what_done_means() {
    let config = "[table.work_items]\ncommand = [\"true\"]\non_done = \"delete\"\n";
    let place = place(config).await;
    place
        .sql("insert into work_items (note) select '' from generate_series(1, 150)")
        .await;
    place.drain().await;
    assert_eq!(rows(&place).await, "");
}

#[tokio::test]
async fn a_row_is_posted_and_the_status_decides() {
    let endpoint = Endpoint::start([
        Reply::status(503).header("retry-after", "3600"),
        Reply::status(422).body("no such account"),
        Reply::status(204),
    ])
    .await;
    let config = section(&format!(
        "url = \"{}\"\nsecret = \"hello\"\nat_once = 1\non_failed = {{ set = \"status = 'failed'\" }}",
        endpoint.url
    ));
    let place = place(&config).await;
    place
        .sql("insert into work_items (note) values ('a'), ('b'), ('c')")
        .await;
    place.drain().await;
    assert_eq!(rows(&place).await, "1=pending 2=failed 3=done");
    let remembered = remembered(&place).await;
    assert!(
        remembered.contains("1:1:waits:") && remembered.contains("answered 503"),
        "{remembered}"
    );
    assert!(remembered.contains("no such account"), "{remembered}");
    let wait = place.ask("select (retry_at > clock_timestamp() + '55 min')::text from rowlock.table_failure where row_key = '1'");
    assert_eq!(wait.await.as_deref(), Some("true"));

    let requests = endpoint.requests();
    let body = requests[0].json();
    let key = format!("{}-items-1", place.queue.db().schema());
    assert_eq!(
        body,
        json!({"table": "items", "row_key": "1", "attempt": 1, "failures": 0, "max_attempts": 5, "key": key,
               "payload": {"id": 1, "status": "pending", "note": "a", "big": null}})
    );
    assert_eq!(requests[0].header("webhook-id"), key);
    assert_eq!(requests[0].header("idempotency-key"), key);
    assert!(requests[0].header("webhook-signature").starts_with("v1,"));
}

#[tokio::test]
async fn what_does_not_fit_the_table_is_said_at_the_start() {
    let command = "command = \"touch DIR/ran\"";
    let fine = section(command);
    for (config, wanted) in [
        (
            fine.replace("work_items", "work_itmes"),
            "[table.items] cannot be used: there is no table \"work_itmes\"",
        ),
        (
            section(&format!("{command}\nkey = [\"idd\"]")),
            "has no column \"idd\": it has \"id\", \"status\"",
        ),
        (
            section(&format!("{command}\ncolumns = [\"nope\"]")),
            "has no column \"nope\"",
        ),
        (
            section(&format!("{command}\nkey = [\"note\"]")),
            "is not unique",
        ),
        (
            fine.replace("status = 'pending'", "state = 'pending'"),
            "column \"state\" does not exist",
        ),
        (
            fine.replace("order_by = \"id\"", "order_by = \"age\""),
            "column \"age\" does not exist",
        ),
        (
            fine.replace("status = 'done'", "state = 'done'"),
            "column \"state\" of relation \"work_items\" does not exist",
        ),
        (
            section(&format!("{command}\non_failed = {{ set = \"fate = 1\" }}")),
            "column \"fate\" of relation \"work_items\" does not exist",
        ),
    ] {
        let place = place(&config).await;
        place.sql("insert into work_items default values").await;
        for arguments in [&["work"][..], &["work", "--drain"]] {
            let ran = place.run(arguments).await;
            assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{config}");
            assert!(ran.err.contains(wanted), "{wanted} is not in {}", ran.err);
            assert!(ran.err.contains("[table.items]"), "{}", ran.err);
        }
        assert_eq!(rows(&place).await, "1=pending");
        assert!(!place.path("ran").exists());
    }
}

/// A handler that says which row it has and goes on when it is told to.
const GATED: &str = "echo $ROWLOCK_ROW_KEY > DIR/up; cat DIR/go > /dev/null";

#[tokio::test]
async fn one_signal_lets_a_row_finish_and_begins_no_other() {
    let place = place(&script(GATED, "at_once = 1")).await;
    let (up, go) = (place.fifo("up"), place.fifo("go"));
    place
        .sql("insert into work_items (note) values ('a'), ('b')")
        .await;
    let mut worker = Running::spawn(place.rowlock(&["work"]));
    assert_eq!(up.read().await, "1");
    worker.signal(Signal::TERM);
    worker.wait_for("stopping: finishing what runs").await;
    go.write("go").await;
    let (status, log) = worker.ended().await;
    assert!(status.success(), "{log:?}");
    assert_eq!(rows(&place).await, "1=done 2=pending");
    assert_eq!(remembered(&place).await, "");
}

#[tokio::test]
async fn two_signals_free_a_row_at_no_cost() {
    let place = place(&script(GATED, "at_once = 2")).await;
    let (up, _go) = (place.fifo("up"), place.fifo("go"));
    place.sql("insert into work_items default values").await;
    let mut worker = Running::spawn(place.rowlock(&["work"]));
    up.read().await;
    worker.signal(Signal::TERM);
    worker.wait_for("stopping: finishing what runs").await;
    worker.signal(Signal::TERM);
    worker.wait_for("stopping at once").await;
    assert!(worker.ended().await.0.success());
    assert_eq!(rows(&place).await, "1=pending");
    assert_eq!(remembered(&place).await, "");
    let held = place.ask("select count(*)::text from rowlock.table_batch");
    assert_eq!(held.await.as_deref(), Some("0"));
}

#[tokio::test]
async fn the_rows_of_a_worker_that_was_killed_are_free_at_once() {
    let place = place(&script(GATED, "at_once = 1")).await;
    let (up, go) = (place.fifo("up"), place.fifo("go"));
    place
        .sql("insert into work_items (note) values ('a'), ('b'), ('c')")
        .await;
    let worker = Running::spawn(place.rowlock(&["work"]));
    up.read().await;
    worker.signal(Signal::KILL);
    assert!(!worker.ended().await.0.success());
    // Its command lives on until it ends.
    go.write("go").await;
    let held = "select count(*)::text from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'";
    while place.ask(held).await.as_deref() != Some("0") {
        tokio::task::yield_now().await;
    }
    place.configure(&script("true", ""));
    place.drain().await;
    assert_eq!(rows(&place).await, "1=done 2=done 3=done");
    assert_eq!(remembered(&place).await, "");
}

#[tokio::test]
async fn a_reload_loses_no_row_and_works_by_the_new_configuration() {
    let place = place(&script(GATED, "batch = 1\npoll = \"10ms\"")).await;
    let (up, go) = (place.fifo("up"), place.fifo("go"));
    place.sql("insert into work_items default values").await;
    let mut worker = Running::spawn(place.rowlock(&["work"]));
    assert_eq!(up.read().await, "1");

    place.configure(&script(
        "echo new $ROWLOCK_ROW_KEY > DIR/up",
        "poll = \"10ms\"",
    ));
    worker.signal(Signal::HUP);
    worker.wait_for("working by the new configuration").await;
    place.sql("insert into work_items default values").await;
    assert_eq!(
        up.read().await,
        "new 2",
        "while the old one still has row 1"
    );
    // A mistake in the next one changes nothing.
    place.configure(&script("true", "").replace("work_items", "nowhere"));
    worker.signal(Signal::HUP);
    worker
        .wait_for("the old one stays in force: [table.items] cannot be used: there is no table")
        .await;
    go.write("go").await;
    worker.wait_for("stopped working a table").await;
    place.sql("insert into work_items default values").await;
    assert_eq!(up.read().await, "new 3");
    worker.signal(Signal::TERM);
    assert!(worker.ended().await.0.success());
    assert_eq!(rows(&place).await, "1=done 2=done 3=done");
    assert_eq!(remembered(&place).await, "");
}

#[tokio::test]
async fn draining_ends_when_neither_rows_nor_jobs_are_left() {
    let place = place("").await;
    // Rows make jobs, jobs make rows: three rounds.
    place
        .sql(
            "create function more() returns trigger language plpgsql as $$ begin \
               perform rowlock.enqueue('more', jsonb_build_object('n', new.big)); return null; end $$; \
             create trigger more after update on work_items for each row execute function more(); \
             insert into work_items (big) values (1)",
        )
        .await;
    let client = Arc::new(place.queue.db().connect().await.unwrap());
    let insert = move |body: String| {
        let client = client.clone();
        async move {
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            let n = body["payload"]["n"].as_i64().unwrap();
            if n < 3 {
                let sql = format!("insert into work_items (big) values ({})", n + 1);
                client.batch_execute(&sql).await.unwrap();
            }
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new().fallback(insert);
    tokio::spawn(async move { axum::serve(listener, router).await });

    place.configure(&format!(
        "[handler.more]\nurl = \"{url}\"\n{}",
        script("true", "")
    ));
    let ran = place.drain().await;
    assert_eq!(rows(&place).await, "1=done 2=done 3=done");
    assert!(
        ran.out.contains("3 attempts handled") && ran.out.contains("table items: 3 rows done"),
        "{}",
        ran.out
    );
}

#[tokio::test]
async fn a_table_that_is_gone_is_said_and_stops_no_other() {
    let other = "[table.others]\ncommand = \"echo other > DIR/up\"\non_done = \"delete\"\npoll = \"10ms\"\n";
    let config = format!("{}{other}", script("true", "poll = \"10ms\""));
    let place = place("").await;
    place.sql("create table others (id int primary key)").await;
    place.configure(&config);
    let up = place.fifo("up");
    let mut worker = Running::spawn(place.rowlock(&["work"]));
    worker.wait_for("working a table").await;
    place.sql("drop table work_items").await;
    let line = worker.wait_for("a table cannot be worked").await;
    assert!(
        line.contains("table=\"items\"") && line.contains("there is no table"),
        "{line}"
    );
    place.sql("insert into others values (1)").await;
    assert_eq!(up.read().await, "other");
    worker.signal(Signal::TERM);
    assert!(worker.ended().await.0.success());
}

#[tokio::test]
async fn a_table_that_goes_while_it_is_drained_is_an_error_at_the_end() {
    let place = place(&script(GATED, "")).await;
    let (up, go) = (place.fifo("up"), place.fifo("go"));
    place.sql("insert into work_items default values").await;
    let worker = Running::spawn(place.rowlock(&["work", "--drain"]));
    up.read().await;
    // It waits for the row's transaction, and the next claim for it.
    let rename = place.sql("alter table work_items rename to elsewhere");
    let then_go = async {
        let waiting = "select count(*)::text from pg_locks where relation = 'work_items'::regclass and not granted";
        while place.ask(waiting).await.as_deref() == Some("0") {
            tokio::task::yield_now().await;
        }
        go.write("go").await;
    };
    let ((), ()) = tokio::join!(rename, then_go);
    let (status, log) = worker.ended().await;
    assert_eq!(status.code(), Some(1), "{log:?}");
    assert!(
        log.iter().any(|l| l.contains("rowlock: there is no table")),
        "{log:?}"
    );
}

#[tokio::test]
async fn rows_are_counted_for_prometheus() {
    let config = format!(
        "[http]\naddress = \"127.0.0.1:0\"\n{}",
        script(
            "grep -q good || exit 1",
            "poll = \"10ms\"\non_failed = { park_after = 1 }"
        )
    );
    let place = place(&config).await;
    place
        .sql("insert into work_items (note) values ('good'), ('bad')")
        .await;
    let mut worker = Running::spawn(place.rowlock(&["work"]));
    let line = worker.wait_for("serving health and metrics").await;
    let address = format!("http://{}", line.rsplit("address=").next().unwrap().trim());
    worker.wait_for("row is parked").await;
    let (status, text) = crate::support::get(&address, "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "# HELP rowlock_table_rows_total ",
        "rowlock_table_rows_total{table=\"items\",outcome=\"parked\"} 1",
        "rowlock_table_batches_total{table=\"items\",outcome=\"done\"} 1",
    ] {
        assert!(
            text.lines().any(|l| l.starts_with(line)),
            "{line} is not in\n{text}"
        );
    }
    assert_eq!(
        crate::support::get(&address, "/readyz").await,
        (200, "ready\n".into())
    );
    worker.signal(Signal::TERM);
    assert!(worker.ended().await.0.success());
}

async fn rowlock(dir: &Path, arguments: &[&str]) -> Ran {
    run(program(dir, arguments)).await
}

#[tokio::test]
async fn tables_are_shown_and_compared_by_what_they_mean() {
    let a = "[table.items]\ntable = \"shop.items\"\ncommand = [\"true\"]\npending = \"not done\"\non_done = { set = \"done = true\" }\n\
             on_failed = { park_after = 3 }\n";
    // The same, with defaults written out.
    let b = "[table.items]\non_failed.park_after = 3\non_failed.crashes = 3\nbatch = 100\ntimeout = \"5m\"\npoll = \"1000ms\"\n\
             pending = 'not done'\ncommand = ['true']\ntable = 'shop.items'\non_done.set = 'done = true'\n";
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("a.toml", a.to_owned()),
        ("b.toml", b.to_owned()),
        (
            "c.toml",
            b.replace("batch = 100", "batch = 50")
                .replace("not done", "done is null"),
        ),
    ] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let same = rowlock(dir.path(), &["config", "diff", "a.toml", "b.toml"]).await;
    assert_eq!(
        (same.code, same.out.as_str()),
        (Some(0), "they mean the same\n"),
        "{}",
        same.err
    );
    let differ = rowlock(dir.path(), &["config", "diff", "a.toml", "c.toml"]).await;
    assert_eq!(differ.code, Some(1), "{}", differ.err);
    let shown = rowlock(dir.path(), &["config", "show", "b.toml"]).await;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    let tables: Vec<&str> = shown.out.lines().filter(|l| l.contains("table.")).collect();
    insta::assert_snapshot!(format!("{}\n{}", differ.out, tables.join("\n")));
}

/// The page shows a table, an index and a section; they fit together.
#[tokio::test]
async fn what_the_guide_shows_works() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/any-table-as-a-queue.md");
    let page = std::fs::read_to_string(path).unwrap();
    let blocks = |info: &str| -> Vec<String> {
        let open = format!("```{info}\n");
        let blocks = page.split(&open).skip(1);
        blocks
            .map(|b| b.split("```").next().unwrap().to_owned())
            .collect()
    };
    let place = Place::new(
        blocks("toml")
            .iter()
            .find(|b| b.starts_with("# rowlock.toml"))
            .expect("a configuration"),
    )
    .await;
    for sql in &blocks("sql")[..2] {
        place.sql(sql).await;
    }
    place
        .sql("insert into work_items (payload) values ('{\"n\": 1}'), ('{\"n\": 2}')")
        .await;
    let handler = place.path("work-item");
    std::fs::write(&handler, "#!/bin/sh\ngrep -q '\"n\": 1'\n").unwrap();
    std::fs::set_permissions(
        &handler,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    place.drain().await;
    assert_eq!(rows(&place).await, "1=done 2=pending");
}
