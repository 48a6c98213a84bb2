//! What passes between the runtime and extensions at each point of a run: plain data.

use std::path::PathBuf;

use serde_json::{Map, Value};

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

/// A run that is about to start.
#[derive(Clone, Debug, PartialEq)]
pub struct RunPlan {
    /// The message that starts it: a prompt, or a message of an extension.
    pub message: Message,
    /// The system prompt as it would be.
    pub system_prompt: String,
    /// What it is made of, in the names of Pi: `selectedTools`, `promptGuidelines`, `sections`, `cwd` ... Empty when
    /// nobody listens.
    pub options: Map<String, Value>,
}

/// What a run begins with, as handlers left it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunStart {
    /// Messages to add after the prompt.
    pub messages: Vec<CustomMessage>,
    /// Prompt sections to add or replace, by name.
    pub sections: Vec<(String, String)>,
    /// More rules for the prompt.
    pub guidelines: Vec<String>,
    /// Names of the tools to be active from now on; as they are when absent.
    pub tools: Option<Vec<String>>,
    /// A prompt that takes the place of the whole system prompt in the requests of this run.
    pub forced_prompt: Option<String>,
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
    /// A turn's messages are stored (`turn_end`).
    TurnEnd,
    /// Nothing is left to run (`agent_before_settle`).
    BeforeSettle,
}

impl Boundary {
    /// Returns the name of the event.
    pub fn event(self) -> &'static str {
        match self {
            Self::TurnEnd => "turn_end",
            Self::BeforeSettle => "agent_before_settle",
        }
    }
}

/// A boundary that was reached.
pub struct BoundaryPoint<'a> {
    /// Which.
    pub at: Boundary,
    /// `completed`, `aborted` or `error`.
    pub outcome: &'static str,
    /// The session as it stands.
    pub view: &'a dyn BoundaryView,
}

/// The session at a boundary. What it shows is put together when it is asked for.
pub trait BoundaryView: Send + Sync {
    /// Returns what the event says besides the state: of a turn `turnIndex`, `message`, `toolResults`, `messageEntryId`
    /// and `toolResultEntryIds`.
    fn facts(&self) -> Map<String, Value>;

    /// Returns the context as it would be with these entries: `{contextEntries, contextMessages, llmMessages,
    /// pendingMessages, canContinue}`.
    ///
    /// # Errors
    /// Which entry cannot be appended and why.
    fn preview(&self, drafts: &[Draft]) -> Result<Value, String>;
}

/// What handlers want at a boundary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoundaryAnswer {
    /// Entries to append, in order.
    pub drafts: Vec<Draft>,
    /// Whether one further request is wanted.
    pub go_on: bool,
}

/// Where extensions have more resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// Skills: files or folders.
    pub skills: Vec<String>,
    /// Prompt templates: files or folders.
    pub prompts: Vec<String>,
}

/// A compaction that is about to be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompactPlan {
    /// `manual`, `threshold` or `overflow`.
    pub reason: &'static str,
    /// What the person wants of the summary.
    pub instructions: Option<String>,
    /// Whether the failed turn is run again afterwards.
    pub will_retry: bool,
    /// `{firstKeptEntryId, tokensBefore, messagesToSummarize, turnPrefixMessages, isSplitTurn, previousSummary?,
    /// settings}`; `null` when nobody listens.
    pub preparation: Value,
    /// Entries of the branch; empty when nobody listens.
    pub branch: Vec<Value>,
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

/// A move in the tree that is about to be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreePlan {
    /// Where to; `None`: before the first entry.
    pub target: Option<String>,
    /// From where.
    pub old_leaf: Option<String>,
    /// The newest entry that both branches have.
    pub common: Option<String>,
    /// Entries of the branch that is left; empty when nobody listens.
    pub left: Vec<Value>,
    /// Whether a summary of them is wanted, and there is something to summarise.
    pub wants_summary: bool,
    /// What the person wants of it.
    pub instructions: Option<String>,
    /// The label for the new place.
    pub label: Option<String>,
}

/// What handlers say before a move in the tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeVerdict {
    /// Do not move.
    pub cancel: bool,
    /// A ready summary of the branch that is left; used when one is wanted.
    pub summary: Option<OwnSummary>,
    /// Other instructions for the summary.
    pub instructions: Option<String>,
    /// Whether they stand in the place of ours, not beside them.
    pub replace_instructions: bool,
    /// Another label.
    pub label: Option<String>,
}

/// A shell command of the person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BashWish {
    /// The command.
    pub command: String,
    /// Whether the model does not see it (`!!`).
    pub exclude: bool,
    /// Where it runs.
    pub cwd: PathBuf,
}

/// An idle cache that is about to be asked to stay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WarmingPlan {
    /// What asking costs, in USD.
    pub warm_cost: f64,
    /// What losing it costs.
    pub miss_cost: f64,
    /// How likely the conversation goes on, 0 to 1.
    pub continuation: f64,
    /// Whether it would be asked.
    pub warm: bool,
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
