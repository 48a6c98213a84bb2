//! After the write: taking hunks back, and noticing that a person took them back in the editor.
//!
//! Both are the person's own edits: they take no place in the queue, only the short lock of a write.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::super::hunks::{self, Replacement, lines};
use super::super::merge::{Moved, Standing};
use super::super::report::reverted_note;
use super::super::{HunkId, HunkState, ProposalId, ProposalState, ReviewEvent};
use super::entry::{Entry, Piece, Written, line_edits};
use super::{Shared, State};
use crate::files::errno::describe;
use crate::workspace::{Commit, CommitOutcome, FileState, Origin};

/// How often a revert starts again because the file moved under it.
const MAX_ROUNDS: usize = 5;

/// Starts reverting; each proposal shows how it ended.
pub(super) fn revert_all(shared: &Arc<Shared>, what: Vec<(ProposalId, Vec<HunkId>)>) {
    for (id, hunks) in what {
        let shared = Arc::clone(shared);
        // Short: a read and a write under the file's lock.
        tokio::spawn(async move {
            if let Err(NotReverted { why, again }) = revert(&shared, id, &hunks).await {
                let mut state = shared.state.lock();
                if let Some(entry) = state.entries.get_mut(&id) {
                    entry.notice = Some(why.clone());
                }
                if again {
                    // The decision stands, and so does the way to take it back.
                    let accepted = |hunk| (id, hunk, HunkState::Pending);
                    state.remember(hunks.into_iter().map(accepted).collect());
                }
                state.changed(id);
                // A settled proposal is on no screen any more, and its notice with it.
                state.emit(&ReviewEvent::Said { line: why });
            }
        });
    }
}

/// Why hunks were not taken back.
struct NotReverted {
    why: String,
    /// Whether another try may do better: nothing but the write was in the way.
    again: bool,
}

impl From<String> for NotReverted {
    fn from(why: String) -> Self {
        Self { why, again: false }
    }
}

impl From<&str> for NotReverted {
    fn from(why: &str) -> Self {
        why.to_owned().into()
    }
}

/// A hunk whose change is in the text that was written.
struct InText {
    hunk: HunkId,
    index: usize,
    /// Its lines there.
    lines: Range<usize>,
    old: Vec<Vec<u8>>,
}

impl InText {
    fn all_of(entry: &Entry) -> Vec<Self> {
        let pieces = entry.work.iter().flat_map(|work| &work.pieces);
        pieces
            .filter(|piece| is_in_the_text(piece.hunk.state))
            .map(|piece| Self {
                hunk: piece.hunk.id,
                index: piece.hunk.index,
                lines: piece.after_range(),
                old: piece.hunk.old.clone(),
            })
            .collect()
    }

    /// Where hunks stand in what is on disk after the write.
    fn standing(hunks: &[Self], written: &Written) -> Vec<Standing> {
        let after = lines(&written.after);
        let places: Vec<_> = hunks
            .iter()
            .map(|hunk| (hunk.lines.clone(), hunk.old.as_slice()))
            .collect();
        Moved::between(&after, &lines(&written.on_disk)).standing(&after, &places)
    }
}

/// A hunk that is taken back, and its lines in the text as it is now.
struct Reversal {
    hunk: HunkId,
    index: usize,
    now: Range<usize>,
}

