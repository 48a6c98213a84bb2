//! Messages as they stand in session files, on the RPC wire and in a model's request.
//!
//! One shape serves all three: camelCase keys, an absent key instead of `null`, unknown keys kept in `extra` so that a
//! round trip loses nothing. `content: null` or a missing `content` (found in foreign files) reads as empty.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// One message of a conversation, tagged by `role`.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Prompt sections and tool declarations, first or as a later patch.
    System(SystemMessage),
    /// What a person (or a program acting for one) said.
    User(UserMessage),
    /// What a model answered.
    Assistant(AssistantMessage),
    /// What a tool call gave.
    ToolResult(ToolResultMessage),
    /// A shell command the person ran themselves.
    BashExecution(BashExecutionMessage),
    /// A message of an extension.
    Custom(CustomMessage),
    /// Projection only: summary of a branch that was left.
    BranchSummary(BranchSummaryMessage),
    /// Projection only: summary that replaced older history.
    CompactionSummary(CompactionSummaryMessage),
    /// A role this version does not know; kept as it came, never sent to a model.
    Unknown(Value),
}

impl Message {
    /// Returns the `role` value.
    pub fn role(&self) -> &str {
        match self {
            Self::System(_) => "system",
            Self::User(_) => "user",
            Self::Assistant(_) => "assistant",
            Self::ToolResult(_) => "toolResult",
            Self::BashExecution(_) => "bashExecution",
            Self::Custom(_) => "custom",
            Self::BranchSummary(_) => "branchSummary",
            Self::CompactionSummary(_) => "compactionSummary",
            Self::Unknown(value) => value.get("role").and_then(Value::as_str).unwrap_or(""),
        }
    }

    /// Returns the time of the message in Unix milliseconds, 0 when it has none.
    pub fn timestamp(&self) -> i64 {
        match self {
            Self::System(m) => m.timestamp,
            Self::User(m) => m.timestamp,
            Self::Assistant(m) => m.timestamp,
            Self::ToolResult(m) => m.timestamp,
            Self::BashExecution(m) => m.timestamp,
            Self::Custom(m) => m.timestamp,
            Self::BranchSummary(m) => m.timestamp,
            Self::CompactionSummary(m) => m.timestamp,
            Self::Unknown(value) => value.get("timestamp").and_then(Value::as_i64).unwrap_or(0),
        }
    }

    /// Reads a message from JSON. A known role with fields of a wrong type becomes [`Message::Unknown`]: a message is
    /// never lost because one field is odd.
    pub fn from_value(value: Value) -> Self {
        fn read<T: for<'de> Deserialize<'de>>(value: &Value) -> Option<T> {
            T::deserialize(value).ok()
        }
        let role = value.get("role").and_then(Value::as_str).unwrap_or("");
        let message = match role {
            "system" => read(&value).map(Self::System),
            "user" => read(&value).map(Self::User),
            "assistant" => read(&value).map(Self::Assistant),
            "toolResult" => read(&value).map(Self::ToolResult),
            "bashExecution" => read(&value).map(Self::BashExecution),
            "custom" => read(&value).map(Self::Custom),
            "branchSummary" => read(&value).map(Self::BranchSummary),
            "compactionSummary" => read(&value).map(Self::CompactionSummary),
            _ => None,
        };
        message.unwrap_or(Self::Unknown(value))
    }

    /// Returns the JSON form, `role` first.
    pub fn to_value(&self) -> Value {
        // Only maps with keys that are no text have no JSON form; a message has none.
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Tagged<'a, T> {
            role: &'a str,
            #[serde(flatten)]
            body: &'a T,
        }
        fn tagged<S: Serializer>(
            serializer: S,
            role: &str,
            body: &impl Serialize,
        ) -> Result<S::Ok, S::Error> {
            Tagged { role, body }.serialize(serializer)
        }
        let role = self.role();
        match self {
            Self::System(m) => tagged(serializer, role, m),
            Self::User(m) => tagged(serializer, role, m),
            Self::Assistant(m) => tagged(serializer, role, m),
            Self::ToolResult(m) => tagged(serializer, role, m),
            Self::BashExecution(m) => tagged(serializer, role, m),
            Self::Custom(m) => tagged(serializer, role, m),
            Self::BranchSummary(m) => tagged(serializer, role, m),
            Self::CompactionSummary(m) => tagged(serializer, role, m),
            Self::Unknown(value) => value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from_value(Value::deserialize(deserializer)?))
    }
}

