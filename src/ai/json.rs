//! JSON as models stream it: halves of surrogate pairs, arguments that are not complete yet, arguments with small faults.
//!
//! Entry points: [`parse`] for any text from outside, [`final_args`] for the complete text of a tool call's arguments,
//! [`PartialArgs`] for a preview while they arrive. Nothing here fails on odd input except by saying so in its result.

use serde_json::{Map, Value};

/// First of 2048 private code points that stand for a lone surrogate while an event is on its way to a [`HalfJoiner`].
const HALF_BASE: u32 = 0x10_F800;
/// Containers nested deeper than this end a preview; the final parse has the same limit.
const MAX_DEPTH: usize = 120;

/// Parses JSON text; escapes of lone surrogates, which JavaScript writes and Rust strings cannot hold, are dropped.
pub fn parse(text: &str) -> serde_json::Result<Value> {
    match replace_halves(text, false) {
        Some(mended) => serde_json::from_str(&mended),
        None => serde_json::from_str(text),
    }
}

/// Like [`parse`], but a lone half stays in the strings as a private character for [`HalfJoiner`]. The flag says whether
/// there are any.
pub(crate) fn parse_keeping_halves(text: &str) -> serde_json::Result<(Value, bool)> {
    match replace_halves(text, true) {
        Some(mended) => Ok((serde_json::from_str(&mended)?, true)),
        None => Ok((serde_json::from_str(text)?, false)),
    }
}

/// Returns the text with every lone surrogate escape replaced; `None` when there is none (the usual case, no copy).
fn replace_halves(text: &str, keep: bool) -> Option<String> {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        let start = at + found;
        let Some(code) = escape_code(text, start) else {
            at = start + 2;
            continue;
        };
        let pair = (0xD800..0xDC00).contains(&code)
            && escape_code(text, start + 6).is_some_and(|low| (0xDC00..0xE000).contains(&low));
        if pair {
            at = start + 12;
        } else if (0xD800..0xE000).contains(&code) {
            out.push_str(text.get(copied..start).unwrap_or_default());
            if keep {
                out.extend(char::from_u32(HALF_BASE + u32::from(code) - 0xD800));
            }
            at = start + 6;
            copied = at;
        } else {
            at = start + 6;
        }
    }
    if copied == 0 {
        return None;
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Some(out)
}

/// Reads the code of a `\uXXXX` escape at `start`.
fn escape_code(text: &str, start: usize) -> Option<u16> {
    let escape = text.as_bytes().get(start..start + 6)?;
    let hex = escape.strip_prefix(b"\\u")?;
    hex.iter().try_fold(0, |code, byte| {
        let digit = char::from(*byte).to_digit(16)?;
        Some(code << 4 | u16::try_from(digit).ok()?)
    })
}

/// Joins the halves of a surrogate pair that a server sent in two deltas of one block.
#[derive(Clone, Debug, Default)]
pub(crate) struct HalfJoiner {
    high: Option<u32>,
}

impl HalfJoiner {
    /// Takes one delta (`halves`: as flagged by [`parse_keeping_halves`]) and returns what can be shown now.
    pub(crate) fn push(&mut self, delta: &str, halves: bool) -> String {
        if !halves && self.high.is_none() {
            return delta.to_owned();
        }
        let mut out = String::with_capacity(delta.len());
        for c in delta.chars() {
            let half = u32::from(c).checked_sub(HALF_BASE).filter(|_| halves);
            match (half, self.high) {
                (Some(half), _) if half < 0x400 => self.high = Some(half),
                (Some(half), Some(high)) => {
                    self.high = None;
                    out.extend(char::from_u32(0x1_0000 + (high << 10) + (half - 0x400)));
                }
                (Some(_), None) => {}
                (None, _) => {
                    self.high = None;
                    out.push(c);
                }
            }
        }
        out
    }
}

/// Removes the private characters of lone halves from a string that is complete.
pub(crate) fn drop_halves(text: &str) -> String {
    HalfJoiner::default().push(text, true)
}

