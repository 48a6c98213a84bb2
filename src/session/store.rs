//! The session file as a value: an index of its entries, a leaf, and appends.
//!
//! [`Session`] keeps no text: an entry is where its line stands in the file (or, before the file exists, the line
//! itself). What was appended is on its way to the disk with one write call before the append returns; there is no
//! `fsync`, so a crash of the program loses nothing and a crash of the machine may lose the last seconds. A file that
//! cannot be written does not end the conversation: entries wait in memory, a [`StoreNotice`] says so, and the next
//! append that works writes them all. The leaf moves only by appends and by [`Session::branch`].

mod append;
pub(crate) mod disk;
mod header;
pub(crate) mod load;
mod migrate;
mod open;
mod snapshot;
mod stamps;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use self::disk::Disk;
use self::load::Note;
use super::projection::{Context, Entries, Pos};
use super::stats::Stats;
use crate::entry::{Entry, EntryId, Facts};

pub use self::append::{CompactionEntry, SummaryEntry};
pub use self::header::{Header, is_valid_id};
pub use self::open::Start;
pub(crate) use self::open::migrated;
pub use self::snapshot::Snapshot;
pub use self::stamps::{Stamps, SystemStamps};

/// Why an operation on a session was refused. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No entry has this id.
    #[error("Entry {0} not found")]
    NotFound(String),
    /// The entry is on another branch.
    #[error("Entry {0} is not on the active branch")]
    NotOnBranch(String),
    /// The model never sees the entry, or not as something that can be edited.
    #[error("Entry {0} does not contribute editable model content")]
    NotEditable(String),
    /// A context edit needs null or content.
    #[error("Context edit replacement must be null or contain string/array content")]
    BadReplacement,
    /// The file holds something else and was not touched.
    #[error("Session file is not a valid pi session: {}", .0.display())]
    NotASession(PathBuf),
    /// The given session id has characters that ids may not have.
    #[error(
        "session id `{0}` may only hold letters, digits, dots, dashes and underscores, and begins and ends with a letter or digit"
    )]
    BadId(String),
    /// A new session would overwrite a file.
    #[error("session file {} exists already; open it, or start a session with another id", .0.display())]
    Exists(PathBuf),
    /// The operation needs a session that has a file.
    #[error("the session is not saved; it has no file yet")]
    NotSaved,
    /// Reading failed.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Writing failed.
    #[error("write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Something the person should know about the file; given once by [`Session::take_notices`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreNotice {
    /// Another process of ours has the session open.
    OpenElsewhere(PathBuf),
    /// Another program appended entries; they are in the tree now.
    ForeignEntries {
        /// The file.
        path: PathBuf,
        /// How many, so far.
        count: usize,
    },
    /// The file could not be written: the conversation goes on in memory.
    NotWritten {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// Everything that waited in memory is in the file now.
    SavedAgain(PathBuf),
    /// The file had vanished and was written again.
    Restored(PathBuf),
    /// Another program put another file in its place; what it lacked was appended.
    Replaced(PathBuf),
}

impl std::fmt::Display for StoreNotice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OpenElsewhere(path) => write!(
                f,
                "session {} is open in another pi-nvim: both go on, each on its own branch",
                path.display()
            ),
            Self::ForeignEntries { path, count } => write!(
                f,
                "another program wrote to session {} ({count} new entries): see them in the session tree",
                path.display()
            ),
            Self::NotWritten { path, cause } => write!(
                f,
                "session {} cannot be written ({cause}): the conversation goes on in memory and is saved as soon as it can be",
                path.display()
            ),
            Self::SavedAgain(path) => write!(f, "session {} is saved again", path.display()),
            Self::Restored(path) => write!(
                f,
                "session file {} had been removed and was written again",
                path.display()
            ),
            Self::Replaced(path) => write!(
                f,
                "another program replaced session file {}: it was read again and missing entries were added",
                path.display()
            ),
        }
    }
}

/// Where the line of an entry is.
#[derive(Clone, Debug)]
enum Place {
    File { offset: u64, len: u32 },
    Memory(Arc<str>),
}

/// No position: the parent of a root.
const NONE: Pos = Pos::MAX;

