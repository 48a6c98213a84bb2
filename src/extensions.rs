//! Where extensions hook into a session: one trait, asked by the runtime at each point of a run.
//!
//! Entry points: [`Hooks`], [`NoHooks`]. Every method has a default that changes nothing, so that a host implements what
//! it has. The runtime sees one host; how the handlers of several extensions compose (order, chains, first decisive
//! answer, errors) is the host's business, and its answers are the composed ones.

pub mod compose;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::agent::{BeforeCall, CallInfo, CallOutcome, Tool};
use crate::ai::{Block, CustomMessage, Message, Usage};

/// Why a session begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the events")]
pub enum Reason {
    Startup,
    Reload,
    New,
    Resume,
    Fork,
    Quit,
}

impl Reason {
    /// Returns the word of the event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Reload => "reload",
            Self::New => "new",
            Self::Resume => "resume",
            Self::Fork => "fork",
            Self::Quit => "quit",
        }
    }
}

/// Who wrote a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A person, in the editor.
    Interactive,
    /// A program, over RPC or the library.
    Rpc,
    /// An extension.
    Extension,
}

/// A text on its way to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The text.
    pub text: String,
    /// Pictures with it.
    pub images: Vec<Block>,
    /// Who wrote it.
    pub source: Source,
    /// `steer` or `followUp` when it will be queued.
    pub behavior: Option<&'static str>,
}

/// What became of a text.
#[derive(Clone, Debug, PartialEq)]
pub enum InputVerdict {
    /// Go on with this text and these pictures.
    Go {
        /// The text.
        text: String,
        /// The pictures.
        images: Vec<Block>,
    },
    /// An extension took care of it.
    Handled,
}

/// What a run begins with, as handlers left it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunStart {
    /// Messages to add after the prompt.
    pub messages: Vec<CustomMessage>,
    /// Prompt sections to add or replace, by name.
    pub sections: Vec<(String, String)>,
}

/// Something an extension adds to the session at a boundary.
#[derive(Clone, Debug, PartialEq)]
pub enum Draft {
    /// State of the extension; the model never sees it.
    Custom {
        /// Which state.
        custom_type: String,
        /// The state.
        data: Option<Value>,
    },
    /// A message the model sees.
    Message(CustomMessage),
    /// An omission or replacement of an earlier message.
    Edit {
        /// Entry id.
        target: String,
        /// `null` or `{content}`.
        replacement: Value,
    },
    /// A summary that stands for older history from here on.
    Compaction {
        /// The summary.
        summary: String,
        /// First entry of the branch that stays; `None` keeps nothing.
        first_kept: Option<String>,
        /// Details.
        details: Option<Value>,
        /// Usage of the extension's own calls.
        usage: Option<Box<Usage>>,
    },
}

/// Where a boundary stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// A turn's messages are stored.
    TurnEnd,
    /// Nothing is left to run.
    BeforeSettle,
}

/// What handlers want at a boundary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoundaryAnswer {
    /// Entries to append, in order.
    pub drafts: Vec<Draft>,
    /// Whether one further request is wanted.
    pub go_on: bool,
}

/// What handlers say before a compaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum CompactVerdict {
    /// Compact as usual.
    #[default]
    Go,
    /// Do not.
    Cancel,
    /// Use this summary.
    Use(Box<OwnSummary>),
}

/// A summary of an extension.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnSummary {
    /// The summary.
    pub summary: String,
    /// First entry that is kept; `None` keeps nothing.
    pub first_kept: Option<String>,
    /// Tokens before.
    pub tokens_before: u64,
    /// Details.
    pub details: Option<Value>,
    /// Usage of the extension's own calls.
    pub usage: Option<Usage>,
}

/// What handlers say before a move in the tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeVerdict {
    /// Do not move.
    pub cancel: bool,
    /// A ready summary of the branch that is left.
    pub summary: Option<String>,
    /// Other instructions for the summary.
    pub instructions: Option<String>,
    /// Another label.
    pub label: Option<String>,
}

