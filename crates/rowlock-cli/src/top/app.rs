//! What is shown, and what keys do to it. Pure: it asks nobody, and tells what is to be done.

use jiff::Timestamp;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rowlock::JobId;
use rowlock::manage::{JobInfo, QueueStats};

use super::snapshot::Snapshot;

/// Something that has to be asked of the database, or the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Pause(String),
    Resume(String),
    Retry(JobId),
    Inspect(JobId),
    InspectQueue(String),
    Quit,
}

/// A part of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Queues,
    Running,
    Failures,
}

impl Part {
    const ALL: [Self; 3] = [Self::Queues, Self::Running, Self::Failures];
}

/// What lies over the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Over {
    Nothing,
    Help,
    /// A text to read, and how far down.
    Text(String, u16),
    /// A question: yes does this.
    Sure(Action),
}

pub(super) struct App {
    /// Which database and schema.
    pub(super) place: String,
    pub(super) snapshot: Snapshot,
    pub(super) part: Part,
    /// What is selected in each part: by name or id, so that it stays when rows come and go.
    queue: Option<String>,
    running: Option<JobId>,
    failure: Option<JobId>,
    pub(super) over: Over,
    /// What became of the last action, and whether it is bad news.
    pub(super) message: Option<(String, bool)>,
    /// Why there is no news.
    pub(super) lost: Option<String>,
}

impl App {
    pub(super) fn new(place: String, snapshot: Snapshot) -> Self {
        Self {
            place,
            snapshot,
            part: Part::Queues,
            queue: None,
            running: None,
            failure: None,
            over: Over::Nothing,
            message: None,
            lost: None,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.snapshot.at
    }

    pub(super) fn update(&mut self, snapshot: Snapshot) {
        self.snapshot = snapshot;
        self.lost = None;
    }

    pub(super) fn lost(&mut self, why: String) {
        self.lost = Some(why);
    }

    pub(super) fn did(&mut self, answer: Result<String, String>) {
        self.message = Some(match answer {
            Ok(text) => (text, false),
            Err(text) => (text, true),
        });
    }

    pub(super) fn inspect(&mut self, text: String) {
        self.over = Over::Text(text, 0);
    }

    /// The row that is selected in a part: the first, as long as nobody chose; none, when what was chosen is gone. A key must never hit a
    /// row that moved under it.
    pub(super) fn row(&self, part: Part) -> Option<usize> {
        let s = &self.snapshot;
        let chosen = match part {
            Part::Queues => {
                let name = self.queue.as_ref();
                name.map(|name| s.queues.iter().position(|q| q.name == *name))
            }
            Part::Running => self.running.map(|id| place(&s.running, id)),
            Part::Failures => self.failure.map(|id| place(&s.failures, id)),
        };
        chosen.unwrap_or((self.rows(part) > 0).then_some(0))
    }

    pub(super) fn rows(&self, part: Part) -> usize {
        match part {
            Part::Queues => self.snapshot.queues.len(),
            Part::Running => self.snapshot.running.len(),
            Part::Failures => self.snapshot.failures.len(),
        }
    }

    fn select(&mut self, row: usize) {
        let s = &self.snapshot;
        match self.part {
            Part::Queues => self.queue = s.queues.get(row).map(|q| q.name.clone()),
            Part::Running => self.running = s.running.get(row).map(|j| j.id),
            Part::Failures => self.failure = s.failures.get(row).map(|j| j.id),
        }
    }

    fn step(&mut self, by: isize) {
        let last = self.rows(self.part).saturating_sub(1);
        self.select(match self.row(self.part) {
            Some(row) => row.saturating_add_signed(by).min(last),
            None => 0,
        });
    }

    fn turn(&mut self, by: usize) {
        let at = Part::ALL.iter().position(|p| *p == self.part).unwrap_or(0);
        self.part = Part::ALL[(at + by) % Part::ALL.len()];
        // From here on it stays with this row, wherever that goes.
        self.select(self.row(self.part).unwrap_or(0));
    }

    fn gone(&mut self) -> Option<Action> {
        self.did(Err("what was selected is gone: select again".into()));
        None
    }

    fn queue(&self) -> Option<&QueueStats> {
        self.snapshot.queues.get(self.row(Part::Queues)?)
    }

    /// The job that is selected in this part.
    fn job(&self) -> Option<&JobInfo> {
        let row = self.row(self.part)?;
        match self.part {
            Part::Queues => None,
            Part::Running => self.snapshot.running.get(row),
            Part::Failures => self.snapshot.failures.get(row),
        }
    }

    /// What a key does; some do something that is not for this file to do.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Action::Quit);
        }
        match std::mem::replace(&mut self.over, Over::Nothing) {
            Over::Nothing => self.plain_key(key.code),
            // Any key ends the help.
            Over::Help => None,
            Over::Sure(action) => (key.code == KeyCode::Char('y')).then_some(action),
            Over::Text(text, at) => {
                let at = match key.code {
                    KeyCode::Down | KeyCode::Char('j') => at.saturating_add(1),
                    KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
                    KeyCode::PageDown | KeyCode::Char(' ') => at.saturating_add(10),
                    KeyCode::PageUp => at.saturating_sub(10),
                    _ => return None,
                };
                let lines = u16::try_from(text.lines().count()).unwrap_or(u16::MAX);
                self.over = Over::Text(text, at.min(lines.saturating_sub(1)));
                None
            }
        }
    }

    fn plain_key(&mut self, code: KeyCode) -> Option<Action> {
        self.message = None;
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Some(Action::Quit),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.over = Over::Help,
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(10),
            KeyCode::PageUp => self.step(-10),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Tab | KeyCode::Right => self.turn(1),
            KeyCode::BackTab | KeyCode::Left => self.turn(2),
            KeyCode::Enter => {
                let action = match self.part {
                    Part::Queues => self.queue().map(|q| Action::InspectQueue(q.name.clone())),
                    _ => self.job().map(|job| Action::Inspect(job.id)),
                };
                return action.or_else(|| self.gone());
            }
            KeyCode::Char('p') => return self.pause(),
            KeyCode::Char('r') if self.part == Part::Failures => {
                let retry = self.job().map(|job| Action::Retry(job.id));
                return retry.or_else(|| self.gone());
            }
            KeyCode::Char('r') => {
                self.did(Err(
                    "r retries a job among the failures: Tab goes there".into()
                ));
            }
            _ => {}
        }
        None
    }

    /// Pausing stops work, so it is asked about; resuming is not.
    fn pause(&mut self) -> Option<Action> {
        if self.part != Part::Queues {
            self.did(Err("p pauses a queue: Tab goes to the queues".into()));
            return None;
        }
        let Some((name, paused)) = self.queue().map(|q| (q.name.clone(), q.paused)) else {
            return self.gone();
        };
        if paused {
            return Some(Action::Resume(name));
        }
        self.over = Over::Sure(Action::Pause(name));
        None
    }
}