/// Text or blocks, as `content` may be either in a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Blocks in order.
    Blocks(Vec<Block>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Blocks(Vec::new())
    }
}

impl Content {
    /// Returns the texts of all text blocks (or the text itself) joined by `separator`.
    pub fn text(&self, separator: &str) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Blocks(blocks) => {
                let texts: Vec<&str> = blocks.iter().filter_map(Block::as_text).collect();
                texts.join(separator)
            }
        }
    }

    /// Returns the content as blocks; non-empty text becomes one text block.
    pub fn into_blocks(self) -> Vec<Block> {
        match self {
            Self::Text(text) if text.is_empty() => Vec::new(),
            Self::Text(text) => vec![Block::text(text)],
            Self::Blocks(blocks) => blocks,
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Null => Ok(Self::default()),
            Value::String(text) => Ok(Self::Text(text)),
            Value::Array(items) => Ok(Self::Blocks(
                items.into_iter().map(Block::from_value).collect(),
            )),
            other => Err(serde::de::Error::custom(format!(
                "content is text or a list, not {other}"
            ))),
        }
    }
}

/// One block of content, tagged by `type`.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Text.
    Text(TextBlock),
    /// A picture, base64.
    Image(ImageBlock),
    /// What a model thought before answering.
    Thinking(ThinkingBlock),
    /// A call of a tool.
    ToolCall(ToolCall),
    /// A block type this version does not know; kept as it came, never sent.
    Unknown(Value),
}

impl Block {
    /// Makes a text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextBlock {
            text: text.into(),
            ..TextBlock::default()
        })
    }

    /// Makes an image block from base64 data.
    pub fn image(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::Image(ImageBlock {
            data: data.into(),
            mime_type: mime_type.into(),
            extra: Map::new(),
        })
    }

    /// Returns the text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(block) => Some(&block.text),
            _ => None,
        }
    }

    /// Reads a block from JSON; one that does not fit its type is kept as [`Block::Unknown`].
    pub fn from_value(value: Value) -> Self {
        let block = match value.get("type").and_then(Value::as_str) {
            Some("text") => TextBlock::deserialize(&value).ok().map(Self::Text),
            Some("image") => ImageBlock::deserialize(&value).ok().map(Self::Image),
            Some("thinking") => ThinkingBlock::deserialize(&value).ok().map(Self::Thinking),
            Some("toolCall") => ToolCall::deserialize(&value).ok().map(Self::ToolCall),
            _ => None,
        };
        block.unwrap_or(Self::Unknown(value))
    }
}

impl Serialize for Block {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Tagged<'a, T> {
            r#type: &'static str,
            #[serde(flatten)]
            body: &'a T,
        }
        match self {
            Self::Text(body) => Tagged {
                r#type: "text",
                body,
            }
            .serialize(serializer),
            Self::Image(body) => Tagged {
                r#type: "image",
                body,
            }
            .serialize(serializer),
            Self::Thinking(body) => Tagged {
                r#type: "thinking",
                body,
            }
            .serialize(serializer),
            Self::ToolCall(body) => Tagged {
                r#type: "toolCall",
                body,
            }
            .serialize(serializer),
            Self::Unknown(value) => value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from_value(Value::deserialize(deserializer)?))
    }
}

/// Drops the tag that the surrounding enum writes again.
fn extra_without_tags<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Map<String, Value>, D::Error> {
    let mut map = Map::deserialize(deserializer)?;
    map.shift_remove("role");
    map.shift_remove("type");
    Ok(map)
}

