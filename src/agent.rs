//! The loop: model turn, tool calls, results, next turn. Knows no files, no sessions and no editor.
//!
//! Entry points: [`run()`] and [`resume`] (the loop), [`RunHost`] (who runs it), [`Tool`] (what it can run).

pub mod arguments;
mod batch;
mod declare;
pub mod host;
pub mod run;
mod stream;
#[cfg(test)]
mod tests;
pub mod tool;

pub use arguments::ArgumentCheck;
pub use host::{
    BeforeCall, CallInfo, CallOutcome, CallSetting, FinishedTurn, HostError, PreparedRequest,
    Queue, RunEvent, RunHost, TurnDecision,
};
pub use run::{RunReport, resume, run};
pub use tool::{
    ErrorClass, ExecutionMode, SessionFacts, Sight, Tool, ToolContext, ToolError, ToolOutput,
    ToolUpdate, UpdateSink,
};
