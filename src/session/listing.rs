//! Session folders: where sessions lie, which there are, which was used last.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::store::{Header, Session, Start, StoreError, load};
use crate::entry::{self, Facts, Kind, Line, Role, iso_ms, json};

/// A header is looked for in this many bytes.
const HEADER_LIMIT: u64 = 1 << 20;

/// Returns the name of the folder that holds the sessions of a working directory.
pub fn dir_name(cwd: &Path) -> String {
    let absolute = std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned());
    let mut parts = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    let text = parts.to_string_lossy();
    let inner = text.strip_prefix(['/', '\\']).unwrap_or(&text);
    format!("--{}--", inner.replace(['/', '\\', ':'], "-"))
}

/// Returns the folder that holds the sessions of a working directory.
pub fn default_dir(agent_dir: &Path, cwd: &Path) -> PathBuf {
    agent_dir.join("sessions").join(dir_name(cwd))
}

/// Reads the header of a file without reading more than needed; `None` when it is no session.
pub fn read_header(path: &Path) -> Option<Header> {
    let file = File::open(path).ok()?;
    let mut header = None;
    load::lines(file.take(HEADER_LIMIT), 0, |_, line, _| {
        match Line::read(line) {
            Line::Nothing => true,
            Line::Header(fields) => {
                header = Header::from_fields(fields);
                false
            }
            Line::Entry(_) | Line::Stray => false,
        }
    })
    .ok()?;
    header
}

/// One session of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionInfo {
    /// The file.
    pub path: PathBuf,
    /// The session id.
    pub id: String,
    /// Working directory as stored; empty when the header names none.
    pub cwd: String,
    /// The name it was given.
    pub name: Option<String>,
    /// The file it was made from.
    pub parent_session: Option<String>,
    /// When it was made, as in the header.
    pub created: Option<String>,
    /// Time of the last message of a person or model, Unix milliseconds.
    pub modified_ms: i64,
    /// Number of messages, all roles and branches.
    pub message_count: usize,
    /// First text of the person.
    pub first_message: String,
    /// All texts of person and model, for searching.
    pub all_text: String,
    /// What it cost, all branches.
    pub cost: f64,
}

/// Stands for a session without a text of the person.
pub const NO_MESSAGES: &str = "(no messages)";

/// Reads one session for a list, line by line; `None` when it is no session, cannot be read, or `cancel` says stop.
pub fn read_info(path: &Path, cancel: &CancellationToken) -> Option<SessionInfo> {
    let file = File::open(path).ok()?;
    let mtime_ms = file
        .metadata()
        .ok()
        .and_then(|meta| unix_ms(meta.modified().ok()?));
    let mut fold = InfoFold::default();
    load::lines(&file, 0, |_, line, _| {
        fold.take(line) && !cancel.is_cancelled()
    })
    .ok()?;
    if cancel.is_cancelled() {
        return None;
    }
    let header = fold.header?;
    let created_ms = header.timestamp().and_then(iso_ms);
    Some(SessionInfo {
        path: path.to_owned(),
        id: header.id().to_owned(),
        cwd: header.cwd().unwrap_or_default().to_owned(),
        name: fold.name,
        parent_session: header.parent_session().map(str::to_owned),
        created: header.timestamp().map(str::to_owned),
        modified_ms: fold.latest_ms.or(created_ms).or(mtime_ms).unwrap_or(0),
        message_count: fold.messages,
        first_message: fold.first.unwrap_or_else(|| NO_MESSAGES.to_owned()),
        all_text: fold.texts.join(" "),
        cost: fold.cost,
    })
}

fn unix_ms(time: SystemTime) -> Option<i64> {
    i64::try_from(
        time.duration_since(SystemTime::UNIX_EPOCH)
            .ok()?
            .as_millis(),
    )
    .ok()
}

#[derive(Default)]
struct InfoFold {
    header: Option<Header>,
    name: Option<String>,
    messages: usize,
    first: Option<String>,
    texts: Vec<String>,
    latest_ms: Option<i64>,
    cost: f64,
}

impl InfoFold {
    /// Takes one line; false ends the reading.
    fn take(&mut self, line: &[u8]) -> bool {
        if self.header.is_none() {
            match Line::read(line) {
                Line::Nothing => return true,
                Line::Header(fields) => self.header = Header::from_fields(fields),
                Line::Entry(_) | Line::Stray => {}
            }
            return self.header.is_some();
        }
        // Files of version 1 have no ids: a list shows them all the same.
        let Some(facts) = entry::facts_of(line) else {
            return true;
        };
        match (facts.kind, facts.role) {
            (Kind::SessionInfo, _) => {
                let name = json::parse(&String::from_utf8_lossy(line));
                let name = name
                    .as_ref()
                    .and_then(|value| value.get("name")?.as_str())
                    .unwrap_or_default()
                    .trim();
                self.name = (!name.is_empty()).then(|| name.to_owned());
            }
            (Kind::Message, Role::User | Role::Assistant) => {
                self.messages += 1;
                self.speech(line, &facts);
            }
            (Kind::Message, role) if role != Role::None => self.messages += 1,
            (Kind::Usage | Kind::Compaction | Kind::BranchSummary, _) => {
                let value = json::parse(&String::from_utf8_lossy(line));
                self.cost += cost(value.as_ref());
            }
            _ => {}
        }
        true
    }

