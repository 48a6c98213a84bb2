//! What the gate knows of one proposal, and the pure part of its life: hunks, their places, their snapshot.
//!
//! Hunks are kept in lines of the text they were made from; where they stand *now* is always computed anew from that
//! text and the current one, so that nothing drifts, and a hunk whose conflict is undone is no longer stale.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::super::hunks::{self, Replacement, lines};
use super::super::merge::Moved;
use super::super::{
    ChangeTool, DetailsFn, Hunk, HunkId, HunkState, Planned, Proposal, ProposalId, ProposalState,
    ReviewMode,
};
use crate::workspace::{FileState, LineEdit, Origin};

/// One proposal.
pub(super) struct Entry {
    pub(super) id: ProposalId,
    pub(super) session: String,
    pub(super) call_id: String,
    pub(super) tool: ChangeTool,
    pub(super) path_given: String,
    pub(super) path: PathBuf,
    pub(super) real_path: PathBuf,
    pub(super) state: ProposalState,
    pub(super) version: u64,
    pub(super) notice: Option<String>,
    pub(super) unreviewed: bool,
    /// Whether a person reviews: then `details.review` tells the decisions.
    pub(super) reviewed: bool,
    /// The mode it was decided by.
    pub(super) mode: ReviewMode,
    /// Absent while waiting, and for errors before there was anything to review.
    pub(super) work: Option<Work>,
    /// Everything pending was refused while this one was still waiting; the reason, if given.
    pub(super) refused: Option<Option<String>>,
    /// Write although read-only.
    pub(super) force: bool,
    /// What was written, for undo.
    pub(super) written: Option<Written>,
    /// Wakes the task that carries the proposal on.
    pub(super) wake: Arc<Notify>,
    /// Ends the proposal.
    pub(super) cancel: CancellationToken,
    /// Fires when it is settled.
    pub(super) settled: CancellationToken,
    pub(super) snapshot: Option<Arc<Proposal>>,
}

/// The texts before and after a write; places of accepted hunks are lines of `after`, and hooks made of that what is on
/// disk.
#[derive(Clone)]
pub(super) struct Written {
    pub(super) before: FileState,
    pub(super) after: Arc<[u8]>,
    pub(super) on_disk: Arc<[u8]>,
}

/// A hunk and what only the gate needs to know of it.
#[derive(Clone)]
pub(super) struct Piece {
    /// `base_start` counts in [`Work::base`]; `row` in the current text.
    pub(super) hunk: Hunk,
    /// Whether `row` is where its old lines stand; else it is only near.
    pub(super) placed: bool,
    /// State before it became stale.
    pub(super) before_stale: HunkState,
    /// Stale and given up: the model is told.
    pub(super) given_up: bool,
    /// Was accepted when a write failed: forcing the write accepts it again.
    pub(super) retry: bool,
    /// First line in the text that was written, once it was.
    pub(super) after_start: usize,
    /// A person has seen it (of a change written without asking).
    pub(super) looked_at: bool,
    /// The model was told that it was reverted.
    pub(super) noted: bool,
}

/// What there is to decide.
pub(super) struct Work {
    /// The text the hunks were made from.
    pub(super) base: FileState,
    /// The file as last seen.
    pub(super) current: FileState,
    /// What the tool proposed, before anyone edited it.
    pub(super) proposed: Arc<[u8]>,
    pub(super) success: String,
    pub(super) details: Option<DetailsFn>,
    pub(super) edit_lines: Vec<Range<usize>>,
    pub(super) pieces: Vec<Piece>,
    pub(super) user_edited: bool,
    /// The current text with every hunk that has a place.
    pub(super) view_target: Arc<[u8]>,
}

/// What a commit will write.
pub(super) struct Merged {
    pub(super) target: Arc<[u8]>,
    pub(super) edits: Vec<LineEdit>,
}

/// Gives hunks their ids.
pub(super) struct Ids<'a>(pub(super) &'a mut u64);

impl Ids<'_> {
    fn next(&mut self) -> HunkId {
        *self.0 += 1;
        HunkId(*self.0)
    }
}

impl Entry {
    /// Notes that something changed: the next snapshot is a new one.
    pub(super) fn touch(&mut self) {
        self.version += 1;
        self.snapshot = None;
    }