async fn revert(shared: &Arc<Shared>, id: ProposalId, hunks: &[HunkId]) -> Result<(), NotReverted> {
    // A key pressed during the write acts on the state reached.
    let settled = shared
        .look(id, |entry| entry.settled.clone())
        .ok_or("this change is gone")?;
    wait_out_the_write(shared, id, &settled, hunks).await;
    let path = shared
        .look(id, |entry| entry.real_path.clone())
        .ok_or("this change is gone")?;
    let lock = shared.queue.write_lock(&path).await;
    for _ in 0..MAX_ROUNDS {
        let Some((written, in_text, chosen, path_given, force)) = shared
            .look(id, |entry| {
                let written = entry.written.clone()?;
                let chosen: Vec<_> = hunks
                    .iter()
                    .copied()
                    .filter(|hunk| {
                        let piece = entry.piece_mut(*hunk);
                        piece.is_some_and(|piece| piece.hunk.state == HunkState::Accepted)
                    })
                    .collect();
                let path_given = entry.path_given.clone();
                // What was written although it is read-only can be taken back all the same.
                Some((
                    written,
                    InText::all_of(entry),
                    chosen,
                    path_given,
                    entry.force,
                ))
            })
            .flatten()
        else {
            return Ok(());
        };
        if chosen.is_empty() {
            return Ok(());
        }
        let current = shared
            .workspace
            .state(&path)
            .await
            .map_err(|error| format!("not reverted: {}", describe(&error)))?;
        let (key, before) = (path.clone(), written.clone());
        let worked_out = tokio::task::spawn_blocking(move || {
            reversed(&key, &before, current, &in_text, &chosen)
        });
        let (mut commit, reversals) = worked_out
            .await
            .map_err(|error| format!("not reverted: {error}"))?
            .ok_or_else(|| format!("not reverted: {path_given} says something else there now"))?;
        commit.force = force;
        let creates = written.before.origin == Origin::Missing && commit.target.is_empty();
        if let Some(checkpoints) = shared.checkpoints.clone() {
            let bytes = Arc::clone(&commit.base.bytes);
            let kept = tokio::task::spawn_blocking(move || checkpoints.keep(&bytes));
            if let Ok(Err(error)) = kept.await {
                tracing::error!(%error, "the state folder cannot be written");
            }
        }
        match shared.workspace.commit(commit).await {
            CommitOutcome::Written { .. } => {
                if creates {
                    remove_empty(&path).await;
                }
                shared
                    .state
                    .lock()
                    .reverted(id, &reversals, &path, &path_given);
                drop(lock);
                file_changed(shared, &path, By::Person);
                return Ok(());
            }
            CommitOutcome::Moved | CommitOutcome::Typed => {}
            CommitOutcome::Failed(error) => {
                let why = format!("not reverted: {}", describe(&error));
                return Err(NotReverted { why, again: true });
            }
            CommitOutcome::Unknown => {
                return Err("not known whether it was reverted: the editor closed".into());
            }
        }
    }
    let why = format!("not reverted: {} keeps changing", path.display());
    Err(NotReverted { why, again: true })
}

/// Waits while the proposal is being written. Open again, its hunks are pending already.
async fn wait_out_the_write(
    shared: &Arc<Shared>,
    id: ProposalId,
    settled: &CancellationToken,
    hunks: &[HunkId],
) {
    let applying = || {
        shared
            .look(id, |entry| entry.state == ProposalState::Applying)
            .unwrap_or(false)
    };
    if !applying() {
        return;
    }
    let mut events = {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        shared.state.lock().listeners.push(sender);
        receiver
    };
    while applying() {
        tokio::select! {
            () = settled.cancelled() => {}
            event = events.recv() => if event.is_none() { return },
        }
    }
    let mut state = shared.state.lock();
    let mut reopened = false;
    if let Some(entry) = state.entries.get_mut(&id)
        && entry.state == ProposalState::Open
    {
        for hunk in hunks {
            if let Some(piece) = entry.piece_mut(*hunk)
                && piece.hunk.state == HunkState::Accepted
            {
                piece.hunk.state = HunkState::Pending;
                reopened = true;
            }
        }
    }
    if reopened {
        state.changed(id);
    }
}

