//! `openai-completions`: Chat Completions, as OpenAI, gateways and nearly every local server speak it.

mod body;
mod compat;
mod decode;
mod thinking;

use super::{Api, Body, Call, Decoder, bearer};

/// The API.
pub(crate) struct Chat;

impl Api for Chat {
    fn build(&self, call: &Call) -> Result<Body, String> {
        body::build(call)
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        bearer(key)
    }

    fn decoder(&self, call: &Call) -> Box<dyn Decoder> {
        Box::new(decode::ChatDecoder::new(
            compat::Compat::of(call).finish_reason,
        ))
    }

    fn http_error(&self, _call: &Call, status: u16, body: &str) -> String {
        let body = body.trim();
        if body.is_empty() {
            return format!("{status} status code (no body)");
        }
        let error = serde_json::from_str::<serde_json::Value>(body).ok();
        match error
            .as_ref()
            .and_then(|value| value.get("error"))
            .filter(|error| !error.is_null())
        {
            Some(error) => format!("{status}: {error}"),
            None => format!("{status} {body}"),
        }
    }
}
