//! The only language between faces and the runtime: [`Command`] goes in, [`Event`] comes out.
//!
//! Commands that Pi's RPC protocol has carry its names and fields, so that the RPC face is a translation of JSON and
//! nothing more; commands that only other faces need stand beside them. A command is answered with
//! `Result<serde_json::Value, CommandError>`: the `data` of the RPC response (`Null` for none).

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use crate::agent::ToolOutput;
use crate::ai::{Block, Message, StreamEvent};
use crate::review::{ApprovalAnswer, ReviewAction, ReviewEvent};

/// How a prompt given during a run is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    /// Before the next request.
    Steer,
    /// When the run would end.
    FollowUp,
}

/// How a queue is emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueMode {
    /// One message a poll.
    #[default]
    OneAtATime,
    /// Everything at once.
    All,
}

impl QueueMode {
    /// Returns the word of the protocol and of the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OneAtATime => "one-at-a-time",
            Self::All => "all",
        }
    }

    /// Reads the word; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::OneAtATime, Self::All]
            .into_iter()
            .find(|mode| mode.as_str() == word)
    }
}

/// Whether leaving a branch writes a summary of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SummaryWish {
    /// No summary.
    #[default]
    None,
    /// A summary.
    Plain,
    /// A summary with instructions.
    With(String),
}

/// What a face asks of a session.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    missing_docs,
    reason = "names and fields are those of the RPC protocol or repeat the types used"
)]
pub enum Command {
    Prompt {
        text: String,
        images: Vec<Block>,
        behavior: Option<Behavior>,
    },
    Steer {
        text: String,
        images: Vec<Block>,
    },
    FollowUp {
        text: String,
        images: Vec<Block>,
    },
    Abort,
    ClearQueue,
    NewSession {
        parent: Option<PathBuf>,
        name: Option<String>,
    },
    GetState,
    GetMessages,
    SetModel {
        provider: String,
        id: String,
    },
    CycleModel,
    GetAvailableModels,
    SetThinkingLevel {
        level: String,
    },
    CycleThinkingLevel,
    GetAvailableThinkingLevels,
    SetSteeringMode {
        mode: QueueMode,
    },
    SetFollowUpMode {
        mode: QueueMode,
    },
    Compact {
        instructions: Option<String>,
    },
    SetAutoCompaction {
        enabled: bool,
    },
    SetAutoRetry {
        enabled: bool,
    },
    AbortRetry,
    /// `tag` comes back in [`Event::BashUpdate`].
    Bash {
        command: String,
        exclude_from_context: bool,
        tag: Option<Value>,
    },
    AbortBash,
    GetSessionStats,
    ExportHtml {
        path: Option<PathBuf>,
    },
    ExportJsonl {
        path: Option<PathBuf>,
    },
    ImportSession {
        path: PathBuf,
    },
    SwitchSession {
        path: PathBuf,
    },
    /// Opens the most recent session of the directory.
    Continue,
    Fork {
        entry: String,
    },
    Clone,
    GetForkMessages,
    GetEntries {
        since: Option<String>,
    },
    /// Answers `{treeJson, leafId}`: the tree as JSON text, because a long chain nests deeper than a value may.
    GetTree,
    GetLastAssistantText,
    SetSessionName {
        name: String,
    },
    GetCommands,
    /// Moves the leaf (`None`: before the first entry). Answers `{prefill?, cancelled}`.
    Navigate {
        target: Option<String>,
        summary: SummaryWish,
        label: Option<String>,
    },
    SetLabel {
        entry: String,
        label: Option<String>,
    },
    /// `replacement` is `null` (omit), `{content}`, or `{original: true}` (take earlier edits back).
    EditContext {
        target: String,
        replacement: Value,
    },
    /// Sessions of the directory, or all: listing rows.
    ListSessions {
        all: bool,
        query: Option<String>,
    },
    DeleteSession {
        path: PathBuf,
    },
    /// All tools: `{tools: [{name, description, active}]}`.
    GetTools,
    SetActiveTools {
        names: Vec<String>,
    },
    Reload,
    Review(ReviewAction),
    Approve {
        id: u64,
        answer: ApprovalAnswer,
    },
    /// A record of the extension UI protocol, from the face (`extension_ui_response`).
    UiAnswer {
        record: Value,
    },
}

