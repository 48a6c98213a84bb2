//! The wire APIs. Each one turns a conversation into a request body and decodes its own events; everything else (sending,
//! retrying, reading, masking, ending) is the same for all and lives in `driver`.

pub(crate) mod anthropic;
pub(crate) mod assembly;
pub(crate) mod conversation;
pub(crate) mod driver;
pub(crate) mod google;
pub(crate) mod openai_chat;
pub(crate) mod openai_responses;
pub mod scripted;

use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::header::HeaderMap;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value};

use super::message::ToolDeclaration;
use super::model::{Model, ThinkingLevel};
use super::provider::{Request, RequestOptions};
use super::sse::SseEvent;
use super::{json, limits};
use assembly::{Assembly, Step};
use conversation::{Conversation, Kept, Tools};

/// Wire APIs this version speaks.
pub const APIS: [&str; 4] = [
    "openai-completions",
    "anthropic-messages",
    "openai-responses",
    "google-generative-ai",
];

/// Room for the members of a body beside the conversation: system prompt and tools, mostly.
const MEMBERS_SIZE: usize = 32 << 10;

/// What is sent.
#[derive(Debug)]
pub(crate) struct Body {
    /// Path and query after the base URL.
    pub(crate) path: String,
    /// Headers of this API, lower-case names. They yield to configured ones.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The members of the JSON. The one that holds the conversation is in its place here and without value.
    pub(crate) json: Map<String, Value>,
    /// The member that holds the conversation.
    pub(crate) member: &'static str,
    /// The conversation.
    pub(crate) conversation: Conversation,
    /// The member `tools`, when there is something on offer; in its place and without value above, too.
    pub(crate) tools: Option<Arc<Tools>>,
}

impl Body {
    /// Returns the bytes to send.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = Vec::with_capacity(self.conversation.len() + MEMBERS_SIZE);
        serde_json::to_writer(&mut bytes, self)?;
        Ok(bytes)
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in &self.json {
            match &self.tools {
                _ if key == self.member => map.serialize_entry(key, &self.conversation)?,
                Some(tools) if key == "tools" => map.serialize_entry(key, &tools.json)?,
                _ => map.serialize_entry(key, value)?,
            }
        }
        map.end()
    }
}

/// One request as a wire API sees it.
#[derive(Debug)]
pub(crate) struct Call {
    /// The model.
    pub(crate) model: Arc<Model>,
    /// The options.
    pub(crate) options: RequestOptions,
    /// The level after clamping to what the model has.
    pub(crate) level: ThinkingLevel,
    /// The conversation.
    pub(crate) messages: Vec<Arc<super::message::Message>>,
    /// What earlier requests of the session were converted to.
    pub(crate) kept: Arc<Mutex<Kept>>,
    /// Send no tool strictly (a server refused the compiled schemas).
    pub(crate) plain_tools: bool,
    /// `none`, `short` or `long`.
    pub(crate) retention: Retention,
}

/// How long a provider should keep the prompt in its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retention {
    /// Not at all.
    None,
    /// The provider's usual time.
    Short,
    /// As long as it offers.
    Long,
}

impl Call {
    /// Resolves the options of a request. `long_cache` = the environment asks for long retention.
    pub(crate) fn new(request: &Request, long_cache: bool) -> Self {
        let retention = match request.options.cache_retention.as_deref() {
            Some("none") => Retention::None,
            Some("long") => Retention::Long,
            None if long_cache => Retention::Long,
            _ => Retention::Short,
        };
        Self {
            model: Arc::clone(&request.model),
            level: request.model.clamp_level(request.options.thinking),
            options: request.options.clone(),
            messages: request.messages.clone(),
            kept: Arc::default(),
            plain_tools: false,
            retention,
        }
    }

    /// Whether the person asked for thinking.
    pub(crate) fn thinks(&self) -> bool {
        self.model.reasoning && self.options.thinking != ThinkingLevel::Off
    }

    /// A compat flag of the model.
    pub(crate) fn compat(&self, flag: &str) -> Option<&Value> {
        self.model.compat.as_ref().and_then(|map| map.get(flag))
    }

    /// A yes-or-no compat flag.
    pub(crate) fn flag(&self, name: &str, default: bool) -> bool {
        self.compat(name)
            .and_then(Value::as_bool)
            .unwrap_or(default)
    }

    /// The session id, unless caching is off.
    pub(crate) fn cache_session(&self) -> Option<&str> {
        let session = self
            .options
            .session_id
            .as_deref()
            .filter(|id| !id.is_empty());
        session.filter(|_| self.retention != Retention::None)
    }

    /// The output limit, so that prompt and answer fit the window.
    pub(crate) fn max_tokens(&self, tools: &[ToolDeclaration]) -> u64 {
        self.fit(
            self.options.max_tokens.unwrap_or(self.model.max_tokens),
            tools,
        )
    }

    /// Fits a wanted limit into the window.
    pub(crate) fn fit(&self, cap: u64, tools: &[ToolDeclaration]) -> u64 {
        let estimate = limits::context_tokens(&self.messages, tools);
        limits::max_tokens(self.model.context_window, cap, estimate)
    }

    /// The budget of the clamped level.
    pub(crate) fn budget(&self) -> u64 {
        limits::level_budget(self.level, self.custom_budgets())
    }

    /// The settings' `thinkingBudgets`.
    pub(crate) fn custom_budgets(&self) -> Option<&Map<String, Value>> {
        self.options
            .extra
            .get("thinkingBudgets")
            .and_then(Value::as_object)
    }

