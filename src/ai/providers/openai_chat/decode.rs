//! From the chunks of a Chat Completions stream to events.

use serde_json::{Map, Value};

use crate::ai::json::drop_halves;
use crate::ai::message::{StopReason, ThinkingBlock, Usage};
use crate::ai::providers::assembly::{Assembly, Step};
use crate::ai::providers::{
    Decoder, count_of, cut_chars, event_json, new_call_id, take_stated_cost, text_of,
};
use crate::ai::sse::SseEvent;

/// Fields in which servers send thinking, in the order in which they are looked at.
const THINKING: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

/// A tool call that is arriving.
struct OpenCall {
    block: usize,
    position: Option<u64>,
    id: Option<String>,
}

/// State of one answer.
pub(crate) struct ChatDecoder {
    wants_finish: bool,
    text: Option<usize>,
    thinking: Option<usize>,
    details: Vec<Value>,
    calls: Vec<OpenCall>,
    finish: Option<String>,
}

impl ChatDecoder {
    /// Begins. `wants_finish`: the server always sends a finish reason, so its absence is an error.
    pub(crate) fn new(wants_finish: bool) -> Self {
        Self {
            wants_finish,
            text: None,
            thinking: None,
            details: Vec::new(),
            calls: Vec::new(),
            finish: None,
        }
    }

    fn choice(&mut self, choice: &Value, out: &mut Assembly) {
        if let Some(usage) = choice.get("usage").filter(|usage| usage.is_object()) {
            take_usage(usage, out);
        }
        if let Some(reason) = text_of(choice, "finish_reason").filter(|reason| !reason.is_empty()) {
            self.finish = Some(drop_halves(reason));
        }
        let Some(delta) = choice.get("delta").filter(|delta| delta.is_object()) else {
            return;
        };
        self.thinking_delta(delta, out);
        if let Some(text) = text_of(delta, "content").filter(|text| !text.is_empty()) {
            let index = *self.text.get_or_insert_with(|| out.text_start(""));
            out.delta(index, text);
        }
        for call in delta
            .get("tool_calls")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            self.call_delta(call, out);
        }
    }

    fn thinking_delta(&mut self, delta: &Value, out: &mut Assembly) {
        let found = THINKING.iter().find_map(|field| {
            let text = text_of(delta, field).filter(|text| !text.is_empty())?;
            Some((*field, text))
        });
        if let Some((field, text)) = found {
            let index = self.thinking_block(field, out);
            out.delta(index, text);
        }
        for detail in delta
            .get("reasoning_details")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            if let Some(detail) = detail.as_object() {
                merge_detail(&mut self.details, detail);
            }
        }
        if !self.details.is_empty() {
            self.thinking_block("reasoning", out);
        }
    }

    fn thinking_block(&mut self, field: &str, out: &mut Assembly) -> usize {
        *self.thinking.get_or_insert_with(|| {
            out.thinking_start(ThinkingBlock {
                thinking_signature: Some(field.to_owned()),
                ..ThinkingBlock::default()
            })
        })
    }

    fn call_delta(&mut self, delta: &Value, out: &mut Assembly) {
        let function = delta.get("function").filter(|value| value.is_object());
        let function = function
            .or_else(|| delta.get("custom"))
            .unwrap_or(&Value::Null);
        let id = text_of(delta, "id")
            .filter(|id| !id.is_empty())
            .map(drop_halves);
        let name = text_of(function, "name")
            .filter(|name| !name.is_empty())
            .map(drop_halves);
        let position = count_of(delta, "index");
        let found = self.find(position, id.as_deref(), name.is_some());
        let is_new = found.is_none();
        let at = match found {
            Some(at) => at,
            None => {
                let shown = id.clone().unwrap_or_default();
                let block = out.call_start(&shown, name.as_deref().unwrap_or_default());
                self.calls.push(OpenCall {
                    block,
                    position,
                    id: id.clone(),
                });
                self.calls.len() - 1
            }
        };
        let Some(open) = self.calls.get_mut(at) else {
            return;
        };
        if open.id.is_none() {
            open.id.clone_from(&id);
        }
        if let Some(call) = out.call_mut(open.block) {
            if call.id.is_empty() {
                call.id = id.unwrap_or_default();
            }
            if call.name.is_empty() {
                call.name = name.unwrap_or_default();
            }
        }
        match function.get("arguments").or_else(|| function.get("input")) {
            // Clients count on one delta after the start when name and arguments come apart.
            Some(Value::String(text)) if text.is_empty() && is_new => {
                out.empty_call_delta(open.block);
            }
            Some(Value::String(text)) => out.delta(open.block, text),
            Some(whole @ Value::Object(_)) => out.delta(open.block, &whole.to_string()),
            _ => {}
        }
    }

    /// Finds the call a delta belongs to: by index, else by id, else (a nameless continuation) the last one.
    fn find(&self, position: Option<u64>, id: Option<&str>, named: bool) -> Option<usize> {
        if let Some(position) = position {
            let known = self
                .calls
                .iter()
                .position(|call| call.position == Some(position));
            // A continuation may have an index although the call began without one.
            let nameless = self.calls.iter().rposition(|call| call.position.is_none());
            return known.or(nameless.filter(|_| id.is_none() && !named));
        }
        match id {
            Some(id) => self
                .calls
                .iter()
                .position(|call| call.id.as_deref() == Some(id)),
            None if named => None,
            None => self.calls.len().checked_sub(1),
        }
    }

    fn close(&mut self, out: &mut Assembly) {
        for open in &self.calls {
            if let Some(call) = out.call_mut(open.block)
                && call.id.is_empty()
            {
                call.id = new_call_id();
            }
        }
        if let (Some(index), false) = (self.thinking, self.details.is_empty())
            && let Some(block) = out.thinking_mut(index)
        {
            let details = Value::Array(std::mem::take(&mut self.details));
            block.thinking_signature = Some(drop_halves(&details.to_string()));
        }
        out.end_all();
    }

    fn finish(&mut self, out: &mut Assembly) -> Step {
        self.close(out);
        out.message.raw_stop_reason.clone_from(&self.finish);
        let reason = match self.finish.as_deref() {
            Some("stop" | "end") => StopReason::Stop,
            Some("length") => StopReason::Length,
            Some("tool_calls" | "function_call") => StopReason::ToolUse,
            Some(other) => return Step::Fail(format!("Provider finish_reason: {other}")),
            None if self.wants_finish => {
                return Step::Fail("Stream ended without finish_reason".to_owned());
            }
            None if out.has_calls() => StopReason::ToolUse,
            None => StopReason::Stop,
        };
        out.message.stop_reason = reason;
        Step::Done
    }
}

