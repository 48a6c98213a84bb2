//! The built-in tools: recorded cases and behaviour under stress.

mod compare;
mod edit;
pub(crate) mod harness;
mod search;
mod stress;
mod trials;
mod write;

use serde_json::Value;

use crate::conformance::Outcome;
use harness::{Case, Ran, Setup};

/// `null` for a required text is an argument error here; the recorded program passes the word.
pub(crate) fn null_is_refused(case: &Case, ran: &[Ran], setup: &Setup) -> Option<Outcome> {
    if !case.name().ends_with("becomes the word null") {
        return None;
    }
    let keyword = if case.name().contains("newText") {
        "edits.0.newText"
    } else {
        let args = case.0["args"].as_object().unwrap();
        args.iter()
            .find(|(_, value)| value.is_null())
            .unwrap()
            .0
            .as_str()
    };
    let error = serde_json::json!({"class": "validation", "keywords": [keyword]});
    let refused = compare::check_error(&error, &ran[0], "null");
    Some(match refused {
        Ok(()) if setup.is_unchanged() => Outcome::Differs,
        Ok(()) => Outcome::Fail("files changed".to_owned()),
        Err(why) => Outcome::Fail(why),
    })
}

#[test]
fn read() {
    harness::suite("read.json", |case, ran, setup| {
        if case.name() == "image: truncated PNG is omitted" {
            return Some(omitted_in_our_words(&ran[0]));
        }
        null_is_refused(case, ran, setup)
    });
}

/// The first line is exact; the sentence in brackets is ours.
fn omitted_in_our_words(ran: &Ran) -> Outcome {
    let text = ran.text();
    let mut lines = text.lines();
    let first = lines.next() == Some("Read image file [image/png]");
    let second = lines
        .next()
        .is_some_and(|line| line.starts_with('[') && line.ends_with(']'));
    let only = lines.next().is_none() && ran.result["content"].as_array().map(Vec::len) == Some(1);
    if first && second && only && ran.result["isError"] == Value::Bool(false) {
        Outcome::Differs
    } else {
        Outcome::Fail(format!("{:?}", ran.result))
    }
}

#[test]
fn bash() {
    harness::suite("bash.json", null_is_refused);
}

#[test]
fn grep() {
    harness::suite("grep.json", null_is_refused);
}

#[test]
fn find() {
    harness::suite("find.json", null_is_refused);
}

#[test]
fn ls() {
    harness::suite("ls.json", null_is_refused);
}

/// Lone surrogates in arguments; the cases are shared by `edit` and `write`.
#[test]
fn surrogates() {
    harness::suite("surrogates.json", null_is_refused);
}
