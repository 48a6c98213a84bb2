//! The fakes of the random sessions: files with an editor before them, and a model.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use pi_nvim::ai::providers::scripted::Answer;
use pi_nvim::ai::{AssistantMessage, Message, Request, StopReason};
use pi_nvim::session::store::{Session, Start};
use pi_nvim::workspace::{Commit, CommitOutcome, FileState, Workspace};
use serde_json::{Value, json};

use super::super::desk::Editor;
use super::super::random::Random;

use super::FILES;

/// A text that became another one, in the order in which it happened.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) path: PathBuf,
    pub(super) before: Vec<u8>,
    pub(super) after: Vec<u8>,
    /// Written by a commit, not typed and not by another program.
    pub(super) is_commit: bool,
}

/// The editor of the desk with a log of everything that changes a file.
pub(super) struct Recorder {
    pub(super) editor: Arc<Editor>,
    pub(super) log: Mutex<Vec<Step>>,
    /// Files that are being written: other programs stay away that long, so that the log has one order.
    pub(super) busy: Mutex<HashSet<PathBuf>>,
}

impl Recorder {
    /// What a file says now, unsaved text included.
    pub(super) fn text(&self, path: &Path) -> String {
        let buffer = self.editor.buffers.lock().get(path).cloned();
        let bytes = match buffer {
            Some(buffer) => buffer.bytes,
            None => std::fs::read(path).unwrap_or_default(),
        };
        String::from_utf8(bytes).unwrap()
    }

    /// Types a line into a buffer, or another program writes it to the file.
    pub(super) fn insert(&self, path: &Path, line: &str, random: &mut Random) -> bool {
        let is_loaded = self.editor.buffers.lock().contains_key(path);
        if self.busy.lock().contains(path) || (!is_loaded && !path.exists()) {
            return false;
        }
        let before = self.text(path);
        let mut lines: Vec<&str> = before.split_inclusive('\n').collect();
        lines.insert(random.below(lines.len() + 1), line);
        let after = lines.concat();
        match is_loaded {
            true => self
                .editor
                .type_text(path, |text| *text = after.clone().into_bytes()),
            false => std::fs::write(path, &after).unwrap(),
        }
        self.log.lock().push(Step {
            path: path.to_owned(),
            before: before.into_bytes(),
            after: after.into_bytes(),
            is_commit: false,
        });
        true
    }
}

impl Workspace for Recorder {
    fn state<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, io::Result<FileState>> {
        self.editor.state(path)
    }

    fn unsaved<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Option<Arc<[u8]>>> {
        let buffer = self.editor.buffers.lock().get(path).cloned();
        Box::pin(async move {
            let buffer = buffer.filter(|buffer| buffer.modified)?;
            Some(buffer.bytes.into())
        })
    }

    fn all_unsaved(&self) -> BoxFuture<'_, Vec<(PathBuf, Arc<[u8]>)>> {
        self.editor.all_unsaved()
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, CommitOutcome> {
        Box::pin(async move {
            let (path, before) = (commit.path.clone(), commit.base.bytes.to_vec());
            self.busy.lock().insert(path.clone());
            let outcome = self.editor.commit(commit).await;
            self.busy.lock().remove(&path);
            if let CommitOutcome::Written { on_disk } = &outcome {
                self.log.lock().push(Step {
                    path,
                    before,
                    after: on_disk.to_vec(),
                    is_commit: true,
                });
            }
            outcome
        })
    }
}

/// What the model makes of a request.
pub(super) struct Brain {
    pub(super) random: Random,
    pub(super) files: Arc<Recorder>,
    pub(super) root: PathBuf,
    /// Turns with calls that are left of this prompt.
    pub(super) left: usize,
    pub(super) calls: usize,
    pub(super) is_over: Arc<AtomicBool>,
    pub(super) session: Arc<OnceLock<PathBuf>>,
    pub(super) troubles: Arc<Mutex<Vec<String>>>,
}

impl Brain {
    pub(super) fn answer(&mut self, request: &Request) -> Answer {
        if let Err(trouble) = self.check(request) {
            self.troubles.lock().push(trouble);
        }
        let last = request.messages.last().map(|message| &**message);
        if matches!(last, Some(Message::User(_))) {
            self.left = 1 + self.random.below(3);
        }
        let done = Answer::say("I am").pause(self.time()).text(" done.");
        if self.left == 0 || self.is_over.load(Ordering::SeqCst) {
            return done;
        }
        self.left -= 1;
        let mut answer = Answer::new().text("Let me see.").pause(self.time());
        let kind = self.random.below(100);
        if kind < 4 {
            return Answer::fail("503 service unavailable: overloaded");
        }
        for _ in 0..1 + self.random.below(4) {
            answer = self.call(answer);
            if self.random.chance(30) {
                answer = answer.pause(self.time());
            }
        }
        match kind {
            4..7 => answer.error("invalid request: no"),
            7..10 => answer.hang(),
            10..13 => answer.stop(StopReason::Length),
            _ => answer,
        }
    }

