//! The gate: every proposal, its decisions, and the one path to the disk.
//!
//! Entry points: [`Gate::submit`] for tools, [`Gate::act`] for faces. Each proposal is carried on by a task of its own
//! (`drive`), which waits for its place in the file's line, plans, waits for decisions and commits; what a person does
//! only changes states under a short lock and wakes that task. Invariants: nothing but a commit and an undo writes; while
//! a proposal is being written nothing can be decided about it; no lock is held while a person thinks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::records::{Checkpoints, KeptChange, Records};
use super::{
    ApprovalAnswer, ApprovalRequest, Change, ChangeResult, Proposal, ProposalId, ProposalState,
    ReviewAction, ReviewEvent, ReviewMode,
};
use crate::agent::{ToolError, ToolOutput};
use crate::files::state::StateDir;
use crate::workspace::Workspace;
use crate::workspace::queue::{Caller, MutationQueue};

mod act;
mod approve;
mod commands;
mod commit;
mod drive;
mod entry;
mod policy;
mod restore;
mod undo;

pub use commands::Watch;
use entry::Entry;
pub use policy::{Rule, RuleScope};
pub use restore::RESTORED;

/// Settled proposals that are kept for the list and for undo; older ones are forgotten (their texts stay in the
/// checkpoints).
const MAX_SETTLED: usize = 500;

/// Texts of settled proposals that are held in memory.
const MAX_SETTLED_BYTES: usize = 256 * 1024 * 1024;

/// Texts from before changes that are kept on disk, and for how long.
const MAX_CHECKPOINT_BYTES: u64 = 512 * 1024 * 1024;
const MAX_CHECKPOINT_AGE: Duration = Duration::from_secs(90 * 24 * 3_600);

/// Who decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reviewer {
    /// A person at a face that can show hunks.
    Person,
    /// Nobody: everything is written at once, as in Pi.
    #[default]
    AutoAccept,
    /// Nobody: every change is refused.
    Reject,
}

/// What a gate is made of.
#[derive(Clone)]
pub struct GateConfig {
    /// Files.
    pub workspace: Arc<dyn Workspace>,
    /// The line of each file; one for the whole process.
    pub queue: MutationQueue,
    /// Where commit records and checkpoints are kept; `None` keeps none.
    pub state_dir: Option<PathBuf>,
    /// Who decides.
    pub reviewer: Reviewer,
    /// When a person is asked.
    pub mode: ReviewMode,
    /// Rules before the mode; the first that matches wins.
    pub rules: Vec<Rule>,
    /// The project; paths outside ask in every mode but `off`.
    pub cwd: PathBuf,
    /// Hunks with at most this many equal lines between them are one.
    pub join: usize,
    /// Whether a rejection without a reason ends the run (`review.on_reject = "stop"`).
    pub stop_on_reject: bool,
}

impl GateConfig {
    /// A gate that accepts everything and keeps no state.
    pub fn new(workspace: Arc<dyn Workspace>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            workspace,
            queue: MutationQueue::default(),
            state_dir: None,
            reviewer: Reviewer::default(),
            mode: ReviewMode::default(),
            rules: Vec::new(),
            cwd: cwd.into(),
            join: super::hunks::DEFAULT_JOIN,
            stop_on_reject: false,
        }
    }
}

/// Holds proposals, the queue, the decision log and the policy; one per process, shared by all sessions.
#[derive(Clone)]
pub struct Gate {
    shared: Arc<Shared>,
}

struct Shared {
    workspace: Arc<dyn Workspace>,
    queue: MutationQueue,
    records: Option<Records>,
    checkpoints: Option<Checkpoints>,
    /// With symbolic links resolved.
    cwd: PathBuf,
    join: usize,
    stop_on_reject: bool,
    state: Mutex<State>,
}

struct State {
    reviewer: Reviewer,
    mode: ReviewMode,
    rules: Vec<Rule>,
    grants: policy::Grants,
    entries: BTreeMap<ProposalId, Entry>,
    log: Vec<act::LogItem>,
    /// Files that are being looked at because they changed; an undo waits for what these find.
    looks: Vec<undo::Look>,
    /// Files whose changes by commands are noticed.
    known: commands::Known,
    questions: BTreeMap<u64, approve::Question>,
    /// The person knows that the state folder cannot be written.
    state_trouble_told: bool,
    listeners: Vec<mpsc::UnboundedSender<ReviewEvent>>,
    next_id: u64,
    next_hunk: u64,
}

impl Gate {
    /// Makes a gate.
    pub fn new(config: GateConfig) -> Self {
        let cwd = std::fs::canonicalize(&config.cwd).unwrap_or(config.cwd);
        let state_dir = config.state_dir.as_deref();
        if let Some(state_dir) = state_dir {
            trim_in_the_background(state_dir);
        }
        Self {
            shared: Arc::new(Shared {
                workspace: config.workspace,
                queue: config.queue,
                records: state_dir.map(Records::new),
                checkpoints: state_dir.map(Checkpoints::new),
                cwd,
                join: config.join,
                stop_on_reject: config.stop_on_reject,
                state: Mutex::new(State {
                    reviewer: config.reviewer,
                    mode: config.mode,
                    rules: config.rules,
                    grants: policy::Grants::default(),
                    entries: BTreeMap::new(),
                    log: Vec::new(),
                    looks: Vec::new(),
                    known: commands::Known::default(),
                    questions: BTreeMap::new(),
                    state_trouble_told: false,
                    listeners: Vec::new(),
                    next_id: 0,
                    next_hunk: 0,
                }),
            }),
        }
    }

