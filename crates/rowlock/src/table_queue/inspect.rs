//! Looks a table up in the catalog, so that what does not fit is said at the start and not by the first batch.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_postgres::types::Type;

use super::builder::Settings;
use super::name::{TableName, quote};
use super::statements::{KeyColumn, Source, Statements};
use crate::client::Client;
use crate::db::{Connection, RawJson};
use crate::error::{Error, Invalid, Result};

/// From how many rows on a claim that sorts is worth a warning.
const LARGE_ROWS: f32 = 10_000.0;

const TABLE: &str = "
select c.oid, n.nspname::text, c.relkind::text, c.reltuples,
       has_schema_privilege(n.oid, 'usage'), has_table_privilege(c.oid, 'select'),
       has_any_column_privilege(c.oid, 'update'), has_table_privilege(c.oid, 'delete'), current_user::text
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where c.relname = $2 and case when $1 is null then pg_catalog.pg_table_is_visible(c.oid) else n.nspname = $1 end";

// With -1, so that char(n) is not read as char(1).
const COLUMNS: &str = "
select a.attname::text, pg_catalog.format_type(a.atttypid, -1), a.attnotnull
  from pg_catalog.pg_attribute a
 where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
 order by a.attnum";

// What INCLUDE brings along is not part of the key.
const UNIQUE: &str = "
select i.indisprimary,
       array(select a.attname::text
               from unnest(i.indkey[0:i.indnkeyatts - 1]) with ordinality as k(attnum, n)
               join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum order by k.n)
  from pg_catalog.pg_index i
 where i.indrelid = $1 and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
 order by i.indisprimary desc, i.indexrelid";

const PARTIAL: &str = "
select count(*)
  from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indexrelid
 where c.relname = any ($2) and i.indpred is not null
   and (i.indrelid = $1 or i.indrelid in (select t.relid from pg_catalog.pg_partition_tree($1) t))";

/// A table that was found fit to be a queue, and the statements over it.
#[derive(Debug, Clone)]
pub(super) struct Inspected {
    pub(super) source: Source,
    pub(super) statements: Statements,
    /// Whether an index brings the pending rows in their order, so that the claim can be held to it.
    ///
    /// It has to be held to it: the statistics of a queue are always out of date, and Postgres, expecting a handful of pending
    /// rows in a table that was just loaded with a million, would look at all of them and sort them for each batch.
    pub(super) pinned: bool,
}

/// Holds the next statements of a transaction to an index's order.
pub(super) const PIN: &str = "set local enable_sort = off; set local enable_bitmapscan = off; set local enable_seqscan = off";
pub(super) const UNPIN: &str = "set local enable_sort = default; set local enable_bitmapscan = default; set local enable_seqscan = default";

struct Column {
    name: String,
    sql_type: String,
    not_null: bool,
}

pub(super) async fn inspect(client: &Client, settings: &Settings) -> Result<Inspected> {
    let connection = client.connection().await?;
    let (oid, source, rows) = find_table(&connection, client, settings).await?;
    let columns = columns(&connection, client, oid).await?;
    let unique = unique_keys(&connection, client, oid).await?;
    let source = Source {
        key: key(settings, &source, &columns, &unique)?,
        columns: chosen(settings, &source, &columns)?,
        ..source
    };
    let statements = source.statements(client.schema(), &settings.clauses());
    check_clauses(&connection, &source, &statements).await?;
    let mut inspected = Inspected {
        source,
        statements,
        pinned: true,
    };
    inspected.pinned = has_index(&connection, client, settings, &inspected, oid).await?;
    if !inspected.pinned && rows >= LARGE_ROWS {
        let index = settings.index_to_create(&inspected.source);
        tracing::warn!(
            table = inspected.source.display(),
            index,
            "no index brings the pending rows in their order, so each claim may search and sort the table: create one"
        );
    }
    Ok(inspected)
}

fn setup(text: impl Into<String>) -> Error {
    Error::Setup(text.into())
}

