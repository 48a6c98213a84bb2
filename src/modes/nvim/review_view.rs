//! The review as Neovim shows it: snapshots of proposals become drawing ops, keys become actions.
//!
//! Entry points: [`ReviewView::run`] follows the gate, [`ReviewView::take_ops`] gives what has to be drawn anew, and
//! [`ReviewView::message`] takes what a person did, one thing after the other. Invariant: nothing here decides anything; rows, words and texts come
//! from the gate's snapshots, decisions go to the gate.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::face::{Answering, Panel, Request};
use super::outbox::{Outbox, Source};
use super::workspace::EditorWorkspace;
use crate::review::gate::Gate;
use crate::review::merge;
use crate::review::{
    ApprovalAnswer, Hunk, HunkId, HunkState, Proposal, ProposalId, ProposalState, ReviewAction,
    ReviewEvent, ReviewMode,
};

mod approval;
mod digest;
mod model;
mod turns;
mod words;

pub use model::Limits;

/// What has to be told to Lua, in order.
enum Pending {
    /// The proposal as it is when the batch is made.
    Proposal(ProposalId),
    /// The proposal leaves the screen.
    Drop(ProposalId, Value),
    Op(Value),
}

#[derive(Default)]
struct State {
    pending: Vec<Pending>,
    /// Hunks of changes written without asking that the person has accepted, that is looked at.
    looked_at: HashSet<HunkId>,
    /// Hunks whose lines Lua has.
    known: HashMap<ProposalId, HashSet<HunkId>>,
    /// Running numbers of changes in their session.
    numbers: BTreeMap<ProposalId, usize>,
    counts: HashMap<String, usize>,
    names: HashMap<String, String>,
    /// Proposed texts that Lua was given to edit, by version, the last ones.
    given: HashMap<ProposalId, Given>,
}

/// Texts with their versions.
type Given = VecDeque<(u64, Arc<[u8]>)>;

/// Lua may still hold the text before the last one, when it changed just as that was sent.
const MAX_GIVEN: usize = 4;

/// Turns the gate's events into ops for `pi.review` and `pi.attention`.
pub struct ReviewView {
    gate: Gate,
    workspace: Arc<EditorWorkspace>,
    cwd: PathBuf,
    limits: Limits,
    outbox: Outbox,
    /// Itself, for the outbox to ask.
    me: Weak<Self>,
    turns: Arc<turns::Turns>,
    state: Mutex<State>,
}

/// A message of the Lua side that is not simply a [`ReviewAction`].
#[derive(Debug, Deserialize)]
#[serde(tag = "view", rename_all = "camelCase")]
enum ViewMessage {
    /// A buffer that was being typed in can be changed again.
    Ready {},
    /// A file's buffer changed, was loaded, or was written.
    Changed { path: PathBuf },
    /// The proposed text is wanted, with the base beside it or as an extract.
    Text {
        proposal: ProposalId,
        #[serde(default)]
        base: bool,
        #[serde(default)]
        plain: bool,
    },
    /// The person edited the proposed text in this buffer, and then did something.
    Taken {
        proposal: ProposalId,
        buf: i64,
        /// The version of the proposal whose text they edited.
        version: Option<u64>,
        next: Option<Next>,
    },
    /// An answer to a question.
    Answer { id: u64, answer: ApprovalAnswer },
}

/// What a message says.
enum Message {
    Act(ReviewAction),
    View(ViewMessage),
}

impl Message {
    fn parse(message: Value) -> Result<Self, String> {
        if message.get("view").is_none() {
            let action = serde_json::from_value(message)
                .map_err(|error| format!("a key of the review was not understood: {error}"))?;
            return Ok(Self::Act(action));
        }
        let message = serde_json::from_value(message)
            .map_err(|error| format!("a message of the review was not understood: {error}"))?;
        Ok(Self::View(message))
    }
}

fn done() -> Answering {
    Box::pin(std::future::ready(Ok(Value::Null)))
}

