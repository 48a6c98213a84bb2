//! Answers of handlers, read into what the runtime works with. What cannot be read is as if it had not been said.

use serde_json::{Map, Value, json};

use crate::agent::CallOutcome;
use crate::ai::{Block, CustomMessage, Message, Usage};
use crate::extensions::compose::{Composed, HandlerError};
use crate::extensions::{
    CompactVerdict, Discovered, Draft, Input, InputVerdict, OwnSummary, RunPlan, RunStart,
    TreeVerdict,
};

fn text_at(value: &Value, key: &str) -> Option<String> {
    value.get(key)?.as_str().map(str::to_owned)
}

fn texts_at(value: &Value, key: &str) -> Option<Vec<String>> {
    let list = value.get(key)?.as_array()?.iter();
    Some(list.filter_map(Value::as_str).map(str::to_owned).collect())
}

fn is_true(value: &Value, key: &str) -> bool {
    value.get(key) == Some(&Value::Bool(true))
}

fn usage_at(value: &Value) -> Option<Usage> {
    serde_json::from_value(value.get("usage")?.clone()).ok()
}

fn blocks(value: &Value) -> Option<Vec<Block>> {
    let items = value.as_array()?.iter();
    Some(items.cloned().map(Block::from_value).collect())
}

pub(super) fn discovered(result: &Value) -> Discovered {
    let paths = |key: &str| {
        let list = result.get(key).and_then(Value::as_array);
        let items = list.into_iter().flatten();
        items.filter_map(|item| text_at(item, "path")).collect()
    };
    Discovered {
        skills: paths("skillPaths"),
        prompts: paths("promptPaths"),
    }
}

pub(super) fn input(result: &Value, input: Input) -> InputVerdict {
    match text_at(result, "action").as_deref() {
        Some("handled") => InputVerdict::Handled,
        Some("transform") => InputVerdict::Go {
            text: text_at(result, "text").unwrap_or(input.text),
            images: result.get("images").and_then(blocks).unwrap_or_default(),
        },
        _ => InputVerdict::Go {
            text: input.text,
            images: input.images,
        },
    }
}

/// What `before_agent_start` says of the message that starts the run.
pub(super) fn run_fields(plan: &RunPlan) -> Map<String, Value> {
    let mut out = Map::new();
    match &plan.message {
        Message::User(user) => {
            out.insert("messageType".to_owned(), "user".into());
            out.insert("prompt".to_owned(), user.content.text("").into());
            let content = user.content.clone().into_blocks().into_iter();
            let images: Vec<Block> = content.filter(|it| matches!(it, Block::Image(_))).collect();
            if !images.is_empty() {
                out.insert("images".to_owned(), json!(images));
            }
        }
        other => {
            out.insert("messageType".to_owned(), "custom".into());
            out.insert("message".to_owned(), other.to_value());
        }
    }
    out
}

/// What handlers of `before_agent_start` left, compared with what they were given.
pub(super) fn run_start(
    composed: &Composed,
    given: &Map<String, Value>,
) -> (RunStart, Vec<HandlerError>) {
    let mut start = RunStart::default();
    let mut errors = Vec::new();
    let messages = composed.result.get("messages").and_then(Value::as_array);
    for message in messages.into_iter().flatten() {
        match custom_message(message) {
            Ok(message) => start.messages.push(message),
            Err(error) => errors.push(HandlerError {
                extension: String::new(),
                error,
            }),
        }
    }
    let none = Value::Null;
    let options = composed.event.get("systemPromptOptions").unwrap_or(&none);
    if let Some(sections) = options.get("sections").and_then(Value::as_object) {
        let texts = sections.iter();
        let texts =
            texts.filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())));
        start.sections = texts.collect();
    }
    start.guidelines = texts_at(options, "promptGuidelines").unwrap_or_default();
    if options.get("selectedTools") != given.get("selectedTools") {
        start.tools = texts_at(options, "selectedTools");
    }
    let answered = text_at(&composed.result, "systemPrompt");
    start.forced_prompt = answered.or_else(|| text_at(options, "forceSystemPrompt"));
    (start, errors)
}