async fn find_table(
    connection: &Connection,
    client: &Client,
    settings: &Settings,
) -> Result<(u32, Source, f32)> {
    let TableName { schema, table } = &settings.table;
    let found = connection
        .rows(TABLE, &[(schema, Type::TEXT), (table, Type::TEXT)])
        .await
        .map_err(|e| Error::database("look up a table", client.schema().as_str(), e))?;
    let Some(row) = found.first() else {
        let place = match schema {
            Some(schema) => format!("in schema {}", quote(schema)),
            None => "in the search_path".to_owned(),
        };
        return Err(setup(format!(
            "there is no table {} {place}: create it, or name its schema (schema.table); a name with upper-case letters is written in double quotes, as in SQL",
            quote(table)
        )));
    };
    let source = Source {
        schema: row.get(1),
        table: table.clone(),
        key: Vec::new(),
        columns: Vec::new(),
    };
    let name = source.display();
    match row.get(2) {
        "r" | "p" => {}
        kind => {
            let kind = match kind {
                "v" => "a view",
                "m" => "a materialized view",
                "f" => "a foreign table",
                "S" => "a sequence",
                "i" | "I" => "an index",
                _ => "not a table",
            };
            return Err(setup(format!(
                "{name} is {kind}, whose rows cannot be locked for work: name the table that holds them"
            )));
        }
    }
    let role = quote(row.get(8));
    if !row.get::<_, bool>(4) {
        return Err(setup(format!(
            "role {role} may not use schema {schema}: grant usage on schema {schema} to {role}",
            schema = quote(&source.schema)
        )));
    }
    // Locking a row for update takes the right to update it, also if it will be deleted.
    let mut missing = Vec::new();
    let needed = [(5, "select"), (6, "update"), (7, "delete")];
    for (column, privilege) in needed {
        if !row.get::<_, bool>(column) && (privilege != "delete" || settings.deletes()) {
            missing.push(privilege);
        }
    }
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(setup(format!(
            "role {role} lacks the privilege to {missing} rows of {name}: grant {missing} on {} to {role}",
            source.qualified()
        )));
    }
    Ok((row.get(0), source, row.get(3)))
}

async fn columns(connection: &Connection, client: &Client, oid: u32) -> Result<Vec<Column>> {
    let rows = connection
        .rows(COLUMNS, &[(&oid, Type::OID)])
        .await
        .map_err(|e| {
            Error::database(
                "look up the columns of a table",
                client.schema().as_str(),
                e,
            )
        })?;
    let column = |row: &tokio_postgres::Row| Column {
        name: row.get(0),
        sql_type: row.get(1),
        not_null: row.get(2),
    };
    Ok(rows.iter().map(column).collect())
}

/// The columns of each unique key; that of the primary key first, and whether there is one.
async fn unique_keys(
    connection: &Connection,
    client: &Client,
    oid: u32,
) -> Result<Vec<(bool, Vec<String>)>> {
    let rows = connection
        .rows(UNIQUE, &[(&oid, Type::OID)])
        .await
        .map_err(|e| Error::database("look up the keys of a table", client.schema().as_str(), e))?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

fn key(
    settings: &Settings,
    source: &Source,
    columns: &[Column],
    unique: &[(bool, Vec<String>)],
) -> Result<Vec<KeyColumn>> {
    let name = source.display();
    let names = match &settings.key {
        Some(names) => names.clone(),
        None => match unique.first() {
            Some((true, names)) => names.clone(),
            _ => {
                return Err(setup(format!(
                    "{name} has no primary key: add one, or name the columns of a unique key with key([...])"
                )));
            }
        },
    };
    let key = names
        .iter()
        .map(|wanted| find_column("key", wanted, source, columns))
        .collect::<Result<Vec<_>>>()?;
    let list = || {
        let quoted: Vec<_> = names.iter().map(|n| quote(n)).collect();
        quoted.join(", ")
    };
    if let Some(column) = key.iter().find(|c| !c.not_null) {
        return Err(setup(format!(
            "key column {column} of {name} may be null, so it does not tell rows apart: alter table {table} alter column {column} set not null",
            column = quote(&column.name),
            table = source.qualified()
        )));
    }
    // A unique key of fewer columns makes all of them together unique, too.
    if !unique
        .iter()
        .any(|(_, columns)| columns.iter().all(|c| names.contains(c)))
    {
        return Err(setup(format!(
            "key ({list}) of {name} is not unique: create unique index concurrently on {table} ({list})",
            list = list(),
            table = source.qualified()
        )));
    }
    Ok(key
        .into_iter()
        .map(|c| KeyColumn {
            name: c.name.clone(),
            sql_type: c.sql_type.clone(),
        })
        .collect())
}

/// The columns that the handler is to get: all, unless it wants fewer.
fn chosen(settings: &Settings, source: &Source, columns: &[Column]) -> Result<Vec<String>> {
    let Some(wanted) = &settings.columns else {
        return Ok(columns.iter().map(|c| c.name.clone()).collect());
    };
    wanted
        .iter()
        .map(|w| Ok(find_column("columns", w, source, columns)?.name.clone()))
        .collect()
}

fn find_column<'a>(
    what: &str,
    wanted: &str,
    source: &Source,
    columns: &'a [Column],
) -> Result<&'a Column> {
    columns.iter().find(|c| c.name == wanted).ok_or_else(|| {
        let all: Vec<_> = columns.iter().map(|c| quote(&c.name)).collect();
        setup(format!(
            "{what}: {} has no column {}: it has {}; a name with upper-case letters is written in double quotes, as in SQL",
            source.display(),
            quote(wanted),
            all.join(", ")
        ))
    })
}

