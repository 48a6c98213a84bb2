//! From a conversation to the body of a Messages request.

use serde_json::{Map, Value, json};

use crate::ai::ids;
use crate::ai::limits::{ANSWER_TOKENS, thinking_room};
use crate::ai::message::{
    AssistantMessage, Block, Content, ImageBlock, Message, ThinkingBlock, ToolDeclaration,
    ToolResultMessage,
};
use crate::ai::providers::conversation::{Mark, Rules};
use crate::ai::providers::{Body, Call, Retention};
use crate::ai::schema::{self, Strictness};

const VERSION: &str = "2023-06-01";
const INTERLEAVED: &str = "interleaved-thinking-2025-05-14";
const FINE_GRAINED: &str = "fine-grained-tool-streaming-2025-05-14";
const SEE_IMAGE: &str = "(see attached image)";
const IMAGE_BELOW: &str = "(image attached after the tool results)";

/// Builds the request.
pub(super) fn build(call: &Call) -> Result<Body, String> {
    let offer = call.offer();
    let marker = cache_marker(call);
    let mark_end =
        |elements: &mut [Value]| marker.as_ref().is_some_and(|it| mark_last(elements, it));
    let conversation = call.conversation(&Rules {
        rename: &|id, _| ids::plain(id),
        convert: &|prepared, _| messages(call, prepared),
        mark: marker.as_ref().map(|_| &mark_end as Mark<'_>),
        variant: String::new(),
    })?;
    let thinks = call.thinks();
    let adaptive = call.flag("forceAdaptiveThinking", false);
    let (max_tokens, budget) = room(call, &offer.tools, thinks && !adaptive);
    let mut out = Map::new();
    out.insert("model".into(), call.model.id.as_str().into());
    out.insert("messages".into(), Value::Null);
    out.insert("max_tokens".into(), max_tokens.into());
    out.insert("stream".into(), true.into());
    if !offer.prompt.is_empty() {
        let mut block = json!({"type": "text", "text": offer.prompt});
        mark(&mut block, marker.as_ref());
        out.insert("system".into(), json!([block]));
    }
    let variant = format!("{} {marker:?}", call.plain_tools);
    let tools = call.tools(&offer, variant, &|tools| {
        let tools = tools.iter().map(|tool| tool_json(call, tool));
        let mut tools = tools.collect::<Result<Vec<Value>, String>>()?;
        if let (Some(last), true) = (
            tools.last_mut(),
            call.flag("supportsCacheControlOnTools", true),
        ) {
            mark(last, marker.as_ref());
        }
        Ok((tools.into(), false))
    })?;
    let has_tools = !offer.tools.is_empty();
    if has_tools {
        out.insert("tools".into(), Value::Null);
    }
    thinking_fields(call, thinks, adaptive, budget, &mut out);
    if let (Some(temperature), false, true) = (
        call.options.temperature,
        thinks,
        call.flag("supportsTemperature", true),
    ) {
        out.insert("temperature".into(), temperature.into());
    }
    if let Some(user) = call
        .options
        .extra
        .get("metadata")
        .and_then(|map| map.get("user_id"))
    {
        out.insert("metadata".into(), json!({"user_id": user}));
    }
    match &call.options.tool_choice {
        Some(Value::String(kind)) => {
            out.insert("tool_choice".into(), json!({"type": kind}));
        }
        Some(choice) => {
            out.insert("tool_choice".into(), choice.clone());
        }
        None => {}
    }
    call.sampling(&mut out);
    Ok(Body {
        path: "/v1/messages".to_owned(),
        headers: headers(call, thinks && !adaptive, has_tools),
        json: out,
        member: "messages",
        conversation,
        tools: Some(tools),
    })
}

/// Output limit and thinking budget.
fn room(call: &Call, tools: &[ToolDeclaration], budgeted: bool) -> (u64, u64) {
    if !budgeted {
        return (call.max_tokens(tools), 0);
    }
    let (max, budget) = thinking_room(
        call.model.max_tokens,
        call.options.max_tokens,
        call.budget(),
    );
    let max = call.fit(max, tools);
    let budget = budget.min(max.saturating_sub(ANSWER_TOKENS));
    (max, if budget == 0 { ANSWER_TOKENS } else { budget })
}

fn headers(call: &Call, interleaved: bool, has_tools: bool) -> Vec<(&'static str, String)> {
    let mut out = vec![
        ("accept", "application/json".to_owned()),
        ("anthropic-version", VERSION.to_owned()),
    ];
    let mut betas = Vec::new();
    if interleaved {
        betas.push(INTERLEAVED);
    }
    if has_tools && !call.flag("supportsEagerToolInputStreaming", true) {
        betas.push(FINE_GRAINED);
    }
    if !betas.is_empty() {
        out.push(("anthropic-beta", betas.join(",")));
    }
    let router = call.model.provider == "openrouter";
    if let (Some(session), true) = (
        call.cache_session(),
        call.flag("sendSessionAffinityHeaders", router),
    ) {
        let name = if router {
            "x-session-id"
        } else {
            "x-session-affinity"
        };
        out.push((name, session.to_owned()));
    }
    out
}

fn thinking_fields(
    call: &Call,
    thinks: bool,
    adaptive: bool,
    budget: u64,
    out: &mut Map<String, Value>,
) {
    if !call.model.reasoning {
        return;
    }
    if !thinks {
        if call.off_word().is_some() {
            out.insert("thinking".into(), json!({"type": "disabled"}));
        }
        return;
    }
    if !adaptive {
        let thinking = json!({"type": "enabled", "budget_tokens": budget, "display": "summarized"});
        out.insert("thinking".into(), thinking);
        return;
    }
    out.insert(
        "thinking".into(),
        json!({"type": "adaptive", "display": "summarized"}),
    );
    let effort = match call.model.level_word(call.level) {
        Some(Some(word)) => word,
        _ => match call.level.as_str() {
            "off" | "minimal" | "low" => "low",
            "medium" => "medium",
            _ => "high",
        },
    };
    out.insert("output_config".into(), json!({"effort": effort}));
}

fn cache_marker(call: &Call) -> Option<Value> {
    match call.retention {
        Retention::None => None,
        Retention::Long if call.flag("supportsLongCacheRetention", true) => {
            Some(json!({"type": "ephemeral", "ttl": "1h"}))
        }
        _ => Some(json!({"type": "ephemeral"})),
    }
}

fn mark(block: &mut Value, marker: Option<&Value>) {
    if let (Some(map), Some(marker)) = (block.as_object_mut(), marker) {
        map.insert("cache_control".into(), marker.clone());
    }
}

/// Marks the last block of the last message, if a user said it. Earlier bytes stay as they were. False when there is no
/// message at all.
fn mark_last(messages: &mut [Value], marker: &Value) -> bool {
    let Some(last) = messages.last_mut() else {
        return false;
    };
    if last.get("role").and_then(Value::as_str) != Some("user") {
        return true;
    }
    let Some(content) = last.get_mut("content") else {
        return true;
    };
    if let Some(text) = content.as_str() {
        *content = json!([{"type": "text", "text": text}]);
    }
    if let Some(block) = content.as_array_mut().and_then(|list| list.last_mut()) {
        mark(block, Some(marker));
    }
    true
}

fn messages(call: &Call, messages: &[Message]) -> Vec<Value> {
    let mut out = Vec::new();
    let mut results: Vec<&ToolResultMessage> = Vec::new();
    for message in messages {
        if let Message::ToolResult(result) = message {
            results.push(result);
            continue;
        }
        push_results(&mut out, &mut results);
        match message {
            Message::User(user) => out.extend(user_json(&user.content)),
            Message::Assistant(answer) => out.extend(assistant_json(call, answer)),
            _ => {}
        }
    }
    push_results(&mut out, &mut results);
    out
}

fn image_json(image: &ImageBlock) -> Value {
    let source = json!({"type": "base64", "media_type": image.mime_type, "data": image.data});
    json!({"type": "image", "source": source})
}

/// Blank texts go, images stay.
fn content_json(blocks: &[Block]) -> Vec<Value> {
    let part = |block: &Block| match block {
        Block::Text(text) if text.text.trim().is_empty() => None,
        Block::Text(text) => Some(json!({"type": "text", "text": text.text})),
        Block::Image(image) => Some(image_json(image)),
        _ => None,
    };
    blocks.iter().filter_map(part).collect()
}

fn user_json(content: &Content) -> Option<Value> {
    match content {
        Content::Text(text) if text.trim().is_empty() => None,
        Content::Text(text) => Some(json!({"role": "user", "content": text})),
        Content::Blocks(blocks) => {
            let parts = content_json(blocks);
            (!parts.is_empty()).then(|| json!({"role": "user", "content": parts}))
        }
    }
}

fn assistant_json(call: &Call, answer: &AssistantMessage) -> Option<Value> {
    let parts: Vec<Value> = answer
        .content
        .iter()
        .filter_map(|block| answer_block(call, block))
        .collect();
    (!parts.is_empty()).then(|| json!({"role": "assistant", "content": parts}))
}

fn answer_block(call: &Call, block: &Block) -> Option<Value> {
    match block {
        Block::Text(text) if text.text.trim().is_empty() => None,
        Block::Text(text) => Some(json!({"type": "text", "text": text.text})),
        Block::Thinking(thinking) => thinking_json(call, thinking),
        Block::ToolCall(call) => Some(
            json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}),
        ),
        _ => None,
    }
}

