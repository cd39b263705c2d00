//! `rowlock work`: a worker that needs no code. Handlers are commands and HTTP endpoints, as a configuration says.
//!
//! `team` is all that works by one configuration: the library's worker and, in `tables`, tables that are queues. `crew` relieves the team
//! when the configuration changes; `handler` is what runs jobs and rows; `signals` tell when to go.

mod crew;
mod handler;
mod signals;
mod tables;
mod team;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rowlock::Client;

use crate::Global;
use crate::exit::Exit;
use crate::log::Log;
use crate::notify::Notify;
use crate::output::{self, Format};
use crate::serve::Health;
use crate::settings::{self, Level, Loaded, Overrides, Settings};
use crate::traces::Traces;
use crate::workers::serves;
use crew::Crew;
use signals::{Asked, Signals};
use team::{Report, Until};

/// Work on jobs, and on rows of tables, with commands and HTTP endpoints, as a configuration file says.
///
/// A signal to stop (TERM, INT) lets running jobs finish, a second one gives them back at once. HUP reads the configuration anew without
/// losing a job; one with mistakes is refused, and work goes on with the old one.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock work -c rowlock.toml\n  \
    rowlock work --drain                     # until nothing is ready any more\n  \
    rowlock work --queue mail --concurrency 4\n  \
    rowlock config check rowlock.toml        # what is wrong with it\n\n\
    A small configuration:\n  \
    [handler.\"email.welcome\"]\n  \
    command = [\"./send-welcome\"]             # the payload is on its standard input\n\n  \
    [handler.\"invoice.pdf\"]\n  \
    url = \"https://app.internal/jobs/pdf\"    # the job is POSTed as JSON\n  \
    secret = { env = \"JOBS_SECRET\" }\n\n  \
    [table.work_items]                        # a table of your own as a queue\n  \
    command = [\"./work-item\"]                # the row is on its standard input, as JSON\n  \
    pending = \"status = 'pending'\"\n  \
    on_done = { set = \"status = 'done'\" }")]
pub(crate) struct Work {
    /// The configuration; rowlock.toml if there is one here.
    #[arg(long, short, env = "ROWLOCK_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Work until nothing is ready any more, neither jobs nor rows, then stop.
    #[arg(long)]
    drain: bool,

    #[command(flatten)]
    over: Over,
}

/// Flags that win over the configuration.
#[derive(Args, Clone, Default)]
pub(crate) struct Over {
    /// What the worker is called in lists (worker.name).
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Which queues to serve, in this order; may be repeated (worker.queues).
    #[arg(long, value_name = "NAME")]
    queue: Vec<String>,

    /// How many jobs to run at once (worker.concurrency).
    #[arg(long, value_name = "N")]
    concurrency: Option<u64>,

    /// Where to serve /livez, /readyz and /metrics, such as 127.0.0.1:9090 (http.address).
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,

    /// error, warn, info, debug, trace, or directives as RUST_LOG takes them (log.level).
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,

    /// text or json (log.format).
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

impl Over {
    /// What wins over the file: these flags, then the environment.
    pub(crate) fn overrides(&self, global: &Global) -> Overrides {
        let mut all = Overrides::from_environment();
        // What clap took from a variable is no flag.
        let flag = |given: &Option<String>, variable: &str| {
            given
                .clone()
                .filter(|v| all.environment.get(variable) != Some(v))
        };
        let database = flag(&global.database.database, "DATABASE_URL");
        let schema = flag(&global.database.schema, "ROWLOCK_SCHEMA");
        let queues = (!self.queue.is_empty()).then(|| self.queue.join(","));
        all.flag("database.url", "--database", database);
        all.flag("database.schema", "--schema", schema);
        all.flag("worker.name", "--name", self.name.clone());
        all.flag("worker.queues", "--queue", queues);
        all.flag("worker.concurrency", "--concurrency", self.concurrency);
        all.flag("http.address", "--http", self.http.clone());
        all.flag("log.level", "--log-level", self.log_level.clone());
        all.flag("log.format", "--log-format", self.log_format.clone());
        all
    }
}

impl Work {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let overrides = self.over.overrides(global);
        let file = settings::file(self.config.as_deref())?;
        let (settings, warnings) = load(&file, &overrides)?;
        let log = Log::start(&settings.log)?;
        let traces = Traces::start(settings.traces.as_ref())?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let mut shift = Shift {
            file,
            overrides,
            drain: self.drain,
            log,
            notify: Notify::from_environment(),
            health: Health::new(&settings)?,
            settings,
        };
        let result = shift.work().await;
        traces.flush().await;
        shift.log.flush();
        let (report, drained) = result?;
        if self.drain || report.jobs.unsettled > 0 {
            print(&report, global.format())?;
        }
        drained?;
        Ok(if report.jobs.unsettled == 0 {
            Exit::Success
        } else {
            Exit::Failure
        })
    }
}

fn load(file: &std::path::Path, overrides: &Overrides) -> anyhow::Result<(Settings, Vec<String>)> {
    let loaded = Loaded::read(file, overrides)?;
    let warnings = loaded.rendered(|level| level == Level::Warning);
    Ok((loaded.usable()?, warnings))
}

/// A worker's time from start to end.
struct Shift {
    file: PathBuf,
    overrides: Overrides,
    drain: bool,
    log: Log,
    notify: Notify,
    health: Arc<Health>,
    settings: Settings,
}

