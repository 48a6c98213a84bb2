//! The one path to the disk: merge, record, write, tell.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::super::records::{
    Checkpoints, CommitRecord, KeptChange, KeptResult, Records, content_name,
};
use super::super::report::{Settled, Settlement, stale_text};
use super::super::{DetailsFn, HunkState, ProposalState, ReviewEvent, ReviewMode};
use super::Shared;
use super::drive::{Driver, End, Step, crashed, io_error};
use super::entry::{Entry, Merged, Written};
use crate::agent::{ErrorClass, ToolError, ToolOutput};
use crate::files::errno::describe;
use crate::files::replace::is_read_only;
use crate::files::state::fingerprint;
use crate::workspace::disk::read_state;
use crate::workspace::{Commit, CommitOutcome, FileState, Origin};

/// How often a commit merges again because the file moved under it.
const MAX_ROUNDS: usize = 5;

/// What became of one attempt to write.
enum Round {
    Over(Step),
    /// The file is another than was merged onto.
    Moved,
    /// The same because a person typed in it: they may do so as often as they like.
    Typed,
}

/// A write that is decided, and what is told about it if it succeeds.
struct Prepared {
    facts: Facts,
    commit: Commit,
    record: CommitRecord,
    output: ToolOutput,
}

/// A write on its way.
struct Attempt {
    before: FileState,
    after: Arc<[u8]>,
    facts: Facts,
    record: CommitRecord,
    output: ToolOutput,
}

/// All that a result text is made from, taken out of the gate so that making it holds no lock.
struct Facts {
    session: String,
    call_id: String,
    path: String,
    mode: ReviewMode,
    reviewed: bool,
    hunks: Vec<Settled>,
    success: String,
    details: Option<DetailsFn>,
    before: Arc<[u8]>,
    proposed: Arc<[u8]>,
    user_edited: bool,
    stop_on_reject: bool,
}

impl Facts {
    fn of(shared: &Shared, entry: &Entry) -> Option<Self> {
        let work = entry.work.as_ref()?;
        Some(Self {
            session: entry.session.clone(),
            call_id: entry.call_id.clone(),
            path: entry.path_given.clone(),
            mode: entry.mode,
            reviewed: entry.reviewed,
            hunks: work
                .pieces
                .iter()
                .map(|piece| Settled {
                    hunk: piece.hunk.clone(),
                    after: piece.after_range(),
                })
                .collect(),
            success: work.success.clone(),
            details: work.details.clone(),
            before: Arc::clone(&work.current.bytes),
            proposed: Arc::clone(&work.proposed),
            user_edited: work.user_edited,
            stop_on_reject: shared.stop_on_reject,
        })
    }

    /// What the model is told, for the text that was to be written and what is on disk.
    fn output(&self, after: &[u8], on_disk: &[u8]) -> ToolOutput {
        Settlement {
            path: &self.path,
            mode: self.mode,
            reviewed: self.reviewed,
            hunks: &self.hunks,
            success: &self.success,
            details: self.details.as_ref(),
            before: &self.before,
            after,
            on_disk,
            proposed: &self.proposed,
            user_edited: self.user_edited,
            stop_on_reject: self.stop_on_reject,
        }
        .output()
    }
}

/// Runs work that may take long off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, End> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| End::Failed(crashed(&error)))
}

impl Driver {
    /// Merges the accepted hunks onto the file as it is and writes, under the file's write lock.
    pub(super) async fn commit(&self, key: &Path) -> Result<Step, End> {
        let nothing = self.look(|entry| {
            entry.state = ProposalState::Applying;
            entry.count(HunkState::Accepted) == 0
        })?;
        self.shared.state.lock().changed(self.id);
        if nothing {
            return self.nothing_to_write().map(Step::End);
        }
        let _lock = self.shared.queue.write_lock(key).await;
        let mut rounds = 0;
        while rounds < MAX_ROUNDS {
            match self.round(key).await? {
                Round::Over(step) => return Ok(step),
                Round::Moved => rounds += 1,
                Round::Typed => {}
            }
        }
        let path = self.look(|entry| {
            entry.notice = None;
            if let Some(work) = &mut entry.work {
                for piece in &mut work.pieces {
                    if piece.hunk.state == HunkState::Accepted {
                        piece.before_stale = HunkState::Pending;
                        piece.hunk.state = HunkState::Stale;
                    }
                }
            }
            entry.path_given.clone()
        })?;
        Ok(Step::Again(
            format!("{path} keeps changing while it is written; decide again when it is quiet"),
            ToolError::new(ErrorClass::Stale, stale_text(&path)),
        ))
    }

