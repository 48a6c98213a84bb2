//! Files as Neovim's user sees them: loaded buffers first, then the disk; and the way back through the buffer.
//!
//! Entry point: [`EditorWorkspace`]. A loaded buffer that is modified, or equal to its file, stands for the file; one
//! that is unmodified but differs (the user declined a reload) does not. Invariants: a commit call is never given up,
//! a buffer that is not loaded is never loaded here, and a commit carries the `changedtick` it was merged against.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use rmpv::Value;
use tokio::sync::watch;

use super::editor::{Editor, EditorError};
use crate::workspace::disk::{DiskWorkspace, real_path};
use crate::workspace::{BufferOrigin, Commit, CommitOutcome, FileState, Origin, Workspace};

mod buffer_text;

use buffer_text::{BufferEdit, Facts, Target, edits_for, field};

/// How often a buffer is read again because it changed between its facts and its lines.
const READ_ROUNDS: usize = 20;

/// The disk and the buffers of one Neovim.
pub struct EditorWorkspace {
    editor: Editor,
    disk: DiskWorkspace,
    /// Counts up each time a buffer that was being typed in can be changed again.
    ready: watch::Sender<u64>,
    /// Texts of buffers as last read: typing asks for the same text many times.
    read: Mutex<HashMap<i64, Loaded>>,
}

/// A loaded buffer and its text.
#[derive(Clone)]
struct Loaded {
    facts: Facts,
    lines: Arc<Vec<Vec<u8>>>,
    bytes: Arc<[u8]>,
}

/// Where a file's text is.
enum Source {
    /// In this buffer.
    Buffer(Loaded),
    /// On disk; the buffer, if there is one, shows something else.
    Disk(FileState, Option<Facts>),
}

impl EditorWorkspace {
    /// Over a connected Neovim.
    pub fn new(editor: Editor, disk: DiskWorkspace) -> Self {
        Self {
            editor,
            disk,
            ready: watch::Sender::new(0),
            read: Mutex::default(),
        }
    }

    /// Says that a buffer that answered `busy` may be tried again.
    pub fn ready_again(&self) {
        self.ready.send_modify(|count| *count += 1);
    }

    /// Reads the text of any loaded buffer, in the endings it would be written with.
    ///
    /// # Errors
    /// When Neovim is gone or the buffer is.
    pub async fn buffer_bytes(&self, buffer: i64) -> io::Result<Arc<[u8]>> {
        let describe = ("describe", vec![buffer.into()]);
        match self.load(describe).await? {
            Some(loaded) => Ok(loaded.bytes),
            None => Err(io::Error::other(format!("buffer {buffer} is gone"))),
        }
    }

    async fn facts(&self, ask: (&str, Vec<Value>)) -> io::Result<Option<Facts>> {
        let (function, args) = ask;
        let answer = self
            .editor
            .change_fn("pi.review.buffers", function, args)
            .await
            .map_err(to_io)?;
        if answer.is_nil() {
            return Ok(None);
        }
        let facts = Facts::parse(&answer);
        facts.map(Some).ok_or_else(|| {
            io::Error::other("Neovim described a buffer in a way this program does not know")
        })
    }

    /// Reads a buffer whose facts `ask` gives; `None` when no buffer is loaded.
    async fn load(&self, ask: (&str, Vec<Value>)) -> io::Result<Option<Loaded>> {
        for _ in 0..READ_ROUNDS {
            let Some(facts) = self.facts((ask.0, ask.1.clone())).await? else {
                return Ok(None);
            };
            let known = self.read.lock().get(&facts.buffer).cloned();
            if let Some(known) = known.filter(|known| known.facts == facts) {
                return Ok(Some(known));
            }
            let Ok(read) = self.editor.read_lines(facts.buffer, 0, None).await else {
                // Unloaded in between, or gone with the editor: the next question tells.
                continue;
            };
            if read.changedtick == facts.changedtick {
                let loaded = Loaded {
                    bytes: facts.bytes(&read.lines).into(),
                    lines: Arc::new(read.lines),
                    facts,
                };
                self.remember(&loaded);
                return Ok(Some(loaded));
            }
        }
        Err(io::Error::other("the buffer keeps changing"))
    }

    fn remember(&self, loaded: &Loaded) {
        let mut read = self.read.lock();
        // A handful of files are under review at a time; more would only hold memory.
        if read.len() >= 16 {
            read.clear();
        }
        read.insert(loaded.facts.buffer, loaded.clone());
    }

