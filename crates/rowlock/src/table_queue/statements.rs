//! The statements over somebody's table, put together from its names and the developer's own SQL. Pure.
//!
//! Every text here is planned anew each time it is sent, never prepared: it is sent once per batch, and a plan that was
//! made while the table was empty would be remembered when it is full.
//!
//! Names of ours start with `rowlock_`, so that the developer's expressions can name their columns without qualifying them.

use super::name::quote;
use super::policy::{OnDone, OnFailed};
use crate::schema::Schema;

/// The table, as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) schema: String,
    pub(super) table: String,
    pub(super) key: Vec<KeyColumn>,
    /// The columns that a handler gets.
    pub(super) columns: Vec<String>,
}

/// A column of the key, and its type as SQL writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyColumn {
    pub(super) name: String,
    pub(super) sql_type: String,
}

/// What the developer wrote.
#[derive(Debug, Clone)]
pub(super) struct Clauses<'a> {
    pub(super) pending: &'a str,
    pub(super) order_by: Option<&'a str>,
    pub(super) on_done: &'a OnDone,
    pub(super) on_failed: &'a OnFailed,
    pub(super) batch: usize,
    pub(super) row_bytes_max: usize,
}

/// The statements for one table. `$1` is the name under which its failures are remembered, or the keys.
#[derive(Debug, Clone)]
pub(super) struct Statements {
    /// `$1` source → key, row as JSON (null: too large).
    pub(super) claim: String,
    /// As `claim`: one row that was in hand in a crash.
    pub(super) claim_alone: String,
    /// `$1` keys → of each that was updated, its key and whether it is still pending.
    pub(super) mark: String,
    /// As `mark`, for rows that are parked.
    pub(super) park: Option<String>,
    /// `$1` source, `$2` after which key → the last key of the page, rows of the page, rows forgotten.
    pub(super) sweep: String,
    /// Whether Postgres takes the developer's SQL: what it is, its text, and a statement that shows it.
    pub(super) checks: Vec<(&'static str, String, String)>,
}

/// How many remembered failures one sweep looks at.
pub(super) const SWEEP_PAGE: usize = 500;

impl Source {
    /// `"schema"."table"`.
    pub(super) fn qualified(&self) -> String {
        format!("{}.{}", quote(&self.schema), quote(&self.table))
    }

    /// For errors and logs: quoted only where SQL needs it.
    pub(super) fn display(&self) -> String {
        let plain = |name: &str| {
            let fine = name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if fine { name.to_owned() } else { quote(name) }
        };
        format!("{}.{}", plain(&self.schema), plain(&self.table))
    }

    /// The key of a row of `relation` as text.
    fn key_text(&self, relation: &str) -> String {
        let columns: Vec<String> = self.key.iter().map(|c| c.text(relation)).collect();
        match &columns[..] {
            [column] => column.clone(),
            columns => format!("jsonb_build_array({})::text", columns.join(", ")),
        }
    }

    /// That a row of the table has the key that `text` says.
    fn key_is(&self, text: &str) -> String {
        let relation = self.qualified();
        let one = self.key.len() == 1;
        let equals = self.key.iter().enumerate().map(|(n, column)| {
            let part = match one {
                true => text.to_owned(),
                false => format!("({text}::jsonb ->> {n})"),
            };
            format!(
                "{relation}.{} = {}",
                quote(&column.name),
                column.value(&part)
            )
        });
        equals.collect::<Vec<_>>().join(" and ")
    }