    /// Every hunk was refused or given up, or there never was one.
    fn nothing_to_write(&self) -> Result<End, End> {
        let shared = &self.shared;
        self.look(|entry| {
            let all_stale = entry.work.as_ref().is_some_and(|work| {
                !work.pieces.is_empty()
                    && work
                        .pieces
                        .iter()
                        .all(|piece| piece.hunk.state == HunkState::Stale)
            });
            let unchanged = entry
                .work
                .as_ref()
                .map(|work| Arc::clone(&work.current.bytes))
                .unwrap_or_default();
            let output = Facts::of(shared, entry)
                .map(|facts| facts.output(&unchanged, &unchanged))
                .unwrap_or_default();
            let output = Box::new(output);
            if all_stale {
                End::Stale(output)
            } else {
                End::Done(output)
            }
        })
    }

    /// Merges onto the file as it is and writes.
    async fn round(&self, key: &Path) -> Result<Round, End> {
        let (tool, path) = self.look(|entry| (entry.tool, entry.path_given.clone()))?;
        let current = match self.shared.workspace.state(key).await {
            Ok(current) => current,
            Err(error) => {
                let error = io_error(tool, &path, Some(key), &error);
                return Ok(Round::Over(self.write_failed(key, error)?));
            }
        };
        self.shared.take_in(self.id, current).await;
        let stale = self.look(|entry| {
            entry.work.as_ref().map_or(0, |work| {
                work.pieces
                    .iter()
                    .filter(|piece| !piece.is_decided())
                    .count()
            })
        })?;
        if stale > 0 {
            return Ok(Round::Over(Step::Again(
                format!("{path} changed: {stale} hunk(s) are in conflict with what it says now"),
                ToolError::new(ErrorClass::Stale, stale_text(&path)),
            )));
        }
        let prepared = self.prepare(key).await?;
        crate::files::moment("record-stored");
        let attempt = Attempt {
            before: prepared.commit.base.clone(),
            after: Arc::clone(&prepared.commit.target),
            facts: prepared.facts,
            record: prepared.record,
            output: prepared.output,
        };
        let outcome = self.shared.workspace.commit(prepared.commit).await;
        let step = match outcome {
            CommitOutcome::Written { on_disk } => {
                crate::files::moment("file-written");
                self.written(attempt, on_disk).await?
            }
            CommitOutcome::Moved => {
                self.shared.forget(&attempt.record).await;
                return Ok(Round::Moved);
            }
            CommitOutcome::Typed => {
                self.shared.forget(&attempt.record).await;
                return Ok(Round::Typed);
            }
            CommitOutcome::Failed(error) => {
                self.shared.forget(&attempt.record).await;
                self.write_failed(key, io_error(tool, &path, Some(key), &error))?
            }
            CommitOutcome::Unknown => self.look_at_disk(key, attempt).await?,
        };
        Ok(Round::Over(step))
    }

    /// What is to be written, and the record of it. What the model is told if all goes well is written down before the
    /// write, because the program may not live to say it; so is the text from before.
    async fn prepare(&self, key: &Path) -> Result<Prepared, End> {
        let (facts, commit) = self
            .look(|entry| {
                let work = entry.work.as_mut()?;
                let Merged { target, edits } = work.merged();
                let commit = Commit {
                    path: key.to_owned(),
                    base: work.current.clone(),
                    target,
                    edits,
                    force: entry.force,
                };
                Some((Facts::of(&self.shared, entry)?, commit))
            })?
            .ok_or(End::Cancelled)?;
        let (keeper, is_call) = (self.shared.keeper(), self.is_call());
        let (prepared, kept) = blocking(move || {
            let output = facts.output(&commit.target, &commit.target);
            let record = CommitRecord {
                session: facts.session.clone(),
                call_id: facts.call_id.clone(),
                path_given: facts.path.clone(),
                path: commit.path.clone(),
                before: content_name(&commit.base),
                after: fingerprint(&commit.target),
                done: None,
                decisions: output
                    .details
                    .as_ref()
                    .and_then(|details| details.get("review"))
                    .cloned()
                    .unwrap_or_default(),
                result: KeptResult::of(&output),
            };
            let kept = keeper.keep(&commit.base, is_call.then_some(&record));
            let prepared = Prepared {
                facts,
                commit,
                record,
                output,
            };
            (prepared, kept)
        })
        .await?;
        self.shared.log_trouble(Ok(kept));
        Ok(prepared)
    }

    /// Whether a call waits for a result; what a person restores has none that could be left unanswered.
    fn is_call(&self) -> bool {
        self.by == "agent"
    }

    async fn written(&self, done: Attempt, on_disk: Arc<[u8]>) -> Result<Step, End> {
        let Attempt {
            before,
            after,
            facts,
            mut record,
            mut output,
        } = done;
        if on_disk != after {
            let after = Arc::clone(&after);
            let now = Arc::clone(&on_disk);
            output = blocking(move || facts.output(&after, &now)).await?;
            record.result = KeptResult::of(&output);
            record.done = Some(fingerprint(&on_disk));
        } else {
            record.done = Some(record.after.clone());
        }
        let text = Arc::clone(&on_disk);
        let path = self.look(|entry| {
            entry.written = Some(Written {
                before,
                after,
                on_disk,
            });
            entry.notice = None;
            entry.real_path.clone()
        })?;
        self.shared.store(record, self.is_call(), text).await;
        crate::files::moment("record-done");
        self.shared
            .state
            .lock()
            .emit(&ReviewEvent::FileWritten { path, by: self.by });
        Ok(Step::End(End::Done(Box::new(output))))
    }

