//! The runtime of a session: takes [`Command`]s, tells [`Event`]s.
//!
//! [`Runtime`] is a handle; clones share one session. Several faces may hold it and subscribe at once.
//!
//! Invariants: a message is stored before the event that announces it; events of all sources have one order, the same
//! for every subscriber; at most one run is active; every command gets exactly one answer.

mod asking;
mod bash;
mod bind;
mod boundary;
mod commands;
mod compact;
mod core;
mod drive;
mod export;
#[cfg(test)]
mod hook_tests;
mod host;
mod models;
mod navigate;
mod outbox;
mod pictures;
mod prompt;
mod queries;
mod queues;
mod review;
mod sessions;
pub(in crate::session) mod settings;
mod state;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc;

use self::commands::Order;
use self::core::{Core, Reply};
use self::queues::Queues;
use self::state::State;
use super::listing::{SessionDir, continue_recent};
use super::protocol::{Command, CommandError, Event, NoticeLevel};
use super::store::{Session, Start};
use crate::agent::Tool;
use crate::ai::{Model, Provider, RequestOptions, ThinkingLevel};
use crate::extensions::{Hooks, NoHooks, Reason, Source};
use crate::files::agent_dir::Places;
use crate::resources::settings::Trust;
use crate::resources::trust::TrustRules;
use crate::resources::{LoadOptions, ResourceFlags, Resources};
use crate::review::gate::{Gate, GateConfig};
use crate::tools::{self, LiveOptions, ToolEnv};
use crate::workspace::Workspace;
use crate::workspace::disk::DiskWorkspace;

pub use self::models::{Models, ScopedModels};

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
    /// This file, in the directory given instead of the one it names, which is gone. The file goes on naming that one.
    OpenHere(PathBuf),
    /// The most recent one of the directory, else a new one.
    Continue,
}

impl SessionChoice {
    /// Whether it means a session from before.
    pub fn is_old(&self) -> bool {
        matches!(self, Self::Open(_) | Self::OpenHere(_) | Self::Continue)
    }
}

/// What a runtime needs. Everything is given: nothing is read from the environment.
pub struct RuntimeConfig {
    /// Where settings, skills, templates and context files are read from; also the directory of the project.
    pub load: LoadOptions,
    /// Where sessions go instead of where the settings say (`--session-dir`).
    pub session_dir: Option<String>,
    /// Which session.
    pub session: SessionChoice,
    /// Id of a new session instead of a fresh one.
    pub session_id: Option<String>,
    /// Name to give the session.
    pub session_name: Option<String>,
    /// Answers requests.
    pub provider: Arc<dyn Provider>,
    /// What every request carries (`--api-key` and the like).
    pub options: RequestOptions,
    /// Models that can be chosen.
    pub models: Arc<dyn Models>,
    /// The model of a new session, and of an old one whose model is gone.
    pub model: Option<Arc<Model>>,
    /// Thinking level of a new session, before clamping to the model; settings decide when absent.
    pub thinking: Option<ThinkingLevel>,
    /// Whether `model` also holds for an old session, which has its own.
    pub model_fixed: bool,
    /// Whether `thinking` also holds for an old session, which has its own.
    pub thinking_fixed: bool,
    /// Told as warnings when the session begins.
    pub warnings: Vec<String>,
    /// Tools, in the order in which the model is told of them.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Names of the tools that are active at first; all when absent.
    pub active_tools: Option<Vec<String>>,
    /// Whether that selection also holds for an old session, whose branch may declare other tools.
    pub tools_fixed: bool,
    /// Surroundings of shell commands of the person; without it they are refused.
    pub shell: Option<ToolEnv>,
    /// The review gate the tools write through.
    pub gate: Gate,
    /// Extensions.
    pub hooks: Arc<dyn Hooks>,
    /// Who writes the prompts.
    pub source: Source,
    /// Whether the face answers dialogs of extensions.
    pub has_ui: bool,
}

