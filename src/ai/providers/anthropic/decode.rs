//! From the events of a Messages stream to ours.

use std::collections::HashMap;

use serde_json::Value;

use crate::ai::json::{drop_halves, repair};
use crate::ai::message::{StopReason, ThinkingBlock, Usage};
use crate::ai::providers::assembly::{Assembly, Step};
use crate::ai::providers::{Decoder, count_of, cut_chars, event_json, take_stated_cost, text_of};
use crate::ai::sse::SseEvent;

const REDACTED: &str = "[Reasoning redacted]";

/// State of one answer.
#[derive(Default)]
pub(super) struct MessagesDecoder {
    /// Their block index to ours.
    blocks: HashMap<u64, usize>,
    started: bool,
    stop: Option<Stop>,
}

/// How the answer will end.
enum Stop {
    Reason(StopReason),
    Error(String),
}

impl MessagesDecoder {
    fn block(&self, data: &Value) -> Option<usize> {
        self.blocks.get(&count_of(data, "index")?).copied()
    }

    fn block_start(&mut self, data: &Value, out: &mut Assembly) {
        let Some(block) = data.get("content_block") else {
            return;
        };
        let clean = |key: &str| text_of(block, key).map(drop_halves).unwrap_or_default();
        let index = match text_of(block, "type") {
            Some("text") => out.text_start(&clean("text")),
            Some("thinking") => {
                let signature = clean("signature");
                out.thinking_start(ThinkingBlock {
                    thinking: clean("thinking"),
                    thinking_signature: Some(signature),
                    ..ThinkingBlock::default()
                })
            }
            Some("redacted_thinking") => out.thinking_start(ThinkingBlock {
                thinking: REDACTED.to_owned(),
                thinking_signature: Some(clean("data")),
                redacted: Some(true),
                ..ThinkingBlock::default()
            }),
            Some("tool_use") => {
                let index = out.call_start(&clean("id"), &clean("name"));
                // Some gateways send the whole input with the start.
                if let Some(input) = block
                    .get("input")
                    .and_then(Value::as_object)
                    .filter(|map| !map.is_empty())
                {
                    out.delta(index, &Value::Object(input.clone()).to_string());
                }
                index
            }
            _ => return,
        };
        if let Some(theirs) = count_of(data, "index") {
            self.blocks.insert(theirs, index);
        }
    }

    fn block_delta(&self, data: &Value, out: &mut Assembly) {
        let (Some(index), Some(delta)) = (self.block(data), data.get("delta")) else {
            return;
        };
        let text = |key: &str| text_of(delta, key).unwrap_or_default();
        match text_of(delta, "type") {
            Some("text_delta") => out.delta(index, text("text")),
            Some("thinking_delta") => out.delta(index, text("thinking")),
            Some("input_json_delta") => out.delta(index, text("partial_json")),
            Some("signature_delta") => {
                let more = drop_halves(text("signature"));
                if let Some(block) = out.thinking_mut(index) {
                    block
                        .thinking_signature
                        .get_or_insert_default()
                        .push_str(&more);
                }
            }
            _ => {}
        }
    }

    fn message_start(&mut self, data: &Value, out: &mut Assembly) {
        self.started = true;
        let Some(message) = data.get("message") else {
            return;
        };
        if let Some(id) = text_of(message, "id") {
            out.message.response_id = Some(drop_halves(id));
        }
        if let Some(model) = text_of(message, "model") {
            out.response_model(&drop_halves(model));
        }
        if let Some(usage) = message.get("usage") {
            take_usage(usage, out);
        }
    }

    fn message_delta(&mut self, data: &Value, out: &mut Assembly) -> Step {
        let stopped = data
            .get("delta")
            .map_or(Step::More, |delta| self.stop_reason(data, delta, out));
        if let (Step::More, Some(usage)) = (&stopped, data.get("usage")) {
            take_usage(usage, out);
            take_stated_cost(usage, out);
        }
        stopped
    }

