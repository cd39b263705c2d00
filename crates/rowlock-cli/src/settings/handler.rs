//! `[handler.KIND]`: what runs the jobs of a kind, a command or an HTTP endpoint. The kind `*` stands for all that have no section.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::codes::{Codes, read_exit, read_status};
use super::executable::missing;
use super::secret::{MASK, Secret, Show};
use super::section::{Section, type_text};
use super::source::Problem;
use super::value::{Setting, Size};
use crate::nearest::nearest;

/// What handles a kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HandlerSettings {
    /// `*` for any.
    pub(crate) kind: String,
    /// How long one attempt may take, beside what the job and its queue say.
    pub(crate) timeout: Option<Duration>,
    pub(crate) action: Action,
}

/// How a job is run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Command(CommandSettings),
    Http(HttpSettings),
}

/// A command that is started for each job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CommandSettings {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) env: Vec<(String, Secret)>,
    /// Whether the command gets only `env`, `PATH` and what describes the job.
    pub(crate) env_clear: bool,
    /// How long it may take to stop when it is asked to.
    pub(crate) kill_grace: Duration,
    /// How much of each of its outputs is kept.
    pub(crate) output_max: usize,
    pub(crate) exit: Codes,
}

/// An endpoint that is called for each job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HttpSettings {
    pub(crate) url: Secret,
    pub(crate) headers: Vec<(String, Secret)>,
    /// What requests are signed with.
    pub(crate) secret: Option<Secret>,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_max: usize,
    /// Roots to trust beside those of the system.
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) status: Codes,
}

const COMMAND_ONLY: [&str; 6] = [
    "dir",
    "env",
    "env_clear",
    "kill_grace",
    "output_max",
    "exit",
];
const HTTP_ONLY: [&str; 6] = [
    "headers",
    "secret",
    "connect_timeout",
    "response_max",
    "ca_file",
    "status",
];

/// Settings that are tables themselves.
const TABLES: [&str; 6] = ["env", "exit", "headers", "status", "on_done", "on_failed"];

pub(super) fn read_handlers(root: &Section<'_, '_>) -> Vec<HandlerSettings> {
    root.named_sections("handler")
        .into_iter()
        .filter_map(|(kind, section)| read_handler(kind, section))
        .collect()
}

fn read_handler(kind: String, section: Section<'_, '_>) -> Option<HandlerSettings> {
    if let Err(e) = super::name_rule(&kind) {
        let problem = Problem::error(section.span.clone(), e);
        section.reader.problem(problem);
    }
    let limits = Duration::from_millis(1)..=Duration::from_secs(30 * 86_400);
    let action = read_action(&Owner::handler(&kind), &section);
    if !has_one(&section) {
        return None;
    }
    let timeout = match &action {
        Some(Action::Http(_)) => Some(section.within("timeout", Duration::from_secs(30), &limits)),
        _ => section.optional_within("timeout", &limits),
    };
    section.finish();
    Some(HandlerSettings {
        kind,
        timeout,
        action: action?,
    })
}

/// Whose action is read, for messages.
pub(super) struct Owner {
    /// `the handler for "k"`
    what: String,
    /// The section, quoted as a name with a dot needs it, without the rest of the name.
    prefix: String,
    /// What its name is.
    noun: &'static str,
}

impl Owner {
    fn handler(kind: &str) -> Self {
        Self {
            what: format!("the handler for {kind:?}"),
            prefix: format!("handler.\"{kind}"),
            noun: "a kind",
        }
    }

    pub(super) fn table(name: &str) -> Self {
        Self {
            what: format!("the table {name:?}"),
            prefix: format!("table.\"{name}"),
            noun: "a table",
        }
    }
}

/// Whether a section has a command or a url, and not both: with neither or both, nothing else of it makes sense.
pub(super) fn has_one(section: &Section<'_, '_>) -> bool {
    section.has("command") != section.has("url")
}

/// The command or the endpoint of a section that has one of them.
pub(super) fn read_action(owner: &Owner, section: &Section<'_, '_>) -> Option<Action> {
    match (section.has("command"), section.has("url")) {
        (true, false) => {
            complain_of_others(section, &HTTP_ONLY, "a command");
            read_command(section).map(Action::Command)
        }
        (false, true) => {
            complain_of_others(section, &COMMAND_ONLY, "a url");
            read_http(section).map(Action::Http)
        }
        (true, true) => {
            let message = format!("{} has both a command and a url: it takes one", owner.what);
            let problem = Problem::error(section.span.clone(), message);
            section.reader.problem(problem);
            None
        }
        (false, false) => {
            complain_of_neither(owner, section);
            None
        }
    }
}

/// Says what is probably wrong with a handler that does nothing.
fn complain_of_neither(owner: &Owner, section: &Section<'_, '_>) {
    let message = format!("{} has neither a command nor a url", owner.what);
    for (name, span, value) in section.items() {
        let known = TABLES.contains(&name.as_str());
        let help = match nearest(&name, ["command", "url"]) {
            // `[handler.email.welcome]` is a table in a table, which nobody means.
            _ if value.get_ref().is_table() && !known => {
                format!(
                    "{} with a dot in it needs quotes: [{}.{name}\"]",
                    owner.noun, owner.prefix
                )
            }
            Some(meant) => format!("did you mean {meant:?}?"),
            None => continue,
        };
        let problem = Problem::error(Some(span), message).help(help);
        return section.reader.problem(problem);
    }
    let problem = Problem::error(section.span.clone(), message);
    section
        .reader
        .problem(problem.help("give it a command or a url"));
}

