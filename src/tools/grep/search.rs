//! Walks a tree in path order and searches its files with several threads.
//!
//! One thread walks and hands out small chunks of files; workers search them; the caller's thread receives what was
//! found and folds it strictly in order, so the same tree always gives the same answer. Memory is bounded: workers run
//! at most [`WINDOW`] chunks ahead, and one that has found a lot waits until its chunk is the next to be folded.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use grep_regex::RegexMatcher;
use grep_searcher::Searcher;
use ignore::WalkBuilder;
use ignore::overrides::{Override, OverrideBuilder};
use parking_lot::{Condvar, Mutex};
use tokio_util::sync::CancellationToken;

use super::engine::{self, Chosen, Event, EventKind, Source, Take};
use super::{Flow, Report};
use crate::agent::{ErrorClass, ToolError};
use crate::tools::declare;

/// Most files a worker takes at a time. The first chunks are smaller, so that a few large files are shared out too.
const CHUNK: usize = 64;
/// Chunks that may be handed out ahead of the one being folded.
const WINDOW: usize = 16;
/// Bytes of found text after which a worker waits for its turn.
const HOLD: usize = 64 * 1024;
/// How often a waiting thread looks whether it should stop.
const LOOK: Duration = Duration::from_millis(50);

/// What to search for, and where.
pub(super) struct Query {
    pub(super) place: PathBuf,
    pub(super) pattern: String,
    pub(super) glob: Option<String>,
    pub(super) ignore_case: bool,
    pub(super) literal: bool,
    pub(super) context: usize,
    pub(super) limit: usize,
    /// Unsaved buffers by real path.
    pub(super) buffers: Vec<(PathBuf, Arc<[u8]>)>,
}

/// Searches and folds into `report`.
pub(super) fn run(
    query: &Query,
    cancel: &CancellationToken,
    report: &mut Report,
) -> Result<(), ToolError> {
    let meta = std::fs::metadata(&query.place).map_err(|_| {
        let text = format!("Path not found: {}", query.place.display());
        ToolError::new(ErrorClass::PathNotFound, text)
    })?;
    let matcher = engine::matcher(&query.pattern, query.ignore_case, query.literal)?;
    let dir = if meta.is_dir() {
        &query.place
    } else {
        query.place.parent().unwrap_or(&query.place)
    };
    let globs = overrides(dir, query.glob.as_deref())?;
    if meta.is_dir() {
        return tree(query, &matcher, globs, cancel, report);
    }
    if !meta.is_file() {
        return Err(ToolError::new(
            ErrorClass::SearchPathInvalid,
            format!(
                "{} is neither a file nor a directory",
                query.place.display()
            ),
        ));
    }
    one_file(query, &matcher, cancel, report)
}

fn overrides(dir: &Path, glob: Option<&str>) -> Result<Override, ToolError> {
    let mut builder = OverrideBuilder::new(dir);
    if let Some(glob) = glob.filter(|glob| !glob.is_empty()) {
        let (not, mut rest) = match glob.strip_prefix('!') {
            Some(rest) => ("!", rest),
            None => ("", glob),
        };
        while let Some(shorter) = rest.strip_prefix("./") {
            rest = shorter;
        }
        builder
            .add(&format!("{not}{rest}"))
            .map_err(|error| bad_glob(glob, &error))?;
    }
    builder
        .build()
        .map_err(|error| bad_glob(glob.unwrap_or_default(), &error))
}

fn bad_glob(glob: &str, error: &ignore::Error) -> ToolError {
    ToolError::new(
        ErrorClass::BadPattern,
        format!("bad glob {glob:?}: {error}"),
    )
}

fn one_file(
    query: &Query,
    matcher: &RegexMatcher,
    cancel: &CancellationToken,
    report: &mut Report,
) -> Result<(), ToolError> {
    struct Direct<'a> {
        name: &'a str,
        report: &'a mut Report,
    }
    impl Take for Direct<'_> {
        fn take(&mut self, event: Event) -> bool {
            self.report.take(0, self.name, &event) == Flow::Continue
        }
    }
    let name = query
        .place
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let buffers = Buffers::new(query, &query.place);
    let mut direct = Direct {
        name: &name,
        report,
    };
    let mut searcher = engine::searcher(query.context, Chosen::Named);
    let source = buffers.source(Path::new(""), &query.place);
    engine::search(
        &mut searcher,
        matcher,
        source,
        &|| cancel.is_cancelled(),
        &mut direct,
    )
    .map_err(|error| declare::io_error("search", &query.place, &error))
}

/// Unsaved buffers, looked up by the path a walk gives: links inside a tree are not followed, so only the root can
/// differ from the real path.
struct Buffers<'a> {
    by_path: HashMap<&'a Path, &'a [u8]>,
    real_root: PathBuf,
}

