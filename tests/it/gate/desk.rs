//! A desk to review at: a project folder, an editor whose buffers are plain data, a gate, and a person's hands.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use pi_nvim::agent::ToolOutput;
use pi_nvim::ai::Block;
use pi_nvim::files::replace::{Flush, Options};
use pi_nvim::review::gate::{Gate, GateConfig, Reviewer};
use pi_nvim::review::hunks::lines;
use pi_nvim::review::{
    Change, ChangeResult, ChangeTool, HunkId, HunkState, Planned, Proposal, ProposalId,
    ProposalState, ReviewAction, ReviewEvent,
};
use pi_nvim::workspace::disk::DiskWorkspace;
use pi_nvim::workspace::{BufferOrigin, Commit, CommitOutcome, FileState, Origin, Workspace};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A loaded buffer.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) tick: i64,
    pub(crate) modified: bool,
}

/// What a commit runs into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Moved,
    Failed,
    /// The editor goes away; written or not.
    Gone {
        written: bool,
    },
}

/// What saving makes of a text.
type Hook = fn(Vec<u8>) -> Vec<u8>;

/// Files on disk with an editor's buffers before them.
pub(crate) struct Editor {
    pub(crate) disk: DiskWorkspace,
    pub(crate) buffers: Mutex<HashMap<PathBuf, Buffer>>,
    /// Troubles of the next commits, first one first.
    pub(crate) troubles: Mutex<Vec<Trouble>>,
    /// Commits take a permit; none left holds them up.
    pub(crate) gatekeeper: Semaphore,
    /// What on-save hooks make of a text.
    pub(crate) hook: Mutex<Option<Hook>>,
    pub(crate) commits: Mutex<Vec<PathBuf>>,
    /// Texts before and after each commit that was written.
    pub(crate) written: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
    /// A commit has arrived.
    pub(crate) arrived: tokio::sync::Notify,
    /// How often a file was read.
    pub(crate) reads: AtomicUsize,
}

impl Editor {
    pub(crate) fn new() -> Self {
        Self {
            disk: DiskWorkspace::with_options(Options {
                flush: Flush::Never,
                ..Options::default()
            }),
            buffers: Mutex::default(),
            troubles: Mutex::default(),
            gatekeeper: Semaphore::new(Semaphore::MAX_PERMITS),
            hook: Mutex::new(None),
            commits: Mutex::default(),
            written: Mutex::default(),
            arrived: tokio::sync::Notify::new(),
            reads: AtomicUsize::new(0),
        }
    }

    /// Loads a file into a buffer.
    pub(crate) fn load(&self, path: &Path) {
        let bytes = std::fs::read(path).unwrap_or_default();
        let buffer = Buffer {
            bytes,
            tick: 1,
            modified: false,
        };
        self.buffers.lock().insert(path.to_owned(), buffer);
    }

    /// Types: changes a buffer without saving it.
    pub(crate) fn type_text(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut buffers = self.buffers.lock();
        let buffer = buffers.get_mut(path).unwrap();
        change(&mut buffer.bytes);
        buffer.tick += 1;
        buffer.modified = true;
    }

    /// Saves a buffer.
    pub(crate) fn save(&self, path: &Path) {
        let mut buffers = self.buffers.lock();
        let buffer = buffers.get_mut(path).unwrap();
        std::fs::write(path, &buffer.bytes).unwrap();
        buffer.modified = false;
    }

    fn commit_buffer(&self, commit: &Commit) -> Option<CommitOutcome> {
        let mut buffers = self.buffers.lock();
        let buffer = buffers.get_mut(&commit.path)?;
        let Origin::Buffer(origin) = &commit.base.origin else {
            return Some(CommitOutcome::Moved);
        };
        if origin.changedtick != buffer.tick {
            return Some(CommitOutcome::Moved);
        }
        buffer.bytes = with_edits(commit);
        if let Some(hook) = *self.hook.lock() {
            buffer.bytes = hook(std::mem::take(&mut buffer.bytes));
        }
        buffer.tick += 1;
        buffer.modified = false;
        std::fs::write(&commit.path, &buffer.bytes).unwrap();
        Some(CommitOutcome::Written {
            on_disk: buffer.bytes.clone().into(),
        })
    }
}

/// The base with the commit's edits, which must give its target.
fn with_edits(commit: &Commit) -> Vec<u8> {
    let base = lines(&commit.base.bytes);
    let mut out: Vec<Vec<u8>> = base.iter().map(|line| line.to_vec()).collect();
    for edit in commit.edits.iter().rev() {
        out.splice(
            edit.start..edit.start + edit.removed,
            lines(&edit.added).into_iter().map(<[u8]>::to_vec),
        );
    }
    let out = out.concat();
    assert_eq!(out, *commit.target, "edits and target of a commit agree");
    out
}

