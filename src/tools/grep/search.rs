//! Searches one file, or a tree with several threads.
//!
//! Each thread walks and searches on its own (`tools/walk.rs`) and hands over what a file gave; afterwards that is folded
//! in path order, so the same tree always gives the same answer. Memory is bounded: the events of one file or of all files
//! together that are more than some bytes are dropped, and such a file is searched once more when its turn comes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use grep_regex::RegexMatcher;
use grep_searcher::Searcher;
use ignore::WalkBuilder;
use ignore::overrides::{Override, OverrideBuilder};
use parking_lot::Mutex;

use super::engine::{self, Chosen, Event, EventKind, Source, Take};
use super::{Flow, Report};
use crate::agent::{ErrorClass, ToolError};
use crate::files::errno::describe;
use crate::tools::declare::Ground;
use crate::tools::walk::{self, Bound, First, Walk, note};
use crate::workspace::disk::real_path;

/// Bytes of found text of one file that are kept until all files are searched.
const HOLD: usize = 64 * 1024;
/// The same for all files together.
const HOLD_ALL: usize = 8 * 1024 * 1024;

/// What to search for.
pub(super) struct Query {
    pub(super) pattern: String,
    pub(super) glob: Option<String>,
    pub(super) ignore_case: bool,
    pub(super) literal: bool,
    pub(super) context: usize,
    pub(super) limit: usize,
}

/// Searches and folds into `report`.
pub(super) fn run(query: &Query, ground: &Ground, report: &mut Report) -> Result<(), ToolError> {
    let place = ground.place.as_path();
    let buffers = Buffers::new(ground);
    let meta = match std::fs::metadata(place) {
        Ok(meta) => Some(meta),
        // Not on disk, but somebody is writing it.
        Err(_) if buffers.has(Path::new("")) => None,
        Err(_) => {
            return Err(ToolError::new(
                ErrorClass::PathNotFound,
                format!("Path not found: {}", place.display()),
            ));
        }
    };
    let matcher = engine::matcher(&query.pattern, query.ignore_case, query.literal)?;
    let is_dir = meta.as_ref().is_some_and(std::fs::Metadata::is_dir);
    let dir = match is_dir {
        true => place,
        false => place.parent().unwrap_or(place),
    };
    let globs = overrides(dir, query.glob.as_deref())?;
    let hunt = Hunt {
        query,
        ground,
        matcher,
        buffers,
        bound: Bound::default(),
        first: Mutex::new(First::new(query.limit)),
        held: AtomicUsize::new(0),
        trouble: Mutex::default(),
    };
    if is_dir {
        return hunt.tree(globs, report);
    }
    if meta.is_some_and(|meta| !meta.is_file()) {
        return Err(ToolError::new(
            ErrorClass::SearchPathInvalid,
            format!("{} is neither a file nor a directory", place.display()),
        ));
    }
    hunt.one_file(report)
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

/// Unsaved buffers, looked up by the path a walk gives: links inside a tree are not followed, so only the root can
/// differ from the real path.
struct Buffers<'a> {
    by_path: HashMap<&'a Path, &'a [u8]>,
    real_root: PathBuf,
}

impl<'a> Buffers<'a> {
    fn new(ground: &'a Ground) -> Self {
        let by_path = ground
            .buffers
            .iter()
            .map(|(path, bytes)| (path.as_path(), &**bytes));
        Self {
            by_path: by_path.collect(),
            real_root: real_path(&ground.place).unwrap_or_else(|_| ground.place.clone()),
        }
    }

    fn get(&self, relative: &Path) -> Option<&'a [u8]> {
        if self.by_path.is_empty() {
            return None;
        }
        if relative.as_os_str().is_empty() {
            return self.by_path.get(self.real_root.as_path()).copied();
        }
        let real = self.real_root.join(relative);
        self.by_path.get(real.as_path()).copied()
    }

    fn has(&self, relative: &Path) -> bool {
        self.get(relative).is_some()
    }

    fn source<'b>(&'b self, relative: &Path, path: &'b Path) -> Source<'b> {
        match self.get(relative) {
            Some(bytes) => Source::Buffer(bytes),
            None => Source::Disk(path),
        }
    }
}

/// What a file gave.
enum Held {
    /// All of it, and its size.
    Events(Vec<Event>, usize),
    /// Too much to keep: it is searched once more when its turn comes.
    Again,
}

/// One search.
struct Hunt<'a> {
    query: &'a Query,
    ground: &'a Ground,
    matcher: RegexMatcher,
    buffers: Buffers<'a>,
    bound: Bound,
    first: Mutex<First<Held>>,
    /// Bytes that `first` holds.
    held: AtomicUsize,
    trouble: Mutex<Option<String>>,
}

