//! What a person does: every change of a state that a key can cause.
//!
//! All of it happens under the short lock and at once; only undoing what is already written goes to a task of its own.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::super::{
    GrantScope, HunkId, HunkState, ProposalId, ProposalState, ReviewAction, ReviewEvent,
};
use super::entry::{Entry, Ids};
use super::{Shared, State, undo};

const DECIDED: &str = "this hunk is decided already";

/// Decisions that can be taken back; older ones are forgotten.
const MAX_LOG: usize = 1_000;

/// One entry of the decision log: what one key press decided.
pub(super) struct LogItem {
    /// Counts up: an undo that had to wait never takes a decision made after it.
    number: u64,
    session: String,
    /// Hunks with the state they had before.
    changes: Vec<(ProposalId, HunkId, HunkState)>,
}

/// A line to show.
type Answer = Result<String, String>;

impl Shared {
    pub(super) fn act(shared: &Arc<Self>, action: ReviewAction) -> Answer {
        let mut state = shared.state.lock();
        match action {
            ReviewAction::Accept { hunks, note } => {
                state.decide_here(&hunks, HunkState::Accepted, note.as_ref())
            }
            ReviewAction::Reject { hunks, note } => {
                let revert = state.unreviewed_of(&hunks);
                let answer = state.decide_here(&hunks, HunkState::Rejected, note.as_ref());
                drop(state);
                undo::revert_all(shared, revert);
                answer
            }
            ReviewAction::AcceptLines { hunk, from, to } => {
                state.decide_lines(hunk, from..to, HunkState::Accepted)
            }
            ReviewAction::RejectLines { hunk, from, to } => {
                state.decide_lines(hunk, from..to, HunkState::Rejected)
            }
            ReviewAction::AcceptFile { proposal } => {
                let hunks = state.pending_of(proposal);
                state.decide_here(&hunks, HunkState::Accepted, None)
            }
            ReviewAction::RejectFile { proposal, note } => {
                state.reject_file(proposal, note.as_ref())
            }
            ReviewAction::AcceptAll { session } => {
                let hunks = state.all_pending(session.as_deref());
                state.decide_here(&hunks, HunkState::Accepted, None)
            }
            ReviewAction::RejectAll { session, note } => {
                state.reject_all(session.as_deref(), note.as_ref())
            }
            ReviewAction::Note { hunk, note } => state.note(hunk, note),
            ReviewAction::EditTarget { proposal, target } => {
                state.edit_target(proposal, target, shared.join)
            }
            ReviewAction::Undo { session } => {
                drop(state);
                undo::undo(shared, session)
            }
            ReviewAction::DropStale { proposal } => state.drop_stale(proposal),
            ReviewAction::Force { proposal } => state.force(proposal),
            ReviewAction::SetMode { mode } => {
                state.mode = mode;
                state.emit(&ReviewEvent::Mode { mode });
                Ok(format!("review mode: {}", mode_name(mode)))
            }
            ReviewAction::Grant {
                scope,
                session,
                path,
            } => Ok(state.grant(scope, &session, path)),
        }
    }
}

fn mode_name(mode: super::ReviewMode) -> &'static str {
    match mode {
        super::ReviewMode::Ask => "ask",
        super::ReviewMode::Auto => "auto",
        super::ReviewMode::Readonly => "readonly",
        super::ReviewMode::Off => "off",
    }
}

/// Why nothing can be decided about a proposal in this state.
fn why_not(state: ProposalState) -> &'static str {
    match state {
        ProposalState::Waiting => "this change waits for an earlier one to the same file",
        ProposalState::Applying => "this change is being written at this moment",
        ProposalState::Open => DECIDED,
        ProposalState::Done => "this change is settled; undo takes it back",
        ProposalState::Failed | ProposalState::Cancelled => {
            "this change has ended without being written"
        }
    }
}

impl State {
    fn owner(&self, hunk: HunkId) -> Option<ProposalId> {
        self.entries
            .values()
            .find(|entry| {
                entry
                    .work
                    .iter()
                    .flat_map(|work| &work.pieces)
                    .any(|piece| piece.hunk.id == hunk)
            })
            .map(|entry| entry.id)
    }