    /// Takes the change's place in the queue of its file *before returning*; the future reads, plans, reviews, writes
    /// and gives the result text. Must be called inside a tokio runtime. Dropping the future cancels the change; one
    /// that is being written is still written.
    pub fn submit(&self, change: Change) -> BoxFuture<'static, ChangeResult> {
        let caller = Caller {
            session: change.session.clone(),
            call_id: change.call_id.clone(),
            ancestors: change.ancestors,
        };
        let cancel = change.cancel.child_token();
        let ticket = self.shared.queue.enter(caller, &change.path);
        let id = {
            let mut state = self.shared.state.lock();
            state.next_id += 1;
            let id = ProposalId(state.next_id);
            let mode = state.mode;
            state.entries.insert(
                id,
                Entry {
                    id,
                    session: change.session,
                    call_id: change.call_id,
                    tool: change.tool,
                    path_given: change.path_given,
                    real_path: change.path.clone(),
                    path: change.path,
                    state: ProposalState::Waiting,
                    version: 0,
                    notice: None,
                    unreviewed: false,
                    reviewed: false,
                    mode,
                    work: None,
                    refused: None,
                    force: false,
                    written: None,
                    wake: Arc::new(Notify::new()),
                    cancel: cancel.clone(),
                    settled: CancellationToken::new(),
                    snapshot: None,
                },
            );
            state.changed(id);
            id
        };
        let task = tokio::spawn(drive::carry(
            Arc::clone(&self.shared),
            id,
            change.plan,
            ticket,
        ));
        let guard = cancel.drop_guard();
        Box::pin(async move {
            let result = task.await;
            guard.disarm();
            result.unwrap_or_else(|error| Err(drive::crashed(&error)))
        })
    }

    /// Asks whether a command may run, by mode, grants and, if need be, the person. `Ok` = run it.
    pub fn approve(
        &self,
        request: ApprovalRequest,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<(), ToolError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.approve(request, cancel).await })
    }

    /// Notes that a tool read a file: when a command changes it, that is listed.
    pub fn read_by_tool(&self, real_path: PathBuf) {
        self.shared.state.lock().known.add(real_path);
    }

    /// Looks at the files that are known before a command runs; `None` when nobody would look at what it changes.
    pub fn before_command(&self) -> BoxFuture<'static, Option<Watch>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { commands::before(&shared).await })
    }

    /// Lists what a command changed of them as written and not looked at.
    pub fn after_command(
        &self,
        watch: Watch,
        session: &str,
        call_id: &str,
    ) -> BoxFuture<'static, ()> {
        let shared = Arc::clone(&self.shared);
        let (session, call_id) = (session.to_owned(), call_id.to_owned());
        Box::pin(async move { commands::after(&shared, watch, &session, &call_id).await })
    }

    /// Answers a question.
    pub fn answer(&self, id: u64, answer: ApprovalAnswer) {
        self.shared.state.lock().answer(id, answer);
    }

    /// Carries out what a person did; returns one line to show, or one line why it could not be done. What writes (an
    /// undo after the commit) goes on in the background and shows its end in the proposal.
    ///
    /// # Errors
    /// One line why it could not be done.
    pub fn act(&self, action: ReviewAction) -> Result<String, String> {
        Shared::act(&self.shared, action)
    }

    /// Returns a snapshot.
    pub fn proposal(&self, id: ProposalId) -> Option<Arc<Proposal>> {
        let mut state = self.shared.state.lock();
        state.entries.get_mut(&id).map(Entry::snapshot)
    }

    /// Returns all proposals of a session (all sessions when `None`), oldest first.
    pub fn proposals(&self, session: Option<&str>) -> Vec<Arc<Proposal>> {
        let mut state = self.shared.state.lock();
        state
            .entries
            .values_mut()
            .filter(|entry| session.is_none_or(|session| entry.session == session))
            .map(Entry::snapshot)
            .collect()
    }

    /// Returns the questions that wait for an answer.
    pub fn questions(&self, session: Option<&str>) -> Vec<(u64, ApprovalRequest)> {
        self.shared.state.lock().open_questions(session)
    }

    /// Returns the mode.
    pub fn mode(&self) -> ReviewMode {
        let state = self.shared.state.lock();
        match state.reviewer {
            Reviewer::Person => state.mode,
            Reviewer::AutoAccept => ReviewMode::Auto,
            Reviewer::Reject => ReviewMode::Readonly,
        }
    }

    /// Whether a person decides now: calls that can see files then wait for earlier changes of the same response.
    pub fn asks(&self) -> bool {
        let state = self.shared.state.lock();
        state.reviewer == Reviewer::Person && state.mode != ReviewMode::Off
    }

    /// Says who decides from now on, as when an editor connects.
    pub fn set_reviewer(&self, reviewer: Reviewer) {
        self.shared.state.lock().reviewer = reviewer;
    }

    /// Replaces the rules before the mode.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        self.shared.state.lock().rules = rules;
    }

    /// Subscribes to what happens from now on. The channel is unbounded because events are a few words each and name
    /// what changed; snapshots are pulled.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<ReviewEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.shared.state.lock().listeners.push(sender);
        receiver
    }

    /// Tells the gate that a file or buffer changed: open proposals on it are merged again and get new rows, and written
    /// hunks whose lines are back at their old text count as reverted.
    pub fn file_changed(&self, path: &Path) {
        undo::file_changed(&self.shared, path, undo::By::Person);
    }

    /// Tells the gate that a run ended: what was granted until then is over.
    pub fn run_ended(&self, session: &str) {
        self.shared.state.lock().grants.run_ended(session);
    }

    /// Ends all proposals and questions of a session (all when `None`) as cancelled; one being written is awaited.
    pub fn cancel<'a>(&'a self, session: Option<&'a str>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let waits = self.shared.state.lock().cancel(session);
            for settled in waits {
                settled.cancelled().await;
            }
        })
    }

    /// Returns the true result of a call that was never answered, when a write was about to happen or had happened. The
    /// session asks on load.
    pub fn recall(&self, session: &str, call_id: &str) -> Option<ToolOutput> {
        let records = self.shared.records.as_ref()?;
        records.look_up(session, call_id)
    }

    /// Returns the changes that a session has written, oldest first, also those from before a restart.
    pub fn changes(&self, session: &str) -> Vec<KeptChange> {
        let checkpoints = self.shared.checkpoints.as_ref();
        checkpoints.map_or_else(Vec::new, |checkpoints| checkpoints.changes(session))
    }

    /// Returns a text that a change names.
    pub fn kept_text(&self, name: &str) -> Option<Vec<u8>> {
        self.shared.checkpoints.as_ref()?.kept(name)
    }

    /// Proposes to put back what these calls of a session changed: an ordinary review, outside the queue. What was changed
    /// since stays as it is. Gives one line to show.
    pub fn restore(
        &self,
        session: &str,
        calls: &[String],
    ) -> BoxFuture<'static, Result<String, String>> {
        let shared = Arc::clone(&self.shared);
        let (session, calls) = (session.to_owned(), calls.to_vec());
        Box::pin(async move { restore::restore(&shared, session, calls).await })
    }

    /// Drops the record of a call whose result is in the session file.
    pub fn drop_record(&self, session: &str, call_id: &str) {
        let Some(records) = &self.shared.records else {
            return;
        };
        if let Err(error) = records.drop_record(session, call_id) {
            // The record stays and is asked for only if the call is found unanswered, which it is not.
            tracing::warn!(%error, call_id, "a commit record could not be removed");
        }
    }
}

