//! A file as an edit sees it: text with `\n` for every line break, and the way back to the bytes.
//!
//! Matching happens on the normalised text; replacing happens on the bytes, so that whatever an edit does not touch keeps
//! every byte: line endings of any kind, a byte order mark, and bytes that are no UTF-8.

use std::ops::Range;

use memchr::{memchr, memrchr};

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// A file's content, decoded.
pub(super) struct Source<'a> {
    /// Without the byte order mark.
    bytes: &'a [u8],
    has_bom: bool,
    /// With `\n` for every line break, U+FFFD for what is no UTF-8.
    pub(super) text: String,
    /// Where the text's distance from the bytes changes: offset in the text, offset in the bytes.
    jumps: Vec<(usize, usize)>,
    /// Where the text stands for bytes that are no UTF-8.
    invalid: Vec<Range<usize>>,
}

/// A range of the text and the text for it, with `\n` line breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Splice {
    pub(super) range: Range<usize>,
    pub(super) text: String,
}

/// Returns a text with `\n` for every line break.
pub(in crate::tools) fn with_line_feeds(text: &str) -> String {
    if text.contains('\r') {
        text.replace("\r\n", "\n").replace('\r', "\n")
    } else {
        text.to_owned()
    }
}

impl<'a> Source<'a> {
    /// Decodes a file.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let (bytes, has_bom) = match bytes.strip_prefix(BOM) {
            Some(rest) => (rest, true),
            None => (bytes, false),
        };
        let mut source = Self {
            bytes,
            has_bom,
            text: String::with_capacity(bytes.len()),
            jumps: Vec::new(),
            invalid: Vec::new(),
        };
        let mut at = 0;
        for chunk in bytes.utf8_chunks() {
            source.add_valid(chunk.valid(), at);
            at += chunk.valid().len();
            if !chunk.invalid().is_empty() {
                let start = source.text.len();
                source.text.push('\u{fffd}');
                source.invalid.push(start..source.text.len());
                at += chunk.invalid().len();
                source.jumps.push((source.text.len(), at));
            }
        }
        source
    }

    fn add_valid(&mut self, valid: &str, start: usize) {
        let mut at = 0;
        while let Some(found) = memchr(b'\r', tail(valid, at).as_bytes()) {
            let cr = at + found;
            self.text.push_str(valid.get(at..cr).unwrap_or_default());
            self.text.push('\n');
            at = cr + 1;
            if tail(valid, at).starts_with('\n') {
                at += 1;
                self.jumps.push((self.text.len(), start + at));
            }
        }
        self.text.push_str(tail(valid, at));
    }

    /// Whether the bytes are all UTF-8.
    pub(super) fn is_utf8(&self) -> bool {
        self.invalid.is_empty()
    }

    /// Whether a range of the text stands for bytes that are no UTF-8.
    pub(super) fn is_damaged(&self, range: &Range<usize>) -> bool {
        self.invalid
            .iter()
            .any(|bad| bad.start < range.end && range.start < bad.end)
    }

    /// Where an offset of the text is in the bytes; of a `\r\n` before the `\r`.
    fn in_bytes(&self, offset: usize) -> usize {
        let passed = self.jumps.partition_point(|(text, _)| *text <= offset);
        match passed.checked_sub(1).and_then(|last| self.jumps.get(last)) {
            Some((text, bytes)) => bytes + (offset - text),
            None => offset,
        }
    }

    /// The text with these replacements, which are in order.
    pub(super) fn edited_text(&self, splices: &[Splice]) -> String {
        let mut out = String::with_capacity(self.text.len());
        let mut at = 0;
        for splice in splices {
            out.push_str(self.text.get(at..splice.range.start).unwrap_or_default());
            out.push_str(&splice.text);
            at = splice.range.end;
        }
        out.push_str(tail(&self.text, at));
        out
    }

    /// The bytes with these replacements, which are in order; also the lines of the result that each one made.
    pub(super) fn edited_bytes(&self, splices: &[Splice]) -> (Vec<u8>, Vec<Range<usize>>) {
        let mut out = Emitter::new(self.bytes.len(), self.has_bom);
        let mut made = Vec::with_capacity(splices.len());
        let mut at = 0;
        for splice in splices {
            let start = self.in_bytes(splice.range.start);
            out.push(self.bytes.get(at..start).unwrap_or_default());
            let text = match self.ending_at(start) {
                "\n" => splice.text.as_bytes().to_vec(),
                ending => splice.text.replace('\n', ending).into_bytes(),
            };
            let first = out.lines_so_far();
            out.push(&text);
            made.push(first..out.lines_with_the_open_one());
            at = self.in_bytes(splice.range.end);
        }
        out.push(self.bytes.get(at..).unwrap_or_default());
        (out.bytes, made)
    }

    /// The ending of the line that a byte offset is on; of a last line without one, that of the line before.
    fn ending_at(&self, offset: usize) -> &'static str {
        let after = self.bytes.get(offset..).unwrap_or_default();
        let upto = self.bytes.get(..offset).unwrap_or_default();
        let feed = memchr(b'\n', after)
            .map(|found| offset + found)
            .or_else(|| memrchr(b'\n', upto));
        match feed {
            Some(0) => "\n",
            Some(feed) if self.bytes.get(feed - 1) == Some(&b'\r') => "\r\n",
            Some(_) => "\n",
            None if self.bytes.contains(&b'\r') => "\r",
            None => "\n",
        }
    }
}

