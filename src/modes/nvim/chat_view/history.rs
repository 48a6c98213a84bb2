//! A stored branch, drawn at once: the newest entries first, the rest when a person asks for it.

use serde_json::Value as Json;

use super::tool::State;
use super::{Chat, Kind};
use crate::ai::{Block as Content, Message, ToolResultMessage};
use crate::modes::nvim::json::at;

/// Most lines of what is drawn at once.
const LINES: usize = 5_000;

/// Returns the part of a path to draw next: its last entries before `end`, at most about `most`, and where they begin.
/// `entry` loads one by its place in the path.
pub fn window(
    end: usize,
    most: usize,
    entry: impl Fn(usize) -> Option<Json>,
) -> (usize, Vec<Json>) {
    let mut first = end;
    let mut lines = 0;
    let mut shown = Vec::new();
    while first > 0 {
        let value = entry(first - 1).unwrap_or_default();
        lines += rough_lines(&value);
        // A result whose call stands above takes the call along.
        let full = shown.len() >= most || lines > LINES;
        if full && !shown.is_empty() && !is_result(shown.last()) {
            break;
        }
        shown.push(value);
        first -= 1;
    }
    shown.reverse();
    (first, shown)
}

impl Chat {
    /// Draws a branch anew: the newest part of its path, and how many entries stand above that.
    pub fn load(&mut self, entries: &[Json], earlier: usize) {
        self.clear();
        self.show(entries);
        self.earlier = earlier;
    }

    /// Draws entries above the first ones shown.
    pub fn prepend(&mut self, entries: &[Json], earlier: usize) {
        // The blocks below stay as they are: they may be newer than any list of entries.
        let mut before = Self::new(self.session.clone(), self.cwd.clone()).with_look(self.look);
        before.show(entries);
        before.earlier = earlier;
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
    }

    /// Draws one entry by itself.
    pub fn preview(&mut self, entry: &Json) {
        self.clear();
        self.stored(entry);
    }

    fn show(&mut self, entries: &[Json]) {
        for entry in entries {
            self.stored(entry);
        }
        self.interrupted();
    }

    fn stored(&mut self, entry: &Json) {
        let id = at(entry, "/id").as_str().unwrap_or_default();
        match at(entry, "/type").as_str() {
            Some("message") => {
                let message = Message::from_value(at(entry, "/message").clone());
                match &message {
                    Message::Assistant(assistant) => self.assistant(assistant, id, Some(id)),
                    Message::ToolResult(result) => self.result(result),
                    other => self.message(other, id, Some(id)),
                }
            }
            Some("custom_message") => {
                let text = crate::ai::Content::Text(String::new());
                let content = serde_json::from_value(at(entry, "/content").clone()).unwrap_or(text);
                if at(entry, "/display").as_bool() == Some(true) {
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
    entry.is_some_and(|entry| at(entry, "/message/role") == "toolResult")
}

/// About how many lines an entry takes; results are cut, so they count little.
fn rough_lines(entry: &Json) -> usize {
    let text = |content: &Json| match content {
        Json::String(text) => text.lines().count(),
        Json::Array(blocks) => blocks
            .iter()
            .filter_map(|block| {
                at(block, "/text")
                    .as_str()
                    .or_else(|| at(block, "/thinking").as_str())
            })
            .map(|text| text.lines().count())
            .sum(),
        _ => 0,
    };
    let lines = text(at(entry, "/message/content")) + 2;
    if is_result(Some(entry)) {
        lines.min(200)
    } else {
        lines
    }
}
