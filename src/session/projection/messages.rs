//! The messages of one entry, after a context edit.

use std::sync::Arc;

use serde_json::Value;

use crate::ai::{
    Block, BranchSummaryMessage, CompactionSummaryMessage, Content, CustomMessage, Message,
};
use crate::entry::{Body, Entry, Kind};

/// Returns the messages of an entry; `first` says whether it opens the context (only there a compaction counts).
pub(super) fn of_entry(
    entry: &Entry,
    first: bool,
    edit: Option<&Option<Content>>,
) -> Vec<Arc<Message>> {
    let messages = match edit {
        Some(None) => return Vec::new(),
        _ => unedited(entry, first),
    };
    let edited = messages.into_iter().map(|message| match edit {
        Some(Some(content)) => replace(message, content),
        _ => message,
    });
    edited.map(Arc::new).collect()
}

/// Returns the messages of an entry before edits.
pub(crate) fn unedited(entry: &Entry, first: bool) -> Vec<Message> {
    let timestamp = entry.facts().time_ms.unwrap_or(0);
    match entry.body() {
        Body::Message(message) => vec![message],
        Body::CustomMessage(custom) => vec![Message::Custom(CustomMessage {
            custom_type: custom.custom_type,
            content: custom.content,
            display: custom.display,
            details: custom.details,
            timestamp,
            ..CustomMessage::default()
        })],
        Body::BranchSummary(branch) if !branch.summary.is_empty() => {
            vec![Message::BranchSummary(BranchSummaryMessage {
                summary: branch.summary,
                from_id: branch.from_id,
                timestamp,
                ..BranchSummaryMessage::default()
            })]
        }
        Body::Compaction(compaction) if first => {
            let summary = Message::CompactionSummary(CompactionSummaryMessage {
                summary: compaction.summary,
                tokens_before: compaction.tokens_before,
                timestamp,
                ..CompactionSummaryMessage::default()
            });
            let system = compaction.system_message.map(Message::System);
            system.into_iter().chain([summary]).collect()
        }
        _ => Vec::new(),
    }
}

fn replace(mut message: Message, content: &Content) -> Message {
    match &mut message {
        Message::User(message) => message.content = content.clone(),
        Message::Custom(message) => message.content = content.clone(),
        Message::Assistant(message) => message.content = blocks(content),
        Message::ToolResult(message) => message.content = blocks(content),
        _ => {}
    }
    message
}

fn blocks(content: &Content) -> Vec<Block> {
    match content {
        Content::Text(text) => vec![Block::text(text.clone())],
        Content::Blocks(blocks) => blocks.clone(),
    }
}

/// Returns the messages of an entry as JSON. Messages of the file keep every field as it stands there; only missing
/// content is filled in and an edit applied.
pub(super) fn values_of(entry: &Entry, first: bool, edit: Option<&Option<Content>>) -> Vec<Value> {
    let typed = of_entry(entry, first, edit);
    if entry.facts().kind != Kind::Message {
        return typed.iter().map(|message| message.to_value()).collect();
    }
    let raw = entry.value().get_mut("message").map(Value::take);
    let with_content = |(message, mut raw): (&Arc<Message>, Value)| {
        let edited = matches!(edit, Some(Some(_)));
        let missing = raw.get("content").is_none_or(Value::is_null);
        let content = message.to_value().get_mut("content").map(Value::take);
        if let (true, Some(content), Some(fields)) =
            (edited || missing, content, raw.as_object_mut())
        {
            fields.insert("content".into(), content);
        }
        raw
    };
    typed.iter().zip(raw).map(with_content).collect()
}