    /// Notes why the answer ends. A reason nobody knows ends it at once.
    fn stop_reason(&mut self, data: &Value, delta: &Value, out: &mut Assembly) -> Step {
        let Some(reason) = text_of(delta, "stop_reason") else {
            return Step::More;
        };
        let reason = drop_halves(reason);
        let stop = match reason.as_str() {
            "end_turn" | "stop_sequence" | "pause_turn" => Stop::Reason(StopReason::Stop),
            "max_tokens" => Stop::Reason(StopReason::Length),
            "tool_use" => Stop::Reason(StopReason::ToolUse),
            "refusal" => {
                let details = delta
                    .get("stop_details")
                    .or_else(|| data.get("stop_details"));
                let why = details.and_then(|details| text_of(details, "explanation"));
                let why = why.filter(|text| !text.trim().is_empty());
                Stop::Error(
                    why.unwrap_or("The model refused to answer this request")
                        .to_owned(),
                )
            }
            "sensitive" => Stop::Error("The provider stopped the answer: sensitive".to_owned()),
            other => {
                let text = format!("Unknown stop reason: {other}");
                out.message.raw_stop_reason = Some(reason);
                return Step::Fail(text);
            }
        };
        out.message.raw_stop_reason = Some(reason);
        self.stop = Some(stop);
        Step::More
    }

    fn message_stop(&mut self, out: &mut Assembly) -> Step {
        out.end_all();
        match self.stop.take() {
            Some(Stop::Reason(reason)) => {
                out.message.stop_reason = reason;
                Step::Done
            }
            Some(Stop::Error(text)) => Step::Fail(text),
            None => Step::Fail("Anthropic stream ended without a stop reason".to_owned()),
        }
    }
}

impl Decoder for MessagesDecoder {
    fn event(&mut self, event: &SseEvent, out: &mut Assembly) -> Step {
        const KNOWN: [&str; 7] = [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
            "error",
        ];
        let name = event.event.as_str();
        if name == "error" {
            return Step::Fail(event.data.clone());
        }
        if !KNOWN.contains(&name) {
            return Step::More;
        }
        let data = match event_json(event, out) {
            Ok(data) => data,
            Err(error) => {
                let mended = SseEvent {
                    event: event.event.clone(),
                    data: repair(&event.data),
                };
                match event_json(&mended, out) {
                    Ok(data) => data,
                    Err(_) => {
                        let shown = cut_chars(&event.data, 200);
                        return Step::Fail(format!(
                            "the stream was interrupted by broken JSON ({error}): {shown}"
                        ));
                    }
                }
            }
        };
        match name {
            "message_start" => self.message_start(&data, out),
            "content_block_start" => self.block_start(&data, out),
            "content_block_delta" => self.block_delta(&data, out),
            "content_block_stop" => {
                if let Some(index) = self.block(&data) {
                    out.end(index);
                }
            }
            "message_delta" => return self.message_delta(&data, out),
            "message_stop" => return self.message_stop(out),
            _ => {}
        }
        Step::More
    }

    fn end(&mut self, _out: &mut Assembly) -> Step {
        Step::Fail(if self.started {
            "Anthropic stream ended before message_stop".to_owned()
        } else {
            "Anthropic stream ended without a stop reason".to_owned()
        })
    }
}

/// Takes over the counts that are there; proxies leave some out in later events.
fn take_usage(usage: &Value, out: &mut Assembly) {
    let old = out.message.usage.clone();
    let count = |key: &str, old: u64| count_of(usage, key).unwrap_or(old);
    let input = count("input_tokens", old.input);
    let output = count("output_tokens", old.output);
    let cache_read = count("cache_read_input_tokens", old.cache_read);
    let cache_write = count("cache_creation_input_tokens", old.cache_write);
    let long = usage
        .get("cache_creation")
        .and_then(|map| count_of(map, "ephemeral_1h_input_tokens"));
    let thinking = usage
        .get("output_tokens_details")
        .and_then(|map| count_of(map, "thinking_tokens"));
    out.usage(Usage {
        input,
        output,
        cache_read,
        cache_write,
        cache_write_1h: long.or(old.cache_write_1h),
        reasoning: thinking.or(old.reasoning),
        total_tokens: input + output + cache_read + cache_write,
        ..Usage::default()
    });
}
