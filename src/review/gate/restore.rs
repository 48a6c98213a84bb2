//! Putting back what calls changed: the inverse of their changes as ordinary proposals, outside the queue.
//!
//! Changes are taken back newest first, each merged onto the text as it is; lines that were changed since stay as they
//! are and are counted. The result is reviewed like any change and can itself be undone.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::super::hunks::{self, Replacement, diff_lines, lines};
use super::super::merge::Moved;
use super::super::records::{Checkpoints, KeptChange};
use super::super::{ChangeTool, Planned, ProposalId, ProposalState, ReviewEvent};
use super::drive::{Driver, Ready, SettleGuard};
use super::entry::{Entry, Work};
use super::policy::Verdict;
use super::undo::remove_empty;
use super::{Shared, State};
use crate::agent::ErrorClass;
use crate::files::errno::describe;
use crate::workspace::FileState;

/// How the ids of changes begin that put something back: no call of a model stands behind them.
pub const RESTORED: &str = "restore-";

/// What a file would be with some changes taken back.
struct Restored {
    target: Vec<u8>,
    /// There was no file before the first of them.
    removes: bool,
    /// Changed places that were changed again since, and stay.
    conflicts: usize,
}

/// Proposes to put back what these calls changed.
pub(super) async fn restore(
    shared: &Arc<Shared>,
    session: String,
    calls: Vec<String>,
) -> Result<String, String> {
    let checkpoints = shared
        .checkpoints
        .clone()
        .ok_or("nothing to restore: no state directory is in use")?;
    let changes = {
        let (checkpoints, session) = (checkpoints.clone(), session.clone());
        tokio::task::spawn_blocking(move || checkpoints.changes(&session))
            .await
            .unwrap_or_default()
    };
    let mut files: Vec<(PathBuf, Vec<KeptChange>)> = Vec::new();
    for change in changes
        .into_iter()
        .filter(|change| calls.contains(&change.call_id))
    {
        match files.iter_mut().find(|(path, _)| *path == change.path) {
            Some((_, changes)) => changes.push(change),
            None => files.push((change.path.clone(), vec![change])),
        }
    }
    if files.is_empty() {
        return Err("nothing to restore: these calls wrote no file".to_owned());
    }
    let (mut n_files, mut left) = (0, Vec::new());
    for (path, changes) in files {
        let name = changes
            .first()
            .map(|change| change.path_given.clone())
            .unwrap_or_default();
        let (current, restored) = match read_back(shared, &checkpoints, &path, changes).await {
            Ok(both) => both,
            // The others can be put back all the same.
            Err(why) => {
                left.push(format!("{name} ({why})"));
                continue;
            }
        };
        match restored.conflicts {
            0 => shared.state.lock().seen(&session, &calls, &path),
            1 => left.push(format!("1 place in {name}")),
            count => left.push(format!("{count} places in {name}")),
        }
        if restored.target != *current.bytes {
            n_files += 1;
            propose(shared, &session, name, path, current, restored);
        }
    }
    let files = match n_files {
        0 => "nothing to restore".to_owned(),
        1 => "1 file to restore, shown as a review".to_owned(),
        _ => format!("{n_files} files to restore, shown as a review"),
    };
    match left.is_empty() {
        true => Ok(files),
        false => Ok(format!(
            "{files}; changed since and left alone: {}",
            left.join(", ")
        )),
    }
}

