//! The answer while it arrives: keeps the message complete and turns what a wire API decodes into stream events.

use std::collections::VecDeque;

use serde_json::{Map, Value};

use crate::ai::cost;
use crate::ai::json::{HalfJoiner, drop_halves, final_args};
use crate::ai::message::{
    AssistantMessage, Block, StopReason, TextBlock, ThinkingBlock, ToolCall, Usage,
};
use crate::ai::model::Model;
use crate::ai::provider::StreamEvent;

/// What a decoder says after an event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Go on reading.
    More,
    /// The answer is complete.
    Done,
    /// The answer failed; the text is for a person (masked later).
    Fail(String),
}

/// State of one block beside its content.
#[derive(Debug, Default)]
struct Open {
    joiner: HalfJoiner,
    args: String,
    ended: bool,
}

/// The message so far and the events not yet handed out.
#[derive(Debug)]
pub(crate) struct Assembly {
    /// The message.
    pub(crate) message: AssistantMessage,
    model: std::sync::Arc<Model>,
    events: VecDeque<StreamEvent>,
    open: Vec<Open>,
    /// Whether the event being read holds halves of surrogate pairs.
    pub(crate) halves: bool,
    started: bool,
}

impl Assembly {
    /// Begins an empty answer of `model`.
    pub(crate) fn new(model: std::sync::Arc<Model>, timestamp: i64) -> Self {
        let message = AssistantMessage {
            api: model.api.clone(),
            provider: model.provider.clone(),
            model: model.id.clone(),
            stop_reason: StopReason::Pending,
            timestamp,
            ..AssistantMessage::default()
        };
        Self {
            message,
            model,
            events: VecDeque::new(),
            open: Vec::new(),
            halves: false,
            started: false,
        }
    }

    /// Says that the server accepted the request.
    pub(crate) fn start(&mut self) {
        if !self.started {
            self.started = true;
            self.events
                .push_back(StreamEvent::Start(Box::new(self.message.clone())));
        }
    }

    /// Takes the oldest event.
    pub(crate) fn pop(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    /// Forgets events that nobody will read.
    pub(crate) fn clear_events(&mut self) {
        self.events.clear();
    }

    /// Adds a text block with text that came with its start.
    pub(crate) fn text_start(&mut self, text: &str) -> usize {
        let index = self.add(Block::Text(TextBlock {
            text: text.to_owned(),
            ..TextBlock::default()
        }));
        self.events.push_back(StreamEvent::TextStart {
            index,
            text: text.to_owned(),
        });
        index
    }

    /// Adds a thinking block.
    pub(crate) fn thinking_start(&mut self, block: ThinkingBlock) -> usize {
        let index = self.add(Block::Thinking(block.clone()));
        self.events
            .push_back(StreamEvent::ThinkingStart { index, block });
        index
    }

    /// Adds a tool call.
    pub(crate) fn call_start(&mut self, id: &str, name: &str) -> usize {
        let index = self.add(Block::ToolCall(ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: Value::Object(Map::new()),
            ..ToolCall::default()
        }));
        self.events.push_back(StreamEvent::ToolCallStart {
            index,
            id: id.to_owned(),
            name: name.to_owned(),
        });
        index
    }

    fn add(&mut self, block: Block) -> usize {
        self.message.content.push(block);
        self.open.push(Open::default());
        self.message.content.len() - 1
    }

    /// Tells an empty piece of a call's arguments.
    pub(crate) fn empty_call_delta(&mut self, index: usize) {
        self.events.push_back(StreamEvent::ToolCallDelta {
            index,
            delta: String::new(),
        });
    }

    /// Appends to a block of any kind; empty deltas give no event.
    pub(crate) fn delta(&mut self, index: usize, delta: &str) {
        let Some(open) = self.open.get_mut(index) else {
            return;
        };
        let delta = open.joiner.push(delta, self.halves);
        if delta.is_empty() {
            return;
        }
        let event = match self.message.content.get_mut(index) {
            Some(Block::Text(block)) => {
                block.text.push_str(&delta);
                StreamEvent::TextDelta { index, delta }
            }
            Some(Block::Thinking(block)) => {
                block.thinking.push_str(&delta);
                StreamEvent::ThinkingDelta { index, delta }
            }
            Some(Block::ToolCall(_)) => {
                open.args.push_str(&delta);
                StreamEvent::ToolCallDelta { index, delta }
            }
            _ => return,
        };
        self.events.push_back(event);
    }

