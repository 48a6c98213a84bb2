//! Token estimates: four UTF-16 units are one token, a picture is 1,200.

use serde_json::Value;

use crate::ai::{AssistantMessage, Block, Content, Message, StopReason, SystemMessage, Usage};
use crate::entry::json;

/// UTF-16 units that a picture counts.
const IMAGE_UNITS: usize = 4800;

/// Tokens of a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// All together.
    pub tokens: u64,
    /// The part that a model reported.
    pub usage_tokens: u64,
    /// The part that was estimated.
    pub trailing_tokens: u64,
    /// Index of the message whose usage was taken.
    pub last_usage_index: Option<usize>,
}

impl Estimate {
    pub(super) fn from_usage(index: usize, usage: u64, trailing: u64) -> Self {
        Self {
            tokens: usage + trailing,
            usage_tokens: usage,
            trailing_tokens: trailing,
            last_usage_index: Some(index),
        }
    }

    pub(super) fn without_usage(tokens: u64) -> Self {
        Self {
            tokens,
            trailing_tokens: tokens,
            ..Self::default()
        }
    }
}

/// Estimates a list of messages: the newest usage plus everything after it.
pub fn messages_tokens<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Estimate {
    let all: Vec<&Message> = messages.into_iter().collect();
    let found = all
        .iter()
        .enumerate()
        .rev()
        .find_map(|(at, message)| Some((at, usage_tokens(message)?)));
    let sum = |from: usize| -> u64 {
        all.iter()
            .skip(from)
            .map(|message| message_tokens(message))
            .sum()
    };
    match found {
        Some((at, usage)) => Estimate::from_usage(at, usage, sum(at + 1)),
        None => Estimate::without_usage(sum(0)),
    }
}

/// Returns the context size that an answer reported; `None` for failed answers and for usage that says nothing.
pub fn usage_tokens(message: &Message) -> Option<u64> {
    match message {
        Message::Assistant(message) => assistant_usage(message),
        _ => None,
    }
}

/// As [`usage_tokens`], for an answer.
pub fn assistant_usage(message: &AssistantMessage) -> Option<u64> {
    let failed = matches!(message.stop_reason, StopReason::Aborted | StopReason::Error);
    let tokens = context_tokens(&message.usage);
    (!failed && tokens > 0).then_some(tokens)
}

/// Returns the context size of a usage record.
pub fn context_tokens(usage: &Usage) -> u64 {
    match usage.total_tokens {
        0 => usage.input + usage.output + usage.cache_read + usage.cache_write,
        total => total,
    }
}

/// Estimates one message.
pub fn message_tokens(message: &Message) -> u64 {
    tokens(match message {
        Message::System(message) => system_units(message),
        Message::User(message) => content_units(&message.content),
        Message::Custom(message) => content_units(&message.content),
        Message::ToolResult(message) => blocks_units(&message.content),
        Message::Assistant(message) => message.content.iter().map(answer_units).sum(),
        Message::BashExecution(message) => {
            json::utf16_len(&message.command) + json::utf16_len(&message.output)
        }
        Message::BranchSummary(message) => json::utf16_len(&message.summary),
        Message::CompactionSummary(message) => json::utf16_len(&message.summary),
        Message::Unknown(_) => 0,
    })
}

/// Estimates a system message.
pub fn system_tokens(message: &SystemMessage) -> u64 {
    tokens(system_units(message))
}

fn tokens(units: usize) -> u64 {
    u64::try_from(units.div_ceil(4)).unwrap_or(u64::MAX)
}

fn system_units(message: &SystemMessage) -> usize {
    let sections = message.sections.iter().flatten();
    let sections: usize = sections
        .filter_map(|(_, text)| text.as_str())
        .map(json::utf16_len)
        .sum();
    let tools = message
        .tools_added
        .as_ref()
        .and_then(|tools| serde_json::to_value(tools).ok());
    content_units(&message.content) + sections + tools.as_ref().map_or(0, json_units)
}

fn json_units(value: &Value) -> usize {
    json::utf16_len(&json::stringify(value))
}

fn content_units(content: &Content) -> usize {
    match content {
        Content::Text(text) => json::utf16_len(text),
        Content::Blocks(blocks) => blocks_units(blocks),
    }
}

fn blocks_units(blocks: &[Block]) -> usize {
    let units = |block: &Block| match block {
        Block::Text(block) => json::utf16_len(&block.text),
        Block::Image(_) => IMAGE_UNITS,
        _ => 0,
    };
    blocks.iter().map(units).sum()
}

fn answer_units(block: &Block) -> usize {
    match block {
        Block::Text(block) => json::utf16_len(&block.text),
        Block::Thinking(block) => json::utf16_len(&block.thinking),
        Block::ToolCall(call) => json::utf16_len(&call.name) + json_units(&call.arguments),
        _ => 0,
    }
}
