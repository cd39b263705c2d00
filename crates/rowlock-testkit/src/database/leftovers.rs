//! Removes the databases that killed tests left behind.
//!
//! Promises: none that is in use goes. Must not fail a test: what cannot be removed stays for the next process.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_postgres::Client;

use super::admin::drop_database;
use super::name::{Birth, PREFIX, now_s};
use crate::shared::SharedServer;

/// Drops the databases that killed tests left behind, once per process. Best effort: the next process tries again.
///
/// They are not only in the way: a prepared transaction or a slot in one of them can make tests in others wait forever.
pub(super) async fn drop_leftovers_once(admin: &Client, server: &SharedServer) {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let all = "select datname, exists (select from pg_stat_activity a where a.datid = d.oid) \
               from pg_database d where starts_with(datname, $1)";
    let Ok(rows) = admin.query(all, &[&PREFIX]).await else {
        return;
    };
    for row in rows {
        let (name, in_use): (String, bool) = (row.get(0), row.get(1));
        let Some(birth) = Birth::of(&name) else {
            continue;
        };
        // On our own server all names come from this machine, so their processes can be asked for.
        let left_behind = if server.is_ours() {
            birth.process_is_gone()
        } else {
            birth.is_long_ago(now_s()) && !in_use
        };
        if left_behind {
            let _ = drop_database(&server.admin_url(), &server.url(&name), &name).await;
        }
    }
}