macro_rules! body {
    ($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident : $ty:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($(#[$fmeta])* pub $field: $ty,)*
            /// Keys this version does not know, kept for the round trip.
            #[serde(flatten, deserialize_with = "extra_without_tags")]
            pub extra: Map<String, Value>,
        }
    };
}

body! {
    /// Text inside a message.
    TextBlock {
        /// The text.
        text: String,
        /// Opaque to us; the provider that made it wants it back.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        text_signature: Option<String>,
    }
}
body! {
    /// A picture.
    ImageBlock {
        /// Base64 of the encoded picture.
        data: String,
        /// For example `image/png`.
        mime_type: String,
    }
}
body! {
    /// Thinking of a model.
    ThinkingBlock {
        /// The visible text, empty when redacted.
        thinking: String,
        /// Opaque; needed for replay to the same provider.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        thinking_signature: Option<String>,
        /// True when the provider hides the text.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        redacted: Option<bool>,
    }
}
body! {
    /// A tool call inside an assistant message.
    ToolCall {
        /// Id that the result names.
        id: String,
        /// Tool name.
        name: String,
        /// Arguments, an object; `{}` when `arguments_error` is set.
        #[serde(default = "empty_object")]
        arguments: Value,
        /// Why the argument text could not be read; the call never runs then.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        arguments_error: Option<String>,
        /// Opaque thought signature (Gemini).
        #[serde(skip_serializing_if = "Option::is_none", default)]
        thought_signature: Option<String>,
        /// Tool namespace, when the provider uses them.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        namespace: Option<String>,
    }
}

fn empty_object() -> Value {
    Value::Object(Map::new())
}

body! {
    /// Prompt sections and tool declarations.
    SystemMessage {
        /// Free text, normally empty.
        #[serde(default, deserialize_with = "system_content")]
        content: Content,
        /// Named prompt sections; `null` removes one.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        sections: Option<Map<String, Value>>,
        /// Tools that become available here.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        tools_added: Option<Vec<ToolDeclaration>>,
        /// Tools that stop being available here.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        tools_removed: Option<Vec<ToolName>>,
        /// Unix milliseconds.
        #[serde(default)]
        timestamp: i64,
    }
}

fn system_content<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
    Ok(match Option::<Content>::deserialize(deserializer)? {
        Some(content) => content,
        None => Content::Text(String::new()),
    })
}

body! {
    /// Name of a removed tool.
    ToolName {
        /// Tool name.
        name: String,
    }
}
body! {
    /// What a model is told about a tool.
    ToolDeclaration {
        /// Tool name.
        name: String,
        /// For the model.
        description: String,
        /// JSON schema of the arguments.
        parameters: Value,
        /// `false`, or how strictly the provider should sample arguments.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        constrained_sampling: Option<Value>,
    }
}
body! {
    /// What a person said.
    UserMessage {
        /// Text or blocks.
        #[serde(default)]
        content: Content,
        /// Unix milliseconds.
        #[serde(default)]
        timestamp: i64,
    }
}
body! {
    /// What a model answered.
    AssistantMessage {
        /// Text, thinking and tool calls in order.
        #[serde(default, deserialize_with = "blocks_or_null")]
        content: Vec<Block>,
        /// Wire API, for example `openai-completions`.
        #[serde(default)]
        api: String,
        /// Provider id.
        #[serde(default)]
        provider: String,
        /// Model id that was asked.
        #[serde(default)]
        model: String,
        /// Model id that answered, when it is another one.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        response_model: Option<String>,
        /// The provider's id of the response.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        response_id: Option<String>,
        /// Requested thinking level, `off` when none.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        thinking_level: Option<String>,
        /// What the provider was told for it.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        provider_thinking_level: Option<String>,
        /// Notes of the provider layer.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        diagnostics: Option<Vec<Value>>,
        /// Tokens and cost.
        #[serde(default)]
        usage: Usage,
        /// Why it ended.
        #[serde(default)]
        stop_reason: StopReason,
        /// One line for a person when `stop_reason` is error or aborted.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        error_message: Option<String>,
        /// The provider's own word for the stop reason.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        raw_stop_reason: Option<String>,
        /// Whether the provider says the turn is over.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        end_turn: Option<bool>,
        /// State of a deferred response.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        deferred: Option<Value>,
        /// Unix milliseconds when the request started.
        #[serde(default)]
        timestamp: i64,
        /// Milliseconds from request to end.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        duration_ms: Option<u64>,
        /// Milliseconds the server asked to wait before another attempt; in memory only.
        #[serde(skip)]
        retry_after_ms: Option<u64>,
    }
}

fn blocks_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Block>, D::Error> {
    Ok(Option::<Content>::deserialize(deserializer)?
        .unwrap_or_default()
        .into_blocks())
}

