//! Where others look at a request on its way to the server, and may change it.
//!
//! A [`Tap`] hangs on [`RequestOptions::tap`](super::RequestOptions::tap). Wire APIs ask it once for each request they
//! make up: a retry sends the same bytes again. A provider that sends nothing (the scripted one) asks nothing.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::model::Model;

/// The points of a request's way, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapPoint {
    /// Headers are put together.
    Headers,
    /// The body is made up.
    Payload,
    /// The server has answered; the body is not read yet.
    Response,
    /// An event of the stream was parsed.
    StreamEvent,
}

/// Looks at requests, and may change them.
#[async_trait]
pub trait Tap: Send + Sync + 'static {
    /// Whether the tap wants to be asked there: some of it costs something.
    fn wants(&self, at: TapPoint) -> bool;

    /// Returns the headers to send: name and text. One that is missing or `null` is not sent.
    async fn headers(&self, headers: Map<String, Value>) -> Map<String, Value>;

    /// Returns the body to send.
    async fn payload(&self, payload: Value) -> Value;

    /// Hears of an answer, also of one that refuses.
    async fn response(&self, status: u16, headers: Map<String, Value>);

    /// Hears one event of the stream as the server sent it.
    async fn stream_event(&self, model: &Model, data: Value);
}

/// A tap, or none.
#[derive(Clone, Default)]
pub struct MaybeTap(Option<Arc<dyn Tap>>);

impl MaybeTap {
    /// Holds this tap.
    pub fn new(tap: Arc<dyn Tap>) -> Self {
        Self(Some(tap))
    }

    /// Returns the tap when it wants to be asked there.
    pub fn at(&self, point: TapPoint) -> Option<&dyn Tap> {
        self.0.as_deref().filter(|tap| tap.wants(point))
    }
}

impl fmt::Debug for MaybeTap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "tap" } else { "no tap" })
    }
}

/// Headers as a tap sees them; values that are no text are left out.
pub(crate) fn shown(headers: &HeaderMap) -> Map<String, Value> {
    let text = |(name, value): (&HeaderName, &HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.into()))
    };
    headers.iter().filter_map(text).collect()
}