/// The inverse change on the text as it is now, and where each hunk stands in it. `None` when a line was changed since, or
/// when saving made one of several hunks of which not all are to be taken back.
fn reversed(
    path: &Path,
    written: &Written,
    current: FileState,
    in_text: &[InText],
    chosen: &[HunkId],
) -> Option<(Commit, Vec<Reversal>)> {
    let bytes = Arc::clone(&current.bytes);
    let now = lines(&bytes);
    let moved = Moved::between(&lines(&written.on_disk), &now);
    let standing = InText::standing(in_text, written);
    let mut reversals = Vec::new();
    let mut replacements = Vec::new();
    for it in &standing {
        let hunks = in_text.get(it.hunks.clone()).unwrap_or_default();
        let is_chosen = |hunk: &InText| chosen.contains(&hunk.hunk);
        if !hunks.iter().any(is_chosen) {
            continue;
        }
        if !hunks.iter().all(is_chosen) {
            return None;
        }
        let row = moved.locate(&it.lines, &it.old)?;
        let now = row..row + it.lines.len();
        reversals.extend(hunks.iter().map(|hunk| Reversal {
            hunk: hunk.hunk,
            index: hunk.index,
            now: now.clone(),
        }));
        replacements.push(Replacement {
            old: now,
            new: &it.old,
        });
    }
    if reversals.len() != chosen.len() {
        return None;
    }
    let commit = Commit {
        path: path.to_owned(),
        target: hunks::apply(&now, &replacements).into(),
        edits: line_edits(&replacements),
        base: current,
        force: false,
    };
    Some((commit, reversals))
}

/// A file that a change made is gone when the change is taken back. An editor's buffer of it stays.
pub(super) async fn remove_empty(path: &Path) {
    let path = path.to_owned();
    let removed = tokio::task::spawn_blocking(move || {
        let is_empty = std::fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() == 0);
        if is_empty {
            std::fs::remove_file(&path)
        } else {
            Ok(())
        }
    });
    if let Ok(Err(error)) = removed.await {
        tracing::warn!(%error, "an empty file is left after a revert");
    }
}

impl State {
    fn reverted(&mut self, id: ProposalId, reversals: &[Reversal], path: &Path, path_given: &str) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        entry.notice = None;
        let session = entry.session.clone();
        let mut notes = Vec::new();
        for reversal in reversals {
            if let Some(piece) = entry.piece_mut(reversal.hunk) {
                piece.hunk.state = HunkState::Reverted;
                piece.noted = true;
                piece.looked_at = true;
                notes.push(reverted_note(path_given, reversal.index, &reversal.now));
            }
        }
        let mut left = entry.work.iter().flat_map(|work| &work.pieces);
        entry.unreviewed &= !left.all(|piece| piece.looked_at);
        self.changed(id);
        self.emit(&ReviewEvent::FileWritten {
            path: path.to_owned(),
            by: "undo",
        });
        for text in notes {
            self.emit(&ReviewEvent::ModelNote {
                session: session.clone(),
                text,
            });
        }
    }

    /// Looks at the files of those of these proposals that were written: their hunks follow the file.
    pub(super) fn looks_at(&self, ids: impl Iterator<Item = ProposalId>) -> Vec<CancellationToken> {
        let paths: Vec<_> = ids
            .filter_map(|id| self.entries.get(&id))
            .filter(|entry| entry.state == ProposalState::Done)
            .map(|entry| entry.real_path.as_path())
            .collect();
        let looks = self.looks.iter();
        looks
            .filter(|look| paths.contains(&look.path.as_path()))
            .map(|look| look.over.clone())
            .collect()
    }

    /// Proposals whose file this is, with the state they are in.
    fn of_file(&self, path: &Path) -> Vec<(ProposalId, ProposalState)> {
        self.entries
            .values()
            .filter(|entry| entry.real_path == path || entry.path == path)
            .filter(|entry| match entry.state {
                ProposalState::Open => true,
                ProposalState::Done => entry.written.is_some(),
                _ => false,
            })
            .map(|entry| (entry.id, entry.state))
            .collect()
    }
}

