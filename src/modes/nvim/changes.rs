//! What a session wrote: shown as a patch, or put back by a review.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::face::{Answer, Answering, Face, Request};
use super::json::at;
use super::slot::Slot;
use crate::review::gate::Gate;
use crate::session::Command;

/// Which calls are meant.
enum Since {
    /// Those of the last run: all that stands behind the last message of the person.
    LastRun,
    /// All of the session.
    Always,
    /// Those stored after an entry, on whatever branch: files do not belong to one.
    Entry(String),
}

/// Starts to answer `changes.list` (`scope`: `run` or `session`) or `changes.restore` (`entry`, else the last run).
pub(super) fn start(face: &Arc<Face>, slot: &Arc<Slot>, request: &Request) -> Answering {
    let since = match (request.text("entry"), request.text("scope")) {
        (Some(entry), _) => Since::Entry(entry.to_owned()),
        (None, Some("session")) => Since::Always,
        (None, _) => Since::LastRun,
    };
    let (gate, slot) = (face.opener.gate().clone(), slot.clone());
    let restores = request.name == "changes.restore";
    Box::pin(async move {
        let calls = calls_since(&slot, since).await?;
        if restores {
            let line = gate.restore(&slot.id(), &calls).await?;
            return Ok(json!({ "line": line }));
        }
        let session = slot.id();
        let lines = tokio::task::spawn_blocking(move || patch(&gate, &session, &calls)).await;
        let lines = lines.map_err(|error| format!("show the changes: {error}"))?;
        Ok(json!({ "lines": lines }))
    })
}

/// What `@changes` stands for: what was written and not looked at yet, else what the last run wrote.
pub(super) async fn mentioned(gate: &Gate, slot: &Arc<Slot>) -> Result<String, String> {
    let session = slot.id();
    let proposals = gate.proposals(Some(&session)).into_iter();
    let mut calls: Vec<String> = proposals
        .filter(|it| it.unreviewed)
        .map(|it| it.call_id.clone())
        .collect();
    if calls.is_empty() {
        calls = calls_since(slot, Since::LastRun).await?;
    }
    let gate = gate.clone();
    let lines = tokio::task::spawn_blocking(move || patch(&gate, &session, &calls)).await;
    let lines = lines.map_err(|error| error.to_string())?;
    match lines.is_empty() {
        true => Ok("(nothing was changed)".to_owned()),
        false => Ok(lines.join("\n")),
    }
}

async fn calls_since(slot: &Arc<Slot>, since: Since) -> Result<Vec<String>, String> {
    let (entry, last_run) = match since {
        Since::Entry(entry) => (Some(entry), false),
        Since::Always => (None, false),
        Since::LastRun => (None, true),
    };
    let answer: Answer = slot.command(Command::GetEntries { since: entry }).await;
    let answer = answer?;
    let entries = at(&answer, "/entries")
        .as_array()
        .cloned()
        .unwrap_or_default();
    let by_person = |entry: &Json| at(entry, "/message/role") == "user";
    let first = match last_run {
        true => entries.iter().rposition(by_person).unwrap_or(0),
        false => 0,
    };
    let contents = entries
        .iter()
        .skip(first)
        .map(|entry| at(entry, "/message/content"));
    let blocks = contents.filter_map(Json::as_array).flatten();
    let calls = blocks.filter(|block| at(block, "/type") == "toolCall");
    Ok(calls
        .filter_map(|call| at(call, "/id").as_str())
        .map(str::to_owned)
        .collect())
}

/// A patch from what the files were before these calls to what they are now on disk.
fn patch(gate: &Gate, session: &str, calls: &[String]) -> Vec<String> {
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let mut lines = Vec::new();
    for change in gate.changes(session) {
        if !calls.contains(&change.call_id) || !seen.insert(change.path.clone()) {
            continue;
        }
        let before = change.before.as_ref().and_then(|name| gate.kept_text(name));
        let now = std::fs::read(&change.path).unwrap_or_default();
        let (before, now) = (before.unwrap_or_default(), now);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (before, now) = (text(&before), text(&now));
        let diff = similar::TextDiff::from_lines(&before, &now);
        let name = &change.path_given;
        let patch = diff
            .unified_diff()
            .context_radius(3)
            .header(name, name)
            .to_string();
        lines.extend(patch.lines().map(str::to_owned));
    }
    lines
}