impl RuntimeConfig {
    /// The form with everything that can be left out left out: a new session over the built-in tools, no extensions.
    pub fn over(
        load: LoadOptions,
        env: ToolEnv,
        provider: Arc<dyn Provider>,
        models: Arc<dyn Models>,
        model: Option<Arc<Model>>,
    ) -> Self {
        Self {
            load,
            session_dir: None,
            session: SessionChoice::New,
            session_id: None,
            session_name: None,
            provider,
            options: RequestOptions::default(),
            models,
            model,
            thinking: None,
            model_fixed: false,
            thinking_fixed: false,
            warnings: Vec::new(),
            tools: tools::builtin(env.clone()),
            active_tools: Some(tools::DEFAULT_TOOLS.map(ToOwned::to_owned).to_vec()),
            tools_fixed: false,
            gate: env.gate.clone(),
            shell: Some(env),
            hooks: Arc::new(NoHooks),
            source: Source::Interactive,
            has_ui: false,
        }
    }

    /// A session that is never written, over the built-in tools: changes in `folder` are accepted at once, nothing is
    /// read from the person's own folders. Change the fields that should be otherwise.
    pub fn in_memory(
        folder: impl Into<PathBuf>,
        provider: Arc<dyn Provider>,
        model: Arc<Model>,
    ) -> Self {
        let cwd = folder.into();
        let workspace: Arc<dyn Workspace> = Arc::new(DiskWorkspace::default());
        let gate = Gate::new(GateConfig::new(Arc::clone(&workspace), &cwd));
        let env = ToolEnv {
            workspace,
            gate,
            options: LiveOptions::default(),
        };
        let own = cwd.join(".pi-nvim");
        let load = LoadOptions {
            places: Places {
                home: own.clone(),
                agent_dir: own.clone(),
                session_dir: None,
                state_dir: own,
            },
            cwd,
            trust: Trust::Untrusted,
            trust_rules: TrustRules::default(),
            flags: ResourceFlags::default(),
        };
        let models = Arc::new(vec![Arc::clone(&model)]);
        Self {
            session: SessionChoice::InMemory,
            ..Self::over(load, env, provider, models, Some(model))
        }
    }
}

/// A handle on a running session. Clones share it; it ends with [`Runtime::shutdown`].
#[derive(Clone)]
pub struct Runtime {
    core: Arc<Core>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Runtime {
    /// Reads settings and resources, opens the session and starts the tasks behind it. Blocks on the file system, and
    /// must be called inside a tokio runtime.
    ///
    /// # Errors
    /// One line that says which session could not be opened and why.
    pub fn start(config: RuntimeConfig) -> Result<Self, CommandError> {
        let resources = Resources::load(&config.load);
        Self::start_with(config, resources)
    }

    /// As [`Runtime::start`], with resources that were read before.
    ///
    /// # Errors
    /// One line that says which session could not be opened and why.
    pub fn start_with(config: RuntimeConfig, resources: Resources) -> Result<Self, CommandError> {
        let session = open_session(&config, &resources)?;
        let mut state = State {
            cwd: session.cwd().to_owned(),
            session,
            model: config.model.clone(),
            thinking: ThinkingLevel::Off,
            queues: Queues::from_settings(resources.settings.effective()),
            resources,
            run: None,
            summarizing: None,
            compacting: false,
            held: Vec::new(),
            beside: std::collections::VecDeque::new(),
            shells: Vec::new(),
            active_tools: config.active_tools.clone(),
            settling: false,
        };
        let thinking = config.thinking.or_else(|| {
            let model = state.model.as_ref()?;
            state.preferred_level(model)
        });
        state.thinking = state.clamp(thinking.unwrap_or(ThinkingLevel::Medium));
        let name = config.session_name.clone();
        let core = Core::new(config, state);
        core.with(|state| {
            for warning in &core.config.warnings {
                core.notice(NoticeLevel::Warning, warning.clone());
            }
            for diagnostic in &state.resources.diagnostics {
                core.notice(NoticeLevel::Warning, diagnostic.message.clone());
            }
            if let Some(name) = name {
                let stored = state.session.append_session_info(&name);
                state.report(&core, stored.map(drop));
            }
            sessions::begin_session(&core, state);
        });
        bind::attach(&core);
        let (orders, inbox) = mpsc::unbounded_channel();
        core.tasks.spawn(commands::serve(Arc::clone(&core), inbox));
        review::follow(&core);
        Ok(Self { core, orders })
    }

    /// Looks at the session, for faces that show more of it than commands tell (the tree, a long history). Quick: the
    /// session stands still meanwhile.
    pub fn look<T>(&self, look: impl FnOnce(&Session) -> T) -> T {
        self.core.with(|state| look(&state.session))
    }

    /// Whether leaving a branch asks for no summary (the setting `branchSummary.skipPrompt`).
    pub fn skips_summary_question(&self) -> bool {
        self.core
            .with(|state| state.resources.settings.branch_summary().skip_prompt)
    }

    /// The filter a tree begins with (the setting `treeFilterMode`), by its word.
    pub fn tree_filter(&self) -> &'static str {
        self.core
            .with(|state| state.resources.settings.tree_filter().as_str())
    }

