//! The record of a model, as `models.json`, the catalogue and RPC's `get_state` show it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One model of one provider. Identity is `(provider, id)`. Prices are USD per million tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Id as sent on the wire.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Wire API, for example `openai-completions`; an unknown one is listed and fails only when called.
    pub api: String,
    /// Provider id.
    pub provider: String,
    /// Where requests go.
    #[serde(default)]
    pub base_url: String,
    /// Whether it can think.
    #[serde(default)]
    pub reasoning: bool,
    /// Provider words for thinking levels; `null` marks a level the model does not have.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thinking_level_map: Option<Map<String, Value>>,
    /// What it reads: `text`, `image`.
    #[serde(default)]
    pub input: Vec<String>,
    /// Limits on images and request size.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub input_limits: Option<Value>,
    /// Prices.
    #[serde(default)]
    pub cost: ModelCost,
    /// Cache lifetimes in seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prompt_cache: Option<Value>,
    /// Tokens of prompt and answer together.
    #[serde(default)]
    pub context_window: u64,
    /// Most tokens of one answer.
    #[serde(default)]
    pub max_tokens: u64,
    /// Extra HTTP headers; values may name `$VARIABLES` or `!commands`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub headers: Option<Map<String, Value>>,
    /// Flags about how the server departs from the API.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub compat: Option<Map<String, Value>>,
    /// Everything else (`samplingParams`, ...), kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Model {
    /// Returns whether the model reads images.
    pub fn reads_images(&self) -> bool {
        self.input.iter().any(|kind| kind == "image")
    }
}

/// Prices of a model, USD per million tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelCost {
    /// Uncached prompt.
    #[serde(default, serialize_with = "super::message::js_number")]
    pub input: f64,
    /// Answer.
    #[serde(default, serialize_with = "super::message::js_number")]
    pub output: f64,
    /// Cache reads.
    #[serde(default, serialize_with = "super::message::js_number")]
    pub cache_read: f64,
    /// Cache writes.
    #[serde(default, serialize_with = "super::message::js_number")]
    pub cache_write: f64,
    /// Prices above a prompt size.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tiers: Option<Value>,
}

/// How much a model should think.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum ThinkingLevel {
    /// Not at all.
    #[default]
    Off,
    /// As little as possible.
    Minimal,
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// Very much.
    XHigh,
    /// All it can.
    Max,
}

impl ThinkingLevel {
    /// All levels, least first.
    pub const ALL: [Self; 7] = [
        Self::Off,
        Self::Minimal,
        Self::Low,
        Self::Medium,
        Self::High,
        Self::XHigh,
        Self::Max,
    ];

    /// Returns the word used in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
            Self::Max => "max",
        }
    }

    /// Reads the word; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }
}
