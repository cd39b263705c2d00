//! `rowlock queues set`: change settings of a queue, or of one kind in it.

use clap::Args;
use rowlock::manage::{QueueInfo, QueueSettings};

use super::settings;
use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};

/// Change settings of a queue, or of one kind in it. Makes the queue if there is none of this name.
#[derive(Args)]
#[command(after_help = "Settings of a queue:\n  \
    lease=30s            how long a worker holds a job without saying that it lives\n  \
    max-attempts=5       after how many failures a job is dead\n  \
    max-crashes=3        after how many crashes it is poison; as-attempts for as many as attempts\n  \
    backoff=SHAPE:TIME   exponential:1s, linear:5s, fixed:10s, list:1s,5s,30s; then, as needed,\n                       \
    :factor=2 :max=1h :jitter=0.1\n  \
    retention='7 days'   how long the history is kept; 0 for none\n  \
    max-payload=1MiB     the largest payload\n  \
    paused=true          whether none of its jobs is started\n\n\
    Settings of a kind: max-attempts, backoff, timeout, paused.\n\n\
    Examples:\n  \
    rowlock queues set mail retention='3 days' lease=10s max-attempts=3 backoff=exponential:1s\n  \
    rowlock queues set mail --kind newsletter timeout=5m backoff=fixed:1m\n  \
    rowlock queues set mail --kind newsletter --forget")]
pub(super) struct Set {
    /// The queue.
    name: String,

    /// What to change; what is not named stays.
    #[arg(value_name = "KEY=VALUE", required_unless_present = "forget")]
    settings: Vec<String>,

    /// Settings of this kind in the queue.
    #[arg(long, short, value_name = "NAME")]
    kind: Option<String>,

    /// Forget all settings of the kind: it is as the queue again.
    #[arg(long, requires = "kind", conflicts_with = "settings")]
    forget: bool,
}

impl Set {
    pub(super) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let wanted = match &self.kind {
            None => settings::parse_queue(&self.settings)?,
            Some(kind) if self.forget => QueueSettings::new().forget_kind(kind),
            Some(kind) => QueueSettings::new().kind(kind, settings::parse_kind(&self.settings)?),
        };
        let client = global.database.client()?;
        let before = client.queue(&self.name).await?;
        let after = client.set_queue(&self.name, wanted).await?;
        if global.format() == Format::Json {
            output::json(&after)?;
            return Ok(Exit::Success);
        }
        let mut text = String::new();
        if before.is_none() {
            text += &format!("queue {} was made\n", self.name);
        }
        let was = before.as_ref().map(|q| self.of(q)).unwrap_or_default();
        let changes: Vec<String> = self
            .of(&after)
            .into_iter()
            .filter_map(|(key, now)| {
                let was = was.iter().find(|(k, _)| *k == key).map(|(_, v)| v.as_str());
                match was {
                    Some(was) if was == now => None,
                    Some(was) => Some(format!("  {key}: {was} → {now}\n")),
                    None => Some(format!("  {key}: {now}\n")),
                }
            })
            .collect();
        if self.forget {
            text += &format!(
                "kind {} is as its queue again\n",
                self.kind.as_deref().unwrap_or_default()
            );
        } else if changes.is_empty() {
            text += "it was so already\n";
        }
        output::text(&(text + &changes.concat()));
        Ok(Exit::Success)
    }

    fn of(&self, queue: &QueueInfo) -> Vec<(&'static str, String)> {
        match &self.kind {
            None => settings::of_queue(queue),
            Some(kind) => queue
                .kinds
                .get(kind)
                .map(settings::of_kind)
                .unwrap_or_default(),
        }
    }
}