    /// Whether every hunk is decided.
    pub(super) fn is_decided(&self) -> bool {
        self.work
            .as_ref()
            .is_some_and(|work| work.pieces.iter().all(Piece::is_decided))
    }

    pub(super) fn is_settled(&self) -> bool {
        match self.state {
            ProposalState::Waiting | ProposalState::Open | ProposalState::Applying => false,
            ProposalState::Done | ProposalState::Failed | ProposalState::Cancelled => true,
        }
    }

    /// About how many bytes of text it holds.
    pub(super) fn texts_len(&self) -> usize {
        let written = self.written.as_ref().map_or(0, |written| {
            written.before.bytes.len() + written.after.len() + written.on_disk.len()
        });
        let work = self.work.as_ref().map_or(0, |work| {
            work.proposed.len() + work.view_target.len() + work.current.bytes.len()
        });
        written + work
    }

    pub(super) fn piece_mut(&mut self, id: HunkId) -> Option<&mut Piece> {
        self.work
            .as_mut()?
            .pieces
            .iter_mut()
            .find(|piece| piece.hunk.id == id)
    }

    pub(super) fn count(&self, state: HunkState) -> usize {
        self.work.as_ref().map_or(0, |work| {
            work.pieces
                .iter()
                .filter(|piece| piece.hunk.state == state)
                .count()
        })
    }

    /// Returns the snapshot of this version.
    pub(super) fn snapshot(&mut self) -> Arc<Proposal> {
        if let Some(snapshot) = &self.snapshot {
            return Arc::clone(snapshot);
        }
        let snapshot = Arc::new(Proposal {
            id: self.id,
            version: self.version,
            session: self.session.clone(),
            call_id: self.call_id.clone(),
            tool: self.tool,
            path_given: self.path_given.clone(),
            path: self.path.clone(),
            real_path: self.real_path.clone(),
            state: self.state,
            base: self.work.as_ref().map(|work| work.current.clone()),
            target: self.work.as_ref().map(|work| Arc::clone(&work.view_target)),
            hunks: self.work.as_ref().map(Work::view).unwrap_or_default(),
            notice: self.notice.clone(),
            unreviewed: self.unreviewed,
        });
        self.snapshot = Some(Arc::clone(&snapshot));
        snapshot
    }
}

impl Piece {
    pub(super) fn is_decided(&self) -> bool {
        match self.hunk.state {
            HunkState::Pending => false,
            HunkState::Stale => self.given_up,
            HunkState::Accepted | HunkState::Rejected | HunkState::Reverted => true,
        }
    }

    fn old_range(&self) -> Range<usize> {
        self.hunk.base_start..self.hunk.base_start + self.hunk.old.len()
    }
}

impl Work {
    /// Splits a planned change into hunks. A file that is only created, with nothing in it, is one empty hunk: nothing
    /// reaches the disk unreviewed.
    pub(super) fn new(
        base: FileState,
        planned: Planned,
        spans: Vec<hunks::Span>,
        ids: Ids<'_>,
    ) -> Self {
        let mut work = Self {
            current: base.clone(),
            proposed: Arc::clone(&planned.target),
            base,
            success: planned.success,
            details: planned.details,
            edit_lines: planned.edit_lines,
            pieces: Vec::new(),
            user_edited: false,
            view_target: Arc::clone(&planned.target),
        };
        work.pieces = work.cut(&planned.target, &spans, ids);
        let creates = work.base.origin == Origin::Missing && planned.target.is_empty();
        if let (true, Some(piece)) = (creates, work.pieces.first_mut()) {
            piece.hunk.label = Some("creates an empty file".to_owned());
        }
        work
    }

    /// Makes pieces of the difference of the base and a target.
    fn cut(&self, target: &[u8], spans: &[hunks::Span], mut ids: Ids<'_>) -> Vec<Piece> {
        let (base, target) = (lines(&self.base.bytes), lines(target));
        let owned = |lines: &[&[u8]], range: &Range<usize>| -> Vec<Vec<u8>> {
            let part = lines.get(range.clone()).unwrap_or_default();
            part.iter().map(|line| line.to_vec()).collect()
        };
        (0..)
            .zip(spans)
            .map(|(index, span)| {
                let (old, new) = (owned(&base, &span.old), owned(&target, &span.new));
                Piece::new(Hunk {
                    id: ids.next(),
                    index,
                    base_start: span.old.start,
                    new_start: span.new.start,
                    row: span.old.start,
                    edits: hunks::edits_of(&span.new, &self.edit_lines),
                    label: hunks::label(&old, &new),
                    old,
                    new,
                    state: HunkState::Pending,
                    note: None,
                    edited: false,
                })
            })
            .collect()
    }

