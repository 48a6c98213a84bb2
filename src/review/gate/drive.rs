//! Carries one proposal from its place in the queue to its result.
//!
//! Each proposal has one task. It waits for the head of its file's line, reads, plans, waits for decisions, commits, and
//! holds its place until all that has settled. An abort is looked at between these steps and never inside a commit.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::super::merge::Moved;
use super::super::{
    ChangeResult, ChangeTool, HunkState, PlanFn, Planned, ProposalId, ProposalState, ReviewEvent,
    hunks,
};
use super::entry::{Entry, Ids, Work};
use super::policy::Verdict;
use super::{Reviewer, Shared, State, undo};
use crate::agent::{ErrorClass, ToolError, ToolOutput};
use crate::files::errno::describe;
use crate::files::replace::is_read_only;
use crate::workspace::queue::{Place, QueueError, Ticket};
use crate::workspace::{FileState, Origin};

/// How a proposal ends.
pub(super) enum End {
    Cancelled,
    Failed(ToolError),
    /// All hunks were given up as stale.
    Stale(Box<ToolOutput>),
    Done(Box<ToolOutput>),
}

/// What a commit came to.
pub(super) enum Step {
    End(End),
    /// Back to the person, with one line that says why, and what the model is told if there is no person.
    Again(String, ToolError),
}

/// A task that ended in a panic: the call gets an error, the program goes on.
pub(super) fn crashed(error: &tokio::task::JoinError) -> ToolError {
    tracing::error!(%error, "a change came to an end it should not have");
    ToolError::new(
        ErrorClass::Other,
        "The change could not be worked out because of an internal error. Read the file before trying something different.",
    )
}

/// Runs a proposal to its end.
pub(super) async fn carry(
    shared: Arc<Shared>,
    id: ProposalId,
    plan: PlanFn,
    ticket: Ticket,
) -> ChangeResult {
    // However this task ends, nobody waits for it for ever.
    let _settled = SettleGuard {
        shared: Arc::clone(&shared),
        id,
    };
    let Some((cancel, wake)) =
        shared.look(id, |entry| (entry.cancel.clone(), Arc::clone(&entry.wake)))
    else {
        return Err(ToolError::aborted());
    };
    let driver = Driver {
        shared,
        id,
        cancel,
        wake,
        by: "agent",
    };
    let (end, place) = match driver.take_place(ticket).await {
        Ok(place) => {
            let end = match driver.plan(place.key(), plan).await {
                Ok(asks) => driver.review(place.key(), asks).await,
                Err(end) => end,
            };
            (end, Some(place))
        }
        Err(end) => (end, None),
    };
    let result = driver.settle(end);
    drop(place);
    result
}

pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) id: ProposalId,
    pub(super) cancel: CancellationToken,
    pub(super) wake: Arc<Notify>,
    /// Who writes: `agent` or `restore`.
    pub(super) by: &'static str,
}

impl Driver {
    pub(super) fn look<R>(&self, look: impl FnOnce(&mut Entry) -> R) -> Result<R, End> {
        // The entry of a proposal outlives its task; without it there is nothing left to do.
        self.shared.look(self.id, look).ok_or(End::Cancelled)
    }