fn place(jobs: &[JobInfo], id: JobId) -> Option<usize> {
    jobs.iter().position(|job| job.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(id: i64) -> JobInfo {
        serde_json::from_value(json!({
            "place": "dead", "state": "dead", "id": id, "queue": "mail", "kind": "email", "priority": 0, "payload": {},
            "attempt": 1, "failures": 1, "crashes": 0, "max_attempts": 1, "created_at": "2030-01-01T00:00:00Z",
            "run_at": "2030-01-01T00:00:00Z", "reason": "failed"
        }))
        .unwrap()
    }

    fn snapshot(failures: &[i64]) -> Snapshot {
        Snapshot {
            at: "2030-01-01T00:01:00Z".parse().unwrap(),
            queues: Vec::new(),
            workers: Default::default(),
            running: Vec::new(),
            failures: failures.iter().map(|id| job(*id)).collect(),
        }
    }

    fn press(app: &mut App, code: KeyCode) -> Option<Action> {
        app.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn a_key_hits_what_was_selected_wherever_it_went() {
        let mut app = App::new(String::new(), snapshot(&[3, 2, 1]));
        press(&mut app, KeyCode::BackTab);
        assert_eq!(app.part, Part::Failures);
        // New failures come in above: the selection stays with job 3.
        app.update(snapshot(&[5, 4, 3, 2, 1]));
        assert_eq!(app.row(Part::Failures), Some(2));
        assert_eq!(
            press(&mut app, KeyCode::Char('r')),
            Some(Action::Retry(JobId(3)))
        );
        press(&mut app, KeyCode::Down);
        assert_eq!(
            press(&mut app, KeyCode::Enter),
            Some(Action::Inspect(JobId(2)))
        );
        // And when it is gone, nothing else is hit in its place.
        app.update(snapshot(&[5, 4]));
        assert_eq!(press(&mut app, KeyCode::Char('r')), None);
        assert!(
            app.message
                .as_ref()
                .is_some_and(|(text, bad)| *bad && text.contains("gone"))
        );
        press(&mut app, KeyCode::Down);
        assert_eq!(
            press(&mut app, KeyCode::Char('r')),
            Some(Action::Retry(JobId(5)))
        );
    }

    #[test]
    fn keys_at_the_ends_stay_there() {
        let mut app = App::new(String::new(), snapshot(&[2, 1]));
        app.part = Part::Failures;
        for code in [KeyCode::Up, KeyCode::End, KeyCode::Down, KeyCode::PageDown] {
            assert_eq!(press(&mut app, code), None);
        }
        assert_eq!(app.row(Part::Failures), Some(1));
        app.update(snapshot(&[]));
        for code in [
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::Home,
            KeyCode::Enter,
            KeyCode::Char('r'),
            KeyCode::Char('p'),
        ] {
            assert_eq!(press(&mut app, code), None);
        }
    }

    #[test]
    fn what_lies_over_the_screen_takes_the_keys() {
        let mut app = App::new(String::new(), snapshot(&[1]));
        press(&mut app, KeyCode::Char('?'));
        assert_eq!(app.over, Over::Help);
        assert_eq!(press(&mut app, KeyCode::Char('q')), None);
        app.over = Over::Sure(Action::Pause("mail".into()));
        assert_eq!(press(&mut app, KeyCode::Char('n')), None);
        assert_eq!(app.over, Over::Nothing);
        app.over = Over::Sure(Action::Pause("mail".into()));
        assert_eq!(
            press(&mut app, KeyCode::Char('y')),
            Some(Action::Pause("mail".into()))
        );
        app.inspect("one\ntwo".into());
        for _ in 0..5 {
            press(&mut app, KeyCode::Down);
        }
        assert_eq!(app.over, Over::Text("one\ntwo".into(), 1));
        assert_eq!(
            app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)),
            Some(Action::Quit)
        );
    }
}