/// Has Postgres read each of the developer's expressions by itself, so that the one that is wrong can be named.
async fn check_clauses(
    connection: &Connection,
    source: &Source,
    statements: &Statements,
) -> Result<()> {
    for (what, text, sql) in &statements.checks {
        if let Err(e) = connection.client.query_typed(sql, &[]).await {
            let Some(db) = e.as_db_error() else {
                return Err(Error::Database {
                    doing: format!("check {what} of {}", source.display()),
                    source: Arc::new(e),
                });
            };
            let message = match db.message() {
                m if m.starts_with("bind message supplies") => {
                    "it has a parameter ($1), and nothing to put there: write the value itself"
                }
                m => m,
            };
            let rule = format!("does not fit {}: {message}", source.display());
            return Err(Invalid::new(what, text, rule).into());
        }
    }
    Ok(())
}

/// Whether an index brings the pending rows, and only those, in their order: the plan that is held to an index has no sort in it,
/// and its indexes either hold the pending rows alone or are entered at a condition.
async fn has_index(
    connection: &Connection,
    client: &Client,
    settings: &Settings,
    inspected: &Inspected,
    oid: u32,
) -> Result<bool> {
    let lines = explain(connection, client, settings, inspected, "format json").await?;
    let plan: serde_json::Value =
        serde_json::from_str(&lines).map_err(|e| Error::json("read the plan of a claim", e))?;
    let mut indexes = Indexes::default();
    indexes.walk(&plan);
    if !indexes.suffice {
        return Ok(false);
    }
    let names: Vec<String> = indexes.without_condition.into_iter().collect();
    let rows = connection
        .rows(PARTIAL, &[(&oid, Type::OID), (&names, Type::TEXT_ARRAY)])
        .await
        .map_err(|e| Error::database("look up indexes", client.schema().as_str(), e))?;
    Ok(usize::try_from(rows[0].get::<_, i64>(0)) == Ok(names.len()))
}

/// How a plan uses indexes on the table.
struct Indexes {
    /// Neither sorts nor searches.
    suffice: bool,
    /// The indexes that are read from one end.
    without_condition: BTreeSet<String>,
}

impl Default for Indexes {
    fn default() -> Self {
        Self {
            suffice: true,
            without_condition: BTreeSet::new(),
        }
    }
}

impl Indexes {
    fn walk(&mut self, node: &serde_json::Value) {
        let text = |name: &str| node.get(name).and_then(|value| value.as_str());
        if text("Node Type").is_some_and(|node| node.ends_with("Sort")) {
            self.suffice = false;
        }
        if text("Alias") != Some("rowlock_f") && text("Relation Name").is_some() {
            match text("Index Name") {
                Some(_) if text("Index Cond").is_some() => {}
                Some(index) => {
                    self.without_condition.insert(index.to_owned());
                }
                None => self.suffice = false,
            }
        }
        match node {
            serde_json::Value::Array(nodes) => nodes.iter().for_each(|node| self.walk(node)),
            serde_json::Value::Object(fields) => fields.values().for_each(|node| self.walk(node)),
            _ => {}
        }
    }
}

/// The plan of the claim.
pub(super) async fn explain(
    connection: &Connection,
    client: &Client,
    settings: &Settings,
    inspected: &Inspected,
    how: &str,
) -> Result<String> {
    let failed = |e| {
        let doing = format!("plan a claim of rows of {}", inspected.source.display());
        Error::database(doing, client.schema().as_str(), e)
    };
    connection.begin().await.map_err(failed)?;
    let explained = async {
        if inspected.pinned {
            connection.client.batch_execute(PIN).await?;
        }
        let sql = format!("explain ({how}) {}", inspected.statements.claim);
        let name = settings.name(&inspected.source);
        let rows = connection
            .client
            .query_typed(&sql, &[(&name, Type::TEXT)])
            .await?;
        let lines: Result<Vec<&str>, _> = rows.iter().map(text_or_json).collect();
        Ok(lines?.join("\n"))
    };
    let explained = explained.await.map_err(failed);
    connection
        .end(client.schema(), "plan a claim", explained)
        .await
}

fn text_or_json(row: &tokio_postgres::Row) -> Result<&str, tokio_postgres::Error> {
    match *row.columns()[0].type_() {
        Type::JSON => Ok(row.try_get::<_, RawJson<'_>>(0)?.0),
        _ => row.try_get(0),
    }
}
