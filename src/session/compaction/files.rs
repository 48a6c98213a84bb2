//! Which files the summarised part read and changed.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::ai::Message;

/// Paths by what was done to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileOps {
    /// Read.
    pub read: BTreeSet<String>,
    /// Written as a whole.
    pub written: BTreeSet<String>,
    /// Edited.
    pub edited: BTreeSet<String>,
}

impl FileOps {
    /// Takes over the lists of an earlier summary.
    pub fn add_details(&mut self, details: &Value) {
        let list = |key: &str| {
            let items = details
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            items
                .filter_map(|path| path.as_str().map(str::to_owned))
                .collect::<Vec<_>>()
        };
        self.read.extend(list("readFiles"));
        self.edited.extend(list("modifiedFiles"));
    }

    /// Takes in the tool calls of an answer.
    pub fn add_calls(&mut self, message: &Message) {
        if let Message::Assistant(message) = message {
            for call in message.tool_calls() {
                self.add_call(&call.name, &call.arguments);
            }
        }
    }

    /// Takes in the calls that a tool made itself.
    pub fn add_nested_calls(&mut self, message: &Message) {
        let Message::ToolResult(message) = message else {
            return;
        };
        let calls = message
            .nested_calls
            .as_ref()
            .and_then(|nested| nested.get("calls")?.as_array());
        for call in calls.into_iter().flatten() {
            if let (Some(name), Some(arguments)) = (
                call.get("name").and_then(Value::as_str),
                call.get("arguments"),
            ) {
                self.add_call(name, arguments);
            }
        }
    }

    fn add_call(&mut self, name: &str, arguments: &Value) {
        let Some(path) = arguments.get("path").and_then(Value::as_str) else {
            return;
        };
        let set = match name {
            "read" => &mut self.read,
            "write" => &mut self.written,
            "edit" => &mut self.edited,
            _ => return,
        };
        set.insert(path.to_owned());
    }

    /// Returns what was only read and what was changed, both sorted by UTF-16 code units.
    pub fn lists(&self) -> FileLists {
        let modified: BTreeSet<&String> = self.edited.union(&self.written).collect();
        let read = self
            .read
            .iter()
            .filter(|path| !modified.contains(path))
            .cloned();
        FileLists {
            read: sorted(read.collect()),
            modified: sorted(modified.into_iter().cloned().collect()),
        }
    }
}

fn sorted(mut paths: Vec<String>) -> Vec<String> {
    paths.sort_by(|left, right| left.encode_utf16().cmp(right.encode_utf16()));
    paths
}

/// The file lists that go with a summary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLists {
    /// Only read.
    pub read: Vec<String>,
    /// Changed.
    pub modified: Vec<String>,
}

impl FileLists {
    /// Returns the text that is appended to a summary; empty without files.
    pub fn suffix(&self) -> String {
        let block = |tag: &str, paths: &[String]| match paths {
            [] => String::new(),
            paths => format!("\n\n<{tag}>\n{}\n</{tag}>", paths.join("\n")),
        };
        block("read-files", &self.read) + &block("modified-files", &self.modified)
    }

    /// Returns the lists as they are stored.
    pub fn details(&self) -> Value {
        json!({"readFiles": self.read, "modifiedFiles": self.modified})
    }
}
