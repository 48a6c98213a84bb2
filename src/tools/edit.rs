//! `edit`: replacements inside a file, proposed and never written by the tool itself.
//!
//! `fold` is the tolerant view that matching falls back to, `matching` finds what edits replace, `source` takes the
//! replacements back to the file's bytes, `difference` makes the result details. Invariants: every byte an edit does not
//! touch survives; all edits of a call apply or none.

mod difference;
mod fold;
mod hint;
mod matching;
pub(super) mod source;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::declare::{self, BuiltIn, Sampling, declaration};
use super::{ToolEnv, paths};
use crate::agent::{ErrorClass, Sight, ToolContext, ToolError, ToolOutput};
use crate::ai::json;
use crate::files::errno::describe;
use crate::review::{Change, ChangeTool, DetailsFn, Planned};
use crate::workspace::{FileState, Origin};
use source::{Source, with_line_feeds};

pub(super) const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "path": {"type": "string", "description": "File to change, relative or absolute"},
    "edits": {
      "type": "array",
      "description": "All replacements for this file. Each is matched against the file as it is now, not against the result of another; they must not overlap or nest. Merge changes of the same or neighbouring lines into one",
      "items": {
        "type": "object",
        "properties": {
          "oldText": {"type": "string", "description": "Text to replace: exactly as in the file, and occurring only once in it"},
          "newText": {"type": "string", "description": "Text instead"}
        },
        "required": ["oldText", "newText"]
      }
    }
  },
  "required": ["path", "edits"]
}"#;

#[derive(Deserialize)]
pub(super) struct Input {
    path: String,
    edits: Vec<Edit>,
}

/// One replacement.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Edit {
    pub(super) old_text: String,
    pub(super) new_text: String,
}

/// Makes the tool.
pub(super) fn tool(env: Arc<ToolEnv>) -> BuiltIn {
    let description = "Change a file by replacing exact pieces of text. Each oldText must occur exactly once in the file \
         and must not overlap another; put all changes of one file into one call. Either all edits of a call apply or none.";
    BuiltIn {
        env,
        declaration: declaration(
            "edit",
            description.to_owned(),
            SCHEMA,
            Sampling::PreferStrict,
        ),
        snippet: Some("Change files by replacing exact pieces of text"),
        guidelines: &[
            "Put several changes of one file into one edit call with several entries in edits",
            "Keep each oldText as short as it can be while still occurring only once; entries must not overlap",
        ],
        sight: Sight::Changes,
        prepare,
        start,
    }
}

/// Accepts the shapes that models send instead of the published one.
pub(super) fn prepare(arguments: Value) -> Value {
    let Value::Object(mut map) = arguments else {
        return arguments;
    };
    if let Some(edits) = map.get_mut("edits") {
        if let Value::String(text) = edits
            && let Ok(parsed) = json::parse(text)
            && (parsed.is_array() || is_edit(&parsed))
        {
            *edits = parsed;
        }
        if is_edit(edits) {
            *edits = Value::Array(vec![edits.take()]);
        }
    }
    take_legacy(&mut map);
    Value::Object(map)
}

fn is_edit(value: &Value) -> bool {
    ["oldText", "newText"]
        .iter()
        .all(|key| value.get(key).is_some_and(Value::is_string))
}

/// An edit at the top level, as an older shape of the tool had it, goes after the others.
fn take_legacy(map: &mut Map<String, Value>) {
    let is_there = |key: &str| map.get(key).is_some_and(Value::is_string);
    if !is_there("oldText") || !is_there("newText") {
        return;
    }
    let mut edit = Map::new();
    for key in ["oldText", "newText"] {
        if let Some(text) = map.shift_remove(key) {
            edit.insert(key.to_owned(), text);
        }
    }
    match map.get_mut("edits") {
        Some(Value::Array(edits)) => edits.push(Value::Object(edit)),
        _ => {
            map.insert("edits".to_owned(), Value::Array(vec![Value::Object(edit)]));
        }
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
    let Input { path, edits } = declare::decode("edit", arguments)?;
    if edits.is_empty() {
        return Err(ToolError::new(
            ErrorClass::NoEdits,
            format!("no edits for {path}: `edits` must hold at least one replacement"),
        ));
    }
    let absolute = paths::resolve(&path, &cx.cwd, &env.options.get().home)?;
    let path_given = path.clone();
    Ok(env.gate.submit(Change {
        session: cx.session.session_id,
        call_id: cx.call_id,
        tool: ChangeTool::Edit,
        path_given,
        path: absolute,
        plan: Box::new(move |base| plan(&path, &edits, base)),
        cancel: cx.cancel,
        ancestors: cx.session.ancestors,
    }))
}

/// Computes the proposed text.
pub(super) fn plan(path: &str, edits: &[Edit], base: &FileState) -> Result<Planned, ToolError> {
    if base.origin == Origin::Missing {
        let missing = std::io::Error::from(rustix::io::Errno::NOENT);
        return Err(ToolError::new(
            ErrorClass::Io,
            format!("Could not edit {path}: {}", describe(&missing)),
        ));
    }
    let source = Source::new(&base.bytes);
    let matched = matching::find(path, &source, edits)?;
    let new_text = source.edited_text(&matched.splices);
    if new_text == source.text {
        return Err(ToolError::new(
            ErrorClass::NoChange,
            format!(
                "the edits change nothing in {path}: each newText is what the file already says. If that is what you want, there is nothing to do; else read the file again"
            ),
        ));
    }
    let (target, made) = source.edited_bytes(&matched.splices);
    let target: Arc<[u8]> = target.into();
    let edit_lines = matched
        .splice_of_edit
        .iter()
        .map(|place| made.get(*place).cloned().unwrap_or_default())
        .collect();
    let as_planned = difference::of_splices(path, &source.text, &new_text, &matched.splices);
    Ok(Planned {
        success: format!("Successfully replaced {} block(s) in {path}.", edits.len()),
        details: Some(details(
            path.to_owned(),
            Arc::clone(&base.bytes),
            Arc::clone(&target),
            as_planned,
        )),
        target,
        edit_lines,
    })
}

/// Details of what was really written; as planned, that is known already.
fn details(
    path: String,
    base: Arc<[u8]>,
    target: Arc<[u8]>,
    as_planned: Option<Value>,
) -> DetailsFn {
    Arc::new(move |before, after| {
        if *before == *base && *after == *target {
            return as_planned.clone();
        }
        let text = |bytes: &[u8]| {
            let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
            with_line_feeds(&String::from_utf8_lossy(bytes))
        };
        difference::of_texts(&path, &text(before), &text(after))
    })
}

#[cfg(test)]
mod tests;