    async fn source(&self, path: &Path) -> io::Result<Source> {
        let loaded = self.load(("info", vec![path_value(path)])).await?;
        let Some(loaded) = loaded else {
            return Ok(Source::Disk(self.disk.state(path).await?, None));
        };
        if loaded.facts.modified {
            return Ok(Source::Buffer(loaded));
        }
        let disk = self.disk.state(path).await?;
        let in_step = match disk.origin {
            Origin::Missing => false,
            // Its text cannot be compared without Neovim's conversion, only the time of the file.
            _ if !loaded.facts.utf8 => !loaded.facts.behind,
            _ => disk.bytes == loaded.bytes,
        };
        Ok(if in_step {
            Source::Buffer(loaded)
        } else {
            Source::Disk(disk, Some(loaded.facts))
        })
    }

    async fn unsaved_text(&self, path: &Path) -> io::Result<Option<Arc<[u8]>>> {
        let path = real_path(path)?;
        let loaded = self.load(("info", vec![path_value(&path)])).await?;
        Ok(loaded
            .filter(|loaded| loaded.facts.modified || !loaded.facts.utf8)
            .map(|loaded| loaded.bytes))
    }

    async fn all_modified(&self) -> io::Result<Vec<(PathBuf, Arc<[u8]>)>> {
        let answer = self
            .editor
            .change_fn("pi.review.buffers", "all_modified", Vec::new())
            .await
            .map_err(to_io)?;
        let mut found = Vec::new();
        for item in answer.as_array().map(Vec::as_slice).unwrap_or_default() {
            let path = field(item, "path").and_then(Value::as_slice);
            let buffer = field(item, "info").and_then(Facts::parse);
            if let (Some(path), Some(facts)) = (path, buffer) {
                let bytes = self.buffer_bytes(facts.buffer).await?;
                found.push((bytes_path(path), bytes));
            }
        }
        Ok(found)
    }

    /// Writes the file itself and lets its buffer, if there is one, catch up.
    async fn write_disk(&self, commit: Commit, buffer: Option<i64>) -> CommitOutcome {
        let outcome = self.disk.commit(commit).await;
        if let (CommitOutcome::Written { .. }, Some(buffer)) = (&outcome, buffer) {
            let reload = self
                .editor
                .change_fn("pi.review.buffers", "reload", vec![buffer.into()]);
            if let Err(error) = reload.await {
                // The file is written all the same; the user sees Neovim's own warning at the next `checktime`.
                tracing::warn!(%error, buffer, "a buffer was not reloaded after its file was written");
            }
        }
        outcome
    }

    async fn commit_to_disk(&self, commit: Commit) -> CommitOutcome {
        match self.source(&commit.path).await {
            Ok(Source::Buffer(_)) => CommitOutcome::Moved,
            Ok(Source::Disk(_, facts)) => {
                let buffer = facts.map(|facts| facts.buffer);
                self.write_disk(commit, buffer).await
            }
            Err(error) => CommitOutcome::Failed(error),
        }
    }

    async fn commit_to_buffer(&self, commit: Commit, origin: &BufferOrigin) -> CommitOutcome {
        let loaded = match self.load(("info", vec![path_value(&commit.path)])).await {
            Ok(Some(loaded)) => loaded,
            Ok(None) => return CommitOutcome::Moved,
            Err(error) => return CommitOutcome::Failed(error),
        };
        let facts = &loaded.facts;
        let moved = facts.buffer != origin.buffer || loaded.bytes != commit.base.bytes;
        if moved {
            return CommitOutcome::Moved;
        }
        if facts.modified && facts.behind {
            // Whichever is written, the other's changes would be gone.
            return CommitOutcome::Failed(io::Error::other(
                "the file was changed on disk, and its buffer has unsaved changes: keep one of them with `:w!` or `:e!`, then accept again",
            ));
        }
        if !facts.modifiable || facts.swap {
            return self.commit_around_buffer(commit, facts).await;
        }
        let request = request(&loaded, &commit);
        let mut moved = CommitOutcome::Moved;
        loop {
            let mut ready = self.ready.subscribe();
            let answer = self
                .editor
                .change_fn("pi.review.commit", "apply", vec![request.clone()])
                .await;
            let answer = match answer {
                Ok(answer) => answer,
                Err(EditorError::Closed { .. }) => return CommitOutcome::Unknown,
                Err(error) => return CommitOutcome::Failed(to_io(error)),
            };
            match status(&answer) {
                "busy" => tokio::select! {
                    _ = ready.changed() => moved = CommitOutcome::Typed,
                    _ = self.editor.closed() => return CommitOutcome::Unknown,
                },
                "done" => return self.written(&commit, facts).await,
                "moved" => return moved,
                _ => return CommitOutcome::Failed(failure(&answer)),
            }
        }
    }

