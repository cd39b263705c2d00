//! Putting a worker together.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::Worker;
use super::attempt::Attempt;
use super::config::{Config, Queue};
use super::core::Core;
use super::ctx::{Ctx, with_trace_blocking};
use super::handler::{BatchHandler, BlockingHandler, Handler, Item, Parts, RawJob, States, decode};
use super::lease::host_name;
use super::outcome::{IntoOutcome, Outcome};
use super::registry::{Call, Registry};
use super::run::panic_text;
use super::slots::Order;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::validate;

/// Runs one attempt.
type Run = Arc<dyn Fn(Ctx) -> BoxFuture<'static, Outcome> + Send + Sync>;
/// Something around every attempt.
type Middleware = Arc<dyn Fn(Ctx, Next) -> BoxFuture<'static, Outcome> + Send + Sync>;
/// A handler that waits for the states to be complete.
type Pending = Box<dyn FnOnce(Arc<States>) -> Result<Prepared, String> + Send>;

enum Prepared {
    One(Run),
    Chunk(
        usize,
        Arc<dyn Fn(Vec<Ctx>) -> BoxFuture<'static, Vec<Outcome>> + Send + Sync>,
    ),
}

/// The rest of the way to the handler, for a middleware to go.
pub struct Next {
    ctx: Ctx,
    run: Run,
}

impl Next {
    /// Goes on to the next middleware, or to the handler.
    pub async fn run(self) -> Outcome {
        (self.run)(self.ctx).await
    }
}

/// Settings and handlers of a worker to be.
#[must_use = "a builder does nothing until build is called"]
pub struct WorkerBuilder {
    client: Client,
    config: Config,
    states: States,
    handlers: Vec<(Vec<&'static str>, Option<String>, Pending)>,
    middleware: Vec<Middleware>,
}

impl WorkerBuilder {
    pub(super) fn new(client: Client) -> Self {
        let config = Config {
            name: format!("{}-{}", host_name(), std::process::id()),
            queues: Vec::new(),
            concurrency: 100,
            order: Order::default(),
            lease: None,
            poll: Duration::from_secs(1),
            poll_only: false,
            ahead_max: 6000,
            grace: Duration::from_secs(30),
            statement_timeout: Duration::from_secs(30),
            maintain: true,
        };
        Self {
            client,
            config,
            states: States::default(),
            handlers: Vec::new(),
            middleware: Vec::new(),
        }
    }

    /// Serves a queue: by name, by pattern (`"tenant-*"`), or as a [`Queue`] with settings. The first that means a queue counts;
    /// in strict order they are served as they were added.
    pub fn queue(mut self, queue: impl Into<Queue>) -> Self {
        self.config.queues.push(queue.into());
        self
    }

    /// How many handlers run at once in all queues together (100 by default).
    pub fn concurrency(mut self, at_once: usize) -> Self {
        self.config.concurrency = at_once;
        self
    }

    /// In which order the queues are served: weighted by default.
    pub fn order(mut self, order: Order) -> Self {
        self.config.order = order;
        self
    }

    /// What the worker is called in lists; host and process id by default. Names need not be unique.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// How long a lease lasts before it has to be renewed; the queue's setting (30 s) by default. So long does a job wait when its
    /// worker dies.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = Some(lease);
        self
    }

    /// How often to look for jobs where no wake-up can be heard: behind a pooler, or with [`poll_only`](Self::poll_only) (1 s by default).
    pub fn poll(mut self, every: Duration) -> Self {
        self.config.poll = every;
        self
    }

    /// Never listen for wake-ups: for poolers that do not pass them on. Jobs are then found within the polling interval.
    pub fn poll_only(mut self) -> Self {
        self.config.poll_only = true;
        self
    }

    /// Most jobs to claim beyond the free slots (6000 by default). How many it really is follows the pace of the handlers: what
    /// they finish in 50 ms, or in the time of four claims if those take longer; so none for long jobs.
    pub fn ahead(mut self, at_most: usize) -> Self {
        self.config.ahead_max = at_most;
        self
    }

    /// How long running jobs may take to finish when the worker shuts down (30 s by default).
    pub fn grace(mut self, grace: Duration) -> Self {
        self.config.grace = grace;
        self
    }

