//! From the events of a Responses stream to ours.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::ai::cost;
use crate::ai::json::drop_halves;
use crate::ai::message::{StopReason, ThinkingBlock, Usage};
use crate::ai::providers::assembly::{Assembly, Step};
use crate::ai::providers::{Decoder, count_of, cut_chars, event_json, text_of};
use crate::ai::sse::SseEvent;

/// What an item is for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
    Call,
    /// A call whose input is plain text, shown as one JSON argument.
    Grammar,
}

/// One output item.
struct Item {
    block: usize,
    kind: Kind,
    id: String,
    done: bool,
}

/// State of one answer.
pub(super) struct ResponsesDecoder {
    items: HashMap<u64, Item>,
    /// Argument that holds the text, per grammar tool.
    grammars: HashMap<String, String>,
    model: String,
}

impl ResponsesDecoder {
    /// Begins. `grammars`: tool name to the argument that holds its text.
    pub(super) fn new(grammars: HashMap<String, String>, model: String) -> Self {
        Self {
            items: HashMap::new(),
            grammars,
            model,
        }
    }

    /// Opens the block of an item that is new.
    fn open(&mut self, at: u64, item: &Value, out: &mut Assembly) {
        if self.items.contains_key(&at) {
            return;
        }
        let clean = |key: &str| text_of(item, key).map(drop_halves).unwrap_or_default();
        let (kind, block) = match text_of(item, "type") {
            Some("reasoning") => (Kind::Thinking, out.thinking_start(ThinkingBlock::default())),
            Some("message") => (Kind::Text, out.text_start("")),
            Some(kind @ ("function_call" | "custom_tool_call")) => {
                let id = match (clean("call_id"), clean("id")) {
                    (call, item) if item.is_empty() => call,
                    (call, item) => format!("{call}|{item}"),
                };
                let block = out.call_start(&id, &clean("name"));
                (
                    if kind == "function_call" {
                        Kind::Call
                    } else {
                        Kind::Grammar
                    },
                    block,
                )
            }
            _ => return,
        };
        let id = clean("id");
        self.items.insert(
            at,
            Item {
                block,
                kind,
                id,
                done: false,
            },
        );
    }

    fn delta(&self, data: &Value, kinds: &[Kind], out: &mut Assembly) {
        let Some(item) = count_of(data, "output_index").and_then(|at| self.items.get(&at)) else {
            return;
        };
        let text = text_of(data, "delta").unwrap_or_default();
        if item.done || text.is_empty() || !kinds.contains(&item.kind) {
            return;
        }
        out.delta(item.block, text);
    }

    fn grammar_delta(&mut self, data: &Value, out: &mut Assembly) {
        let Some(item) = count_of(data, "output_index").and_then(|at| self.items.get(&at)) else {
            return;
        };
        if item.kind == Kind::Grammar && !item.done {
            let text = text_of(data, "delta").unwrap_or_default();
            let text = self.grammar_piece(item.block, text, out);
            out.delta(item.block, &text);
        }
    }

    /// A piece of a grammar tool's text as JSON; the first one opens the object.
    fn grammar_piece(&self, block: usize, text: &str, out: &mut Assembly) -> String {
        let name = out
            .call_mut(block)
            .map(|call| call.name.clone())
            .unwrap_or_default();
        let escaped = Value::from(text).to_string();
        let inner = escaped
            .get(1..escaped.len().saturating_sub(1))
            .unwrap_or_default();
        if !out.args(block).is_empty() {
            return inner.to_owned();
        }
        let property = self.grammars.get(&name).map_or("input", String::as_str);
        format!("{{{}:\"{inner}", Value::from(property))
    }

    /// The complete arguments: what no delta brought comes as one more.
    fn whole_arguments(&self, at: u64, text: &str, out: &mut Assembly) {
        let Some(item) = self
            .items
            .get(&at)
            .filter(|item| item.kind == Kind::Call && !item.done)
        else {
            return;
        };
        let tail = text
            .strip_prefix(out.args(item.block))
            .unwrap_or_default()
            .to_owned();
        out.delta(item.block, &tail);
    }

    /// `output_item.done`: the item is authoritative.
    fn close(&mut self, at: u64, item: &Value, out: &mut Assembly) {
        let whole = text_of(item, "arguments");
        if self.items.contains_key(&at) {
            self.whole_arguments(at, whole.unwrap_or_default(), out);
        } else {
            self.open(at, item, out);
            if let (Some(open), Some(text)) = (self.items.get(&at), whole) {
                out.set_args(open.block, text);
            }
        }
        let Some(open) = self.items.get(&at).filter(|open| !open.done) else {
            return;
        };
        let block = open.block;
        match open.kind {
            Kind::Thinking => close_thinking(block, item, out),
            Kind::Text => close_text(block, item, out),
            Kind::Call => {}
            Kind::Grammar => {
                if out.args(block).is_empty() {
                    let text =
                        self.grammar_piece(block, text_of(item, "input").unwrap_or_default(), out);
                    out.delta(block, &text);
                }
                out.delta(block, "\"}");
            }
        }
        out.end(block);
        if let Some(open) = self.items.get_mut(&at) {
            open.done = true;
        }
    }