    /// Waits for the head of the file's line. Refused or aborted, it leaves the line at once.
    async fn take_place(&self, ticket: Ticket) -> Result<Place, End> {
        let queued = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(End::Cancelled),
            queued = ticket.queued() => queued,
        };
        let queued = match queued {
            Ok(queued) => queued,
            Err(error) => {
                let path = self.look(|entry| entry.path_given.clone())?;
                return Err(End::Failed(queue_error(&path, error)));
            }
        };
        self.look(|entry| {
            entry.real_path = queued.key().to_owned();
            entry.touch();
        })?;
        self.shared.state.lock().changed(self.id);
        let head = queued.head();
        tokio::pin!(head);
        loop {
            let woken = self.wake.notified();
            if let Some(reason) = self.look(|entry| entry.refused.clone())? {
                return Err(self.refused_unseen(reason.as_deref()));
            }
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(End::Cancelled),
                place = &mut head => return Ok(place),
                () = woken => {}
            }
        }
    }

    /// Everything pending was refused before this one was even computed.
    fn refused_unseen(&self, reason: Option<&str>) -> End {
        let path = match self.look(|entry| entry.path_given.clone()) {
            Ok(path) => path,
            Err(end) => return end,
        };
        let start = format!("The user rejected this change to {path}; the file is unchanged.");
        let text = match reason {
            Some(reason) => format!("{start} Reason: {reason}"),
            None => {
                format!("{start} Do not retry the same change; ask or propose something different.")
            }
        };
        End::Done(Box::new(ToolOutput {
            is_error: true,
            terminate: reason.is_none() && self.shared.stop_on_reject,
            ..ToolOutput::text(text)
        }))
    }

    /// Reads the base, lets the tool compute its target and makes hunks. Returns whether a person decides.
    async fn plan(&self, key: &Path, plan: PlanFn) -> Result<bool, End> {
        let (tool, path_given) = self.look(|entry| (entry.tool, entry.path_given.clone()))?;
        let verdict = self.verdict(key)?;
        if verdict == Verdict::Refuse {
            return Err(not_accepted(&path_given));
        }
        if self.cancel.is_cancelled() {
            return Err(End::Cancelled);
        }
        let base = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(End::Cancelled),
            base = self.shared.workspace.state(key) => base,
        };
        let base =
            base.map_err(|error| End::Failed(io_error(tool, &path_given, Some(key), &error)))?;
        let asks = verdict == Verdict::Ask;
        let work = Plan {
            tool,
            path_given: path_given.clone(),
            real_path: key.to_owned(),
            join: self.shared.join,
            asks,
        };
        let planned = tokio::task::spawn_blocking(move || work.make(base, plan))
            .await
            .map_err(|error| End::Failed(crashed(&error)))?
            .map_err(End::Failed)?;
        if self.cancel.is_cancelled() {
            return Err(End::Cancelled);
        }
        // While this was worked out the person may have refused everything, or chosen another mode.
        let verdict = self.verdict(key)?;
        if verdict == Verdict::Refuse {
            return Err(not_accepted(&path_given));
        }
        self.open(planned, verdict)?;
        Ok(verdict == Verdict::Ask)
    }

    fn verdict(&self, real_path: &Path) -> Result<Verdict, End> {
        let mut state = self.shared.state.lock();
        let entry = state.entries.get(&self.id).ok_or(End::Cancelled)?;
        let reviewed = state.reviewer == Reviewer::Person;
        let (verdict, mode) =
            state.verdict(&self.shared.cwd, &entry.session, &entry.path, real_path);
        if let Some(entry) = state.entries.get_mut(&self.id) {
            entry.mode = mode;
            entry.reviewed = reviewed;
        }
        Ok(verdict)
    }

    pub(super) fn open(&self, planned: Ready, verdict: Verdict) -> Result<(), End> {
        let mut state = self.shared.state.lock();
        let mut next_hunk = state.next_hunk;
        let cwd = &self.shared.cwd;
        let entry = state.entries.get_mut(&self.id).ok_or(End::Cancelled)?;
        if let Some(reason) = entry.refused.clone() {
            drop(state);
            return Err(self.refused_unseen(reason.as_deref()));
        }
        let mut work = Work::new(
            planned.base,
            planned.planned,
            planned.spans,
            Ids(&mut next_hunk),
        );
        match verdict {
            Verdict::Write { unreviewed } => {
                for piece in &mut work.pieces {
                    piece.hunk.state = HunkState::Accepted;
                }
                entry.unreviewed = unreviewed;
                // From here on it is too late to refuse it.
                entry.state = ProposalState::Applying;
            }
            Verdict::Ask | Verdict::Refuse => {
                entry.notice = notice(entry, &work.base, cwd, planned.read_only);
            }
        }
        entry.work = Some(work);
        if verdict == Verdict::Ask {
            entry.state = ProposalState::Open;
        }
        state.next_hunk = next_hunk;
        state.changed(self.id);
        Ok(())
    }

    /// Waits for decisions and commits, until that settles the proposal.
    pub(super) async fn review(&self, key: &Path, asks: bool) -> End {
        loop {
            if asks && let Err(end) = self.decided().await {
                return end;
            }
            let step = match self.commit(key).await {
                Ok(step) => step,
                Err(end) => return end,
            };
            match step {
                Step::End(end) => return end,
                Step::Again(notice, _) if asks => {
                    let mut state = self.shared.state.lock();
                    if let Some(entry) = state.entries.get_mut(&self.id) {
                        entry.state = ProposalState::Open;
                        entry.notice = Some(notice.clone());
                    }
                    state.changed(self.id);
                    // What was accepted is pending again: that must not look like a key that was lost.
                    state.emit(&ReviewEvent::Said { line: notice });
                }
                Step::Again(_, error) => return End::Failed(error),
            }
        }
    }

    /// Waits until every hunk is decided; the proposal is `applying` from then on.
    async fn decided(&self) -> Result<(), End> {
        loop {
            let woken = self.wake.notified();
            tokio::pin!(woken);
            // Counted as waiting before the look, so that a decision between the two is not missed.
            woken.as_mut().enable();
            if self.cancel.is_cancelled() {
                return Err(End::Cancelled);
            }
            {
                let mut state = self.shared.state.lock();
                let entry = state.entries.get_mut(&self.id).ok_or(End::Cancelled)?;
                if entry.is_decided() {
                    entry.state = ProposalState::Applying;
                    state.changed(self.id);
                    return Ok(());
                }
            }
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(End::Cancelled),
                () = &mut woken => {}
            }
        }
    }

    pub(super) fn settle(&self, end: End) -> ChangeResult {
        let (state, result) = match end {
            End::Cancelled => (ProposalState::Cancelled, Err(ToolError::aborted())),
            End::Failed(error) => (ProposalState::Failed, Err(error)),
            End::Stale(output) => (ProposalState::Failed, Ok(*output)),
            End::Done(output) => (ProposalState::Done, Ok(*output)),
        };
        let written = {
            let mut gate = self.shared.state.lock();
            gate.settle(self.id, state, result.as_ref().err())
        };
        if let Some(path) = written {
            undo::file_changed(&self.shared, &path, undo::By::Agent);
        }
        result
    }
}

