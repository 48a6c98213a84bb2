//! The built-in tools: `read`, `bash`, `edit`, `write`, `grep`, `find`, `ls`.
//!
//! Entry points: [`builtin`] makes them over a [`ToolEnv`]; [`bash::user_command`] runs what a person types after `!`.
//! Invariants: nothing here writes a project file (`edit` and `write` propose, the gate writes); memory stays bounded
//! whatever the size of a file, an output or a tree; every tool answers an abort at once with what is true.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::agent::{Tool, ToolOutput};

pub mod bash;
mod declare;
pub mod decode;
mod edit;
pub mod env;
mod find;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
mod grep;
pub mod image;
mod ls;
pub mod paths;
mod read;
pub mod truncate;
mod write;

pub use env::{ToolEnv, ToolOptions};

/// Names of the tools that are active unless settings say otherwise, in their order.
pub const DEFAULT_TOOLS: [&str; 4] = ["read", "bash", "edit", "write"];

/// Returns all built-in tools over one environment.
pub fn builtin(env: ToolEnv) -> Vec<Arc<dyn Tool>> {
    let env = Arc::new(env);
    vec![
        Arc::new(read::tool(Arc::clone(&env))),
        Arc::new(bash::tool(Arc::clone(&env))),
        Arc::new(edit::tool(Arc::clone(&env))),
        Arc::new(write::tool(Arc::clone(&env))),
        Arc::new(grep::tool(Arc::clone(&env))),
        Arc::new(find::tool(Arc::clone(&env))),
        Arc::new(ls::tool(env)),
    ]
}

/// Puts a cut text, what limited it, and the details together, as `grep`, `find` and `ls` show them.
fn with_notices(
    cut: truncate::Truncation,
    before: Vec<String>,
    details: Map<String, Value>,
) -> ToolOutput {
    with_notices_around(cut, before, Vec::new(), details)
}

/// As [`with_notices`] with more notices after the one about bytes.
fn with_notices_around(
    cut: truncate::Truncation,
    before: Vec<String>,
    after: Vec<String>,
    mut details: Map<String, Value>,
) -> ToolOutput {
    let mut notices = before;
    if cut.truncated() {
        let size = truncate::size_text(truncate::MAX_BYTES);
        notices.push(format!("{size} limit reached"));
        details.insert("truncation".to_owned(), cut.to_value());
    }
    notices.extend(after);
    let mut text = cut.content;
    if !notices.is_empty() {
        text.push_str(&format!("\n\n[{}]", notices.join(". ")));
    }
    ToolOutput {
        details: (!details.is_empty()).then_some(Value::Object(details)),
        ..ToolOutput::text(text)
    }
}
