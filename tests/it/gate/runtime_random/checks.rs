//! What must hold after a random session: one story told by the session file, the files, the decisions and the notes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

use pi_nvim::agent::ToolOutput;
use pi_nvim::ai::Message;
use pi_nvim::ai::message::ToolCall;
use pi_nvim::review::records::KeptChange;
use pi_nvim::review::{Hunk, HunkState, Proposal, ProposalState, ReviewEvent};
use pi_nvim::session::protocol::{Event, NoticeLevel};
use pi_nvim::session::store::Session;
use serde_json::Value;

use super::super::desk::text_of;
use super::fakes::{is_broken, read_session};
use super::{FILES, NOTE_TYPE, World};

/// A call with its result: text, whether it failed, the call, the proposal.
type Answered<'a> = (String, bool, &'a ToolCall, Option<&'a Arc<Proposal>>);

/// What was told to a face.
#[derive(Default)]
pub(super) struct Told {
    pub(super) entries: Vec<String>,
    pub(super) running: BTreeMap<String, i64>,
    pub(super) settled: usize,
    pub(super) notes: Vec<String>,
    /// Writes by who made them.
    pub(super) written: BTreeMap<&'static str, usize>,
}

impl Told {
    pub(super) fn hear(&mut self, event: &Event) {
        match event {
            Event::MessageEnd { entry, .. } => {
                self.entries.push(entry.clone().expect("stored"));
            }
            Event::ToolStart { call_id, .. } => {
                *self.running.entry(call_id.clone()).or_default() += 1;
            }
            Event::ToolEnd { call_id, .. } => {
                *self.running.entry(call_id.clone()).or_default() -= 1;
            }
            Event::AgentSettled { .. } => self.settled += 1,
            Event::Notice { level, text } => {
                assert_ne!(*level, NoticeLevel::Error, "{text}");
            }
            Event::Review(ReviewEvent::ModelNote { text, .. }) => self.notes.push(text.clone()),
            Event::Review(ReviewEvent::FileWritten { by, .. }) => {
                *self.written.entry(by).or_default() += 1;
            }
            _ => {}
        }
    }
}

impl World {
    pub(super) async fn check(&self) {
        let troubles = std::mem::take(&mut *self.troubles.lock());
        assert_eq!(troubles.first(), None);
        let proposals = self.desk.gate.proposals(None);
        for it in &proposals {
            let is_settled = matches!(
                it.state,
                ProposalState::Done | ProposalState::Failed | ProposalState::Cancelled
            );
            assert!(is_settled, "{it:?}");
        }
        let commits = self.desk.outside().join("state/commits");
        let records: Vec<_> = std::fs::read_dir(commits)
            .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
            .unwrap_or_default();
        assert!(records.is_empty(), "records are left: {records:?}");
        self.check_files();
        let file = self
            .runtime
            .look(|session| session.file().unwrap().to_owned());
        let session = read_session(&file);
        self.check_session(&session, &proposals);
        // What the model itself put back is no news to it.
        let told = self.told.lock();
        let undone = told.written.get("undo").copied().unwrap_or_default();
        assert!(told.notes.len() >= undone, "a note for each undo");
    }

    /// Every change begins where the one before it ended, and the files say what the last one left.
    fn check_files(&self) {
        let mut texts: BTreeMap<&Path, &[u8]> = BTreeMap::new();
        for (path, text) in &self.originals {
            texts.insert(path, text.as_bytes());
        }
        let log = self.files.log.lock();
        for step in &*log {
            let now = texts.entry(&step.path).or_default();
            assert_eq!(*now, step.before, "{step:?}");
            *now = &step.after;
        }
        for name in FILES {
            let path = self.desk.path(name);
            let expected = texts.get(&*path).copied().unwrap_or_default();
            assert_eq!(self.files.text(&path).as_bytes(), expected, "{name}");
        }
        let commits = log.iter().filter(|step| step.is_commit).count();
        let told: usize = self.told.lock().written.values().sum();
        assert_eq!(commits, told, "every write is told once");
    }

