//! Sessions made from sessions: fork, clone, a copy for another folder, import.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::projection::{Entries, Pos};
use super::store::{Header, Session, Start, StoreError, disk, load};
use crate::ai::Message;
use crate::entry::{Entry, EntryId, Kind, Line, Role, json};

/// How many entries of a copied path are written at once.
const BATCH: usize = 512;

impl Session {
    /// Starts an empty session beside this one: in the same folder, or in memory like this one.
    ///
    /// # Errors
    /// [`StoreError::BadId`].
    pub fn sibling(&self, mut start: Start) -> Result<Self, StoreError> {
        let parent = self.file().filter(|_| start.parent_session.is_none());
        start.parent_session = start
            .parent_session
            .or_else(|| parent.map(|path| path.to_string_lossy().into_owned()));
        match self.dir() {
            Some(dir) => Self::create(dir, self.cwd(), start),
            None => Self::in_memory(self.cwd(), start),
        }
    }

    /// Makes a session of the path up to `leaf` (a clone, when it is the leaf). Ids stay; labels set on the path come
    /// after it. The file is written at once when the path holds a user or assistant message.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for an unknown leaf, [`StoreError::Exists`].
    pub fn branched(&self, leaf: &str, start: Start) -> Result<Self, StoreError> {
        let pos = self
            .find(leaf)
            .ok_or_else(|| StoreError::NotFound(leaf.to_owned()))?;
        let mut session = self.sibling(start)?;
        let path = self.path_to(Some(pos));
        let is_label = |pos: &Pos| {
            self.facts(*pos)
                .is_some_and(|facts| facts.kind == Kind::Label)
        };
        let moved = self.moved_boundaries(&path);
        let kept: Vec<Pos> = path.iter().copied().filter(|pos| !is_label(pos)).collect();
        let mut parent: Option<EntryId> = None;
        for batch in kept.chunks(BATCH) {
            let mut lines = Vec::with_capacity(batch.len());
            for entry in batch.iter().filter_map(|pos| self.entry(*pos)) {
                lines.push(rechained(&entry, parent.as_ref(), &moved));
                parent = Some(entry.id().clone());
            }
            session.append_batch(&lines)?;
        }
        let labels = self.copied_labels(&kept, &mut session, parent);
        session.append_batch(&labels)?;
        Ok(session)
    }

    /// Makes a session of everything before a user message and returns that message's text for the editor.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the entry is no user message, [`StoreError::NotSaved`] when this session should have
    /// a file and has none yet.
    pub fn forked_before(&self, entry: &str, start: Start) -> Result<(Self, String), StoreError> {
        let missing = || StoreError::NotFound(entry.to_owned());
        let pos = self.find(entry).ok_or_else(missing)?;
        let message = self.entry(pos).and_then(|entry| entry.message());
        let Some(Message::User(message)) = message else {
            return Err(missing());
        };
        if self.file().is_some() && !self.is_saved() {
            return Err(StoreError::NotSaved);
        }
        let text = message.content.text("");
        let fork = match self
            .parent(pos)
            .and_then(|parent| Entries::id(self, parent))
        {
            Some(parent) => self.branched(parent, start)?,
            None => self.sibling(start)?,
        };
        Ok((fork, text))
    }

    /// Returns what can be forked: every user message with text, in file order, as id and text.
    pub fn fork_candidates(&self) -> Vec<(EntryId, String)> {
        self.fork_candidates_iter().collect()
    }

    /// As [`Session::fork_candidates`], one at a time.
    pub(crate) fn fork_candidates_iter(&self) -> impl Iterator<Item = (EntryId, String)> {
        self.user_texts()
            .filter(|(_, text)| !text.trim().is_empty())
    }

    /// Texts of all user messages in file order. Only those are loaded.
    pub(crate) fn user_texts(&self) -> impl Iterator<Item = (EntryId, String)> {
        let is_user = |pos: &Pos| {
            self.facts(*pos)
                .is_some_and(|facts| facts.is_message(Role::User))
        };
        self.positions().filter(is_user).filter_map(|pos| {
            let entry = self.entry(pos)?;
            match entry.message()? {
                Message::User(message) => Some((entry.id().clone(), message.content.text(""))),
                _ => None,
            }
        })
    }

    /// Compaction boundaries that named a label: the label stays behind, so the next kept entry takes its place.
    fn moved_boundaries(&self, path: &[Pos]) -> HashMap<String, EntryId> {
        let mut moved = HashMap::new();
        let mut next: Option<EntryId> = None;
        for pos in path.iter().rev() {
            let (Some(facts), Some(id)) = (self.facts(*pos), Entries::id(self, *pos)) else {
                continue;
            };
            if facts.kind != Kind::Label {
                next = Some(id.clone());
            } else if let Some(next) = &next {
                moved.insert(id.to_string(), next.clone());
            }
        }
        moved
    }

    fn copied_labels(
        &self,
        kept: &[Pos],
        into: &mut Self,
        mut parent: Option<EntryId>,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for id in kept.iter().filter_map(|pos| Entries::id(self, *pos)) {
            let Some(label) = self.label(id) else {
                continue;
            };
            let fresh = into.new_entry_id();
            let line = serde_json::json!({
                "type": "label", "id": fresh, "parentId": parent, "timestamp": label.time,
                "targetId": id, "label": label.text,
            });
            lines.push(json::stringify(&line));
            parent = Some(fresh);
        }
        lines
    }
}