    /// A terminal event.
    fn complete(&mut self, response: &Value, out: &mut Assembly) -> Step {
        if let Some(id) = text_of(response, "id") {
            out.message.response_id = Some(drop_halves(id));
        }
        if let Some(usage) = response.get("usage").filter(|usage| usage.is_object()) {
            take_usage(usage, out);
            let factor = match text_of(response, "service_tier") {
                Some("flex") => 0.5,
                Some("priority" | "fast") if self.model.starts_with("gpt-5.5") => 2.5,
                Some("priority" | "fast") => 2.0,
                _ => 1.0,
            };
            cost::scale(&mut out.message.usage.cost, factor);
        }
        self.back_fill(response, out);
        let status = text_of(response, "status")
            .map(drop_halves)
            .unwrap_or_default();
        let details = response.get("incomplete_details");
        let reason = details
            .and_then(|details| text_of(details, "reason"))
            .map(drop_halves);
        out.message.raw_stop_reason = match &reason {
            Some(reason) => Some(format!("{status}.{reason}")),
            None => (!status.is_empty()).then(|| status.clone()),
        };
        if status == "incomplete" {
            let reason = reason.unwrap_or_else(|| "unknown".to_owned());
            if reason != "max_output_tokens" {
                return Step::Fail(format!("Response incomplete: {reason}"));
            }
            out.end_all();
            out.message.stop_reason = StopReason::Length;
            return Step::Done;
        }
        let half = self
            .items
            .values()
            .find(|item| matches!(item.kind, Kind::Call | Kind::Grammar) && !item.done);
        if let Some(item) = half {
            let (name, id) = out
                .call_mut(item.block)
                .map(|call| (call.name.clone(), call.id.clone()))
                .unwrap_or_default();
            return Step::Fail(format!(
                "OpenAI Responses stream completed with an unfinished tool call: {name} ({id})"
            ));
        }
        out.end_all();
        out.message.stop_reason = if out.has_calls() {
            StopReason::ToolUse
        } else {
            StopReason::Stop
        };
        Step::Done
    }

    /// Some servers send the encrypted reasoning only at the very end.
    fn back_fill(&self, response: &Value, out: &mut Assembly) {
        for item in response
            .get("output")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let Some(encrypted) = item
                .get("encrypted_content")
                .filter(|value| value.is_string())
            else {
                continue;
            };
            let id = text_of(item, "id").unwrap_or_default();
            let Some(open) = self
                .items
                .values()
                .find(|open| open.kind == Kind::Thinking && open.id == id)
            else {
                continue;
            };
            let Some(block) = out.thinking_mut(open.block) else {
                continue;
            };
            let stored = block.thinking_signature.as_deref().unwrap_or_default();
            let Ok(Value::Object(mut map)) = serde_json::from_str::<Value>(stored) else {
                continue;
            };
            if map.get("encrypted_content").is_none_or(Value::is_null) {
                map.insert("encrypted_content".into(), encrypted.clone());
                block.thinking_signature = Some(Value::Object(map).to_string());
            }
        }
    }
}

fn close_thinking(block: usize, item: &Value, out: &mut Assembly) {
    let texts = |key: &str| {
        let parts = item
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let texts: Vec<&str> = parts.filter_map(|part| text_of(part, "text")).collect();
        drop_halves(&texts.join("\n\n"))
    };
    let whole = [texts("summary"), texts("content")]
        .into_iter()
        .find(|text| !text.is_empty());
    if let Some(thinking) = out.thinking_mut(block) {
        if let Some(whole) = whole {
            thinking.thinking = whole;
        }
        thinking.thinking_signature = Some(drop_halves(&item.to_string()));
    }
}

fn close_text(block: usize, item: &Value, out: &mut Assembly) {
    let parts = item
        .get("content")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let texts: Vec<&str> = parts
        .filter_map(|part| text_of(part, "text").or_else(|| text_of(part, "refusal")))
        .collect();
    let whole = drop_halves(&texts.concat());
    let mut signature = Map::new();
    signature.insert("v".into(), 1.into());
    signature.insert(
        "id".into(),
        text_of(item, "id")
            .map(drop_halves)
            .unwrap_or_default()
            .into(),
    );
    if let Some(phase) = text_of(item, "phase") {
        signature.insert("phase".into(), drop_halves(phase).into());
    }
    if let Some(text) = out.text_mut(block) {
        if !whole.is_empty() {
            text.text = whole;
        }
        text.text_signature = Some(Value::Object(signature).to_string());
    }
}