impl AssistantMessage {
    /// Returns the tool calls in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|block| match block {
            Block::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

body! {
    /// What a tool call gave.
    ToolResultMessage {
        /// The call it answers.
        tool_call_id: String,
        /// Tool name.
        #[serde(default)]
        tool_name: String,
        /// Text and images for the model.
        #[serde(default, deserialize_with = "blocks_or_null")]
        content: Vec<Block>,
        /// For faces and programs, never sent to the model.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        details: Option<Value>,
        /// Usage of model calls the tool made.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        usage: Option<Usage>,
        /// Calls the tool made itself.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        nested_calls: Option<Value>,
        /// Whether the model should read it as a failure.
        #[serde(default)]
        is_error: bool,
        /// Milliseconds of the tool body; absent when it never ran.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        duration_ms: Option<u64>,
        /// Unix milliseconds.
        #[serde(default)]
        timestamp: i64,
    }
}
body! {
    /// A shell command of the person.
    BashExecutionMessage {
        /// The command.
        #[serde(default)]
        command: String,
        /// Cleaned output, tail kept.
        #[serde(default)]
        output: String,
        /// Exit code when it ended by itself.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        exit_code: Option<i64>,
        /// Whether it was stopped.
        #[serde(default)]
        cancelled: bool,
        /// Whether output is missing here.
        #[serde(default)]
        truncated: bool,
        /// File with everything.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        full_output_path: Option<String>,
        /// True for `!!`: the model never sees it.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        exclude_from_context: Option<bool>,
        /// Unix milliseconds.
        #[serde(default)]
        timestamp: i64,
    }
}
body! {
    /// A message of an extension.
    CustomMessage {
        /// Which extension message it is.
        #[serde(default)]
        custom_type: String,
        /// Text or blocks for the model.
        #[serde(default)]
        content: Content,
        /// Whether faces show it.
        #[serde(default)]
        display: bool,
        /// For faces and programs.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        details: Option<Value>,
        /// Unix milliseconds.
        #[serde(default)]
        timestamp: i64,
    }
}
body! {
    /// Summary of a branch that was left.
    BranchSummaryMessage {
        /// The summary.
        summary: String,
        /// The leaf that was left, or `root`.
        #[serde(default)]
        from_id: String,
        /// Unix milliseconds.
        #[serde(default)]
        timestamp: i64,
    }
}
body! {
    /// Summary that replaced older history.
    CompactionSummaryMessage {
        /// The summary.
        summary: String,
        /// Tokens of the context before.
        #[serde(default)]
        tokens_before: u64,
        /// Unix milliseconds.
        #[serde(default)]
        timestamp: i64,
    }
}
body! {
    /// Tokens of one answer. `input` excludes cached tokens, `output` includes `reasoning`.
    Usage {
        /// Uncached prompt tokens.
        #[serde(default)]
        input: u64,
        /// Answer tokens.
        #[serde(default)]
        output: u64,
        /// Prompt tokens read from the cache.
        #[serde(default)]
        cache_read: u64,
        /// Prompt tokens written to the cache.
        #[serde(default)]
        cache_write: u64,
        /// Part of `cache_write` with the one-hour lifetime.
        #[serde(rename = "cacheWrite1h", skip_serializing_if = "Option::is_none", default)]
        cache_write_1h: Option<u64>,
        /// Part of `output` spent on thinking.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        reasoning: Option<u64>,
        /// All tokens.
        #[serde(default)]
        total_tokens: u64,
        /// USD.
        #[serde(default)]
        cost: Cost,
    }
}
body! {
    /// Cost in USD.
    Cost {
        /// Of uncached prompt tokens.
        #[serde(default, serialize_with = "js_number")]
        input: f64,
        /// Of answer tokens.
        #[serde(default, serialize_with = "js_number")]
        output: f64,
        /// Of cache reads.
        #[serde(default, serialize_with = "js_number")]
        cache_read: f64,
        /// Of cache writes.
        #[serde(default, serialize_with = "js_number")]
        cache_write: f64,
        /// Sum.
        #[serde(default, serialize_with = "js_number")]
        total: f64,
        /// True when the provider itself stated the sum.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        total_from_provider: Option<Value>,
    }
}

/// Writes a whole number without a fraction, as JavaScript does (`0`, not `0.0`).
pub fn js_number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f64(*value)
    }
}

/// Why an answer ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// Still streaming; never in a file.
    Pending,
    /// The model was done.
    #[default]
    Stop,
    /// Output limit.
    Length,
    /// The model wants tools.
    ToolUse,
    /// The request failed.
    Error,
    /// The person stopped it.
    Aborted,
    /// The answer comes later.
    Deferred,
    /// A word of a newer version, kept.
    #[serde(untagged)]
    Other(String),
}
