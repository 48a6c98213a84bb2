//! What a row of the tree says.

use serde_json::Value;

use crate::ai::{AssistantMessage, Content, Message, StopReason};
use crate::entry::{Body, Entry, Facts, Kind};
use crate::session::projection::{Entries, Pos};
use crate::session::store::Session;

/// Characters of a message that a row and a search look at.
const TEXT_LIMIT: usize = 200;
/// Characters of an error that a row shows.
const ERROR_LIMIT: usize = 80;
/// Characters of a command that a row shows.
const COMMAND_LIMIT: usize = 50;
/// How far up the call of a tool result is looked for.
const CALL_DISTANCE: usize = 200;

/// Returns the word for the kind of a row: the role of a message, else the type.
pub(super) fn kind(facts: &Facts, entry: Option<&Entry>) -> String {
    match (facts.kind, entry.map(Entry::body)) {
        (Kind::Message, Some(Body::Message(message))) => message.role().to_owned(),
        (Kind::Unknown, Some(Body::Unknown(value))) => value
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        _ => facts.kind.as_str().to_owned(),
    }
}

/// Returns the text of a row.
pub(super) fn of(session: &Session, pos: Pos, entry: &Entry) -> String {
    match entry.body() {
        Body::Message(Message::ToolResult(result)) => {
            let call = find_call(session, pos, &result.tool_call_id);
            let (name, arguments) = call.unwrap_or((result.tool_name, Value::Null));
            shown_call(&name, &arguments)
        }
        body => plain(body),
    }
}

/// Returns what a search looks at, in lower case.
pub(super) fn haystack(entry: &Entry) -> String {
    let kind = kind(entry.facts(), Some(entry));
    let text = match entry.body() {
        Body::Message(Message::BashExecution(bash)) => bash.command,
        body => plain(body),
    };
    format!("{kind} {}", head(&text, TEXT_LIMIT + 20)).to_lowercase()
}

fn plain(body: Body) -> String {
    match body {
        Body::Message(message) => message_text(message),
        Body::CustomMessage(custom) => {
            format!("[{}]: {}", custom.custom_type, content(&custom.content))
        }
        Body::Compaction(compaction) => format!(
            "[compaction: {}k tokens]",
            compaction.tokens_before.div_ceil(500) / 2
        ),
        Body::BranchSummary(branch) => {
            format!("[branch summary]: {}", line(&branch.summary, TEXT_LIMIT))
        }
        Body::ModelChange { model_id, .. } => format!("[model: {model_id}]"),
        Body::ThinkingLevelChange { level } => format!("[thinking: {level}]"),
        Body::ContextEdit {
            target,
            replacement,
        } => {
            let what = if replacement.is_some() {
                "replace"
            } else {
                "omit"
            };
            format!("[context {what}: {target}]")
        }
        Body::Label { label, .. } => format!(
            "[label: {}]",
            label
                .as_deref()
                .map_or_else(|| "(cleared)".into(), |label| line(label, TEXT_LIMIT))
        ),
        Body::SessionInfo { name } => format!(
            "[title: {}]",
            name.map_or_else(|| "(cleared)".into(), |name| line(&name, TEXT_LIMIT))
        ),
        Body::Custom { custom_type, .. } => format!("[custom: {custom_type}]"),
        Body::Usage { kind, .. } => format!("[usage: {kind}]"),
        Body::Unknown(value) => {
            let kind = value
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or("unknown");
            format!("[{}]", line(kind, COMMAND_LIMIT))
        }
    }
}

fn message_text(message: Message) -> String {
    match message {
        Message::User(message) => format!("user: {}", content(&message.content)),
        Message::Assistant(message) => format!("assistant: {}", answer(&message)),
        Message::ToolResult(result) => format!("[{}]", result.tool_name),
        Message::BashExecution(bash) => format!("[bash]: {}", line(&bash.command, TEXT_LIMIT)),
        Message::System(message) => {
            let tools = message.tools_added.map_or(0, |tools| tools.len());
            match tools {
                0 => "[system prompt]".to_owned(),
                tools => format!("[system prompt, {tools} tools]"),
            }
        }
        Message::Custom(custom) => {
            format!("[{}]: {}", custom.custom_type, content(&custom.content))
        }
        Message::BranchSummary(_) | Message::CompactionSummary(_) => "[summary]".to_owned(),
        Message::Unknown(value) => {
            let role = value
                .get("role")
                .and_then(Value::as_str)
                .unwrap_or("unknown");
            format!("[{}]", line(role, COMMAND_LIMIT))
        }
    }
}

fn answer(message: &AssistantMessage) -> String {
    let text = line(
        &Content::Blocks(message.content.clone()).text(" "),
        TEXT_LIMIT,
    );
    match message.stop_reason {
        _ if !text.is_empty() => text,
        StopReason::Aborted => "(aborted)".to_owned(),
        StopReason::Error => {
            let error = message.error_message.as_deref().unwrap_or("(error)");
            line(error, ERROR_LIMIT)
        }
        _ => "(no content)".to_owned(),
    }
}

fn content(content: &Content) -> String {
    line(&content.text(" "), TEXT_LIMIT)
}

/// Looks for the call that a result answers among the entries above it.
fn find_call(session: &Session, pos: Pos, id: &str) -> Option<(String, Value)> {
    let mut next = session.parent(pos);
    for _ in 0..CALL_DISTANCE {
        let at = next?;
        if session
            .facts(at)
            .is_some_and(|facts| facts.is_message(crate::entry::Role::Assistant))
            && let Some(Message::Assistant(message)) = session.entry(at)?.message()
            && let Some(call) = message.tool_calls().find(|call| call.id == id)
        {
            return Some((call.name.clone(), call.arguments.clone()));
        }
        next = session.parent(at);
    }
    None
}

fn shown_call(name: &str, arguments: &Value) -> String {
    let text = |key: &str| arguments.get(key).and_then(Value::as_str);
    let number = |key: &str| arguments.get(key).and_then(Value::as_u64);
    let shown = match (name, text("path")) {
        ("bash", _) => text("command").map(|command| line(command, COMMAND_LIMIT)),
        ("read", Some(path)) => Some(match (number("offset"), number("limit")) {
            (None, None) => path.to_owned(),
            (offset, None) => format!("{path}:{}-", offset.unwrap_or(1)),
            (offset, Some(limit)) => {
                let from = offset.unwrap_or(1);
                format!("{path}:{from}-{}", from + limit.saturating_sub(1))
            }
        }),
        ("grep", path) => {
            text("pattern").map(|pattern| format!("/{pattern}/ in {}", path.unwrap_or(".")))
        }
        ("find", path) => {
            text("pattern").map(|pattern| format!("{pattern} in {}", path.unwrap_or(".")))
        }
        (_, path) => path.map(str::to_owned),
    };
    match shown {
        Some(shown) => format!("[{name}: {}]", line(&shown, TEXT_LIMIT)),
        None => format!("[{name}]"),
    }
}

/// One line of at most so many characters; an ellipsis says that more follows.
fn line(text: &str, limit: usize) -> String {
    let flat: String = text
        .trim()
        .chars()
        .take(limit + 1)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if flat.chars().count() > limit {
        format!("{}...", head(&flat, limit))
    } else {
        flat
    }
}

fn head(text: &str, limit: usize) -> String {
    text.chars().take(limit).collect()
}
