//! Files that a command changed: nothing asks before a shell writes, so what it did to files that are known here is listed
//! afterwards, to be looked at or taken back.
//!
//! Known are the files that tools read or wrote and those that the editor has loaded. Their bytes from before the command
//! are held while it runs; what this program wrote meanwhile is its own doing and not the command's.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::super::records::KeptChange;
use super::super::{ChangeTool, HunkState, Planned, ProposalId, ProposalState, ReviewMode};
use super::entry::{Entry, Ids, Work, Written};
use super::{Reviewer, Shared, State, undo};
use crate::files::state::fingerprint;
use crate::workspace::{FileState, Origin};

/// Files that are compared, the largest of them, and all of them together.
const MAX_FILES: usize = 1_000;
const MAX_FILE: u64 = 2_000_000;
const MAX_ALL: usize = 64_000_000;

/// What is known of files.
#[derive(Default)]
pub(super) struct Known {
    paths: BTreeSet<PathBuf>,
    /// How often this program wrote each.
    writes: HashMap<PathBuf, u64>,
    /// What the last look held, so that an unchanged file is not read again.
    held: HashMap<PathBuf, Held>,
    /// What a file was when a change of it was listed last: commands that ran together see the same change.
    listed: HashMap<PathBuf, Option<String>>,
}

impl Known {
    pub(super) fn add(&mut self, path: PathBuf) {
        if self.paths.len() < MAX_FILES {
            self.paths.insert(path);
        }
    }

    pub(super) fn wrote(&mut self, path: &Path) {
        *self.writes.entry(path.to_owned()).or_default() += 1;
        self.add(path.to_owned());
    }

    fn writes_of(&self, path: &Path) -> u64 {
        self.writes.get(path).copied().unwrap_or(0)
    }
}

/// A file as it was; `None`: it was not there.
#[derive(Clone)]
struct Held {
    stamp: Option<(SystemTime, u64)>,
    bytes: Option<Arc<[u8]>>,
}

/// The known files from before a command.
pub struct Watch {
    files: Vec<(PathBuf, Held, u64)>,
}

/// Reads a file unless it is as it was held; `None` for one that is not compared.
fn look(path: &Path, held: Option<&Held>) -> Option<Held> {
    let Ok(meta) = std::fs::metadata(path) else {
        return Some(Held {
            stamp: None,
            bytes: None,
        });
    };
    if !meta.is_file() || meta.len() > MAX_FILE {
        return None;
    }
    let stamp = meta.modified().ok().map(|time| (time, meta.len()));
    match held {
        Some(held) if stamp.is_some() && held.stamp == stamp => Some(held.clone()),
        _ => Some(Held {
            stamp,
            bytes: Some(std::fs::read(path).ok()?.into()),
        }),
    }
}

/// Holds the known files as they are now; `None` when nobody would look at the result.
pub(super) async fn before(shared: &Arc<Shared>) -> Option<Watch> {
    {
        let state = shared.state.lock();
        if state.reviewer != Reviewer::Person || state.mode == ReviewMode::Off {
            return None;
        }
    }
    let loaded = shared.workspace.loaded().await;
    let (paths, held) = {
        let mut state = shared.state.lock();
        let known = &mut state.known;
        let mut paths = known.paths.clone();
        paths.extend(loaded);
        (paths, std::mem::take(&mut known.held))
    };
    let found = tokio::task::spawn_blocking(move || {
        let mut size = 0;
        let mut found = HashMap::new();
        for path in paths.into_iter().take(MAX_FILES) {
            if let Some(now) = look(&path, held.get(&path)) {
                size += now.bytes.as_ref().map_or(0, |bytes| bytes.len());
                if size > MAX_ALL {
                    break;
                }
                found.insert(path, now);
            }
        }
        found
    });
    let found = found.await.ok()?;
    let mut state = shared.state.lock();
    let known = &mut state.known;
    let files = found
        .iter()
        .map(|(path, held)| (path.clone(), held.clone(), known.writes_of(path)))
        .collect();
    known.listed.retain(|path, name| {
        let now = found.get(path).and_then(|held| held.bytes.as_deref());
        now.map(fingerprint) == *name
    });
    known.held = found;
    Some(Watch { files })
}

/// A known file that is not what it was.
struct Changed {
    path: PathBuf,
    before: Option<Arc<[u8]>>,
    after: Option<Arc<[u8]>>,
}