    pub(super) fn statements(&self, schema: &Schema, clauses: &Clauses<'_>) -> Statements {
        let s = schema.as_str();
        let table = self.qualified();
        let bare = quote(&self.table);
        // A comment at the end of the developer's text ends with the line.
        let pending = format!("({}\n)", clauses.pending);
        let order = clauses
            .order_by
            .map_or(String::new(), |order| format!("order by {order}\n"));
        let row = self.row(clauses.row_bytes_max);

        // A scalar subquery cannot be turned into a join: it is one probe of the primary key for each row that is looked at,
        // however many failures are remembered, and the order of the index is kept. The row is written as JSON outside of
        // the locking subquery, so that rows which others hold cost nothing but being passed over.
        let claim = format!(
            "select {key}, {row}\n\
             from (\n\
             select {bare}.* from {table}\n\
             where {pending}\n\
             and (select true from {s}.table_failure as rowlock_f\n\
             where rowlock_f.source = $1 and rowlock_f.row_key = {key_in_table}\n\
             and (rowlock_f.retry_at > {s}.clock() or rowlock_f.crashes > 0)) is not true\n\
             {order}\
             limit {batch}\n\
             for update of {bare} skip locked\n\
             ) as rowlock_row",
            key = self.key_text("rowlock_row"),
            key_in_table = self.key_text(&table),
            batch = clauses.batch,
        );
        let claim_alone = format!(
            "select {key}, {row}\n\
             from (\n\
             select {bare}.* from (\n\
             select rowlock_f.row_key as rowlock_key from {s}.table_failure as rowlock_f\n\
             where rowlock_f.source = $1 and rowlock_f.crashes > 0 and rowlock_f.retry_at <= {s}.clock()\n\
             order by rowlock_f.retry_at limit 1000\n\
             ) as rowlock_alone join {table} on {is_alone}\n\
             where {pending}\n\
             limit 1\n\
             for update of {bare} skip locked\n\
             ) as rowlock_row",
            key = self.key_text("rowlock_row"),
            is_alone = self.key_is("rowlock_alone.rowlock_key"),
        );
        let keys = "unnest($1) as rowlock_k(rowlock_key)";
        let is_key = self.key_is("rowlock_k.rowlock_key");
        let set = |assignments: &str| {
            format!(
                "update {table} set {assignments}\nfrom {keys} where {is_key}\nreturning {}, coalesce({pending}, false)",
                self.key_text(&table)
            )
        };
        let mark = match clauses.on_done {
            OnDone::Delete => format!("delete from {table} using {keys} where {is_key}"),
            OnDone::Set(assignments) => set(assignments),
        };
        let sweep = format!(
            "with rowlock_page as materialized (\n\
             select row_key, retry_at, failed_at from {s}.table_failure\n\
             where source = $1 and row_key > $2 order by row_key limit {SWEEP_PAGE}\n\
             ), rowlock_gone as (\n\
             delete from {s}.table_failure as rowlock_f using rowlock_page\n\
             where rowlock_f.source = $1 and rowlock_f.row_key = rowlock_page.row_key\n\
             and (rowlock_page.retry_at > '-infinity' or rowlock_page.failed_at < {s}.clock() - interval '7 days')\n\
             and (select true from {table} where {in_page} and {pending}) is not true\n\
             returning 1\n\
             )\n\
             select (select max(row_key) from rowlock_page), (select count(*) from rowlock_page), (select count(*) from rowlock_gone)",
            in_page = self.key_is("rowlock_page.row_key"),
        );
        Statements {
            claim,
            claim_alone,
            mark,
            park: clauses.on_failed.set.as_deref().map(set),
            sweep,
            checks: self.checks(clauses),
        }
    }