/// Whether the written text holds a hunk: it was accepted, whatever became of it since.
fn is_in_the_text(state: HunkState) -> bool {
    match state {
        HunkState::Accepted | HunkState::Reverted => true,
        HunkState::Pending | HunkState::Rejected | HunkState::Stale => false,
    }
}

/// Who changed a file: what an agent itself put back is no news to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Agent,
    Person,
}

/// A file that is being looked at because it changed.
pub(super) struct Look {
    path: PathBuf,
    by: By,
    /// It has read the file: a later change needs a look of its own.
    has_read: bool,
    over: CancellationToken,
}

/// Holds a [`Look`] in the state until it is over.
struct Looking {
    shared: Arc<Shared>,
    over: CancellationToken,
}

impl Looking {
    /// `None` when a look that will see this change as well still waits for the file: while a write waits for a person
    /// who goes on typing, one look is as good as hundreds.
    fn new(shared: &Arc<Shared>, path: &Path, by: By) -> Option<Self> {
        let mut state = shared.state.lock();
        let same = |look: &Look| !look.has_read && look.by == by && look.path == path;
        if state.looks.iter().any(same) {
            return None;
        }
        let over = CancellationToken::new();
        state.looks.push(Look {
            path: path.to_owned(),
            by,
            has_read: false,
            over: over.clone(),
        });
        drop(state);
        Some(Self {
            shared: Arc::clone(shared),
            over,
        })
    }

    fn reads(&self) {
        let mut state = self.shared.state.lock();
        let mut looks = state.looks.iter_mut();
        if let Some(look) = looks.find(|look| look.over == self.over) {
            look.has_read = true;
        }
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.over.cancel();
        let mut state = self.shared.state.lock();
        state.looks.retain(|look| !look.over.is_cancelled());
    }
}

/// Takes a decision back once the changes of its files that came before are taken in: what a person undid or redid in
/// the editor, and saved, decides what there is left to take back.
pub(super) fn undo(shared: &Arc<Shared>, session: Option<String>) -> Result<String, String> {
    let mut state = shared.state.lock();
    let (item, looks) = state.last_decision(session.as_deref())?;
    if looks.is_empty() {
        let (answer, revert) = state.undo(item, session.as_deref())?;
        drop(state);
        revert_all(shared, revert);
        return Ok(answer);
    }
    drop(state);
    let shared = Arc::clone(shared);
    // As short as the looks it waits for.
    tokio::spawn(async move {
        for look in looks {
            look.cancelled().await;
        }
        let mut state = shared.state.lock();
        let (line, revert) = match state.undo(item, session.as_deref()) {
            Ok(done) => done,
            Err(line) => (line, Vec::new()),
        };
        state.emit(&ReviewEvent::Said { line });
        drop(state);
        revert_all(&shared, revert);
    });
    Ok(String::new())
}

/// Places the hunks of a file anew.
pub(super) fn file_changed(shared: &Arc<Shared>, path: &Path, by: By) {
    let Some((first, _)) = shared.state.lock().of_file(path).first().copied() else {
        return;
    };
    let Some(real_path) = shared.look(first, |entry| entry.real_path.clone()) else {
        return;
    };
    let shared = Arc::clone(shared);
    let Some(looking) = Looking::new(&shared, &real_path, by) else {
        return;
    };
    // Short: one read of the file, under its lock so that an older reading never replaces a newer one.
    tokio::spawn(async move {
        let _lock = shared.queue.write_lock(&real_path).await;
        looking.reads();
        let Ok(current) = shared.workspace.state(&real_path).await else {
            return;
        };
        let of_file = shared.state.lock().of_file(&real_path);
        for (id, state) in of_file {
            match state {
                ProposalState::Open => {
                    shared.take_in(id, current.clone()).await;
                    // A conflict that is gone may have been the last thing undecided.
                    shared.look(id, |entry| entry.wake.notify_one());
                }
                _ => follow(&shared, id, &current, by).await,
            }
        }
    });
}