    /// The provider's word for the clamped level.
    pub(crate) fn effort(&self) -> &str {
        match self.model.level_word(self.level) {
            Some(Some(word)) => word,
            _ => self.level.as_str(),
        }
    }

    /// The provider's word for "no thinking": `None` when the model cannot do that.
    pub(crate) fn off_word(&self) -> Option<Option<&str>> {
        match self.model.level_word(ThinkingLevel::Off) {
            Some(None) => None,
            Some(Some(word)) => Some(Some(word)),
            None => Some(None),
        }
    }

    /// Writes the configured sampling parameters over the body: model, then level, then request.
    pub(crate) fn sampling(&self, body: &mut Map<String, Value>) {
        let by_level = self.model.extra.get("samplingParamsByThinkingLevel");
        let asked = if self.model.reasoning {
            self.level
        } else {
            ThinkingLevel::Off
        };
        let layers = [
            self.model.extra.get("samplingParams"),
            by_level.and_then(|map| map.get(asked.as_str())),
            self.options.extra.get("samplingParams"),
        ];
        for (key, value) in layers
            .into_iter()
            .flatten()
            .filter_map(Value::as_object)
            .flatten()
        {
            body.insert(key.clone(), value.clone());
        }
    }
}

/// A wire API.
pub(crate) trait Api: Send + Sync {
    /// Builds the request; the error is for a person.
    fn build(&self, call: &Call) -> Result<Body, String>;
    /// The header that carries the key.
    fn key_header(&self, key: &str) -> (&'static str, String);
    /// Decodes the events of one answer.
    fn decoder(&self, call: &Call) -> Box<dyn Decoder>;
    /// The text of an HTTP error.
    fn http_error(&self, call: &Call, status: u16, body: &str) -> String;
    /// Changes the call after a refusal that a simpler request avoids; true to send again at once.
    fn simplify(&self, _call: &mut Call, _status: u16, _body: &str) -> bool {
        false
    }
}

/// Decodes the events of one answer into an [`Assembly`].
pub(crate) trait Decoder: Send {
    /// Takes one event.
    fn event(&mut self, event: &SseEvent, out: &mut Assembly) -> Step;
    /// The body ended.
    fn end(&mut self, out: &mut Assembly) -> Step;
}

/// Returns the implementation of a wire API.
pub(crate) fn api(name: &str) -> Option<Box<dyn Api>> {
    match name {
        "openai-completions" => Some(Box::new(openai_chat::Chat)),
        "anthropic-messages" => Some(Box::new(anthropic::Messages)),
        "openai-responses" => Some(Box::new(openai_responses::Responses)),
        "google-generative-ai" => Some(Box::new(google::Gemini)),
        _ => None,
    }
}

/// Parses the data of an event, keeping halves of surrogate pairs for the joiners.
pub(crate) fn event_json(event: &SseEvent, out: &mut Assembly) -> Result<Value, serde_json::Error> {
    let (value, halves) = json::parse_keeping_halves(&event.data)?;
    out.halves = halves;
    Ok(value)
}

/// `Authorization: Bearer`.
pub(crate) fn bearer(key: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {key}"))
}

/// Reads a text member.
pub(crate) fn text_of<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// Reads a count; JSON numbers with a fraction are cut, negative ones count as none.
pub(crate) fn count_of(value: &Value, key: &str) -> Option<u64> {
    let number = value.get(key)?;
    number
        .as_u64()
        .or_else(|| number.as_f64().map(|float| float.max(0.0) as u64))
}

/// Whether the base URL's host is `host` or below it.
pub(crate) fn host_is(model: &Model, host: &str) -> bool {
    let base = model.base_url.to_lowercase();
    let rest = base
        .split_once("://")
        .map_or(base.as_str(), |(_, rest)| rest);
    let found = rest.split(['/', ':', '?']).next().unwrap_or_default();
    found == host
        || found
            .strip_suffix(host)
            .is_some_and(|left| left.ends_with('.'))
}

/// An id for a call that came without one.
pub(crate) fn new_call_id() -> String {
    format!("call_{}", uuid::Uuid::new_v4().simple())
}

/// Cuts text to a number of characters.
pub(crate) fn cut_chars(text: &str, len: usize) -> String {
    text.chars().take(len).collect()
}

/// Response headers that ask for a wait.
pub(crate) fn asked_wait(headers: &HeaderMap) -> Option<std::time::Duration> {
    super::retry::retry_after(headers, std::time::SystemTime::now())
}

/// Takes over the cost a gateway states in its usage.
pub(crate) fn take_stated_cost(usage: &Value, out: &mut Assembly) {
    if let Some(total) = stated_cost(usage) {
        let cost = &mut out.message.usage.cost;
        cost.total = total;
        cost.total_from_provider = Some(true.into());
    }
}

/// The cost a gateway states, when it is complete: with the person's own upstream key, what upstream charged is added.
fn stated_cost(usage: &Value) -> Option<f64> {
    let cost = usage.get("cost")?.as_f64()?;
    if !usage.get("is_byok")?.as_bool()? {
        return Some(cost);
    }
    let details = usage.get("cost_details")?;
    let get = |key: &str| details.get(key).and_then(Value::as_f64);
    let upstream = get("upstream_inference_cost").or_else(|| {
        Some(get("upstream_inference_prompt_cost")? + get("upstream_inference_completions_cost")?)
    })?;
    Some(cost + upstream)
}