    /// The row as JSON text, unless it is too large. What is far too large is not even put together.
    fn row(&self, bytes_max: usize) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|c| format!("rowlock_row.{}", quote(c)))
            .collect();
        let stored: Vec<String> = columns
            .iter()
            .map(|c| format!("coalesce(pg_column_size({c}), 0)::bigint"))
            .collect();
        // One character more than allowed is enough to see that it is too much.
        format!(
            "case when {stored} <= {bytes_max} then left((select row_to_json(rowlock_c) from (select {columns}) as rowlock_c)::text, {more}) end",
            stored = stored.join(" + "),
            columns = columns.join(", "),
            more = bytes_max + 1,
        )
    }

    fn checks(&self, clauses: &Clauses<'_>) -> Vec<(&'static str, String, String)> {
        let table = self.qualified();
        let mut checks = vec![(
            "pending",
            clauses.pending.to_owned(),
            format!(
                "explain select 1 from {table} where ({}\n)",
                clauses.pending
            ),
        )];
        if let Some(order) = clauses.order_by {
            checks.push((
                "order_by",
                order.to_owned(),
                format!("explain select 1 from {table} order by {order}\nlimit 1"),
            ));
        }
        let mut set = |what, assignments: &str| {
            let sql = format!("explain update {table} set {assignments}\nwhere false");
            checks.push((what, assignments.to_owned(), sql));
        };
        if let OnDone::Set(assignments) = clauses.on_done {
            set("on_done", assignments);
        }
        if let Some(assignments) = &clauses.on_failed.set {
            set("on_failed", assignments);
        }
        checks
    }
}

impl KeyColumn {
    /// Its value as text, the same in every session whatever its time zone and date style.
    fn text(&self, relation: &str) -> String {
        let column = format!("{relation}.{}", quote(&self.name));
        match &*self.sql_type {
            "timestamp with time zone" => {
                format!("(to_json({column} at time zone 'UTC') #>> '{{}}')")
            }
            "timestamp without time zone" | "date" => format!("(to_json({column}) #>> '{{}}')"),
            _ => format!("{column}::text"),
        }
    }

    /// The value that [`text`](Self::text) came from.
    fn value(&self, text: &str) -> String {
        match &*self.sql_type {
            "timestamp with time zone" => format!("({text}::timestamp at time zone 'UTC')"),
            other => format!("{text}::{other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(key: &[(&str, &str)]) -> Source {
        Source {
            schema: "public".into(),
            table: "Weird \"Table".into(),
            key: key
                .iter()
                .map(|(name, sql_type)| KeyColumn {
                    name: (*name).into(),
                    sql_type: (*sql_type).into(),
                })
                .collect(),
            columns: vec!["id".into(), "Order".into()],
        }
    }

    #[test]
    fn one_key_column_is_its_own_text() {
        let source = source(&[("id", "bigint")]);
        assert_eq!(source.key_text("r"), r#"r."id"::text"#);
        assert_eq!(
            source.key_is("k"),
            r#""public"."Weird ""Table"."id" = k::bigint"#
        );
    }

    #[test]
    fn several_key_columns_are_an_array() {
        let source = source(&[("tenant", "text"), ("at", "timestamp with time zone")]);
        assert_eq!(
            source.key_text("r"),
            r#"jsonb_build_array(r."tenant"::text, (to_json(r."at" at time zone 'UTC') #>> '{}'))::text"#
        );
        assert!(
            source
                .key_is("k")
                .ends_with(r#""at" = ((k::jsonb ->> 1)::timestamp at time zone 'UTC')"#)
        );
    }

    #[test]
    fn a_name_is_quoted_for_people_only_where_it_must_be() {
        assert_eq!(
            source(&[("id", "bigint")]).display(),
            r#"public."Weird ""Table""#
        );
    }

    #[test]
    fn the_queues_schema_is_the_configured_one_and_the_developers_text_is_left_alone() {
        let on_done = OnDone::Delete;
        let on_failed = OnFailed::default();
        let clauses = Clauses {
            pending: "note <> 'rowlock.x' -- all of them",
            order_by: Some("id"),
            on_done: &on_done,
            on_failed: &on_failed,
            batch: 7,
            row_bytes_max: 1000,
        };
        let schema = Schema::new("elsewhere").unwrap();
        let claim = source(&[("id", "bigint")])
            .statements(&schema, &clauses)
            .claim;
        assert!(claim.contains("elsewhere.table_failure"));
        assert!(claim.contains("(note <> 'rowlock.x' -- all of them\n)"));
        assert!(!claim.replace("'rowlock.x'", "").contains("rowlock."));
    }
}