fn thinking_json(call: &Call, block: &ThinkingBlock) -> Option<Value> {
    let signature = block
        .thinking_signature
        .as_deref()
        .filter(|text| !text.trim().is_empty());
    if block.redacted == Some(true) {
        return signature.map(|data| json!({"type": "redacted_thinking", "data": data}));
    }
    if let Some(signature) = signature {
        return Some(
            json!({"type": "thinking", "thinking": block.thinking, "signature": signature}),
        );
    }
    if block.thinking.trim().is_empty() {
        return None;
    }
    if call.flag("allowEmptySignature", false) {
        return Some(json!({"type": "thinking", "thinking": block.thinking, "signature": ""}));
    }
    Some(json!({"type": "text", "text": block.thinking}))
}

/// Consecutive results are one user message. Images of failed calls follow all results: an error may hold only text.
fn push_results(out: &mut Vec<Value>, results: &mut Vec<&ToolResultMessage>) {
    if results.is_empty() {
        return;
    }
    let mut parts = Vec::new();
    let mut below = Vec::new();
    for result in results.drain(..) {
        let images: Vec<Value> = result
            .content
            .iter()
            .filter_map(|block| match block {
                Block::Image(image) => Some(image_json(image)),
                _ => None,
            })
            .collect();
        let content = if images.is_empty() {
            joined(&result.content, "").into()
        } else if result.is_error {
            let (id, name) = (&result.tool_call_id, &result.tool_name);
            below.push(json!({"type": "text", "text": format!("Images of the failed call {id} ({name}):")}));
            below.extend(images);
            joined(&result.content, IMAGE_BELOW).into()
        } else {
            let mut content = content_json(&result.content);
            if !content
                .iter()
                .any(|part| part.get("type").and_then(Value::as_str) == Some("text"))
            {
                content.insert(0, json!({"type": "text", "text": SEE_IMAGE}));
            }
            Value::Array(content)
        };
        parts.push(json!({
            "type": "tool_result", "tool_use_id": result.tool_call_id, "content": content, "is_error": result.is_error,
        }));
    }
    parts.append(&mut below);
    out.push(json!({"role": "user", "content": parts}));
}

