//! How large a context is, how long an answer may be, how much of it may be thinking.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::message::{Block, Content, Message, StopReason, ToolDeclaration};
use super::model::{Model, ThinkingLevel};

/// Characters that a picture counts as.
const IMAGE_CHARS: usize = 4800;
/// Tokens that an answer keeps beside its thinking.
pub const ANSWER_TOKENS: u64 = 1024;

/// Estimates tokens from UTF-16 units.
pub fn tokens_of_chars(chars: usize) -> u64 {
    (chars * 2).div_ceil(7) as u64
}

fn utf16_len(text: &str) -> usize {
    text.encode_utf16().count()
}

fn block_chars(block: &Block) -> usize {
    match block {
        Block::Text(text) => utf16_len(&text.text),
        Block::Thinking(thinking) => utf16_len(&thinking.thinking),
        Block::Image(_) => IMAGE_CHARS,
        Block::ToolCall(call) => utf16_len(&call.name) + utf16_len(&call.arguments.to_string()),
        Block::Unknown(_) => 0,
    }
}

fn content_chars(content: &Content) -> usize {
    match content {
        Content::Text(text) => utf16_len(text),
        Content::Blocks(blocks) => blocks.iter().map(block_chars).sum(),
    }
}

/// Estimates the tokens of one message.
pub fn message_tokens(message: &Message) -> u64 {
    let chars = match message {
        Message::System(system) => {
            let sections = system.sections.iter().flat_map(Map::values);
            content_chars(&system.content)
                + sections
                    .filter_map(Value::as_str)
                    .map(utf16_len)
                    .sum::<usize>()
        }
        Message::User(user) => content_chars(&user.content),
        Message::Assistant(answer) => answer.content.iter().map(block_chars).sum(),
        Message::ToolResult(result) => result.content.iter().map(block_chars).sum(),
        _ => 0,
    };
    tokens_of_chars(chars)
}

/// Estimates the tokens of a request. The last usable answer's own count replaces everything before it.
pub fn context_tokens(messages: &[Arc<Message>], tools: &[ToolDeclaration]) -> u64 {
    let counted = messages
        .iter()
        .enumerate()
        .rev()
        .find_map(|(at, message)| match &**message {
            Message::Assistant(answer) => {
                let usable = !matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted);
                let tokens = answer.usage.total_tokens;
                let newer = messages
                    .iter()
                    .take(at)
                    .all(|m| m.timestamp() <= answer.timestamp);
                (usable && tokens > 0 && newer).then_some((at, tokens))
            }
            _ => None,
        });
    if let Some((at, tokens)) = counted {
        return tokens
            + messages
                .iter()
                .skip(at + 1)
                .map(|message| message_tokens(message))
                .sum::<u64>();
    }
    let declared = if tools.is_empty() {
        0
    } else {
        serde_json::to_string(tools).map_or(0, |text| utf16_len(&text))
    };
    let all = messages.iter().map(|message| message_tokens(message));
    all.sum::<u64>() + tokens_of_chars(declared)
}

/// Returns the output limit to send, so that prompt and answer fit the window.
pub fn max_tokens(window: u64, cap: u64, estimate: u64) -> u64 {
    if window == 0 {
        return cap;
    }
    let (window, estimate) = (window as i64, estimate as i64);
    let margin = (estimate * 15 + 99).div_euclid(100).max(4096);
    let mut room = window - estimate - margin;
    if room < 32768 {
        room = 32768.min(window - estimate - 4096);
    }
    cap.min(room.max(1).unsigned_abs())
}

/// Returns the thinking budget of a level, 0 for off; `custom` is the settings' `thinkingBudgets`.
pub fn level_budget(level: ThinkingLevel, custom: Option<&Map<String, Value>>) -> u64 {
    let (name, plain) = match level {
        ThinkingLevel::Off => return 0,
        ThinkingLevel::Minimal => ("minimal", 1024),
        ThinkingLevel::Low => ("low", 2048),
        ThinkingLevel::Medium => ("medium", 8192),
        ThinkingLevel::High | ThinkingLevel::XHigh | ThinkingLevel::Max => ("high", 16384),
    };
    custom
        .and_then(|map| map.get(name))
        .and_then(Value::as_u64)
        .unwrap_or(plain)
}

/// Returns output limit and thinking budget for an API that counts thinking as output: `limit` is the caller's own.
pub fn thinking_room(model_max: u64, limit: Option<u64>, budget: u64) -> (u64, u64) {
    let max = limit.map_or(model_max, |limit| (limit + budget).min(model_max));
    let budget = if max <= budget {
        max.saturating_sub(ANSWER_TOKENS)
    } else {
        budget
    };
    (max, budget)
}

impl Model {
    /// Returns whether the model has this thinking level.
    pub fn supports_level(&self, level: ThinkingLevel) -> bool {
        if !self.reasoning {
            return level == ThinkingLevel::Off;
        }
        match self
            .thinking_level_map
            .as_ref()
            .and_then(|map| map.get(level.as_str()))
        {
            Some(Value::Null) => false,
            Some(_) => true,
            None => !matches!(level, ThinkingLevel::XHigh | ThinkingLevel::Max),
        }
    }

    /// Returns the levels the model has, least first.
    pub fn supported_levels(&self) -> Vec<ThinkingLevel> {
        ThinkingLevel::ALL
            .into_iter()
            .filter(|level| self.supports_level(*level))
            .collect()
    }

    /// Returns the nearest level the model has: upwards first, then downwards.
    pub fn clamp_level(&self, level: ThinkingLevel) -> ThinkingLevel {
        let supported = self.supported_levels();
        let above = supported.iter().find(|have| **have >= level);
        above
            .or_else(|| supported.last())
            .copied()
            .unwrap_or_default()
    }

    /// Returns the provider's word for a level: `Some(None)` when the map says the model does not have it.
    pub fn level_word(&self, level: ThinkingLevel) -> Option<Option<&str>> {
        let mapped = self.thinking_level_map.as_ref()?.get(level.as_str())?;
        Some(mapped.as_str())
    }
}