    fn speech(&mut self, line: &[u8], facts: &Facts) {
        let Some(value) = json::parse(&String::from_utf8_lossy(line)) else {
            return;
        };
        let Some(message) = value.get("message") else {
            return;
        };
        if facts.role == Role::Assistant {
            self.cost += cost(Some(message));
        }
        let time = message.get("timestamp").and_then(Value::as_f64);
        #[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
        let time = time.map(|time| time as i64).or(facts.time_ms);
        self.latest_ms = self.latest_ms.max(time);
        let text = match message.get("content") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(blocks)) => {
                let is_text =
                    |block: &&Value| block.get("type").and_then(Value::as_str) == Some("text");
                let texts = blocks.iter().filter(is_text);
                let texts: Vec<&str> = texts
                    .filter_map(|block| block.get("text")?.as_str())
                    .collect();
                texts.join(" ")
            }
            _ => String::new(),
        };
        if text.is_empty() {
            return;
        }
        if facts.role == Role::User && self.first.is_none() {
            self.first = Some(text.clone());
        }
        self.texts.push(text);
    }
}

/// Cost of an entry or message with a `usage`.
fn cost(value: Option<&Value>) -> f64 {
    let total = value.and_then(|value| value.pointer("/usage/cost/total")?.as_f64());
    total.unwrap_or(0.0)
}

/// Which sessions are listed.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// All of one folder.
    Folder(&'a Path),
    /// Those of a folder that ran in this directory: a folder shared by projects.
    FolderFor(&'a Path, &'a Path),
    /// All folders below `sessions`.
    All(&'a Path),
}

/// Lists sessions, newest first. `partial` gets the list so far after the first file, after every tenth (hundredth for
/// [`Scope::All`]) and at the end; the files used last are read first. A file that is no session is left out.
pub fn list(
    scope: Scope<'_>,
    cancel: &CancellationToken,
    partial: &mut dyn FnMut(&[SessionInfo]),
) -> Vec<SessionInfo> {
    let files = files(scope);
    let step = match scope {
        Scope::Folder(_) | Scope::FolderFor(..) => 10,
        Scope::All(_) => 100,
    };
    let keep = |info: &SessionInfo| match scope {
        Scope::FolderFor(_, cwd) => Path::new(&info.cwd) == cwd,
        _ => true,
    };
    let mut infos: Vec<SessionInfo> = Vec::new();
    let mut done = 0;
    read_in_parallel(&files, cancel, |info| {
        done += 1;
        infos.extend(info.filter(keep));
        if done == 1 || done % step == 0 || done == files.len() {
            sort_recent(&mut infos);
            partial(&infos);
        }
    });
    sort_recent(&mut infos);
    infos
}

/// Returns the files that a list would read, the ones changed last first.
pub fn files(scope: Scope<'_>) -> Vec<PathBuf> {
    match scope {
        Scope::Folder(dir) | Scope::FolderFor(dir, _) => session_files(dir),
        Scope::All(root) => all_files(root),
    }
}

/// Returns when a file was changed last, Unix milliseconds.
pub fn modified_ms(path: &Path) -> Option<i64> {
    let modified = std::fs::metadata(path).and_then(|meta| meta.modified());
    unix_ms(modified.ok()?)
}

/// How many files are read at once: a list must not use up descriptors, memory or the machine.
const READERS: usize = 4;

fn read_in_parallel(
    files: &[PathBuf],
    cancel: &CancellationToken,
    mut take: impl FnMut(Option<SessionInfo>),
) {
    let next = AtomicUsize::new(0);
    // Bounded: a slow taker holds the readers up.
    let (sender, receiver) = std::sync::mpsc::sync_channel(READERS);
    std::thread::scope(|scope| {
        for _ in 0..READERS.min(files.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if cancel.is_cancelled() || sender.send(read_info(path, cancel)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for info in receiver {
            take(info);
        }
    });
}

/// Newest first; ties by file name, later names first.
fn sort_recent(infos: &mut [SessionInfo]) {
    infos.sort_by(|left, right| {
        let names = || right.path.file_name().cmp(&left.path.file_name());
        right.modified_ms.cmp(&left.modified_ms).then_with(names)
    });
}

/// Returns the `.jsonl` files of a folder, the ones changed last first.
pub fn session_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for item in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = item.path();
        if path.extension().is_none_or(|ext| ext != "jsonl") {
            continue;
        }
        if let Ok(meta) = std::fs::metadata(&path)
            && meta.is_file()
        {
            files.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), path));
        }
    }
    files.sort_by(|left, right| right.cmp(left));
    files.into_iter().map(|(_, path)| path).collect()
}