    fn time(&mut self) -> Duration {
        Duration::from_millis(1 + self.random.below(60) as u64)
    }

    /// A request contains what the session file says, and in it every call is answered once, in order.
    fn check(&self, request: &Request) -> Result<(), String> {
        let messages = &request.messages;
        let mut at = 0;
        let get = |at: usize| messages.get(at).map(|message| &**message);
        while let Some(message) = get(at) {
            at += 1;
            let Message::Assistant(answer) = message else {
                if matches!(message, Message::ToolResult(_)) {
                    return Err(format!("a result of no call: {message:?}"));
                }
                continue;
            };
            // Providers leave out broken answers.
            for call in answer.tool_calls().filter(|_| !is_broken(answer)) {
                match get(at) {
                    Some(Message::ToolResult(it)) if it.tool_call_id == call.id => at += 1,
                    other => return Err(format!("{call:?} is followed by {other:?}")),
                }
            }
        }
        let file = self.session.get().ok_or("no session file")?;
        let session = read_session(file);
        let stored = session.context().llm_messages();
        if &stored != messages {
            return Err(format!("sent: {messages:#?}\nstored: {stored:#?}"));
        }
        Ok(())
    }

    fn call(&mut self, answer: Answer) -> Answer {
        let number = self.calls;
        self.calls += 1;
        let id = format!("call{number}");
        let name = FILES[self.random.below(FILES.len())];
        let path = match self.random.below(4) {
            0 => self.root.join(name).to_str().unwrap().to_owned(),
            1 => format!("./{name}"),
            _ => name.to_owned(),
        };
        let text = self.files.text(&self.root.join(name));
        match self.random.below(10) {
            0..2 => answer.call(id, "read", json!({ "path": path })),
            2..5 => {
                let changed = self.changes(number, &text);
                let mut content = text;
                if content.is_empty() || self.random.chance(5) {
                    content = format!("c{number}h0\nc{number}h1\n");
                }
                for (old, new) in changed {
                    content = content.replacen(&old, &new, 1);
                }
                answer.call(id, "write", json!({ "path": path, "content": content }))
            }
            5 if self.random.chance(30) => {
                answer.call(id, "write", json!({ "path": path, "wrong": true }))
            }
            _ => {
                let mut edits: Vec<Value> = self
                    .changes(number, &text)
                    .into_iter()
                    .map(|(old, new)| json!({ "oldText": old, "newText": new }))
                    .collect();
                if edits.is_empty() || self.random.chance(5) {
                    edits.push(json!({ "oldText": "not there", "newText": "x" }));
                }
                answer.call(id, "edit", json!({ "path": path, "edits": edits }))
            }
        }
    }

    /// Up to three lines and what they become; never lines of the person or of other programs.
    fn changes(&mut self, number: usize, text: &str) -> Vec<(String, String)> {
        let mut ours: Vec<&str> = text
            .split_inclusive('\n')
            .filter(|line| line.starts_with(['L', 'c']))
            .collect();
        let mut out = Vec::new();
        for hunk in 0..1 + self.random.below(3) {
            if ours.is_empty() {
                break;
            }
            let old = ours.remove(self.random.below(ours.len()));
            let mine = format!("c{number}h{hunk}\n");
            let new = match self.random.below(4) {
                0 => format!("{mine}{old}"),
                1 => format!("{old}{mine}"),
                2 => format!("{mine}c{number}h{hunk}+\n"),
                _ => mine,
            };
            out.push((old.to_owned(), new));
        }
        out
    }
}

pub(super) fn is_broken(answer: &AssistantMessage) -> bool {
    matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted)
}

/// Reads a copy of a session file: opening may repair, and the file belongs to the runtime.
pub(super) fn read_session(file: &Path) -> Session {
    let copy = file.with_extension("copy");
    std::fs::copy(file, &copy).unwrap();
    let mut session = Session::open(&copy, Path::new("/"), Start::default()).unwrap();
    let notices = session.take_notices();
    assert!(notices.is_empty(), "{notices:?}");
    session
}
