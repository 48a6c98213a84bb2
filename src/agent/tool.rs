//! What the loop knows of a tool, and what a tool knows of the loop.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::ai::{Block, Model, ToolDeclaration, Usage};

/// A tool as the loop sees it; arguments are JSON, already prepared, coerced and validated by the loop.
pub trait Tool: Send + Sync + 'static {
    /// What the model is told.
    fn declaration(&self) -> &ToolDeclaration;

    /// One line for the system prompt, if the tool wants one there.
    fn prompt_snippet(&self) -> Option<&str> {
        None
    }

    /// Rules for the system prompt while the tool is active.
    fn prompt_guidelines(&self) -> &[&str] {
        &[]
    }

    /// Rewrites alternative argument shapes before validation; leaves alone what it does not know.
    fn prepare_arguments(&self, arguments: Value) -> Value {
        arguments
    }

    /// Whether calls of one response may run at the same time as this one.
    fn execution_mode(&self) -> ExecutionMode {
        ExecutionMode::Parallel
    }

    /// How the tool relates to files; decides what waits for a review.
    fn sight(&self) -> Sight {
        Sight::Sees
    }

    /// Starts the call. The loop calls this once per call, *in call order*, after all calls of the response were
    /// prepared; a tool that needs a place in a queue takes it here, before the returned future is polled for the first
    /// time. The future does the work. It must end soon after `cx.cancel` fires, with a result that says what is true.
    fn start(
        &self,
        arguments: Value,
        cx: ToolContext,
    ) -> BoxFuture<'static, Result<ToolOutput, ToolError>>;
}

/// Whether calls of one response run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionMode {
    /// Together with others.
    Parallel,
    /// A response that calls this tool runs all its calls one after another.
    Sequential,
}

/// How a tool relates to files (architecture rule 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Proposes changes (`edit`, `write`): takes a place in the per-file queue.
    Changes,
    /// Can see files: while a person reviews, it starts only when earlier changes of the same response have settled.
    Sees,
    /// Neither.
    Blind,
}

/// Facts about the session that a tool may need, read at the start of each call.
#[derive(Clone, Debug, Default)]
pub struct SessionFacts {
    /// Session id.
    pub session_id: String,
    /// Session file, when it is stored.
    pub session_file: Option<PathBuf>,
    /// Selected model.
    pub model: Option<Arc<Model>>,
    /// Thinking level, when known.
    pub thinking_level: Option<String>,
    /// Ids of the calls that made this one, for calls a tool makes itself: a file one of them holds is not waited for.
    pub ancestors: Vec<String>,
}

/// What a call gets besides its arguments.
#[derive(Clone)]
pub struct ToolContext {
    /// Id of the call.
    pub call_id: String,
    /// Directory that relative paths start from.
    pub cwd: PathBuf,
    /// Fires when the run is aborted.
    pub cancel: CancellationToken,
    /// Where partial results go; calls after the result are ignored.
    pub updates: UpdateSink,
    /// Facts about the session.
    pub session: SessionFacts,
}

/// Takes partial results of a running call.
pub type UpdateSink = Arc<dyn Fn(ToolUpdate) + Send + Sync>;

/// A partial result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolUpdate {
    /// What is there so far (not a delta).
    pub content: Vec<Block>,
    /// For faces.
    pub details: Option<Value>,
}

/// A result. `is_error` may be set by a tool that failed but has details to keep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    /// What the model sees.
    pub content: Vec<Block>,
    /// For faces and programs; stored, never sent to the model.
    pub details: Option<Value>,
    /// Whether the model should read it as a failure.
    pub is_error: bool,
    /// For scripts; not stored.
    pub structured_content: Option<Value>,
    /// Usage of model calls the tool made.
    pub usage: Option<Usage>,
    /// Calls the tool made itself.
    pub nested_calls: Option<Value>,
    /// When every result of a batch says so the run ends without a further request.
    pub terminate: bool,
}

impl ToolOutput {
    /// A successful result with one text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: vec![Block::text(text)],
            ..Self::default()
        }
    }
}

/// An error the model reads: `{content:[text], details:{}, isError:true}`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// What kind it is; the recorded cases compare by it.
    pub class: ErrorClass,
    /// For the model: what happened, to what, what to do.
    pub message: String,
}

impl ToolError {
    /// Makes an error.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
        }
    }

    /// The call was ended by an abort.
    pub fn aborted() -> Self {
        Self::new(ErrorClass::Aborted, "Operation aborted")
    }
}

/// Kinds of tool errors; the names are those of the recorded cases in snake case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "the names say it; they are the classes of the recorded cases"
)]
pub enum ErrorClass {
    Validation,
    MalformedArguments,
    UnknownTool,
    NoEdits,
    EmptyOldText,
    NotFoundText,
    NotUnique,
    Overlap,
    NoChange,
    Io,
    InvalidPath,
    BadFileUrl,
    OffsetBeyondEof,
    PathNotFound,
    NotADirectory,
    SearchPathInvalid,
    BadPattern,
    InvalidTimeout,
    Timeout,
    Aborted,
    ExitCode,
    CwdMissing,
    ShellMissing,
    NotUtf8,
    Rejected,
    Stale,
    Blocked,
    Other,
}
