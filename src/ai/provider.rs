//! The seam to a model: a request goes in, a stream of events comes out.
//!
//! Invariants of a stream: it ends with exactly one terminal event ([`StreamEvent::Done`] or [`StreamEvent::Error`]);
//! nothing but an error comes before [`StreamEvent::Start`]; `index` is the position of the block in the message's
//! content. Providers never return `Err` and never panic: every failure is an `Error` event that carries the message so
//! far. Consumers keep the partial message themselves with [`Partial`], so that no event costs work that grows with
//! the answer.

use std::sync::Arc;

use futures::stream::BoxStream;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::message::{AssistantMessage, Block, Message, ThinkingBlock, ToolCall, Usage};
use super::model::{Model, ThinkingLevel};
use super::tap::MaybeTap;

/// Events of one answer.
pub type EventStream = BoxStream<'static, StreamEvent>;

/// What can answer requests: a wire API, or the scripted model.
pub trait Provider: Send + Sync + 'static {
    /// Starts one request. The work happens while the stream is polled or in a task of the provider; cancelling
    /// `request.cancel` ends it with an `aborted` error event.
    fn stream(&self, request: Request) -> EventStream;
}

/// One request to a model.
#[derive(Clone, Debug)]
pub struct Request {
    /// The model to ask.
    pub model: Arc<Model>,
    /// The projected conversation, already converted to the roles system, user, assistant and toolResult.
    pub messages: Vec<Arc<Message>>,
    /// The rest.
    pub options: RequestOptions,
    /// Ends the request.
    pub cancel: CancellationToken,
}

/// Options of a request; the default asks for nothing special.
#[derive(Clone, Default)]
pub struct RequestOptions {
    /// How much to think.
    pub thinking: ThinkingLevel,
    /// Most tokens of the answer; the model's own limit when absent.
    pub max_tokens: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Routes requests of one session to one cache.
    pub session_id: Option<String>,
    /// `none`, `short` or `long`; the default is short.
    pub cache_retention: Option<String>,
    /// Provider form of a tool choice.
    pub tool_choice: Option<Value>,
    /// Key given on the command line, in memory only.
    pub api_key: Option<secrecy::SecretString>,
    /// Anything else a caller sets for one wire API (fields as in `spec` of that API).
    pub extra: serde_json::Map<String, Value>,
    /// Looks at the request on its way.
    pub tap: MaybeTap,
}

/// Of what a caller set for a wire API only the names: a header may hold a key.
impl std::fmt::Debug for RequestOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestOptions")
            .field("thinking", &self.thinking)
            .field("max_tokens", &self.max_tokens)
            .field("temperature", &self.temperature)
            .field("session_id", &self.session_id)
            .field("cache_retention", &self.cache_retention)
            .field("tool_choice", &self.tool_choice)
            .field("has_key", &self.api_key.is_some())
            .field("extra", &self.extra.keys().collect::<Vec<_>>())
            .finish()
    }
}

impl RequestOptions {
    /// Takes over what `settings.json` says about every request (`thinkingBudgets`).
    pub fn from_settings(settings: &serde_json::Map<String, Value>) -> Self {
        let mut options = Self::default();
        if let Some(budgets) = settings
            .get("thinkingBudgets")
            .filter(|value| value.is_object())
        {
            options
                .extra
                .insert("thinkingBudgets".to_owned(), budgets.clone());
        }
        options
    }
}

/// One event of a streamed answer.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    missing_docs,
    reason = "`index`, `delta` and `content` are explained in the module text"
)]
pub enum StreamEvent {
    /// The server accepted the request. Carries the empty message (api, provider, model, timestamp set).
    Start(Box<AssistantMessage>),
    /// A text block begins; `text` is normally empty.
    TextStart { index: usize, text: String },
    /// More text.
    TextDelta { index: usize, delta: String },
    /// The block is complete; `content` is authoritative.
    TextEnd { index: usize, content: String },
    /// A thinking block begins. It is complete at once when redacted.
    ThinkingStart { index: usize, block: ThinkingBlock },
    /// More thinking.
    ThinkingDelta { index: usize, delta: String },
    /// The block is complete.
    ThinkingEnd { index: usize, content: String },
    /// A tool call begins; id and name are set when the provider has sent them.
    ToolCallStart {
        index: usize,
        id: String,
        name: String,
    },
    /// A raw piece of argument JSON.
    ToolCallDelta { index: usize, delta: String },
    /// The call is complete.
    ToolCallEnd { index: usize, call: ToolCall },
    /// Usage known so far.
    Usage(Usage),
    /// The answer is complete.
    Done(Box<AssistantMessage>),
    /// The request failed or was aborted; `stop_reason` says which. Holds what arrived.
    Error(Box<AssistantMessage>),
}

/// The assistant message as far as it has arrived: a fold over the events of a stream.
#[derive(Clone, Debug, Default)]
pub struct Partial {
    /// The message so far; complete after a terminal event.
    pub message: AssistantMessage,
}

impl Partial {
    /// Takes in one event. Events that name a block out of order are tolerated: missing blocks are filled with empty text.
    pub fn apply(&mut self, event: &StreamEvent) {
        match event {
            StreamEvent::Start(message)
            | StreamEvent::Done(message)
            | StreamEvent::Error(message) => {
                self.message = (**message).clone();
            }
            StreamEvent::TextStart { index, text } => {
                *self.slot(*index) = Block::text(text.clone());
            }
            StreamEvent::TextDelta { index, delta } => {
                if let Block::Text(block) = self.slot(*index) {
                    block.text.push_str(delta);
                }
            }
            StreamEvent::TextEnd { index, content } => {
                if let Block::Text(block) = self.slot(*index) {
                    block.text.clone_from(content);
                }
            }
            StreamEvent::ThinkingStart { index, block } => {
                *self.slot(*index) = Block::Thinking(block.clone());
            }
            StreamEvent::ThinkingDelta { index, delta } => {
                if let Block::Thinking(block) = self.slot(*index) {
                    block.thinking.push_str(delta);
                }
            }
            StreamEvent::ThinkingEnd { index, content } => {
                if let Block::Thinking(block) = self.slot(*index) {
                    block.thinking.clone_from(content);
                }
            }
            StreamEvent::ToolCallStart { index, id, name } => {
                let call = ToolCall {
                    id: id.clone(),
                    name: name.clone(),
                    ..ToolCall::default()
                };
                *self.slot(*index) = Block::ToolCall(call);
            }
            StreamEvent::ToolCallDelta { .. } => {}
            StreamEvent::ToolCallEnd { index, call } => {
                *self.slot(*index) = Block::ToolCall(call.clone());
            }
            StreamEvent::Usage(usage) => self.message.usage = usage.clone(),
        }
    }

    fn slot(&mut self, index: usize) -> &mut Block {
        let content = &mut self.message.content;
        while content.len() <= index {
            content.push(Block::text(""));
        }
        #[expect(
            clippy::indexing_slicing,
            reason = "the loop above filled the list up to `index`"
        )]
        &mut content[index]
    }
}
