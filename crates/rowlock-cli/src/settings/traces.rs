//! `[traces]`: where the spans of attempts go. Without an endpoint there are none.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use serde_json::json;

use super::entry::Origin;
use super::handler::{check_ca_file, check_headers, check_url, read_texts};
use super::secret::{MASK, Secret};
use super::section::Section;
use super::source::Problem;
use super::value::Share;

/// What the standard calls the path for traces.
const PATH: &str = "/v1/traces";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";

/// Where traces go.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TraceSettings {
    /// The whole address.
    pub(crate) endpoint: Secret,
    pub(crate) headers: Vec<(String, Secret)>,
    pub(crate) service_name: String,
    /// Of the traces that begin here; those that come with a job have been decided on.
    pub(crate) sample: f64,
    /// Roots to trust beside those of the system.
    pub(crate) ca_file: Option<PathBuf>,
}

impl TraceSettings {
    /// `None`: nobody wants traces.
    pub(super) fn read(section: Section<'_, '_>) -> Option<Self> {
        let endpoint = section.secret("endpoint");
        if let Some(endpoint) = &endpoint {
            check_url(&section, "endpoint", endpoint.reveal());
            check_protocol(&section);
        } else if !section.has("endpoint") {
            section.note_unset("endpoint");
        }
        let inner = section.section("headers");
        let mut headers = read_texts(&inner);
        if endpoint.is_some() {
            add_from_environment(&section, &inner, &mut headers);
        }
        check_headers(&section, &headers);
        let service_name = section.value("service_name", "rowlock".to_owned());
        if service_name.trim().is_empty() {
            section.complain("service_name", "traces.service_name is empty");
        }
        let sample = section.within("sample", Share(1.0), &(Share(0.0)..=Share(1.0)));
        let ca_file = section.optional::<String>("ca_file").map(PathBuf::from);
        check_ca_file(&section, ca_file.as_deref());
        section.finish();
        Some(Self {
            endpoint: Secret::new(whole_address(endpoint?.reveal())),
            headers,
            service_name,
            sample: sample.0,
            ca_file,
        })
    }
}

/// The standard's variable names the collector, to which the path of each signal is added.
fn whole_address(endpoint: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(endpoint) else {
        // That has been complained about.
        return endpoint.to_owned();
    };
    let bare = url.path().trim_end_matches('/').to_owned();
    if !bare.ends_with(PATH) {
        url.set_path(&format!("{bare}{PATH}"));
    }
    url.to_string()
}

/// `key=value,key=value`, percent-encoded. What the environment says of a header wins over the file.
fn add_from_environment(
    section: &Section<'_, '_>,
    inner: &Section<'_, '_>,
    headers: &mut Vec<(String, Secret)>,
) {
    let Some(text) = section.reader.overrides.environment.get(HEADERS) else {
        return;
    };
    for pair in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let decoded = pair.split_once('=').and_then(|(name, value)| {
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            Some((name.trim(), value))
        });
        let Some((name, value)) = decoded else {
            let message = format!("the variable {HEADERS} cannot be read");
            let help =
                "it holds name=value pairs, separated by commas, with values percent-encoded";
            section
                .reader
                .problem(Problem::error(None, message).help(help));
            return;
        };
        headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        let path = inner.path_of(name);
        let mut entries = section.reader.entries.borrow_mut();
        entries.retain(|e| !e.path.eq_ignore_ascii_case(&path));
        drop(entries);
        section.reader.note(
            path,
            json!(MASK),
            format!("literal {value}"),
            Origin::Environment(HEADERS.into()),
        );
        headers.push((name.to_owned(), Secret::new(value)));
    }
}

/// Whoever asks for another protocol has another port in the endpoint, too.
fn check_protocol(section: &Section<'_, '_>) {
    let environment = &section.reader.overrides.environment;
    let asked = environment.get(PROTOCOL).map(String::as_str);
    if let Some(other) = asked.filter(|p| !["", "http/protobuf"].contains(p)) {
        let message =
            format!("the variable {PROTOCOL} is {other:?}, but traces are sent as http/protobuf");
        let help = "give the collector's port for HTTP, which is 4318 as a rule";
        section
            .reader
            .problem(Problem::warning(None, message).help(help));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_added_once() {
        for (endpoint, whole) in [
            ("http://c:4318", "http://c:4318/v1/traces"),
            ("http://c:4318/", "http://c:4318/v1/traces"),
            ("http://c/otlp", "http://c/otlp/v1/traces"),
            ("http://c/v1/traces", "http://c/v1/traces"),
            ("http://c/x?k=1", "http://c/x/v1/traces?k=1"),
        ] {
            assert_eq!(whole_address(endpoint), whole);
        }
    }
}
