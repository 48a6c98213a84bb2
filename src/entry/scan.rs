//! A fast look at one line: is it JSON, and what are the few fields the index needs?
//!
//! One pass over the bytes, no allocation, no recursion; checks the whole grammar, so that a torn line never becomes an
//! entry. Strings are skipped in words, long ones in blocks. Duplicate keys: the last one counts, as in JavaScript.

use std::borrow::Cow;

/// What a line showed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scan<'a> {
    pub(super) kind: Option<Text<'a>>,
    pub(super) id: Option<Text<'a>>,
    pub(super) parent: Option<Text<'a>>,
    pub(super) timestamp: Option<Text<'a>>,
    pub(super) message: Option<MessageScan<'a>>,
}

/// What the `message` object of a line showed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MessageScan<'a> {
    pub(super) role: Option<Text<'a>>,
    pub(super) stop_reason: Option<Text<'a>>,
    pub(super) has_text: bool,
}

/// A string of the line, still escaped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    raw: &'a [u8],
    escaped: bool,
}

impl<'a> Text<'a> {
    /// Returns the text; what cannot be decoded becomes U+FFFD.
    pub(super) fn decode(&self) -> Cow<'a, str> {
        if !self.escaped {
            return String::from_utf8_lossy(self.raw);
        }
        let quoted = format!("\"{}\"", String::from_utf8_lossy(self.raw));
        match super::json::parse(&quoted) {
            Some(serde_json::Value::String(text)) => Cow::Owned(text),
            _ => Cow::Borrowed(""),
        }
    }

    /// Compares with plain ASCII text that needs no escapes; an escaped spelling is decoded first.
    pub(super) fn is(&self, word: &str) -> bool {
        if self.escaped {
            self.decode() == word
        } else {
            self.raw == word.as_bytes()
        }
    }

    /// Whether nothing but white space is in it. Nearly always the first byte tells; only what is rare there is decoded.
    fn is_blank(&self) -> bool {
        let mut bytes = self.raw.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b' ' => {}
                b'\\' => match bytes.next() {
                    Some(b'n' | b't' | b'r' | b'f') => {}
                    Some(b'u') => return self.decode().trim().is_empty(),
                    _ => return false,
                },
                byte if byte.is_ascii_graphic() => return false,
                _ => return self.decode().trim().is_empty(),
            }
        }
        true
    }
}

/// Whether a line is a JSON value, and which.
#[derive(Debug)]
pub(super) enum Line<'a> {
    /// An object.
    Object(Scan<'a>),
    /// `null`, `false`, `0` or an empty string.
    Falsy,
    /// Any other JSON value.
    Other,
    /// Blank, or not JSON.
    None,
}

/// Scans one line (without its line feed).
pub(super) fn line(bytes: &[u8]) -> Line<'_> {
    let mut cursor = Cursor { bytes, pos: 0 };
    cursor.space();
    let parsed = match cursor.peek() {
        Some(b'{') => cursor.entry().map(Line::Object),
        Some(_) => cursor.other(),
        None => None,
    };
    cursor.space();
    match parsed {
        Some(line) if cursor.pos == bytes.len() => line,
        _ => Line::None,
    }
}

