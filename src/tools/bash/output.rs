//! The output of a command in bounded memory: a rolling tail for the model, counters, and a file with everything once it
//! is more than is shown.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::tools::decode::StreamDecoder;
use crate::tools::truncate::{self, MAX_BYTES, MAX_LINES, Totals, TruncatedBy, Truncation};

/// Kept of the tail after trimming.
const KEEP: usize = 2 * MAX_BYTES;
/// Size at which the tail is trimmed.
const TRIM: usize = 4 * MAX_BYTES;

/// Collects output.
pub(super) struct Output {
    decoder: StreamDecoder,
    /// Text decoded from the current piece.
    fresh: String,
    seen_text: bool,
    tail: Tail,
    newlines: usize,
    bytes: usize,
    raw_bytes: usize,
    line: LineLength,
    full: FullOutput,
    pub(super) whole: Whole,
}

impl Output {
    pub(super) fn new(tmp: &Path) -> Self {
        Self {
            decoder: StreamDecoder::default(),
            fresh: String::new(),
            seen_text: false,
            tail: Tail::new(KEEP, TRIM),
            newlines: 0,
            bytes: 0,
            raw_bytes: 0,
            line: LineLength::default(),
            full: FullOutput::new(tmp),
            whole: Whole::default(),
        }
    }

    /// Takes the next piece.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        self.raw_bytes += piece.len();
        self.fresh.clear();
        self.decoder.feed(piece, &mut self.fresh);
        self.account();
        self.full.push(piece);
        self.open_file_if_needed();
    }

    /// Ends the stream and closes the file.
    pub(super) fn finish(&mut self) {
        self.fresh.clear();
        self.decoder.finish(&mut self.fresh);
        self.account();
        self.open_file_if_needed();
        self.full.close();
    }

    fn account(&mut self) {
        if !self.seen_text && !self.fresh.is_empty() {
            self.seen_text = true;
            if self.fresh.starts_with('\u{feff}') {
                self.fresh.drain(..'\u{feff}'.len_utf8());
            }
        }
        self.bytes += self.fresh.len();
        self.newlines += memchr::memchr_iter(b'\n', self.fresh.as_bytes()).count();
        self.line.push(&self.fresh);
        self.tail.push(&self.fresh);
        self.whole.push(&self.fresh);
    }

    fn totals(&self) -> Totals {
        let unterminated = self.bytes > 0 && !self.line.ended;
        Totals {
            lines: self.newlines + usize::from(unterminated),
            bytes: self.bytes,
        }
    }

    fn open_file_if_needed(&mut self) {
        let totals = self.totals();
        if self.raw_bytes > MAX_BYTES || totals.bytes > MAX_BYTES || totals.lines > MAX_LINES {
            self.full.open();
        }
    }

    /// The text and details as they stand now.
    pub(super) fn shown(&mut self) -> (String, Option<Value>) {
        let cut = truncate::tail_of(self.tail.text(), self.totals(), MAX_LINES, MAX_BYTES);
        if !cut.truncated() {
            return (cut.content, None);
        }
        self.full.flush();
        let text = format!("{}\n\n[{}]", cut.content, self.notice(&cut));
        let mut details = Map::new();
        details.insert("truncation".to_owned(), cut.to_value());
        if let Some(path) = self.full.path() {
            details.insert("fullOutputPath".to_owned(), json!(path));
        }
        (text, Some(Value::Object(details)))
    }

    fn notice(&self, cut: &Truncation) -> String {
        let total = cut.total_lines;
        let shown = if cut.last_line_partial {
            let (shown, line) = (cut.output_bytes, self.line.last());
            let [shown, line] = [shown, line].map(truncate::size_text);
            format!("Showing last {shown} of line {total} (line is {line})")
        } else {
            let first = total + 1 - cut.output_lines;
            let limit = match cut.by {
                Some(TruncatedBy::Bytes) => format!(" ({} limit)", truncate::size_text(MAX_BYTES)),
                _ => String::new(),
            };
            format!("Showing lines {first}-{total} of {total}{limit}")
        };
        match self.full.path() {
            Some(path) => format!("{shown}. Full output: {path}"),
            None => format!("{shown}. The full output could not be saved"),
        }
    }

    /// Where everything is, when it was saved.
    pub(super) fn full_output_path(&self) -> Option<&str> {
        self.full.path()
    }
}