/// What became of written hunks.
struct Followed {
    /// From the text that was to be written to the one now.
    moved: Moved,
    /// The row of each that still stands, and whether it was taken back.
    hunks: HashMap<HunkId, (Option<usize>, bool)>,
}

impl Followed {
    fn find(written: &Written, in_text: &[InText], now: &[u8]) -> Self {
        let (disk, now) = (lines(&written.on_disk), lines(now));
        let from_disk = Moved::between(&disk, &now);
        let standing = InText::standing(in_text, written);
        let places: Vec<_> = standing
            .iter()
            .map(|it| (it.lines.clone(), it.old.as_slice()))
            .collect();
        let back = from_disk.taken_back(&disk, &now, &places);
        let mut hunks = HashMap::new();
        for (it, is_back) in standing.iter().zip(back) {
            let row = from_disk.locate(&it.lines, &it.old);
            let members = in_text.get(it.hunks.clone()).unwrap_or_default();
            hunks.extend(members.iter().map(|hunk| (hunk.hunk, (row, is_back))));
        }
        let moved = if written.after == written.on_disk {
            from_disk
        } else {
            Moved::between(&lines(&written.after), &now)
        };
        Self { moved, hunks }
    }

    fn of(&self, hunk: HunkId) -> (Option<usize>, bool) {
        self.hunks.get(&hunk).copied().unwrap_or_default()
    }

    fn row_near(&self, piece: &Piece) -> usize {
        let range = piece.after_range();
        let found = self.moved.locate(&range, &piece.hunk.old);
        found.unwrap_or_else(|| self.moved.estimate(&range))
    }
}

/// Follows the hunks of a written change through later changes of the file. Lines that are back at their old text make
/// a hunk reverted, once that is on disk; lines that are as written again (a redo) make it accepted.
async fn follow(shared: &Arc<Shared>, id: ProposalId, current: &FileState, by: By) {
    let Some((written, in_text)) = shared
        .look(id, |entry| {
            Some((entry.written.clone()?, InText::all_of(entry)))
        })
        .flatten()
    else {
        return;
    };
    let now = Arc::clone(&current.bytes);
    let compared = tokio::task::spawn_blocking(move || Followed::find(&written, &in_text, &now));
    let Ok(followed) = compared.await else {
        return;
    };
    let saved = match &current.origin {
        Origin::Buffer(buffer) => !buffer.modified,
        Origin::Disk | Origin::Missing => true,
    };
    let mut state = shared.state.lock();
    let Some(entry) = state.entries.get_mut(&id) else {
        return;
    };
    let (path, session) = (entry.path_given.clone(), entry.session.clone());
    let mut notes = Vec::new();
    let mut changed = false;
    for piece in entry.work.iter_mut().flat_map(|work| &mut work.pieces) {
        let (stands, is_back) = followed.of(piece.hunk.id);
        let row = stands.unwrap_or_else(|| followed.row_near(piece));
        changed |= piece.hunk.row != row;
        piece.hunk.row = row;
        match piece.hunk.state {
            HunkState::Accepted if is_back && saved => {
                piece.hunk.state = HunkState::Reverted;
                // Nothing of it is left to be looked at.
                piece.looked_at = true;
                changed = true;
                if !piece.noted && by == By::Person {
                    piece.noted = true;
                    let range = row..row + piece.hunk.old.len();
                    notes.push(reverted_note(&path, piece.hunk.index, &range));
                }
            }
            HunkState::Reverted if stands.is_some() => {
                piece.hunk.state = HunkState::Accepted;
                piece.noted = false;
                changed = true;
            }
            _ => {}
        }
    }
    if let Some(work) = &mut entry.work {
        work.current = current.clone();
        entry.unreviewed &= !work.pieces.iter().all(|piece| piece.looked_at);
    }
    if changed {
        state.changed(id);
    }
    for text in notes {
        let session = session.clone();
        state.emit(&ReviewEvent::ModelNote { session, text });
    }
}
