//! Making sessions: new, in memory, from a file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::disk::Disk;
use super::header::{Header, is_valid_id};
use super::load::{Found, Loaded};
use super::migrate;
use super::stamps::{Stamps, SystemStamps};
use super::{NONE, Place, Session, Slot, StoreError, StoreNotice};
use crate::entry::{Entry, EntryId, iso_time};

/// How a session starts.
pub struct Start {
    /// Id of a new session; a fresh one when absent.
    pub id: Option<String>,
    /// The file a new session is made from.
    pub parent_session: Option<String>,
    /// Working directory to run in instead of the stored one (opening only; never written).
    pub cwd_override: Option<PathBuf>,
    /// Source of ids and times.
    pub stamps: Box<dyn Stamps>,
}

impl Default for Start {
    fn default() -> Self {
        Self {
            id: None,
            parent_session: None,
            cwd_override: None,
            stamps: Box::new(SystemStamps),
        }
    }
}

impl Session {
    /// Starts a session that will be stored in `dir`. The file is made with the first user or assistant message.
    ///
    /// # Errors
    /// [`StoreError::BadId`] for an id that may not be one.
    pub fn create(dir: &Path, cwd: &Path, start: Start) -> Result<Self, StoreError> {
        let mut session = Self::fresh(cwd, start)?;
        // A folder that cannot be made now is tried again with the file.
        drop(super::disk::create_dir(dir));
        let path = dir.join(session.file_name());
        session.dir = Some(dir.to_owned());
        session.disk = Some(Disk::unborn(path));
        Ok(session)
    }

    /// Starts a session that is never stored.
    ///
    /// # Errors
    /// [`StoreError::BadId`] for an id that may not be one.
    pub fn in_memory(cwd: &Path, start: Start) -> Result<Self, StoreError> {
        Self::fresh(cwd, start)
    }

