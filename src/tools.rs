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
mod walk;
mod write;

pub use env::{LiveOptions, ToolEnv, ToolOptions};

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

/// Paths or names, one a line, and whether the limit left some out.
struct Listing {
    lines: Vec<String>,
    more: bool,
}

/// How `find` and `ls` speak of their listings.
struct Wording {
    empty: &'static str,
    /// What the limit counts.
    things: &'static str,
    /// What to do about it beside asking for more.
    advice: &'static str,
    /// Name of the detail that says that the limit was reached.
    detail: &'static str,
}

impl Listing {
    fn render(self, limit: usize, wording: &Wording) -> ToolOutput {
        if self.lines.is_empty() {
            return ToolOutput::text(wording.empty);
        }
        let text = self.lines.join("\n");
        let cut = truncate::head(&text, truncate::NO_LINE_LIMIT, truncate::MAX_BYTES);
        let mut notices = Vec::new();
        let mut details = Map::new();
        if self.more {
            let Wording { things, advice, .. } = wording;
            let twice = limit.saturating_mul(2);
            notices.push(format!(
                "{limit} {things} limit reached. Use limit={twice} for more{advice}"
            ));
            details.insert(wording.detail.to_owned(), limit.into());
        }
        with_notices(cut, notices, Vec::new(), details)
    }
}

/// Puts a cut text, the notices before and after the one about bytes, and the details together.
fn with_notices(
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
