//! What a buffer's lines mean as bytes of a file, and the reverse.
//!
//! Entry points: [`Facts`], [`Target`], [`edits_for`]. A buffer's bytes are what writing it as it stands would give: its
//! file format's endings, its BOM, its final newline.

use rmpv::Value;

use crate::workspace::LineEdit;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// The line endings a buffer is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Unix,
    Dos,
    Mac,
}

impl Format {
    fn ending(self) -> &'static [u8] {
        match self {
            Self::Unix => b"\n",
            Self::Dos => b"\r\n",
            Self::Mac => b"\r",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unix => "unix",
            Self::Dos => "dos",
            Self::Mac => "mac",
        }
    }
}

/// What Lua says about a loaded buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) buffer: i64,
    pub(super) changedtick: i64,
    pub(super) modified: bool,
    pub(super) format: Format,
    pub(super) bomb: bool,
    pub(super) endofline: bool,
    pub(super) utf8: bool,
    pub(super) modifiable: bool,
    /// Another process has a swap file for it.
    pub(super) swap: bool,
    /// It would be written as an empty file.
    pub(super) empty: bool,
    /// The file on disk when this was said.
    pub(super) stamp: String,
    /// The file on disk is another than the one the buffer was read from or written to.
    pub(super) behind: bool,
}

/// Finds a field of a msgpack map.
pub(super) fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    map.as_map()?
        .iter()
        .find(|(key, _)| key.as_str() == Some(name))
        .map(|(_, value)| value)
}

impl Facts {
    /// Reads the answer of `pi.review.buffers`; `None` when it has not that form.
    pub(super) fn parse(answer: &Value) -> Option<Self> {
        let flag = |name| field(answer, name).and_then(Value::as_bool);
        let number = |name| field(answer, name).and_then(Value::as_i64);
        let text = |name| field(answer, name).and_then(Value::as_str);
        Some(Self {
            buffer: number("buf")?,
            changedtick: number("changedtick")?,
            modified: flag("modified")?,
            format: match text("fileformat")? {
                "dos" => Format::Dos,
                "mac" => Format::Mac,
                _ => Format::Unix,
            },
            bomb: flag("bomb")?,
            endofline: flag("endofline")?,
            utf8: text("encoding")? == "utf-8",
            modifiable: flag("modifiable")?,
            swap: flag("swap").unwrap_or(false),
            empty: number("line_count")? == 0,
            stamp: text("stamp")?.to_owned(),
            behind: flag("behind")?,
        })
    }

    /// Returns the bytes of these lines. A buffer in another encoding counts as its UTF-8 text.
    pub(super) fn bytes(&self, lines: &[Vec<u8>]) -> Vec<u8> {
        if self.empty {
            return Vec::new();
        }
        let ending = self.format.ending();
        let mut bytes = if self.bomb && self.utf8 {
            BOM.to_vec()
        } else {
            Vec::new()
        };
        bytes.append(&mut lines.join(ending));
        if self.endofline {
            bytes.extend_from_slice(ending);
        }
        bytes
    }
}

/// A file's content as a buffer holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) lines: Vec<Vec<u8>>,
    pub(super) format: Format,
    pub(super) bomb: bool,
    pub(super) endofline: bool,
}

impl Target {
    /// Splits bytes into lines. The format stays the buffer's where the bytes allow it; text whose endings are mixed is
    /// `unix` with a carriage return at the end of some lines, as Neovim itself loads it.
    pub(super) fn parse(bytes: &[u8], now: Format, utf8: bool) -> Self {
        let (bomb, text) = match bytes.strip_prefix(BOM) {
            Some(rest) if utf8 => (true, rest),
            _ => (false, bytes),
        };
        let format = format_of(text, now);
        let ending = format.ending();
        let endofline = text.ends_with(ending) || text.is_empty();
        let body = text.strip_suffix(ending).unwrap_or(text);
        let lines = if text.is_empty() {
            Vec::new()
        } else {
            split(body, ending)
        };
        Self {
            lines,
            format,
            bomb,
            endofline,
        }
    }
}

fn format_of(text: &[u8], now: Format) -> Format {
    let newlines = text.iter().filter(|byte| **byte == b'\n').count();
    let crlf = text.windows(2).filter(|pair| *pair == b"\r\n").count();
    match (newlines, now) {
        (0, Format::Mac) if text.contains(&b'\r') || text.is_empty() => Format::Mac,
        (0, Format::Mac) => Format::Unix,
        (0, now) => now,
        _ if newlines == crlf => Format::Dos,
        _ => Format::Unix,
    }
}

fn split(text: &[u8], ending: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.windows(ending.len()).position(|part| part == ending) {
        let (line, tail) = rest.split_at(at);
        lines.push(line.to_vec());
        rest = tail.get(ending.len()..).unwrap_or_default();
    }
    lines.push(rest.to_vec());
    lines
}

/// A replacement of buffer lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BufferEdit {
    pub(super) start: usize,
    pub(super) removed: usize,
    pub(super) lines: Vec<Vec<u8>>,
}

/// Turns a commit's edits into edits of buffer lines. Where the two do not count lines alike (another file format before
/// or after), or do not lead to the target, the changed middle is one edit.
pub(super) fn edits_for(
    before: &[Vec<u8>],
    format: Format,
    target: &Target,
    edits: &[LineEdit],
) -> Vec<BufferEdit> {
    let same = format == target.format && format != Format::Mac;
    let direct: Vec<_> = edits.iter().map(|edit| direct(edit, format)).collect();
    if same && applied(before, &direct).as_ref() == Some(&target.lines) {
        return direct;
    }
    middle(before, &target.lines).into_iter().collect()
}