/// Length of the last line, without its newline.
#[derive(Default)]
struct LineLength {
    current: usize,
    before: usize,
    ended: bool,
}

impl LineLength {
    fn push(&mut self, text: &str) {
        let Some(last) = text.as_bytes().last() else {
            return;
        };
        let mut pieces = text.split('\n');
        self.current += pieces.next().map_or(0, str::len);
        for piece in pieces {
            self.before = self.current;
            self.current = piece.len();
        }
        self.ended = *last == b'\n';
    }

    fn last(&self) -> usize {
        if self.ended {
            self.before
        } else {
            self.current
        }
    }
}

/// The end of a text, trimmed now and then. It keeps more than is ever shown, so where it was cut never shows.
pub(super) struct Tail {
    text: String,
    keep: usize,
    trim: usize,
    /// Something was dropped.
    pub(super) dropped: bool,
}

impl Tail {
    pub(super) fn new(keep: usize, trim: usize) -> Self {
        Self {
            text: String::new(),
            keep,
            trim,
            dropped: false,
        }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() > self.trim {
            let from = truncate::ceil_char_boundary(&self.text, self.text.len() - self.keep);
            self.dropped = true;
            self.text.drain(..from);
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// A file with the whole output, made only when it is needed.
pub(super) struct FullOutput {
    dir: PathBuf,
    state: FileState,
}

enum FileState {
    /// Everything so far; a little more than is shown at most.
    Memory(Vec<u8>),
    Open {
        file: std::io::BufWriter<File>,
        path: String,
    },
    Closed {
        path: String,
    },
    /// Saving failed; the output is not kept.
    Lost,
}

impl FullOutput {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            state: FileState::Memory(Vec::new()),
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        match &mut self.state {
            FileState::Memory(kept) => kept.extend_from_slice(bytes),
            FileState::Open { file, path } => {
                if let Err(error) = file.write_all(bytes) {
                    tracing::warn!(path, %error, "the full output cannot be saved");
                    self.state = FileState::Lost;
                }
            }
            FileState::Closed { .. } | FileState::Lost => {}
        }
    }

    /// Makes the file, readable by its owner only; a name that exists is never used.
    pub(super) fn open(&mut self) {
        let FileState::Memory(kept) = &self.state else {
            return;
        };
        let id = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("pi-bash-{}.log", id.get(..16).unwrap_or(&id));
        let path = self.dir.join(name);
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        self.state = match opened.and_then(|mut file| file.write_all(kept).map(|()| file)) {
            Ok(file) => {
                let path = path.to_string_lossy().into_owned();
                FileState::Open {
                    file: std::io::BufWriter::with_capacity(64 * 1024, file),
                    path,
                }
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the full output cannot be saved");
                FileState::Lost
            }
        };
    }

    fn flush(&mut self) {
        if let FileState::Open { file, .. } = &mut self.state {
            // A failure shows up again at the next write.
            let _flushed = file.flush();
        }
    }

    pub(super) fn close(&mut self) {
        self.flush();
        if let FileState::Open { path, .. } = &mut self.state {
            let path = std::mem::take(path);
            self.state = FileState::Closed { path };
        }
    }

    pub(super) fn path(&self) -> Option<&str> {
        match &self.state {
            FileState::Open { path, .. } | FileState::Closed { path } => Some(path),
            FileState::Memory(_) | FileState::Lost => None,
        }
    }
}

/// The whole text for programs, up to 1 MiB; beyond that its first and last halves.
#[derive(Default)]
pub(super) struct Whole {
    head: String,
    tail: Option<Tail>,
    bytes: usize,
}

impl Whole {
    const MAX: usize = 1024 * 1024;
    const HALF: usize = Self::MAX / 2;

    fn push(&mut self, text: &str) {
        self.bytes += text.len();
        if let Some(tail) = &mut self.tail {
            tail.push(text);
            return;
        }
        self.head.push_str(text);
        if self.head.len() > Self::MAX {
            let cut = truncate::floor_char_boundary(&self.head, Self::HALF);
            let mut tail = Tail::new(Self::HALF + 4, 2 * Self::MAX);
            tail.push(self.head.get(cut..).unwrap_or_default());
            self.head.truncate(cut);
            self.tail = Some(tail);
        }
    }

    /// The text and whether it is only its two halves.
    pub(super) fn text(&self) -> (String, bool) {
        let Some(tail) = &self.tail else {
            return (self.head.clone(), false);
        };
        let text = tail.text();
        let from = truncate::ceil_char_boundary(text, text.len().saturating_sub(Self::HALF));
        let end = text.get(from..).unwrap_or_default();
        let omitted = self.bytes - self.head.len() - end.len();
        (
            format!(
                "{}\n\n[... {omitted} bytes omitted ...]\n\n{end}",
                self.head
            ),
            true,
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn collected(pieces: &[&[u8]], dir: &Path) -> Output {
        let mut output = Output::new(dir);
        for piece in pieces {
            output.feed(piece);
        }
        output.finish();
        output
    }

    #[test]
    fn short_output_makes_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut output = collected(&[b"a\n", b"b"], dir.path());
        assert_eq!(output.shown(), ("a\nb".to_owned(), None));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_mark_split_over_pieces_is_dropped_at_the_start_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut output = collected(&[b"\xef", b"\xbb\xbfa", "\u{feff}".as_bytes()], dir.path());
        assert_eq!(output.shown().0, "a\u{feff}");
    }

    #[test]
    fn memory_stays_bounded_and_the_file_has_everything() {
        let dir = tempfile::tempdir().unwrap();
        let mut output = Output::new(dir.path());
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..20 {
            output.feed(&piece);
        }
        output.feed(b"\nend\n");
        output.finish();
        assert!(
            output.tail.text.capacity() < 4 << 20,
            "{}",
            output.tail.text.capacity()
        );
        let (text, _) = output.shown();
        assert!(
            text.starts_with("end\n\n[Showing lines 2-2 of 2 (50.0KB limit). Full output: "),
            "{text}"
        );
        let saved = std::fs::metadata(output.full_output_path().unwrap()).unwrap();
        assert_eq!(saved.len(), (20 << 20) + 5);
    }

    #[test]
    fn a_lost_file_is_said() {
        let mut output = collected(&[&vec![b'\n'; 3000]], Path::new("/no/such/dir"));
        let (text, details) = output.shown();
        assert!(
            text.ends_with("[Showing lines 1001-3000 of 3000. The full output could not be saved]")
        );
        assert_eq!(details.unwrap().get("fullOutputPath"), None);
    }

    #[test]
    fn programs_get_both_ends_of_a_long_text() {
        let mut whole = Whole::default();
        whole.push(&"a".repeat(Whole::MAX));
        assert!(!whole.text().1);
        whole.push("é");
        let (text, cut) = whole.text();
        assert!(
            cut && text.ends_with("é") && text.contains("[... 2 bytes omitted ...]"),
            "{}",
            text.len()
        );
    }

    proptest! {
        #[test]
        fn any_pieces_show_the_same(
            lengths in proptest::collection::vec((0usize..400, any::<bool>()), 0..400),
            piece in 1usize..9000,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let lines: Vec<String> =
                lengths.iter().map(|(length, wide)| if *wide { "é" } else { "a" }.repeat(*length)).collect();
            let text = lines.join("\n");
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece).collect();
            let mut output = collected(&pieces, dir.path());
            let plain = truncate::tail(&text, MAX_LINES, MAX_BYTES);
            prop_assert_eq!(plain.truncated(), output.full_output_path().is_some());
            let (shown, details) = output.shown();
            prop_assert!(shown.starts_with(&plain.content));
            if let Some(details) = details {
                prop_assert_eq!(&details["truncation"], &plain.to_value());
                prop_assert_eq!(std::fs::read(output.full_output_path().unwrap()).unwrap(), text.as_bytes());
            }
        }
    }
}