/// Settles a proposal whose task ended in a panic.
pub(super) struct SettleGuard {
    pub(super) shared: Arc<Shared>,
    pub(super) id: ProposalId,
}

impl Drop for SettleGuard {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let open = state
            .entries
            .get(&self.id)
            .is_some_and(|entry| !entry.is_settled());
        if open {
            state.settle(self.id, ProposalState::Failed, None);
        }
    }
}

impl State {
    /// Ends a proposal; returns the path if something was written to it.
    fn settle(
        &mut self,
        id: ProposalId,
        end: ProposalState,
        error: Option<&ToolError>,
    ) -> Option<std::path::PathBuf> {
        let entry = self.entries.get_mut(&id)?;
        entry.state = end;
        if let Some(error) = error {
            entry.notice = Some(error.message.clone());
        }
        let settled = ReviewEvent::Settled {
            proposal: id,
            applied: match entry.written {
                Some(_) => entry.count(HunkState::Accepted),
                None => 0,
            },
            rejected: entry.count(HunkState::Rejected),
        };
        let written = entry.written.is_some().then(|| entry.real_path.clone());
        let token = entry.settled.clone();
        self.changed(id);
        self.emit(&settled);
        self.prune();
        token.cancel();
        written
    }
}

/// What planning needs to know.
struct Plan {
    tool: ChangeTool,
    path_given: String,
    real_path: std::path::PathBuf,
    join: usize,
    asks: bool,
}

pub(super) struct Ready {
    pub(super) base: FileState,
    pub(super) planned: Planned,
    pub(super) spans: Vec<hunks::Span>,
    pub(super) read_only: bool,
}

impl Plan {
    /// Runs on a blocking thread.
    fn make(self, base: FileState, plan: PlanFn) -> Result<Ready, ToolError> {
        let read_only = base.origin == Origin::Disk && is_read_only(&self.real_path);
        // A person may say "write anyway"; without one a file marked read-only is left alone.
        if read_only && !self.asks {
            let error = rustix::io::Errno::ACCESS.into();
            return Err(io_error(self.tool, &self.path_given, None, &error));
        }
        let planned = plan(&base)?;
        let spans = Work::spans_of(&base, &planned.target, self.join);
        Ok(Ready {
            base,
            planned,
            spans,
            read_only,
        })
    }
}

