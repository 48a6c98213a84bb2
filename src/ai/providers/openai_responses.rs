//! `openai-responses`: OpenAI's Responses API, also spoken by xAI and Meta.

mod body;
mod decode;

use std::collections::HashMap;

use serde_json::Value;

use super::{Api, Body, Call, Decoder, bearer};

/// The API.
pub(crate) struct Responses;

impl Api for Responses {
    fn build(&self, call: &Call) -> Result<Body, String> {
        body::build(call)
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        bearer(key)
    }

    fn decoder(&self, call: &Call) -> Box<dyn Decoder> {
        Box::new(decode::ResponsesDecoder::new(
            grammar_arguments(call),
            call.model.id.clone(),
        ))
    }

    fn http_error(&self, call: &Call, status: u16, body: &str) -> String {
        let provider = match call.model.provider.as_str() {
            "openai" => "OpenAI",
            other => other,
        };
        let body = body.trim();
        if body.is_empty() {
            return format!("{provider} API error ({status}): status code {status} (no body)");
        }
        let error = serde_json::from_str::<Value>(body).ok();
        match error
            .as_ref()
            .and_then(|value| value.get("error"))
            .filter(|error| !error.is_null())
        {
            Some(error) => format!("{provider} API error ({status}): {error}"),
            None => format!("{provider} API error ({status}): {body}"),
        }
    }
}

/// The tools sent as grammars, and the argument that holds their text.
fn grammar_arguments(call: &Call) -> HashMap<String, String> {
    if !call.flag("supportsOpenAIGrammarTools", false) {
        return HashMap::new();
    }
    let offer = call.offer();
    let pair = |tool: &crate::ai::message::ToolDeclaration| {
        body::grammar(tool)?;
        Some((tool.name.clone(), body::grammar_property(tool)?))
    };
    offer.tools.iter().filter_map(pair).collect()
}
