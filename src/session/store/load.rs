//! Reading a session file: lines to an index, in chunks, without keeping the text.

use std::io::{self, Read};

use super::header::Header;
use crate::entry::{self, Body, Entry, EntryId, Facts, Kind, Line};

/// How much is read at once.
const CHUNK: usize = 1 << 20;

/// An entry line as the loader found it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) id: EntryId,
    pub(super) parent: Option<EntryId>,
    pub(super) facts: Facts,
    pub(super) offset: u64,
    pub(super) len: u32,
    /// Of a label or name: the whole content, for the session's own state.
    pub(super) note: Option<Box<Note>>,
}

/// What the session keeps in memory of a label or name entry.
#[derive(Clone, Debug)]
pub(super) enum Note {
    Label {
        target: String,
        label: Option<String>,
        time: String,
    },
    Name(Option<String>),
}

impl Note {
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        if !matches!(entry.facts().kind, Kind::Label | Kind::SessionInfo) {
            return None;
        }
        match entry.body() {
            Body::Label { target, label } => Some(Self::Label {
                target,
                label,
                time: entry.timestamp().unwrap_or_default(),
            }),
            Body::SessionInfo { name } => Some(Self::Name(name)),
            _ => None,
        }
    }
}

/// Result of reading a file.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) header: Option<Header>,
    pub(super) found: Vec<Found>,
    /// Bytes read.
    pub(super) size: u64,
    /// Whether the last byte is a line feed (also for an empty file).
    pub(super) ends_well: bool,
    /// A first value that is no header was met.
    pub(super) foreign: bool,
}

/// Reads a whole session file. Stops early when it turns out to be something else.
pub(super) fn whole(reader: impl Read) -> io::Result<Loaded> {
    let mut loaded = Loaded {
        ends_well: true,
        ..Loaded::default()
    };
    lines(reader, 0, |offset, line, complete| {
        loaded.size = offset + line.len() as u64 + u64::from(complete);
        loaded.ends_well = complete;
        loaded.line(offset, line)
    })?;
    Ok(loaded)
}

/// Reads entries that were appended behind `from`; `reader` stands there already.
pub(super) fn tail(reader: impl Read, from: u64) -> io::Result<Loaded> {
    let mut loaded = Loaded {
        ends_well: true,
        size: from,
        ..Loaded::default()
    };
    lines(reader, from, |offset, line, complete| {
        loaded.size = offset + line.len() as u64 + u64::from(complete);
        loaded.ends_well = complete;
        loaded.entry_line(offset, line);
        true
    })?;
    Ok(loaded)
}

impl Loaded {
    /// Takes one line; false ends the reading.
    fn line(&mut self, offset: u64, line: &[u8]) -> bool {
        if self.header.is_some() {
            self.entry_line(offset, line);
            return true;
        }
        match Line::read(line) {
            Line::Nothing => {}
            Line::Header(fields) => {
                self.header = Header::from_fields(fields);
                self.foreign = self.header.is_none();
            }
            Line::Entry(_) | Line::Stray => self.foreign = true,
        }
        !self.foreign
    }

    fn entry_line(&mut self, offset: u64, line: &[u8]) {
        let (Some(index), Ok(len)) = (entry::index(line), u32::try_from(line.len())) else {
            return;
        };
        let is_note = matches!(index.facts.kind, Kind::Label | Kind::SessionInfo);
        let note = is_note
            .then(|| Entry::parse(&String::from_utf8_lossy(line)))
            .flatten()
            .and_then(|entry| Note::of(&entry));
        self.found.push(Found {
            id: index.id,
            parent: index.parent,
            facts: index.facts,
            offset,
            len,
            note: note.map(Box::new),
        });
    }
}

/// Splits a stream on line feeds only. `take` gets the offset, the line without its line feed, and whether it had one; it
/// returns false to stop. A last line without line feed is given too, an empty one is not.
pub(crate) fn lines(
    mut reader: impl Read,
    start: u64,
    mut take: impl FnMut(u64, &[u8], bool) -> bool,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    // `buffer[..filled]` is read; the line in progress starts at 0 and stands at `offset` in the file.
    let (mut filled, mut offset, mut searched) = (0, start, 0);
    loop {
        if filled == buffer.len() {
            buffer.resize(buffer.len() * 2, 0);
        }
        let count = match reader.read(buffer.get_mut(filled..).unwrap_or_default()) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if count == 0 {
            let rest = buffer.get(..filled).unwrap_or_default();
            if !rest.is_empty() {
                take(offset, rest, false);
            }
            return Ok(());
        }
        filled += count;
        let mut begin = 0;
        while let Some(at) = entry::find_line_feed(buffer.get(searched..filled).unwrap_or_default())
        {
            let end = searched + at;
            let line = buffer.get(begin..end).unwrap_or_default();
            if !take(offset, line, true) {
                return Ok(());
            }
            offset += (end - begin + 1) as u64;
            begin = end + 1;
            searched = begin;
        }
        buffer.copy_within(begin..filled, 0);
        filled -= begin;
        searched = filled;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives at most `step` bytes a read.
    struct Dribble<'a>(&'a [u8], usize);
    impl Read for Dribble<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(out.len()).min(self.0.len());
            out[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn lines_end_only_at_line_feeds_whatever_the_reads_give() {
        let text = "a\r\n\n\u{2028}b\u{85}c\nlast".as_bytes();
        for step in 1..=text.len() {
            let mut seen = Vec::new();
            lines(Dribble(text, step), 7, |offset, line, complete| {
                seen.push((offset, String::from_utf8_lossy(line).into_owned(), complete));
                true
            })
            .unwrap();
            assert_eq!(
                seen,
                [
                    (7, "a\r".to_owned(), true),
                    (10, String::new(), true),
                    (11, "\u{2028}b\u{85}c".to_owned(), true),
                    (19, "last".to_owned(), false),
                ]
            );
        }
    }

    #[test]
    fn a_line_longer_than_a_chunk_is_whole() {
        let text = format!("{}\nx", "y".repeat(3 * CHUNK + 5));
        let mut sizes = Vec::new();
        lines(text.as_bytes(), 0, |_, line, _| {
            sizes.push(line.len());
            true
        })
        .unwrap();
        assert_eq!(sizes, [3 * CHUNK + 5, 1]);
    }
}
