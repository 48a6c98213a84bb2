//! The loop: model turn, tool calls, results, next turn. Knows no files, no sessions and no editor.
//!
//! Entry points: [`Tool`] (what the loop can run) and the types a tool sees. The loop itself lives in `agent/run.rs`.

pub mod arguments;
pub mod tool;

pub use tool::{
    ErrorClass, ExecutionMode, SessionFacts, Sight, Tool, ToolContext, ToolError, ToolOutput,
    ToolUpdate, UpdateSink,
};
