//! `rowlock work`: a worker that needs no code. Handlers are commands and HTTP endpoints, as a configuration says.
//!
//! `crew` runs the library's worker and relieves it when the configuration changes; `handler` is what it runs; `signals` tell it when to go.

mod crew;
mod handler;
mod signals;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rowlock::{Client, Stopped};

use crate::Global;
use crate::exit::Exit;
use crate::log::Log;
use crate::notify::Notify;
use crate::output::{self, Format};
use crate::serve::Health;
use crate::settings::{self, Level, Loaded, Overrides, Settings};
use crew::Crew;
use signals::{Asked, Signals};

/// Work on jobs with commands and HTTP endpoints, as a configuration file says.
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
    secret = { env = \"JOBS_SECRET\" }")]
pub(crate) struct Work {
    /// The configuration; rowlock.toml if there is one here.
    #[arg(long, short, env = "ROWLOCK_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Work until nothing is ready any more, then stop.
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
        shift.log.flush();
        let stopped = result?;
        if self.drain || stopped.unsettled > 0 {
            report(&stopped, global.format())?;
        }
        Ok(if stopped.unsettled == 0 {
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
    async fn work(&mut self) -> anyhow::Result<Stopped> {
        let mut signals = Signals::listen()?;
        if let Some(address) = self.settings.http.address {
            self.health.serve(address).await?;
        }
        let client = self.settings.database.client()?;
        let mut crew = Crew::start(&self.settings, &client).await?;
        self.ready(&client);
        self.until_asked_to_stop(&mut crew, &mut signals).await;

        // What asks for readiness must not hear "ready" from a worker that has said it is stopping.
        self.health.draining();
        self.notify.stopping();
        tracing::info!("stopping: finishing what runs; another signal stops at once");
        let stopped = tokio::select! {
            stopped = crew.shutdown() => stopped,
            () = signals.stop() => {
                tracing::info!("stopping at once: what runs is given back");
                crew.shutdown_now().await
            }
        };
        Ok(stopped)
    }

    fn ready(&self, client: &Client) {
        self.health.ready(client);
        self.notify.ready("working");
    }

    async fn until_asked_to_stop(&mut self, crew: &mut Crew, signals: &mut Signals) {
        // One that beats whether or not anybody listens is simpler than one that may be missing.
        let mut heart =
            tokio::time::interval(self.notify.watchdog.unwrap_or(Duration::from_secs(3600)));
        loop {
            let worker = crew.working().clone();
            let drained = async {
                if self.drain {
                    worker.drained().await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                asked = signals.next() => match asked {
                    Asked::Stop => return,
                    Asked::Reload => self.reload(crew).await,
                },
                () = drained => return,
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
        ] {
            if changed {
                tracing::warn!(
                    "{what} has changed: that takes effect when the worker is restarted"
                );
            }
        }
        // What takes a restart stays as it is, so that the next reload says so again.
        let (http, format) = (self.settings.http.clone(), self.settings.log.format);
        self.settings = new;
        self.settings.http = http;
        self.settings.log.format = format;
        Ok(())
    }
}

fn report(stopped: &Stopped, format: Format) -> anyhow::Result<()> {
    let Stopped {
        handled,
        given_back,
        interrupted,
        unsettled,
        ..
    } = stopped;
    match format {
        Format::Json => output::json(&serde_json::json!({
            "handled": handled, "given_back": given_back, "interrupted": interrupted, "unsettled": unsettled,
        })),
        Format::Table => {
            output::text(&format!(
                "{handled} attempts handled, {given_back} jobs given back, {interrupted} interrupted, {unsettled} unsettled\n"
            ));
            Ok(())
        }
    }
}