    /// The proposals of hunks, and where each hunk is in its own, found in one go through all of them.
    fn owners(&self, hunks: &[HunkId]) -> HashMap<HunkId, (ProposalId, usize)> {
        let wanted: HashSet<HunkId> = hunks.iter().copied().collect();
        let mut owners = HashMap::with_capacity(wanted.len());
        for entry in self.entries.values() {
            let pieces = entry.work.iter().flat_map(|work| &work.pieces);
            let ours = (0..)
                .zip(pieces)
                .filter(|(_, piece)| wanted.contains(&piece.hunk.id))
                .map(|(at, piece)| (piece.hunk.id, (entry.id, at)));
            owners.extend(ours);
        }
        owners
    }

    fn pending_of(&self, id: ProposalId) -> Vec<HunkId> {
        self.entries
            .get(&id)
            .filter(|entry| entry.state == ProposalState::Open)
            .map(|entry| hunks_in(entry, HunkState::Pending))
            .unwrap_or_default()
    }

    fn all_pending(&self, session: Option<&str>) -> Vec<HunkId> {
        self.entries
            .values()
            .filter(|entry| {
                entry.state == ProposalState::Open
                    && session.is_none_or(|session| entry.session == session)
            })
            .flat_map(|entry| hunks_in(entry, HunkState::Pending))
            .collect()
    }

    /// Decides hunks, as one entry of the log.
    fn decide_here(&mut self, hunks: &[HunkId], to: HunkState, note: Option<&String>) -> Answer {
        let mut changes = Vec::new();
        let mut looked_at = 0;
        let mut refusal = None;
        let owners = self.owners(hunks);
        for hunk in hunks {
            let Some((id, at)) = owners.get(hunk).copied() else {
                refusal = Some("this hunk is gone: the list has changed");
                continue;
            };
            match self.decide(id, at, to, note) {
                Ok(Some(before)) => changes.push((id, *hunk, before)),
                Ok(None) => looked_at += 1,
                Err(why) => refusal = Some(why),
            }
        }
        let n_files = self.finish_decisions(&changes);
        let n_hunks = changes.len();
        self.remember(changes);
        let verb = if to == HunkState::Accepted {
            "accepted"
        } else {
            "rejected"
        };
        if let Some(why) = refusal.filter(|why| n_hunks + looked_at > 0 && *why != DECIDED) {
            let line = format!("not all were {verb}: {why}");
            self.emit(&ReviewEvent::Said { line });
        }
        match refusal {
            Some(why) if n_hunks + looked_at == 0 => Err(why.to_owned()),
            _ if n_hunks == 0 && looked_at == 0 => Err("nothing is pending".to_owned()),
            _ if n_hunks == 0 => Ok(format!("{looked_at} hunk(s) looked at")),
            _ if n_files > 1 => Ok(format!("{n_hunks} hunks in {n_files} files {verb}")),
            _ => Ok(format!("{n_hunks} hunk(s) {verb}")),
        }
    }

