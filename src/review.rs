//! Review before write: proposals, hunks, decisions, and the gate that holds them.
//!
//! A tool never writes. It hands a [`Change`] to the [`gate::Gate`], which takes a place in the per-file queue, reads the
//! base at the head of the queue, lets the tool compute the target, splits the difference into [`Hunk`]s, waits for
//! decisions, and only then commits. Entry points: [`gate::Gate`], [`Proposal`]. Invariant: nothing here draws, and
//! nothing but the gate writes a project file.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::agent::{ToolError, ToolOutput};
use crate::workspace::FileState;

pub mod gate;
pub mod hunks;
pub mod merge;
pub mod records;
pub mod report;

/// Names a proposal for the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProposalId(pub u64);

/// Names a hunk for the life of the process; splitting a hunk makes new ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HunkId(pub u64);

/// Which tool proposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeTool {
    /// Replacements inside a file.
    Edit,
    /// A whole file.
    Write,
    /// A command that changed the file by itself; never proposed, only listed afterwards.
    Bash,
}

/// What a tool wants to do to one file. The target is computed only at the head of the queue.
pub struct Change {
    /// Session the call belongs to.
    pub session: String,
    /// Id of the tool call.
    pub call_id: String,
    /// Which tool.
    pub tool: ChangeTool,
    /// Path as the model gave it; used in messages to the model.
    pub path_given: String,
    /// Absolute normalised path, symlinks not resolved.
    pub path: PathBuf,
    /// Computes the target from the base. Runs once, off the async threads.
    pub plan: PlanFn,
    /// Fires when the run is aborted.
    pub cancel: CancellationToken,
    /// Calls that this one was made by; a file one of them holds is an error, not a wait.
    pub ancestors: Vec<String>,
}

/// Computes the target of a change from the file as it is at the head of the queue.
pub type PlanFn = Box<dyn FnOnce(&FileState) -> Result<Planned, ToolError> + Send>;

/// What a tool computed from the base.
pub struct Planned {
    /// The proposed bytes.
    pub target: Arc<[u8]>,
    /// Success text of the tool, as for an unreviewed change.
    pub success: String,
    /// Makes `details` (`diff`, `patch`, `firstChangedLine`) for a write from these bytes to those; absent for tools
    /// without details. Called with what was really written.
    pub details: Option<DetailsFn>,
    /// Per hunk of the target, which edits of the call made it is derived from these: line ranges of the target, one an
    /// edit, in request order. Empty for `write`.
    pub edit_lines: Vec<std::ops::Range<usize>>,
}

/// Computes result details from the bytes before and after a write.
pub type DetailsFn = Arc<dyn Fn(&[u8], &[u8]) -> Option<Value> + Send + Sync>;

/// State of a proposal (`architecture.md`, table *state × event*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProposalState {
    /// Behind another proposal for the same file; base and target are not computed yet.
    Waiting,
    /// A person decides.
    Open,
    /// Being written.
    Applying,
    /// Settled; what was accepted is written.
    Done,
    /// An error nobody decided.
    Failed,
    /// Ended without a decision; nothing written.
    Cancelled,
}

/// State of a hunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HunkState {
    /// Undecided.
    Pending,
    /// Will be, or is, written.
    Accepted,
    /// Will not be written.
    Rejected,
    /// In conflict with what the file says now.
    Stale,
    /// Was written and taken back.
    Reverted,
}

/// One contiguous change: the unit of accepting and rejecting. Lines are bytes with their endings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// Id.
    pub id: HunkId,
    /// Position among the hunks of its proposal, from 0.
    pub index: usize,
    /// First base line it replaces, from 0; for a pure insertion the line it stands before.
    pub base_start: usize,
    /// First line in the target, from 0.
    pub new_start: usize,
    /// Where it stands in the file as it is now (row of `old` in the buffer or on disk), moved by later changes.
    pub row: usize,
    /// Replaced lines.
    pub old: Vec<Vec<u8>>,
    /// New lines.
    pub new: Vec<Vec<u8>>,
    /// Edits of the call it comes from (0-based), empty for `write`.
    pub edits: Vec<usize>,
    /// State.
    pub state: HunkState,
    /// What the person says about it, for the model.
    pub note: Option<String>,
    /// Whether the person changed the proposed text here.
    pub edited: bool,
    /// `CRLF → LF`, `whitespace`, `adds final newline` and the like.
    pub label: Option<String>,
}

