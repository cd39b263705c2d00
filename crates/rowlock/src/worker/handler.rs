//! Handlers: plain functions whose first argument is the job and whose others are extractors.
//!
//! ```
//! use rowlock::{Ctx, Job, State};
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Clone)] struct Mailer;
//! # impl Mailer { async fn send(&self, _: &str) -> std::io::Result<()> { Ok(()) } }
//! # #[derive(Serialize, Deserialize, Job)]
//! # #[job(kind = "email")]
//! # struct Email { to: String }
//! async fn send_email(job: Email, State(mailer): State<Mailer>, ctx: Ctx) -> std::io::Result<()> {
//!     println!("attempt {} of job {}", ctx.attempt(), ctx.id());
//!     mailer.send(&job.to).await
//! }
//! ```

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::attempt::Attempt;
use super::ctx::Ctx;
use super::outcome::{IntoOutcome, Outcome, from_error};
use crate::job::Job;
use crate::unreadable;

/// What the worker was given for its handlers, by type.
#[derive(Default, Clone)]
pub struct States(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl States {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    fn get<T: Clone + 'static>(&self) -> Option<T> {
        self.0
            .get(&TypeId::of::<T>())
            .and_then(|s| s.downcast_ref::<T>())
            .cloned()
    }
}

/// Where an extractor finds what it extracts.
pub struct Parts<'a> {
    pub(crate) ctx: &'a Ctx,
    pub(crate) states: &'a States,
}

/// An argument of a handler after the job: [`Ctx`], [`State`], or a type of your own built from them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a handler",
    label = "not an extractor",
    note = "a handler's first argument is the job; the others may be `Ctx`, `State<T>` (given by `WorkerBuilder::state`), or types that implement `FromParts`"
)]
pub trait FromParts: Sized + Send + 'static {
    /// Builds the argument for one attempt.
    fn from_parts(parts: &Parts<'_>) -> Self;

    /// Whether it can be built at all: asked once when the worker is put together, so that what is missing shows at the start
    /// and not in the first job.
    fn check(states: &States) -> Result<(), String> {
        let _ = states;
        Ok(())
    }
}

/// Something that the worker was given for its handlers: a pool, a mailer, a configuration. Cloned for each job.
#[derive(Debug, Clone, Copy)]
pub struct State<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromParts for State<T> {
    fn from_parts(parts: &Parts<'_>) -> Self {
        // `check` has seen that it is there, and states are never taken away.
        Self(
            parts
                .states
                .get()
                .unwrap_or_else(|| unreachable!("{} was there at the start", type_name::<T>())),
        )
    }

    fn check(states: &States) -> Result<(), String> {
        match states.get::<T>() {
            Some(_) => Ok(()),
            None => Err(format!(
                "it wants State<{t}>, which the worker was not given: add .state(...) with a {t}",
                t = type_name::<T>()
            )),
        }
    }
}

impl FromParts for Ctx {
    fn from_parts(parts: &Parts<'_>) -> Self {
        parts.ctx.clone()
    }
}

/// An async function that handles jobs of one kind. `Args` only tells implementations apart.
#[diagnostic::on_unimplemented(
    message = "this cannot be a handler",
    label = "not a handler",
    note = "a handler is an async function whose first argument is the job by value (`#[derive(Job)]`), followed by up to five extractors (`Ctx`, `State<T>`, …), and which returns `()`, `Outcome`, `Done<T>` or a `Result` of one of these"
)]
pub trait Handler<Args>: Clone + Send + Sync + 'static {
    /// The job it takes.
    type Job: Job;

    /// Whether its arguments can be had.
    fn check(states: &States) -> Result<(), String>;

    /// Runs it.
    fn call(self, job: Self::Job, parts: &Parts<'_>) -> BoxFuture<'static, Outcome>;
}

/// As [`Handler`], for a function that blocks: it runs on a thread of its own.
#[diagnostic::on_unimplemented(
    message = "this cannot be a blocking handler",
    note = "a blocking handler is a plain function whose first argument is the job by value, followed by up to five extractors"
)]
pub trait BlockingHandler<Args>: Clone + Send + Sync + 'static {
    /// The job it takes.
    type Job: Job;

    /// Whether its arguments can be had.
    fn check(states: &States) -> Result<(), String>;

    /// Runs it, later, on the thread that calls what is returned.
    fn call(self, job: Self::Job, parts: &Parts<'_>) -> Box<dyn FnOnce() -> Outcome + Send>;
}

/// As [`Handler`], for a function that takes several jobs at once, as a `Vec`.
#[diagnostic::on_unimplemented(
    message = "this cannot be a batch handler",
    note = "a batch handler is an async function whose first argument is a `Vec<Item<J>>` of jobs, followed by up to five extractors, and which returns what `IntoOutcomes` allows"
)]
pub trait BatchHandler<Args>: Clone + Send + Sync + 'static {
    /// The job it takes.
    type Job: Job;

    /// Whether its arguments can be had.
    fn check(states: &States) -> Result<(), String>;

    /// Runs it.
    fn call(
        self,
        jobs: Vec<Item<Self::Job>>,
        parts: &Parts<'_>,
    ) -> BoxFuture<'static, Vec<Outcome>>;
}

