//! A conversation made ready for one model: system messages folded, foreign parts dropped, calls and results paired.
//!
//! The steps are the same for every wire API; only the rule for ids of tool calls differs, so it is an argument.

pub mod system;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::message::{
    AssistantMessage, Block, Content, Message, StopReason, TextBlock, ToolResultMessage,
};
use super::model::Model;

const IMAGE_OMITTED: &str = "(image omitted: model does not support images)";
const TOOL_IMAGE_OMITTED: &str = "(tool image omitted: model does not support images)";
const NO_RESULT: &str = "No result provided";

/// Whether a message was made by exactly this model over this API.
pub(crate) fn same_model(answer: &AssistantMessage, model: &Model) -> bool {
    answer.provider == model.provider && answer.api == model.api && answer.model == model.id
}

/// Prepares user, assistant and tool-result messages for `model`; others are left out. `rename` gives the id a foreign
/// tool call has there.
pub(crate) fn prepare(
    messages: &[Arc<Message>],
    model: &Model,
    rename: &dyn Fn(&str, &AssistantMessage) -> String,
) -> Vec<Message> {
    let mut out = Vec::new();
    let mut renamed: HashMap<String, String> = HashMap::new();
    let mut open = OpenCalls::default();
    for message in messages {
        match &**message {
            Message::User(user) => {
                open.settle(&mut out);
                let mut user = user.clone();
                if !model.reads_images()
                    && let Content::Blocks(blocks) = user.content
                {
                    user.content = Content::Blocks(without_images(blocks, IMAGE_OMITTED));
                }
                out.push(Message::User(user));
            }
            Message::Assistant(answer) => {
                open.settle(&mut out);
                if matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted) {
                    continue;
                }
                renamed.clear();
                let answer = convert_answer(answer, model, rename, &mut renamed);
                open.remember(&answer);
                out.push(Message::Assistant(answer));
            }
            Message::ToolResult(result) => {
                let mut result = result.clone();
                if let Some(id) = renamed.get(&result.tool_call_id) {
                    result.tool_call_id.clone_from(id);
                }
                if !model.reads_images() {
                    result.content = without_images(result.content, TOOL_IMAGE_OMITTED);
                }
                if open.answer(&result.tool_call_id) {
                    out.push(Message::ToolResult(result));
                }
            }
            _ => {}
        }
    }
    open.settle(&mut out);
    out
}

/// Calls of the last answer that have no result yet. A result nobody asked for is dropped: every provider refuses it.
#[derive(Default)]
struct OpenCalls {
    calls: Vec<(String, String)>,
    answered: HashSet<String>,
    timestamp: i64,
}

impl OpenCalls {
    fn remember(&mut self, answer: &AssistantMessage) {
        self.timestamp = answer.timestamp;
        self.calls = answer
            .tool_calls()
            .map(|call| (call.id.clone(), call.name.clone()))
            .collect();
        self.answered.clear();
    }

    fn answer(&mut self, id: &str) -> bool {
        let known = self.calls.iter().any(|(call, _)| call == id);
        known && self.answered.insert(id.to_owned())
    }

    fn settle(&mut self, out: &mut Vec<Message>) {
        for (id, name) in std::mem::take(&mut self.calls) {
            if !self.answered.contains(&id) {
                out.push(Message::ToolResult(ToolResultMessage {
                    tool_call_id: id,
                    tool_name: name,
                    content: vec![Block::text(NO_RESULT)],
                    is_error: true,
                    timestamp: self.timestamp,
                    ..ToolResultMessage::default()
                }));
            }
        }
    }
}

fn convert_answer(
    answer: &AssistantMessage,
    model: &Model,
    rename: &dyn Fn(&str, &AssistantMessage) -> String,
    renamed: &mut HashMap<String, String>,
) -> AssistantMessage {
    let same = same_model(answer, model);
    let mut out = answer.clone();
    out.content.clear();
    for block in &answer.content {
        let kept = match block {
            Block::Thinking(thinking) => {
                let signed =
                    thinking.redacted == Some(true) || thinking.thinking_signature.is_some();
                let keep = same && (signed || !thinking.thinking.trim().is_empty());
                keep.then(|| block.clone())
            }
            Block::Text(text) if !same => Some(Block::Text(TextBlock {
                text: text.text.clone(),
                ..TextBlock::default()
            })),
            Block::ToolCall(call) if !same => {
                let mut call = call.clone();
                call.thought_signature = None;
                let id = rename(&call.id, answer);
                renamed.insert(std::mem::replace(&mut call.id, id.clone()), id);
                Some(Block::ToolCall(call))
            }
            Block::Unknown(_) => None,
            other => Some(other.clone()),
        };
        out.content.extend(kept);
    }
    out
}

/// Replaces each run of images by one text block.
fn without_images(blocks: Vec<Block>, placeholder: &str) -> Vec<Block> {
    let mut out: Vec<Block> = Vec::with_capacity(blocks.len());
    let mut in_run = false;
    for block in blocks {
        let image = matches!(block, Block::Image(_));
        match (image, in_run) {
            (true, false) => out.push(Block::text(placeholder)),
            (true, true) => {}
            (false, _) => out.push(block),
        }
        in_run = image;
    }
    out
}
