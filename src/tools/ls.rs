//! `ls`: the entries of one directory, sorted as people expect, directories marked.

mod collation;

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::declare::{self, BuiltIn, Sampling, declaration};
use super::{ToolEnv, truncate};
use crate::agent::{ErrorClass, Sight, ToolContext, ToolError, ToolOutput};

const LIMIT: usize = 500;

const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "path": {"type": "string", "description": "Directory to list; the working directory when left out"},
    "limit": {"type": "number", "description": "How many entries at most (default 500)"}
  }
}"#;

#[derive(Deserialize)]
struct Input {
    path: Option<String>,
    limit: Option<f64>,
}

/// Makes the tool.
pub(super) fn tool(env: Arc<ToolEnv>) -> BuiltIn {
    let description = "List a directory: all entries including dotfiles, in alphabetical order, directories with a \
         trailing /. Shows at most 500 entries (or `limit`) and 50KB.";
    BuiltIn {
        env,
        declaration: declaration("ls", description.to_owned(), SCHEMA, Sampling::Free),
        snippet: Some("List what is in a directory"),
        guidelines: &[],
        sight: Sight::Sees,
        prepare: |arguments| arguments,
        start,
    }
}

fn start(
    env: Arc<ToolEnv>,
    arguments: Value,
    cx: ToolContext,
) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
    Box::pin(async move {
        let input: Input = declare::decode("ls", arguments)?;
        let dir = declare::place(input.path.as_deref(), &cx, &env)?;
        let limit = declare::limit(input.limit, LIMIT);
        let cancel = cx.cancel.clone();
        let listing = declare::blocking(&cx, move || list(dir, limit, &|| cancel.is_cancelled()));
        Ok(render(listing.await?, limit))
    })
}

struct Listing {
    names: Vec<String>,
    more: bool,
}

fn list(dir: PathBuf, limit: usize, aborted: &dyn Fn() -> bool) -> Result<Listing, ToolError> {
    let meta = std::fs::metadata(&dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => ToolError::new(
            ErrorClass::PathNotFound,
            format!("Path not found: {}", dir.display()),
        ),
        _ => declare::io_error("list", &dir, &error),
    })?;
    if !meta.is_dir() {
        let text = format!("Not a directory: {}", dir.display());
        return Err(ToolError::new(ErrorClass::NotADirectory, text));
    }
    let unreadable = |error| declare::io_error("list", &dir, &error);
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(&dir).map_err(unreadable)? {
        if aborted() {
            return Err(ToolError::aborted());
        }
        let name = entry.map_err(unreadable)?.file_name();
        let shown = name.to_string_lossy().into_owned();
        entries.push((collation::key(&shown), shown, name));
    }
    entries.sort_unstable();
    let mut names = Vec::new();
    for (_, shown, name) in entries {
        // Entries that cannot be looked at (dangling links) are left out and do not count.
        let Ok(meta) = std::fs::metadata(dir.join(&name)) else {
            continue;
        };
        if names.len() == limit {
            return Ok(Listing { names, more: true });
        }
        names.push(if meta.is_dir() { shown + "/" } else { shown });
    }
    Ok(Listing { names, more: false })
}

fn render(listing: Listing, limit: usize) -> ToolOutput {
    if listing.names.is_empty() {
        return ToolOutput::text("(empty directory)");
    }
    let text = listing.names.join("\n");
    let cut = truncate::head(&text, truncate::NO_LINE_LIMIT, truncate::MAX_BYTES);
    let mut notices = Vec::new();
    let mut details = Map::new();
    if listing.more {
        let twice = limit.saturating_mul(2);
        notices.push(format!(
            "{limit} entries limit reached. Use limit={twice} for more"
        ));
        details.insert("entryLimitReached".to_owned(), json!(limit));
    }
    super::with_notices(cut, notices, details)
}