impl Workspace for Editor {
    fn state<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, io::Result<FileState>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let loaded = self.buffers.lock().get(path).cloned();
        match loaded {
            Some(buffer) => Box::pin(async move {
                Ok(FileState {
                    bytes: buffer.bytes.into(),
                    origin: Origin::Buffer(BufferOrigin {
                        buffer: 1,
                        changedtick: buffer.tick,
                        modified: buffer.modified,
                    }),
                })
            }),
            None => self.disk.state(path),
        }
    }

    fn unsaved<'a>(&'a self, _path: &'a Path) -> BoxFuture<'a, Option<Arc<[u8]>>> {
        Box::pin(async { None })
    }

    fn all_unsaved(&self) -> BoxFuture<'_, Vec<(PathBuf, Arc<[u8]>)>> {
        Box::pin(async { Vec::new() })
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, CommitOutcome> {
        Box::pin(async move {
            self.commits.lock().push(commit.path.clone());
            self.arrived.notify_one();
            self.gatekeeper.acquire().await.unwrap().forget();
            let trouble = {
                let mut troubles = self.troubles.lock();
                (!troubles.is_empty()).then(|| troubles.remove(0))
            };
            match trouble {
                Some(Trouble::Moved) => return CommitOutcome::Moved,
                Some(Trouble::Failed) => {
                    let full = io::Error::from_raw_os_error(28);
                    return CommitOutcome::Failed(full);
                }
                Some(Trouble::Gone { written }) => {
                    if written {
                        std::fs::write(&commit.path, &commit.target).unwrap();
                    }
                    return CommitOutcome::Unknown;
                }
                None => {}
            }
            with_edits(&commit);
            let texts = (commit.base.bytes.to_vec(), commit.target.to_vec());
            let outcome = match self.commit_buffer(&commit) {
                Some(outcome) => outcome,
                None => self.disk.commit(commit).await,
            };
            if matches!(outcome, CommitOutcome::Written { .. }) {
                self.written.lock().push(texts);
            }
            outcome
        })
    }
}

/// The desk.
pub(crate) struct Desk {
    dir: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) editor: Arc<Editor>,
    pub(crate) gate: Gate,
    pub(crate) events: UnboundedReceiver<ReviewEvent>,
}

/// A change on its way.
pub(crate) struct Call {
    pub(crate) id: ProposalId,
    pub(crate) cancel: CancellationToken,
    pub(crate) result: JoinHandle<ChangeResult>,
}

impl Call {
    /// Waits for the result; an error that is thrown reads like one that is returned.
    pub(crate) async fn text(self) -> (String, bool) {
        match self.result.await.unwrap() {
            Ok(output) => (text_of(&output), output.is_error),
            Err(error) => (error.message, true),
        }
    }
}

pub(crate) fn text_of(output: &ToolOutput) -> String {
    output
        .content
        .iter()
        .map(|block| match block {
            Block::Text(block) => block.text.as_str(),
            _ => "",
        })
        .collect()
}