fn all_files(root: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(root).into_iter().flatten().flatten();
    let folders = folders.map(|item| item.path()).filter(|path| path.is_dir());
    let mut files: Vec<PathBuf> = folders.flat_map(|dir| session_files(&dir)).collect();
    let mtime = |path: &PathBuf| {
        std::fs::metadata(path)
            .and_then(|meta| meta.modified())
            .ok()
    };
    files.sort_by_cached_key(|path| std::cmp::Reverse(mtime(path)));
    files
}

/// Where the sessions of a project lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionDir {
    /// The folder.
    pub path: PathBuf,
    /// Whether other projects may use it too: then the stored directory decides.
    pub shared: bool,
}

impl SessionDir {
    /// Returns the folder for a directory: the given one, else the default.
    pub fn new(agent_dir: &Path, cwd: &Path, given: Option<&Path>) -> Self {
        let default = default_dir(agent_dir, cwd);
        let path = given.map_or_else(|| default.clone(), Path::to_owned);
        Self {
            shared: path != default,
            path,
        }
    }

    fn fits(&self, header: &Header, cwd: &Path) -> bool {
        !self.shared || header.cwd().is_some_and(|stored| Path::new(stored) == cwd)
    }

    /// Returns the session used last in this directory.
    pub fn most_recent(&self, cwd: &Path) -> Option<PathBuf> {
        let fits = |path: &PathBuf| read_header(path).is_some_and(|header| self.fits(&header, cwd));
        session_files(&self.path).into_iter().find(fits)
    }

    /// Returns the session with exactly this id; reads headers only.
    pub fn find_by_id(&self, cwd: &Path, id: &str) -> Option<PathBuf> {
        let fits = |path: &PathBuf| {
            read_header(path).is_some_and(|header| header.id() == id && self.fits(&header, cwd))
        };
        session_files(&self.path).into_iter().find(fits)
    }

    fn find_by_prefix(&self, cwd: &Path, prefix: &str) -> Option<PathBuf> {
        let fits = |path: &PathBuf| {
            read_header(path)
                .is_some_and(|header| header.id().starts_with(prefix) && self.fits(&header, cwd))
        };
        session_files(&self.path).into_iter().find(fits)
    }
}

/// What the argument of `--session` means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// A file of this project, or a path that was given.
    File(PathBuf),
    /// A session of another project: it has to be forked into this one.
    Elsewhere {
        /// The file.
        path: PathBuf,
        /// The directory it ran in.
        cwd: String,
    },
    /// Nothing has this id.
    Nothing,
}

/// Finds the session that an argument names: a path, an id, or the beginning of one; in the project first, then
/// everywhere below `sessions`.
pub fn resolve(argument: &str, dir: &SessionDir, sessions: &Path, cwd: &Path) -> Resolved {
    if argument.contains(['/', '\\']) || argument.ends_with(".jsonl") {
        return Resolved::File(PathBuf::from(argument));
    }
    if argument.is_empty() {
        return Resolved::Nothing;
    }
    let here = dir
        .find_by_id(cwd, argument)
        .or_else(|| dir.find_by_prefix(cwd, argument));
    if let Some(path) = here {
        return Resolved::File(path);
    }
    let mut files = all_files(sessions);
    if dir.shared {
        files.extend(session_files(&dir.path));
    }
    let headers: Vec<(PathBuf, Header)> = files
        .into_iter()
        .filter_map(|path| Some((path.clone(), read_header(&path)?)))
        .collect();
    let exact = headers.iter().find(|(_, header)| header.id() == argument);
    match exact.or_else(|| {
        headers
            .iter()
            .find(|(_, header)| header.id().starts_with(argument))
    }) {
        Some((path, header)) => Resolved::Elsewhere {
            path: path.clone(),
            cwd: header.cwd().unwrap_or_default().to_owned(),
        },
        None => Resolved::Nothing,
    }
}

/// Opens the session used last in a directory, or starts a new one.
///
/// # Errors
/// [`StoreError`] when it cannot be opened.
pub fn continue_recent(dir: &SessionDir, cwd: &Path, start: Start) -> Result<Session, StoreError> {
    match dir.most_recent(cwd) {
        Some(path) => Session::open(&path, cwd, start),
        None => Session::create(&dir.path, cwd, start),
    }
}

/// How a deleted session went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// Into the trash.
    Trashed,
    /// For good: there is no `trash` program, or it failed.
    Removed,
}

/// Deletes a session file, by way of the `trash` program when there is one. `trash` is that program's name.
///
/// # Errors
/// The file could not be removed.
pub fn delete(path: &Path, trash: &str) -> std::io::Result<Deleted> {
    let status = std::process::Command::new(trash)
        .arg(path)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    if status.is_ok_and(|status| status.success()) && !path.exists() {
        return Ok(Deleted::Trashed);
    }
    std::fs::remove_file(path)?;
    Ok(Deleted::Removed)
}

/// Whether two paths name the same file; of a file that is gone the paths are compared as they are.
pub fn same_file(left: &Path, right: &Path) -> bool {
    let real = |path: &Path| {
        path.canonicalize()
            .or_else(|_| std::path::absolute(path))
            .unwrap_or_else(|_| path.to_owned())
    };
    real(left) == real(right)
}
