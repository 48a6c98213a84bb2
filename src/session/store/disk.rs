//! The file under a session: one write call per batch of lines, and what to do when the file is not as it was left.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::StoreError;
use super::load::{self, Loaded};
use crate::files::replace::follow_links;

/// Session files hold conversations: for the owner only.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// The file of a session.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) path: PathBuf,
    /// Open for reading, and for appending unless `read_only`. Stays open when the path vanishes: its text lives on.
    file: Option<File>,
    read_only: bool,
    /// Bytes of the file that are known to the index.
    pub(super) size: u64,
    /// The file's last line has no line feed yet.
    open_line: bool,
    held: Option<Held>,
}

/// Files that sessions of this process have locked, and how many do: a lock held here is no other program.
static HELD: Mutex<BTreeMap<(u64, u64), usize>> = Mutex::new(BTreeMap::new());

/// A lock of this process; gone with the file.
#[derive(Debug)]
struct Held((u64, u64));

impl Held {
    fn new(ident: (u64, u64)) -> Self {
        *HELD.lock().entry(ident).or_default() += 1;
        Self(ident)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        if let Some(count) = held.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.0);
            }
        }
    }
}

/// How the path looks compared with what was left there.
pub(super) enum Look {
    /// As left.
    Same,
    /// Someone appended: these are the new entries.
    Grown(Loaded),
    /// The path is gone; the text is still readable.
    Gone,
    /// Nothing was ever written.
    Unborn,
    /// Another file lies there, or ours was cut.
    Replaced,
}