    /// How long the database may take to answer before the connection counts as broken (30 s by default).
    pub fn statement_timeout(mut self, timeout: Duration) -> Self {
        self.config.statement_timeout = timeout;
        self
    }

    /// Leaves housekeeping (partitions, retention) to other workers.
    pub fn without_maintenance(mut self) -> Self {
        self.config.maintain = false;
        self
    }

    /// Gives handlers something to work with: see [`State`](super::State).
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.insert(state);
        self
    }

    /// Runs something around every attempt of handlers that take one job at a time: timing, logging, a transaction. The first one
    /// added is the outermost. Batch handlers are not wrapped: what they do for one job cannot be told from the rest.
    ///
    /// ```no_run
    /// # fn f(worker: rowlock::WorkerBuilder) -> rowlock::WorkerBuilder {
    /// worker.middleware(|ctx, next| async move {
    ///     let outcome = next.run().await;
    ///     println!("job {} ended as {outcome:?}", ctx.id());
    ///     outcome
    /// })
    /// # }
    /// ```
    pub fn middleware<F, Fut>(mut self, middleware: F) -> Self
    where
        F: Fn(Ctx, Next) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        self.middleware
            .push(Arc::new(move |ctx, next| Box::pin(middleware(ctx, next))));
        self
    }

    /// Handles jobs of one kind with an async function.
    pub fn handle<H, Args>(self, handler: H) -> Self
    where
        H: Handler<Args>,
        Args: 'static,
    {
        self.add::<H::Job>(Box::new(move |states| {
            H::check(&states)?;
            // Called inside of the future that catches panics: decoding and building the arguments may be done right away.
            Ok(Prepared::One(Arc::new(move |ctx: Ctx| {
                let parts = Parts {
                    ctx: &ctx,
                    states: &states,
                };
                match decode::<H::Job>(ctx.attempt_ref()) {
                    Ok(job) => handler.clone().call(job, &parts),
                    Err(outcome) => Box::pin(ready(outcome)),
                }
            })))
        }))
    }

    /// Handles jobs of one kind with a function that blocks; each runs on a thread of its own.
    pub fn handle_blocking<H, Args>(self, handler: H) -> Self
    where
        H: BlockingHandler<Args>,
        Args: 'static,
    {
        self.add::<H::Job>(Box::new(move |states| {
            H::check(&states)?;
            Ok(Prepared::One(Arc::new(move |ctx: Ctx| {
                let (handler, states) = (handler.clone(), states.clone());
                Box::pin(async move {
                    let job = match decode::<H::Job>(ctx.attempt_ref()) {
                        Ok(job) => job,
                        Err(outcome) => return outcome,
                    };
                    let call = handler.call(
                        job,
                        &Parts {
                            ctx: &ctx,
                            states: &states,
                        },
                    );
                    let trace = ctx.attempt_ref().trace().map(Into::into);
                    let call = move || with_trace_blocking(trace, call);
                    match tokio::task::spawn_blocking(call).await {
                        Ok(outcome) => outcome,
                        Err(e) => match e.try_into_panic() {
                            Ok(panic) => Outcome::Retry {
                                error: format!("panicked: {}", panic_text(&*panic)),
                                after: None,
                            },
                            Err(_) => Outcome::Retry {
                                error: "the runtime stopped".into(),
                                after: None,
                            },
                        },
                    }
                })
            })))
        }))
    }

    /// Handles jobs of one kind several at a time, up to `at_most`, as they come: it never waits for a batch to fill.
    pub fn handle_batch<H, Args>(self, at_most: usize, handler: H) -> Self
    where
        H: BatchHandler<Args>,
        Args: 'static,
    {
        self.add::<H::Job>(Box::new(move |states| {
            H::check(&states)?;
            if !(1..=10_000).contains(&at_most) {
                return Err(format!(
                    "it takes {at_most} jobs at a time, but must take from 1 to 10000"
                ));
            }
            Ok(Prepared::Chunk(
                at_most,
                Arc::new(move |all: Vec<Ctx>| {
                    let (handler, states) = (handler.clone(), states.clone());
                    Box::pin(async move { run_batch(handler, all, &states).await })
                }),
            ))
        }))
    }

    /// Handles every kind that has no handler of its own. Without it, such jobs are left for other workers.
    pub fn handle_any<F, Fut, R>(mut self, handler: F) -> Self
    where
        F: Fn(RawJob, Ctx) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoOutcome,
    {
        self.handlers.push((Vec::new(), None, raw(handler)));
        self
    }

    /// Handles jobs of a kind known by name only.
    pub fn handle_kind<F, Fut, R>(mut self, kind: impl Into<String>, handler: F) -> Self
    where
        F: Fn(RawJob, Ctx) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoOutcome,
    {
        self.handlers
            .push((Vec::new(), Some(kind.into()), raw(handler)));
        self
    }

    fn add<J: Job>(mut self, pending: Pending) -> Self {
        let kinds = std::iter::once(J::KIND)
            .chain(J::ALIASES.iter().copied())
            .collect();
        self.handlers.push((kinds, None, pending));
        self
    }

    /// Checks everything and puts the worker together.
    pub fn build(self) -> Result<Worker> {
        self.config.check()?;
        let mut registry = Registry::default();
        let states = Arc::new(self.states);
        for (kinds, named, pending) in self.handlers {
            let kinds: Vec<&str> = kinds.into_iter().chain(named.as_deref()).collect();
            for kind in &kinds {
                validate::name("kind", kind)?;
            }
            let what = kinds
                .first()
                .map_or("any kind".to_owned(), |k| format!("the kind {k:?}"));
            let prepared = pending(states.clone())
                .map_err(|e| Error::Setup(format!("the handler for {what} cannot be used: {e}")))?;
            let call = call(prepared, &self.middleware);
            let added = if kinds.is_empty() {
                registry.add_any(call)
            } else {
                registry.add(&kinds, call)
            };
            added.map_err(Error::Setup)?;
        }
        if registry.is_empty() {
            return Err(super::no_handlers());
        }
        Ok(Worker {
            core: Arc::new(Core::new(self.client, self.config, registry)),
        })
    }
}

