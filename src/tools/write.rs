//! `write`: a whole file, proposed and never written by the tool itself. The content is taken as given: no newline is
//! added, no line ending or byte order mark is taken over from the old content.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;

use super::declare::{self, BuiltIn, Sampling, declaration};
use super::{ToolEnv, paths};
use crate::agent::{Sight, ToolContext, ToolError, ToolOutput};
use crate::review::{Change, ChangeTool, Planned};

pub(super) const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "path": {"type": "string", "description": "File to write, relative or absolute; missing directories are made"},
    "content": {"type": "string", "description": "The whole new content of the file"}
  },
  "required": ["path", "content"]
}"#;

#[derive(Deserialize)]
pub(super) struct Input {
    path: String,
    content: String,
}

/// Makes the tool.
pub(super) fn tool(env: Arc<ToolEnv>) -> BuiltIn {
    let description = "Write a whole file: makes it when it is missing, replaces it when it is there, and makes missing \
         directories.";
    BuiltIn {
        env,
        declaration: declaration(
            "write",
            description.to_owned(),
            SCHEMA,
            Sampling::PreferStrict,
        ),
        snippet: Some("Make or replace whole files"),
        guidelines: &[
            "Use write only for new files or complete rewrites; change existing files with edit",
        ],
        sight: Sight::Changes,
        prepare: |arguments| arguments,
        start,
    }
}

fn start(
    env: Arc<ToolEnv>,
    arguments: Value,
    cx: ToolContext,
) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
    match submit(&env, arguments, cx) {
        Ok(result) => result,
        Err(error) => Box::pin(async { Err(error) }),
    }
}

/// Takes the place in the file's line before it returns.
fn submit(
    env: &ToolEnv,
    arguments: Value,
    cx: ToolContext,
) -> Result<BoxFuture<'static, Result<ToolOutput, ToolError>>, ToolError> {
    let Input { path, content } = declare::decode("write", arguments)?;
    let absolute = paths::resolve(&path, &cx.cwd, &env.options.get().home)?;
    let success = format!("Successfully wrote to {path}");
    Ok(env.gate.submit(Change {
        session: cx.session.session_id,
        call_id: cx.call_id,
        tool: ChangeTool::Write,
        path_given: path,
        path: absolute,
        plan: Box::new(move |_| {
            Ok(Planned {
                target: content.into_bytes().into(),
                success,
                details: None,
                edit_lines: Vec::new(),
            })
        }),
        cancel: cx.cancel,
        ancestors: cx.session.ancestors,
    }))
}