#[derive(Clone, Debug)]
struct Slot {
    id: EntryId,
    parent: Pos,
    facts: Facts,
    place: Place,
}

/// A label as it stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The text.
    pub text: String,
    /// When it was set, as in the file.
    pub time: String,
}

/// One session: entries, leaf, labels, name, and the file.
pub struct Session {
    header: Header,
    cwd: PathBuf,
    /// Folder for sessions made from this one; `None` when nothing is ever written.
    dir: Option<PathBuf>,
    disk: Option<Disk>,
    slots: Vec<Slot>,
    index: HashMap<EntryId, Pos>,
    /// Slots whose line waits to be written, in file order.
    pending: Vec<Pos>,
    leaf: Option<Pos>,
    labels: HashMap<String, Label>,
    name: Option<String>,
    away: bool,
    foreign: usize,
    notices: Vec<StoreNotice>,
    stamps: Box<dyn Stamps>,
    /// Path and context of the leaf, made at the first question and carried on by appends.
    cache: Mutex<Option<Cache>>,
    /// Counts of what was looked at so far, shared with snapshots.
    stats: Arc<Mutex<Stats>>,
    /// Which reading of a file gave the positions: another number, other positions.
    load: Load,
}

/// One reading of a session file; no two are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load(u64);

impl Load {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

struct Cache {
    path: Vec<Pos>,
    context: Arc<Context>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id())
            .field("file", &self.file())
            .field("entries", &self.slots.len())
            .field("leaf", &self.leaf_id())
            .finish_non_exhaustive()
    }
}

impl Entries for Session {
    fn id(&self, pos: Pos) -> Option<&EntryId> {
        self.slots.get(pos as usize).map(|slot| &slot.id)
    }

    fn facts(&self, pos: Pos) -> Option<&Facts> {
        self.slots.get(pos as usize).map(|slot| &slot.facts)
    }

    fn entry(&self, pos: Pos) -> Option<Entry> {
        let slot = self.slots.get(pos as usize)?;
        let entry = match &slot.place {
            Place::Memory(text) => Entry::parse(text)?,
            Place::File { offset, len } => {
                let bytes = self.disk.as_ref()?.read(*offset, *len)?;
                Entry::parse(&String::from_utf8_lossy(&bytes))?
            }
        };
        // A file that was overwritten in place may hold anything by now.
        (*entry.id() == slot.id).then_some(entry)
    }
}

impl Session {
    /// Returns the session id.
    pub fn id(&self) -> &str {
        self.header.id()
    }

    /// As [`Session::id`], where the name would mean an entry's id.
    pub(crate) fn id_text(&self) -> &str {
        self.header.id()
    }

    /// Returns the time of the session's clock.
    pub(crate) fn now_ms(&mut self) -> i64 {
        self.stamps.now_ms()
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the working directory of the running session.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// Returns the folder in which sessions made from this one are stored; `None` in memory.
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Returns the file, whether or not it is written yet; `None` in memory.
    pub fn file(&self) -> Option<&Path> {
        self.disk.as_ref().map(|disk| disk.path.as_path())
    }

    /// Whether the session's file exists and holds every entry.
    pub fn is_saved(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| !disk.is_unborn()) && self.pending.is_empty()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no entry at all.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the leaf's id; `None` before the first entry.
    pub fn leaf_id(&self) -> Option<&EntryId> {
        self.id_at(self.leaf?)
    }

    /// Returns the leaf's position.
    pub fn leaf(&self) -> Option<Pos> {
        self.leaf
    }

    fn id_at(&self, pos: Pos) -> Option<&EntryId> {
        self.slots.get(pos as usize).map(|slot| &slot.id)
    }

    /// Returns the position of an entry.
    pub fn find(&self, id: &str) -> Option<Pos> {
        self.index.get(id).copied()
    }

    /// Loads an entry by id.
    pub fn get(&self, id: &str) -> Option<Entry> {
        Entries::entry(self, self.find(id)?)
    }

    /// Returns the position of the parent; `None` for a root and for an entry whose parent is missing.
    pub fn parent(&self, pos: Pos) -> Option<Pos> {
        let parent = self.slots.get(pos as usize)?.parent;
        (parent != NONE && parent != pos).then_some(parent)
    }

    /// Returns whether the position is the one its id stands for (of duplicate ids only the last is).
    pub fn is_current(&self, pos: Pos) -> bool {
        self.id_at(pos)
            .is_some_and(|id| self.index.get(id) == Some(&pos))
    }

    /// Loads all entries in file order, one at a time. Entries whose text cannot be read are left out.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.positions().filter_map(|pos| Entries::entry(self, pos))
    }