/// What to do once an edited proposal was taken over; hunks are named by their rows, since taking over makes new ones.
#[derive(Debug, Deserialize)]
struct Next {
    verb: Verb,
    #[serde(default)]
    from: usize,
    #[serde(default)]
    to: usize,
    note: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Verb {
    Accept,
    Reject,
    AcceptFile,
    RejectFile,
}

impl ReviewView {
    /// Shows `gate` through `outbox`; paths are shown relative to `cwd`.
    pub fn new(
        gate: Gate,
        workspace: Arc<EditorWorkspace>,
        cwd: &Path,
        outbox: Outbox,
        limits: Limits,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            gate,
            workspace,
            cwd: std::fs::canonicalize(cwd).unwrap_or_else(|_| cwd.to_owned()),
            outbox,
            limits,
            me: me.clone(),
            turns: Arc::default(),
            state: Mutex::default(),
        })
    }

    fn changed(&self) {
        if let Some(me) = self.me.upgrade() {
            self.outbox.dirty("review", me);
        }
    }

    /// Follows the gate until it is gone. What was open before is shown first.
    pub async fn run(self: Arc<Self>) {
        let mut events = self.gate.subscribe();
        self.show_all();
        while let Some(event) = events.recv().await {
            self.event(&event);
        }
    }

    /// Draws everything anew, as when an editor connects.
    pub fn show_all(&self) {
        let proposals = self.gate.proposals(None);
        {
            let mut state = self.state.lock();
            state.known.clear();
            state.pending.push(Pending::Op(mode_op(self.gate.mode())));
            for proposal in proposals.iter().filter(|it| is_shown(it)) {
                state.pending.push(Pending::Proposal(proposal.id));
            }
        }
        self.changed();
    }

    /// Gives a session the name the list shows.
    pub fn name_session(&self, session: &str, name: Option<&str>) {
        let mut state = self.state.lock();
        match name {
            Some(name) => state.names.insert(session.to_owned(), name.to_owned()),
            None => state.names.remove(session),
        };
    }

    /// Takes one event of the gate.
    pub fn event(&self, event: &ReviewEvent) {
        let pending = match event {
            ReviewEvent::Changed { proposal } => Some(Pending::Proposal(*proposal)),
            ReviewEvent::Decided {
                proposal,
                hunk,
                state,
                note,
            } => {
                let mut op = json!({
                    "op": "review.decided",
                    "proposal": proposal.0,
                    "hunk": hunk.0,
                    "state": model::hunk_state(*state),
                });
                if let Some(note) = note {
                    put(&mut op, "note", note.as_str());
                }
                Some(Pending::Op(op))
            }
            ReviewEvent::Settled {
                proposal,
                applied,
                rejected,
            } => self.settled(*proposal, *applied, *rejected),
            ReviewEvent::FileWritten { path, by } => Some(Pending::Op(json!({
                "op": "review.written",
                "path": path.display().to_string(),
                "by": by,
            }))),
            ReviewEvent::Approval { id, request } => Some(Pending::Op(approval::ask(*id, request))),
            ReviewEvent::ApprovalGone { id } => {
                Some(Pending::Op(json!({"op": "attention.gone", "id": id})))
            }
            ReviewEvent::Mode { mode } => Some(Pending::Op(mode_op(*mode))),
            ReviewEvent::Said { line } => Some(Pending::Op(say_op(line))),
            // The session delivers it to the model.
            ReviewEvent::ModelNote { .. } => None,
        };
        if let Some(pending) = pending {
            self.queue(pending);
        }
    }

    fn settled(&self, id: ProposalId, applied: usize, rejected: usize) -> Option<Pending> {
        let snapshot = self.gate.proposal(id);
        if snapshot.as_deref().is_some_and(|it| it.unreviewed) {
            return Some(Pending::Proposal(id));
        }
        let state = snapshot.map_or(ProposalState::Done, |it| it.state);
        Some(Pending::Drop(id, settled_op(id, state, applied, rejected)))
    }

    fn queue(&self, pending: Pending) {
        {
            let mut state = self.state.lock();
            let last = state.pending.last();
            let again = match (&pending, last) {
                (Pending::Proposal(id), Some(Pending::Proposal(last))) => id == last,
                _ => false,
            };
            if !again {
                state.pending.push(pending);
            }
        }
        self.changed();
    }

    /// Returns the ops that bring the screen up to date.
    pub fn take_ops(&self) -> Vec<Value> {
        let pending = std::mem::take(&mut self.state.lock().pending);
        let mut done = HashSet::new();
        let mut ops = Vec::new();
        for item in pending {
            match item {
                Pending::Op(op) => ops.push(op),
                Pending::Drop(id, op) => {
                    let mut state = self.state.lock();
                    state.known.remove(&id);
                    state.given.remove(&id);
                    ops.push(op);
                }
                Pending::Proposal(id) if done.insert(id) => ops.extend(self.proposal_op(id)),
                Pending::Proposal(_) => {}
            }
        }
        ops
    }

    fn proposal_op(&self, id: ProposalId) -> Option<Value> {
        let proposal = self.gate.proposal(id)?;
        if !is_shown(&proposal) {
            // Looked at, as a change that was written without asking; what is settled has its own op.
            let known = self.state.lock().known.remove(&id).is_some();
            return known.then(|| drop_op(&proposal));
        }
        let after = self.waits_for(&proposal);
        let mut state = self.state.lock();
        let number = state.number(&proposal);
        let after = after.map(|other| state.number(&other));
        let name = state.names.get(&proposal.session).cloned();
        let known = state.known.remove(&id).unwrap_or_default();
        let looked_at = &state.looked_at;
        let cx = model::Context {
            limits: self.limits,
            cwd: &self.cwd,
            number,
            after,
            session_name: name.as_deref(),
            looked_at: &|hunk: &Hunk| looked_at.contains(&hunk.id),
            known: &|hunk: &Hunk| known.contains(&hunk.id) && !hunk.edited,
        };
        let drawn = model::proposal(&proposal, &cx);
        let now = proposal.hunks.iter().map(|hunk| hunk.id).collect();
        state.known.insert(id, now);
        Some(json!({"op": "review.set", "proposal": drawn}))
    }

    fn waits_for(&self, proposal: &Proposal) -> Option<Arc<Proposal>> {
        if proposal.state != ProposalState::Waiting {
            return None;
        }
        let all = self.gate.proposals(None);
        all.into_iter().rev().find(|other| {
            other.id < proposal.id && other.real_path == proposal.real_path && is_pending(other)
        })
    }

    /// Carries out what the person did, in the order in which messages come. `Err` is one line to show.
    pub fn message(self: &Arc<Self>, message: Value) -> Answering {
        let message = match Message::parse(message) {
            Ok(Message::View(ViewMessage::Ready {})) => {
                // Frees a commit, which others may wait for: it never stands in line.
                self.workspace.ready_again();
                return done();
            }
            Ok(message) => message,
            Err(line) => return Box::pin(std::future::ready(Err(line))),
        };
        let turn = self.turns.take();
        if turn.is_now() {
            let Message::View(ViewMessage::Taken { .. }) = message else {
                self.carry_out(message);
                return done();
            };
        }
        let me = Arc::clone(self);
        Box::pin(async move {
            let _turn = turn.come().await;
            match message {
                Message::View(ViewMessage::Taken {
                    proposal,
                    buf,
                    version,
                    next,
                }) => me.take_over(proposal, buf, version, next).await?,
                message => me.carry_out(message),
            }
            Ok(Value::Null)
        })
    }

    /// Does what needs no waiting.
    fn carry_out(&self, message: Message) {
        match message {
            Message::Act(action) => self.act(action),
            Message::View(ViewMessage::Changed { path }) => self.gate.file_changed(&path),
            Message::View(ViewMessage::Text {
                proposal,
                base,
                plain,
            }) => self.text(proposal, base, plain),
            Message::View(ViewMessage::Answer { id, answer }) => self.gate.answer(id, answer),
            // These two are taken before.
            Message::View(ViewMessage::Ready {} | ViewMessage::Taken { .. }) => {}
        }
    }

    /// Lets the gate do it; what it says is shown in the message line.
    fn act(&self, action: ReviewAction) {
        // The screen shows these at the hunk itself; what was written already only leaves the screen.
        let quiet = match &action {
            ReviewAction::Accept { hunks, .. } => self.is_any_open(hunks),
            ReviewAction::Note { .. }
            | ReviewAction::Reject { .. }
            | ReviewAction::AcceptAll { .. } => true,
            _ => false,
        };
        if let ReviewAction::Accept { hunks, .. } = &action {
            self.state.lock().looked_at.extend(hunks);
        }
        let line = match self.gate.act(action) {
            Ok(_) if quiet => return,
            Ok(line) | Err(line) => line,
        };
        if !line.is_empty() {
            self.queue(Pending::Op(say_op(&line)));
        }
    }

    fn is_any_open(&self, hunks: &[HunkId]) -> bool {
        let open = self.gate.proposals(None).into_iter();
        open.filter(|it| it.state == ProposalState::Open)
            .any(|it| it.hunks.iter().any(|hunk| hunks.contains(&hunk.id)))
    }

    fn text(&self, id: ProposalId, with_base: bool, plain: bool) {
        let Some(proposal) = self.gate.proposal(id) else {
            return;
        };
        let view = model::View::of(&proposal, self.limits);
        let mut op = json!({"op": "review.text", "id": id.0, "version": proposal.version});
        if view == model::View::Digest || (plain && !with_base) {
            let digest = digest::digest(&proposal);
            put(&mut op, "editable", false);
            put(&mut op, "lines", digest.lines);
            put(&mut op, "rows", digest.rows);
        } else {
            self.state.lock().gave(&proposal);
            put(&mut op, "editable", proposal.state == ProposalState::Open);
            put(
                &mut op,
                "lines",
                model::text_lines(model::target_bytes(&proposal)),
            );
        }
        if with_base {
            put(
                &mut op,
                "base",
                model::text_lines(model::base_bytes(&proposal)),
            );
        }
        self.queue(Pending::Op(op));
    }

    async fn take_over(
        &self,
        id: ProposalId,
        buf: i64,
        version: Option<u64>,
        next: Option<Next>,
    ) -> Result<(), String> {
        let taken = self.take_text(id, buf, version).await;
        let op = json!({"op": "review.taken", "id": id.0, "ok": taken.is_ok()});
        self.queue(Pending::Op(op));
        taken?;
        if let Some(next) = next {
            let action = self.next_action(id, next);
            self.act(action.ok_or("this proposal is settled already")?);
        }
        Ok(())
    }

    /// Makes the text of a proposal's buffer the proposed one. What became of the file since the person was given that
    /// text is no edit of theirs.
    async fn take_text(
        &self,
        id: ProposalId,
        buf: i64,
        version: Option<u64>,
    ) -> Result<(), String> {
        let lines = self.workspace.buffer_bytes(buf).await;
        let lines = lines.map_err(|error| format!("read the edited proposal: {error}"))?;
        let proposal = self
            .gate
            .proposal(id)
            .ok_or("this proposal is settled already")?;
        let now = proposal.target.clone().unwrap_or_else(|| Arc::from([]));
        let given = self.state.lock().given(id, version);
        let given = given.unwrap_or_else(|| Arc::clone(&now));
        let edited = model::from_buffer(&lines, &given);
        let target = if given == now {
            edited
        } else {
            merge::carry_over(&given, &edited, &now).ok_or_else(|| {
                format!(
                    "{} changed where you edited its proposal; your version is kept in the buffer, `:e!` shows the new one",
                    model::display(&proposal.path, &self.cwd)
                )
            })?
        };
        if target != now.as_ref() {
            self.act(ReviewAction::EditTarget {
                proposal: id,
                target,
            });
        }
        Ok(())
    }

    fn next_action(&self, id: ProposalId, next: Next) -> Option<ReviewAction> {
        let proposal = self.gate.proposal(id)?;
        let touched = proposal.hunks.iter().filter(|hunk| {
            let last = hunk.new_start + hunk.new.len().max(1) - 1;
            hunk.new_start <= next.to && next.from <= last
        });
        let hunks = touched.map(|hunk| hunk.id).collect();
        let note = next.note;
        Some(match next.verb {
            Verb::Accept => ReviewAction::Accept { hunks, note },
            Verb::Reject => ReviewAction::Reject { hunks, note },
            Verb::AcceptFile => ReviewAction::AcceptFile { proposal: id },
            Verb::RejectFile => ReviewAction::RejectFile { proposal: id, note },
        })
    }
}