/// Reads a file and works out what it would be without these changes.
async fn read_back(
    shared: &Arc<Shared>,
    checkpoints: &Checkpoints,
    path: &Path,
    changes: Vec<KeptChange>,
) -> Result<(FileState, Restored), String> {
    let current = shared.workspace.state(path).await;
    let current = current.map_err(|error| describe(&error))?;
    let (checkpoints, bytes) = (checkpoints.clone(), Arc::clone(&current.bytes));
    let restored =
        tokio::task::spawn_blocking(move || take_back(&checkpoints, &changes, &bytes)).await;
    match restored {
        Ok(Some(restored)) => Ok((current, restored)),
        Ok(None) => Err("its old text is no longer kept".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Works out a text without some changes, which are given oldest first. `None` when a text they need is gone.
fn take_back(
    checkpoints: &Checkpoints,
    changes: &[KeptChange],
    current: &[u8],
) -> Option<Restored> {
    let mut target = current.to_vec();
    let mut conflicts = 0;
    for change in changes.iter().rev() {
        let after = checkpoints.kept(&change.after)?;
        let before = match &change.before {
            Some(name) => checkpoints.kept(name)?,
            None => Vec::new(),
        };
        let (old, new) = (lines(&before), lines(&after));
        let now_text = std::mem::take(&mut target);
        let now = lines(&now_text);
        let moved = Moved::between(&new, &now);
        let spans = diff_lines(&old, &new);
        let olds: Vec<Vec<Vec<u8>>> = spans
            .iter()
            .map(|span| {
                let part = old.get(span.old.clone()).unwrap_or_default();
                part.iter().map(|line| line.to_vec()).collect()
            })
            .collect();
        let places: Vec<_> = spans
            .iter()
            .zip(&olds)
            .map(|(span, old)| (span.new.clone(), old.as_slice()))
            .collect();
        let back = moved.taken_back(&new, &now, &places);
        let mut replacements = Vec::new();
        for ((range, old), is_back) in places.into_iter().zip(back) {
            match moved.locate(&range, old) {
                Some(row) => replacements.push(Replacement {
                    old: row..row + range.len(),
                    new: old,
                }),
                None if is_back => {}
                None => conflicts += 1,
            }
        }
        target = hunks::apply(&now, &replacements);
    }
    let made = changes
        .first()
        .is_some_and(|change| change.before.is_none());
    Some(Restored {
        removes: made && target.is_empty(),
        target,
        conflicts,
    })
}

impl State {
    /// Counts what calls wrote to a file as looked at: all of it is part of the review that puts it back. Both on the
    /// screen would be two answers to one key.
    fn seen(&mut self, session: &str, calls: &[String], path: &Path) {
        let mut ids = Vec::new();
        for entry in self.entries.values_mut() {
            let is_one = entry.session == session
                && entry.real_path == path
                && calls.contains(&entry.call_id);
            if is_one && entry.unreviewed && entry.state == ProposalState::Done {
                for piece in entry.work.iter_mut().flat_map(|work| &mut work.pieces) {
                    piece.looked_at = true;
                }
                entry.unreviewed = false;
                ids.push(entry.id);
            }
        }
        for id in ids {
            self.changed(id);
        }
    }
}

/// Makes a proposal of a person's own and carries it on, without a place in the queue.
fn propose(
    shared: &Arc<Shared>,
    session: &str,
    path_given: String,
    path: PathBuf,
    current: FileState,
    restored: Restored,
) {
    let cancel = CancellationToken::new();
    let wake = Arc::new(Notify::new());
    let id = {
        let mut state = shared.state.lock();
        state.next_id += 1;
        let id = ProposalId(state.next_id);
        let mode = state.mode;
        state.entries.insert(
            id,
            Entry {
                id,
                session: session.to_owned(),
                call_id: format!("{RESTORED}{}", uuid::Uuid::new_v4()),
                tool: ChangeTool::Write,
                path_given: path_given.clone(),
                path: path.clone(),
                real_path: path.clone(),
                state: ProposalState::Open,
                version: 0,
                notice: None,
                unreviewed: false,
                reviewed: true,
                mode,
                work: None,
                refused: None,
                force: false,
                written: None,
                wake: Arc::clone(&wake),
                cancel: cancel.clone(),
                settled: CancellationToken::new(),
                snapshot: None,
            },
        );
        id
    };
    let driver = Driver {
        shared: Arc::clone(shared),
        id,
        cancel,
        wake,
        by: "restore",
    };
    let ready = Ready {
        spans: Work::spans_of(&current, &restored.target, shared.join),
        base: current,
        planned: Planned {
            target: restored.target.into(),
            success: format!("Restored {path_given}"),
            details: None,
            edit_lines: Vec::new(),
        },
        read_only: false,
    };
    // Opened before this returns, so that the list shows it at once.
    if driver.open(ready, Verdict::Ask).is_err() {
        return;
    }
    let session = session.to_owned();
    // Ends with a decision, or when the session's proposals are cancelled.
    tokio::spawn(async move {
        let _settled = SettleGuard {
            shared: Arc::clone(&driver.shared),
            id,
        };
        let end = driver.review(&path, true).await;
        let wrote = driver
            .look(|entry| entry.written.is_some())
            .unwrap_or(false);
        // A person waits for this result, not a model.
        let line = match driver.settle(end) {
            Err(error) if error.class != ErrorClass::Aborted => Some(error.message),
            _ => wrote.then(|| format!("restored {path_given}")),
        };
        if let Some(line) = line {
            let said = ReviewEvent::Said { line };
            driver.shared.state.lock().emit(&said);
        }
        if wrote {
            after_restore(
                &driver.shared,
                &path,
                &path_given,
                session,
                restored.removes,
            )
            .await;
        }
    });
}

async fn after_restore(
    shared: &Arc<Shared>,
    path: &Path,
    path_given: &str,
    session: String,
    removes: bool,
) {
    if removes {
        remove_empty(path).await;
    }
    let text = format!(
        "Note: the user put back earlier text in {path_given}. Read it again before editing it."
    );
    let note = ReviewEvent::ModelNote { session, text };
    shared.state.lock().emit(&note);
}