    fn check_session(&self, session: &Session, proposals: &[Arc<Proposal>]) {
        let told = self.told.lock();
        assert_eq!(told.settled, self.started, "one end for each run");
        assert!(told.running.values().all(|n| *n == 0), "{:?}", told.running);
        let mut ids = session.entries().map(|entry| entry.id().to_string());
        for id in &told.entries {
            assert!(
                ids.any(|it| it == *id),
                "{id} was told before it was stored"
            );
        }
        let entries: Vec<Option<Message>> = session.entries().map(|it| it.message()).collect();
        let mut said = Vec::new();
        let changes = self.desk.gate.changes(&self.session);
        let mut written: BTreeSet<&str> = changes.iter().map(|it| it.call_id.as_str()).collect();
        assert_eq!(written.len(), changes.len(), "a call writes once");
        let mut rest = entries.iter();
        while let Some(message) = rest.next() {
            let Some(message) = message else { continue };
            match message {
                Message::User(user) => said.push(user.content.text("")),
                Message::ToolResult(it) => panic!("a result of no call: {it:?}"),
                Message::Assistant(answer) => {
                    // A broken answer is not acted on.
                    let mut batch = Vec::new();
                    for call in answer.tool_calls().filter(|_| !is_broken(answer)) {
                        let Some(Some(Message::ToolResult(result))) = rest.next() else {
                            panic!("{call:?} has no result");
                        };
                        assert_eq!(result.tool_call_id, call.id);
                        let output = ToolOutput {
                            content: result.content.clone(),
                            details: result.details.clone(),
                            is_error: result.is_error,
                            ..ToolOutput::default()
                        };
                        let of = |it: &&Arc<Proposal>| it.call_id == call.id;
                        let proposal = proposals.iter().find(of);
                        let change = changes.iter().find(|it| it.call_id == call.id);
                        written.remove(&*call.id);
                        self.check_call(&call.arguments, &output, proposal, change);
                        batch.push((text_of(&output), output.is_error, call, proposal));
                    }
                    self.check_reads(&batch, &told.notes);
                }
                _ => {}
            }
        }
        assert!(written.is_empty(), "written and never told: {written:?}");
        said.sort();
        let mut taken = self.taken.clone();
        taken.sort();
        assert_eq!(said, taken, "what the person said is there once");
        let context = session.context();
        let notes: Vec<String> = context
            .messages()
            .filter_map(|message| match &**message {
                Message::Custom(it) if it.custom_type == NOTE_TYPE => Some(it.content.text("")),
                _ => None,
            })
            .collect();
        assert_eq!(notes, told.notes, "every note has reached the model");
    }

