//! A whole session in random order: the real runtime, loop, tools, gate and queue, with fakes only at the seams (the
//! model, the person, the editor's buffers, other programs) on paused time.
//!
//! The model edits, writes and reads three files; the person decides, undoes and lets whole files through; others type and
//! write between; prompts, steering, follow-ups and aborts come at any moment; requests fail and writes fail. Afterwards
//! the session file, the files, the decisions, the notes and what every request contained must tell one story. Lines name
//! who made them, as in the test of the gate alone. A failing case prints its seed; `PI_NVIM_SEED` runs that one alone,
//! `PI_NVIM_CASES` sets how many are run; a million of them:
//! `PI_NVIM_CASES=1000000 cargo nextest run --test it -E 'test(/^gate::runtime_random/)'`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use pi_nvim::agent::ToolOutput;
use pi_nvim::ai::providers::scripted::{Answer, Scripted};
use pi_nvim::ai::{AssistantMessage, Block, Message, Request, StopReason};
use pi_nvim::files::agent_dir::Places;
use pi_nvim::review::gate::Gate;
use pi_nvim::review::records::KeptChange;
use pi_nvim::review::{GrantScope, HunkState, Proposal, ProposalState, ReviewAction, ReviewEvent};
use pi_nvim::session::protocol::{Behavior, Command, Event, NoticeLevel};
use pi_nvim::session::runtime::{Runtime, RuntimeConfig, SessionChoice};
use pi_nvim::session::store::{Session, Start};
use pi_nvim::tools::{self, ToolEnv, ToolOptions};
use pi_nvim::workspace::{Commit, CommitOutcome, FileState, Workspace};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::desk::{Desk, Editor, Trouble};
use super::random::{Random, decide, open};

