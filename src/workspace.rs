//! Files as tools see them: the disk, or the disk and an editor's unsaved buffers; and how bytes get back there.
//!
//! Everything here is bytes. A buffer's content is the bytes that writing it would give (its file format's endings, its
//! BOM, its final newline), so that text fidelity has one meaning. Entry points: [`Workspace`], [`disk::DiskWorkspace`],
//! [`queue::MutationQueue`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;

pub mod disk;
pub mod queue;

/// Where a file's content came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No such file.
    Missing,
    /// The disk.
    Disk,
    /// A loaded buffer of the editor.
    Buffer(BufferOrigin),
}

/// Facts about a loaded buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferOrigin {
    /// Buffer number.
    pub buffer: i64,
    /// Neovim's `changedtick` of the text; a commit carries it and is refused when it moved.
    pub changedtick: i64,
    /// Whether the buffer has unsaved changes.
    pub modified: bool,
}

/// A file as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Its bytes; empty when missing.
    pub bytes: Arc<[u8]>,
    /// Where they came from.
    pub origin: Origin,
}

/// One contiguous replacement, in lines of the text that is replaced (lines end after `\n`; the last may lack it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineEdit {
    /// First replaced line, counted from 0.
    pub start: usize,
    /// How many lines are replaced.
    pub removed: usize,
    /// The new lines with their endings.
    pub added: Vec<u8>,
}

/// A write that was decided.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Real path of the file.
    pub path: PathBuf,
    /// What the target was computed from; a workspace changes nothing when the file is no longer this.
    pub base: FileState,
    /// The new content.
    pub target: Arc<[u8]>,
    /// The same change as minimal edits of `base`, in order of position.
    pub edits: Vec<LineEdit>,
    /// Write although the file or buffer is marked read-only (the person said so).
    pub force: bool,
}

/// What became of a commit.
#[derive(Debug)]
pub enum CommitOutcome {
    /// Written. `on_disk` is what stands there now (hooks of the editor may have changed it further).
    Written {
        /// Bytes on disk after the write.
        on_disk: Arc<[u8]>,
    },
    /// The file is no longer the base; nothing was changed.
    Moved,
    /// The same, because the person was typing in it: no sign that it keeps changing by itself.
    Typed,
    /// Nothing was changed, or everything was put back.
    Failed(io::Error),
    /// The editor went away before it answered; what is on disk has to be looked at.
    Unknown,
}

/// Files as tools see them.
pub trait Workspace: Send + Sync + 'static {
    /// Reads the file: a loaded, modified buffer wins over the disk. A missing file is `Origin::Missing`, not an error.
    /// Used by `edit` and `write` at the head of the queue, and again at commit.
    fn state<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, io::Result<FileState>>;

    /// Returns the content of an unsaved buffer for this path, if the editor has one; `None` means: read the disk.
    /// Used by `read` and the searches.
    fn unsaved<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Option<Arc<[u8]>>>;

    /// Returns all unsaved buffers that have a file, by real path; searches look here before the disk.
    fn all_unsaved(&self) -> BoxFuture<'_, Vec<(PathBuf, Arc<[u8]>)>>;

    /// Returns the real paths of files that an editor has loaded.
    fn loaded(&self) -> BoxFuture<'_, Vec<PathBuf>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Writes. Never given up half way: when the future ends the outcome is final. Parent folders are created.
    fn commit(&self, commit: Commit) -> BoxFuture<'_, CommitOutcome>;
}
