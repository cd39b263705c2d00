//! `[database]`: where the queue is.

use std::time::Duration;

use rowlock::{Client, ConnInfo, Schema};
use serde_json::json;

use super::section::Section;
use super::source::Problem;

/// Where the queue is and how to get there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DatabaseSettings {
    pub(crate) info: ConnInfo,
    pub(crate) schema: String,
    pub(crate) connections: usize,
    pub(crate) wait: Duration,
}

impl DatabaseSettings {
    pub(super) fn read(section: Section<'_, '_>) -> Option<Self> {
        let info = read_url(&section);
        let schema = section.value("schema", "rowlock".to_owned());
        if let Err(e) = Schema::new(&schema) {
            section.complain("schema", e.to_string());
        }
        let connections = section.within("connections", 8, &(1..=1000));
        let wait = section.value("wait", Duration::from_secs(30));
        section.finish();
        Some(Self {
            info: info?,
            schema,
            connections: usize::try_from(connections).unwrap_or(usize::MAX),
            wait,
        })
    }

    /// A client that has not connected yet.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::builder()
            .schema(&self.schema)
            .connections(self.connections)
            .wait(self.wait)
            .lazy(self.info.clone())?)
    }
}

/// The URL, or what the PG* environment says. Shown without its password.
fn read_url(section: &Section<'_, '_>) -> Option<ConnInfo> {
    let given = section.has("url") || section.over("url").is_some();
    let text = section.secret("url");
    let parsed = match &text {
        Some(text) => ConnInfo::parse(text.reveal()),
        // A secret that could not be found has been complained about.
        None if given => return None,
        None => {
            section.reader.note(
                "database.url".into(),
                json!("from the PG* environment"),
                "from the PG* environment".into(),
                super::Origin::Default,
            );
            ConnInfo::from_env()
        }
    };
    match parsed {
        Ok(info) => {
            show(section, &info);
            Some(info)
        }
        Err(e) => {
            let message = format!("database.url: {e}");
            section
                .reader
                .problem(Problem::error(section.span_of("url"), message));
            None
        }
    }
}

/// A URL that was written out is worth more than a mask: everything but its password can be shown.
fn show(section: &Section<'_, '_>, info: &ConnInfo) {
    let mut entries = section.reader.entries.borrow_mut();
    let entry = entries.iter_mut().rfind(|e| e.path == "database.url");
    if let Some(entry) = entry.filter(|e| e.shown == super::secret::MASK) {
        entry.shown = json!(info.to_string());
    }
}