    /// Returns all positions in file order.
    pub fn positions(&self) -> impl DoubleEndedIterator<Item = Pos> + use<> {
        0..Pos::try_from(self.slots.len()).unwrap_or(NONE)
    }

    /// Loads the entries after one, in file order; all for `None`.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for an unknown id.
    pub fn entries_since(
        &self,
        since: Option<&str>,
    ) -> Result<impl Iterator<Item = Entry>, StoreError> {
        let from = match since {
            Some(id) => {
                self.find(id)
                    .ok_or_else(|| StoreError::NotFound(id.to_owned()))?
                    + 1
            }
            None => 0,
        };
        let positions = self.positions().filter(move |pos| *pos >= from);
        Ok(positions.filter_map(|pos| Entries::entry(self, pos)))
    }

    /// Returns the label of an entry.
    pub fn label(&self, id: &str) -> Option<&Label> {
        self.labels.get(id)
    }

    /// Returns all labels by entry id; some may name entries that do not exist.
    pub fn labels(&self) -> &HashMap<String, Label> {
        &self.labels
    }

    /// Returns the session's name.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Takes the notices that came up since the last call.
    pub fn take_notices(&mut self) -> Vec<StoreNotice> {
        std::mem::take(&mut self.notices)
    }

    /// Returns the context of the leaf. Computed once per leaf, then carried on by each append.
    pub fn context(&self) -> Arc<Context> {
        self.with_cache(|cache| cache.context.clone())
    }

    /// Returns the path from the root to the leaf.
    pub fn path(&self) -> Vec<Pos> {
        self.with_cache(|cache| cache.path.clone())
    }

    /// Whether an entry lies on the path to the leaf.
    pub fn is_on_path(&self, pos: Pos) -> bool {
        self.with_cache(|cache| cache.path.contains(&pos))
    }

    fn with_cache<T>(&self, read: impl FnOnce(&Cache) -> T) -> T {
        let mut cache = self.cache.lock();
        let cache = cache.get_or_insert_with(|| {
            let path = self.path_to(self.leaf);
            let context = Arc::new(Context::build(self, &path));
            Cache { path, context }
        });
        read(cache)
    }

    /// Returns counts over all entries. Each entry is counted once; later calls look only at what is new.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.lock().clone();
        stats.catch_up(self);
        let mut kept = self.stats.lock();
        if kept.counted() < stats.counted() {
            kept.clone_from(&stats);
        }
        stats
    }

    /// Number of entries that [`Session::stats`] has still to look at.
    pub(crate) fn uncounted(&self) -> usize {
        self.len().saturating_sub(self.stats.lock().counted())
    }

    /// Which reading of the file gave the positions.
    pub(crate) fn load(&self) -> Load {
        self.load
    }

    /// Returns the context of any entry.
    pub fn context_at(&self, leaf: Option<Pos>) -> Context {
        Context::build(self, &self.path_to(leaf))
    }

    /// Moves the leaf to an entry. Nothing is written: only the next append shows it in the file.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub fn branch(&mut self, id: &str) -> Result<(), StoreError> {
        let pos = self
            .find(id)
            .ok_or_else(|| StoreError::NotFound(id.to_owned()))?;
        self.move_leaf(Some(pos));
        Ok(())
    }

    /// Moves the leaf before the first entry: the next append is another root.
    pub fn reset_leaf(&mut self) {
        self.move_leaf(None);
    }

    fn move_leaf(&mut self, leaf: Option<Pos>) {
        if self.leaf != leaf {
            self.leaf = leaf;
            *self.cache.lock() = None;
        }
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Label {
                target,
                label,
                time,
            } => {
                match label {
                    Some(text) => self.labels.insert(target, Label { text, time }),
                    None => self.labels.remove(&target),
                };
            }
            Note::Name(name) => self.name = name,
        }
    }
}