/// Joins the texts; each run of images becomes `placeholder`.
fn joined(blocks: &[Block], placeholder: &str) -> String {
    let mut texts: Vec<&str> = Vec::new();
    let mut in_run = false;
    for block in blocks {
        let image = matches!(block, Block::Image(_));
        if image && !in_run {
            texts.push(placeholder);
        }
        texts.extend(block.as_text());
        in_run = image;
    }
    texts.join("\n")
}

fn tool_json(call: &Call, tool: &ToolDeclaration) -> Result<Value, String> {
    let wanted = schema::strictness(tool);
    let can = call.flag("supportsStrictTools", false)
        && (!call.plain_tools || wanted == Strictness::Require);
    let strict = match wanted {
        Strictness::Plain => None,
        _ if !can => None,
        _ => schema::strict(&tool.parameters).filter(schema::anthropic_strict_ok),
    };
    if wanted == Strictness::Require && strict.is_none() {
        return Err(format!(
            "tool `{}` wants strict arguments, which {}/{} cannot give for its schema",
            tool.name, call.model.provider, call.model.id
        ));
    }
    let mut out = Map::new();
    out.insert("name".into(), tool.name.as_str().into());
    out.insert("description".into(), tool.description.as_str().into());
    if call.flag("supportsEagerToolInputStreaming", true) {
        out.insert("eager_input_streaming".into(), true.into());
    }
    if strict.is_some() {
        out.insert("strict".into(), true.into());
    }
    out.insert(
        "input_schema".into(),
        strict.unwrap_or_else(|| schema::anthropic_input(&tool.parameters)),
    );
    Ok(out.into())
}