/// A snapshot of a proposal, for faces. Core keeps the truth; a snapshot never changes.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// Id.
    pub id: ProposalId,
    /// Grows with every change of this proposal.
    pub version: u64,
    /// Session.
    pub session: String,
    /// Tool call.
    pub call_id: String,
    /// Tool.
    pub tool: ChangeTool,
    /// Path as the model gave it.
    pub path_given: String,
    /// Absolute path, symlinks not resolved; the real path is in `real_path`.
    pub path: PathBuf,
    /// What the queue goes by.
    pub real_path: PathBuf,
    /// State.
    pub state: ProposalState,
    /// The file as read at the head of the queue (re-read when it moved); `None` while waiting.
    pub base: Option<FileState>,
    /// The proposed bytes; `None` while waiting.
    pub target: Option<Arc<[u8]>>,
    /// Hunks in order.
    pub hunks: Vec<Hunk>,
    /// One line for the person: why it is open again, read-only, unsaved changes and the like.
    pub notice: Option<String>,
    /// Written without a person's decision (`auto`), still to be looked at.
    pub unreviewed: bool,
}

/// What a person does in a review. Every face turns its keys into these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "camelCase")]
#[expect(missing_docs, reason = "the fields repeat the types above")]
pub enum ReviewAction {
    /// Accept these hunks.
    Accept {
        hunks: Vec<HunkId>,
        note: Option<String>,
    },
    /// Reject these hunks; the note is the reason.
    Reject {
        hunks: Vec<HunkId>,
        note: Option<String>,
    },
    /// Accept only lines `from..to` (0-based, of the target) of one hunk, the rest stays pending: the hunk is split.
    AcceptLines {
        hunk: HunkId,
        from: usize,
        to: usize,
    },
    /// Reject only those lines.
    RejectLines {
        hunk: HunkId,
        from: usize,
        to: usize,
    },
    /// Accept what is pending in this proposal.
    AcceptFile { proposal: ProposalId },
    /// Reject what is pending in this proposal.
    RejectFile {
        proposal: ProposalId,
        note: Option<String>,
    },
    /// Accept every hunk that is open at this moment (not of waiting proposals).
    AcceptAll { session: Option<String> },
    /// Reject everything pending, open and waiting; the note is the reason.
    RejectAll {
        session: Option<String>,
        note: Option<String>,
    },
    /// Attach a note to a hunk, or take it away.
    Note { hunk: HunkId, note: Option<String> },
    /// The person changed the proposed text.
    EditTarget {
        proposal: ProposalId,
        target: Vec<u8>,
    },
    /// Take back the last decision (repeatable).
    Undo { session: Option<String> },
    /// Give up stale hunks: reported to the model as stale.
    DropStale { proposal: ProposalId },
    /// Write although the file is read-only.
    Force { proposal: ProposalId },
    /// Change the mode.
    SetMode { mode: ReviewMode },
    /// Until the run ends accept changes of this file / everything / everything in this session.
    Grant {
        scope: GrantScope,
        session: String,
        path: Option<PathBuf>,
    },
}

/// Scope of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GrantScope {
    /// This file until the run ends.
    FileForRun,
    /// Everything until the run ends.
    Run,
    /// Everything in this session.
    Session,
}

/// When to ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReviewMode {
    /// A person decides before each write; every bash call asks.
    #[default]
    Ask,
    /// Written at once, listed as unreviewed.
    Auto,
    /// Edits are refused, bash asks.
    Readonly,
    /// Written at once.
    Off,
}

/// A question about a command, before it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// Session.
    pub session: String,
    /// Tool call.
    pub call_id: String,
    /// Tool name (`bash`).
    pub tool: String,
    /// The exact command.
    pub command: String,
}

/// The answer to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "camelCase")]
pub enum ApprovalAnswer {
    /// This exact command, once.
    Once,
    /// Every simple command that begins with these words, for the session.
    Prefix {
        /// Leading words.
        prefix: String,
    },
    /// Not; the reason goes to the model.
    Refused {
        /// Why.
        reason: Option<String>,
    },
}

/// What the gate tells faces. Events carry ids; the snapshot is pulled with [`gate::Gate::proposal`].
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields repeat the types above")]
pub enum ReviewEvent {
    /// A proposal is new or changed in any way (state, hunks, rows, notice).
    Changed { proposal: ProposalId },
    /// A hunk was decided.
    Decided {
        proposal: ProposalId,
        hunk: HunkId,
        state: HunkState,
        note: Option<String>,
    },
    /// A proposal settled (done, failed or cancelled).
    Settled {
        proposal: ProposalId,
        applied: usize,
        rejected: usize,
    },
    /// A file was written: `agent`, `undo` or `restore`.
    FileWritten { path: PathBuf, by: &'static str },
    /// A command waits for an answer. `id` goes into [`gate::Gate::answer`].
    Approval { id: u64, request: ApprovalRequest },
    /// That question is gone (answered or cancelled).
    ApprovalGone { id: u64 },
    /// A note for the model came up outside a call (a revert); the session delivers it at the next turn boundary.
    ModelNote { session: String, text: String },
    /// One line for the person: how something ended that no answer can tell any more.
    Said { line: String },
    /// The mode changed.
    Mode { mode: ReviewMode },
}

/// A settled change as the tool returns it.
pub type ChangeResult = Result<ToolOutput, ToolError>;
