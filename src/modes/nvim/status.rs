//! Where a session stands, for the statusline and the winbar.

use std::path::Path;

use serde_json::{Value as Json, json};

use super::json::at;
use crate::review::{ReviewEvent, ReviewMode};
use crate::session::Event;

/// Facts shown in the statusline; `lua/pi/status.lua` makes text of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    name: Option<String>,
    model: Option<String>,
    provider: Option<String>,
    thinking: String,
    cwd: String,
    run: Run,
    queue: usize,
    mode: ReviewMode,
    cost: f64,
    tokens_in: u64,
    tokens_out: u64,
    context_window: Option<u64>,
    context_pct: Option<f64>,
    retry: Option<(u32, u32)>,
    compacting: bool,
    /// A review or a question waits for the person.
    asks: bool,
    failed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Run {
    #[default]
    Idle,
    Running,
}

impl Status {
    /// Takes the answer of `get_state` in.
    pub fn load(&mut self, state: &Json, cwd: &Path) {
        let text = |value: &Json| value.as_str().map(str::to_owned);
        self.cwd = cwd.to_string_lossy().into_owned();
        self.name = text(at(state, "/sessionName"));
        self.model = text(at(state, "/model/id"));
        self.provider = text(at(state, "/model/provider"));
        self.context_window = at(state, "/model/contextWindow").as_u64();
        self.thinking = text(at(state, "/thinkingLevel")).unwrap_or_default();
        self.run = match at(state, "/isStreaming").as_bool() {
            Some(true) => Run::Running,
            _ => Run::Idle,
        };
        self.compacting = at(state, "/isCompacting").as_bool() == Some(true);
        self.queue = count(at(state, "/pendingMessageCount"));
    }

    /// Takes the answer of `get_session_stats` in.
    pub fn stats(&mut self, stats: &Json) {
        self.cost = at(stats, "/cost").as_f64().unwrap_or(0.0);
        self.tokens_in = at(stats, "/tokens/input").as_u64().unwrap_or(0);
        self.tokens_out = at(stats, "/tokens/output").as_u64().unwrap_or(0);
        self.context_pct = at(stats, "/contextUsage/percent").as_f64();
        if let Some(window) = at(stats, "/contextUsage/contextWindow").as_u64() {
            self.context_window = Some(window);
        }
    }

    /// The selected model.
    pub fn model_name(&self) -> Option<String> {
        let id = self.model.as_deref()?;
        Some(match &self.provider {
            Some(provider) => format!("{provider}/{id}"),
            None => id.to_owned(),
        })
    }

    /// Whether a run is going on.
    pub fn is_running(&self) -> bool {
        self.run == Run::Running
    }

    /// Says whether the person is waited for; returns whether that is news.
    pub fn set_asks(&mut self, asks: bool) -> bool {
        std::mem::replace(&mut self.asks, asks) != asks
    }

    /// Sets the review mode.
    pub fn mode(&mut self, mode: ReviewMode) {
        self.mode = mode;
    }

    /// Takes an event in; returns whether anything shown changed.
    pub fn apply(&mut self, event: &Event) -> bool {
        let before = self.clone();
        match event {
            Event::AgentStart => {
                self.run = Run::Running;
                self.failed = false;
            }
            Event::AgentSettled { .. } => {
                self.run = Run::Idle;
                self.retry = None;
            }
            Event::QueueUpdate {
                steering,
                follow_up,
            } => {
                self.queue = steering.len() + follow_up.len();
            }
            Event::SessionInfoChanged { name } => self.name.clone_from(name),
            Event::ThinkingLevelChanged { level } => self.thinking.clone_from(level),
            Event::ModelChanged { provider, id } => {
                self.provider = Some(provider.clone());
                self.model = Some(id.clone());
            }
            Event::CompactionStart { .. } => self.compacting = true,
            Event::CompactionEnd { .. } => self.compacting = false,
            Event::RetryStart {
                attempt,
                max_attempts,
                ..
            } => {
                self.retry = Some((*attempt, *max_attempts));
            }
            Event::RetryEnd { success, .. } => {
                self.retry = None;
                self.failed = !success;
            }
            Event::Review(ReviewEvent::Mode { mode }) => self.mode = *mode,
            _ => {}
        }
        *self != before
    }

    /// `run`, `ask`, `idle` or `err`.
    pub fn word(&self) -> &'static str {
        match (self.run, self.asks, self.failed) {
            (_, true, _) => "ask",
            (Run::Running, ..) => "run",
            (Run::Idle, _, true) => "err",
            (Run::Idle, _, false) => "idle",
        }
    }

    /// The fields of the op `status.set`.
    pub fn op(&mut self) -> Json {
        json!({
            "name": self.name,
            "state": self.word(),
            "running": self.run == Run::Running,
            "model": self.model,
            "provider": self.provider,
            "thinking": self.thinking,
            "cwd": self.cwd,
            "context_pct": self.context_pct,
            "context_window": self.context_window,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "cost": self.cost,
            "queue": self.queue,
            "mode": self.mode,
            "retry": self.retry.map(|(attempt, max)| json!([attempt, max])),
            "compaction": self.compacting,
        })
    }
}

fn count(value: &Json) -> usize {
    value
        .as_u64()
        .and_then(|it| usize::try_from(it).ok())
        .unwrap_or(0)
}
