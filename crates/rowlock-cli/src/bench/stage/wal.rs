//! The write-ahead log, looked into: how much of it is images of pages.

/// Makes the extension, where the server is ours. Elsewhere it is used only if somebody has put it there.
pub(super) async fn extend(sql: &tokio_postgres::Client) {
    // It comes with PostgreSQL 15 and later, and not with every package. Without it, images are not told apart.
    let _ = sql
        .batch_execute("create extension if not exists pg_walinspect")
        .await;
}

/// Whether there is a function for it, and we may call it.
pub(super) async fn is_open(sql: &tokio_postgres::Client) -> bool {
    let may = "select has_function_privilege(p.oid, 'execute') and pg_function_is_visible(p.oid)
                 from pg_extension e join pg_depend d on d.refobjid = e.oid and d.refclassid = 'pg_extension'::regclass
                 join pg_proc p on p.oid = d.objid and d.classid = 'pg_proc'::regclass
                where e.extname = 'pg_walinspect' and p.proname = 'pg_get_wal_stats'";
    matches!(sql.query_opt(may, &[]).await, Ok(Some(row)) if row.get(0))
}

/// Bytes of page images in a stretch of the log. Reading it is not part of what is measured.
pub(super) async fn page_images(sql: &tokio_postgres::Client, from: &str, to: &str) -> Option<f64> {
    // Only what is on the disk can be read, and claims do not wait for that; a durable commit does.
    let flush = "select pg_logical_emit_message(true, 'rowlock_bench', '')";
    sql.execute(flush, &[]).await.ok()?;
    let stats = "select coalesce(sum(fpi_size), 0)::float8 from pg_get_wal_stats($1::text::pg_lsn, $2::text::pg_lsn)";
    let row = sql.query_one(stats, &[&from, &to]).await.ok()?;
    Some(row.get(0))
}