impl Decoder for ResponsesDecoder {
    fn event(&mut self, event: &SseEvent, out: &mut Assembly) -> Step {
        let data = event.data.trim();
        if data == "[DONE]" {
            return self.end(out);
        }
        if data.is_empty() {
            return Step::More;
        }
        let Ok(data) = event_json(event, out) else {
            let shown = cut_chars(&event.data, 200);
            return Step::Fail(format!(
                "the stream was interrupted by something that is no JSON: {shown}"
            ));
        };
        let kind = text_of(&data, "type").unwrap_or(&event.event);
        let at = count_of(&data, "output_index").unwrap_or(0);
        match kind {
            "response.created" => {
                let id = data
                    .get("response")
                    .and_then(|response| text_of(response, "id"));
                out.message.response_id = id.map(drop_halves);
            }
            "response.output_item.added" => {
                if let Some(item) = data.get("item") {
                    self.open(at, item, out);
                }
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.delta(&data, &[Kind::Thinking], out);
            }
            "response.reasoning_summary_part.done" => {
                if let Some(item) = self
                    .items
                    .get(&at)
                    .filter(|item| item.kind == Kind::Thinking && !item.done)
                {
                    out.delta(item.block, "\n\n");
                }
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                self.delta(&data, &[Kind::Text], out);
            }
            "response.function_call_arguments.delta" => self.delta(&data, &[Kind::Call], out),
            "response.function_call_arguments.done" => {
                self.whole_arguments(at, text_of(&data, "arguments").unwrap_or_default(), out);
            }
            "response.custom_tool_call_input.delta" => self.grammar_delta(&data, out),
            "response.output_item.done" => {
                if let Some(item) = data.get("item") {
                    self.close(at, item, out);
                }
            }
            "response.completed" | "response.incomplete" => {
                return self.complete(data.get("response").unwrap_or(&Value::Null), out);
            }
            "response.failed" => return failed(data.get("response").unwrap_or(&Value::Null), out),
            "error" => return Step::Fail(error_text(&data)),
            _ => {}
        }
        Step::More
    }

    fn end(&mut self, _out: &mut Assembly) -> Step {
        Step::Fail("OpenAI Responses stream ended before a terminal response event".to_owned())
    }
}

fn failed(response: &Value, out: &mut Assembly) -> Step {
    if let Some(id) = text_of(response, "id") {
        out.message.response_id = Some(drop_halves(id));
    }
    out.message.raw_stop_reason = text_of(response, "status").map(drop_halves);
    if let Some(usage) = response.get("usage").filter(|usage| usage.is_object()) {
        take_usage(usage, out);
    }
    let Some(error) = response.get("error").filter(|error| error.is_object()) else {
        let details = response.get("incomplete_details");
        let reason = details
            .and_then(|details| text_of(details, "reason"))
            .unwrap_or("no reason given");
        return Step::Fail(format!("The response failed: {}", drop_halves(reason)));
    };
    let code = text_of(error, "code").unwrap_or("unknown");
    let message = text_of(error, "message").unwrap_or("no message");
    Step::Fail(drop_halves(&format!("{code}: {message}")))
}

/// The text of an `error` event, whose fields stand in the event or in an `error` object.
fn error_text(data: &Value) -> String {
    let error = data
        .get("error")
        .filter(|error| error.is_object())
        .unwrap_or(data);
    let code = text_of(error, "code").filter(|code| !code.is_empty());
    let text = match (code, text_of(error, "message")) {
        (Some(code), Some(message)) if !message.contains(code) => format!("{code}: {message}"),
        (_, Some(message)) => message.to_owned(),
        _ => error.to_string(),
    };
    drop_halves(&text)
}

fn take_usage(usage: &Value, out: &mut Assembly) {
    let details = usage.get("input_tokens_details").unwrap_or(&Value::Null);
    let cache_read = count_of(details, "cached_tokens").unwrap_or(0);
    let cache_write = count_of(details, "cache_write_tokens").unwrap_or(0);
    let all = count_of(usage, "input_tokens").unwrap_or(0);
    let output = count_of(usage, "output_tokens").unwrap_or(0);
    let thinking = usage
        .get("output_tokens_details")
        .and_then(|map| count_of(map, "reasoning_tokens"));
    out.usage(Usage {
        input: all.saturating_sub(cache_read + cache_write),
        output,
        cache_read,
        cache_write,
        reasoning: thinking,
        total_tokens: count_of(usage, "total_tokens").unwrap_or(all + output),
        ..Usage::default()
    });
}
