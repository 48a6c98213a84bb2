//! `anthropic-messages`: the Messages API, with cache markers and signed thinking.

mod body;
mod decode;

use super::{Api, Body, Call, Decoder};

/// The API.
pub(crate) struct Messages;

/// Texts of a refusal that goes away when tools are not sent strictly.
const STRICT_LIMITS: [&str; 3] = [
    "Too many strict tools (",
    "The compiled grammar is too large",
    "Schemas contains too many parameters with union types (",
];

impl Api for Messages {
    fn build(&self, call: &Call) -> Result<Body, String> {
        body::build(call)
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        ("x-api-key", key.to_owned())
    }

    fn decoder(&self, _call: &Call) -> Box<dyn Decoder> {
        Box::new(decode::MessagesDecoder::default())
    }

    fn http_error(&self, _call: &Call, status: u16, body: &str) -> String {
        match body.trim() {
            "" => format!("{status} status code (no body)"),
            body => format!("{status} {body}"),
        }
    }

    fn simplify(&self, call: &mut Call, status: u16, body: &str) -> bool {
        let refused = status == 400
            && body.contains("invalid_request_error")
            && STRICT_LIMITS.iter().any(|text| body.contains(text));
        refused && !std::mem::replace(&mut call.plain_tools, true)
    }
}