/// Settings of the other sort of handler are better answered than called unknown.
fn complain_of_others(section: &Section<'_, '_>, others: &[&'static str], has: &str) {
    // Only those that are there: the others are no suggestion for a mistyped key.
    for key in others.iter().filter(|key| section.has(key)) {
        if let Some(value) = section.raw(key) {
            let message = format!("{key:?} means nothing here: this handler has {has}");
            section
                .reader
                .problem(Problem::error(Some(value.span()), message));
        }
    }
}

fn read_command(section: &Section<'_, '_>) -> Option<CommandSettings> {
    let value = section.raw("command")?;
    let dir = section.optional::<String>("dir").map(PathBuf::from);
    let settings = CommandSettings {
        command: command_line(section, value)?,
        env: read_texts(&section.section("env")),
        env_clear: section.value("env_clear", false),
        kill_grace: section.within(
            "kill_grace",
            Duration::from_secs(5),
            &(Duration::ZERO..=Duration::from_secs(600)),
        ),
        output_max: bytes(section.within(
            "output_max",
            Size(64 << 10),
            &(Size(1 << 10)..=Size(16 << 20)),
        )),
        exit: read_exit(&section.section("exit")),
        dir,
    };
    if let Some(why) = missing(&settings.command[0], settings.dir.as_deref()) {
        section
            .reader
            .problem(Problem::warning(Some(value.span()), why));
    }
    Some(settings)
}

/// A list is run as it is; a text is given to the shell.
fn command_line(section: &Section<'_, '_>, value: &Spanned<DeValue<'_>>) -> Option<Vec<String>> {
    let (line, shown) = match value.get_ref() {
        DeValue::String(text) => (
            vec!["/bin/sh".into(), "-c".into(), text.to_string()],
            text.to_string().shown(),
        ),
        other => match Vec::<String>::from_toml(other) {
            Ok(list) => (list.clone(), list.shown()),
            Err(_) => {
                let message = format!(
                    "{} must be a list of texts, or a text for the shell, not {}",
                    section.path_of("command"),
                    type_text(other)
                );
                section.complain("command", message);
                return None;
            }
        },
    };
    if line.first().is_none_or(String::is_empty)
        || line
            .last()
            .is_some_and(|l| line.len() == 3 && l.trim().is_empty() && line[0] == "/bin/sh")
    {
        section.complain("command", "the command is empty");
        return None;
    }
    let meaning = shown.to_string();
    section.reader.note(
        section.path_of("command"),
        shown,
        meaning,
        section.origin(value),
    );
    Some(line)
}

fn read_http(section: &Section<'_, '_>) -> Option<HttpSettings> {
    let url = section.secret("url");
    if let Some(url) = &url {
        check_url(section, "url", url.reveal());
    }
    let secs = Duration::from_secs;
    let settings = HttpSettings {
        headers: read_texts(&section.section("headers")),
        secret: section.secret("secret"),
        connect_timeout: section.within(
            "connect_timeout",
            secs(5),
            &(Duration::from_millis(1)..=secs(600)),
        ),
        response_max: bytes(section.within(
            "response_max",
            Size(1 << 20),
            &(Size(1 << 10)..=Size(64 << 20)),
        )),
        ca_file: section.optional::<String>("ca_file").map(PathBuf::from),
        status: read_status(&section.section("status")),
        url: url?,
    };
    check_headers(section, &settings.headers);
    check_ca_file(section, settings.ca_file.as_deref());
    Some(settings)
}

/// Certificates that are not here may be there where the file is used.
pub(super) fn check_ca_file(section: &Section<'_, '_>, file: Option<&Path>) {
    let Some(file) = file else { return };
    if let Err(e) = std::fs::metadata(file) {
        let message = format!("cannot read the certificates in {}: {e}", file.display());
        section.reader.problem(Problem {
            level: super::source::Level::Missing,
            ..Problem::error(section.span_of("ca_file"), message)
        });
    }
}

/// Checks an address, and shows what of it is no secret.
pub(super) fn check_url(section: &Section<'_, '_>, key: &str, text: &str) {
    match reqwest::Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
            let mut entries = section.reader.entries.borrow_mut();
            let path = section.path_of(key);
            let entry = entries.iter_mut().rfind(|e| e.path == path);
            if let Some(entry) = entry.filter(|e| e.shown == MASK) {
                entry.shown = without_secrets(url).to_string().shown();
            }
        }
        Ok(url) => section.complain(key, format!("{:?} is neither http nor https", url.scheme())),
        Err(e) => section.complain(key, format!("the {key} cannot be read: {e}")),
    }
}

/// A password or a query may be a secret; the rest of an address is not.
fn without_secrets(mut url: reqwest::Url) -> reqwest::Url {
    if url.password().is_some() {
        // Fails only for addresses that can have none.
        let _ = url.set_password(Some(MASK));
    }
    if url.query().is_some() {
        url.set_query(Some(MASK));
    }
    url
}

pub(super) fn check_headers(section: &Section<'_, '_>, headers: &[(String, Secret)]) {
    use reqwest::header::{HeaderName, HeaderValue};
    for (name, value) in headers {
        if name.parse::<HeaderName>().is_err() {
            section.complain("headers", format!("{name:?} is no name of a header"));
        } else if value.reveal().parse::<HeaderValue>().is_err() {
            section.complain(
                "headers",
                format!("the value of the header {name:?} has characters that no header can have"),
            );
        }
    }
}

/// A table of texts, each of which may be a secret.
pub(super) fn read_texts(section: &Section<'_, '_>) -> Vec<(String, Secret)> {
    section
        .items()
        .into_iter()
        .filter_map(|(name, _, value)| {
            Some((name.clone(), section.secret_at(&name, value, Show::ByName)?))
        })
        .collect()
}

fn bytes(size: Size) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}