impl Command {
    /// A prompt of text alone, for a session at rest.
    pub fn prompt(text: impl Into<String>) -> Self {
        Self::Prompt {
            text: text.into(),
            images: Vec::new(),
            behavior: None,
        }
    }
}

/// Why a command was not carried out: one line for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CommandError(pub String);

impl CommandError {
    /// Makes one from its line.
    pub fn new(line: impl Into<String>) -> Self {
        Self(line.into())
    }
}

/// What happens in a session. Wire events carry Pi's names ([`Event::to_wire`]); the rest is for faces of this process.
#[derive(Clone, Debug)]
#[expect(
    missing_docs,
    reason = "names and fields are those of the RPC protocol or repeat the types used"
)]
pub enum Event {
    AgentStart,
    AgentEnd {
        messages: Vec<Arc<Message>>,
        will_retry: bool,
    },
    AgentSettled {
        aborted: bool,
    },
    TurnStart,
    TurnEnd {
        message: Arc<Message>,
        tool_results: Vec<Arc<Message>>,
    },
    /// The assistant message of a stream is still empty here (`pending`); every other message is complete.
    MessageStart {
        message: Arc<Message>,
    },
    /// One piece of the answer that streams. `usage` is the latest known.
    MessageUpdate {
        usage: Box<crate::ai::Usage>,
        event: StreamEvent,
    },
    /// `entry` is the id of the session entry; the message is stored before this is told.
    MessageEnd {
        message: Arc<Message>,
        entry: Option<String>,
    },
    ToolStart {
        call_id: String,
        name: String,
        args: Value,
    },
    ToolUpdate {
        call_id: String,
        name: String,
        args: Value,
        content: Vec<Block>,
        details: Option<Value>,
    },
    ToolEnd {
        call_id: String,
        name: String,
        result: Box<ToolOutput>,
        is_error: bool,
        duration_ms: Option<u64>,
    },
    /// A prepared call waits for an earlier change of the same response to be decided.
    ToolWaits {
        call_id: String,
    },
    QueueUpdate {
        steering: Vec<String>,
        follow_up: Vec<String>,
    },
    EntryAppended {
        entry: Value,
    },
    SessionInfoChanged {
        name: Option<String>,
    },
    ThinkingLevelChanged {
        level: String,
    },
    CompactionStart {
        reason: String,
    },
    CompactionEnd {
        reason: String,
        result: Option<Value>,
        aborted: bool,
        will_retry: bool,
        error: Option<String>,
    },
    RetryStart {
        attempt: u32,
        max_attempts: u32,
        delay_ms: u64,
        error: String,
    },
    RetryEnd {
        success: bool,
        attempt: u32,
        error: Option<String>,
    },
    /// `summarization_retry_*`: the whole record.
    Summarization {
        record: Value,
    },
    BashUpdate {
        tag: Option<Value>,
        delta: String,
    },
    ExtensionError {
        path: String,
        event: String,
        error: String,
    },
    ExtensionUi {
        record: Value,
    },
    // Not on Pi's wire:
    /// The answer to a [`super::Runtime::submit`]ted command, at its place among the events.
    Response {
        tag: u64,
        answer: Result<Value, CommandError>,
    },
    /// Another session (or branch) is active now; faces draw it anew.
    SessionChanged {
        id: String,
        file: Option<PathBuf>,
    },
    TreeChanged {
        leaf: Option<String>,
    },
    ModelChanged {
        provider: String,
        id: String,
    },
    Review(ReviewEvent),
    /// Something the person should know, one line (store trouble, a foreign append, a model fallback ...).
    Notice {
        level: NoticeLevel,
        text: String,
    },
}

/// How loud a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeLevel {
    /// Good to know.
    Info,
    /// Something is not as expected.
    Warning,
    /// Something failed.
    Error,
}