    /// A buffer that must not be changed, or that another Neovim has open too: the file is written past it.
    async fn commit_around_buffer(&self, mut commit: Commit, facts: &Facts) -> CommitOutcome {
        if facts.modified {
            let why = "its buffer has unsaved changes and cannot be changed";
            return CommitOutcome::Failed(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        commit.base.origin = Origin::Disk;
        self.write_disk(commit, Some(facts.buffer)).await
    }

    async fn written(&self, commit: &Commit, facts: &Facts) -> CommitOutcome {
        let on_disk = if facts.utf8 {
            let state = self.disk.state(&commit.path).await;
            state.map_or_else(|_| Arc::clone(&commit.target), |state| state.bytes)
        } else {
            let read = self.buffer_bytes(facts.buffer).await;
            read.unwrap_or_else(|_| Arc::clone(&commit.target))
        };
        CommitOutcome::Written { on_disk }
    }
}

impl Workspace for EditorWorkspace {
    fn state<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, io::Result<FileState>> {
        Box::pin(async move {
            Ok(match self.source(path).await? {
                Source::Disk(state, _) => state,
                Source::Buffer(loaded) => FileState {
                    bytes: loaded.bytes,
                    origin: Origin::Buffer(BufferOrigin {
                        buffer: loaded.facts.buffer,
                        changedtick: loaded.facts.changedtick,
                        modified: loaded.facts.modified,
                    }),
                },
            })
        })
    }

    fn unsaved<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Option<Arc<[u8]>>> {
        Box::pin(async move {
            self.unsaved_text(path).await.unwrap_or_else(|error| {
                tracing::warn!(%error, path = %path.display(), "no look at the buffer of a file");
                None
            })
        })
    }

    fn all_unsaved(&self) -> BoxFuture<'_, Vec<(PathBuf, Arc<[u8]>)>> {
        Box::pin(async move {
            self.all_modified().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "no look at the unsaved buffers");
                Vec::new()
            })
        })
    }

    fn loaded(&self) -> BoxFuture<'_, Vec<PathBuf>> {
        Box::pin(async move {
            let asked = self
                .editor
                .change_fn("pi.review.buffers", "all_loaded", Vec::new());
            let answer = match asked.await {
                Ok(answer) => answer,
                Err(error) => {
                    tracing::warn!(%error, "no look at the loaded buffers");
                    return Vec::new();
                }
            };
            let paths = answer.as_array().map(Vec::as_slice).unwrap_or_default();
            let paths = paths.iter().filter_map(Value::as_slice);
            paths.map(bytes_path).collect()
        })
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, CommitOutcome> {
        Box::pin(async move {
            match commit.base.origin.clone() {
                Origin::Buffer(origin) => self.commit_to_buffer(commit, &origin).await,
                Origin::Disk | Origin::Missing => self.commit_to_disk(commit).await,
            }
        })
    }
}

/// Builds what `pi.review.commit` takes.
fn request(loaded: &Loaded, commit: &Commit) -> Value {
    let facts = &loaded.facts;
    let lines = if facts.empty {
        Vec::new()
    } else {
        loaded.lines.as_ref().clone()
    };
    let target = Target::parse(&commit.target, facts.format, facts.utf8);
    let edits = edits_for(&lines, facts.format, &target, &commit.edits);
    let pairs = [
        ("buf", facts.buffer.into()),
        ("path", path_value(&commit.path)),
        ("stamp", facts.stamp.as_str().into()),
        ("changedtick", facts.changedtick.into()),
        ("edits", edits.into_iter().map(edit_value).collect()),
        ("empty_before", facts.empty.into()),
        ("empty_after", target.lines.is_empty().into()),
        ("endofline", target.endofline.into()),
        (
            "bomb",
            (if facts.utf8 { target.bomb } else { facts.bomb }).into(),
        ),
        ("fileformat", target.format.name().into()),
        ("force", commit.force.into()),
    ];
    Value::Map(
        pairs
            .into_iter()
            .map(|(key, value)| (Value::from(key), value))
            .collect(),
    )
}

fn edit_value(edit: BufferEdit) -> Value {
    let lines = edit.lines.into_iter().map(Value::Binary).collect();
    Value::Map(vec![
        ("start".into(), edit.start.into()),
        ("stop".into(), (edit.start + edit.removed).into()),
        ("lines".into(), Value::Array(lines)),
    ])
}

fn status(answer: &Value) -> &str {
    field(answer, "status")
        .and_then(Value::as_str)
        .unwrap_or("failed")
}

fn failure(answer: &Value) -> io::Error {
    let text = |name| field(answer, name).and_then(Value::as_slice);
    let message = text("message").map_or_else(
        || "Neovim gave no reason".to_owned(),
        |message| String::from_utf8_lossy(message).into_owned(),
    );
    let kind = match text("code") {
        Some(b"readonly") => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, message)
}

fn to_io(error: EditorError) -> io::Error {
    let kind = match &error {
        EditorError::Closed { .. } => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

#[cfg(unix)]
fn path_value(path: &Path) -> Value {
    use std::os::unix::ffi::OsStrExt as _;
    Value::Binary(path.as_os_str().as_bytes().to_vec())
}

#[cfg(unix)]
fn bytes_path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}
