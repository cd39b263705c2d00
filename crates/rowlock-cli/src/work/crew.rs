//! The teams of this process: the one that works, and those that a reload has relieved and that finish what they run.

use std::sync::Arc;

use rowlock::Client;
use tokio::task::JoinSet;

use super::handler::Processes;
use super::team::{Report, Team, Until};
use crate::settings::Settings;

pub(super) struct Crew {
    processes: Processes,
    until: Until,
    working: Team,
    /// Those that were relieved, each with the task that waits for its end.
    leaving: Vec<Team>,
    ends: JoinSet<Report>,
    /// What those that have ended did.
    done: Report,
}

impl Crew {
    /// Starts the first team.
    pub(super) async fn start(
        settings: &Settings,
        client: &Client,
        until: Until,
    ) -> anyhow::Result<Self> {
        let processes = Processes::default();
        let working = Team::start(settings, client, &processes, until).await?;
        Ok(Self {
            processes,
            until,
            working,
            leaving: Vec::new(),
            ends: JoinSet::new(),
            done: Report::default(),
        })
    }

    /// Waits until nothing is left for the one that works. May be dropped and called again.
    pub(super) async fn drained(&self) -> Result<(), Arc<rowlock::Error>> {
        self.working.drained().await
    }

    /// Starts a team with new settings, then lets the old one finish what it runs. If the new one cannot start, the old one goes on.
    pub(super) async fn relieve(
        &mut self,
        settings: &Settings,
        client: &Client,
    ) -> anyhow::Result<()> {
        let new = Team::start(settings, client, &self.processes, self.until).await?;
        let old = std::mem::replace(&mut self.working, new);
        let leaving = old.clone();
        self.ends.spawn(async move { leaving.shutdown().await });
        self.leaving.push(old);
        // Those that have ended meanwhile need not be remembered.
        while let Some(ended) = self.ends.try_join_next() {
            self.count(ended.ok());
        }
        Ok(())
    }

    /// Lets all finish what they run.
    pub(super) async fn shutdown(&mut self) -> Report {
        let last = self.working.shutdown().await;
        self.end(last).await
    }

    /// Gives back what runs.
    pub(super) async fn shutdown_now(&mut self) -> Report {
        let leaving = self.leaving.clone();
        let others = futures_util::future::join_all(leaving.iter().map(Team::shutdown_now));
        let (_, last) = tokio::join!(others, self.working.shutdown_now());
        self.end(last).await
    }

    async fn end(&mut self, last: Report) -> Report {
        while let Some(ended) = self.ends.join_next().await {
            self.count(ended.ok());
        }
        self.processes.end().await;
        self.count(Some(last));
        self.done.clone()
    }

    fn count(&mut self, ended: Option<Report>) {
        if let Some(ended) = ended {
            self.done.add(ended);
        }
    }
}