/// Reads the complete argument text of a tool call. Blank text is an empty object; small faults (raw control characters
/// in strings, a backslash that escapes nothing) are mended. The error is the text for `argumentsError`.
pub fn final_args(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    let refuse = |why: String| Err(format!("{why}\n\nReceived arguments:\n{text}"));
    let parse = |text: &str| {
        let mut value = parse(text)?;
        whole_numbers(&mut value);
        Ok::<_, serde_json::Error>(value)
    };
    let first = match parse(text) {
        Ok(Value::Object(map)) => return Ok(map),
        Ok(_) => return refuse("the arguments are not a JSON object".to_owned()),
        Err(error) => error,
    };
    match parse(&repair(text)) {
        Ok(Value::Object(map)) => Ok(map),
        _ => refuse(format!("the arguments are not valid JSON: {first}")),
    }
}

/// Turns numbers without a fraction (`1e5`, `10.0`) into integers, as JavaScript would write them.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or(0.5);
            if float.fract() == 0.0 && float.abs() < 9e15 {
                *value = (float as i64).into();
            }
        }
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// Escapes raw control characters inside strings and doubles a backslash that begins no valid escape.
pub fn repair(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut in_string = false;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => in_string = !in_string,
            '\\' if in_string => {
                let next = text.get(at + 1..).and_then(|rest| rest.chars().next());
                let valid = match next {
                    Some('u') => escape_code(text, at).is_some(),
                    Some(c) => "\"\\/bfnrt".contains(c),
                    None => false,
                };
                if valid {
                    out.push('\\');
                    out.extend(chars.next().map(|(_, c)| c));
                } else {
                    out.push_str("\\\\");
                }
                continue;
            }
            c if in_string && u32::from(c) < 0x20 => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
                continue;
            }
            _ => {}
        }
        out.push(c);
    }
    out
}

/// Where an open container stands in its parent, or which member is being read.
#[derive(Clone, Debug, PartialEq)]
enum Seat {
    Key(String),
    Index(usize),
}

/// What the next character means.
#[derive(Clone, Debug, PartialEq)]
enum Mode {
    /// Before the root.
    Root,
    /// In an object, before a key or its end.
    Key,
    /// Inside a key.
    KeyText,
    /// Before a value.
    Value,
    /// Inside a string value.
    Text,
    /// Inside a number.
    Number,
    /// Inside `true`, `false` or `null`.
    Literal,
    /// Complete, or beyond understanding: the rest is ignored.
    Over,
}

/// A preview of tool arguments while their JSON text arrives. Work is linear in the text: nothing is parsed twice.
///
/// Shown are finished members, the part of a string that is there, and numbers and literals as soon as they read as such.
#[derive(Clone, Debug)]
pub struct PartialArgs {
    root: Value,
    open: Vec<Seat>,
    seat: Option<Seat>,
    mode: Mode,
    word: String,
    escape: String,
    high: Option<u16>,
}

impl Default for PartialArgs {
    fn default() -> Self {
        Self {
            root: Value::Object(Map::new()),
            open: Vec::new(),
            seat: None,
            mode: Mode::Root,
            word: String::new(),
            escape: String::new(),
            high: None,
        }
    }
}

impl PartialArgs {
    /// Takes the next piece of text.
    pub fn push(&mut self, piece: &str) {
        let mut run = String::new();
        for c in piece.chars() {
            if self.mode == Mode::Over {
                break;
            }
            if self.mode == Mode::Text {
                if self.string_char(c, &mut run) {
                    self.append(&run);
                    run.clear();
                    self.value_done();
                }
            } else {
                self.step(c);
            }
        }
        if !run.is_empty() {
            self.append(&run);
        }
        match self.mode {
            Mode::Number => self.show_number(),
            Mode::Literal => self.show_literal(),
            _ => {}
        }
    }

    /// Returns the arguments as far as they can be read; always an object.
    pub fn value(&self) -> &Value {
        &self.root
    }