fn direct(edit: &LineEdit, format: Format) -> BufferEdit {
    let lines = edit.added.split_inclusive(|byte| *byte == b'\n');
    let lines = lines.map(|line| {
        let ending = format.ending();
        line.strip_suffix(ending)
            .or_else(|| line.strip_suffix(b"\n"))
            .unwrap_or(line)
            .to_vec()
    });
    let mut lines: Vec<Vec<u8>> = lines.collect();
    if let (0, Some(first)) = (edit.start, lines.first_mut())
        && first.starts_with(BOM)
    {
        first.drain(..BOM.len());
    }
    BufferEdit {
        start: edit.start,
        removed: edit.removed,
        lines,
    }
}

fn applied(before: &[Vec<u8>], edits: &[BufferEdit]) -> Option<Vec<Vec<u8>>> {
    let mut out = Vec::with_capacity(before.len());
    let mut at = 0;
    for edit in edits {
        out.extend_from_slice(before.get(at..edit.start)?);
        out.extend_from_slice(&edit.lines);
        at = edit.start.checked_add(edit.removed)?;
    }
    out.extend_from_slice(before.get(at..)?);
    Some(out)
}

fn middle(before: &[Vec<u8>], after: &[Vec<u8>]) -> Option<BufferEdit> {
    let head = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (old, new) = (before.get(head..)?, after.get(head..)?);
    let tail = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (removed, kept) = (old.len() - tail, new.len() - tail);
    (removed > 0 || kept > 0).then(|| BufferEdit {
        start: head,
        removed,
        lines: new.get(..kept).unwrap_or_default().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    fn facts(target: &Target) -> Facts {
        Facts {
            buffer: 1,
            changedtick: 1,
            modified: false,
            format: target.format,
            bomb: target.bomb,
            endofline: target.endofline,
            utf8: true,
            modifiable: true,
            swap: false,
            empty: target.lines.is_empty(),
            stamp: String::new(),
            behind: false,
        }
    }

    fn check(bytes: &[u8], now: Format, lines: &[&str], format: Format, endofline: bool) {
        let target = Target::parse(bytes, now, true);
        let lines: Vec<Vec<u8>> = lines.iter().map(|line| line.as_bytes().to_vec()).collect();
        assert_eq!(
            (&target.lines, target.format, target.endofline),
            (&lines, format, endofline)
        );
        assert_eq!(facts(&target).bytes(&target.lines), bytes);
    }

    #[test]
    fn texts_of_every_format_survive() {
        check(b"a\nb\n", Format::Unix, &["a", "b"], Format::Unix, true);
        check(b"a\nb", Format::Unix, &["a", "b"], Format::Unix, false);
        check(b"a\r\nb\r\n", Format::Unix, &["a", "b"], Format::Dos, true);
        check(b"a\r\nb", Format::Dos, &["a", "b"], Format::Dos, false);
        check(b"a\r\nb\n", Format::Dos, &["a\r", "b"], Format::Unix, true);
        check(b"a\rb\r", Format::Mac, &["a", "b"], Format::Mac, true);
        check(b"a\rb", Format::Unix, &["a\rb"], Format::Unix, false);
        check(b"\n", Format::Unix, &[""], Format::Unix, true);
        check(b"", Format::Dos, &[], Format::Dos, true);
        check(b"a\n\n", Format::Unix, &["a", ""], Format::Unix, true);
        check(b"\xef\xbb\xbfa\n", Format::Unix, &["a"], Format::Unix, true);
    }

    #[test]
    fn edits_keep_their_places_and_lose_their_endings() {
        let before = split(b"a\nb\nc", b"\n");
        let target = Target::parse(b"a\r\nB\r\nc\r\n", Format::Dos, true);
        let edit = LineEdit {
            start: 1,
            removed: 1,
            added: b"B\r\n".to_vec(),
        };
        let expected = BufferEdit {
            start: 1,
            removed: 1,
            lines: vec![b"B".to_vec()],
        };
        assert_eq!(
            edits_for(&before, Format::Dos, &target, &[edit]),
            vec![expected]
        );
    }

    #[test]
    fn only_a_bom_or_an_ending_changed_touches_no_line() {
        let before = split(b"a\nb", b"\n");
        let edit = LineEdit {
            start: 0,
            removed: 2,
            added: b"a\nb\n".to_vec(),
        };
        let target = Target::parse(b"a\nb\n", Format::Dos, true);
        assert_eq!(edits_for(&before, Format::Dos, &target, &[edit]), vec![]);
    }

    proptest! {
        #[test]
        fn whatever_the_edits_say_the_target_is_reached(
            before in "[ab\r\n]{0,12}",
            after in "[ab\r\n]{0,12}",
            start in 0_usize..4,
            removed in 0_usize..4,
        ) {
            let now = Target::parse(before.as_bytes(), Format::Unix, true);
            let target = Target::parse(after.as_bytes(), now.format, true);
            let edit = LineEdit { start, removed, added: after.clone().into_bytes() };
            let edits = edits_for(&now.lines, now.format, &target, &[edit]);
            prop_assert_eq!(applied(&now.lines, &edits), Some(target.lines.clone()));
            prop_assert_eq!(facts(&target).bytes(&target.lines), after.into_bytes());
        }
    }
}