/// What handlers say to a shell command of the person.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum BashVerdict {
    /// Run it as usual.
    #[default]
    Run,
    /// It ran elsewhere: `{output, exitCode, cancelled, truncated, fullOutputPath?}`.
    Result(Value),
    /// It must not run; why.
    Block(String),
}

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

/// Extensions, as the runtime sees them. Methods are called one at a time per session, except that [`Hooks::observe`]
/// and the call methods of calls that run together interleave.
#[async_trait]
pub trait Hooks: Send + Sync + 'static {
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

    /// Hears a record of Pi's wire (`agent_start`, `turn_start`, `message_update`, `tool_execution_start` ...), before
    /// faces do. The run waits.
    async fn observe(&self, _record: &Value) {}

    /// Whether [`Hooks::observe`] wants to be called: building records costs something.
    fn observes(&self) -> bool {
        false
    }

    /// A session is there.
    async fn session_start(&self, _reason: Reason, _previous: Option<&PathBuf>) {}

    /// A session ends, or the process does.
    async fn session_shutdown(&self, _reason: Reason, _target: Option<&PathBuf>) {}

    /// Before another session takes over; true cancels.
    async fn before_switch(&self, _reason: Reason, _target: Option<&PathBuf>) -> bool {
        false
    }

    /// Before a fork (`at` false: before that entry) or clone; true cancels.
    async fn before_fork(&self, _entry: &str, _at: bool) -> bool {
        false
    }

    /// A text was received, before skills and templates are expanded.
    async fn input(&self, input: Input) -> InputVerdict {
        InputVerdict::Go {
            text: input.text,
            images: input.images,
        }
    }

    /// A run is about to start with this prompt.
    async fn before_run(&self, _prompt: &str, _images: &[Block]) -> RunStart {
        RunStart::default()
    }

    /// A message is complete; `Some` replaces it (with the same role).
    async fn message_end(&self, _message: &Message) -> Option<Message> {
        None
    }

    /// A boundary is reached.
    async fn boundary(&self, _at: Boundary, _outcome: &str) -> BoundaryAnswer {
        BoundaryAnswer::default()
    }

    /// A call was checked and may run.
    ///
    /// # Errors
    /// A failing handler blocks the call; the text is its result.
    async fn tool_call(&self, _call: &CallInfo, args: Value) -> Result<BeforeCall, String> {
        Ok(BeforeCall::Run(args))
    }

    /// A call ran.
    async fn tool_result(
        &self,
        _call: &CallInfo,
        _args: &Value,
        outcome: CallOutcome,
    ) -> CallOutcome {
        outcome
    }

    /// The messages of a request, system messages included; `Some` replaces them for this request.
    async fn context(&self, _messages: &[Arc<Message>]) -> Option<Vec<Message>> {
        None
    }

    /// Before a compaction; `reason` is `manual`, `threshold` or `overflow`.
    async fn before_compact(&self, _reason: &str, _instructions: Option<&str>) -> CompactVerdict {
        CompactVerdict::Go
    }

    /// A compaction is over; `entry` is the entry that was stored.
    async fn compacted(&self, _reason: &str, _entry: Option<&Value>, _error: Option<&str>) {}

    /// Before a move in the tree.
    async fn before_tree(&self, _target: Option<&str>, _wants_summary: bool) -> TreeVerdict {
        TreeVerdict::default()
    }

    /// After a move in the tree.
    async fn tree_moved(&self, _new_leaf: Option<&str>, _old_leaf: Option<&str>) {}

    /// A shell command of the person.
    async fn user_bash(&self, _command: &str, _exclude: bool) -> BashVerdict {
        BashVerdict::Run
    }

    /// Another model was chosen; `source` is `set` or `cycle`.
    async fn model_select(&self, _model: &crate::ai::Model, _source: &str) {}

    /// The thinking level changed.
    async fn thinking_level_select(&self, _level: &str, _previous: &str) {}

    /// An answer of the face to a dialog of an extension.
    fn ui_answer(&self, _record: &Value) {}
}

/// No extensions.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
