//! The built-in tools: `read`, `bash`, `edit`, `write`, `grep`, `find`, `ls`.
//!
//! Entry points: [`builtin`] makes them over a [`ToolEnv`];
//! Invariants: nothing here writes a project file (`edit` and `write` propose, the gate writes); memory stays bounded
//! whatever the size of a file, an output or a tree; every tool answers an abort at once with what is true.

use std::sync::Arc;

use crate::agent::Tool;

pub mod env;
pub mod paths;
pub mod truncate;

pub use env::{ToolEnv, ToolOptions};

/// Names of the tools that are active unless settings say otherwise, in their order.
pub const DEFAULT_TOOLS: [&str; 4] = ["read", "bash", "edit", "write"];

/// Returns all built-in tools over one environment.
pub fn builtin(env: ToolEnv) -> Vec<Arc<dyn Tool>> {
    let _env = Arc::new(env);
    Vec::new()
}