impl Decoder for ChatDecoder {
    fn event(&mut self, event: &SseEvent, out: &mut Assembly) -> Step {
        let data = event.data.trim();
        if data == "[DONE]" {
            return self.finish(out);
        }
        if data.is_empty() {
            return Step::More;
        }
        let Ok(chunk) = event_json(event, out) else {
            if event.event == "error" {
                return Step::Fail(data.to_owned());
            }
            return Step::Fail(
                "the stream was interrupted by something that is no JSON: ".to_owned()
                    + &cut_chars(data, 200),
            );
        };
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            return Step::Fail(error_text(error));
        }
        if event.event == "error" {
            return Step::Fail(error_text(&chunk));
        }
        if let Some(id) = text_of(&chunk, "id").filter(|id| !id.is_empty())
            && out.message.response_id.is_none()
        {
            out.message.response_id = Some(drop_halves(id));
        }
        if let Some(model) = text_of(&chunk, "model") {
            out.response_model(&drop_halves(model));
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            take_usage(usage, out);
        }
        let choices = chunk.get("choices").and_then(Value::as_array);
        if let Some(choice) = choices.and_then(|list| list.first()) {
            self.choice(choice, out);
        }
        Step::More
    }

    fn end(&mut self, out: &mut Assembly) -> Step {
        self.finish(out)
    }
}

/// The text of an error object, with what a gateway relays from behind it.
fn error_text(error: &Value) -> String {
    let message = match error {
        Value::String(text) => text.clone(),
        other => text_of(other, "message").map_or_else(|| other.to_string(), str::to_owned),
    };
    let raw = error
        .get("metadata")
        .and_then(|metadata| metadata.get("raw"));
    let raw = match raw {
        Some(Value::String(text)) => text.clone(),
        Some(other) if !other.is_null() => other.to_string(),
        _ => return message,
    };
    if message.contains(&raw) {
        message
    } else {
        format!("{message}\n{raw}")
    }
}

/// Appends a piece of `reasoning_details`; consecutive text or summary pieces of one part become one.
fn merge_detail(details: &mut Vec<Value>, piece: &Map<String, Value>) {
    let kind = piece
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let field = match kind {
        "reasoning.text" => "text",
        "reasoning.summary" => "summary",
        "reasoning.encrypted" => "data",
        _ => return,
    };
    if let Some(Value::Object(last)) = details.last_mut() {
        let same = field != "data"
            && last.get("type") == piece.get("type")
            && (last.get("index") == piece.get("index") || piece.get("index").is_none());
        if same {
            for (key, value) in piece {
                match (last.get_mut(key), value) {
                    (Some(Value::String(have)), Value::String(more)) if key == field => {
                        have.push_str(more);
                    }
                    (_, Value::Null) => {}
                    _ => {
                        last.insert(key.clone(), value.clone());
                    }
                }
            }
            return;
        }
    }
    details.push(Value::Object(piece.clone()));
}

fn take_usage(usage: &Value, out: &mut Assembly) {
    let prompt_details = usage.get("prompt_tokens_details").unwrap_or(&Value::Null);
    let answer_details = usage
        .get("completion_tokens_details")
        .unwrap_or(&Value::Null);
    let cache_read = count_of(prompt_details, "cached_tokens")
        .or_else(|| count_of(usage, "prompt_cache_hit_tokens"))
        .or_else(|| count_of(usage, "cached_tokens"))
        .unwrap_or(0);
    let cache_write = count_of(prompt_details, "cache_write_tokens").unwrap_or(0);
    let prompt = count_of(usage, "prompt_tokens").unwrap_or(0);
    let output = count_of(usage, "completion_tokens").unwrap_or(0);
    let input = prompt.saturating_sub(cache_read + cache_write);
    out.usage(Usage {
        input,
        output,
        cache_read,
        cache_write,
        reasoning: count_of(answer_details, "reasoning_tokens")
            .or_else(|| count_of(usage, "reasoning_tokens"))
            .or(Some(0)),
        total_tokens: input + output + cache_read + cache_write,
        ..Usage::default()
    });
    take_stated_cost(usage, out);
    let cost = &mut out.message.usage.cost;
    cost.total_from_provider.get_or_insert(Value::Bool(false));
}