/// Lists what differs from before the command.
pub(super) async fn after(shared: &Arc<Shared>, watch: Watch, session: &str, call_id: &str) {
    let found = tokio::task::spawn_blocking(move || {
        let mut changed = Vec::new();
        for (path, held, writes) in watch.files {
            if let Some(now) = look(&path, Some(&held))
                && now.bytes != held.bytes
            {
                let change = Changed {
                    path,
                    before: held.bytes,
                    after: now.bytes,
                };
                changed.push((change, writes));
            }
        }
        changed.sort_by(|a, b| a.0.path.cmp(&b.0.path));
        changed
    });
    for (change, writes) in found.await.unwrap_or_default() {
        let name = change.after.as_deref().map(fingerprint);
        {
            let mut state = shared.state.lock();
            let known = &mut state.known;
            let ours = known.writes_of(&change.path) != writes;
            let again = known.listed.get(&change.path) == Some(&name);
            if ours || again {
                continue;
            }
            known.listed.insert(change.path.clone(), name);
        }
        list(shared, change, session, call_id).await;
    }
}

/// Makes a settled proposal of a change that is on disk already.
async fn list(shared: &Arc<Shared>, change: Changed, session: &str, call_id: &str) {
    let Changed {
        path,
        before,
        after,
    } = change;
    let removed = after.is_none();
    let state_of = |bytes: Option<Arc<[u8]>>| FileState {
        origin: match bytes {
            Some(_) => Origin::Disk,
            None => Origin::Missing,
        },
        bytes: bytes.unwrap_or_else(|| Arc::from([])),
    };
    let (before, after) = (state_of(before), state_of(after));
    let given = path.strip_prefix(&shared.cwd).unwrap_or(&path);
    let given = given.to_string_lossy().into_owned();
    keep(shared, session, call_id, &given, &path, &before, &after).await;
    let (join, base, target) = (shared.join, before.clone(), Arc::clone(&after.bytes));
    let spans = tokio::task::spawn_blocking(move || Work::spans_of(&base, &target, join));
    let Ok(spans) = spans.await else { return };
    let planned = Planned {
        target: Arc::clone(&after.bytes),
        success: String::new(),
        details: None,
        edit_lines: Vec::new(),
    };
    {
        let mut state = shared.state.lock();
        state.next_id += 1;
        let id = ProposalId(state.next_id);
        let mut next_hunk = state.next_hunk;
        let mut work = Work::new(before.clone(), planned, spans, Ids(&mut next_hunk));
        for piece in &mut work.pieces {
            piece.hunk.state = HunkState::Accepted;
            if removed {
                piece.hunk.label = Some("the file was removed".to_owned());
            }
        }
        work.merged();
        state.next_hunk = next_hunk;
        let written = Written {
            before,
            on_disk: Arc::clone(&after.bytes),
            after: after.bytes,
        };
        let entry = settled(&state, id, (session, call_id, given), &path, work, written);
        state.entries.insert(id, entry);
        state.changed(id);
        state.prune();
    }
    // Finds the rows, and lets a buffer of the file catch up.
    undo::file_changed(shared, &path, undo::By::Agent);
}

/// An entry of something that is over, and that nobody has looked at.
fn settled(
    state: &State,
    id: ProposalId,
    (session, call_id, given): (&str, &str, String),
    path: &Path,
    work: Work,
    written: Written,
) -> Entry {
    let over = CancellationToken::new();
    over.cancel();
    Entry {
        id,
        session: session.to_owned(),
        call_id: call_id.to_owned(),
        tool: ChangeTool::Bash,
        path_given: given,
        path: path.to_owned(),
        real_path: path.to_owned(),
        state: ProposalState::Done,
        version: 0,
        notice: None,
        unreviewed: true,
        reviewed: true,
        mode: state.mode,
        work: Some(work),
        refused: None,
        force: false,
        written: Some(written),
        wake: Arc::new(Notify::new()),
        cancel: CancellationToken::new(),
        settled: over,
        snapshot: None,
    }
}

/// Keeps both texts, so that the change can be shown and put back later.
async fn keep(
    shared: &Arc<Shared>,
    session: &str,
    call_id: &str,
    given: &str,
    path: &Path,
    before: &FileState,
    after: &FileState,
) {
    let Some(checkpoints) = shared.checkpoints.clone() else {
        return;
    };
    let change = KeptChange {
        call_id: call_id.to_owned(),
        path_given: given.to_owned(),
        path: path.to_owned(),
        before: super::super::records::content_name(before),
        after: fingerprint(&after.bytes),
    };
    let session = session.to_owned();
    let (before, after) = (Arc::clone(&before.bytes), Arc::clone(&after.bytes));
    let kept = tokio::task::spawn_blocking(move || {
        checkpoints.keep(&before)?;
        checkpoints.note(&session, &change, &after)
    });
    if let Ok(Err(error)) = kept.await {
        tracing::error!(%error, "the state folder cannot be written");
    }
}