impl Source for ReviewView {
    fn take(&self) -> Vec<Value> {
        self.take_ops()
    }
}

impl Panel for ReviewView {
    fn request(&self, request: Request) -> Answering {
        match self.me.upgrade() {
            Some(me) => me.message(request.params),
            None => done(),
        }
    }
}

impl State {
    fn gave(&mut self, proposal: &Proposal) {
        let texts = self.given.entry(proposal.id).or_default();
        if texts
            .back()
            .is_none_or(|(version, _)| *version != proposal.version)
        {
            texts.push_back((
                proposal.version,
                proposal.target.clone().unwrap_or_default(),
            ));
        }
        while texts.len() > MAX_GIVEN {
            texts.pop_front();
        }
    }

    /// The text of that version. Of one that is not known any more, the oldest that is.
    fn given(&self, id: ProposalId, version: Option<u64>) -> Option<Arc<[u8]>> {
        let texts = self.given.get(&id)?;
        let same = texts.iter().find(|(known, _)| Some(*known) == version);
        same.or(texts.front()).map(|(_, text)| Arc::clone(text))
    }

    fn number(&mut self, proposal: &Proposal) -> usize {
        if let Some(number) = self.numbers.get(&proposal.id) {
            return *number;
        }
        let count = self.counts.entry(proposal.session.clone()).or_default();
        *count += 1;
        self.numbers.insert(proposal.id, *count);
        *count
    }
}

