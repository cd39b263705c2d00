//! The registry: which handler takes which kind.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::attempt::Attempt;
use super::outcome::Outcome;

type CallOne = dyn Fn(Arc<Attempt>) -> BoxFuture<'static, Outcome> + Send + Sync;
type CallChunk = dyn Fn(Vec<Arc<Attempt>>) -> BoxFuture<'static, Vec<Outcome>> + Send + Sync;

/// A handler with its types erased.
pub(crate) enum Call {
    /// Takes one job at a time.
    One(Box<CallOne>),
    /// Takes up to so many at once and answers for each.
    Chunk(usize, Box<CallChunk>),
}

/// A handler and the kinds it takes.
pub(crate) struct Registered {
    kinds: Vec<Arc<str>>,
    pub(crate) call: Call,
}

impl Registered {
    pub(crate) fn chunk_max(&self) -> usize {
        match self.call {
            Call::One(_) => 1,
            Call::Chunk(max, _) => max,
        }
    }

    /// The kind as text that is shared rather than copied for each job, where the handler has it.
    pub(crate) fn kind_text(&self, kind: &str) -> Arc<str> {
        self.kinds
            .iter()
            .find(|k| &***k == kind)
            .cloned()
            .unwrap_or_else(|| kind.into())
    }
}

/// All handlers of a worker.
#[derive(Default)]
pub(crate) struct Registry {
    by_kind: HashMap<Arc<str>, Arc<Registered>>,
    /// Takes every kind that no other handler takes.
    any: Option<Arc<Registered>>,
}

impl Registry {
    /// Adds a handler for these kinds; refuses one that is taken.
    pub(crate) fn add(&mut self, kinds: &[&str], call: Call) -> Result<(), String> {
        let kinds: Vec<Arc<str>> = kinds.iter().map(|k| Arc::from(*k)).collect();
        if let Some(taken) = kinds.iter().find(|k| self.by_kind.contains_key(*k)) {
            return Err(format!(
                "two handlers for the kind {taken:?}: each kind has one"
            ));
        }
        let registered = Arc::new(Registered {
            kinds: kinds.clone(),
            call,
        });
        for kind in kinds {
            self.by_kind.insert(kind, registered.clone());
        }
        Ok(())
    }

    pub(crate) fn add_any(&mut self, call: Call) -> Result<(), String> {
        if self
            .any
            .replace(Arc::new(Registered {
                kinds: Vec::new(),
                call,
            }))
            .is_some()
        {
            return Err("two handlers for any kind: there can be one".into());
        }
        Ok(())
    }

    pub(crate) fn get(&self, kind: &str) -> Option<&Arc<Registered>> {
        self.by_kind.get(kind).or(self.any.as_ref())
    }

    /// The kinds to ask for; `None` for all.
    pub(crate) fn kinds(&self) -> Option<Vec<String>> {
        if self.any.is_some() {
            return None;
        }
        let mut kinds: Vec<String> = self.by_kind.keys().map(ToString::to_string).collect();
        kinds.sort();
        Some(kinds)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_kind.is_empty() && self.any.is_none()
    }

    /// Most jobs that any of the handlers takes at once.
    pub(crate) fn chunk_max(&self) -> usize {
        self.by_kind
            .values()
            .chain(&self.any)
            .map(|r| r.chunk_max())
            .max()
            .unwrap_or(1)
    }
}