/// One job of a batch, with its context.
pub struct Item<J> {
    /// The job.
    pub job: J,
    /// About this attempt at it.
    pub ctx: Ctx,
}

/// What a batch handler may return: one outcome for all, or one for each job in their order.
pub trait IntoOutcomes {
    /// The outcomes of `n` jobs.
    fn into_outcomes(self, n: usize) -> Vec<Outcome>;
}

impl IntoOutcomes for () {
    fn into_outcomes(self, n: usize) -> Vec<Outcome> {
        (0..n).map(|_| Outcome::Done(None)).collect()
    }
}

impl<T: IntoOutcome> IntoOutcomes for Vec<T> {
    fn into_outcomes(self, n: usize) -> Vec<Outcome> {
        let given = self.len();
        let mut outcomes: Vec<Outcome> = self.into_iter().map(IntoOutcome::into_outcome).collect();
        let error = format!("the batch handler answered for {given} jobs of {n}");
        outcomes.truncate(n);
        outcomes.resize_with(n, || Outcome::Retry {
            error: error.clone(),
            after: None,
        });
        outcomes
    }
}

impl<T: IntoOutcomes, E: Into<crate::BoxError>> IntoOutcomes for Result<T, E> {
    fn into_outcomes(self, n: usize) -> Vec<Outcome> {
        match self {
            Ok(all) => all.into_outcomes(n),
            Err(e) => {
                let error: crate::BoxError = e.into();
                // What the error asks for goes for all of them.
                (0..n).map(|_| from_error(&*error)).collect()
            }
        }
    }
}

macro_rules! handlers {
    ($($arg:ident),*) => {
        impl<F, Fut, R, J, $($arg,)*> Handler<(J, $($arg,)*)> for F
        where
            F: Fn(J, $($arg,)*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output = R> + Send + 'static,
            R: IntoOutcome,
            J: Job,
            $($arg: FromParts,)*
        {
            type Job = J;

            fn check(states: &States) -> Result<(), String> {
                let _ = states;
                $($arg::check(states)?;)*
                Ok(())
            }

            fn call(self, job: J, parts: &Parts<'_>) -> BoxFuture<'static, Outcome> {
                let _ = parts;
                let future = self(job, $($arg::from_parts(parts),)*);
                Box::pin(async move { future.await.into_outcome() })
            }
        }

        impl<F, R, J, $($arg,)*> BlockingHandler<(J, $($arg,)*)> for F
        where
            F: Fn(J, $($arg,)*) -> R + Clone + Send + Sync + 'static,
            R: IntoOutcome,
            J: Job,
            $($arg: FromParts,)*
        {
            type Job = J;

            fn check(states: &States) -> Result<(), String> {
                let _ = states;
                $($arg::check(states)?;)*
                Ok(())
            }

            #[allow(non_snake_case, reason = "the arguments are named after their types")]
            fn call(self, job: J, parts: &Parts<'_>) -> Box<dyn FnOnce() -> Outcome + Send> {
                let _ = parts;
                $(let $arg = $arg::from_parts(parts);)*
                Box::new(move || self(job, $($arg,)*).into_outcome())
            }
        }

        impl<F, Fut, R, J, $($arg,)*> BatchHandler<(J, $($arg,)*)> for F
        where
            F: Fn(Vec<Item<J>>, $($arg,)*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output = R> + Send + 'static,
            R: IntoOutcomes,
            J: Job,
            $($arg: FromParts,)*
        {
            type Job = J;

            fn check(states: &States) -> Result<(), String> {
                let _ = states;
                $($arg::check(states)?;)*
                Ok(())
            }

            fn call(self, jobs: Vec<Item<J>>, parts: &Parts<'_>) -> BoxFuture<'static, Vec<Outcome>> {
                let _ = parts;
                let n = jobs.len();
                let future = self(jobs, $($arg::from_parts(parts),)*);
                Box::pin(async move { future.await.into_outcomes(n) })
            }
        }
    };
}

handlers!();
handlers!(A);
handlers!(A, B);
handlers!(A, B, C);
handlers!(A, B, C, D);
handlers!(A, B, C, D, E);

/// A job as a handler that takes any kind sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RawJob {
    /// The kind.
    pub kind: Arc<str>,
    /// The payload as JSON text.
    pub payload: Box<str>,
}

/// The payload as the handler's type.
pub(super) fn decode<J: Job>(attempt: &Attempt) -> Result<J, Outcome> {
    serde_json::from_str(&attempt.payload).map_err(|e| Outcome::Retry {
        error: format!(
            "the payload is not what the kind {:?} expects here: {}",
            attempt.origin.kind,
            unreadable::why(&e)
        ),
        after: None,
    })
}
