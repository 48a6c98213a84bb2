//! One file through the search engine: matcher, searcher, and the sink that turns matches into events.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};

use crate::agent::{ErrorClass, ToolError};
use crate::tools::truncate;

/// Longest line the engine keeps in memory; a file with a longer one counts as unreadable.
const HEAP_LIMIT: usize = 128 * 1024 * 1024;

/// Enough bytes of a line to know its first 500 UTF-16 units: no unit takes more than three.
const LINE_PREFIX: usize = 2048;

/// A line to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: EventKind,
    pub(super) line: u64,
    pub(super) text: String,
    /// The text was cut.
    pub(super) cut: bool,
}

/// Why a line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    Match,
    Context,
}

/// Compiles the pattern.
pub(super) fn matcher(
    pattern: &str,
    ignore_case: bool,
    literal: bool,
) -> Result<RegexMatcher, ToolError> {
    RegexMatcherBuilder::new()
        .case_insensitive(ignore_case)
        .fixed_strings(literal)
        .multi_line(true)
        .unicode(true)
        .octal(false)
        .line_terminator(Some(b'\n'))
        .build(pattern)
        .map_err(|error| {
            let text =
                format!("bad pattern {pattern:?}: {error}. Use literal to search for plain text");
            ToolError::new(ErrorClass::BadPattern, text)
        })
}

/// How a file came into the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    /// Met while walking: given up at its first NUL byte.
    Met,
    /// Named by the call: searched whatever it holds.
    Named,
}

/// Makes a searcher; one per thread, it keeps its buffers.
pub(super) fn searcher(context: usize, chosen: Chosen) -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .before_context(context)
        .after_context(context)
        .heap_limit(Some(HEAP_LIMIT))
        .binary_detection(match chosen {
            Chosen::Met => BinaryDetection::quit(b'\0'),
            Chosen::Named => BinaryDetection::none(),
        })
        .build()
}

/// Takes the events of a file. `Ok(false)` ends the file.
pub(super) trait Take {
    fn take(&mut self, event: Event) -> bool;
}

/// Searches one file or the buffer that stands for it.
pub(super) fn search(
    searcher: &mut Searcher,
    matcher: &RegexMatcher,
    source: Source<'_>,
    stopped: &dyn Fn() -> bool,
    take: &mut dyn Take,
) -> io::Result<()> {
    let mut sink = EventSink { take };
    match source {
        Source::Buffer(bytes) => searcher.search_slice(matcher, bytes, &mut sink),
        Source::Disk(path) => {
            let file = File::open(path)?;
            searcher.search_reader(matcher, Stoppable { file, stopped }, &mut sink)
        }
    }
}

/// Where the bytes come from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Disk(&'a Path),
    Buffer(&'a [u8]),
}

/// Ends at the next read once the search was stopped: a huge file without matches must not hold up an abort.
struct Stoppable<'a> {
    file: File,
    stopped: &'a dyn Fn() -> bool,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if (self.stopped)() {
            return Ok(0);
        }
        self.file.read(buf)
    }
}

struct EventSink<'a> {
    take: &'a mut dyn Take,
}

impl EventSink<'_> {
    fn line(&mut self, kind: EventKind, line: Option<u64>, bytes: &[u8]) -> bool {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let bytes = bytes.get(..LINE_PREFIX).unwrap_or(bytes);
        let (text, cut) = truncate::cut_line(&String::from_utf8_lossy(bytes));
        let line = line.unwrap_or_default();
        self.take.take(Event {
            kind,
            line,
            text,
            cut,
        })
    }
}

impl Sink for EventSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        Ok(self.line(EventKind::Match, found.line_number(), found.bytes()))
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        Ok(self.line(EventKind::Context, context.line_number(), context.bytes()))
    }
}
