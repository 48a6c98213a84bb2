//! `google-generative-ai`: Gemini's `streamGenerateContent`.

mod body;
mod decode;

use super::{Api, Body, Call, Decoder};

/// The API.
pub(crate) struct Gemini;

impl Api for Gemini {
    fn build(&self, call: &Call) -> Result<Body, String> {
        body::build(call)
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        ("x-goog-api-key", key.to_owned())
    }

    fn decoder(&self, _call: &Call) -> Box<dyn Decoder> {
        Box::new(decode::GeminiDecoder::default())
    }

    fn http_error(&self, _call: &Call, status: u16, body: &str) -> String {
        match body.trim() {
            "" => format!("{status} status code (no body)"),
            body => format!("{status} {body}"),
        }
    }
}
