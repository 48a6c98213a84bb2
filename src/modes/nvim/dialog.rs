//! Dialogs of extensions, between the protocol they speak and the queue of things that wait for a person.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::face::{Answering, Request, notice};
use super::json::{at, put};
use super::requests::done;
use super::slot::Slot;
use crate::session::Command;

/// Makes an op of a record (`extension_ui_request`); `None` for what this face does not show.
pub(super) fn op(session: &str, name: Option<&str>, record: &Json) -> Option<Json> {
    let text = |key: &str| at(record, key).as_str().unwrap_or_default();
    match text("/method") {
        "notify" => {
            let level = match text("/notifyType") {
                "error" => "error",
                "warning" => "warn",
                _ => "info",
            };
            Some(notice(level, text("/message")))
        }
        "set_editor_text" => Some(json!({"op": "prompt.set_text", "session": session,
            "text": text("/text")})),
        kind @ ("select" | "confirm" | "input" | "editor") => {
            let mut op = json!({"op": "attention.dialog", "kind": kind, "session": session,
                "id": text("/id"), "title": text("/title")});
            for key in ["message", "options", "placeholder", "prefill", "timeout"] {
                let value = record.get(key).filter(|value| !value.is_null());
                if let Some(value) = value {
                    put(&mut op, key, value.clone());
                }
            }
            if let Some(name) = name {
                put(&mut op, "session_name", name.into());
            }
            Some(op)
        }
        _ => None,
    }
}

/// Takes the answer of a person (`dialog.answer`: `id`, `answer` with `value`, `confirmed` or `cancelled`).
pub(super) fn answer(slot: &Arc<Slot>, request: &Request) -> Answering {
    let Some(id) = request.text("id") else {
        return done(Err("dialog.answer: no id given".into()));
    };
    let mut record = json!({"type": "extension_ui_response", "id": id});
    for key in ["value", "confirmed", "cancelled"] {
        let value = at(&request.params, "/answer").get(key).cloned();
        if let Some(value) = value {
            put(&mut record, key, value);
        }
    }
    slot.command(Command::UiAnswer { record })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn a_dialog_is_a_question_and_everything_unknown_is_left_out() {
        let record = json!({"type": "extension_ui_request", "id": "u1", "method": "select", "title": "Which?",
            "options": ["a", "b"], "timeout": 5000});
        assert_eq!(
            op("s", Some("mine"), &record),
            Some(
                json!({"op": "attention.dialog", "kind": "select", "session": "s", "id": "u1", "title": "Which?",
                "options": ["a", "b"], "timeout": 5000, "session_name": "mine"})
            )
        );
        let record = json!({"method": "notify", "message": "hello", "notifyType": "warning"});
        assert_eq!(op("s", None, &record), Some(notice("warn", "hello")));
        assert_eq!(op("s", None, &json!({"method": "setWidget"})), None);
    }
}