fn rechained(entry: &Entry, parent: Option<&EntryId>, moved: &HashMap<String, EntryId>) -> String {
    let line = entry.with_parent(parent.map(EntryId::as_str));
    if entry.facts().kind != Kind::Compaction {
        return line;
    }
    let value = entry.value();
    let kept = value
        .get("firstKeptEntryId")
        .and_then(serde_json::Value::as_str);
    match (kept.and_then(|id| moved.get(id)), Entry::parse(&line)) {
        (Some(next), Some(entry)) => entry.with_field("firstKeptEntryId", Some(next)),
        _ => line,
    }
}

/// Copies a session file with all its branches into `dir`, under a new id and another working directory, and opens the
/// copy. Older formats are brought up to date on the way; the source is not touched.
///
/// # Errors
/// [`StoreError::NotASession`], [`StoreError::BadId`], [`StoreError::Exists`], [`StoreError::Read`], [`StoreError::Write`].
pub fn fork_from(
    source: &Path,
    dir: &Path,
    cwd: &Path,
    mut start: Start,
) -> Result<Session, StoreError> {
    let source = std::path::absolute(source).unwrap_or_else(|_| source.to_owned());
    let read = |error| StoreError::Read {
        path: source.clone(),
        source: error,
    };
    let header = super::listing::read_header(&source)
        .ok_or_else(|| StoreError::NotASession(source.clone()))?;
    let stamps = std::mem::replace(&mut start.stamps, Box::new(super::store::SystemStamps));
    let copy = Session::create(
        dir,
        cwd,
        Start {
            id: start.id.take(),
            parent_session: Some(source.to_string_lossy().into_owned()),
            cwd_override: None,
            stamps,
        },
    )?;
    let Some(path) = copy.file().map(Path::to_owned) else {
        return Err(StoreError::NotSaved);
    };
    let write = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => StoreError::Exists(path.clone()),
        _ => StoreError::Write {
            path: path.clone(),
            source: error,
        },
    };
    let mut out = BufWriter::new(disk::create_file(&path).map_err(write)?);
    writeln!(out, "{}", copy.header().line()).map_err(write)?;
    if header.version() < Header::VERSION {
        let bytes = std::fs::read(&source).map_err(read)?;
        for line in super::store::migrated(&header, &bytes) {
            writeln!(out, "{line}").map_err(write)?;
        }
    } else {
        let mut failed = None;
        let mut behind = false;
        load::lines(File::open(&source).map_err(read)?, 0, |_, line, _| {
            let keep = match Line::read(line) {
                Line::Header(_) => {
                    behind = true;
                    false
                }
                Line::Entry(_) | Line::Stray => behind,
                Line::Nothing => false,
            };
            if keep && let Err(error) = out.write_all(line).and_then(|()| out.write_all(b"\n")) {
                failed = Some(error);
            }
            failed.is_none()
        })
        .map_err(read)?;
        if let Some(error) = failed {
            return Err(write(error));
        }
    }
    out.flush().map_err(write)?;
    drop(out);
    Session::open(&path, cwd, start)
}

/// A session file that was copied into the session folder, opened.
#[derive(Debug)]
pub struct Imported {
    /// The open session.
    pub session: Session,
    /// The copy that was made; `None` when the file lay there already.
    pub copied: Option<PathBuf>,
}

impl Imported {
    /// Gives the import up: the copy is removed.
    pub fn discard(self) {
        if let Some(path) = &self.copied {
            // A copy that cannot be removed is only one file too many.
            drop(std::fs::remove_file(path));
        }
    }
}

/// Copies a session file into `dir` under its own name, or `name-1.jsonl`, `name-2.jsonl` when that is taken, and opens
/// it. Nothing stays behind when it cannot be opened.
///
/// # Errors
/// [`StoreError::Read`] when the file is missing, [`StoreError::NotASession`], [`StoreError::Write`].
pub fn import(source: &Path, dir: &Path, cwd: &Path, start: Start) -> Result<Imported, StoreError> {
    let read = |error| StoreError::Read {
        path: source.to_owned(),
        source: error,
    };
    let real = source.canonicalize().map_err(read)?;
    disk::create_dir(dir).map_err(|source| StoreError::Write {
        path: dir.to_owned(),
        source,
    })?;
    if real.parent() == dir.canonicalize().ok().as_deref() {
        let session = Session::open(source, cwd, start)?;
        return Ok(Imported {
            session,
            copied: None,
        });
    }
    if super::listing::read_header(&real).is_none() {
        return Err(StoreError::NotASession(source.to_owned()));
    }
    let (path, mut file) = free_name(source, dir)?;
    let copy = File::open(&real).and_then(|mut from| std::io::copy(&mut from, &mut file));
    let opened = match copy {
        Ok(_) => Session::open(&path, cwd, start),
        Err(error) => Err(read(error)),
    };
    match opened {
        Ok(session) => Ok(Imported {
            session,
            copied: Some(path),
        }),
        Err(error) => {
            // The error that matters is the one about opening.
            drop(std::fs::remove_file(&path));
            Err(error)
        }
    }
}

fn free_name(source: &Path, dir: &Path) -> Result<(PathBuf, File), StoreError> {
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let mut count = 0usize;
    loop {
        let suffix = if count == 0 {
            String::new()
        } else {
            format!("-{count}")
        };
        let path = dir.join(format!("{stem}{suffix}.jsonl"));
        match disk::create_file(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => count += 1,
            Err(source) => return Err(StoreError::Write { path, source }),
        }
    }
}
