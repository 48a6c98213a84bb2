//! What fuzzing runs: one function per target, any bytes in, a panic when something that must hold does not.
//!
//! `fuzz/` calls these with coverage guidance; the tests below call them with random bytes (`doc/fuzzing.md`).

use std::sync::LazyLock;

use serde_json::{Value, json};

mod change;

use super::bash::ansi::{Cleaner, clean};
use super::decode::StreamDecoder;
use super::{
    bash, declare, edit as edit_tool, find, grep, image, ls, paths, read, truncate, write,
};
use crate::agent::ToolError;
use crate::agent::arguments::ArgumentCheck;
use crate::ai::ToolDeclaration;
use crate::ai::json::final_args;

pub use change::edit;
#[cfg(test)]
pub(super) use change::patched;

/// Takes pieces off the input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (piece, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        piece
    }

    fn text(&mut self, length: usize) -> String {
        String::from_utf8_lossy(self.bytes(length)).into_owned()
    }
}

/// Cutting from both ends keeps the limits and only ever gives a part of the text.
pub fn truncation(data: &[u8]) {
    let mut input = Input(data);
    let (max_lines, max_bytes) = (usize::from(input.byte()) + 1, usize::from(input.byte()) + 1);
    let text = input.text(usize::MAX);
    let head = truncate::head(&text, max_lines, max_bytes);
    let tail = truncate::tail(&text, max_lines, max_bytes);
    for cut in [&head, &tail] {
        assert!(text.contains(&cut.content));
        assert_eq!(cut.output_bytes, cut.content.len());
        assert!(!cut.truncated() || cut.output_bytes <= max_bytes && cut.output_lines <= max_lines);
        assert_eq!(cut.total_lines, text.lines_as_counted());
    }
    assert!(text.starts_with(&head.content));
    for line in text.split('\n') {
        let (cut, was_cut) = truncate::cut_line(line);
        assert_eq!(
            was_cut,
            line.encode_utf16().count() > truncate::MAX_LINE_UNITS
        );
        assert!(was_cut || cut == line);
    }
}

trait Counted {
    fn lines_as_counted(&self) -> usize;
}

impl Counted for String {
    fn lines_as_counted(&self) -> usize {
        let pieces = self.split('\n').count();
        pieces - usize::from(self.is_empty() || self.ends_with('\n'))
    }
}

/// What a provider sent as arguments, from the text to what each tool gets: nothing panics, text that is a JSON object
/// stays what it says, coercion is done once and for all, and what passed the schema can be decoded.
pub fn arguments(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(map) = final_args(&text) else {
        // Text without escapes that is an object must not be refused.
        let strict = serde_json::from_str::<Value>(&text);
        assert!(text.contains('\\') || !strict.is_ok_and(|value| value.is_object()));
        return;
    };
    let value = Value::Object(map);
    for tool in tools() {
        let prepared = match tool.name {
            "edit" => edit_tool::prepare(value.clone()),
            _ => value.clone(),
        };
        if let Some(accepted) = coerced_once(tool.name, tool.schema, prepared) {
            (tool.decode)(accepted).unwrap_or_else(|error| unreadable(tool.name, &error));
        }
    }
    for (name, schema) in [("nested", NESTED), ("either", EITHER)] {
        coerced_once(name, schema, value.clone());
    }
}

#[expect(
    clippy::panic,
    reason = "how a fuzz target says that something is wrong"
)]
fn unreadable(tool: &str, error: &ToolError) {
    panic!("{tool} cannot read what its schema let through: {error}");
}

/// Returns what the schema accepts; a second pass must change nothing.
fn coerced_once(name: &str, schema: &str, value: Value) -> Option<Value> {
    // Schemas are compiled once, or little else would be done.
    static CHECK: LazyLock<ArgumentCheck> = LazyLock::new(ArgumentCheck::default);
    let declaration = ToolDeclaration {
        name: name.to_owned(),
        parameters: serde_json::from_str(schema).unwrap_or_else(|_| json!({})),
        ..ToolDeclaration::default()
    };
    let once = CHECK.check(&declaration, value.clone(), &value).ok()?;
    let twice = CHECK.check(&declaration, once.clone(), &value);
    assert_eq!(twice.ok().as_ref(), Some(&once));
    Some(once)
}

