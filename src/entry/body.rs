//! Typed content of entries, read on demand. Fields of a wrong type read as absent: an odd entry is never lost.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Kind;
use crate::ai::{Content, Message, SystemMessage, Usage};

/// Typed content of an entry.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "made one at a time and taken apart at once; most are messages, the largest"
)]
pub enum Body {
    /// A message.
    Message(Message),
    /// Another model.
    ModelChange {
        /// Provider id.
        provider: String,
        /// Model id.
        model_id: String,
    },
    /// Another thinking level; unknown words are kept.
    ThinkingLevelChange {
        /// The word.
        level: String,
    },
    /// A summary of older history.
    Compaction(Box<Compaction>),
    /// A summary of a branch that was left.
    BranchSummary(BranchSummary),
    /// Omits (`None`) or replaces the content of an entry for the model.
    ContextEdit {
        /// The entry meant.
        target: String,
        /// What the model reads instead.
        replacement: Option<Content>,
    },
    /// Extension state.
    Custom {
        /// Which extension state it is.
        custom_type: String,
        /// The state.
        data: Option<Value>,
    },
    /// A message of an extension.
    CustomMessage(CustomEntry),
    /// Sets or clears a label.
    Label {
        /// The entry meant.
        target: String,
        /// The label; `None` clears.
        label: Option<String>,
    },
    /// Names the session.
    SessionInfo {
        /// The name, trimmed; `None` clears.
        name: Option<String>,
    },
    /// Tokens spent outside of answers.
    Usage {
        /// What for.
        kind: String,
        /// Provider id.
        provider: String,
        /// Model id.
        model: String,
        /// The tokens.
        usage: Usage,
    },
    /// Anything else, also a message entry without a message.
    Unknown(Value),
}

/// Content of a `compaction` entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compaction {
    /// What stands for the older history.
    pub summary: String,
    /// First entry before this one that stays in the context; `None` or unknown: none does.
    pub first_kept: Option<String>,
    /// Tokens of the context before.
    pub tokens_before: u64,
    /// `{readFiles, modifiedFiles}`, or what an extension stored.
    pub details: Option<Value>,
    /// What the summary cost.
    pub usage: Option<Usage>,
    /// Whether an extension made it.
    pub from_hook: bool,
    /// The system message as it stood.
    pub system_message: Option<SystemMessage>,
}

/// Content of a `branch_summary` entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BranchSummary {
    /// The leaf that was left, or `root`.
    pub from_id: String,
    /// The summary.
    pub summary: String,
    /// `{readFiles, modifiedFiles}`, or what an extension stored.
    pub details: Option<Value>,
    /// What the summary cost.
    pub usage: Option<Usage>,
    /// Whether an extension made it.
    pub from_hook: bool,
}

/// Content of a `custom_message` entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CustomEntry {
    /// Which extension message it is.
    pub custom_type: String,
    /// For the model.
    pub content: Content,
    /// Whether faces show it.
    pub display: bool,
    /// For faces and programs.
    pub details: Option<Value>,
}

impl Body {
    pub(super) fn read(kind: Kind, value: Value) -> Self {
        let Value::Object(mut fields) = value else {
            return Self::Unknown(value);
        };
        match kind {
            Kind::Message => match fields.get_mut("message").map(Value::take) {
                Some(message @ Value::Object(_)) => Self::Message(Message::from_value(message)),
                _ => Self::Unknown(Value::Object(fields)),
            },
            Kind::ModelChange => Self::ModelChange {
                provider: string(&fields, "provider"),
                model_id: string(&fields, "modelId"),
            },
            Kind::ThinkingLevelChange => Self::ThinkingLevelChange {
                level: string(&fields, "thinkingLevel"),
            },
            Kind::Compaction => Self::Compaction(Box::new(Compaction::read(&mut fields))),
            Kind::BranchSummary => Self::BranchSummary(BranchSummary {
                from_id: string(&fields, "fromId"),
                summary: string(&fields, "summary"),
                details: taken(&mut fields, "details"),
                usage: usage(&mut fields),
                from_hook: flag(&fields, "fromHook"),
            }),
            Kind::ContextEdit => Self::context_edit(&mut fields),
            Kind::Custom => Self::Custom {
                custom_type: string(&fields, "customType"),
                data: taken(&mut fields, "data"),
            },
            Kind::CustomMessage => Self::CustomMessage(CustomEntry {
                custom_type: string(&fields, "customType"),
                content: content(&mut fields).unwrap_or_default(),
                display: flag(&fields, "display"),
                details: taken(&mut fields, "details"),
            }),
            Kind::Label => Self::Label {
                target: string(&fields, "targetId"),
                label: Some(string(&fields, "label")).filter(|label| !label.is_empty()),
            },
            Kind::SessionInfo => Self::SessionInfo {
                name: Some(string(&fields, "name").trim().to_owned())
                    .filter(|name| !name.is_empty()),
            },
            Kind::Usage => Self::Usage {
                kind: string(&fields, "kind"),
                provider: string(&fields, "provider"),
                model: string(&fields, "model"),
                usage: usage(&mut fields).unwrap_or_default(),
            },
            Kind::Unknown => Self::Unknown(Value::Object(fields)),
        }
    }

    fn context_edit(fields: &mut Map<String, Value>) -> Self {
        let target = string(fields, "targetId");
        match fields.get_mut("replacement").map(Value::take) {
            Some(Value::Object(mut replacement)) => match content(&mut replacement) {
                Some(content) => Self::ContextEdit {
                    target,
                    replacement: Some(content),
                },
                None => Self::Unknown(Value::Object(std::mem::take(fields))),
            },
            Some(Value::Null) => Self::ContextEdit {
                target,
                replacement: None,
            },
            _ => Self::Unknown(Value::Object(std::mem::take(fields))),
        }
    }
}

impl Compaction {
    fn read(fields: &mut Map<String, Value>) -> Self {
        let system = taken(fields, "systemMessage").map(Message::from_value);
        Self {
            summary: string(fields, "summary"),
            first_kept: fields
                .get("firstKeptEntryId")
                .and_then(Value::as_str)
                .map(str::to_owned),
            tokens_before: fields.get("tokensBefore").map_or(0, whole),
            details: taken(fields, "details"),
            usage: usage(fields),
            from_hook: flag(fields, "fromHook"),
            system_message: match system {
                Some(Message::System(message)) => Some(message),
                _ => None,
            },
        }
    }
}

fn whole(value: &Value) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, which is what a token count wants"
    )]
    let rounded = value.as_f64().unwrap_or(0.0) as u64;
    value.as_u64().unwrap_or(rounded)
}

fn string(fields: &Map<String, Value>, key: &str) -> String {
    fields
        .get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn flag(fields: &Map<String, Value>, key: &str) -> bool {
    fields.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn taken(fields: &mut Map<String, Value>, key: &str) -> Option<Value> {
    fields
        .get_mut(key)
        .map(Value::take)
        .filter(|value| !value.is_null())
}

fn usage(fields: &mut Map<String, Value>) -> Option<Usage> {
    Usage::deserialize(taken(fields, "usage")?).ok()
}

fn content(fields: &mut Map<String, Value>) -> Option<Content> {
    Content::deserialize(taken(fields, "content")?).ok()
}