    /// Whether these two differ in anything a hunk could show.
    pub(super) fn spans_of(base: &FileState, target: &[u8], join: usize) -> Vec<hunks::Span> {
        let found = hunks::spans(&lines(&base.bytes), &lines(target), join);
        if found.is_empty() && base.origin == Origin::Missing {
            return vec![hunks::Span {
                old: 0..0,
                new: 0..0,
            }];
        }
        found
    }

    /// Hunks in lines of the current text and of the text proposed for it.
    fn view(&self) -> Vec<Hunk> {
        let mut shift = 0_isize;
        self.pieces
            .iter()
            .map(|piece| {
                let mut hunk = piece.hunk.clone();
                hunk.base_start = hunk.row;
                hunk.new_start = hunk.row.saturating_add_signed(shift);
                if piece.placed {
                    shift += hunk.new.len().cast_signed() - hunk.old.len().cast_signed();
                }
                hunk
            })
            .collect()
    }

    /// Takes in the file as it is now. `moved` compares [`Self::base`] with it. Returns how many hunks became stale.
    pub(super) fn take_in(&mut self, current: FileState, moved: &Moved) -> usize {
        let created = self.base.origin == Origin::Missing && current.origin != Origin::Missing;
        // A file that is gone, or was emptied, has no place for anything: an insertion alone would be all of the new one.
        let gone = (self.base.origin != Origin::Missing && current.origin == Origin::Missing)
            || (!self.base.bytes.is_empty() && current.bytes.is_empty());
        let mut newly_stale = 0;
        for piece in &mut self.pieces {
            let old = piece.old_range();
            // A file that appeared meanwhile is what an empty hunk, which creates one, is in conflict with.
            let clash = gone || created && old.is_empty() && piece.hunk.new.is_empty();
            let place = moved.locate(&old, &piece.hunk.new).filter(|_| !clash);
            piece.placed = place.is_some() && !piece.given_up;
            match (place, piece.hunk.state) {
                (Some(row), HunkState::Stale) => {
                    piece.hunk.row = row;
                    if !piece.given_up {
                        piece.hunk.state = piece.before_stale;
                    }
                }
                (Some(row), _) => piece.hunk.row = row,
                (None, state) => {
                    piece.hunk.row = moved.estimate(&old);
                    if matches!(state, HunkState::Pending | HunkState::Accepted) {
                        piece.before_stale = state;
                        piece.hunk.state = HunkState::Stale;
                        newly_stale += 1;
                    }
                }
            }
        }
        self.current = current;
        self.refresh_view();
        newly_stale
    }

    fn refresh_view(&mut self) {
        let current = lines(&self.current.bytes);
        let all: Vec<Replacement<'_>> = self
            .pieces
            .iter()
            .filter(|piece| piece.placed)
            .map(replacement)
            .collect();
        self.view_target = hunks::apply(&current, &all).into();
    }

    /// Returns the current text with the accepted hunks, and the same as edits of it.
    pub(super) fn merged(&mut self) -> Merged {
        let current = lines(&self.current.bytes);
        let accepted: Vec<Replacement<'_>> = self
            .pieces
            .iter()
            .filter(|piece| piece.hunk.state == HunkState::Accepted)
            .map(replacement)
            .collect();
        let target = hunks::apply(&current, &accepted).into();
        let edits = line_edits(&accepted);
        let mut shift = 0_isize;
        for piece in &mut self.pieces {
            piece.after_start = piece.hunk.row.saturating_add_signed(shift);
            if piece.hunk.state == HunkState::Accepted {
                shift += piece.hunk.new.len().cast_signed() - piece.hunk.old.len().cast_signed();
            }
        }
        Merged { target, edits }
    }