impl<'a> Buffers<'a> {
    fn new(query: &'a Query, root: &Path) -> Self {
        let by_path = query
            .buffers
            .iter()
            .map(|(path, bytes)| (path.as_path(), &**bytes));
        Self {
            by_path: by_path.collect(),
            real_root: root.canonicalize().unwrap_or_else(|_| root.to_owned()),
        }
    }

    fn source<'b>(&'b self, relative: &Path, path: &'b Path) -> Source<'b> {
        if self.by_path.is_empty() {
            return Source::Disk(path);
        }
        let real = if relative.as_os_str().is_empty() {
            self.real_root.clone()
        } else {
            self.real_root.join(relative)
        };
        match self.by_path.get(real.as_path()) {
            Some(bytes) => Source::Buffer(bytes),
            None => Source::Disk(path),
        }
    }
}

/// A few files in path order.
#[derive(Default)]
struct Chunk {
    index: usize,
    /// Position of its first file among all.
    first: usize,
    files: Vec<PathBuf>,
}

impl Chunk {
    /// The chunk after this one, still empty.
    fn following(&self) -> Self {
        Self {
            index: self.index + 1,
            first: self.first + self.files.len(),
            files: Vec::new(),
        }
    }
}

/// Part of what a chunk gave; the last part has `end` set.
struct Batch {
    chunk: usize,
    found: Vec<Found>,
    end: bool,
}

/// One event with its file.
struct Found {
    /// Position of the file among all.
    file: usize,
    name: Arc<str>,
    event: Event,
}

struct Shared<'a> {
    query: &'a Query,
    matcher: &'a RegexMatcher,
    cancel: &'a CancellationToken,
    buffers: Buffers<'a>,
    state: Mutex<State>,
    /// A chunk was handed out, or there will be no more.
    filled: Condvar,
    /// Another chunk is folded now.
    moved: Condvar,
    stop: AtomicBool,
    trouble: Mutex<Option<String>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Chunk>,
    walked: bool,
    /// The chunk that is folded now.
    head: usize,
}

fn tree(
    query: &Query,
    matcher: &RegexMatcher,
    globs: Override,
    cancel: &CancellationToken,
    report: &mut Report,
) -> Result<(), ToolError> {
    let shared = Shared {
        query,
        matcher,
        cancel,
        buffers: Buffers::new(query, &query.place),
        state: Mutex::default(),
        filled: Condvar::new(),
        moved: Condvar::new(),
        stop: AtomicBool::new(false),
        trouble: Mutex::new(None),
    };
    let workers = thread::available_parallelism().map_or(2, |n| n.get().min(8));
    // A full channel makes workers wait for the fold, which always goes on.
    let (sender, receiver) = mpsc::sync_channel(WINDOW);
    thread::scope(|scope| {
        scope.spawn(|| shared.walk(globs));
        for _ in 0..workers {
            let (shared, sender) = (&shared, sender.clone());
            scope.spawn(move || shared.work(&sender));
        }
        drop(sender);
        shared.fold(receiver, report);
    });
    if cancel.is_cancelled() {
        return Err(ToolError::aborted());
    }
    match shared.trouble.into_inner() {
        // A search that ended at its limit did not need the rest.
        Some(error) if !report.limit_exceeded => Err(ToolError::new(ErrorClass::Io, error)),
        _ => Ok(()),
    }
}

