//! What the loop asks of the one who runs it, and what it tells.
//!
//! The loop keeps no conversation: the host stores every message and builds every request. Entry points: [`RunHost`],
//! [`RunEvent`].

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::tool::{SessionFacts, Tool, ToolOutput, ToolUpdate};
use crate::ai::{Block, Message, Provider, Request, StreamEvent, SystemMessage, Usage};

/// What happens in a run, in order. Message ends are not here: [`RunHost::end_message`] stores and announces them.
#[derive(Clone, Debug)]
pub enum RunEvent {
    /// A run begins.
    AgentStart,
    /// A run is over; all messages it added.
    AgentEnd(Vec<Arc<Message>>),
    /// A model turn begins.
    TurnStart,
    /// A model turn is over.
    TurnEnd {
        /// The answer.
        message: Arc<Message>,
        /// Results of its calls, in call order.
        tool_results: Vec<Arc<Message>>,
    },
    /// A message begins; complete unless it is an answer that streams.
    MessageStart(Arc<Message>),
    /// A piece of the answer.
    MessageUpdate {
        /// Latest usage known.
        usage: Usage,
        /// The piece; never a start or an end of the message, never bare usage.
        event: StreamEvent,
    },
    /// A call begins: before its arguments are looked at.
    ToolStart(CallInfo),
    /// A running call shows what it has so far.
    ToolUpdate(CallInfo, ToolUpdate),
    /// A call ended, whether it ran or not.
    ToolEnd {
        /// The call.
        call: CallInfo,
        /// Its result.
        outcome: CallOutcome,
    },
    /// A prepared call waits for an earlier change of the same response.
    ToolWaits(CallInfo),
}

/// Which call an event is about.
#[derive(Clone, Debug, PartialEq)]
pub struct CallInfo {
    /// Id of the call.
    pub id: String,
    /// Tool name, as the model wrote it.
    pub name: String,
    /// Arguments as the model sent them.
    pub args: Value,
}

/// How a call ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallOutcome {
    /// The result; `is_error` says whether the model reads a failure.
    pub output: ToolOutput,
    /// Whole milliseconds of the tool body; `None` when it never ran.
    pub duration_ms: Option<u64>,
}

impl CallOutcome {
    /// An error that keeps a call from running.
    pub fn refused(text: impl Into<String>) -> Self {
        Self {
            output: ToolOutput {
                content: vec![Block::text(text)],
                details: Some(Value::Object(serde_json::Map::new())),
                is_error: true,
                ..ToolOutput::default()
            },
            duration_ms: None,
        }
    }
}

/// A request and who answers it.
pub struct PreparedRequest {
    /// Who answers.
    pub provider: Arc<dyn Provider>,
    /// The request; its cancel token is the run's.
    pub request: Request,
}

/// Which queue is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Messages for before the next request.
    Steering,
    /// Messages for when the run would end.
    FollowUp,
}

/// What the host says after a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnDecision {
    /// The loop goes by its own rules.
    #[default]
    None,
    /// One more request is wanted even without new input.
    Continue,
    /// The run ends here.
    End,
}

/// What the host says before a call runs.
#[derive(Clone, Debug, PartialEq)]
pub enum BeforeCall {
    /// Run it with these arguments.
    Run(Value),
    /// Do not; the reason is the result.
    Block {
        /// For the model; a default when `None`.
        reason: Option<String>,
        /// Whether this result asks to end the run.
        terminate: bool,
    },
}

/// What a tool's context needs besides its call.
#[derive(Clone, Debug, Default)]
pub struct CallSetting {
    /// Directory that relative paths start from.
    pub cwd: PathBuf,
    /// Facts about the session.
    pub session: SessionFacts,
}

/// Something the host cannot do, as one line. It ends the run with an error message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostError(pub String);

/// The one who runs the loop: keeps the conversation, the queues and the settings.
///
/// The loop calls one method at a time, except that updates and ends of calls that run together come from the same task
/// in any order. A method may take as long as it likes (a slow face, a compaction): the run waits.
#[async_trait]
pub trait RunHost: Send + Sync {
    /// Tells an event.
    async fn emit(&self, event: RunEvent);

    /// Stores a complete message, then announces its end. Returns the message as stored.
    async fn end_message(&self, message: Message) -> Result<Arc<Message>, HostError>;

    /// Announces the end of a message that could not be stored.
    async fn announce_unstored(&self, message: Arc<Message>);

    /// Takes what the queue gives by its mode.
    async fn poll(&self, queue: Queue) -> Vec<Message>;

    /// Runs between two turns of a run: may compact, may change model, tools or prompt, may give messages to insert.
    async fn prepare_next_turn(&self) -> Result<Vec<Message>, HostError>;

    /// Builds the next request from the conversation as stored.
    async fn prepare_request(&self) -> Result<PreparedRequest, HostError>;

    /// Runs after a turn's messages are stored, before its end is told.
    async fn finish_turn(&self, turn: &FinishedTurn) -> TurnDecision;

    /// The tools that can run now, in the order in which the model is told of them.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;

    /// What the conversation's system messages have led to so far: its `tools_added` are the tools that are declared.
    fn declared(&self) -> Option<Arc<SystemMessage>>;

    /// Whether a person decides on changes now: calls that see files then wait for earlier changes of the response.
    fn person_reviews(&self) -> bool;

    /// Whether calls of one response run one after another.
    fn sequential_tools(&self) -> bool {
        false
    }

    /// The setting of a call that is about to start.
    fn call_setting(&self) -> CallSetting;

    /// Runs after a call's arguments were checked.
    ///
    /// # Errors
    /// The line becomes the call's error result.
    async fn before_call(&self, call: &CallInfo, args: Value) -> Result<BeforeCall, HostError>;

    /// Runs after a call ran, before its end is told; may change the outcome.
    async fn after_call(&self, call: &CallInfo, args: &Value, outcome: CallOutcome) -> CallOutcome;

    /// Now, in Unix milliseconds.
    fn now_ms(&self) -> i64;
}

/// A turn whose messages are stored.
#[derive(Clone, Debug)]
pub struct FinishedTurn {
    /// The answer.
    pub message: Arc<Message>,
    /// Results of its calls, in call order.
    pub tool_results: Vec<Arc<Message>>,
}