/// Returns the byte range of the value of a top-level key (the last one of that name), and the position right after
/// the opening brace.
pub(super) fn top_level(
    bytes: &[u8],
    key: &str,
) -> Option<(usize, Option<std::ops::Range<usize>>)> {
    let mut cursor = Cursor { bytes, pos: 0 };
    cursor.space();
    let mut found = None;
    let inside = cursor.pos + 1;
    cursor.object(|cursor, name| {
        let start = cursor.pos;
        cursor.skip()?;
        if name.is(key) {
            found = Some(start..cursor.pos);
        }
        Some(())
    })?;
    Some((inside, found))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.pos).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.pos += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.pos += 1)
    }

    fn entry(&mut self) -> Option<Scan<'a>> {
        let mut scan = Scan::default();
        self.object(|cursor, key| {
            match key.raw {
                b"type" => scan.kind = cursor.string_or_skip()?,
                b"id" => scan.id = cursor.string_or_skip()?,
                b"parentId" => scan.parent = cursor.string_or_skip()?,
                b"timestamp" => scan.timestamp = cursor.string_or_skip()?,
                b"message" if cursor.peek() == Some(b'{') => {
                    scan.message = Some(cursor.message()?);
                }
                b"message" => {
                    scan.message = None;
                    cursor.skip()?;
                }
                _ => cursor.skip()?,
            }
            Some(())
        })?;
        Some(scan)
    }

    fn message(&mut self) -> Option<MessageScan<'a>> {
        let mut scan = MessageScan::default();
        self.object(|cursor, key| {
            match key.raw {
                b"role" => scan.role = cursor.string_or_skip()?,
                b"stopReason" => scan.stop_reason = cursor.string_or_skip()?,
                b"content" => scan.has_text = cursor.content()?,
                _ => cursor.skip()?,
            }
            Some(())
        })?;
        Some(scan)
    }

    /// Reads `content`: whether it holds any text that is not blank.
    fn content(&mut self) -> Option<bool> {
        match self.peek()? {
            b'"' => Some(!self.string()?.is_blank()),
            b'[' => {
                self.pos += 1;
                let mut has_text = false;
                self.items(b']', |cursor| {
                    if cursor.peek()? == b'{' {
                        has_text |= cursor.block()?;
                        Some(())
                    } else {
                        cursor.skip()
                    }
                })?;
                Some(has_text)
            }
            _ => self.skip().map(|()| false),
        }
    }

    fn block(&mut self) -> Option<bool> {
        let (mut is_text, mut filled) = (false, false);
        self.object(|cursor, key| {
            match key.raw {
                b"type" => is_text = cursor.string_or_skip()?.is_some_and(|kind| kind.is("text")),
                b"text" => {
                    filled = cursor
                        .string_or_skip()?
                        .is_some_and(|text| !text.is_blank());
                }
                _ => cursor.skip()?,
            }
            Some(())
        })?;
        Some(is_text && filled)
    }

    /// Reads an object; `read` gets each key and must consume the value.
    fn object(&mut self, mut read: impl FnMut(&mut Self, Text<'a>) -> Option<()>) -> Option<()> {
        self.eat(b'{')?;
        self.items(b'}', |cursor| {
            let key = cursor.string()?;
            cursor.space();
            cursor.eat(b':')?;
            cursor.space();
            read(cursor, key)
        })
    }

    /// Reads comma-separated items up to `close`, which is consumed; the opening bracket is behind us.
    fn items(&mut self, close: u8, mut read: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.space();
        if self.eat(close).is_some() {
            return Some(());
        }
        loop {
            self.space();
            read(self)?;
            self.space();
            if self.eat(close).is_some() {
                return Some(());
            }
            self.eat(b',')?;
        }
    }

    fn string_or_skip(&mut self) -> Option<Option<Text<'a>>> {
        if self.peek() == Some(b'"') {
            return self.string().map(Some);
        }
        self.skip().map(|()| None)
    }

    /// Reads a string with its quotes.
    fn string(&mut self) -> Option<Text<'a>> {
        self.eat(b'"')?;
        let start = self.pos;
        let mut escaped = false;
        loop {
            self.pos += plain_run(self.bytes.get(self.pos..)?);
            match self.peek()? {
                b'"' => {
                    let raw = self.bytes.get(start..self.pos)?;
                    self.pos += 1;
                    return Some(Text { raw, escaped });
                }
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        match self.bytes.get(self.pos + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.pos += 2,
            b'u' => {
                let hex = self.bytes.get(self.pos + 2..self.pos + 6)?;
                if !hex.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                self.pos += 6;
            }
            _ => return None,
        }
        Some(())
    }

    /// Skips one value of any depth without recursion.
    fn skip(&mut self) -> Option<()> {
        let mut open: Vec<u8> = Vec::new();
        loop {
            // A value begins here.
            match self.peek()? {
                b'{' => {
                    self.pos += 1;
                    self.space();
                    if self.eat(b'}').is_none() {
                        open.push(b'}');
                        self.key()?;
                        continue;
                    }
                }
                b'[' => {
                    self.pos += 1;
                    self.space();
                    if self.eat(b']').is_none() {
                        open.push(b']');
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            // A value ended here: close what it completes.
            loop {
                let Some(close) = open.last().copied() else {
                    return Some(());
                };
                self.space();
                if self.eat(close).is_some() {
                    open.pop();
                    continue;
                }
                self.eat(b',')?;
                self.space();
                if close == b'}' {
                    self.key()?;
                }
                break;
            }
        }
    }

    fn key(&mut self) -> Option<()> {
        self.space();
        self.string()?;
        self.space();
        self.eat(b':')?;
        self.space();
        Some(())
    }

    fn scalar(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(|_| ()),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let rest = self.bytes.get(self.pos..)?;
        rest.starts_with(word.as_bytes())
            .then(|| self.pos += word.len())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.pos;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.pos += 1;
        }
        (self.pos > start).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        if self.peek() == Some(b'-') {
            self.pos += 1;
        }
        if self.peek()? == b'0' {
            self.pos += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.pos += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.pos += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.pos += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// Reads a value that is no object.
    fn other(&mut self) -> Option<Line<'a>> {
        let start = self.pos;
        self.skip()?;
        let raw = self.bytes.get(start..self.pos)?;
        let zero = || {
            let text = std::str::from_utf8(raw).ok()?;
            Some(text.parse::<f64>().ok()? == 0.0)
        };
        Some(match raw {
            b"null" | b"false" | b"\"\"" => Line::Falsy,
            _ if zero() == Some(true) => Line::Falsy,
            _ => Line::Other,
        })
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;
/// Bytes of a long string that are looked at together: the compiler makes vector instructions of it.
const BLOCK: usize = 64;

/// High bits of the zero bytes of a word. Bits above the lowest one may be wrong, the lowest never is.
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGH
}

/// High bits of the bytes of a word that mean something inside a string; only the lowest is sure.
fn special_in_word(word: u64) -> u64 {
    let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
    control | zero_bytes(word ^ (ONES * 0x22)) | zero_bytes(word ^ (ONES * 0x5c))
}

/// Whether a byte means something inside a string. Without short circuits, for the vectors.
fn is_special(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < 0x20)
}

/// Length of the run of bytes that mean nothing inside a string: no quote, no backslash, no control character. Keys and
/// ids are short, so words come first; text and output are long, so blocks follow.
fn plain_run(bytes: &[u8]) -> usize {
    let (head, tail) = bytes.split_at_checked(BLOCK / 2).unwrap_or((bytes, &[]));
    let run = run_in_words(head);
    if run < head.len() || tail.is_empty() {
        return run;
    }
    let (blocks, _) = tail.as_chunks::<BLOCK>();
    let is_plain = |block: &&[u8; BLOCK]| !block.iter().fold(false, |any, b| any | is_special(*b));
    let plain = blocks.iter().take_while(is_plain).count() * BLOCK;
    run + plain + run_in_words(tail.get(plain..).unwrap_or_default())
}

fn run_in_words(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let found = special_in_word(u64::from_le_bytes(*word));
        if found != 0 {
            return at * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let last = rest.iter().position(|byte| is_special(*byte));
    words.len() * 8 + last.unwrap_or(rest.len())
}

/// Returns where the first line feed is.
pub(super) fn find_line_feed(bytes: &[u8]) -> Option<usize> {
    memchr::memchr(b'\n', bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> String {
        match line(text.as_bytes()) {
            Line::Object(scan) => {
                let text =
                    |it: Option<Text<'_>>| it.map_or("-".into(), |it| it.decode().into_owned());
                let message = scan.message.unwrap_or_default();
                format!(
                    "{} {} {} {} {} {}",
                    text(scan.kind),
                    text(scan.id),
                    text(scan.parent),
                    text(message.role),
                    text(message.stop_reason),
                    message.has_text
                )
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn fields_are_found_in_any_order_and_the_last_duplicate_counts() {
        let line = r#"{ "id":"a","parentId":null,"id":"b", "message":{"content":[{"text":"x","type":"text"}],"role":"assistant","stopReason":"stop"},"type":"message"}"#;
        assert_eq!(shape(line), "message b - assistant stop true");
    }

    #[test]
    fn what_is_not_json_is_not_an_entry() {
        for bad in [
            "",
            "  ",
            "@@@",
            "{\"a\":1",
            "{\"a\":1}}",
            "{\"a\":01}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\t\"}",
            "{,}",
            "{\"a\":1,}",
            "[1,]",
            "{\"a\":tru}",
            "{\"a\" 1}",
            "\u{feff}{}",
            "{\"a\":\"\\ud8\"}",
            "-",
            "1.",
            "1e",
        ] {
            assert!(matches!(line(bad.as_bytes()), Line::None), "{bad:?}");
        }
    }

    #[test]
    fn falsy_values_differ_from_other_values() {
        for falsy in ["null", "false", "0", "-0", "0.0e3", "\"\"", " 0 "] {
            assert!(matches!(line(falsy.as_bytes()), Line::Falsy), "{falsy:?}");
        }
        for other in ["1", "true", "[]", "\"x\"", "[[{\"a\":[]}]]"] {
            assert!(matches!(line(other.as_bytes()), Line::Other), "{other:?}");
        }
    }

    #[test]
    fn a_million_levels_need_no_stack() {
        let deep = format!(
            "{{\"id\":\"a\",\"x\":{}{}}}",
            "[".repeat(1_000_000),
            "]".repeat(1_000_000)
        );
        assert_eq!(shape(&deep), "- a - - - false");
    }

    proptest::proptest! {
        #[test]
        fn words_find_what_single_bytes_find(bytes in proptest::collection::vec(proptest::prop_oneof![60 => 0x23u8..=0x5b, 4 => 0x5du8..=0xff, 1 => 0u8..=0xff], 0..400)) {
            let special = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < 0x20;
            proptest::prop_assert_eq!(plain_run(&bytes), bytes.iter().position(special).unwrap_or(bytes.len()));
            proptest::prop_assert_eq!(find_line_feed(&bytes), bytes.iter().position(|byte| *byte == b'\n'));
        }

        #[test]
        fn blank_is_what_trims_to_nothing(text in "[ \\n\\t\\r\u{b}\u{c}\u{8}\u{7f}\u{85}\u{a0}\u{3000}a\"\\\\/\u{e9}]{0,5}", escape in proptest::bool::ANY) {
            let mut quoted = serde_json::to_string(&text).unwrap();
            if escape {
                quoted = quoted.replace(' ', "\\u0020").replace('a', "\\u0061");
            }
            let mut cursor = Cursor { bytes: quoted.as_bytes(), pos: 0 };
            proptest::prop_assert_eq!(cursor.string().unwrap().is_blank(), text.trim().is_empty(), "{}", quoted);
        }

        #[test]
        fn agrees_with_serde_on_what_is_json(text in "[\\[\\]{}:,\"\\\\a1\\-.e \\u{e9}]{0,24}") {
            let ours = !matches!(line(text.as_bytes()), Line::None);
            let theirs = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            proptest::prop_assert_eq!(ours, theirs, "{}", text);
        }
    }
}
