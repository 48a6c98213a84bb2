//! A stored branch, drawn at once: the newest entries first, the rest when a person asks for it.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::tool::State;
use super::{Chat, Kind};
use crate::ai::{Block as Content, Message, ToolResultMessage};

/// Entries drawn when a session is opened or more of it is asked for, and most lines they may take.
const ENTRIES: usize = 200;
const LINES: usize = 5_000;

/// Returns the entries from the root to `leaf`, oldest first. A missing parent ends the walk, as does a circle.
pub fn branch(entries: Vec<Json>, leaf: Option<&str>) -> Vec<Json> {
    let mut by_id: HashMap<String, Json> = HashMap::with_capacity(entries.len());
    for entry in entries {
        if let Some(id) = entry["id"].as_str() {
            by_id.insert(id.to_owned(), entry);
        }
    }
    let mut path = Vec::new();
    let mut next = leaf.map(str::to_owned);
    while let Some(entry) = next.take().and_then(|id| by_id.remove(&id)) {
        next = entry["parentId"].as_str().map(str::to_owned);
        path.push(entry);
    }
    path.reverse();
    path
}

impl Chat {
    /// Draws a branch anew. Of a long one only the newest part; the rest waits for [`Chat::load_earlier`].
    pub fn load(&mut self, path: Vec<Json>) {
        self.clear();
        self.show_tail(path);
    }

    /// Draws more of what came before. Returns whether there was more.
    pub fn load_earlier(&mut self) -> bool {
        if self.earlier.is_empty() {
            return false;
        }
        // The blocks below stay as they are: they may be newer than any list of entries.
        let earlier = std::mem::take(&mut self.earlier);
        let mut before = Self::new(self.session.clone(), self.cwd.clone());
        before.show_tail(earlier);
        before.blocks.append(&mut self.blocks);
        before.tools.extend(std::mem::take(&mut self.tools));
        before.stream = std::mem::take(&mut self.stream);
        before.index = before
            .blocks
            .iter()
            .enumerate()
            .map(|(at, block)| (block.id.clone(), at))
            .collect();
        *self = before;
        true
    }

    fn show_tail(&mut self, mut path: Vec<Json>) {
        let mut first = path.len().saturating_sub(ENTRIES);
        // A result whose call stands above the cut takes the call along.
        while first > 0 && is_result(path.get(first)) {
            first -= 1;
        }
        let mut lines = 0;
        for (at, entry) in path.iter().enumerate().skip(first).rev() {
            lines += rough_lines(entry);
            if lines > LINES && !is_result(Some(entry)) {
                first = at;
                break;
            }
        }
        let shown = path.split_off(first);
        self.earlier = path;
        for entry in &shown {
            self.stored(entry);
        }
        self.interrupted();
    }

    fn stored(&mut self, entry: &Json) {
        let id = entry["id"].as_str().unwrap_or_default();
        match entry["type"].as_str() {
            Some("message") => {
                let message = Message::from_value(entry["message"].clone());
                match &message {
                    Message::Assistant(assistant) => self.assistant(assistant, id, Some(id)),
                    Message::ToolResult(result) => self.result(result),
                    other => self.message(other, id, Some(id)),
                }
            }
            Some("custom_message") => {
                let text = crate::ai::Content::Text(String::new());
                let content = serde_json::from_value(entry["content"].clone()).unwrap_or(text);
                if entry["display"].as_bool() == Some(true) {
                    self.note(Kind::Note, content.text("\n").trim());
                }
            }
            _ => self.entry(entry),
        }
    }

    fn result(&mut self, result: &ToolResultMessage) {
        let texts = result.content.iter().filter_map(Content::as_text);
        let text = texts.collect::<Vec<_>>().join("\n");
        let block = format!("call:{}", result.tool_call_id);
        self.tool(&result.tool_call_id, |tool| {
            if tool.name.is_empty() {
                tool.name.clone_from(&result.tool_name);
            }
            tool.took_ms = result.duration_ms;
            tool.finish(text, result.details.clone(), result.is_error);
        });
        let closed = self
            .tools
            .get(&result.tool_call_id)
            .is_some_and(|tool| tool.state != State::Fail);
        self.edit(&block, |block| block.closed = closed);
    }

    /// Calls without a result in a stored branch do not run any more.
    fn interrupted(&mut self) {
        let open: Vec<String> = self
            .tools
            .iter()
            .filter(|(_, tool)| !tool.state.is_final())
            .map(|(id, _)| id.clone())
            .collect();
        for id in open {
            self.tool(&id, |tool| tool.state = State::Aborted);
        }
    }
}

fn is_result(entry: Option<&Json>) -> bool {
    entry.is_some_and(|entry| entry["message"]["role"] == "toolResult")
}

/// About how many lines an entry takes; results are cut, so they count little.
fn rough_lines(entry: &Json) -> usize {
    let text = |content: &Json| match content {
        Json::String(text) => text.lines().count(),
        Json::Array(blocks) => blocks
            .iter()
            .filter_map(|block| {
                block["text"]
                    .as_str()
                    .or_else(|| block["thinking"].as_str())
            })
            .map(|text| text.lines().count())
            .sum(),
        _ => 0,
    };
    let lines = text(&entry["message"]["content"]) + 2;
    if is_result(Some(entry)) {
        lines.min(200)
    } else {
        lines
    }
}
