use proptest::prelude::*;

use super::*;
use crate::review::hunks::{lines, spans};
use crate::tools::fuzz::patched;

fn base(bytes: &[u8]) -> FileState {
    FileState {
        bytes: bytes.into(),
        origin: Origin::Disk,
    }
}

fn edit(old: &str, new: &str) -> Edit {
    Edit {
        old_text: old.to_owned(),
        new_text: new.to_owned(),
    }
}

#[track_caller]
fn check_error(text: &str, edits: &[Edit], expect: &expect_test::Expect) {
    let error = plan("f.rs", edits, &base(text.as_bytes())).err().unwrap();
    expect.assert_eq(&error.message);
}

#[test]
fn errors_say_which_edit_why_and_what_next() {
    use expect_test::expect;
    check_error(
        "a\nb\n",
        &[edit("a", "1"), edit("zz", "2")],
        &expect![
            "edits[1].oldText for f.rs was not found. It must be the text of the file as it is now, with its exact white space and line breaks; read the file again and copy it from there. Nothing was changed: all edits of a call apply or none."
        ],
    );
    check_error(
        "fn a() {\n    x();\n}\n",
        &[edit("fn a() {\n  x();", "y")],
        &expect![
            "oldText for f.rs was not found (its first line is line 1, but the file differs at line 2). It must be the text of the file as it is now, with its exact white space and line breaks; read the file again and copy it from there."
        ],
    );
    check_error(
        "x\nx\n",
        &[edit("x", "y")],
        &expect![
            "oldText for f.rs occurs 2 times, at lines 1, 2; it must occur once. Add neighbouring lines to it until it is unique."
        ],
    );
    check_error(
        "abc\n",
        &[edit("ab", "x"), edit("bc", "y")],
        &expect![
            "edits[0] and edits[1] overlap in f.rs; merge them into one edit or make them smaller"
        ],
    );
    check_error(
        "a\n",
        &[edit("a", "a")],
        &expect![
            "the edits change nothing in f.rs: each newText is what the file already says. If that is what you want, there is nothing to do; else read the file again"
        ],
    );
    check_error(
        "a\n",
        &[edit("", "a")],
        &expect![
            "oldText for f.rs is empty; give the text to replace. To make a new file or rewrite a whole one, use write."
        ],
    );
}

#[test]
fn damaged_bytes_are_kept_or_the_edit_is_refused() {
    let bytes = b"caf\xE9 1\np=5  \n";
    let planned = plan("f", &[edit("p=5", "p=7")], &base(bytes)).unwrap();
    assert_eq!(&*planned.target, b"caf\xE9 1\np=7  \n");
    for old in ["caf\u{fffd} 1", "p=5\n"] {
        let error = plan("f", &[edit(old, "x")], &base(bytes)).err().unwrap();
        assert_eq!(error.class, ErrorClass::NotUtf8, "{old}");
    }
}

#[test]
fn blanks_that_are_not_there_are_nowhere() {
    for file in ["a\n", "a", "", "\n"] {
        let error = plan("f", &[edit("  ", "x")], &base(file.as_bytes())).err();
        assert_eq!(
            error.map(|error| error.class),
            Some(ErrorClass::NotFoundText),
            "{file:?}"
        );
    }
}

#[test]
fn half_characters_in_a_text_of_edits_do_not_spoil_it() {
    let text = r#"[{"oldText": "a", "newText": "\ud83d b"}]"#;
    let arguments = prepare(serde_json::json!({"path": "f", "edits": text}));
    assert_eq!(arguments["edits"][0]["oldText"], "a");
}

#[test]
fn each_edit_knows_its_lines() {
    let text = "1\n2\n3\n4\n5\n";
    let edits = [edit("4\n", ""), edit("2", "a\nb"), edit("5\n", "five\n")];
    let planned = plan("f", &edits, &base(text.as_bytes())).unwrap();
    assert_eq!(planned.edit_lines, [4..4, 1..3, 4..5]);
}

/// Lines of a file: each unique, so that its number names it.
fn file(count: usize, endings: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for number in 0..count {
        out.extend(format!("{{{number}}} some text é").into_bytes());
        match endings.get(number % endings.len().max(1)) {
            Some(0) => out.extend(b"\r\n"),
            _ => out.push(b'\n'),
        }
    }
    out
}

