//! From the chunks of a Gemini stream to events.

use std::collections::HashSet;

use serde_json::Value;

use crate::ai::json::drop_halves;
use crate::ai::message::{StopReason, ThinkingBlock, Usage};
use crate::ai::providers::assembly::{Assembly, Step};
use crate::ai::providers::{Decoder, count_of, cut_chars, event_json, new_call_id, text_of};
use crate::ai::sse::SseEvent;

/// State of one answer.
#[derive(Default)]
pub(super) struct GeminiDecoder {
    /// The open text or thinking block; whether it is thinking.
    open: Option<(usize, bool)>,
    ids: HashSet<String>,
    finish: Option<String>,
    blocked: Option<String>,
}

impl GeminiDecoder {
    fn part(&mut self, part: &Value, out: &mut Assembly) {
        let signature = text_of(part, "thoughtSignature").filter(|text| !text.is_empty());
        if let Some(call) = part.get("functionCall") {
            self.close(out);
            self.call(call, signature, out);
            return;
        }
        let Some(text) = text_of(part, "text") else {
            return;
        };
        let thought = part
            .get("thought")
            .and_then(Value::as_bool)
            .unwrap_or(false);
        let index = match self.open {
            Some((index, open)) if open == thought => index,
            _ => {
                self.close(out);
                let index = if thought {
                    out.thinking_start(ThinkingBlock::default())
                } else {
                    out.text_start("")
                };
                self.open = Some((index, thought));
                index
            }
        };
        out.delta(index, text);
        let Some(signature) = signature.map(drop_halves) else {
            return;
        };
        if let Some(block) = out.thinking_mut(index) {
            block.thinking_signature = Some(signature);
        } else if let Some(block) = out.text_mut(index) {
            block.text_signature = Some(signature);
        }
    }

    fn call(&mut self, call: &Value, signature: Option<&str>, out: &mut Assembly) {
        let name = text_of(call, "name").map(drop_halves).unwrap_or_default();
        let sent = text_of(call, "id")
            .map(drop_halves)
            .filter(|id| !id.is_empty());
        let id = match sent {
            Some(id) if !self.ids.contains(&id) => id,
            _ => new_call_id(),
        };
        self.ids.insert(id.clone());
        let index = out.call_start(&id, &name);
        let args = call.get("args").filter(|args| !args.is_null());
        out.delta(
            index,
            &args.map_or_else(|| "{}".to_owned(), Value::to_string),
        );
        if let (Some(call), Some(signature)) = (out.call_mut(index), signature) {
            call.thought_signature = Some(drop_halves(signature));
        }
        out.end(index);
    }

    fn candidate(&mut self, candidate: &Value, out: &mut Assembly) {
        let content = candidate.get("content");
        let parts = content
            .and_then(|content| content.get("parts"))
            .and_then(Value::as_array);
        for part in parts.into_iter().flatten() {
            self.part(part, out);
        }
        if let Some(reason) = text_of(candidate, "finishReason").filter(|reason| !reason.is_empty())
        {
            self.finish = Some(drop_halves(reason));
        }
    }

    fn close(&mut self, out: &mut Assembly) {
        if let Some((index, _)) = self.open.take() {
            out.end(index);
        }
    }
}

impl Decoder for GeminiDecoder {
    fn event(&mut self, event: &SseEvent, out: &mut Assembly) -> Step {
        if event.data.trim().is_empty() || event.data.trim() == "[DONE]" {
            return Step::More;
        }
        let Ok(chunk) = event_json(event, out) else {
            let shown = cut_chars(&event.data, 200);
            return Step::Fail(format!(
                "the stream was interrupted by something that is no JSON: {shown}"
            ));
        };
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let status = text_of(error, "status").unwrap_or_default();
            return Step::Fail(format!("{status} {chunk}").trim().to_owned());
        }
        if let Some(id) = text_of(&chunk, "responseId").filter(|id| !id.is_empty())
            && out.message.response_id.is_none()
        {
            out.message.response_id = Some(drop_halves(id));
        }
        let feedback = chunk.get("promptFeedback");
        if let Some(reason) = feedback.and_then(|feedback| text_of(feedback, "blockReason")) {
            self.blocked = Some(drop_halves(reason));
        }
        let candidate = chunk
            .get("candidates")
            .and_then(Value::as_array)
            .and_then(|list| list.first());
        if let Some(candidate) = candidate {
            self.candidate(candidate, out);
            if let Some(unknown) = self.finish.as_deref().filter(|reason| !is_known(reason)) {
                out.message.raw_stop_reason.clone_from(&self.finish);
                return Step::Fail(format!("Unknown finish reason: {unknown}"));
            }
        }
        if let Some(usage) = chunk.get("usageMetadata").filter(|usage| usage.is_object()) {
            take_usage(usage, out);
        }
        Step::More
    }

    fn end(&mut self, out: &mut Assembly) -> Step {
        self.close(out);
        out.message.raw_stop_reason.clone_from(&self.finish);
        match self.finish.as_deref() {
            Some("STOP") => {
                out.message.stop_reason = if out.has_calls() {
                    StopReason::ToolUse
                } else {
                    StopReason::Stop
                };
                Step::Done
            }
            Some("MAX_TOKENS" | "CONTINUATION") => {
                out.message.stop_reason = StopReason::Length;
                Step::Done
            }
            Some(other) => Step::Fail(format!("The provider stopped the answer: {other}")),
            None => Step::Fail(match &self.blocked {
                Some(reason) => format!("The provider blocked the prompt: {reason}"),
                None => "Google stream ended without a finish reason".to_owned(),
            }),
        }
    }
}

/// Whether a finish reason is in the API's list. Any other one ends the answer at once.
fn is_known(reason: &str) -> bool {
    const KNOWN: [&str; 14] = [
        "STOP",
        "MAX_TOKENS",
        "CONTINUATION",
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "LANGUAGE",
        "OTHER",
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "FINISH_REASON_UNSPECIFIED",
    ];
    KNOWN.contains(&reason) || reason.contains("IMAGE")
}

fn take_usage(usage: &Value, out: &mut Assembly) {
    let count = |key: &str| count_of(usage, key).unwrap_or(0);
    let cached = count("cachedContentTokenCount");
    let thoughts = count("thoughtsTokenCount");
    out.usage(Usage {
        input: count("promptTokenCount").saturating_sub(cached),
        output: count("candidatesTokenCount") + thoughts,
        cache_read: cached,
        reasoning: Some(thoughts),
        total_tokens: count("totalTokenCount"),
        ..Usage::default()
    });
}
