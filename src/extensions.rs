//! Where extensions hook into a session: one trait, asked by the runtime at each point of a run.
//!
//! Entry points: [`Hooks`] (what the runtime asks), [`NoHooks`], [`Host`] (brings events to handlers by their names and
//! composes the answers) and [`Ui`] (dialogs of extensions). Every method of [`Hooks`] has a default that changes
//! nothing. The runtime sees one host; how the handlers of several extensions compose (order, chains, first decisive
//! answer, errors) is the host's business, and its answers are the composed ones.

pub mod compose;
mod host;
mod points;
mod ui;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::agent::{BeforeCall, CallInfo, CallOutcome, Tool};
use crate::ai::Message;
use crate::resources::trust::HandlerAnswer;

pub use host::{Host, Registration};
pub use points::{
    BashVerdict, BashWish, Boundary, BoundaryAnswer, BoundaryPoint, BoundaryView, CompactPlan,
    CompactVerdict, Discovered, Draft, Input, InputVerdict, OwnSummary, Reason, RunPlan, RunStart,
    Source, TreePlan, TreeVerdict, WarmingPlan,
};
pub use ui::{DialogOptions, Placement, Ui};

/// Names of all events, in the order in which the documentation of Pi's extensions lists them.
pub const EVENTS: [&str; 41] = [
    "project_trust",
    "resources_discover",
    "session_start",
    "session_info_changed",
    "session_before_switch",
    "session_before_fork",
    "session_before_compact",
    "session_compact",
    "session_compact_failed",
    "session_before_tree",
    "session_tree",
    "session_shutdown",
    "input",
    "before_agent_start",
    "agent_start",
    "agent_end",
    "agent_before_settle",
    "agent_settled",
    "turn_start",
    "turn_end",
    "message_start",
    "message_update",
    "message_end",
    "tool_execution_start",
    "tool_execution_update",
    "tool_execution_end",
    "tool_call",
    "tool_result",
    "user_bash",
    "context",
    "context_with_system",
    "before_provider_headers",
    "before_provider_request",
    "after_provider_response",
    "provider_stream_event",
    "cache_warming_decision",
    "model_select",
    "thinking_level_select",
    "ui_prompt_start",
    "ui_prompt_end",
    "mcp_servers_change",
];

/// A command of an extension, as `get_commands` lists it.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandInfo {
    /// Name without the slash.
    pub name: String,
    /// One line.
    pub description: Option<String>,
    /// `{path, source, scope, origin, baseDir?}`.
    pub source_info: Value,
}

/// What extensions may do to the session they are bound to.
pub trait Port: Send + Sync + 'static {
    /// Reports an error of a handler, a command or the like; `event` says of which.
    fn report(&self, path: &str, event: &str, error: &str);

    /// Sends a record of the extension UI protocol (`extension_ui_request`) to the face.
    fn show(&self, record: Value);

    /// Whether the face answers dialogs.
    fn has_ui(&self) -> bool;

    /// Appends state of an extension, which the model never sees.
    ///
    /// # Errors
    /// Why the session did not take it.
    fn append_entry(&self, custom_type: &str, data: Option<Value>) -> Result<(), String>;
}