    /// Splits a hunk so that lines `from..to` of it (counted within its new lines) stand alone; returns the id of the
    /// part with those lines.
    pub(super) fn split(
        &mut self,
        id: HunkId,
        from: usize,
        to: usize,
        mut ids: Ids<'_>,
    ) -> Option<HunkId> {
        let at = self.pieces.iter().position(|piece| piece.hunk.id == id)?;
        let whole = self.pieces.get(at)?.clone();
        let Some(parts) = hunks::split(&whole.hunk.old, &whole.hunk.new, from, to) else {
            return (from == 0 && to >= whole.hunk.new.len() && from < to).then_some(id);
        };
        let wanted = usize::from(from > 0);
        let mut made = Vec::new();
        let (mut old_at, mut new_at) = (0, 0);
        for (old_len, new_len) in parts {
            let mut part = whole.clone();
            part.hunk.id = ids.next();
            part.hunk.base_start += old_at;
            part.hunk.row += old_at;
            part.hunk.new_start += new_at;
            part.hunk.old = whole
                .hunk
                .old
                .iter()
                .skip(old_at)
                .take(old_len)
                .cloned()
                .collect();
            part.hunk.new = whole
                .hunk
                .new
                .iter()
                .skip(new_at)
                .take(new_len)
                .cloned()
                .collect();
            part.hunk.label = hunks::label(&part.hunk.old, &part.hunk.new);
            old_at += old_len;
            new_at += new_len;
            made.push(part);
        }
        let chosen = made.get(wanted)?.hunk.id;
        self.pieces.splice(at..=at, made);
        self.number();
        Some(chosen)
    }

    /// Takes a target that a person edited: hunks are made anew, from the current text; those that stayed as they were
    /// keep their decision, the others are marked as edited.
    pub(super) fn edit_target(&mut self, target: Arc<[u8]>, join: usize, ids: Ids<'_>) {
        let before: Vec<Piece> = self
            .pieces
            .iter()
            .filter(|piece| piece.placed)
            .cloned()
            .collect();
        self.base = self.current.clone();
        // Edits of the call are lines of the tool's own target; they say nothing about this one.
        let edit_lines = std::mem::take(&mut self.edit_lines);
        let spans = Self::spans_of(&self.base, &target, join);
        self.pieces = self.cut(&target, &spans, ids);
        self.edit_lines = edit_lines;
        for piece in &mut self.pieces {
            let same = before.iter().find(|old| {
                old.hunk.row == piece.hunk.base_start
                    && old.hunk.old == piece.hunk.old
                    && old.hunk.new == piece.hunk.new
            });
            match same {
                Some(same) => {
                    piece.hunk.id = same.hunk.id;
                    piece.hunk.state = same.hunk.state;
                    piece.hunk.note.clone_from(&same.hunk.note);
                    piece.hunk.edits.clone_from(&same.hunk.edits);
                    piece.hunk.edited = same.hunk.edited;
                }
                None => {
                    piece.hunk.edited = true;
                    self.user_edited = true;
                }
            }
        }
        self.user_edited |= before.len() != self.pieces.len();
        self.view_target = target;
    }

    fn number(&mut self) {
        for (index, piece) in self.pieces.iter_mut().enumerate() {
            piece.hunk.index = index;
        }
    }
}

impl Piece {
    fn new(hunk: Hunk) -> Self {
        Self {
            hunk,
            placed: true,
            before_stale: HunkState::Pending,
            given_up: false,
            retry: false,
            after_start: 0,
            looked_at: false,
            noted: false,
        }
    }

    /// Lines of the written text that hold this hunk.
    pub(super) fn after_range(&self) -> Range<usize> {
        self.after_start..self.after_start + self.hunk.new.len()
    }
}

fn replacement(piece: &Piece) -> Replacement<'_> {
    Replacement {
        old: piece.hunk.row..piece.hunk.row + piece.hunk.old.len(),
        new: &piece.hunk.new,
    }
}

/// Turns replacements into edits; those that touch are one.
pub(super) fn line_edits(replacements: &[Replacement<'_>]) -> Vec<LineEdit> {
    let mut edits: Vec<LineEdit> = Vec::new();
    for replacement in replacements {
        let added = replacement.new.concat();
        match edits.last_mut() {
            Some(last) if last.start + last.removed == replacement.old.start => {
                last.removed += replacement.old.len();
                last.added.extend(added);
            }
            _ => edits.push(LineEdit {
                start: replacement.old.start,
                removed: replacement.old.len(),
                added,
            }),
        }
    }
    edits
}