/// Old checkpoints, and records nobody came back for, go at the start. Nothing waits for it.
fn trim_in_the_background(state_dir: &Path) {
    let dirs = ["checkpoints", "commits"].map(|name| StateDir::new(state_dir.join(name)));
    std::thread::spawn(move || {
        for dir in dirs {
            dir.trim(MAX_CHECKPOINT_BYTES, MAX_CHECKPOINT_AGE);
        }
    });
}

impl State {
    fn emit(&mut self, event: &ReviewEvent) {
        if let ReviewEvent::FileWritten { path, .. } = event {
            self.known.wrote(path);
        }
        self.listeners
            .retain(|listener| listener.send(event.clone()).is_ok());
    }

    /// Counts a proposal's version up and says that it changed.
    fn changed(&mut self, id: ProposalId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.touch();
            self.emit(&ReviewEvent::Changed { proposal: id });
        }
    }

    /// Fires the tokens of a session and gives those to wait for.
    fn cancel(&mut self, session: Option<&str>) -> Vec<CancellationToken> {
        let ours = |name: &str| session.is_none_or(|session| session == name);
        let waits = self
            .entries
            .values()
            .filter(|entry| !entry.is_settled() && ours(&entry.session))
            .map(|entry| {
                entry.cancel.cancel();
                entry.settled.clone()
            })
            .collect();
        self.drop_questions(session);
        waits
    }

    /// Forgets the oldest settled proposals beyond what is kept.
    fn prune(&mut self) {
        let settled: Vec<_> = self
            .entries
            .values()
            .filter(|entry| entry.is_settled())
            .map(|entry| entry.id)
            .collect();
        let keep = match self.reviewer {
            Reviewer::Person => MAX_SETTLED,
            // Nobody looks back; the texts are not held in memory.
            Reviewer::AutoAccept | Reviewer::Reject => 0,
        };
        let mut held = 0;
        for (newer, id) in settled.iter().rev().enumerate() {
            held += self.entries.get(id).map_or(0, Entry::texts_len);
            if newer >= keep || (newer > 0 && held > MAX_SETTLED_BYTES) {
                self.entries.remove(id);
            }
        }
    }
}