/// Edits of single lines, without overlap, in any order.
fn line_edits(count: usize) -> impl Strategy<Value = Vec<(usize, String)>> {
    let new = prop::sample::select(vec!["", "x", "x\ny", "$& $1 \\0", "é\n\nz", "x\r\ny"]);
    prop::collection::btree_map(0..count, new, 1..8).prop_map(|edits| {
        let mut edits: Vec<_> = edits
            .into_iter()
            .map(|(line, new)| (line, new.to_owned()))
            .collect();
        edits.reverse();
        edits
    })
}

/// What a reader of the spec would write: replace line by line, each with its own ending.
fn naive(file: &[u8], edits: &[(usize, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, line) in lines(file).into_iter().enumerate() {
        let Some((_, new)) = edits.iter().find(|(at, _)| *at == number) else {
            out.extend_from_slice(line);
            continue;
        };
        let ending: &[u8] = if line.ends_with(b"\r\n") {
            b"\r\n"
        } else {
            b"\n"
        };
        let plain = new.replace("\r\n", "\n");
        let parts: Vec<&[u8]> = plain.split('\n').map(str::as_bytes).collect();
        out.extend(parts.join(ending));
        out.extend_from_slice(ending);
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::testing::cases()))]

    #[test]
    fn edits_equal_the_naive_model(count in 1_usize..40, endings in prop::collection::vec(0_u8..2, 1..5), edits in line_edits(40)) {
        let file = file(count, &endings);
        let edits: Vec<_> = edits.into_iter().filter(|(line, _)| *line < count).collect();
        prop_assume!(!edits.is_empty());
        let call: Vec<Edit> = edits
            .iter()
            .map(|(line, new)| edit(&format!("{{{line}}} some text é"), new))
            .collect();
        let planned = plan("f", &call, &base(&file)).unwrap();
        prop_assert_eq!(&*planned.target, naive(&file, &edits));
        // Every hunk knows an edit it comes from.
        let (old, new) = (lines(&file), lines(&planned.target));
        for span in spans(&old, &new, 1) {
            let of = crate::review::hunks::edits_of(&span.new, &planned.edit_lines);
            prop_assert!(!of.is_empty(), "{span:?} {:?}", planned.edit_lines);
        }
    }

    #[test]
    fn untouched_bytes_never_change(before in prop::collection::vec(any::<u8>(), 0..60), after in prop::collection::vec(any::<u8>(), 0..60), new in "[a-z\\n]{0,6}") {
        // An anchor of plain text among arbitrary bytes, in a line of its own.
        let file = [before.as_slice(), b"\n<anchor>\n", &after].concat();
        let Ok(planned) = plan("f", &[edit("<anchor>", &new)], &base(&file)) else { return Ok(()); };
        prop_assert!(planned.target.starts_with(&before));
        prop_assert!(planned.target.ends_with(&after));
    }

    #[test]
    fn the_patch_gives_the_new_text(count in 1_usize..120, edits in line_edits(120)) {
        let file = file(count, &[1]);
        let edits: Vec<_> = edits.into_iter().filter(|(line, _)| *line < count).collect();
        prop_assume!(!edits.is_empty());
        let call: Vec<Edit> = edits
            .iter()
            .map(|(line, new)| edit(&format!("{{{line}}} some text é"), new))
            .collect();
        let planned = plan("f", &call, &base(&file)).unwrap();
        let make = planned.details.unwrap();
        let windowed = make(&file, &planned.target).unwrap();
        prop_assert_eq!(patched(&file, windowed["patch"].as_str().unwrap()), &*planned.target);
        // The way for texts that are not as planned gives the same patch here.
        let old = String::from_utf8(file.clone()).unwrap();
        let new = String::from_utf8(planned.target.to_vec()).unwrap();
        let any = difference::of_texts("f", &old, &new).unwrap();
        prop_assert_eq!(patched(&file, any["patch"].as_str().unwrap()), &*planned.target);
        prop_assert_eq!(&windowed["firstChangedLine"], &any["firstChangedLine"]);
    }
}
