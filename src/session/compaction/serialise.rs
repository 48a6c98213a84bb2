//! A conversation as plain text, for a model that summarises it.

use crate::ai::{Block, Message};
use crate::entry::json;
use crate::session::projection::llm;

/// UTF-16 units of a tool result that are shown.
const RESULT_LIMIT: usize = 2000;

/// Returns the text of a conversation: thinking, pictures and system messages are left out, long tool results are cut.
pub fn conversation<'a>(messages: impl IntoIterator<Item = &'a Message>) -> String {
    let converted = llm::convert(messages);
    let parts: Vec<String> = converted.iter().flat_map(parts).collect();
    parts.join("\n\n")
}

fn parts(message: &Message) -> Vec<String> {
    match message {
        Message::User(message) => some("[User]: ", message.content.text("")),
        Message::Assistant(message) => {
            let texts: Vec<&str> = message.content.iter().filter_map(Block::as_text).collect();
            let mut parts = Vec::new();
            if !texts.is_empty() {
                parts.push(format!("[Assistant]: {}", texts.join("\n")));
            }
            let calls: Vec<String> = message
                .tool_calls()
                .map(|call| shown_call(&call.name, &call.arguments))
                .collect();
            if !calls.is_empty() {
                parts.push(format!("[Assistant tool calls]: {}", calls.join("; ")));
            }
            parts
        }
        Message::ToolResult(message) => {
            let texts: Vec<&str> = message.content.iter().filter_map(Block::as_text).collect();
            some("[Tool result]: ", texts.concat())
                .into_iter()
                .map(|part| cut_result(&part))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn some(tag: &str, text: String) -> Vec<String> {
    if text.is_empty() {
        Vec::new()
    } else {
        vec![format!("{tag}{text}")]
    }
}

fn shown_call(name: &str, arguments: &serde_json::Value) -> String {
    let fields = arguments.as_object().into_iter().flatten();
    let fields: Vec<String> = fields
        .map(|(key, value)| format!("{key}={}", json::stringify(value)))
        .collect();
    format!("{name}({})", fields.join(", "))
}

fn cut_result(part: &str) -> String {
    const TAG: &str = "[Tool result]: ";
    let text = part.strip_prefix(TAG).unwrap_or(part);
    let total = json::utf16_len(text);
    if total <= RESULT_LIMIT {
        return part.to_owned();
    }
    let mut units = 0;
    let fits = |c: &char| {
        units += c.len_utf16();
        units <= RESULT_LIMIT
    };
    let head: String = text.chars().take_while(fits).collect();
    format!(
        "{TAG}{head}\n\n[... {} more characters truncated]",
        total - RESULT_LIMIT
    )
}