impl Disk {
    /// A file that is written later.
    pub(super) fn unborn(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            read_only: false,
            size: 0,
            open_line: false,
            held: None,
        }
    }

    /// Opens an existing file; one that may not be written is opened for reading.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let writable = OpenOptions::new().read(true).append(true).open(&path);
        let (file, read_only) = match writable {
            Ok(file) => (file, false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
            Err(_) => (File::open(&path)?, true),
        };
        Ok(Self {
            path,
            file: Some(file),
            read_only,
            size: 0,
            open_line: false,
            held: None,
        })
    }

    /// Marks the file as open here; false when another pi-nvim has it open. Pi takes no lock, so this sees only our kind,
    /// and it keeps nobody from writing. Where locks do not work there is no warning.
    pub(super) fn lock(&mut self) -> bool {
        let Some((file, meta)) = self
            .file
            .as_ref()
            .and_then(|file| Some((file, file.metadata().ok()?)))
        else {
            return true;
        };
        let ident = (meta.dev(), meta.ino());
        match file.try_lock() {
            Ok(()) => {
                self.held = Some(Held::new(ident));
                true
            }
            Err(std::fs::TryLockError::WouldBlock) => HELD.lock().contains_key(&ident),
            Err(std::fs::TryLockError::Error(_)) => true,
        }
    }

    /// The same file for reading only, as far as it is known now. Another name on the same handle: the text stays readable
    /// when the path goes.
    pub(super) fn frozen(&self) -> io::Result<Self> {
        Ok(Self {
            path: self.path.clone(),
            file: self.file.as_ref().map(File::try_clone).transpose()?,
            read_only: true,
            size: self.size,
            open_line: self.open_line,
            held: None,
        })
    }

    pub(super) fn is_unborn(&self) -> bool {
        self.file.is_none()
    }

    /// Whether the file can only be read.
    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Reads the whole file into an index.
    pub(super) fn load(&mut self) -> io::Result<Loaded> {
        let Some(file) = &self.file else {
            return Ok(Loaded::default());
        };
        let mut reader = file;
        reader.seek(SeekFrom::Start(0))?;
        let loaded = load::whole(reader)?;
        self.size = loaded.size;
        self.open_line = !loaded.ends_well;
        Ok(loaded)
    }

    /// Reads a piece of the file.
    pub(super) fn read(&self, offset: u64, len: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        self.file.as_ref()?.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// Ends a last line without line feed.
    pub(super) fn repair(&mut self) -> io::Result<()> {
        if self.open_line {
            self.append_bytes(b"")?;
        }
        Ok(())
    }

    /// Compares the path with what was left there. Entries that someone appended are counted as known from then on.
    pub(super) fn look(&mut self) -> io::Result<Look> {
        let Some(file) = &self.file else {
            return Ok(Look::Unborn);
        };
        let there = match std::fs::metadata(&self.path) {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Look::Gone),
            Err(error) => return Err(error),
        };
        let ours = file.metadata()?;
        if (there.dev(), there.ino()) != (ours.dev(), ours.ino()) || there.len() < self.size {
            return Ok(Look::Replaced);
        }
        if there.len() == self.size {
            return Ok(Look::Same);
        }
        Ok(Look::Grown(self.read_to(there.len())?))
    }

    /// Reads what lies between the known part and `end`.
    fn read_to(&mut self, end: u64) -> io::Result<Loaded> {
        let Some(file) = &self.file else {
            return Ok(Loaded::default());
        };
        let mut reader = file;
        reader.seek(SeekFrom::Start(self.size))?;
        let loaded = load::tail(reader.take(end - self.size), self.size)?;
        self.size = loaded.size;
        self.open_line = !loaded.ends_well;
        Ok(loaded)
    }

    /// Appends lines with one write call; returns where each begins, and what someone else wrote in the same moment.
    pub(super) fn append(&mut self, lines: &[&str]) -> io::Result<(Vec<u64>, Option<Loaded>)> {
        let mut bytes = Vec::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
        for line in lines {
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        }
        let (start, slipped_in) = self.append_bytes(&bytes)?;
        Ok((offsets(start, lines), slipped_in))
    }

    fn append_bytes(&mut self, bytes: &[u8]) -> io::Result<(u64, Option<Loaded>)> {
        self.reopen_writable()?;
        let Some(file) = &self.file else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut writer = file;
        let lead: &[u8] = if self.open_line { b"\n" } else { b"" };
        let batch = [lead, bytes].concat();
        let count = writer.write(&batch)?;
        let end = writer.stream_position()?;
        let start = end - count as u64;
        if count < batch.len() {
            self.take_back(start, end);
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "only part of a line could be written",
            ));
        }
        let slipped_in = if start > self.size {
            Some(self.read_to(start)?)
        } else {
            None
        };
        self.size = end;
        self.open_line = false;
        Ok((start + lead.len() as u64, slipped_in))
    }

    /// Removes a line that was written in part, when nobody wrote behind it.
    fn take_back(&mut self, start: u64, end: u64) {
        let Some(file) = &self.file else { return };
        let untouched = file.metadata().is_ok_and(|meta| meta.len() == end);
        if !(untouched && file.set_len(start).is_ok()) {
            // The torn part stays as a line of its own; loading skips it.
            self.size = self.size.max(end);
            self.open_line = true;
        }
    }

    fn reopen_writable(&mut self) -> io::Result<()> {
        if self.read_only {
            self.file = Some(
                OpenOptions::new()
                    .read(true)
                    .append(true)
                    .open(&self.path)?,
            );
            self.read_only = false;
        }
        Ok(())
    }

    /// Creates the file with these lines; an existing one is an error.
    pub(super) fn create(&mut self, lines: &[&str]) -> io::Result<Vec<u64>> {
        if let Some(dir) = self.path.parent() {
            // Something that is no folder lies in the way: not the same trouble as a session file that exists.
            create_dir(dir).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
                _ => error,
            })?;
        }
        let mut options = OpenOptions::new();
        options
            .read(true)
            .append(true)
            .create_new(true)
            .mode(FILE_MODE);
        let file = options.open(&self.path)?;
        self.file = Some(file);
        self.size = 0;
        self.open_line = false;
        match self.append(lines) {
            Ok((offsets, _)) => {
                self.lock();
                Ok(offsets)
            }
            Err(error) => {
                // Nothing of ours is in it yet: leave no half file behind.
                drop(std::fs::remove_file(&self.path));
                self.file = None;
                Err(error)
            }
        }
    }

    /// Puts a vanished file back, byte for byte, with these lines behind it.
    pub(super) fn restore(&mut self, lines: &[&str]) -> io::Result<Vec<u64>> {
        let Some(old) = &self.file else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let dir = self.path.parent().unwrap_or(Path::new("."));
        create_dir(dir)?;
        let mut fresh = new_file_in(dir)?;
        let mut reader = old;
        reader.seek(SeekFrom::Start(0))?;
        let copied = io::copy(&mut reader.take(self.size), fresh.as_file_mut())?;
        if copied != self.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut start = self.size;
        if self.open_line {
            fresh.as_file_mut().write_all(b"\n")?;
            start += 1;
        }
        let text: String = lines.iter().flat_map(|line| [*line, "\n"]).collect();
        fresh.as_file_mut().write_all(text.as_bytes())?;
        fresh
            .persist_noclobber(&self.path)
            .map_err(|error| error.error)?;
        self.file = Some(
            OpenOptions::new()
                .read(true)
                .append(true)
                .open(&self.path)?,
        );
        self.lock();
        self.size = start + text.len() as u64;
        self.open_line = false;
        Ok(offsets(start, lines))
    }

    /// Puts these lines in place of the file at the path (migration, an empty file).
    pub(super) fn replace(path: &Path, lines: &[&str]) -> io::Result<()> {
        let dir = path.parent().unwrap_or(Path::new("."));
        let mut fresh = new_file_in(dir)?;
        for line in lines {
            fresh.write_all(line.as_bytes())?;
            fresh.write_all(b"\n")?;
        }
        fresh.flush()?;
        fresh.persist(path).map_err(|error| error.error)?;
        Ok(())
    }
}

