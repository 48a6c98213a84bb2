//! What fuzzing runs: one function per target, any bytes in, a panic when something that must hold does not.
//!
//! `fuzz/` calls these with coverage guidance; the tests below call them with random bytes (`doc/fuzzing.md`).

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::bash::ansi::{Cleaner, clean};
use super::decode::StreamDecoder;
use super::edit::{Edit, plan};
use super::{image, paths, truncate};
use crate::agent::arguments::ArgumentCheck;
use crate::ai::ToolDeclaration;
use crate::workspace::{FileState, Origin};

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

/// Any JSON against the schemas of the tools: coercion never panics, and a second pass changes nothing.
pub fn arguments(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    let schemas = [
        json!({"type": "object", "required": ["path"], "properties": {
            "path": {"type": "string"}, "offset": {"type": "number"}, "flag": {"type": "boolean"},
            "edits": {"type": "array", "items": {"type": "object", "required": ["oldText"],
                "properties": {"oldText": {"type": "string"}, "n": {"type": ["integer", "null"]}}}}}}),
        json!({"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "string"}}, {"$ref": "#/$defs/o"}],
            "$defs": {"o": {"type": "object", "additionalProperties": {"type": "boolean"}}}}),
    ];
    let check = ArgumentCheck::default();
    for (index, schema) in schemas.into_iter().enumerate() {
        let mut name = String::new();
        // Writing to a string cannot fail.
        let _ = write!(name, "tool{index}");
        let declaration = ToolDeclaration {
            name,
            parameters: schema,
            ..ToolDeclaration::default()
        };
        if let Ok(once) = check.check(&declaration, value.clone(), &value) {
            let twice = check.check(&declaration, once.clone(), &value);
            assert_eq!(twice.ok().as_ref(), Some(&once));
        }
    }
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

/// Edits of any file: when every old text stands there exactly, the result is the plain replacement; whatever is
/// valid stays valid.
pub fn edit(data: &[u8]) {
    let mut input = Input(data);
    let n_edits = usize::from(input.byte() % 3) + 1;
    let mut edits = Vec::new();
    for _ in 0..n_edits {
        let (old, new) = (
            usize::from(input.byte() % 24),
            usize::from(input.byte() % 24),
        );
        edits.push(Edit {
            old_text: input.text(old),
            new_text: input.text(new),
        });
    }
    let base = FileState {
        bytes: input.0.into(),
        origin: Origin::Disk,
    };
    let Ok(planned) = plan("f", &edits, &base) else {
        return;
    };
    assert_ne!(planned.target, base.bytes);
    if let Some(details) = &planned.details {
        let _details = details(&base.bytes, &planned.target);
    }
    let Ok(text) = std::str::from_utf8(&base.bytes) else {
        return;
    };
    assert!(std::str::from_utf8(&planned.target).is_ok());
    let has_returns = text.contains('\r')
        || edits
            .iter()
            .any(|edit| edit.old_text.contains('\r') || edit.new_text.contains('\r'));
    if has_returns || text.starts_with('\u{feff}') {
        return;
    }
    let mut spans = Vec::new();
    for edit in &edits {
        let Some(at) = text.find(&edit.old_text) else {
            return;
        };
        spans.push((at, edit));
    }
    spans.sort_by_key(|(at, _)| *at);
    let (mut wanted, mut from) = (String::new(), 0);
    for (at, edit) in spans {
        wanted.push_str(text.get(from..at).unwrap_or_default());
        wanted.push_str(&edit.new_text);
        from = at + edit.old_text.len();
    }
    wanted.push_str(text.get(from..).unwrap_or_default());
    assert_eq!(String::from_utf8_lossy(&planned.target), wanted);
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