fn custom_message(value: &Value) -> Result<CustomMessage, String> {
    let wrong = || "a message of an extension needs a customType".to_owned();
    let mut fields = value.as_object().cloned().ok_or_else(wrong)?;
    if !fields.get("customType").is_some_and(Value::is_string) {
        return Err(wrong());
    }
    if fields.get("content").is_none_or(Value::is_null) {
        fields.insert("content".to_owned(), json!([]));
    }
    fields.entry("display").or_insert(Value::Bool(true));
    fields.insert("role".to_owned(), "custom".into());
    fields.insert(
        "timestamp".to_owned(),
        jiff::Timestamp::now().as_millisecond().into(),
    );
    match Message::from_value(Value::Object(fields)) {
        Message::Custom(message) => Ok(message),
        _ => Err("a message of an extension has fields of a wrong kind".to_owned()),
    }
}

/// Reads the entries that handlers of a boundary propose.
pub(super) fn drafts(entries: &Value) -> Result<Vec<Draft>, String> {
    let entries = entries.as_array().map(Vec::as_slice).unwrap_or_default();
    entries.iter().map(draft).collect()
}

fn draft(entry: &Value) -> Result<Draft, String> {
    let kind = text_at(entry, "type").unwrap_or_default();
    let need = |key: &str| {
        let missing = || format!("an entry of type {kind:?} needs a text in `{key}`");
        text_at(entry, key).ok_or_else(missing)
    };
    match kind.as_str() {
        "custom" => Ok(Draft::Custom {
            custom_type: need("customType")?,
            data: entry.get("data").cloned(),
        }),
        "custom_message" => Ok(Draft::Message(custom_message(entry)?)),
        "context_edit" => Ok(Draft::Edit {
            target: need("targetId")?,
            replacement: entry.get("replacement").cloned().unwrap_or_default(),
        }),
        "compaction" => Ok(Draft::Compaction {
            summary: need("summary")?,
            first_kept: text_at(entry, "firstKeptEntryId"),
            details: entry.get("details").cloned(),
            usage: usage_at(entry).map(Box::new),
        }),
        _ => Err(format!(
            "an entry of type {kind:?} cannot be added here: use custom, custom_message, context_edit or compaction"
        )),
    }
}

pub(super) fn tool_result(result: &Value, mut outcome: CallOutcome) -> CallOutcome {
    let output = &mut outcome.output;
    if let Some(content) = result.get("content").and_then(blocks) {
        output.content = content;
        output.structured_content = None;
    }
    if let Some(details) = result.get("details") {
        output.details = Some(details.clone());
    }
    if let Some(content) = result.get("structuredContent") {
        output.structured_content = Some(content.clone());
    }
    if let Some(failed) = result.get("isError").and_then(Value::as_bool) {
        output.is_error = failed;
    }
    output.usage = usage_at(result).or(output.usage.take());
    outcome
}

fn summary(value: &Value) -> Option<OwnSummary> {
    Some(OwnSummary {
        summary: text_at(value, "summary")?,
        first_kept: text_at(value, "firstKeptEntryId"),
        tokens_before: value
            .get("tokensBefore")
            .and_then(Value::as_u64)
            .unwrap_or(0),
        details: value.get("details").cloned(),
        usage: usage_at(value),
    })
}

/// `preparation` fills in what a summary does not say.
pub(super) fn compact_verdict(result: &Value, preparation: &Value) -> CompactVerdict {
    if is_true(result, "cancel") {
        return CompactVerdict::Cancel;
    }
    let Some(mut own) = result.get("compaction").and_then(summary) else {
        return CompactVerdict::Go;
    };
    if own.tokens_before == 0 {
        let tokens = preparation.get("tokensBefore").and_then(Value::as_u64);
        own.tokens_before = tokens.unwrap_or(0);
    }
    CompactVerdict::Use(Box::new(own))
}

pub(super) fn tree_verdict(result: &Value) -> TreeVerdict {
    TreeVerdict {
        cancel: is_true(result, "cancel"),
        summary: result.get("summary").and_then(summary),
        instructions: text_at(result, "customInstructions"),
        replace_instructions: is_true(result, "replaceInstructions"),
        label: text_at(result, "label"),
    }
}
