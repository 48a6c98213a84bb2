//! What a session wrote: shown as a patch, compared with what was there before, or put back by a review.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::face::{Answer, Answering, Face, Request};
use super::slot::Slot;
use super::written::last_prompt;
use crate::review::gate::{Gate, RESTORED};
use crate::review::records::KeptChange;

/// Which changes are meant.
enum Since {
    /// Those of the last run: all that stands behind the last message of the person.
    LastRun,
    /// All of the session.
    Always,
    /// Those made after an entry was stored.
    Entry(String),
}

/// Starts to answer `changes.list` (`scope`: `run` or `session`), `changes.restore` (`entry`, else the last run),
/// `changes.files` (`entry`) or `changes.then` (`entry`, `path`).
pub(super) fn start(face: &Arc<Face>, slot: &Arc<Slot>, request: &Request) -> Answering {
    let since = match (request.text("entry"), request.text("scope")) {
        (Some(entry), _) => Since::Entry(entry.to_owned()),
        (None, Some("session")) => Since::Always,
        (None, _) => Since::LastRun,
    };
    let (gate, slot) = (face.opener.gate().clone(), slot.clone());
    let name = request.name.clone();
    let path = request.text("path").map(PathBuf::from);
    Box::pin(async move {
        let session = slot.id();
        let reader = gate.clone();
        // Reads the log of changes, and entries that were not loaded before.
        let changes = tokio::task::spawn_blocking(move || changes(&reader, &slot, &since));
        let changes = changes
            .await
            .map_err(|error| format!("{name}: {error}"))??;
        if name == "changes.restore" {
            let calls: Vec<String> = changes.into_iter().map(|it| it.call_id).collect();
            if calls.is_empty() {
                return Err("nothing to put back: no file was written after this point".into());
            }
            let line = gate.restore(&session, &calls).await?;
            return Ok(json!({ "line": line }));
        }
        let work = tokio::task::spawn_blocking(move || match (name.as_str(), path) {
            ("changes.files", _) => {
                let paths: Vec<_> = firsts(&changes).iter().map(|it| it.path.clone()).collect();
                Ok(json!({ "paths": paths }))
            }
            ("changes.then", Some(path)) => then(&gate, &changes, &path),
            ("changes.list", _) => Ok(json!({ "lines": patch(&gate, &changes) })),
            _ => Err(format!("the backend knows no request {name}")),
        });
        work.await.map_err(|error| format!("changes: {error}"))?
    })
}

/// Changes of a session since a point, oldest first.
fn changes(gate: &Gate, slot: &Slot, since: &Since) -> Result<Vec<KeptChange>, String> {
    let mut changes = gate.changes(&slot.id());
    // What a person put back is theirs.
    changes.retain(|change| !change.call_id.starts_with(RESTORED));
    if changes.is_empty() {
        return Ok(changes);
    }
    let mut calls = slot.calls.lock();
    slot.runtime.look(|session| {
        let pos = match since {
            Since::Always => None,
            Since::LastRun => last_prompt(session),
            Since::Entry(id) => match session.find(id) {
                Some(pos) => Some(pos),
                None => return Err(format!("there is no entry {id}")),
            },
        };
        calls.update(session);
        changes.retain(|change| calls.is_after(&change.call_id, pos));
        Ok(changes)
    })
}

/// What `@changes` stands for: what was written and not looked at yet, else what the last run wrote.
pub(super) async fn mentioned(gate: &Gate, slot: &Arc<Slot>) -> Result<String, String> {
    let (gate, slot) = (gate.clone(), slot.clone());
    let work = tokio::task::spawn_blocking(move || {
        let session = slot.id();
        let proposals = gate.proposals(Some(&session)).into_iter();
        let calls: Vec<String> = proposals
            .filter(|it| it.unreviewed)
            .map(|it| it.call_id.clone())
            .collect();
        let changes = match calls.is_empty() {
            true => changes(&gate, &slot, &Since::LastRun)?,
            false => {
                let mut all = gate.changes(&session);
                all.retain(|change| calls.contains(&change.call_id));
                all
            }
        };
        Ok::<_, String>(patch(&gate, &changes))
    });
    let lines = work.await.map_err(|error| error.to_string())??;
    match lines.is_empty() {
        true => Ok("(nothing was changed)".to_owned()),
        false => Ok(lines.join("\n")),
    }
}

/// Number of files that were written after an entry.
pub(super) fn files_after(gate: &Gate, slot: &Slot, entry: &str) -> usize {
    let changes = changes(gate, slot, &Since::Entry(entry.to_owned()));
    changes.map_or(0, |changes| firsts(&changes).len())
}

/// The first change of each file, in the order of the changes.
fn firsts(changes: &[KeptChange]) -> Vec<&KeptChange> {
    let mut firsts: Vec<&KeptChange> = Vec::new();
    for change in changes {
        if !firsts.iter().any(|first| first.path == change.path) {
            firsts.push(change);
        }
    }
    firsts
}

/// A text of a file for showing; `None` when there was no file.
struct Side {
    bytes: Option<Vec<u8>>,
}

impl Side {
    fn before(gate: &Gate, change: &KeptChange) -> Result<Self, String> {
        let Some(name) = &change.before else {
            return Ok(Self { bytes: None });
        };
        let lost = || {
            let path = &change.path_given;
            format!("what {path} said then is no longer kept; texts are kept for 90 days")
        };
        let bytes = gate.kept_text(name).ok_or_else(lost)?;
        Ok(Self { bytes: Some(bytes) })
    }

    fn now(path: &Path) -> Result<Self, String> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Self { bytes: Some(bytes) }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self { bytes: None }),
            Err(error) => Err(format!("read {}: {error}", path.display())),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes.as_deref().unwrap_or_default()).into_owned()
    }

    fn is_text(&self) -> bool {
        self.bytes.as_ref().is_none_or(|bytes| !bytes.contains(&0))
    }

    fn lines(&self) -> Vec<String> {
        let text = self.text();
        let text = text.strip_suffix('\n').unwrap_or(&text);
        text.split('\n').map(str::to_owned).collect()
    }
}

/// Answers a file as it was before these changes beside what it is now on the disk.
fn then(gate: &Gate, changes: &[KeptChange], path: &Path) -> Answer {
    let firsts = firsts(changes);
    let Some(change) = firsts.into_iter().find(|change| change.path == path) else {
        return Err(format!(
            "{} was not written after this point",
            path.display()
        ));
    };
    let (before, now) = (Side::before(gate, change)?, Side::now(path)?);
    let name = &change.path_given;
    if !before.is_text() || !now.is_text() {
        return Err(format!("{name} is no text; its contents are not shown"));
    }
    Ok(json!({
        "path": path,
        "name": name,
        "then_lines": before.lines(),
        "now_lines": now.lines(),
        "then_there": before.bytes.is_some(),
        "now_there": now.bytes.is_some(),
    }))
}

/// A patch from what the files were before these changes to what they are now on disk.
fn patch(gate: &Gate, changes: &[KeptChange]) -> Vec<String> {
    let mut lines = Vec::new();
    for change in firsts(changes) {
        let name = &change.path_given;
        let texts = Side::before(gate, change).and_then(|it| Ok((it, Side::now(&change.path)?)));
        let (before, now) = match texts {
            Ok((before, now)) => (before.text(), now.text()),
            Err(line) => {
                lines.push(line);
                continue;
            }
        };
        let diff = similar::TextDiff::from_lines(&before, &now);
        let patch = diff
            .unified_diff()
            .context_radius(3)
            .header(name, name)
            .to_string();
        lines.extend(patch.lines().map(str::to_owned));
    }
    lines
}