    /// Handles one character outside of string values.
    fn step(&mut self, c: char) {
        match self.mode {
            Mode::Root => match c {
                '{' => self.mode = Mode::Key,
                c if c.is_whitespace() => {}
                _ => self.mode = Mode::Over,
            },
            Mode::Key => match c {
                '"' => {
                    self.word.clear();
                    self.mode = Mode::KeyText;
                }
                '}' => self.close(),
                c if c.is_whitespace() || c == ',' || c == ':' => {}
                _ => self.mode = Mode::Over,
            },
            Mode::KeyText => {
                let mut word = std::mem::take(&mut self.word);
                let done = self.string_char(c, &mut word);
                if done {
                    self.seat = Some(Seat::Key(word));
                    self.mode = Mode::Value;
                } else {
                    self.word = word;
                }
            }
            Mode::Value => self.begin_value(c),
            Mode::Number if c.is_ascii_digit() || "+-.eE".contains(c) => self.word.push(c),
            Mode::Literal if c.is_ascii_alphabetic() => self.word.push(c),
            Mode::Number | Mode::Literal => {
                if self.mode == Mode::Number {
                    self.show_number();
                } else {
                    self.show_literal();
                }
                self.value_done();
                self.step(c);
            }
            Mode::Text | Mode::Over => {}
        }
    }

    fn begin_value(&mut self, c: char) {
        match c {
            '"' => {
                self.set(Some(Value::String(String::new())));
                self.mode = Mode::Text;
            }
            '{' => self.descend(Value::Object(Map::new()), Mode::Key, None),
            '[' => self.descend(Value::Array(Vec::new()), Mode::Value, Some(Seat::Index(0))),
            ']' | '}' => self.close(),
            '-' | '0'..='9' => self.begin_word(c, Mode::Number),
            't' | 'f' | 'n' => self.begin_word(c, Mode::Literal),
            c if c.is_whitespace() || c == ',' || c == ':' => {}
            _ => self.mode = Mode::Over,
        }
    }

    fn begin_word(&mut self, c: char, mode: Mode) {
        self.word.clear();
        self.word.push(c);
        self.mode = mode;
    }

    fn descend(&mut self, container: Value, mode: Mode, seat: Option<Seat>) {
        if self.open.len() >= MAX_DEPTH {
            self.mode = Mode::Over;
            return;
        }
        self.set(Some(container));
        self.open.extend(self.seat.take());
        self.seat = seat;
        self.mode = mode;
    }

    /// Ends the innermost container.
    fn close(&mut self) {
        match self.open.pop() {
            Some(seat) => {
                self.seat = Some(seat);
                self.value_done();
            }
            None => self.mode = Mode::Over,
        }
    }

    /// Moves on to the next member of the innermost container.
    fn value_done(&mut self) {
        self.mode = match &mut self.seat {
            Some(Seat::Index(index)) => {
                *index += 1;
                Mode::Value
            }
            _ => Mode::Key,
        };
    }

    /// Takes a character of a string; true at its end. Escapes are held back until they are complete.
    fn string_char(&mut self, c: char, run: &mut String) -> bool {
        if self.escape.is_empty() {
            match c {
                '"' => {
                    self.high = None;
                    return true;
                }
                '\\' => self.escape.push(c),
                c => {
                    self.high = None;
                    run.push(c);
                }
            }
            return false;
        }
        if self.escape == "\\" {
            let plain = match c {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                '"' | '\\' | '/' => c,
                'u' => {
                    self.escape.push(c);
                    return false;
                }
                other => {
                    run.push('\\');
                    other
                }
            };
            self.high = None;
            run.push(plain);
            self.escape.clear();
            return false;
        }
        self.unicode_escape(c, run)
    }

    /// Takes a character of a `\uXXXX` escape; true when it ended the string instead.
    fn unicode_escape(&mut self, c: char, run: &mut String) -> bool {
        if !c.is_ascii_hexdigit() {
            run.push_str(&std::mem::take(&mut self.escape));
            return self.string_char(c, run);
        }
        self.escape.push(c);
        let Some(code) = escape_code(&self.escape, 0) else {
            return false;
        };
        self.escape.clear();
        match (self.high.take(), code) {
            (_, 0xD800..=0xDBFF) => self.high = Some(code),
            (Some(high), 0xDC00..=0xDFFF) => {
                run.extend(char::decode_utf16([high, code]).flatten());
            }
            (_, code) => run.extend(char::from_u32(u32::from(code))),
        }
        false
    }

