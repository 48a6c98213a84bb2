//! What the parts of a runtime share: the state behind one lock, the line of events, and the wait for idleness.
//!
//! The lock is held for a few lines at a time and never across an await: [`Core::with`] takes a plain closure. Every
//! event that belongs to a change of the state is put in line inside that closure, so that events have the order of the
//! changes.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::RuntimeConfig;
use super::outbox::Outbox;
use super::state::State;
use crate::agent::{ArgumentCheck, Tool};
use crate::ai::RequestOptions;
use crate::resources::system_prompt::PromptTool;
use crate::session::protocol::{CommandError, Event, NoticeLevel};

/// The answer to a command.
pub(super) type Answer = Result<Value, CommandError>;

/// Shared by the handle, the commands and the run.
pub(super) struct Core {
    pub(super) config: RuntimeConfig,
    pub(super) outbox: Outbox,
    pub(super) check: ArgumentCheck,
    /// Runs and shell commands.
    pub(super) tasks: TaskTracker,
    /// Fires at shutdown.
    pub(super) stop: CancellationToken,
    /// Whose turn it is to write the settings file: held across the write, which is its point.
    pub(super) settings_turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    /// Changes with every change of what the session is busy with.
    activity: watch::Sender<u64>,
}

impl Core {
    pub(super) fn new(config: RuntimeConfig, state: State) -> Arc<Self> {
        Arc::new(Self {
            config,
            outbox: Outbox::start(),
            check: ArgumentCheck::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            settings_turn: tokio::sync::Mutex::new(()),
            state: Mutex::new(state),
            activity: watch::Sender::new(0),
        })
    }

    /// What every request asks for: what the settings say now, and over it what the session was begun with.
    pub(super) fn request_options(&self) -> RequestOptions {
        let mut options = self.config.options.clone();
        let said = self.with(|state| {
            RequestOptions::from_settings(state.resources.settings.effective()).extra
        });
        for (name, value) in said {
            options.extra.entry(name).or_insert(value);
        }
        options
    }

    /// Looks at or changes the state. Keep the closure short; it must not take the lock again.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock())
    }

    /// Changes what the session is busy with: wakes those who wait for it.
    pub(super) fn with_activity<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let out = self.with(change);
        self.activity.send_modify(|count| *count += 1);
        out
    }

    /// Waits until the state is as wanted.
    pub(super) async fn wait_until(&self, wanted: impl Fn(&State) -> bool) {
        let mut changes = self.activity.subscribe();
        while !self.with(|state| wanted(state)) {
            // The sender lives in `self`.
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until neither a run nor a summary is in progress.
    pub(super) async fn wait_idle(&self) {
        self.wait_until(|state| state.run.is_none() && state.summarizing.is_none())
            .await;
    }

    /// The tools that can run now, by the selection in force.
    pub(super) fn active_tools(&self) -> Vec<Arc<dyn Tool>> {
        let mut tools = self.all_tools();
        self.with(|state| {
            if let Some(names) = &state.active_tools {
                tools.retain(|tool| names.contains(&tool.declaration().name));
            }
        });
        tools
    }

    /// All tools: built-in ones and those of extensions.
    pub(super) fn all_tools(&self) -> Vec<Arc<dyn Tool>> {
        let mut tools = self.config.tools.clone();
        for tool in self.config.hooks.tools() {
            let name = &tool.declaration().name;
            match tools.iter_mut().find(|own| own.declaration().name == *name) {
                Some(own) => *own = tool,
                None => tools.push(tool),
            }
        }
        tools
    }

    /// What the prompt says about the active tools.
    pub(super) fn prompt_tools(&self) -> Vec<PromptTool> {
        self.active_tools()
            .iter()
            .map(|tool| PromptTool {
                name: tool.declaration().name.clone(),
                snippet: tool.prompt_snippet().map(ToOwned::to_owned),
                guidelines: tool
                    .prompt_guidelines()
                    .iter()
                    .map(|line| (*line).to_owned())
                    .collect(),
                hidden: false,
            })
            .collect()
    }

    /// Puts an event in line.
    pub(super) fn tell(&self, event: Event) {
        self.outbox.put(event);
    }

    /// Lets extensions hear of something that asks for no answer, when one listens.
    pub(super) async fn hear(&self, event: &str, fields: impl FnOnce() -> Value + Send) {
        let hooks = &self.config.hooks;
        if hooks.wants(event) {
            let mut record = Map::new();
            record.insert("type".to_owned(), event.into());
            if let Value::Object(fields) = fields() {
                record.extend(fields);
            }
            hooks.observe(&Value::Object(record)).await;
        }
    }

    /// Tells the person one line.
    pub(super) fn notice(&self, level: NoticeLevel, text: impl Into<String>) {
        self.tell(Event::Notice {
            level,
            text: text.into(),
        });
    }

    /// Marks the active run as aborted and ends whatever is in progress; returns at once.
    pub(super) fn abort(&self) {
        self.with(|state| {
            if let Some(run) = &mut state.run {
                run.aborted = true;
                run.cancel.cancel();
            }
            if let Some(summary) = &state.summarizing {
                summary.cancel();
            }
        });
    }
}

/// Where the answer to a command goes.
pub(super) enum Reply {
    /// To the one who waits.
    Waiter(oneshot::Sender<Answer>),
    /// Into the line of events.
    Tagged(u64),
}

impl Reply {
    /// Gives the answer, at this point of the order of events.
    pub(super) fn send(self, core: &Core, answer: Answer) {
        match self {
            // Nobody waits any more: the answer is of no use.
            Self::Waiter(waiter) => drop(waiter.send(answer)),
            Self::Tagged(tag) => core.tell(Event::Response { tag, answer }),
        }
    }
}

/// Now, in Unix milliseconds.
pub(super) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