#[test]
fn whatever_happens_the_session_tells_what_was_done() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seeds: Vec<u64> = match number("PI_NVIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("PI_NVIM_CASES").unwrap_or(256)).collect(),
    };
    for seed in seeds {
        let run = catch_unwind(AssertUnwindSafe(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(case(seed));
        }));
        if let Err(panic) = run {
            eprintln!("the failing case has the seed: PI_NVIM_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// `d` is not there at first.
const FILES: [&str; 4] = ["a", "b", "c", "d"];
const NOTE_TYPE: &str = "pi-nvim.review-note";

/// A text that became another one, in the order in which it happened.
#[derive(Debug)]
struct Step {
    path: PathBuf,
    before: Vec<u8>,
    after: Vec<u8>,
    /// Written by a commit, not typed and not by another program.
    is_commit: bool,
}

/// The editor of the desk with a log of everything that changes a file.
struct Recorder {
    editor: Arc<Editor>,
    log: Mutex<Vec<Step>>,
    /// Files that are being written: other programs stay away that long, so that the log has one order.
    busy: Mutex<HashSet<PathBuf>>,
}

impl Recorder {
    /// What a file says now, unsaved text included.
    fn text(&self, path: &Path) -> String {
        let buffer = self.editor.buffers.lock().get(path).cloned();
        let bytes = match buffer {
            Some(buffer) => buffer.bytes,
            None => std::fs::read(path).unwrap_or_default(),
        };
        String::from_utf8(bytes).unwrap()
    }

    /// Types a line into a buffer, or another program writes it to the file.
    fn insert(&self, path: &Path, line: &str, random: &mut Random) -> bool {
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
struct Brain {
    random: Random,
    files: Arc<Recorder>,
    root: PathBuf,
    /// Turns with calls that are left of this prompt.
    left: usize,
    calls: usize,
    is_over: Arc<AtomicBool>,
    session: Arc<OnceLock<PathBuf>>,
    troubles: Arc<Mutex<Vec<String>>>,
}

impl Brain {
    fn answer(&mut self, request: &Request) -> Answer {
        if let Err(trouble) = self.check(request) {
            self.troubles.lock().push(trouble);
        }
        if matches!(request.messages.last(), Some(Message::User(_))) {
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
        while let Some(message) = messages.get(at) {
            at += 1;
            let Message::Assistant(answer) = message else {
                if matches!(message, Message::ToolResult(_)) {
                    return Err(format!("a result of no call: {message:?}"));
                }
                continue;
            };
            // Providers leave out broken answers.
            for call in answer.tool_calls().filter(|_| !is_broken(answer)) {
                match messages.get(at) {
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

fn is_broken(answer: &AssistantMessage) -> bool {
    matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted)
}

/// Reads a copy of a session file: opening may repair, and the file belongs to the runtime.
fn read_session(file: &Path) -> Session {
    let copy = file.with_extension("copy");
    std::fs::copy(file, &copy).unwrap();
    let mut session = Session::open(&copy, Path::new("/"), Start::default()).unwrap();
    let notices = session.take_notices();
    assert!(notices.is_empty(), "{notices:?}");
    session
}

/// What was told to a face.
#[derive(Default)]
struct Told {
    entries: Vec<String>,
    running: BTreeMap<String, i64>,
    settled: usize,
    notes: Vec<String>,
    /// Writes by who made them.
    written: BTreeMap<&'static str, usize>,
}

impl Told {
    fn hear(&mut self, event: &Event) {
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

struct World {
    desk: Desk,
    files: Arc<Recorder>,
    runtime: Runtime,
    session: String,
    is_over: Arc<AtomicBool>,
    told: Arc<Mutex<Told>>,
    troubles: Arc<Mutex<Vec<String>>>,
    /// Texts of the person that the session has taken.
    taken: Vec<String>,
    started: usize,
    originals: BTreeMap<PathBuf, String>,
}

async fn case(seed: u64) {
    let mut random = Random(seed);
    let mut world = World::new(&mut random);
    let others = [world.person(random.branch()), world.others(random.branch())];
    for step in 0..8 + random.below(16) {
        pause(&mut random, 120).await;
        world.step(step, &mut random).await;
    }
    world.finish(&mut random).await;
    for task in others {
        task.await.unwrap();
    }
    world.last_word().await;
    world.check().await;
    world.runtime.shutdown().await;
}

/// Lets some time pass, never none: work in threads is over when the clock goes on.
async fn pause(random: &mut Random, most: usize) {
    let millis = 1 + random.below(most) as u64;
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

impl World {
    fn new(random: &mut Random) -> Self {
        let files = Arc::new(OnceLock::new());
        let slot = Arc::clone(&files);
        let desk = Desk::with(|config| {
            let editor = Arc::new(Editor::new());
            let recorder = Arc::new(Recorder {
                editor,
                log: Mutex::default(),
                busy: Mutex::default(),
            });
            config.workspace = Arc::clone(&recorder) as _;
            slot.set(recorder).ok();
        });
        let files = Arc::clone(files.get().unwrap());
        let mut originals = BTreeMap::new();
        for name in &FILES[..3] {
            let lines = 3 + random.below(10);
            let text: String = (0..lines).map(|line| format!("L{name}{line}\n")).collect();
            desk.put(name, &text);
            originals.insert(desk.path(name), text);
            if random.chance(50) {
                files.editor.load(&desk.path(name));
            }
        }
        let (is_over, troubles) = (Arc::<AtomicBool>::default(), Arc::default());
        let file = Arc::new(OnceLock::new());
        let mut brain = Brain {
            random: random.branch(),
            files: Arc::clone(&files),
            root: desk.root.clone(),
            left: 0,
            calls: 0,
            is_over: Arc::clone(&is_over),
            session: Arc::clone(&file),
            troubles: Arc::clone(&troubles),
        };
        let model = Scripted::new(move |request| brain.answer(request));
        let runtime = start(&desk, Arc::clone(&files), model);
        let (path, session) = runtime.look(|session| {
            let path = session.file().unwrap().to_owned();
            (path, session.id().to_owned())
        });
        file.set(path).unwrap();
        let told = Arc::new(Mutex::new(Told::default()));
        let mut events = runtime.subscribe(16);
        let hearing = Arc::clone(&told);
        let alarms = Arc::clone(&troubles);
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                let heard = catch_unwind(AssertUnwindSafe(|| hearing.lock().hear(&event)));
                if heard.is_err() {
                    let alarms: &Mutex<Vec<String>> = &alarms;
                    alarms.lock().push(format!("{event:?}"));
                }
            }
        });
        Self {
            desk,
            files,
            runtime,
            session,
            is_over,
            told,
            troubles,
            taken: Vec::new(),
            started: 0,
            originals,
        }
    }

    /// The person at the review, until all is over.
    fn person(&self, mut random: Random) -> JoinHandle<()> {
        let gate = self.desk.gate.clone();
        let session = self.session.clone();
        let is_over = Arc::clone(&self.is_over);
        tokio::spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                pause(&mut random, 40).await;
                match random.below(20) {
                    // Nothing to undo is fine.
                    0..2 => drop(gate.act(ReviewAction::Undo { session: None })),
                    2 if random.chance(20) => grant(&gate, &session, &mut random),
                    _ => decide(&gate, &session, &mut random),
                }
            }
        })
    }

    /// Typing, other programs and failing writes, until all is over.
    fn others(&self, mut random: Random) -> JoinHandle<()> {
        let gate = self.desk.gate.clone();
        let files = Arc::clone(&self.files);
        let is_over = Arc::clone(&self.is_over);
        let root = self.desk.root.clone();
        tokio::spawn(async move {
            for step in 0.. {
                pause(&mut random, 150).await;
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                let path = root.join(FILES[random.below(FILES.len())]);
                match random.below(10) {
                    0 => files.editor.troubles.lock().push(Trouble::Moved),
                    1 => files.editor.troubles.lock().push(Trouble::Failed),
                    2 => gate.file_changed(&path),
                    _ => {
                        if files.insert(&path, &format!("t{step}\n"), &mut random)
                            && random.chance(60)
                        {
                            gate.file_changed(&path);
                        }
                    }
                }
            }
        })
    }

    async fn step(&mut self, step: usize, random: &mut Random) {
        let text = format!("say{step}.");
        let images = Vec::new();
        let command = match random.below(100) {
            0..40 => Command::Prompt {
                text: text.clone(),
                images,
                behavior: *random
                    .pick(&[None, Some(Behavior::Steer), Some(Behavior::FollowUp)])
                    .unwrap(),
            },
            40..55 => Command::Steer {
                text: text.clone(),
                images,
            },
            55..62 => Command::FollowUp {
                text: text.clone(),
                images,
            },
            62..67 => return self.runtime.submit(Command::Abort, step as u64),
            67..72 => return drop(self.runtime.request(Command::Abort).await.unwrap()),
            _ => return,
        };
        // A prompt without a behavior is refused during a run.
        if let Ok(answer) = self.runtime.request(command).await {
            self.taken.push(text);
            self.started += usize::from(answer["disposition"] == "started");
        }
    }

    async fn is_busy(&self) -> bool {
        let state = self.runtime.request(Command::GetState).await.unwrap();
        state["isStreaming"].as_bool().unwrap()
    }

    /// The person decides all that is left, until the session is at rest; what hangs is aborted.
    async fn finish(&mut self, random: &mut Random) {
        self.is_over.store(true, Ordering::SeqCst);
        for round in 0..2_000 {
            if !self.is_busy().await {
                break;
            }
            assert!(round < 1_999, "never at rest: {:?}", open(&self.desk.gate));
            if round == 300 {
                self.runtime.request(Command::Abort).await.unwrap();
            }
            for proposal in open(&self.desk.gate) {
                let id = proposal.id;
                let drop_stale = ReviewAction::DropStale { proposal: id };
                self.desk.gate.act(drop_stale).ok();
                let action = match random.chance(70) {
                    true => ReviewAction::AcceptFile { proposal: id },
                    false => ReviewAction::RejectFile {
                        proposal: id,
                        note: None,
                    },
                };
                self.desk.gate.act(action).ok();
            }
            pause(random, 40).await;
        }
        // What reverts in the background ends too: the work in threads behind it holds the paused clock.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    /// A last prompt, with which all notes and queued texts go to the model.
    async fn last_word(&mut self) {
        let answer = self.runtime.request(Command::prompt("bye.")).await.unwrap();
        assert_eq!(answer["disposition"], "started");
        self.taken.push("bye.".to_owned());
        self.started += 1;
        for _ in 0..2_000 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if !self.is_busy().await {
                return;
            }
        }
        panic!("the last prompt never ended");
    }

    async fn check(&self) {
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
                    }
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

    /// What the model was told about a call is what happened.
    fn check_call(
        &self,
        arguments: &Value,
        output: &ToolOutput,
        proposal: Option<&Arc<Proposal>>,
        change: Option<&KeptChange>,
    ) {
        let texts = output.content.iter().filter_map(Block::as_text);
        let text = texts.collect::<Vec<_>>().join("\n");
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

/// Lets everything through until the run ends, for one file.
fn grant(gate: &Gate, session: &str, random: &mut Random) {
    let open = open(gate);
    let Some(proposal) = random.pick(&open) else {
        return;
    };
    let action = ReviewAction::Grant {
        scope: GrantScope::FileForRun,
        session: session.to_owned(),
        path: Some(proposal.path.clone()),
    };
    gate.act(action).ok();
}

fn start(desk: &Desk, files: Arc<Recorder>, model: Scripted) -> Runtime {
    let outside = desk.outside();
    let agent_dir = outside.join("agent");
    std::fs::create_dir(&agent_dir).unwrap();
    let settings = json!({ "retry": { "baseDelayMs": 20 } });
    std::fs::write(agent_dir.join("settings.json"), settings.to_string()).unwrap();
    let env = ToolEnv {
        workspace: files,
        gate: desk.gate.clone(),
        options: ToolOptions {
            home: outside.clone(),
            tmp_dir: outside.clone(),
            ..ToolOptions::default()
        },
    };
    let record = Arc::new(Scripted::model());
    let mut config = RuntimeConfig::in_memory(&desk.root, Arc::new(model), record);
    config.load.places = Places {
        home: outside.clone(),
        agent_dir,
        session_dir: None,
        state_dir: outside.join("state"),
    };
    config.session = SessionChoice::New;
    config.tools = tools::builtin(env);
    config.active_tools = Some(["read", "edit", "write"].map(str::to_owned).to_vec());
    config.shell = None;
    config.gate = desk.gate.clone();
    Runtime::start(config).unwrap()
}