fn settled_op(id: ProposalId, state: ProposalState, applied: usize, rejected: usize) -> Value {
    json!({
        "op": "review.drop",
        "id": id.0,
        "state": model::state(state),
        "applied": applied,
        "rejected": rejected,
    })
}

fn say_op(line: &str) -> Value {
    json!({"op": "review.say", "level": "line", "line": line})
}

fn drop_op(proposal: &Proposal) -> Value {
    let count = |state| {
        let hunks = proposal.hunks.iter();
        hunks.filter(|hunk| hunk.state == state).count()
    };
    let (applied, rejected) = (count(HunkState::Accepted), count(HunkState::Rejected));
    settled_op(proposal.id, proposal.state, applied, rejected)
}

fn is_pending(proposal: &Proposal) -> bool {
    match proposal.state {
        ProposalState::Waiting | ProposalState::Open | ProposalState::Applying => true,
        ProposalState::Done | ProposalState::Failed | ProposalState::Cancelled => false,
    }
}

/// Whether a proposal belongs on the screen.
fn is_shown(proposal: &Proposal) -> bool {
    is_pending(proposal) || proposal.unreviewed
}

/// Adds a field to an op.
fn put(op: &mut Value, key: &str, value: impl Into<Value>) {
    if let Value::Object(map) = op {
        map.insert(key.to_owned(), value.into());
    }
}

fn mode_op(mode: ReviewMode) -> Value {
    json!({"op": "review.mode", "mode": mode})
}
