//! The runtime of a session: takes [`Command`]s, tells [`Event`]s.
//!
//! [`Runtime`] is a handle; clones share one session. Several faces may hold it and subscribe at once.
//!
//! Invariants: a message is stored before the event that announces it; events of all sources have one order, the same
//! for every subscriber; at most one run is active; every command gets exactly one answer.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc;

use super::protocol::{Command, CommandError, Event};
use crate::agent::Tool;
use crate::ai::{Model, Provider, ThinkingLevel};
use crate::extensions::Hooks;
use crate::review::gate::Gate;

/// Which session to begin with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SessionChoice {
    /// A new one in the session folder of the directory.
    #[default]
    New,
    /// A new one that is never written.
    InMemory,
    /// This file; a missing one is created with the first message.
    Open(PathBuf),
    /// The most recent one of the directory, else a new one.
    Continue,
}

/// What a runtime needs. Everything is given: nothing is read from the environment.
pub struct RuntimeConfig {
    /// Directory of the project.
    pub cwd: PathBuf,
    /// Agent directory (`~/.pi/agent`): settings, sessions.
    pub agent_dir: PathBuf,
    /// State directory of our own (commit records, checkpoints).
    pub state_dir: PathBuf,
    /// Where sessions go instead of the agent directory's folder.
    pub session_dir: Option<PathBuf>,
    /// Which session.
    pub session: SessionChoice,
    /// Answers requests.
    pub provider: Arc<dyn Provider>,
    /// Models that can be chosen, in listing order.
    pub models: Vec<Arc<Model>>,
    /// The model of a new session.
    pub model: Option<Arc<Model>>,
    /// Thinking level of a new session, before clamping to the model.
    pub thinking: ThinkingLevel,
    /// Tools, in the order in which the model is told of them.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The review gate the tools write through.
    pub gate: Gate,
    /// Extensions.
    pub hooks: Arc<dyn Hooks>,
}

/// A handle on a running session.
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

struct Inner {
    config: RuntimeConfig,
}

impl Runtime {
    /// Opens the session and starts the tasks behind it. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// One line that says which session could not be opened and why.
    pub fn start(config: RuntimeConfig) -> Result<Self, CommandError> {
        Ok(Self {
            inner: Arc::new(Inner { config }),
        })
    }

    /// Carries out a command and returns its data. Commands run side by side; a long one (`Abort`, `Compact`, `Bash`)
    /// answers when it is done. All events that belong before the answer have reached the subscribers' channels then,
    /// so do not await this in the task that drains a subscription.
    ///
    /// # Errors
    /// One line that says what could not be done and why.
    pub async fn request(&self, command: Command) -> Result<Value, CommandError> {
        let _ = (&self.inner.config.cwd, command);
        Err(CommandError::new("not built yet"))
    }

    /// Hands in a command whose answer comes as [`Event::Response`] with `tag`, in order with the other events.
    /// Returns at once; for faces whose wire shows that order.
    pub fn submit(&self, command: Command, tag: u64) {
        let _ = (command, tag);
    }

    /// Subscribes to all events from now on. The channel holds `capacity` events; when it is full everyone waits: the
    /// run goes on only when the slowest face has caught up. Drop the receiver to unsubscribe.
    pub fn subscribe(&self, capacity: usize) -> mpsc::Receiver<Arc<Event>> {
        mpsc::channel(capacity).1
    }

    /// The review gate of this session, for snapshots of proposals.
    pub fn gate(&self) -> &Gate {
        &self.inner.config.gate
    }

    /// Ends everything: aborts the run (its aborted turn is stored), cancels open proposals, ends processes. Returns
    /// when nothing runs any more. Later commands fail.
    pub async fn shutdown(&self) {}
}
