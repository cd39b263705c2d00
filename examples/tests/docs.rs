//! Keeps the guide true: runs its SQL, follows its links, and looks for what it leaves out. (Its Rust is compiled as doctests.)
//!
//! In the pages, a block that begins with ` ```sql run ` is run. The blocks of one page run in order, on one connection, in a
//! fresh database with the queue installed. `fails-22023` after `run` means that the block must fail with that SQLSTATE. A block
//! ` ```text result ` right after one is what its last query answers: a line of column names, then the rows, columns joined by
//! `" | "`. A page that says `<!-- the SQL of this page is rolled back -->` runs in one transaction that is rolled back: for
//! pages that make roles, which belong to the whole server.

use std::fs;
use std::path::{Path, PathBuf};

use rowlock_testkit::TestQueue;
use tokio_postgres::{Client, SimpleQueryMessage};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All pages for readers, in the order of their names.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"]
        .iter()
        .map(|name| root().join(name))
        .collect();
    for folder in ["docs/guide", "docs/decisions"] {
        let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
        pages.extend(entries.map(|entry| entry.expect("it can be listed").path()));
    }
    pages.retain(|page| page.extension().is_some_and(|e| e == "md"));
    pages.sort();
    pages
}

/// A fenced block of a page.
#[derive(Debug)]
struct Block {
    line: usize,
    info: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (n, line) in page.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => {
                open = Some(Block {
                    line: n + 1,
                    info: info.trim().to_owned(),
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed: {open:?}");
    blocks
}

/// The last answer of a script, as the pages write it.
fn answer(messages: &[SimpleQueryMessage]) -> String {
    let mut text = String::new();
    for message in messages {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                let names: Vec<&str> = columns.iter().map(|c| c.name()).collect();
                text = names.join(" | ") + "\n";
            }
            SimpleQueryMessage::Row(row) => {
                let values: Vec<&str> = (0..row.len()).map(|n| row.get(n).unwrap_or("")).collect();
                text += values.join(" | ").trim_end();
                text.push('\n');
            }
            _ => {}
        }
    }
    text
}

/// Runs the SQL of one page; returns how many blocks there were.
async fn run_page(name: &str, page: &str, pg: &Client) -> usize {
    let blocks = blocks(page);
    let mut ran = 0;
    for (n, block) in blocks.iter().enumerate() {
        let mut words = block.info.split_whitespace();
        if (words.next(), words.next()) != (Some("sql"), Some("run")) {
            continue;
        }
        let place = format!("{name}:{}", block.line);
        let wanted_error = words.next().and_then(|w| w.strip_prefix("fails-"));
        ran += 1;
        match (pg.simple_query(&block.text).await, wanted_error) {
            (Ok(messages), None) => {
                if let Some(result) = blocks.get(n + 1).filter(|b| b.info == "text result") {
                    assert_eq!(answer(&messages), result.text, "the answer at {place}");
                }
            }
            (Err(e), Some(code)) => {
                assert_eq!(e.code().map(|c| c.code()), Some(code), "{place}: {e}");
                let _ = pg.simple_query("rollback").await;
            }
            (Ok(_), Some(code)) => panic!("{place} should fail with {code}"),
            (Err(e), None) => panic!(
                "{place}: {:?}",
                e.as_db_error().map_or(e.to_string(), ToString::to_string)
            ),
        }
    }
    ran
}

#[tokio::test]
async fn the_sql_of_the_pages_runs() {
    let mut ran = 0;
    for path in pages() {
        let page = fs::read_to_string(&path).expect("it can be read");
        if !page.contains("```sql run") {
            continue;
        }
        let queue = TestQueue::new().await.expect("a queue");
        let pg = queue.db().connect().await.expect("a connection");
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let rolled_back = page.contains("<!-- the SQL of this page is rolled back -->");
        if rolled_back {
            pg.simple_query("begin").await.expect("a transaction");
        }
        ran += run_page(&name, &page, &pg).await;
        if rolled_back {
            pg.simple_query("rollback").await.expect("the end of it");
        }
    }
    assert!(ran > 50, "only {ran} blocks were found: are they marked?");
}

#[test]
fn links_lead_somewhere() {
    for path in pages() {
        let page = fs::read_to_string(&path).expect("it can be read");
        let folder = path.parent().expect("a file is in a folder");
        for rest in page.split("](").skip(1) {
            let Some((target, _)) = rest.split_once(')') else {
                continue;
            };
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.contains(' ') {
                continue;
            }
            assert!(
                folder.join(file).exists(),
                "{} links to {target}",
                path.display()
            );
        }
    }
}

/// A page of the guide is in its table of contents, and compiled.
#[test]
fn every_page_of_the_guide_is_known() {
    let contents = fs::read_to_string(root().join("docs/guide/README.md")).expect("the contents");
    let compiled = fs::read_to_string(root().join("examples/src/lib.rs")).expect("the library");
    for path in pages()
        .iter()
        .filter(|p| p.to_string_lossy().contains("docs/guide"))
    {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let page = fs::read_to_string(path).expect("it can be read");
        assert!(
            name == "README.md" || contents.contains(&format!("]({name})")),
            "{name} is not in the contents"
        );
        let has_rust = blocks(&page).iter().any(|b| b.info.starts_with("rust"));
        assert!(
            !has_rust || compiled.contains(&format!("guide/{name}")),
            "{name} has Rust that is not compiled"
        );
    }
}

/// The tests that the guide shows are tests of this crate.
#[test]
fn the_page_on_testing_shows_tests_that_run() {
    let page =
        fs::read_to_string(root().join("docs/guide/testing-your-jobs.md")).expect("the page");
    let shown = blocks(&page)
        .into_iter()
        .find(|b| b.info.starts_with("rust"))
        .expect("a block");
    let (_, tests) = include_str!("your_jobs.rs")
        .split_once("\n\n")
        .expect("the comment, then the tests");
    assert_eq!(shown.text, tests);
}

/// Every function that a role can be given is described.
#[tokio::test]
async fn the_contract_describes_every_function() {
    let contract = fs::read_to_string(root().join("docs/guide/sql-contract.md")).expect("the page");
    let queue = TestQueue::new().await.expect("a queue");
    let pg = queue.db().connect().await.expect("a connection");
    let rows = pg
        .query(
            "select distinct f from unnest('{producer, worker, reader, admin}'::text[]) a, unnest(rowlock.access_functions(a)) f order by 1",
            &[],
        )
        .await
        .expect("the functions");
    assert!(rows.len() > 30);
    let missing: Vec<String> = rows
        .iter()
        .map(|row| row.get::<_, String>(0))
        .filter(|name| !contract.contains(&format!("rowlock.{name}(")))
        .collect();
    assert_eq!(
        missing, [""; 0],
        "docs/guide/sql-contract.md does not describe these"
    );
}
