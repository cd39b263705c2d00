//! `exit` and `status`: which exit code or HTTP status does what to a job. What the file does not name has a default.

use std::collections::BTreeMap;

use super::entry::Origin;
use super::reaction::Reaction;
use super::section::Section;
use super::source::Problem;
use super::value::Setting;

/// Reactions by code; for HTTP also by class (`4xx`).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Codes {
    by_code: BTreeMap<u16, Reaction>,
    /// By the first digit; empty for exit codes.
    by_class: BTreeMap<u16, Reaction>,
    other: Reaction,
}

impl Codes {
    /// What this code means.
    pub(crate) fn reaction(&self, code: u16) -> Reaction {
        self.by_code
            .get(&code)
            .or_else(|| self.by_class.get(&(code / 100)))
            .copied()
            .unwrap_or(self.other)
    }
}

/// Exit codes: 0 is done, every other a failure that is tried again.
pub(super) fn read_exit(section: Section<'_, '_>) -> Codes {
    let mut codes = Codes {
        by_code: BTreeMap::from([(0, Reaction::Done)]),
        by_class: BTreeMap::new(),
        other: Reaction::Retry(None),
    };
    read(
        &section,
        &mut codes,
        "an exit code from 0 to 255, or \"other\"",
        |codes, key| match key {
            "other" => Some(Slot::Other),
            key => key.parse().ok().filter(|n| *n <= 255).map(|n| {
                codes.by_code.remove(&n);
                Slot::Code(n)
            }),
        },
    );
    codes
}

/// HTTP statuses. A client error that says that the request itself is bad cannot be mended by asking again; others (401, 404) are as often
/// a mistake in a deployment, which is mended.
pub(super) fn read_status(section: Section<'_, '_>) -> Codes {
    let retry = Reaction::Retry(None);
    let mut codes = Codes {
        by_code: BTreeMap::from([
            (400, Reaction::Dead),
            (410, Reaction::Cancel),
            (413, Reaction::Dead),
            (415, Reaction::Dead),
            (422, Reaction::Dead),
        ]),
        by_class: BTreeMap::from([(2, Reaction::Done), (3, retry), (4, retry), (5, retry)]),
        other: retry,
    };
    read(
        &section,
        &mut codes,
        "a status from 200 to 599, or a class: 2xx, 3xx, 4xx, 5xx",
        |_, key| {
            let class = key.strip_suffix("xx").and_then(|c| c.parse().ok());
            match class {
                Some(class) => (2..=5).contains(&class).then_some(Slot::Class(class)),
                None => key
                    .parse()
                    .ok()
                    .filter(|n| (200..=599).contains(n))
                    .map(Slot::Code),
            }
        },
    );
    codes
}

enum Slot {
    Code(u16),
    Class(u16),
    Other,
}

fn read(
    section: &Section<'_, '_>,
    codes: &mut Codes,
    wanted: &str,
    slot: impl Fn(&mut Codes, &str) -> Option<Slot>,
) {
    let mut said = Vec::new();
    for (key, span, value) in section.items() {
        let reaction = match Reaction::from_toml(value.get_ref()) {
            Ok(reaction) => reaction,
            Err(why) => {
                let why = why.unwrap_or_else(|| {
                    format!("{} must be {}", section.path_of(&key), Reaction::WANTED)
                });
                section
                    .reader
                    .problem(Problem::error(Some(value.span()), why));
                continue;
            }
        };
        match slot(codes, &key) {
            Some(Slot::Code(n)) => {
                codes.by_code.insert(n, reaction);
            }
            Some(Slot::Class(n)) => {
                codes.by_class.insert(n, reaction);
            }
            Some(Slot::Other) => codes.other = reaction,
            None => {
                let message = format!("{key:?} is not {wanted}");
                section.reader.problem(Problem::error(Some(span), message));
                continue;
            }
        }
        said.push((key, section.origin(value)));
    }
    note(section, codes, &said);
}

/// Notes the whole map, so that a default that is written out makes no difference.
fn note(section: &Section<'_, '_>, codes: &Codes, said: &[(String, Origin)]) {
    let classes = codes.by_class.iter().map(|(n, r)| (format!("{n}xx"), r));
    let other = codes
        .by_class
        .is_empty()
        .then_some(("other".to_owned(), &codes.other));
    let all = codes
        .by_code
        .iter()
        .map(|(n, r)| (n.to_string(), r))
        .chain(classes)
        .chain(other);
    for (key, reaction) in all {
        let origin = said
            .iter()
            .find(|(k, _)| *k == key)
            .map_or(Origin::Default, |(_, o)| o.clone());
        let shown = reaction.shown();
        let meaning = shown.to_string();
        section
            .reader
            .note(section.path_of(&key), shown, meaning, origin);
    }
}