impl Shared {
    pub(super) fn look<R>(&self, id: ProposalId, look: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        self.state.lock().entries.get_mut(&id).map(look)
    }

    /// Compares the file as it is with what the hunks were made from, and gives each hunk its place.
    pub(super) async fn take_in(self: &Arc<Self>, id: ProposalId, current: FileState) {
        loop {
            let Some(base) = self.look(id, |entry| {
                entry.work.as_ref().map(|work| work.base.clone())
            }) else {
                return;
            };
            let Some(base) = base else { return };
            let (old, new) = (Arc::clone(&base.bytes), Arc::clone(&current.bytes));
            let compared = tokio::task::spawn_blocking(move || {
                Moved::between(&hunks::lines(&old), &hunks::lines(&new))
            });
            let Ok(moved) = compared.await else { return };
            let taken = self.look(id, |entry| {
                let work = entry.work.as_mut()?;
                // The person may have edited the proposal in between: then compare again.
                if !Arc::ptr_eq(&work.base.bytes, &base.bytes) {
                    return None;
                }
                let before: Vec<_> = work
                    .pieces
                    .iter()
                    .map(|piece| (piece.hunk.row, piece.hunk.state))
                    .collect();
                let same_text = work.current.bytes == current.bytes;
                let newly_stale = work.take_in(current.clone(), &moved);
                if newly_stale > 0 {
                    entry.notice = Some(format!(
                        "{} changed: {newly_stale} hunk(s) are in conflict with what it says now",
                        entry.path_given
                    ));
                }
                let after = work
                    .pieces
                    .iter()
                    .map(|piece| (piece.hunk.row, piece.hunk.state));
                Some(!same_text || !after.eq(before))
            });
            match taken {
                Some(Some(true)) => return self.state.lock().changed(id),
                Some(Some(false)) | None => return,
                Some(None) => {}
            }
        }
    }
}

fn not_accepted(path: &str) -> End {
    let text = format!(
        "Changes to files are not accepted in this session (review mode `readonly` or `reject`); {path} is unchanged."
    );
    End::Failed(ToolError::new(ErrorClass::Rejected, text))
}

/// What the person should know before accepting.
fn notice(entry: &Entry, base: &FileState, cwd: &Path, read_only: bool) -> Option<String> {
    let mut parts = Vec::new();
    if let Origin::Buffer(buffer) = &base.origin
        && buffer.modified
    {
        parts.push("unsaved changes: accepting will save them too".to_owned());
    }
    if read_only {
        parts.push("read-only".to_owned());
    }
    if !entry.real_path.starts_with(cwd) {
        parts.push(format!(
            "outside the project: {}",
            entry.real_path.display()
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn queue_error(path: &str, error: QueueError) -> ToolError {
    match error {
        QueueError::LookUp { source, .. } => io_error(ChangeTool::Write, path, None, &source),
        QueueError::Slow(_) => ToolError::new(
            ErrorClass::Io,
            format!("ETIMEDOUT: the file system did not answer within 5 s for {path}; try again"),
        ),
        QueueError::HeldByAncestor(_) => ToolError::new(
            ErrorClass::Blocked,
            format!(
                "{path} is being changed by the call that made this one; finish that change first"
            ),
        ),
    }
}

/// One line for the model: errno, what, which file.
pub(super) fn io_error(
    tool: ChangeTool,
    path: &str,
    real_path: Option<&Path>,
    error: &std::io::Error,
) -> ToolError {
    let verb = match tool {
        ChangeTool::Edit => "edit",
        ChangeTool::Write | ChangeTool::Bash => "write",
    };
    // Making the folders of a new file meets the file that stands in their place.
    let parent_is_file = real_path
        .and_then(Path::parent)
        .is_some_and(|parent| parent.is_file());
    let not_a_folder = error.kind() == std::io::ErrorKind::NotADirectory;
    let text = if tool == ChangeTool::Write && not_a_folder && parent_is_file {
        "EEXIST: the folder it should be in is a file".to_owned()
    } else {
        describe(error)
    };
    ToolError::new(ErrorClass::Io, format!("Could not {verb} {path}: {text}"))
}