fn new_file_in(dir: &Path) -> io::Result<tempfile::NamedTempFile> {
    // The name does not end in `.jsonl`, so that no listing shows it.
    let mode = std::fs::Permissions::from_mode(FILE_MODE);
    tempfile::Builder::new()
        .prefix(".session-")
        .suffix(".tmp")
        .permissions(mode)
        .tempfile_in(dir)
}

fn offsets(start: u64, lines: &[&str]) -> Vec<u64> {
    let next = |at: &mut u64, line: &&str| {
        let offset = *at;
        *at += line.len() as u64 + 1;
        Some(offset)
    };
    lines.iter().scan(start, next).collect()
}

/// Creates a folder for session files, for the owner only. An existing one is left as it is.
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)
}

/// Creates a session file that must not exist yet.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(FILE_MODE);
    options.open(path)
}

/// Writes an export, with its folders: where it goes is the person's own choice, so the usual modes of the system apply to
/// folders; the text is a conversation and stays private. The file is whole before it takes the place of an older one, so
/// a full disk leaves what was there; a pipe or device is written as it is.
pub(crate) fn export(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), StoreError> {
    let written = export_to(path, write);
    written.map_err(|source| StoreError::Write {
        path: path.to_owned(),
        source,
    })
}

fn export_to(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let path = follow_links(path)?;
    let old = std::fs::metadata(&path).ok();
    if old.as_ref().is_some_and(std::fs::Metadata::is_dir) {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if old.is_some_and(|old| !old.is_file()) {
        let mut out = io::BufWriter::new(OpenOptions::new().write(true).open(&path)?);
        write(&mut out)?;
        return out.flush();
    }
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(dir)?;
    let mut out = io::BufWriter::new(new_file_in(dir)?);
    write(&mut out)?;
    let fresh = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    fresh.persist(&path).map_err(|error| error.error)?;
    Ok(())
}