impl Shift {
    /// What was done, and whether it ended as it should.
    async fn work(&mut self) -> anyhow::Result<(Report, anyhow::Result<()>)> {
        let mut signals = Signals::listen()?;
        if let Some(address) = self.settings.http.address {
            self.health.serve(address).await?;
        }
        let client = self.settings.database.client()?;
        let until = match self.drain {
            true => Until::Drained,
            false => Until::Stopped,
        };
        let mut crew = Crew::start(&self.settings, &client, until).await?;
        self.ready(&client);
        let ended = self.until_asked_to_stop(&mut crew, &mut signals).await;

        // What asks for readiness must not hear "ready" from a worker that has said it is stopping.
        self.health.draining();
        self.notify.stopping();
        tracing::info!("stopping: finishing what runs; another signal stops at once");
        let report = tokio::select! {
            report = crew.shutdown() => report,
            () = signals.stop() => {
                tracing::info!("stopping at once: what runs is given back");
                crew.shutdown_now().await
            }
        };
        if self.drain {
            self.say_what_is_left(&client).await;
        }
        Ok((report, ended))
    }

    /// A job of a kind that no handler here takes stays where it is: somebody who drains should hear of it.
    async fn say_what_is_left(&self, client: &Client) {
        // With tables alone it is not about jobs.
        if self.settings.handlers.is_empty() {
            return;
        }
        let Ok(queues) = client.queues().await else {
            return;
        };
        let served: Vec<String> = self
            .settings
            .queues
            .iter()
            .map(|q| q.name.clone())
            .collect();
        let left = queues.iter().filter(|q| q.ready > 0 && !q.paused);
        for queue in left.filter(|q| serves(&served, &q.name)) {
            tracing::warn!(
                queue = queue.name,
                jobs = queue.ready,
                "jobs are left: no handler here takes their kind, or they came just now; `rowlock why ID` tells"
            );
        }
    }

    fn ready(&self, client: &Client) {
        self.health.ready(client);
        self.notify.ready("working");
    }

    /// An error if it could not be drained.
    async fn until_asked_to_stop(
        &mut self,
        crew: &mut Crew,
        signals: &mut Signals,
    ) -> anyhow::Result<()> {
        // One that beats whether or not anybody listens is simpler than one that may be missing.
        let mut heart =
            tokio::time::interval(self.notify.watchdog.unwrap_or(Duration::from_secs(3600)));
        loop {
            tokio::select! {
                asked = signals.next() => match asked {
                    Asked::Stop => return Ok(()),
                    Asked::Reload => self.reload(crew).await,
                },
                drained = crew.drained() => return Ok(drained?),
                _ = heart.tick() => self.notify.alive(),
            }
        }
    }

    /// Reads the configuration anew and works on by it, if it is any good.
    async fn reload(&mut self, crew: &mut Crew) {
        tracing::info!(file = %self.file.display(), "reading the configuration anew");
        self.notify.reloading();
        match self.try_reload(crew).await {
            Ok(()) => tracing::info!("working by the new configuration"),
            Err(error) => tracing::error!(
                "the new configuration is refused, the old one stays in force: {error:#}"
            ),
        }
        self.notify.ready("working");
    }

    async fn try_reload(&mut self, crew: &mut Crew) -> anyhow::Result<()> {
        let (new, warnings) = load(&self.file, &self.overrides)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let client = new.database.client()?;
        crew.relieve(&new, &client).await?;
        self.health.ready(&client);
        self.log.set_level(&new.log.level)?;
        for (what, changed) in [
            ("http.address", new.http != self.settings.http),
            ("log.format", new.log.format != self.settings.log.format),
            ("[traces]", new.traces != self.settings.traces),
        ] {
            if changed {
                tracing::warn!(
                    "{what} has changed: that takes effect when the worker is restarted"
                );
            }
        }
        // What takes a restart stays as it is, so that the next reload says so again.
        let old = std::mem::replace(&mut self.settings, new);
        self.settings.http = old.http;
        self.settings.log.format = old.log.format;
        self.settings.traces = old.traces;
        Ok(())
    }
}

fn print(report: &Report, format: Format) -> anyhow::Result<()> {
    let jobs = &report.jobs;
    match format {
        Format::Json => {
            let tables: serde_json::Map<_, _> = report
                .tables
                .iter()
                .map(|(table, rows)| {
                    let rows = serde_json::json!({
                        "done": rows.done, "failed": rows.failed, "parked": rows.parked, "snoozed": rows.snoozed,
                    });
                    (table.clone(), rows)
                })
                .collect();
            output::json(&serde_json::json!({
                "handled": jobs.handled, "given_back": jobs.given_back, "interrupted": jobs.interrupted,
                "unsettled": jobs.unsettled, "tables": tables,
            }))
        }
        Format::Table => {
            output::text(&format!(
                "{} attempts handled, {} jobs given back, {} interrupted, {} unsettled\n",
                jobs.handled, jobs.given_back, jobs.interrupted, jobs.unsettled
            ));
            for (table, rows) in &report.tables {
                output::text(&format!(
                    "table {table}: {} rows done, {} failures, {} parked, {} snoozed\n",
                    rows.done, rows.failed, rows.parked, rows.snoozed
                ));
            }
            Ok(())
        }
    }
}