impl Shared<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.cancel.is_cancelled()
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.filled.notify_all();
        self.moved.notify_all();
    }

    fn note_trouble(&self, text: String) {
        self.trouble.lock().get_or_insert(text);
    }

    fn walk(&self, globs: Override) {
        let _guard = StopOnPanic(self);
        let walk = WalkBuilder::new(&self.query.place)
            .hidden(false)
            .follow_links(false)
            .add_custom_ignore_filename(".rgignore")
            .overrides(globs)
            .sort_by_file_name(OsStr::cmp)
            .build();
        let mut next = Chunk::default();
        for entry in walk {
            if self.stopped() {
                break;
            }
            match entry {
                Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_file()) => {
                    next.files.push(entry.into_path());
                }
                Ok(_) => {}
                Err(error) if is_gone(error.io_error()) => {}
                Err(error) => self.note_trouble(format!("cannot search everything: {error}")),
            }
            let size = (next.first / CHUNK).clamp(1, CHUNK);
            if next.files.len() >= size {
                let after = next.following();
                self.hand_out(std::mem::replace(&mut next, after));
            }
        }
        self.hand_out(next);
        self.state.lock().walked = true;
        self.filled.notify_all();
    }

    fn hand_out(&self, chunk: Chunk) {
        let mut state = self.state.lock();
        while chunk.index >= state.head + WINDOW && !self.stopped() {
            self.moved.wait_for(&mut state, LOOK);
        }
        state.waiting.push_back(chunk);
        drop(state);
        self.filled.notify_one();
    }

    fn work(&self, sender: &SyncSender<Batch>) {
        let _guard = StopOnPanic(self);
        let mut searcher = engine::searcher(self.query.context, Chosen::Met);
        while let Some(chunk) = self.next_chunk() {
            let mut worker = Worker {
                shared: self,
                sender,
                chunk: chunk.index,
                found: Vec::new(),
                size: 0,
            };
            for (place, path) in chunk.files.iter().enumerate() {
                if self.stopped() {
                    return;
                }
                worker.search(&mut searcher, chunk.first + place, path);
            }
            if !worker.send(true) {
                return;
            }
        }
    }

    fn next_chunk(&self) -> Option<Chunk> {
        let mut state = self.state.lock();
        loop {
            if self.stopped() {
                return None;
            }
            if let Some(chunk) = state.waiting.pop_front() {
                return Some(chunk);
            }
            if state.walked {
                return None;
            }
            self.filled.wait_for(&mut state, LOOK);
        }
    }

    fn wait_for_turn(&self, chunk: usize) {
        let mut state = self.state.lock();
        while state.head < chunk && !self.stopped() {
            self.moved.wait_for(&mut state, LOOK);
        }
    }

    /// Receives until all workers are done or the report has enough.
    fn fold(&self, receiver: Receiver<Batch>, report: &mut Report) {
        let _guard = StopOnPanic(self);
        let mut early: BTreeMap<usize, Vec<Batch>> = BTreeMap::new();
        let (mut head, mut told) = (0, 0);
        while let Ok(batch) = receiver.recv() {
            early.entry(batch.chunk).or_default().push(batch);
            while let Some(batches) = early.remove(&head) {
                let mut ended = false;
                for batch in batches {
                    ended |= batch.end;
                    if fold_batch(&batch, report) == Flow::Stop {
                        self.stop();
                        return;
                    }
                }
                if !ended {
                    break;
                }
                head += 1;
            }
            if head > told {
                told = head;
                self.state.lock().head = head;
                self.moved.notify_all();
            }
        }
    }
}

fn fold_batch(batch: &Batch, report: &mut Report) -> Flow {
    for found in &batch.found {
        if report.take(found.file, &found.name, &found.event) == Flow::Stop {
            return Flow::Stop;
        }
    }
    Flow::Continue
}

fn is_gone(error: Option<&io::Error>) -> bool {
    error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// A panic in one thread must not leave the others waiting for it.
struct StopOnPanic<'a, 'b>(&'a Shared<'b>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// One worker's current chunk.
struct Worker<'a, 'b> {
    shared: &'a Shared<'b>,
    sender: &'a SyncSender<Batch>,
    chunk: usize,
    found: Vec<Found>,
    size: usize,
}

impl Worker<'_, '_> {
    fn search(&mut self, searcher: &mut Searcher, file: usize, path: &Path) {
        let shared = self.shared;
        let relative = path.strip_prefix(&shared.query.place).unwrap_or(path);
        let source = shared.buffers.source(relative, path);
        let mut take = InFile {
            worker: self,
            file,
            relative,
            name: None,
            matches: 0,
            last_line: None,
        };
        let stopped = || shared.stopped();
        match engine::search(searcher, shared.matcher, source, &stopped, &mut take) {
            Ok(()) => {}
            // Deleted since it was listed.
            Err(error) if is_gone(Some(&error)) => {}
            Err(error) => shared.note_trouble(format!(
                "cannot search everything: {}: {}",
                path.display(),
                declare::cause(&error)
            )),
        }
    }

    /// Sends what was found; false when nobody listens any more.
    fn send(&mut self, end: bool) -> bool {
        let found = std::mem::take(&mut self.found);
        self.size = 0;
        let chunk = self.chunk;
        self.sender.send(Batch { chunk, found, end }).is_ok()
    }
}

/// Takes the events of one file, no more than the limit can need.
struct InFile<'a, 'b, 'c> {
    worker: &'a mut Worker<'b, 'c>,
    file: usize,
    relative: &'a Path,
    name: Option<Arc<str>>,
    matches: usize,
    last_line: Option<u64>,
}

impl Take for InFile<'_, '_, '_> {
    fn take(&mut self, event: Event) -> bool {
        let query = self.worker.shared.query;
        let mut go_on = true;
        if event.kind == EventKind::Match {
            self.matches += 1;
            if self.matches == query.limit {
                self.last_line = Some(event.line.saturating_add(query.context as u64));
            }
        }
        // The match after the limit is handed on (it raises the flag) and ends the file once past the last context.
        if self.last_line.is_some_and(|last| event.line > last) {
            go_on = self.matches <= query.limit;
        }
        let relative = self.relative;
        let name = self
            .name
            .get_or_insert_with(|| relative.to_string_lossy().into());
        self.worker.size += event.text.len() + size_of::<Found>();
        let found = Found {
            file: self.file,
            name: Arc::clone(name),
            event,
        };
        self.worker.found.push(found);
        if self.worker.size > HOLD {
            self.worker.shared.wait_for_turn(self.worker.chunk);
            return self.worker.send(false) && go_on;
        }
        go_on
    }
}
