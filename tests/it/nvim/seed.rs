//! Session files written for a test.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// A session file that grows entry by entry.
pub(super) struct Seed {
    lines: Vec<Value>,
    second: usize,
}

impl Seed {
    /// Begins one that says it ran in `cwd`.
    pub(super) fn new(id: &str, cwd: &Path) -> Self {
        let header = json!({"type": "session", "version": 3, "id": id,
            "timestamp": "2026-01-01T00:00:00.000Z", "cwd": cwd});
        Self {
            lines: vec![header],
            second: 0,
        }
    }

    /// Adds an entry with these fields.
    pub(super) fn entry(mut self, kind: &str, id: &str, parent: Option<&str>, more: Value) -> Self {
        self.second += 1;
        let (minute, second) = (self.second / 60 % 60, self.second % 60);
        let mut entry = json!({"type": kind, "id": id, "parentId": parent,
            "timestamp": format!("2026-01-01T00:{minute:02}:{second:02}.000Z")});
        for (key, value) in more.as_object().unwrap() {
            entry[key] = value.clone();
        }
        self.lines.push(entry);
        self
    }

    /// Adds a message of the person.
    pub(super) fn user(self, id: &str, parent: Option<&str>, text: &str) -> Self {
        let message = json!({"role": "user", "content": text, "timestamp": 1});
        self.entry("message", id, parent, json!({ "message": message }))
    }

    /// Adds an answer.
    pub(super) fn answer(self, id: &str, parent: &str, content: Value, cost: f64) -> Self {
        let usage = json!({"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": cost}});
        let message = json!({"role": "assistant", "content": content, "api": "openai-completions",
            "provider": "mock", "model": "m1", "stopReason": "stop", "timestamp": 1, "usage": usage});
        self.entry("message", id, Some(parent), json!({ "message": message }))
    }

    /// Adds an answer of one text.
    pub(super) fn says(self, id: &str, parent: &str, text: &str) -> Self {
        self.answer(id, parent, json!([{"type": "text", "text": text}]), 0.0)
    }

    /// Writes the file and returns where.
    pub(super) fn write(&self, path: &Path) -> PathBuf {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(path, text).unwrap();
        path.to_owned()
    }
}