fn raw<F, Fut, R>(handler: F) -> Pending
where
    F: Fn(RawJob, Ctx) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = R> + Send + 'static,
    R: IntoOutcome,
{
    Box::new(move |_| {
        Ok(Prepared::One(Arc::new(move |ctx: Ctx| {
            let handler = handler.clone();
            Box::pin(async move {
                let attempt = ctx.attempt_ref();
                let job = RawJob {
                    kind: attempt.origin.kind.clone(),
                    payload: attempt.payload.clone(),
                };
                handler(job, ctx).await.into_outcome()
            })
        })))
    })
}

/// A prepared handler with the middleware around it.
fn call(prepared: Prepared, middleware: &[Middleware]) -> Call {
    match prepared {
        Prepared::One(run) => {
            let run = middleware.iter().rev().fold(run, |run, around| {
                let around = around.clone();
                Arc::new(move |ctx: Ctx| {
                    around(
                        ctx.clone(),
                        Next {
                            ctx,
                            run: run.clone(),
                        },
                    )
                })
            });
            Call::One(Box::new(move |attempt: Arc<Attempt>| {
                run(Ctx::new(attempt))
            }))
        }
        Prepared::Chunk(at_most, run) => Call::Chunk(
            at_most,
            Box::new(move |attempts: Vec<Arc<Attempt>>| {
                run(attempts.into_iter().map(Ctx::new).collect())
            }),
        ),
    }
}

/// Runs a batch; jobs whose payload cannot be read fail alone.
async fn run_batch<H: BatchHandler<Args>, Args>(
    handler: H,
    all: Vec<Ctx>,
    states: &States,
) -> Vec<Outcome> {
    let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(all.len());
    let mut items = Vec::with_capacity(all.len());
    for ctx in all {
        match decode::<H::Job>(ctx.attempt_ref()) {
            Ok(job) => {
                items.push(Item { job, ctx });
                outcomes.push(None);
            }
            Err(outcome) => outcomes.push(Some(outcome)),
        }
    }
    // What is asked for beside the items is that of the first of them.
    let mut answers = match items.first().map(|first| first.ctx.clone()) {
        None => Vec::new(),
        Some(ctx) => handler.call(items, &Parts { ctx: &ctx, states }).await,
    }
    .into_iter();
    outcomes
        .into_iter()
        .map(|unreadable| {
            unreadable
                .or_else(|| answers.next())
                .unwrap_or(Outcome::Retry {
                    error: "the batch handler did not answer".into(),
                    after: None,
                })
        })
        .collect()
}
