//! Messages of a session turned into what providers take: system, user, assistant and tool results.

use std::sync::Arc;

use crate::ai::{BashExecutionMessage, Block, Content, Message, UserMessage};

/// First line before a compaction's summary. Our own words; not stored.
pub const COMPACTION_INTRO: &str =
    "Earlier messages of this conversation were replaced by the summary below; carry on from it:";
/// First line before a branch's summary. Our own words; not stored.
pub const BRANCH_INTRO: &str = "Another branch of this conversation was tried and left; the summary below tells what happened there:";

/// Converts messages; those the model does not see are dropped.
pub fn convert<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<Message> {
    messages.into_iter().filter_map(convert_one).collect()
}

/// As [`convert`], for one message; what is sent as it is stored is shared, not copied.
pub(super) fn shared(message: &Arc<Message>) -> Option<Arc<Message>> {
    match &**message {
        Message::System(_) | Message::User(_) | Message::Assistant(_) | Message::ToolResult(_) => {
            Some(Arc::clone(message))
        }
        other => convert_one(other).map(Arc::new),
    }
}

fn convert_one(message: &Message) -> Option<Message> {
    match message {
        Message::System(_) | Message::User(_) | Message::Assistant(_) | Message::ToolResult(_) => {
            Some(message.clone())
        }
        Message::Custom(custom) => {
            let content = match &custom.content {
                Content::Text(text) => vec![Block::text(text.clone())],
                Content::Blocks(blocks) => blocks.clone(),
            };
            Some(user(Content::Blocks(content), custom.timestamp))
        }
        Message::CompactionSummary(compaction) => {
            let text = format!(
                "{COMPACTION_INTRO}\n\n<summary>\n{}\n</summary>",
                compaction.summary
            );
            Some(text_message(text, compaction.timestamp))
        }
        Message::BranchSummary(branch) => {
            let text = format!("{BRANCH_INTRO}\n\n<summary>\n{}</summary>", branch.summary);
            Some(text_message(text, branch.timestamp))
        }
        Message::BashExecution(bash) if bash.exclude_from_context == Some(true) => None,
        Message::BashExecution(bash) => Some(text_message(bash_text(bash), bash.timestamp)),
        Message::Unknown(_) => None,
    }
}

fn user(content: Content, timestamp: i64) -> Message {
    Message::User(UserMessage {
        content,
        timestamp,
        ..UserMessage::default()
    })
}

fn text_message(text: String, timestamp: i64) -> Message {
    user(Content::Blocks(vec![Block::text(text)]), timestamp)
}

/// Returns what the model reads of a command that the person ran.
pub fn bash_text(bash: &BashExecutionMessage) -> String {
    let mut text = format!("Ran `{}`\n", bash.command);
    if bash.output.is_empty() {
        text.push_str("(no output)");
    } else {
        text.push_str(&format!("```\n{}\n```", bash.output));
    }
    if bash.cancelled {
        text.push_str("\n\n(command cancelled)");
    } else if let Some(code) = bash.exit_code.filter(|code| *code != 0) {
        text.push_str(&format!("\n\nCommand exited with code {code}"));
    }
    if let Some(path) = bash
        .full_output_path
        .as_ref()
        .filter(|path| bash.truncated && !path.is_empty())
    {
        text.push_str(&format!("\n\n[Output truncated. Full output: {path}]"));
    }
    text
}