fn tail(text: &str, from: usize) -> &str {
    text.get(from..).unwrap_or_default()
}

/// Puts pieces together. A `\r` that a piece ends with stays a line break of its own when the next begins with `\n`.
struct Emitter {
    bytes: Vec<u8>,
    feeds: usize,
    counted: usize,
}

impl Emitter {
    fn new(capacity: usize, has_bom: bool) -> Self {
        let mut bytes = Vec::with_capacity(capacity + BOM.len());
        if has_bom {
            bytes.extend_from_slice(BOM);
        }
        Self {
            bytes,
            feeds: 0,
            counted: 0,
        }
    }

    fn push(&mut self, piece: &[u8]) {
        if piece.first() == Some(&b'\n') && self.bytes.last() == Some(&b'\r') {
            self.bytes.push(b'\n');
        }
        self.bytes.extend_from_slice(piece);
    }

    /// Counts the line feeds so far: the number of the line that would go on.
    fn lines_so_far(&mut self) -> usize {
        let fresh = self.bytes.get(self.counted..).unwrap_or_default();
        self.feeds += memchr::memchr_iter(b'\n', fresh).count();
        self.counted = self.bytes.len();
        self.feeds
    }

    /// As [`Self::lines_so_far`], and one for a line that is begun.
    fn lines_with_the_open_one(&mut self) -> usize {
        self.lines_so_far() + usize::from(self.bytes.last().is_some_and(|last| *last != b'\n'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(bytes: &[u8], old: &str, new: &str) -> Vec<u8> {
        let source = Source::new(bytes);
        let start = source.text.find(old).unwrap();
        let splice = Splice {
            range: start..start + old.len(),
            text: new.to_owned(),
        };
        source.edited_bytes(&[splice]).0
    }

    #[test]
    fn untouched_bytes_and_endings_are_kept() {
        assert_eq!(
            edited(b"one\r\ntwo\nthree", "three", "3\n4"),
            b"one\r\ntwo\n3\n4"
        );
        assert_eq!(
            edited(b"a\r\nb\r\nc\r\n", "a\nb", "A\nB\nX"),
            b"A\r\nB\r\nX\r\nc\r\n"
        );
        assert_eq!(edited(b"a\rb\rc", "b", "x\ny"), b"a\rx\ry\rc");
        assert_eq!(
            edited(b"\xEF\xBB\xBFhi\r\nyo\r\n", "hi", "HI"),
            b"\xEF\xBB\xBFHI\r\nyo\r\n"
        );
        assert_eq!(edited(b"caf\xE9\np=5\n", "p=5", "p=7"), b"caf\xE9\np=7\n");
        assert_eq!(
            edited(b"\xE9\r\n\xE9x\r\n", "x", "y\nz"),
            b"\xE9\r\n\xE9y\r\nz\r\n"
        );
    }

    #[test]
    fn a_lone_carriage_return_keeps_its_own_break() {
        assert_eq!(edited(b"a\rb\n", "b", "\nb"), b"a\r\n\nb\n");
        assert_eq!(edited(b"a\rb\nc\n", "b", ""), b"a\r\n\nc\n");
    }

    #[test]
    fn damage_is_known() {
        let source = Source::new(b"a\xFFb");
        assert!(!source.is_utf8());
        assert!(source.is_damaged(&(0..2)));
        assert!(!source.is_damaged(&(0..1)));
        assert!(!source.is_damaged(&(4..5)));
    }
}
