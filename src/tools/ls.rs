//! `ls`: the entries of one directory, sorted as people expect, directories marked. A file that so far is only an unsaved
//! buffer of the editor is listed too, since `read` and `grep` see it.

mod collation;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;

use super::declare::{self, BuiltIn, Ground};
use super::{Listing, ToolEnv, Wording};
use crate::agent::{ErrorClass, ToolContext, ToolError, ToolOutput};

const LIMIT: usize = 500;

pub(super) const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "path": {"type": "string", "description": "Directory to list; the working directory when left out"},
    "limit": {"type": "number", "description": "How many entries at most (default 500)"}
  }
}"#;

#[derive(Deserialize)]
pub(super) struct Input {
    path: Option<String>,
    limit: Option<f64>,
}

/// Makes the tool.
pub(super) fn tool(env: Arc<ToolEnv>) -> BuiltIn {
    let description = "List a directory: all entries including dotfiles, in alphabetical order, directories with a \
         trailing /. Shows at most 500 entries (or `limit`) and 50KB.";
    BuiltIn::looking(
        env,
        "ls",
        description.to_owned(),
        SCHEMA,
        "List what is in a directory",
        start,
    )
}

fn start(
    env: Arc<ToolEnv>,
    arguments: Value,
    cx: ToolContext,
) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
    Box::pin(async move {
        let input: Input = declare::decode("ls", arguments)?;
        let limit = declare::limit(input.limit, LIMIT);
        let listing = declare::look(&env, &cx, input.path.as_deref(), move |ground| {
            list(ground, limit)
        });
        Ok(listing.await?.render(limit, &WORDING))
    })
}

const WORDING: Wording = Wording {
    empty: "(empty directory)",
    things: "entries",
    advice: "",
    detail: "entryLimitReached",
};

fn list(ground: &Ground, limit: usize) -> Result<Listing, ToolError> {
    let dir = &ground.place;
    check_is_dir(dir)?;
    let unreadable = |error| declare::io_error("list", dir, &error);
    let mut entries: Vec<Entry> = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        ground.go_on()?;
        entries.push(Entry::new(
            &entry.map_err(unreadable)?.file_name(),
            OnDisk::Yes,
        ));
    }
    entries.extend(unwritten(ground));
    entries.sort_unstable();
    let mut lines = Vec::new();
    for Entry {
        shown,
        name,
        on_disk,
        ..
    } in entries
    {
        ground.go_on()?;
        let is_dir = match (on_disk, std::fs::metadata(dir.join(&name))) {
            (OnDisk::No, _) => false,
            (OnDisk::Yes, Ok(meta)) => meta.is_dir(),
            // Entries that cannot be looked at (dangling links) are left out and do not count.
            (OnDisk::Yes, Err(_)) => continue,
        };
        if lines.len() == limit {
            return Ok(Listing { lines, more: true });
        }
        lines.push(if is_dir { shown + "/" } else { shown });
    }
    Ok(Listing { lines, more: false })
}

fn check_is_dir(dir: &Path) -> Result<(), ToolError> {
    let meta = std::fs::metadata(dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => ToolError::new(
            ErrorClass::PathNotFound,
            format!("Path not found: {}", dir.display()),
        ),
        _ => declare::io_error("list", dir, &error),
    })?;
    if meta.is_dir() {
        return Ok(());
    }
    let text = format!("Not a directory: {}", dir.display());
    Err(ToolError::new(ErrorClass::NotADirectory, text))
}

/// Whether a name is in the directory or only somebody's unsaved buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum OnDisk {
    Yes,
    No,
}

/// A name with what it is sorted by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: collation::Key,
    shown: String,
    name: OsString,
    on_disk: OnDisk,
}

impl Entry {
    fn new(name: &OsStr, on_disk: OnDisk) -> Self {
        let shown = name.to_string_lossy().into_owned();
        Self {
            key: collation::key(&shown),
            shown,
            name: name.to_owned(),
            on_disk,
        }
    }
}

/// Unsaved buffers of this directory whose files are not there yet.
fn unwritten(ground: &Ground) -> Vec<Entry> {
    let Ok(real) = ground.place.canonicalize() else {
        return Vec::new();
    };
    let paths = ground.buffers.iter().map(|(path, _)| path.as_path());
    paths
        .filter(|path| path.parent() == Some(&real) && path.symlink_metadata().is_err())
        .filter_map(|path| Some(Entry::new(path.file_name()?, OnDisk::No)))
        .collect()
}