impl Hunt<'_> {
    fn tree(self, globs: Override, report: &mut Report) -> Result<(), ToolError> {
        let mut rules = WalkBuilder::new(&self.ground.place);
        rules
            .hidden(false)
            .follow_links(false)
            .add_custom_ignore_filename(".rgignore")
            .overrides(globs);
        for (relative, _) in walk::unwritten(self.ground, &rules) {
            self.search(&mut self.searcher(Chosen::Met), &relative, Path::new(""));
        }
        let mut walk = Walk {
            ground: self.ground,
            rules,
            bound: &self.bound,
        };
        let trouble = walk.visit(|| {
            let mut searcher = self.searcher(Chosen::Met);
            let hunt = &self;
            move |met| {
                if met.entry.file_type().is_some_and(|kind| kind.is_file()) {
                    hunt.search(&mut searcher, met.relative, met.entry.path());
                }
            }
        });
        note(&self.trouble, trouble);
        self.ground.go_on()?;
        self.fold(report)
    }

    fn searcher(&self, chosen: Chosen) -> Searcher {
        engine::searcher(self.query.context, chosen)
    }

    fn is_cancelled(&self) -> bool {
        self.ground.cancel.is_cancelled()
    }

    /// Searches one file of the tree and keeps what it gave.
    fn search(&self, searcher: &mut Searcher, relative: &Path, path: &Path) {
        let mut take = InFile {
            query: self.query,
            events: Vec::new(),
            size: 0,
            matches: 0,
            last_line: None,
        };
        let source = self.buffers.source(relative, path);
        let stopped = || self.is_cancelled();
        match engine::search(searcher, &self.matcher, source, &stopped, &mut take) {
            Ok(()) => {}
            // Deleted since it was listed.
            Err(error) if walk::is_gone(&error) => {}
            Err(error) => {
                let text = format!("{}: {}", path.display(), describe(&error));
                note(&self.trouble, Some(text));
            }
        }
        if take.matches > 0 {
            self.keep(relative, take);
        }
    }

    fn keep(&self, relative: &Path, take: InFile<'_>) {
        let is_much = take.size > HOLD || self.held.load(Ordering::Relaxed) + take.size > HOLD_ALL;
        let held = match is_much {
            true => Held::Again,
            false => {
                self.held.fetch_add(take.size, Ordering::Relaxed);
                Held::Events(take.events, take.size)
            }
        };
        let mut first = self.first.lock();
        for dropped in first.add(relative.to_owned(), take.matches, held, &self.bound) {
            if let Held::Events(_, size) = dropped {
                self.held.fetch_sub(size, Ordering::Relaxed);
            }
        }
    }

    /// Folds what was kept, in path order.
    fn fold(self, report: &mut Report) -> Result<(), ToolError> {
        let first = std::mem::replace(&mut *self.first.lock(), First::new(0));
        for (file, (relative, held)) in first.into_files().enumerate() {
            let name = relative.to_string_lossy();
            let flow = match held {
                Held::Events(events, _) => take_all(&events, file, &name, report),
                Held::Again => {
                    let path = self.ground.place.join(&relative);
                    let source = self.buffers.source(&relative, &path);
                    self.stream(source, Chosen::Met, file, &name, report)
                }
            };
            if flow == Flow::Stop {
                break;
            }
        }
        self.ground.go_on()?;
        match self.trouble.into_inner() {
            // A search that ended at its limit did not need the rest.
            Some(trouble) if !report.limit_exceeded => Err(ToolError::new(
                ErrorClass::Io,
                format!("cannot search everything: {trouble}"),
            )),
            _ => Ok(()),
        }
    }

    fn one_file(self, report: &mut Report) -> Result<(), ToolError> {
        let path = self.ground.place.as_path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let source = self.buffers.source(Path::new(""), path);
        self.stream(source, Chosen::Named, 0, &name, report);
        self.ground.go_on()?;
        match self.trouble.into_inner() {
            Some(trouble) => Err(ToolError::new(ErrorClass::Io, trouble)),
            None => Ok(()),
        }
    }

    /// Searches a file straight into the report.
    fn stream(
        &self,
        source: Source<'_>,
        chosen: Chosen,
        file: usize,
        name: &str,
        report: &mut Report,
    ) -> Flow {
        let mut direct = Direct {
            file,
            name,
            report,
            flow: Flow::Continue,
        };
        let stopped = || self.is_cancelled();
        let mut searcher = self.searcher(chosen);
        let done = engine::search(&mut searcher, &self.matcher, source, &stopped, &mut direct);
        if let Err(error) = done {
            note(&self.trouble, Some(format!("{name}: {}", describe(&error))));
        }
        direct.flow
    }
}

fn take_all(events: &[Event], file: usize, name: &str, report: &mut Report) -> Flow {
    for event in events {
        if report.take(file, name, event) == Flow::Stop {
            return Flow::Stop;
        }
    }
    Flow::Continue
}

/// Hands events on as they come.
struct Direct<'a> {
    file: usize,
    name: &'a str,
    report: &'a mut Report,
    flow: Flow,
}

impl Take for Direct<'_> {
    fn take(&mut self, event: Event) -> bool {
        self.flow = self.report.take(self.file, self.name, &event);
        self.flow == Flow::Continue
    }
}

/// Takes the events of one file, no more than the limit can need.
struct InFile<'a> {
    query: &'a Query,
    events: Vec<Event>,
    size: usize,
    matches: usize,
    last_line: Option<u64>,
}

impl Take for InFile<'_> {
    fn take(&mut self, event: Event) -> bool {
        let query = self.query;
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
        self.size += event.text.len() + size_of::<Event>();
        // Once it is too much it is only counted: the file is searched again then.
        if self.size <= HOLD {
            self.events.push(event);
        }
        go_on
    }
}