    /// Decides the hunk at a place of a proposal; gives the state it had, `None` when it was only marked as looked at.
    fn decide(
        &mut self,
        id: ProposalId,
        at: usize,
        to: HunkState,
        note: Option<&String>,
    ) -> Result<Option<HunkState>, &'static str> {
        let entry = self.entries.get_mut(&id).ok_or("this change is gone")?;
        let (state, unreviewed) = (entry.state, entry.unreviewed);
        let pieces = entry.work.as_mut().map(|work| &mut work.pieces);
        let piece = pieces
            .and_then(|pieces| pieces.get_mut(at))
            .ok_or("this hunk is gone")?;
        if state == ProposalState::Done && unreviewed && piece.hunk.state == HunkState::Accepted {
            piece.looked_at = true;
            let all = entry.work.iter().flat_map(|work| &work.pieces);
            entry.unreviewed = !all.clone().all(|piece| piece.looked_at);
            self.changed(id);
            return Ok(None);
        }
        if state != ProposalState::Open {
            return Err(why_not(state));
        }
        let before = piece.hunk.state;
        if before == HunkState::Stale && to == HunkState::Accepted {
            return Err(
                "this hunk is in conflict with what the file says now: reject it, or give it up",
            );
        }
        if before == to && note.is_none() {
            return Err(DECIDED);
        }
        piece.hunk.state = to;
        piece.retry = false;
        if let Some(note) = note {
            piece.hunk.note = Some(note.clone());
        }
        let event = ReviewEvent::Decided {
            proposal: id,
            hunk: piece.hunk.id,
            state: to,
            note: piece.hunk.note.clone(),
        };
        self.emit(&event);
        Ok(Some(before))
    }

    /// Announces changed proposals and wakes those that are decided; returns how many there are.
    fn finish_decisions(&mut self, changes: &[(ProposalId, HunkId, HunkState)]) -> usize {
        let mut ids: Vec<_> = changes.iter().map(|change| change.0).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in &ids {
            self.changed(*id);
            self.wake(*id);
        }
        ids.len()
    }

    fn wake(&self, id: ProposalId) {
        if let Some(entry) = self.entries.get(&id) {
            entry.wake.notify_one();
        }
    }

    pub(super) fn remember(&mut self, changes: Vec<(ProposalId, HunkId, HunkState)>) {
        let Some((first, _, _)) = changes.first() else {
            return;
        };
        let session = self
            .entries
            .get(first)
            .map(|entry| entry.session.clone())
            .unwrap_or_default();
        let number = self.log.last().map_or(0, |item| item.number + 1);
        self.log.push(LogItem {
            number,
            session,
            changes,
        });
        if self.log.len() > MAX_LOG {
            self.log.remove(0);
        }
    }

    fn decide_lines(
        &mut self,
        hunk: HunkId,
        lines: std::ops::Range<usize>,
        to: HunkState,
    ) -> Answer {
        let gone = || "this hunk is gone: the list has changed".to_owned();
        let id = self.owner(hunk).ok_or_else(gone)?;
        let mut next_hunk = self.next_hunk;
        let entry = self.entries.get_mut(&id).ok_or_else(gone)?;
        if entry.state != ProposalState::Open {
            return Err(why_not(entry.state).to_owned());
        }
        let snapshot = entry.snapshot();
        let whole = snapshot
            .hunks
            .iter()
            .find(|it| it.id == hunk)
            .ok_or_else(gone)?;
        if whole.state == HunkState::Stale {
            return Err("this hunk is in conflict with what the file says now".to_owned());
        }
        let from = lines.start.saturating_sub(whole.new_start);
        let end = lines.end.saturating_sub(whole.new_start);
        let part = entry
            .work
            .as_mut()
            .and_then(|work| work.split(hunk, from, end, Ids(&mut next_hunk)))
            .ok_or("no new line of this hunk is selected")?;
        self.next_hunk = next_hunk;
        self.changed(id);
        self.decide_here(&[part], to, None)
    }

    fn reject_file(&mut self, id: ProposalId, note: Option<&String>) -> Answer {
        let entry = self.entries.get_mut(&id).ok_or("this change is gone")?;
        match entry.state {
            ProposalState::Waiting => {
                entry.refused = Some(note.cloned());
                self.wake(id);
                Ok("rejected before it was computed".to_owned())
            }
            ProposalState::Open => {
                let mut hunks = hunks_in(entry, HunkState::Pending);
                hunks.extend(hunks_in(entry, HunkState::Stale));
                self.decide_here(&hunks, HunkState::Rejected, note)
            }
            state => Err(why_not(state).to_owned()),
        }
    }

    /// Rejects everything that is open or waiting, and every question: also how a person answers instead of deciding.
    fn reject_all(&mut self, session: Option<&str>, note: Option<&String>) -> Answer {
        let ours = |entry: &&mut Entry| session.is_none_or(|session| entry.session == session);
        let (mut hunks, mut n_waiting) = (Vec::new(), 0);
        for entry in self.entries.values_mut().filter(ours) {
            match entry.state {
                ProposalState::Waiting => {
                    entry.refused = Some(note.cloned());
                    entry.wake.notify_one();
                    n_waiting += 1;
                }
                ProposalState::Open => {
                    hunks.extend(hunks_in(entry, HunkState::Pending));
                    hunks.extend(hunks_in(entry, HunkState::Stale));
                }
                _ => {}
            }
        }
        let n_questions = self.refuse_questions(session, note.map(String::as_str));
        let decided = self.decide_here(&hunks, HunkState::Rejected, note);
        match decided {
            Ok(line) if n_waiting + n_questions == 0 => Ok(line),
            Err(line) if n_waiting + n_questions == 0 => Err(line),
            _ => Ok(format!(
                "rejected: {} hunk(s), {n_waiting} waiting change(s), {n_questions} command(s)",
                hunks.len()
            )),
        }
    }

    fn note(&mut self, hunk: HunkId, note: Option<String>) -> Answer {
        let id = self
            .owner(hunk)
            .ok_or("this hunk is gone: the list has changed")?;
        let entry = self.entries.get_mut(&id).ok_or("this change is gone")?;
        let state = entry.state;
        if state != ProposalState::Open {
            return Err(why_not(state).to_owned());
        }
        if let Some(piece) = entry.piece_mut(hunk) {
            piece.hunk.note = note.filter(|note| !note.trim().is_empty());
        }
        self.changed(id);
        Ok("noted".to_owned())
    }

    fn edit_target(&mut self, id: ProposalId, target: Vec<u8>, join: usize) -> Answer {
        let mut next_hunk = self.next_hunk;
        let entry = self.entries.get_mut(&id).ok_or("this change is gone")?;
        if entry.state != ProposalState::Open {
            return Err(why_not(entry.state).to_owned());
        }
        let work = entry.work.as_mut().ok_or("there is nothing to edit yet")?;
        if *work.view_target == *target {
            return Ok("unchanged".to_owned());
        }
        work.edit_target(target.into(), join, Ids(&mut next_hunk));
        let n_hunks = work.pieces.len();
        self.next_hunk = next_hunk;
        self.changed(id);
        self.wake(id);
        Ok(format!("taken over: {n_hunks} hunk(s)"))
    }

    fn drop_stale(&mut self, id: ProposalId) -> Answer {
        let entry = self.entries.get_mut(&id).ok_or("this change is gone")?;
        if entry.state != ProposalState::Open {
            return Err(why_not(entry.state).to_owned());
        }
        let mut n_dropped = 0;
        for piece in entry.work.iter_mut().flat_map(|work| &mut work.pieces) {
            if piece.hunk.state == HunkState::Stale && !piece.given_up {
                piece.given_up = true;
                piece.placed = false;
                n_dropped += 1;
            }
        }
        if n_dropped == 0 {
            return Err("no hunk is in conflict".to_owned());
        }
        self.changed(id);
        self.wake(id);
        Ok(format!("{n_dropped} hunk(s) given up as stale"))
    }

    fn force(&mut self, id: ProposalId) -> Answer {
        let entry = self.entries.get_mut(&id).ok_or("this change is gone")?;
        if entry.state != ProposalState::Open {
            return Err(why_not(entry.state).to_owned());
        }
        entry.force = true;
        let retry: Vec<_> = entry
            .work
            .iter()
            .flat_map(|work| &work.pieces)
            .filter(|piece| piece.retry && piece.hunk.state == HunkState::Pending)
            .map(|piece| piece.hunk.id)
            .collect();
        if retry.is_empty() {
            self.changed(id);
            return Ok("will be written although it is read-only".to_owned());
        }
        self.decide_here(&retry, HunkState::Accepted, None)
    }

    fn grant(&mut self, scope: GrantScope, session: &str, path: Option<PathBuf>) -> String {
        self.grants.grant(scope, session, path.as_deref());
        // What is open already falls under the grant as well.
        let covered: Vec<HunkId> = self
            .entries
            .values()
            .filter(|entry| {
                entry.session == session
                    && entry.state == ProposalState::Open
                    && self.grants.covers(session, [&entry.path, &entry.real_path])
            })
            .flat_map(|entry| hunks_in(entry, HunkState::Pending))
            .collect();
        // Nothing open is fine: the grant is for what comes.
        self.decide_here(&covered, HunkState::Accepted, None).ok();
        match scope {
            GrantScope::FileForRun => "changes of this file are accepted until the run ends",
            GrantScope::Run => "changes are accepted until the run ends",
            GrantScope::Session => "changes are accepted in this session",
        }
        .to_owned()
    }

    /// Takes the last decision out of the log, with the looks at its files that have to end before it is undone.
    pub(super) fn last_decision(
        &mut self,
        session: Option<&str>,
    ) -> Result<(LogItem, Vec<CancellationToken>), String> {
        let item = self.pop_log(session, u64::MAX)?;
        let looks = self.looks_at(item.changes.iter().map(|change| change.0));
        Ok((item, looks))
    }

    fn pop_log(&mut self, session: Option<&str>, before: u64) -> Result<LogItem, String> {
        let ours = |item: &LogItem| {
            item.number < before && session.is_none_or(|session| item.session == session)
        };
        let at = self.log.iter().rposition(ours).ok_or("nothing to undo")?;
        Ok(self.log.remove(at))
    }

    /// Takes back a decision. What was not written yet is pending again; what was is given back to be reverted. When
    /// nothing is left of it, the one before it counts.
    #[expect(
        clippy::type_complexity,
        reason = "a line and the hunks to revert, by proposal"
    )]
    pub(super) fn undo(
        &mut self,
        mut item: LogItem,
        session: Option<&str>,
    ) -> Result<(String, Vec<(ProposalId, Vec<HunkId>)>), String> {
        loop {
            let number = item.number;
            let (mut reopened, mut revert) = (Vec::new(), Vec::new());
            let mut told = false;
            for (id, hunk, before) in item.changes {
                match self.take_back(id, hunk, before) {
                    TakenBack::Open => reopened.push((id, hunk, before)),
                    TakenBack::Written => revert.push((id, hunk)),
                    TakenBack::Told => told = true,
                    TakenBack::Gone => {}
                }
            }
            let n_reopened = reopened.len();
            self.finish_decisions(&reopened);
            let n_written = revert.len();
            if n_reopened + n_written == 0 && told {
                return Err("that decision was told to the model already: ask it to propose the change again".to_owned());
            }
            if n_reopened + n_written == 0 {
                // Cancelled, reverted or forgotten.
                item = self.pop_log(session, number)?;
                continue;
            }
            let line = match (n_reopened, n_written) {
                (_, 0) => format!("{n_reopened} hunk(s) pending again"),
                (0, _) => format!("reverting {n_written} hunk(s)"),
                _ => format!("{n_reopened} hunk(s) pending again, reverting {n_written}"),
            };
            return Ok((line, by_proposal(revert)));
        }
    }

    fn take_back(&mut self, id: ProposalId, hunk: HunkId, before: HunkState) -> TakenBack {
        let Some(entry) = self.entries.get_mut(&id) else {
            return TakenBack::Gone;
        };
        let (state, written) = (entry.state, entry.written.is_some());
        let Some(piece) = entry.piece_mut(hunk) else {
            return TakenBack::Gone;
        };
        match state {
            // A write that failed has made it pending already.
            ProposalState::Open if piece.hunk.state == before => TakenBack::Gone,
            ProposalState::Open => {
                piece.hunk.state = match piece.hunk.state {
                    // In conflict since: pending once the conflict is gone.
                    HunkState::Stale => {
                        piece.before_stale = HunkState::Pending;
                        HunkState::Stale
                    }
                    _ => before,
                };
                TakenBack::Open
            }
            // The revert waits for the commit's answer and acts on what it finds then.
            ProposalState::Applying if piece.hunk.state == HunkState::Accepted => {
                TakenBack::Written
            }
            ProposalState::Done if written && piece.hunk.state == HunkState::Accepted => {
                TakenBack::Written
            }
            ProposalState::Done | ProposalState::Applying
                if piece.hunk.state == HunkState::Rejected =>
            {
                TakenBack::Told
            }
            _ => TakenBack::Gone,
        }
    }

    /// Of these hunks those that were written without asking: rejecting one takes it back.
    fn unreviewed_of(&self, hunks: &[HunkId]) -> Vec<(ProposalId, Vec<HunkId>)> {
        let owners = self.owners(hunks);
        let written = hunks.iter().filter_map(|hunk| {
            let (id, _) = owners.get(hunk).copied()?;
            let entry = self.entries.get(&id)?;
            (entry.state == ProposalState::Done && entry.unreviewed).then_some((id, *hunk))
        });
        by_proposal(written.collect())
    }
}

enum TakenBack {
    Open,
    Written,
    /// The model knows of it.
    Told,
    Gone,
}

fn by_proposal(hunks: Vec<(ProposalId, HunkId)>) -> Vec<(ProposalId, Vec<HunkId>)> {
    let mut grouped: Vec<(ProposalId, Vec<HunkId>)> = Vec::new();
    for (id, hunk) in hunks {
        match grouped.iter_mut().find(|(other, _)| *other == id) {
            Some((_, hunks)) => hunks.push(hunk),
            None => grouped.push((id, vec![hunk])),
        }
    }
    grouped
}

fn hunks_in(entry: &Entry, state: HunkState) -> Vec<HunkId> {
    entry
        .work
        .iter()
        .flat_map(|work| &work.pieces)
        .filter(|piece| piece.hunk.state == state && !piece.given_up)
        .map(|piece| piece.hunk.id)
        .collect()
}