impl Desk {
    /// A desk with a person at it.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(configure: impl FnOnce(&mut GateConfig)) -> Self {
        // In memory where there is such a place: thousands of flushes then cost nothing.
        let dir = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap().join("project");
        std::fs::create_dir(&root).unwrap();
        let editor = Arc::new(Editor::new());
        let workspace: Arc<dyn Workspace> = Arc::clone(&editor) as _;
        let mut config = GateConfig::new(workspace, &root);
        config.reviewer = Reviewer::Person;
        config.state_dir = Some(dir.path().join("state"));
        configure(&mut config);
        let gate = Gate::new(config);
        let events = gate.subscribe();
        Self {
            dir,
            root,
            editor,
            gate,
            events,
        }
    }

    /// Another gate over the same state, as after a restart.
    pub(crate) fn restarted(&self) -> Gate {
        let workspace: Arc<dyn Workspace> = Arc::new(DiskWorkspace::default());
        let mut config = GateConfig::new(workspace, &self.root);
        config.state_dir = Some(self.dir.path().join("state"));
        Gate::new(config)
    }

    pub(crate) fn outside(&self) -> PathBuf {
        std::fs::canonicalize(self.dir.path()).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn on_disk(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Names in the project folder.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.root).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Proposes a whole text for a file.
    pub(crate) fn propose(&self, call_id: &str, name: &str, target: &str) -> Call {
        let target = target.to_owned();
        self.plan(call_id, name, move |_| target.into_bytes())
    }

    /// Proposes replacing one text by another, as `edit` does.
    pub(crate) fn replace(&self, call_id: &str, name: &str, old: &str, new: &str) -> Call {
        let (old, new) = (old.to_owned(), new.to_owned());
        self.plan(call_id, name, move |base| {
            let text = String::from_utf8(base.to_vec()).unwrap();
            assert!(text.contains(&old), "{old:?} in {text:?}");
            text.replacen(&old, &new, 1).into_bytes()
        })
    }

    /// As [`Self::replace`] where nobody keeps the proposal after it is settled.
    pub(crate) fn replace_quietly(
        &self,
        call_id: &str,
        name: &str,
        old: &str,
        new: &str,
    ) -> JoinHandle<ChangeResult> {
        self.replace(call_id, name, old, new).result
    }

    pub(crate) fn plan(
        &self,
        call_id: &str,
        name: &str,
        plan: impl FnOnce(&[u8]) -> Vec<u8> + Send + 'static,
    ) -> Call {
        self.submit("s", call_id, name, |base| Ok(plan(base)))
    }

    pub(crate) fn submit(
        &self,
        session: &str,
        call_id: &str,
        name: &str,
        plan: impl FnOnce(&[u8]) -> Result<Vec<u8>, pi_nvim::agent::ToolError> + Send + 'static,
    ) -> Call {
        let cancel = CancellationToken::new();
        let success = format!("Successfully wrote to {name}");
        let future = self.gate.submit(Change {
            session: session.to_owned(),
            call_id: call_id.to_owned(),
            tool: ChangeTool::Write,
            path_given: name.to_owned(),
            path: self.path(name),
            plan: Box::new(move |base| {
                Ok(Planned {
                    target: plan(&base.bytes)?.into(),
                    success,
                    details: None,
                    edit_lines: Vec::new(),
                })
            }),
            cancel: cancel.clone(),
            ancestors: Vec::new(),
        });
        let id = self.gate.proposals(None).last().unwrap().id;
        Call {
            id,
            cancel,
            result: tokio::spawn(future),
        }
    }

    /// Waits until a proposal is as asked; events wake the look.
    pub(crate) async fn until(
        &mut self,
        id: ProposalId,
        what: &str,
        is_so: impl Fn(&Proposal) -> bool,
    ) -> Arc<Proposal> {
        let looking = async {
            loop {
                if let Some(proposal) = self.gate.proposal(id).filter(|it| is_so(it)) {
                    return proposal;
                }
                self.events.recv().await.unwrap();
            }
        };
        match tokio::time::timeout(Duration::from_secs(20), looking).await {
            Ok(proposal) => proposal,
            Err(_) => panic!("never {what}: {:?}", self.gate.proposal(id)),
        }
    }

    pub(crate) async fn state(&mut self, call: &Call, state: ProposalState) -> Arc<Proposal> {
        self.until(call.id, &format!("{state:?}"), |it| it.state == state)
            .await
    }

    pub(crate) async fn open(&mut self, call: &Call) -> Arc<Proposal> {
        self.state(call, ProposalState::Open).await
    }

    /// Waits for an event.
    pub(crate) async fn event(&mut self, is_it: impl Fn(&ReviewEvent) -> bool) -> ReviewEvent {
        let looking = async {
            loop {
                let event = self.events.recv().await.unwrap();
                if is_it(&event) {
                    return event;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), looking)
            .await
            .expect("the event comes")
    }

    pub(crate) fn act(&self, action: ReviewAction) -> String {
        self.gate.act(action).unwrap()
    }

    pub(crate) fn accept(&self, hunk: HunkId) {
        self.act(ReviewAction::Accept {
            hunks: vec![hunk],
            note: None,
        });
    }

    pub(crate) fn reject(&self, hunk: HunkId, note: Option<&str>) {
        self.act(ReviewAction::Reject {
            hunks: vec![hunk],
            note: note.map(str::to_owned),
        });
    }

    pub(crate) fn accept_file(&self, call: &Call) {
        self.act(ReviewAction::AcceptFile { proposal: call.id });
    }

    pub(crate) fn undo(&self) -> Result<String, String> {
        self.gate.act(ReviewAction::Undo { session: None })
    }

    pub(crate) fn note_texts(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        while let Ok(event) = self.events.try_recv() {
            if let ReviewEvent::ModelNote { text, .. } = event {
                notes.push(text);
            }
        }
        notes
    }
}

pub(crate) fn states(proposal: &Proposal) -> Vec<HunkState> {
    proposal.hunks.iter().map(|hunk| hunk.state).collect()
}

/// Lines `1` to `n`.
pub(crate) fn numbers(n: usize) -> String {
    (1..=n).map(|number| format!("{number}\n")).collect()
}