    /// Opens a session file. A missing one becomes a new session at exactly that path, an empty one gets its header at
    /// once. `cwd` stands in for a header without one.
    ///
    /// # Errors
    /// [`StoreError::NotASession`] when the file holds something else (it is not touched), [`StoreError::Read`].
    pub fn open(path: &Path, cwd: &Path, start: Start) -> Result<Self, StoreError> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let failed = |source| StoreError::Read {
            path: path.clone(),
            source,
        };
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Self::at(&path, cwd, start);
            }
            Err(error) => return Err(failed(error)),
            Ok(meta) if meta.is_dir() => return Err(StoreError::NotASession(path)),
            Ok(meta) if meta.len() == 0 => return Self::fill_empty(&path, cwd, start),
            Ok(_) => {}
        }
        let mut disk = Disk::open(path.clone()).map_err(failed)?;
        let loaded = disk.load().map_err(failed)?;
        let Some(header) = loaded.header.clone() else {
            return Err(StoreError::NotASession(path));
        };
        if header.version() < Header::VERSION {
            return Self::migrate(&path, &header, cwd, start);
        }
        let mut session = Self::with_header(header, cwd, start);
        session.dir = path.parent().map(Path::to_owned);
        if let Err(error) = disk.repair() {
            session.notice_away(&path, &error);
        } else if disk.is_read_only() {
            session.notice_away(&path, &std::io::ErrorKind::PermissionDenied.into());
        }
        if !disk.lock() {
            session.notices.push(StoreNotice::OpenElsewhere(path));
        }
        session.disk = Some(disk);
        session.take_loaded(loaded);
        session.leaf = session.positions().next_back();
        Ok(session)
    }

    fn at(path: &Path, cwd: &Path, start: Start) -> Result<Self, StoreError> {
        let mut session = Self::fresh(cwd, start)?;
        session.dir = path.parent().map(Path::to_owned);
        session.disk = Some(Disk::unborn(path.to_owned()));
        Ok(session)
    }

    fn fill_empty(path: &Path, cwd: &Path, mut start: Start) -> Result<Self, StoreError> {
        let header = new_header(cwd, &mut start)?;
        Disk::replace(path, &[&header.line()]).map_err(|source| StoreError::Write {
            path: path.to_owned(),
            source,
        })?;
        Self::open(path, cwd, start)
    }

    fn migrate(
        path: &Path,
        header: &Header,
        cwd: &Path,
        mut start: Start,
    ) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Read {
            path: path.to_owned(),
            source,
        };
        let bytes = std::fs::read(path).map_err(failed)?;
        let (header, lines) = migrate::migrate(header, &bytes, &mut *start.stamps);
        let header_line = header.line();
        let texts = std::iter::once(header_line.as_str()).chain(lines.iter().map(String::as_str));
        let texts: Vec<&str> = texts.collect();
        match Disk::replace(path, &texts) {
            Ok(()) => Self::open(path, cwd, start),
            Err(error) => {
                // The old form cannot be replaced: go on without a file rather than mixing two forms in one.
                let mut session = Self::with_header(header, cwd, start);
                session.notice_away(path, &error);
                for entry in lines.iter().filter_map(|line| Entry::parse(line)) {
                    session.push_in_memory(&entry);
                }
                session.leaf = session.positions().next_back();
                Ok(session)
            }
        }
    }

    fn fresh(cwd: &Path, mut start: Start) -> Result<Self, StoreError> {
        let header = new_header(cwd, &mut start)?;
        Ok(Self::with_header(header, cwd, start))
    }

    pub(super) fn with_header(header: Header, cwd: &Path, start: Start) -> Self {
        let stored = header
            .cwd()
            .filter(|stored| !stored.is_empty())
            .map(PathBuf::from);
        let cwd = start
            .cwd_override
            .or(stored)
            .unwrap_or_else(|| cwd.to_owned());
        Self {
            header,
            cwd,
            dir: None,
            disk: None,
            slots: Vec::new(),
            index: HashMap::new(),
            pending: Vec::new(),
            leaf: None,
            labels: HashMap::new(),
            name: None,
            away: false,
            foreign: 0,
            notices: Vec::new(),
            stamps: start.stamps,
            cache: Mutex::new(None),
            stats: std::sync::Arc::default(),
            load: super::Load::next(),
        }
    }

    /// Returns the file name that belongs to the header.
    pub(crate) fn file_name(&self) -> String {
        let time = self
            .header
            .timestamp()
            .unwrap_or_default()
            .replace([':', '.'], "-");
        format!("{time}_{}.jsonl", self.header.id())
    }

    pub(super) fn notice_away(&mut self, path: &Path, error: &std::io::Error) {
        if !self.away {
            self.away = true;
            self.notices.push(StoreNotice::NotWritten {
                path: path.to_owned(),
                cause: error.to_string(),
            });
        }
    }

    /// Adds entries that a file holds. The leaf stays.
    pub(super) fn take_loaded(&mut self, loaded: Loaded) {
        let from = self.slots.len();
        let mut parents = Vec::with_capacity(loaded.found.len());
        self.slots.reserve(loaded.found.len());
        self.index.reserve(loaded.found.len());
        for found in loaded.found {
            let Found {
                id,
                parent,
                facts,
                offset,
                len,
                note,
            } = found;
            self.add_slot(id, NONE, facts, Place::File { offset, len });
            parents.push(parent);
            if let Some(note) = note {
                self.note(*note);
            }
        }
        // Parents may stand behind their children, and of duplicate ids the last counts: resolve when all are known.
        for (at, parent) in parents.into_iter().enumerate() {
            let pos = parent.and_then(|id| self.find(&id)).unwrap_or(NONE);
            if let Some(slot) = self.slots.get_mut(from + at) {
                slot.parent = pos;
            }
        }
    }

    /// Adds a slot and returns its position.
    pub(super) fn add_slot(
        &mut self,
        id: EntryId,
        parent: super::Pos,
        facts: crate::entry::Facts,
        place: Place,
    ) -> super::Pos {
        let pos = super::Pos::try_from(self.slots.len()).unwrap_or(NONE);
        self.index.insert(id.clone(), pos);
        self.slots.push(Slot {
            id,
            parent,
            facts,
            place,
        });
        pos
    }

    /// Adds an entry whose line is only in memory. The leaf stays.
    pub(super) fn push_in_memory(&mut self, entry: &Entry) -> super::Pos {
        let parent = entry
            .parent_id()
            .and_then(|id| self.find(id))
            .unwrap_or(NONE);
        let place = Place::Memory(entry.shared_text());
        let pos = self.add_slot(entry.id().clone(), parent, *entry.facts(), place);
        if let Some(note) = super::Note::of(entry) {
            self.note(note);
        }
        pos
    }
}

fn new_header(cwd: &Path, start: &mut Start) -> Result<Header, StoreError> {
    let id = match start.id.take() {
        Some(id) if !is_valid_id(&id) => return Err(StoreError::BadId(id)),
        Some(id) => id,
        None => start.stamps.session_id(),
    };
    let time = iso_time(start.stamps.now_ms());
    Ok(Header::new(
        &id,
        &time,
        &cwd.to_string_lossy(),
        start.parent_session.as_deref(),
    ))
}

/// Returns the lines of an older file as version 3 has them, without the header.
pub(crate) fn migrated(header: &Header, bytes: &[u8]) -> Vec<String> {
    migrate::migrate(header, bytes, &mut SystemStamps).1
}
