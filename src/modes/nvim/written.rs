//! Which calls were carried out when: where in a session the result of each stands.
//!
//! Reading results means loading entries, so each is loaded once and only its call is kept.

use crate::entry::Role;
use crate::modes::nvim::json::at;
use crate::session::projection::{Entries as _, Pos};
use crate::session::store::Session;

/// Calls of one session in the order in which their results were stored.
#[derive(Debug, Default)]
pub(super) struct Calls {
    session: String,
    /// Positions that were looked at.
    known: usize,
    results: Vec<(Pos, String)>,
}

impl Calls {
    /// Takes in what was stored since the last time.
    pub(super) fn update(&mut self, session: &Session) {
        if self.session != session.id() || self.known > session.len() {
            *self = Self {
                session: session.id().to_owned(),
                ..Self::default()
            };
        }
        for pos in session.positions().skip(self.known) {
            let facts = session.facts(pos);
            if !facts.is_some_and(|facts| facts.is_message(Role::ToolResult)) {
                continue;
            }
            let entry = session.entry(pos).map(|entry| entry.value());
            let call = entry
                .as_ref()
                .and_then(|entry| at(entry, "/message/toolCallId").as_str());
            if let Some(call) = call {
                self.results.push((pos, call.to_owned()));
            }
        }
        self.known = session.len();
    }

    /// Whether a call was carried out after an entry was stored, on whatever branch: files do not belong to one. One whose
    /// result is not stored yet is the newest of all.
    pub(super) fn is_after(&self, call: &str, pos: Option<Pos>) -> bool {
        let stored = self.results.iter().rev().find(|(_, it)| it == call);
        match (stored, pos) {
            (Some((at, _)), Some(pos)) => *at > pos,
            (Some(_), None) | (None, _) => true,
        }
    }
}

/// The last message of the person: what stands behind it is the last run.
pub(super) fn last_prompt(session: &Session) -> Option<Pos> {
    let by_person = |pos: &Pos| {
        let facts = session.facts(*pos);
        facts.is_some_and(|facts| facts.is_message(Role::User))
    };
    session.positions().rev().find(by_person)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::store::Start;
    use serde_json::json;

    fn session(dir: &std::path::Path) -> Session {
        let lines = [
            json!({"type": "session", "version": 3, "id": "s1", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": dir}),
            json!({"type": "message", "id": "u1", "parentId": null, "timestamp": "2026-01-01T00:00:01.000Z",
                "message": {"role": "user", "content": "one", "timestamp": 1}}),
            json!({"type": "message", "id": "a1", "parentId": "u1", "timestamp": "2026-01-01T00:00:02.000Z",
                "message": {"role": "assistant", "content": [
                    {"type": "toolCall", "id": "c1", "name": "write", "arguments": {}},
                    {"type": "toolCall", "id": "c2", "name": "write", "arguments": {}}],
                    "stopReason": "toolUse", "timestamp": 2}}),
            json!({"type": "message", "id": "r1", "parentId": "a1", "timestamp": "2026-01-01T00:00:03.000Z",
                "message": {"role": "toolResult", "toolCallId": "c1", "toolName": "write", "content": [], "timestamp": 3}}),
            json!({"type": "message", "id": "r2", "parentId": "r1", "timestamp": "2026-01-01T00:00:04.000Z",
                "message": {"role": "toolResult", "toolCallId": "c2", "toolName": "write", "content": [], "timestamp": 4}}),
            json!({"type": "message", "id": "u2", "parentId": "r2", "timestamp": "2026-01-01T00:00:05.000Z",
                "message": {"role": "user", "content": "two", "timestamp": 5}}),
        ];
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let path = dir.join("s.jsonl");
        std::fs::write(&path, text).unwrap();
        Session::open(&path, dir, Start::default()).unwrap()
    }

    #[test]
    fn a_call_belongs_behind_the_entry_that_stands_before_its_result() {
        let dir = tempfile::tempdir().unwrap();
        let session = session(dir.path());
        let mut calls = Calls::default();
        calls.update(&session);
        calls.update(&session);
        let after = |id: &str, call: &str| calls.is_after(call, session.find(id));
        // The message that asks for both comes before either was carried out.
        assert!(after("a1", "c1") && after("a1", "c2"));
        assert!(!after("r1", "c1") && after("r1", "c2"));
        assert!(!after("u2", "c1") && !after("u2", "c2"));
        // Not stored yet: it runs now.
        assert!(after("u2", "c3"));
        assert!(calls.is_after("c1", None));
        assert_eq!(last_prompt(&session), session.find("u2"));
    }
}