/// Schemas as extensions may have them.
const NESTED: &str = r#"{"type": "object", "required": ["path"], "properties": {
    "path": {"type": "string"}, "offset": {"type": "number"}, "flag": {"type": "boolean"},
    "edits": {"type": "array", "items": {"type": "object", "required": ["oldText"],
        "properties": {"oldText": {"type": "string"}, "n": {"type": ["integer", "null"]}}}}}}"#;
const EITHER: &str = r##"{"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "string"}}, {"$ref": "#/$defs/o"}],
    "$defs": {"o": {"type": "object", "additionalProperties": {"type": "boolean"}}}}"##;

/// A tool's schema and how it reads its arguments.
struct Reader {
    name: &'static str,
    schema: &'static str,
    decode: fn(Value) -> Result<(), ToolError>,
}

fn tools() -> [Reader; 7] {
    fn reads<T: serde::de::DeserializeOwned>(value: Value) -> Result<(), ToolError> {
        declare::decode::<T>("fuzz", value).map(drop)
    }
    let reader = |name, schema, decode| Reader {
        name,
        schema,
        decode,
    };
    [
        reader("read", read::SCHEMA, reads::<read::Input>),
        reader("bash", bash::SCHEMA, reads::<bash::Input>),
        reader("edit", edit_tool::SCHEMA, reads::<edit_tool::Input>),
        reader("write", write::SCHEMA, reads::<write::Input>),
        reader("grep", grep::SCHEMA, reads::<grep::Input>),
        reader("find", find::SCHEMA, reads::<find::Input>),
        reader("ls", ls::SCHEMA, reads::<ls::Input>),
    ]
}

/// Path arguments always give an absolute path without dots, or an error.
pub fn path_arguments(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (cwd, home) = (std::path::Path::new("/w/d"), std::path::Path::new("/h"));
    if let Ok(path) = paths::resolve(&text, cwd, home) {
        assert!(path.is_absolute());
        assert!(path.components().all(|part| !matches!(
            part,
            std::path::Component::CurDir | std::path::Component::ParentDir
        )));
    }
}

/// Output cut into any pieces decodes and cleans as the whole; no control character stays.
pub fn output(data: &[u8]) {
    let mut input = Input(data);
    let size = usize::from(input.byte()) + 1;
    let whole = String::from_utf8_lossy(input.0).into_owned();
    let mut decoder = StreamDecoder::default();
    let (mut text, mut tidy) = (String::new(), String::new());
    let mut cleaner = Cleaner::default();
    for piece in input.0.chunks(size) {
        let mut fresh = String::new();
        decoder.feed(piece, &mut fresh);
        cleaner.feed(&fresh, &mut tidy);
        text.push_str(&fresh);
    }
    let mut fresh = String::new();
    decoder.finish(&mut fresh);
    cleaner.feed(&fresh, &mut tidy);
    cleaner.finish(&mut tidy);
    text.push_str(&fresh);
    assert_eq!(text, whole);
    for text in [tidy, clean(&whole)] {
        assert!(text.chars().all(|c| c >= ' ' || c == '\n' || c == '\t'));
    }
}

/// Pictures from anywhere are looked at without a panic.
pub fn picture(data: &[u8]) {
    if let Some(kind) = image::sniff(data) {
        let _picture = image::prepare(kind, data.to_vec(), &image::Profile::default());
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Bytes that meet each other often enough to match.
    fn few() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => prop::sample::select(b"ab \n".as_slice()),
            1 => prop::sample::select(b"\r\t'\"\xc3\xa9\xe2\x80\x99\x1b[m".as_slice()),
            1 => any::<u8>(),
        ];
        vec(byte, 0..120)
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i32>().prop_map(Into::into),
            prop::sample::select(vec!["", "1", "true", "x", "0x1f", "null"]).prop_map(Into::into),
        ];
        let key = prop::sample::select(vec!["path", "offset", "flag", "edits", "oldText", "n"]);
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Into::into),
                vec((key.clone().prop_map(str::to_owned), inner), 0..5)
                    .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn fuzz_truncation(data in few()) {
            super::truncation(&data);
        }

        #[test]
        fn fuzz_output(data in few()) {
            super::output(&data);
        }

        #[test]
        fn fuzz_path_arguments(data in few()) {
            super::path_arguments(&data);
        }

        #[test]
        fn fuzz_edit(data in few()) {
            super::edit(&data);
        }

        #[test]
        fn fuzz_arguments(value in any_json()) {
            super::arguments(value.to_string().as_bytes());
        }
    }
}
