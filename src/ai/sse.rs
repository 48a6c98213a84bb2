//! Server-sent events: bytes in, events out, the same for every wire API.
//!
//! Lines end with LF, CRLF or CR, also when a pair is split over two reads. Lines are split as bytes, so a UTF-8 sequence
//! may be split anywhere. Any split of the stream gives the same events (a property test holds that).

/// Most bytes of one line, and of one event: more is taken for an attack or a fault.
const MAX_BYTES: usize = 64 << 20;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Value of the last `event` field, empty when there was none.
    pub event: String,
    /// The `data` fields, joined by line feeds.
    pub data: String,
}

/// A line or event is longer than 64 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server sent an event of more than 64 MiB")]
pub struct TooLong;

/// Incremental parser.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    pending: SseEvent,
    has_data: bool,
    after_cr: bool,
    started: bool,
}

impl SseParser {
    /// Takes the next bytes and appends the events they complete to `out`.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<SseEvent>) -> Result<(), TooLong> {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (head, tail) = bytes.split_at(end);
            if self.line.is_empty() {
                self.end_line(head, out)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                self.end_line(&line, out)?;
                line.clear();
                self.line = line;
            }
            bytes = match tail {
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [b'\r', b'\n', rest @ ..] | [_, rest @ ..] => rest,
                [] => &[],
            };
        }
        if self.line.len() + bytes.len() > MAX_BYTES {
            return Err(TooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Ends the stream: a last event without its blank line counts.
    pub fn finish(&mut self) -> Option<SseEvent> {
        let mut out = Vec::new();
        let line = std::mem::take(&mut self.line);
        let ended = self.end_line(&line, &mut out);
        if ended.is_ok() {
            self.dispatch(&mut out);
        }
        out.pop()
    }

    fn end_line(&mut self, line: &[u8], out: &mut Vec<SseEvent>) -> Result<(), TooLong> {
        let line = if self.started {
            line
        } else {
            self.started = true;
            line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line)
        };
        if line.is_empty() {
            self.dispatch(out);
            return Ok(());
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = match colon {
            Some(at) => {
                let (field, rest) = line.split_at(at);
                let value = rest.strip_prefix(b":").unwrap_or(rest);
                (field, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.pending.data.push('\n');
                }
                self.has_data = true;
                if self.pending.data.len() + value.len() > MAX_BYTES {
                    return Err(TooLong);
                }
                self.pending.data.push_str(&String::from_utf8_lossy(value));
            }
            b"event" => self.pending.event = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, out: &mut Vec<SseEvent>) {
        let event = std::mem::take(&mut self.pending);
        if std::mem::take(&mut self.has_data) {
            out.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<SseEvent> {
        let mut parser = SseParser::default();
        let mut out = Vec::new();
        for piece in pieces {
            parser.push(piece, &mut out).unwrap();
        }
        out.extend(parser.finish());
        out
    }

    fn datas(text: &str) -> Vec<String> {
        events(&[text.as_bytes()])
            .into_iter()
            .map(|event| event.data)
            .collect()
    }

    #[test]
    fn framing_as_servers_do_it() {
        assert_eq!(datas("data: a\n\ndata:b\n\n"), ["a", "b"]);
        assert_eq!(datas("data: a\r\n\r\ndata: b\r\n"), ["a", "b"]);
        assert_eq!(datas("data: a\r\rdata: b"), ["a", "b"]);
        assert_eq!(
            datas(": ping\n\n:\n\ndata: a\ndata: b\nid: 1\nretry: 5\n\n"),
            ["a\nb"]
        );
        assert_eq!(datas("\u{feff}data: a\u{2028}b\n\n"), ["a\u{2028}b"]);
        assert_eq!(datas("data\n\ndata:  two\n\n"), ["", " two"]);
        assert_eq!(datas("event: only\n\n"), Vec::<String>::new());
    }

    #[test]
    fn the_event_name_belongs_to_its_event() {
        let found = events(&[b"event: x\ndata: 1\n\ndata: 2\n\n"]);
        let names: Vec<&str> = found.iter().map(|event| event.event.as_str()).collect();
        assert_eq!(names, ["x", ""]);
    }

    #[test]
    fn endless_lines_are_refused() {
        let mut parser = SseParser::default();
        let block = vec![b'x'; 1 << 20];
        let mut out = Vec::new();
        let ended = (0..70).find_map(|_| parser.push(&block, &mut out).err());
        assert_eq!(ended, Some(TooLong));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(
            lines in proptest::collection::vec("(data: ?|event: |: |)[a中🙂\u{2028} :]{0,6}(\n|\r|\r\n|\n\n|\r\r|\r\n\r\n)", 0..12),
            cuts in proptest::collection::vec(0usize..200, 0..6),
        ) {
            let text = lines.concat();
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            pieces.push(&bytes[from..]);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(events(&[bytes]), events(&pieces));
            prop_assert_eq!(events(&[bytes]), events(&single));
        }
    }
}
