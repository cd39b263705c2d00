//! Looks a table up in the catalog, so that what does not fit is said at the start and not by the first batch.

use tokio_postgres::types::Type;

use super::builder::Settings;
use super::name::{TableName, quote};
use super::statements::{KeyColumn, Source, Statements};
use crate::client::Client;
use crate::db::Connection;
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

/// A table that was found fit to be a queue, and the statements over it.
#[derive(Debug, Clone)]
pub(super) struct Inspected {
    pub(super) source: Source,
    pub(super) statements: Statements,
}

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
    let inspected = Inspected { source, statements };
    advise_index(&connection, settings, &inspected, rows).await?;
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
                    source: std::sync::Arc::new(e),
                });
            };
            let rule = format!("does not fit {}: {}", source.display(), db.message());
            return Err(Invalid::new(what, text, rule).into());
        }
    }
    Ok(())
}

/// Says so when the claim has to sort a large table each time.
async fn advise_index(
    connection: &Connection,
    settings: &Settings,
    inspected: &Inspected,
    rows: f32,
) -> Result<()> {
    if rows < LARGE_ROWS {
        return Ok(());
    }
    let plan = explain(connection, settings, inspected).await?;
    let searches = |line: &str| line.contains("Seq Scan on ") && !line.contains("table_failure");
    if plan
        .lines()
        .any(|line| line.contains("Sort") || searches(line))
    {
        let index = settings.index_to_create(&inspected.source);
        tracing::warn!(
            table = inspected.source.display(),
            index,
            "no index brings the pending rows in their order, so each claim searches the table: create one"
        );
    }
    Ok(())
}

/// The plan of the claim.
pub(super) async fn explain(
    connection: &Connection,
    settings: &Settings,
    inspected: &Inspected,
) -> Result<String> {
    let sql = format!("explain (costs off) {}", inspected.statements.claim);
    let rows = connection
        .client
        .query_typed(&sql, &[(&settings.name(&inspected.source), Type::TEXT)])
        .await
        .map_err(|e| Error::Database {
            doing: format!("plan a claim on {}", inspected.source.display()),
            source: std::sync::Arc::new(e),
        })?;
    let lines: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    Ok(lines.join("\n"))
}
