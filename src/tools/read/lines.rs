//! The selection of lines from a stream of bytes, with bounded memory.
//!
//! A file has one line more than it has `\n` bytes, so one that ends in a newline ends in an empty line.

use crate::tools::decode::StreamDecoder;
use crate::tools::truncate::{self, Totals};

/// Kept of a selection: enough to see that a line does not fit.
const KEEP: usize = truncate::MAX_BYTES + 8;

/// The lines a call asks for, as the numbers it gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) offset: Option<f64>,
    limit: Option<f64>,
}

impl Range {
    pub(super) fn new(offset: Option<f64>, limit: Option<f64>) -> Self {
        Self { offset, limit }
    }

    fn raw_start(self) -> f64 {
        match self.offset {
            Some(offset) if offset != 0.0 => (offset - 1.0).max(0.0),
            _ => 0.0,
        }
    }

    /// First selected line, from 0.
    pub(super) fn start(self) -> usize {
        self.raw_start() as usize
    }

    /// First selected line, from 1, as a number to show.
    pub(super) fn first_line(self) -> f64 {
        self.raw_start() + 1.0
    }

    /// The line after the last selected one as the numbers of the call give it; it may be negative or have a fraction.
    pub(super) fn raw_end(self) -> Option<f64> {
        self.limit.map(|limit| self.raw_start() + limit)
    }

    /// The line after the last selected one.
    pub(super) fn end(self) -> Option<usize> {
        self.raw_end().map(|end| end.max(0.0) as usize)
    }

    /// How many lines before the end of the file the selection ends, for a negative end.
    pub(super) fn end_from_the_end(self) -> Option<usize> {
        let end = self.raw_end().filter(|end| *end <= -1.0)?;
        Some(-end.trunc() as usize)
    }
}

/// Writes a number as JavaScript does.
pub(super) fn number(value: f64) -> String {
    value.to_string()
}

/// What was selected.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// Lines of the whole file.
    pub(super) total_lines: usize,
    /// The beginning of the selected text.
    pub(super) text: String,
    /// Size of the whole selected text.
    pub(super) totals: Totals,
    /// Bytes of its first line.
    pub(super) first_line_bytes: usize,
}

/// Takes a file piece by piece.
pub(super) struct Scan {
    start: usize,
    end: usize,
    /// Line the next byte belongs to, from 0.
    line: usize,
    decoder: StreamDecoder,
    selected: Selected,
}

/// What is known of the selected text so far.
struct Selected {
    selection: Selection,
    in_first_line: bool,
    ends_in_newline: bool,
}

impl Scan {
    /// Selects lines `start..end`, from 0; no `end` means all.
    pub(super) fn new(start: usize, end: Option<usize>) -> Self {
        Self {
            start,
            end: end.unwrap_or(usize::MAX),
            line: 0,
            decoder: StreamDecoder::default(),
            selected: Selected {
                selection: Selection::default(),
                in_first_line: true,
                ends_in_newline: false,
            },
        }
    }

    /// Only counts.
    pub(super) fn counting() -> Self {
        Self::new(usize::MAX, Some(0))
    }

    /// Takes the next piece.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        let rest = self.skip_to_start(piece);
        if self.line >= self.start && self.line < self.end {
            let (selected, rest) = self.split_at_end(rest);
            self.take(selected);
            self.line += memchr::memchr_iter(b'\n', rest).count();
        } else {
            self.line += memchr::memchr_iter(b'\n', rest).count();
        }
    }

    /// Returns what lies after the lines before the selection.
    fn skip_to_start<'a>(&mut self, piece: &'a [u8]) -> &'a [u8] {
        let mut rest = piece;
        while self.line < self.start {
            let missing = self.start - self.line;
            let mut seen = 0;
            let last = memchr::memchr_iter(b'\n', rest)
                .take(missing)
                .inspect(|_| seen += 1)
                .last();
            self.line += seen;
            let after = match last {
                Some(at) if self.line == self.start => at + 1,
                _ => rest.len(),
            };
            rest = rest.get(after..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
        }
        rest
    }

    /// Splits off the part inside the selection. The newline that ends its last line belongs to neither text.
    fn split_at_end<'a>(&mut self, rest: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let lines_left = self.end - self.line;
        let mut seen = 0;
        let last = memchr::memchr_iter(b'\n', rest)
            .take(lines_left)
            .inspect(|_| seen += 1)
            .last();
        self.line += seen;
        match last {
            Some(at) if self.line == self.end => {
                let (selected, after) = rest.split_at(at);
                (selected, after.get(1..).unwrap_or_default())
            }
            _ => (rest, &[]),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let selected = &mut self.selected;
        self.decoder
            .feed_with(bytes, &mut |text| selected.push(text));
    }

    /// Ends the file.
    pub(super) fn finish(mut self) -> Selection {
        let selected = &mut self.selected;
        self.decoder.finish_with(&mut |text| selected.push(text));
        let mut selection = self.selected.selection;
        selection.total_lines = self.line + 1;
        let unterminated = selection.totals.bytes > 0 && !self.selected.ends_in_newline;
        selection.totals.lines += usize::from(unterminated);
        selection
    }
}

impl Selected {
    fn push(&mut self, text: &str) {
        let Some(last) = text.as_bytes().last() else {
            return;
        };
        self.ends_in_newline = *last == b'\n';
        let selection = &mut self.selection;
        selection.totals.lines += memchr::memchr_iter(b'\n', text.as_bytes()).count();
        selection.totals.bytes += text.len();
        if self.in_first_line {
            let end = memchr::memchr(b'\n', text.as_bytes());
            selection.first_line_bytes += end.unwrap_or(text.len());
            self.in_first_line = end.is_none();
        }
        let room = KEEP.saturating_sub(selection.text.len());
        if room > 0 {
            let take = truncate::ceil_char_boundary(text, room);
            selection
                .text
                .push_str(text.get(..take).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_stream_selects_what_a_list_of_lines_would(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), Just(0xc3), Just(0xa9)], 0..60),
            start in 0usize..8,
            count in proptest::option::of(0usize..8),
            piece in 1usize..9,
        ) {
            let end = count.map(|count| start + count);
            let mut scan = Scan::new(start, end);
            for piece in bytes.chunks(piece) {
                scan.feed(piece);
            }
            let got = scan.finish();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let all: Vec<&str> = text.split('\n').collect();
            prop_assert_eq!(got.total_lines, all.len());
            let upto = end.unwrap_or(all.len()).min(all.len());
            let wanted = all.get(start..upto).unwrap_or_default().join("\n");
            prop_assert_eq!(got.totals, Totals { lines: truncate::count_lines(&wanted), bytes: wanted.len() });
            prop_assert_eq!(got.first_line_bytes, wanted.split('\n').next().unwrap().len());
            prop_assert_eq!(got.text, wanted);
        }
    }

    #[test]
    fn a_huge_line_is_counted_and_not_kept() {
        let mut scan = Scan::new(0, None);
        for _ in 0..100 {
            scan.feed(&[b'x'; 10_000]);
        }
        let got = scan.finish();
        assert_eq!((got.first_line_bytes, got.text.len()), (1_000_000, KEEP));
    }
}