/// Extensions, as the runtime sees them. Methods are called one at a time per session, except that [`Hooks::observe`]
/// and the call methods of calls that run together interleave. One value serves one session.
#[async_trait]
pub trait Hooks: Send + Sync + 'static {
    /// The session is about to begin; `port` reaches it until the end.
    fn attach(&self, _port: Arc<dyn Port>) {}

    /// Tools of extensions, after the built-in ones; one with the name of a built-in tool replaces it.
    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    /// Commands of extensions.
    fn commands(&self) -> Vec<CommandInfo> {
        Vec::new()
    }

    /// Whether an extension claims this command line flag.
    fn claims_flag(&self, _name: &str, _value: Option<&str>) -> bool {
        false
    }

    /// Runs an extension command; `None` when there is none of this name.
    async fn command(&self, _name: &str, _args: &str) -> Option<Result<(), String>> {
        None
    }

    /// Whether anyone listens to this event of [`EVENTS`]. What nobody listens to is not put together.
    fn wants(&self, _event: &str) -> bool {
        false
    }

    /// Hears an event that asks for no answer (`agent_start`, `turn_start`, `message_update`, `model_select` ...) as its
    /// record with `type`, before faces do. The run waits.
    async fn observe(&self, _record: &Value) {}

    /// `project_trust`: whether a project may be trusted, before anything of it is read.
    async fn project_trust(&self, _cwd: &Path) -> HandlerAnswer {
        HandlerAnswer::Undecided
    }

    /// `resources_discover`: where more skills and templates are; `reason` is startup or reload.
    async fn resources_discover(&self, _cwd: &Path, _reason: Reason) -> Discovered {
        Discovered::default()
    }

    /// `session_start`: a session is there.
    async fn session_start(&self, _reason: Reason, _previous: Option<&PathBuf>) {}

    /// `session_shutdown`: a session ends, or the process does.
    async fn session_shutdown(&self, _reason: Reason, _target: Option<&PathBuf>) {}

    /// `session_before_switch`: before another session takes over; true cancels.
    async fn before_switch(&self, _reason: Reason, _target: Option<&PathBuf>) -> bool {
        false
    }

    /// `session_before_fork`: before a fork (`at` false: before that entry) or clone; true cancels.
    async fn before_fork(&self, _entry: &str, _at: bool) -> bool {
        false
    }

    /// `input`: a text was received, before skills and templates are expanded.
    async fn input(&self, input: Input) -> InputVerdict {
        InputVerdict::Go {
            text: input.text,
            images: input.images,
        }
    }

    /// `before_agent_start`: a run is about to start.
    async fn before_run(&self, _plan: RunPlan) -> RunStart {
        RunStart::default()
    }

    /// `message_end`: a message is complete; `Some` replaces it (with the same role).
    async fn message_end(&self, _message: &Message) -> Option<Message> {
        None
    }

    /// `turn_end` and `agent_before_settle`: a boundary is reached.
    async fn boundary(&self, _point: &BoundaryPoint<'_>) -> BoundaryAnswer {
        BoundaryAnswer::default()
    }

    /// `tool_call`: a call was checked and may run.
    ///
    /// # Errors
    /// A failing handler blocks the call; the text is its result.
    async fn tool_call(&self, _call: &CallInfo, args: Value) -> Result<BeforeCall, String> {
        Ok(BeforeCall::Run(args))
    }

    /// `tool_result`: a call ran.
    async fn tool_result(
        &self,
        _call: &CallInfo,
        _args: &Value,
        outcome: CallOutcome,
    ) -> CallOutcome {
        outcome
    }

    /// `context` and `context_with_system`: the messages of a request, system messages included; `Some` replaces them
    /// for this request.
    async fn context(&self, _messages: &[Arc<Message>]) -> Option<Vec<Message>> {
        None
    }

    /// `before_provider_headers`: the headers of a request, names and texts; what is missing or `null` is not sent.
    async fn provider_headers(&self, headers: Map<String, Value>) -> Map<String, Value> {
        headers
    }

    /// `before_provider_request`: the body of a request.
    async fn provider_request(&self, payload: Value) -> Value {
        payload
    }

    /// `cache_warming_decision`: before an idle cache is asked to stay; true: ask, false: let it go, `None`: as planned.
    async fn cache_warming(&self, _plan: &WarmingPlan) -> Option<bool> {
        None
    }

    /// `session_before_compact`: before a compaction.
    async fn before_compact(&self, _plan: &CompactPlan) -> CompactVerdict {
        CompactVerdict::Go
    }

    /// `session_before_tree`: before a move in the tree.
    async fn before_tree(&self, _plan: &TreePlan) -> TreeVerdict {
        TreeVerdict::default()
    }

    /// `user_bash`: a shell command of the person.
    async fn user_bash(&self, _wish: &BashWish) -> BashVerdict {
        BashVerdict::Run
    }

    /// An answer of the face to a dialog of an extension (`extension_ui_response`).
    fn ui_answer(&self, _record: &Value) {}

    /// The face answers no more: open dialogs end with their defaults.
    fn ui_gone(&self) {}
}

/// Sets a field of a record that is an object.
pub(crate) fn put(record: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(fields) = record.as_object_mut() {
        fields.insert(key.to_owned(), value.into());
    }
}

/// No extensions.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