    /// Returns the argument text of a call so far.
    pub(crate) fn args(&self, index: usize) -> &str {
        self.open.get(index).map_or("", |open| &open.args)
    }

    /// Sets the argument text of a call that arrived whole, without an event of its own.
    pub(crate) fn set_args(&mut self, index: usize, text: &str) {
        if let Some(open) = self.open.get_mut(index) {
            open.args = drop_halves(text);
        }
    }

    /// Returns the text block at `index`.
    pub(crate) fn text_mut(&mut self, index: usize) -> Option<&mut TextBlock> {
        match self.message.content.get_mut(index) {
            Some(Block::Text(block)) => Some(block),
            _ => None,
        }
    }

    /// Returns the thinking block at `index`.
    pub(crate) fn thinking_mut(&mut self, index: usize) -> Option<&mut ThinkingBlock> {
        match self.message.content.get_mut(index) {
            Some(Block::Thinking(block)) => Some(block),
            _ => None,
        }
    }

    /// Returns the call at `index`.
    pub(crate) fn call_mut(&mut self, index: usize) -> Option<&mut ToolCall> {
        match self.message.content.get_mut(index) {
            Some(Block::ToolCall(call)) => Some(call),
            _ => None,
        }
    }

    /// Ends a block; a second end does nothing.
    pub(crate) fn end(&mut self, index: usize) {
        let Some(open) = self.open.get_mut(index) else {
            return;
        };
        if std::mem::replace(&mut open.ended, true) {
            return;
        }
        let args = std::mem::take(&mut open.args);
        let event = match self.message.content.get_mut(index) {
            Some(Block::Text(block)) => StreamEvent::TextEnd {
                index,
                content: block.text.clone(),
            },
            Some(Block::Thinking(block)) => StreamEvent::ThinkingEnd {
                index,
                content: block.thinking.clone(),
            },
            Some(Block::ToolCall(call)) => {
                match final_args(&args) {
                    Ok(map) => call.arguments = Value::Object(map),
                    Err(why) => call.arguments_error = Some(why),
                }
                StreamEvent::ToolCallEnd {
                    index,
                    call: call.clone(),
                }
            }
            _ => return,
        };
        self.events.push_back(event);
    }

    /// Ends every open block, in content order.
    pub(crate) fn end_all(&mut self) {
        for index in 0..self.open.len() {
            self.end(index);
        }
    }

    /// Whether the message holds tool calls.
    pub(crate) fn has_calls(&self) -> bool {
        self.message.tool_calls().next().is_some()
    }

    /// Takes usage, prices it and tells the reader.
    pub(crate) fn usage(&mut self, mut usage: Usage) {
        usage.cost = cost::cost(&self.model.cost, &usage);
        self.message.usage = usage.clone();
        self.events.push_back(StreamEvent::Usage(usage));
    }

    /// Notes the model that answered, when it is not the one that was asked.
    pub(crate) fn response_model(&mut self, name: &str) {
        if !name.is_empty() && name != self.model.id && self.message.response_model.is_none() {
            self.message.response_model = Some(name.to_owned());
        }
    }

    /// Ends the stream well.
    pub(crate) fn done(&mut self) {
        if self.message.stop_reason == StopReason::Pending {
            self.message.stop_reason = StopReason::Stop;
        }
        self.events
            .push_back(StreamEvent::Done(Box::new(self.message.clone())));
    }

    /// Ends the stream with an error or an abort.
    pub(crate) fn fail(&mut self, reason: StopReason, text: String) {
        for (block, open) in self.message.content.iter_mut().zip(&self.open) {
            if let (Block::ToolCall(call), false) = (block, open.ended)
                && !open.args.trim().is_empty()
            {
                let mut preview = crate::ai::json::PartialArgs::default();
                preview.push(&open.args);
                call.arguments = preview.value().clone();
            }
        }
        self.message.stop_reason = reason;
        self.message.error_message = Some(text);
        self.events
            .push_back(StreamEvent::Error(Box::new(self.message.clone())));
    }
}