    fn show_number(&mut self) {
        let word = self.word.trim_end_matches(['e', 'E', '+', '-']);
        let mut value = serde_json::from_str(word).ok();
        if let Some(value) = &mut value {
            whole_numbers(value);
        }
        self.set(value);
    }

    fn show_literal(&mut self) {
        let literals = [
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("null", Value::Null),
        ];
        let found = literals
            .into_iter()
            .find(|(text, _)| text.starts_with(self.word.as_str()));
        match found {
            Some((_, value)) => self.set(Some(value)),
            None => {
                self.set(None);
                self.mode = Mode::Over;
            }
        }
    }

    /// Returns the innermost open container.
    fn container(&mut self) -> Option<&mut Value> {
        self.open
            .iter()
            .try_fold(&mut self.root, |at, seat| match seat {
                Seat::Key(key) => at.get_mut(key.as_str()),
                Seat::Index(index) => at.get_mut(*index),
            })
    }

    /// Puts a value in the current seat, or takes it away.
    fn set(&mut self, value: Option<Value>) {
        let Some(seat) = self.seat.clone() else {
            return;
        };
        match (self.container(), seat) {
            (Some(Value::Object(map)), Seat::Key(key)) => match value {
                Some(value) => {
                    map.insert(key, value);
                }
                None => {
                    map.shift_remove(&key);
                }
            },
            (Some(Value::Array(list)), Seat::Index(index)) => {
                list.truncate(index);
                list.extend(value);
            }
            _ => {}
        }
    }

    /// Appends to the string in the current seat.
    fn append(&mut self, run: &str) {
        let Some(seat) = self.seat.clone() else {
            return;
        };
        let slot = self.container().and_then(|container| match seat {
            Seat::Key(key) => container.get_mut(key.as_str()),
            Seat::Index(index) => container.get_mut(index),
        });
        if let Some(Value::String(text)) = slot {
            text.push_str(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn lone_halves_are_dropped_and_pairs_stay() {
        let value = parse(r#"{"a":"x\ud83dy","b":"\ud83d\ude80","c":"\\ud83d"}"#).unwrap();
        assert_eq!(value, json!({"a": "xy", "b": "🚀", "c": "\\ud83d"}));
    }

    #[test]
    fn halves_of_two_events_join() {
        let mut joiner = HalfJoiner::default();
        let mut out = String::new();
        for text in [r#""a\ud83d""#, r#""\ude80b""#] {
            let (value, halves) = parse_keeping_halves(text).unwrap();
            out.push_str(&joiner.push(value.as_str().unwrap(), halves));
        }
        assert_eq!(out, "a🚀b");
    }

    fn preview(pieces: &[&str]) -> Value {
        let mut partial = PartialArgs::default();
        for piece in pieces {
            partial.push(piece);
        }
        partial.value().clone()
    }

    #[test]
    fn nested_values_end_where_they_end() {
        let text = r#"{"a":[{"b":1},[2,3.5],"x"],"c":{"d":null},"e":-15e-1}"#;
        let whole: Value = serde_json::from_str(text).unwrap();
        assert_eq!(preview(&[text]), whole);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_preview(text in "[{}\\[\\]\",:a-c0-9\\\\untrfl \\-.eé🚀]{0,60}", cut in 0usize..60) {
            let text = format!("{{\"k\":{text}");
            let cut = text.floor_char_boundary(cut.min(text.len()));
            let (left, right) = text.split_at(cut);
            prop_assert_eq!(preview(&[&text]), preview(&[left, right]));
        }

        #[test]
        fn complete_objects_preview_as_parsed(keys in proptest::collection::vec("[a-z\"\\\\\n🚀]{0,6}", 0..5)) {
            let map: Map<String, Value> = keys.iter().map(|k| (k.clone(), json!([k, 1.5, true, null, {"n": k}]))).collect();
            let text = serde_json::to_string(&map).unwrap();
            prop_assert_eq!(preview(&[&text]), Value::Object(map.clone()));
            prop_assert_eq!(final_args(&text).unwrap(), map);
        }
    }
}