    /// Carries out a command and returns its data. Commands run side by side; a long one (`Abort`, `Compact`, `Bash`)
    /// answers when it is done. All events that belong before the answer have reached the subscribers' channels then,
    /// so do not await this in the task that drains a subscription.
    ///
    /// # Errors
    /// One line that says what could not be done and why.
    pub async fn request(&self, command: Command) -> Result<Value, CommandError> {
        let gone = || CommandError::new("the session is closed");
        let (reply, waits) = commands::waiter();
        self.orders.send((command, reply)).map_err(|_| gone())?;
        let answer = waits.await.map_err(|_| gone())?;
        self.core.outbox.handed_on().await;
        answer
    }

    /// Hands in a command whose answer comes as [`Event::Response`] with `tag`, in order with the other events.
    /// Returns at once; for faces whose wire shows that order.
    pub fn submit(&self, command: Command, tag: u64) {
        let order = (command, Reply::Tagged(tag));
        if let Err(mpsc::error::SendError((_, reply))) = self.orders.send(order) {
            reply.send(&self.core, Err(CommandError::new("the session is closed")));
        }
    }

    /// Subscribes to all events from now on. The channel holds `capacity` events; when it is full everyone waits: the
    /// run goes on only when the slowest face has caught up. Drop the receiver to unsubscribe.
    pub fn subscribe(&self, capacity: usize) -> mpsc::Receiver<Arc<Event>> {
        self.core.outbox.subscribe(capacity)
    }

    /// The review gate of this session, for snapshots of proposals.
    pub fn gate(&self) -> &Gate {
        &self.core.config.gate
    }

    /// Header of the active session file, as its first line.
    pub fn header(&self) -> Value {
        self.core
            .with(|state| Value::Object(state.session.header().fields().clone()))
    }

    /// Looks at the active session.
    pub fn with_session<T>(&self, look: impl FnOnce(&Session) -> T) -> T {
        self.core.with(|state| look(&state.session))
    }

    /// Ends everything: aborts the run (its aborted turn is stored), cancels open proposals, ends processes. Returns
    /// when nothing runs any more. Later commands fail.
    pub async fn shutdown(&self) {
        let core = &self.core;
        core.abort();
        core.config.hooks.ui_gone();
        core.with(|state| state.shells.iter().for_each(|shell| shell.cancel()));
        // The gate may serve other sessions of the process as well.
        let session = core.with(|state| state.session.id().to_owned());
        core.config.gate.cancel(Some(&session)).await;
        core.stop.cancel();
        core.tasks.close();
        core.tasks.wait().await;
        core.config.hooks.session_shutdown(Reason::Quit, None).await;
    }
}

fn open_session(config: &RuntimeConfig, resources: &Resources) -> Result<Session, CommandError> {
    let cwd = &config.load.cwd;
    let start = Start {
        id: config.session_id.clone(),
        ..Start::default()
    };
    let setting = resources.settings.effective().get("sessionDir");
    let dir = config.load.places.sessions_for(
        cwd,
        config.session_dir.as_deref(),
        setting.and_then(Value::as_str),
    );
    Ok(match &config.session {
        SessionChoice::InMemory => Session::in_memory(cwd, start)?,
        SessionChoice::New => Session::create(&dir, cwd, start)?,
        SessionChoice::Open(path) => Session::open(path, cwd, start)?,
        SessionChoice::OpenHere(path) => {
            let start = Start {
                cwd_override: Some(cwd.clone()),
                ..start
            };
            Session::open(path, cwd, start)?
        }
        SessionChoice::Continue => {
            let places = &config.load.places;
            let dir = SessionDir::new(&places.agent_dir, cwd, Some(&dir));
            continue_recent(&dir, cwd, start)?
        }
    })
}