    /// Nothing was written: accepted hunks are pending again and nothing is told to the model yet.
    fn write_failed(&self, key: &Path, error: ToolError) -> Result<Step, End> {
        let read_only = is_read_only(key);
        self.look(|entry| {
            for piece in entry.work.iter_mut().flat_map(|work| &mut work.pieces) {
                if piece.hunk.state == HunkState::Accepted {
                    piece.hunk.state = HunkState::Pending;
                    piece.retry = true;
                }
            }
            let hint = if read_only && !entry.force {
                "; it is read-only, write anyway?"
            } else {
                ""
            };
            Step::Again(format!("{}{hint}", error.message), error)
        })
    }

    /// The editor went away before it answered: the disk says what became of the write.
    async fn look_at_disk(&self, key: &Path, attempt: Attempt) -> Result<Step, End> {
        let key = key.to_owned();
        let now = tokio::task::spawn_blocking(move || read_state(&key))
            .await
            .map_err(|error| End::Failed(crashed(&error)))?;
        let path = attempt.record.path_given.clone();
        match now {
            Ok(now) if now.bytes == attempt.after && now.origin == Origin::Disk => {
                self.written(attempt, now.bytes).await
            }
            Ok(now) if content_name(&now) == attempt.record.before => {
                self.shared.forget(&attempt.record).await;
                Ok(Step::End(End::Failed(ToolError::new(
                    ErrorClass::Aborted,
                    format!("The editor closed before {path} was written; nothing was written."),
                ))))
            }
            _ => Ok(Step::End(End::Failed(ToolError::new(
                ErrorClass::Aborted,
                format!(
                    "The editor closed while {path} was being written, and the file is neither as before nor as proposed. Read {path} again before editing it."
                ),
            )))),
        }
    }
}

/// Where texts and records are kept, taken out of the gate for a blocking thread.
struct Keeper {
    checkpoints: Option<Checkpoints>,
    records: Option<Records>,
}

impl Keeper {
    /// Keeps the text from before a write and the record of it. Trouble does not stop the write: a state folder that cannot
    /// be written must not make every change impossible.
    fn keep(&self, before: &FileState, record: Option<&CommitRecord>) -> io::Result<()> {
        let text = self.checkpoints.as_ref();
        let text = text.map_or(Ok(()), |it| it.keep(&before.bytes).map(drop));
        let record = self.records.as_ref().zip(record);
        record.map_or(Ok(()), |(it, record)| it.write(record))?;
        text
    }

    /// Marks the record as done and notes the change for later.
    fn store(&self, done: CommitRecord, is_call: bool, text: &[u8]) -> io::Result<()> {
        if let (Some(records), true) = (&self.records, is_call) {
            records.mark_done(&done)?;
        }
        let change = KeptChange {
            call_id: done.call_id,
            path_given: done.path_given,
            path: done.path,
            before: done.before,
            // With what hooks made of it: all of that is taken back together.
            after: done.done.unwrap_or(done.after),
        };
        let checkpoints = self.checkpoints.as_ref();
        checkpoints.map_or(Ok(()), |it| it.note(&done.session, &change, text))
    }
}

impl Shared {
    fn keeper(&self) -> Keeper {
        Keeper {
            checkpoints: self.checkpoints.clone(),
            records: self.records.clone(),
        }
    }

    async fn store(&self, done: CommitRecord, is_call: bool, text: Arc<[u8]>) {
        let keeper = self.keeper();
        let stored = tokio::task::spawn_blocking(move || keeper.store(done, is_call, &text));
        self.log_trouble(stored.await);
    }

    async fn forget(&self, record: &CommitRecord) {
        let (records, record) = (self.records.clone(), record.clone());
        let dropped = tokio::task::spawn_blocking(move || {
            records.map_or(Ok(()), |records| {
                records.drop_record(&record.session, &record.call_id)
            })
        });
        self.log_trouble(dropped.await);
    }

    /// Logs each trouble; the person is told once, because what they rely on to go back is not kept.
    fn log_trouble(&self, outcome: Result<io::Result<()>, tokio::task::JoinError>) {
        let error = match outcome {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(error) => io::Error::other(error),
        };
        tracing::error!(%error, "the state folder cannot be written");
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.state_trouble_told, true) {
            let line = format!(
                "old texts of changes are not kept ({}): `:Pi restore` will not find them after a restart",
                describe(&error)
            );
            state.emit(&ReviewEvent::Said { line });
        }
    }
}