    /// A `read` saw what the changes before it in the same answer had made.
    fn check_reads(&self, batch: &[Answered<'_>], notes: &[String]) {
        let path_of = |call: &ToolCall| {
            let given = call.arguments["path"].as_str().unwrap();
            self.desk.path(given.trim_start_matches("./"))
        };
        for (at, (text, is_error, call, _)) in batch.iter().enumerate() {
            if call.name != "read" || *is_error {
                continue;
            }
            let same_file = |it: &&Answered<'_>| path_of(it.2) == path_of(call);
            let is_change = |it: &&Answered<'_>| it.2.name != "read";
            // Later changes of the answer may have been made before the read, and may have removed the lines again.
            if batch[at..]
                .iter()
                .filter(same_file)
                .any(|it| is_change(&it))
            {
                continue;
            }
            let mut earlier = batch[..at].iter().filter(same_file);
            let Some((_, false, change, Some(proposal))) = earlier.rfind(is_change) else {
                continue;
            };
            if notes.iter().any(|note| note.contains(&proposal.path_given)) {
                continue;
            }
            let mine = format!("c{}h", change.id.trim_start_matches("call"));
            let accepted = |hunk: &&Hunk| hunk.state == HunkState::Accepted;
            for line in proposal
                .hunks
                .iter()
                .filter(accepted)
                .flat_map(|it| &it.new)
            {
                let line = std::str::from_utf8(line).unwrap().trim_end();
                let is_there = !line.starts_with(&mine) || text.lines().any(|it| it == line);
                assert!(is_there, "{line} was not in what was read after it: {text}");
            }
        }
    }

    /// What the model was told about a call is what happened.
    fn check_call(
        &self,
        arguments: &Value,
        output: &ToolOutput,
        proposal: Option<&Arc<Proposal>>,
        change: Option<&KeptChange>,
    ) {
        let text = text_of(output);
        let Some(proposal) = proposal else {
            assert!(change.is_none(), "{text}");
            return;
        };
        let n_hunks = proposal.hunks.len();
        let applied: Vec<_> = proposal
            .hunks
            .iter()
            .filter(|hunk| matches!(hunk.state, HunkState::Accepted | HunkState::Reverted))
            .collect();
        if output.is_error {
            assert!(change.is_none(), "told {text:?}, but it was written");
            assert!(proposal.state != ProposalState::Done || applied.is_empty());
        } else {
            assert_eq!(proposal.state, ProposalState::Done, "{text}");
            let path = &proposal.path_given;
            let expected = if applied.len() < n_hunks {
                format!("Applied {} of {n_hunks} hunks to {path}.", applied.len())
            } else if let Some(edits) = arguments["edits"].as_array() {
                format!("Successfully replaced {} block(s) in {path}.", edits.len())
            } else {
                format!("Successfully wrote to {path}")
            };
            assert!(text.starts_with(&expected), "{text:?}, not {expected:?}");
            assert_eq!(change.is_some(), n_hunks > 0, "{text}");
        }
        for hunk in &proposal.hunks {
            if let (HunkState::Rejected, Some(note)) = (hunk.state, &hunk.note) {
                let is_told = proposal.state != ProposalState::Done || text.contains(note);
                assert!(is_told, "the reason is missing in {text}");
            }
        }
        if let Some(change) = change {
            self.check_change(output, proposal, change);
        }
    }

    /// The kept texts, the commit, the decisions and the details of a change agree.
    fn check_change(&self, output: &ToolOutput, proposal: &Proposal, change: &KeptChange) {
        let kept = |name: &str| self.desk.gate.kept_text(name).unwrap();
        let before = change.before.as_deref().map(kept).unwrap_or_default();
        let after = kept(&change.after);
        let log = self.files.log.lock();
        let is_there = log.iter().any(|step| {
            step.is_commit
                && step.path == change.path
                && step.before == before
                && step.after == after
        });
        assert!(is_there, "{change:?} was never written");
        let (before, after) = (
            String::from_utf8(before).unwrap(),
            String::from_utf8(after).unwrap(),
        );
        let mine = format!("c{}h", change.call_id.trim_start_matches("call"));
        let in_file: HashSet<&str> = after.lines().collect();
        for hunk in &proposal.hunks {
            let is_written = matches!(hunk.state, HunkState::Accepted | HunkState::Reverted);
            for line in &hunk.new {
                let line = std::str::from_utf8(line).unwrap().trim_end();
                if line.starts_with(&mine) {
                    assert_eq!(
                        in_file.contains(line),
                        is_written,
                        "{line} {:?}",
                        hunk.state
                    );
                }
            }
        }
        let Some(details) = &output.details else {
            return;
        };
        if let Some(patch) = details.get("patch").and_then(Value::as_str) {
            assert_eq!(patched(&before, patch), after, "{patch}");
            let lost: Vec<_> = before
                .lines()
                .filter(|line| line.starts_with('t') && !in_file.contains(line))
                .collect();
            assert!(lost.is_empty(), "an edit removed {lost:?}");
        }
        if let Some(told) = details.pointer("/review/hunks").and_then(Value::as_array) {
            let told: Vec<&str> = told
                .iter()
                .map(|it| it["state"].as_str().unwrap())
                .collect();
            let states: Vec<&str> = proposal
                .hunks
                .iter()
                .map(|hunk| match hunk.state {
                    HunkState::Accepted | HunkState::Reverted => "accepted",
                    HunkState::Rejected => "rejected",
                    HunkState::Stale => "stale",
                    HunkState::Pending => "pending",
                })
                .collect();
            assert_eq!(told, states);
        }
    }
}

/// Applies a unified patch.
fn patched(text: &str, patch: &str) -> String {
    let old: Vec<&str> = text.split_inclusive('\n').collect();
    let (mut out, mut at) = (String::new(), 0);
    for row in patch.split_inclusive('\n').skip(2) {
        if let Some(header) = row.strip_prefix("@@ -") {
            let place = header.split(' ').next().unwrap();
            let (start, n_lines) = place.split_once(',').unwrap_or((place, "1"));
            let start: usize = start.parse().unwrap();
            let start = if n_lines == "0" { start } else { start - 1 };
            out.extend(old[at..start].iter().copied());
            at = start;
        } else if let Some(line) = row.strip_prefix('+') {
            out.push_str(line);
        } else if let Some(line) = row.strip_prefix([' ', '-']) {
            assert_eq!(old[at].trim_end(), line.trim_end());
            if row.starts_with(' ') {
                out.push_str(old[at]);
            }
            at += 1;
        }
    }
    out.extend(old[at..].iter().copied());
    out
}
