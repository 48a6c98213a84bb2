//! From a conversation to the body of a Chat Completions request.

use serde_json::{Map, Value, json};

use super::compat::Compat;
use super::thinking;
use crate::ai::ids;
use crate::ai::message::{
    AssistantMessage, Block, Content, Message, ThinkingBlock, ToolCall, ToolDeclaration,
    ToolResultMessage,
};
use crate::ai::providers::conversation::{Mark, Rules};
use crate::ai::providers::{Body, Call, Retention, cut_chars};
use crate::ai::schema::{self, Strictness};

/// Said for the model where a server wants an assistant message between tool results and the next user message.
const FILLER: &str = "Tool results received.";
const SEE_IMAGE: &str = "(see attached image)";
const NO_OUTPUT: &str = "(no tool output)";
const IMAGES_FOLLOW: &str = "Images returned by the tool calls above:";

/// Builds the request.
pub(crate) fn build(call: &Call) -> Result<Body, String> {
    let compat = Compat::of(call);
    let provider = &call.model.provider;
    let offer = call.offer();
    let max_tokens = call.max_tokens(&offer.tools);
    let long = call.retention == Retention::Long;
    let marker = (compat.anthropic_cache && call.retention != Retention::None)
        .then(|| cache_marker(long && compat.long_retention));
    let mark = |elements: &mut [Value]| marker.as_ref().is_some_and(|it| mark_last(elements, it));
    let mut conversation = call.conversation(&Rules {
        rename: &|id, _| ids::chat(id, provider),
        convert: &|prepared, _| messages(call, &compat, prepared),
        mark: marker.as_ref().map(|_| &mark as Mark<'_>),
        variant: String::new(),
    })?;
    if let Some(mut lead) = system_json(call, &compat, &offer.prompt) {
        if let Some(marker) = &marker {
            mark_text(&mut lead, marker);
        }
        conversation.lead(&lead)?;
    }
    let variant = marker.as_ref().map(Value::to_string).unwrap_or_default();
    let tools = call.tools(&offer, variant, &|tools| {
        let tools = tools.iter().map(|tool| tool_json(tool, &compat, call));
        let mut tools = tools.collect::<Result<Vec<Value>, String>>()?;
        let last = tools.last_mut().and_then(Value::as_object_mut);
        if let (Some(marker), Some(tool)) = (&marker, last) {
            tool.insert("cache_control".into(), marker.clone());
        }
        Ok((tools.into(), false))
    })?;
    let mut out = Map::new();
    out.insert("model".into(), call.model.id.as_str().into());
    out.insert("messages".into(), Value::Null);
    answer_fields(call, &compat, max_tokens, &mut out);
    if !offer.tools.is_empty() || (compat.tools_with_history && conversation.has_tools) {
        out.insert("tools".into(), Value::Null);
        if call.flag("zaiToolStream", false) && !offer.tools.is_empty() {
            out.insert("tool_stream".into(), true.into());
        }
    }
    if let Some(choice) = &call.options.tool_choice {
        out.insert("tool_choice".into(), choice.clone());
    }
    cache_fields(call, &compat, long, &mut out);
    thinking::fields(call, &compat, max_tokens, &mut out);
    routing_fields(call, &mut out);
    call.sampling(&mut out);
    Ok(Body {
        path: "/chat/completions".to_owned(),
        headers: session_headers(call, &compat),
        json: out,
        member: "messages",
        conversation,
        tools: Some(tools),
    })
}

/// Writes how the answer is wanted: streamed, with usage, not stored, how long, how random.
fn answer_fields(call: &Call, compat: &Compat, max_tokens: u64, out: &mut Map<String, Value>) {
    out.insert("stream".into(), true.into());
    if compat.usage_in_streaming {
        out.insert("stream_options".into(), json!({"include_usage": true}));
    }
    if compat.store {
        out.insert("store".into(), false.into());
    }
    out.insert(compat.max_tokens_field.clone(), max_tokens.into());
    if let Some(temperature) = call.options.temperature {
        out.insert("temperature".into(), temperature.into());
    }
}

fn session_headers(call: &Call, compat: &Compat) -> Vec<(&'static str, String)> {
    let (Some(session), Some(format)) = (call.cache_session(), compat.affinity.as_deref()) else {
        return Vec::new();
    };
    let names: &[&'static str] = match format {
        "openrouter" => &["x-session-id"],
        "openai-nosession" => &["x-client-request-id", "x-session-affinity"],
        _ => &["session_id", "x-client-request-id", "x-session-affinity"],
    };
    names
        .iter()
        .map(|name| (*name, session.to_owned()))
        .collect()
}

fn cache_fields(call: &Call, compat: &Compat, long: bool, out: &mut Map<String, Value>) {
    let Some(session) = call.cache_session() else {
        return;
    };
    if compat.sends_cache_key(call, long) {
        out.insert("prompt_cache_key".into(), cut_chars(session, 64).into());
    }
    if long && compat.long_retention {
        out.insert("prompt_cache_retention".into(), "24h".into());
    }
}

fn routing_fields(call: &Call, out: &mut Map<String, Value>) {
    if let Some(routing) = call.compat("openRouterRouting") {
        out.insert("provider".into(), routing.clone());
    }
    if let Some(routing) = call.compat("vercelGatewayRouting") {
        out.insert("providerOptions".into(), json!({"gateway": routing}));
    }
    if let Some(priority) = call.compat("vllmPriority") {
        out.insert("priority".into(), priority.clone());
    }
}

fn system_json(call: &Call, compat: &Compat, system: &str) -> Option<Value> {
    let developer = call.model.reasoning && compat.developer_role;
    let role = if developer { "developer" } else { "system" };
    (!system.is_empty()).then(|| json!({"role": role, "content": system}))
}

fn messages(call: &Call, compat: &Compat, messages: &[Message]) -> Vec<Value> {
    let mut out = Vec::new();
    let mut images: Vec<Value> = Vec::new();
    let mut after_result = false;
    for message in messages {
        if !matches!(message, Message::ToolResult(_)) && !images.is_empty() {
            push_images(&mut out, &mut images);
            after_result = false;
        }
        match message {
            Message::User(user) => {
                if after_result && compat.assistant_after_tool_result {
                    out.push(json!({"role": "assistant", "content": FILLER}));
                }
                out.extend(user_json(&user.content));
            }
            Message::Assistant(answer) => out.extend(assistant_json(call, compat, answer)),
            Message::ToolResult(result) => {
                out.push(result_json(compat, result));
                images.extend(result.content.iter().filter_map(image_json));
            }
            _ => {}
        }
        after_result = matches!(message, Message::ToolResult(_));
    }
    push_images(&mut out, &mut images);
    out
}

fn push_images(out: &mut Vec<Value>, images: &mut Vec<Value>) {
    if !images.is_empty() {
        let mut parts = vec![json!({"type": "text", "text": IMAGES_FOLLOW})];
        parts.append(images);
        out.push(json!({"role": "user", "content": parts}));
    }
}

fn image_json(block: &Block) -> Option<Value> {
    let Block::Image(image) = block else {
        return None;
    };
    let url = format!("data:{};base64,{}", image.mime_type, image.data);
    Some(json!({"type": "image_url", "image_url": {"url": url}}))
}

fn user_json(content: &Content) -> Option<Value> {
    let blocks = match content {
        Content::Text(text) => return Some(json!({"role": "user", "content": text})),
        Content::Blocks(blocks) => blocks,
    };
    let part = |block: &Block| match block {
        Block::Text(text) if text.text.is_empty() => None,
        Block::Text(text) => Some(json!({"type": "text", "text": text.text})),
        other => image_json(other),
    };
    let parts: Vec<Value> = blocks.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| json!({"role": "user", "content": parts}))
}

fn result_json(compat: &Compat, result: &ToolResultMessage) -> Value {
    let texts: Vec<&str> = result.content.iter().filter_map(Block::as_text).collect();
    let has_image = result
        .content
        .iter()
        .any(|block| matches!(block, Block::Image(_)));
    let text = match texts.join("\n") {
        text if !text.is_empty() => text,
        _ if has_image => SEE_IMAGE.to_owned(),
        _ => NO_OUTPUT.to_owned(),
    };
    let mut out = json!({"role": "tool", "content": text, "tool_call_id": result.tool_call_id});
    if let (true, Some(map)) = (
        compat.tool_result_name && !result.tool_name.is_empty(),
        out.as_object_mut(),
    ) {
        map.insert("name".into(), result.tool_name.as_str().into());
    }
    out
}

fn assistant_json(call: &Call, compat: &Compat, answer: &AssistantMessage) -> Option<Value> {
    let texts: Vec<&str> = answer.content.iter().filter_map(Block::as_text).collect();
    let text = texts.concat();
    let thinking: Vec<&ThinkingBlock> = answer
        .content
        .iter()
        .filter_map(|block| match block {
            Block::Thinking(thinking) => Some(thinking),
            _ => None,
        })
        .collect();
    let thoughts: Vec<&str> = thinking
        .iter()
        .map(|block| block.thinking.as_str())
        .filter(|text| !text.trim().is_empty())
        .collect();
    let calls: Vec<Value> = answer.tool_calls().map(call_json).collect();
    let as_text = compat.thinking_as_text && !thoughts.is_empty();
    if text.trim().is_empty() && calls.is_empty() && !as_text {
        return None;
    }
    let content = match text.as_str() {
        text if as_text => text_parts(&thoughts.join("\n\n"), text),
        "" if compat.non_null_content => "".into(),
        "" => Value::Null,
        text => text.into(),
    };
    let mut out = Map::new();
    out.insert("role".into(), "assistant".into());
    out.insert("content".into(), content);
    if !compat.thinking_as_text {
        replay_thinking(&thinking, &thoughts, &mut out);
    }
    if !calls.is_empty() {
        out.insert("tool_calls".into(), calls.into());
    }
    if compat.reasoning_content && call.model.reasoning && !out.contains_key("reasoning_content") {
        out.insert("reasoning_content".into(), "".into());
    }
    Some(out.into())
}

fn call_json(call: &ToolCall) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments.to_string()});
    json!({"id": call.id, "type": "function", "function": function})
}

/// Thinking as a text part before the text.
fn text_parts(thoughts: &str, text: &str) -> Value {
    let parts = [thoughts, text].into_iter().filter(|it| !it.is_empty());
    parts
        .map(|it| json!({"type": "text", "text": it}))
        .collect()
}

/// Gives thinking back in the field it came in; the signature names it or holds the details themselves.
fn replay_thinking(thinking: &[&ThinkingBlock], thoughts: &[&str], out: &mut Map<String, Value>) {
    let signature = |block: &&&ThinkingBlock| block.thinking_signature.is_some();
    let details = thinking.iter().filter(signature).find_map(|block| {
        let text = block.thinking_signature.as_deref()?;
        serde_json::from_str::<Value>(text)
            .ok()
            .filter(Value::is_array)
    });
    if let Some(details) = details {
        out.insert("reasoning_details".into(), details);
        return;
    }
    let first = thinking
        .iter()
        .find(|block| !block.thinking.trim().is_empty());
    let field = first.and_then(|block| block.thinking_signature.as_deref());
    if let Some(field @ ("reasoning" | "reasoning_content" | "reasoning_text")) = field {
        out.insert(field.to_owned(), thoughts.join("\n").into());
    }
}

fn tool_json(tool: &ToolDeclaration, compat: &Compat, call: &Call) -> Result<Value, String> {
    let mut function = Map::new();
    function.insert("name".into(), tool.name.as_str().into());
    function.insert("description".into(), tool.description.as_str().into());
    let wanted = schema::strictness(tool);
    let strict = match wanted {
        Strictness::Plain => None,
        _ if !compat.strict => None,
        _ => schema::strict(&tool.parameters),
    };
    if wanted == Strictness::Require && strict.is_none() {
        return Err(format!(
            "tool `{}` wants strict arguments, which {}/{} cannot give for its schema",
            tool.name, call.model.provider, call.model.id
        ));
    }
    let is_strict = strict.is_some();
    function.insert(
        "parameters".into(),
        strict.unwrap_or_else(|| tool.parameters.clone()),
    );
    if compat.strict {
        function.insert("strict".into(), is_strict.into());
    }
    Ok(json!({"type": "function", "function": function}))
}

/// Anthropic's cache marker, for the system message, the last tool and the last message with text.
fn cache_marker(long: bool) -> Value {
    if long {
        json!({"type": "ephemeral", "ttl": "1h"})
    } else {
        json!({"type": "ephemeral"})
    }
}

/// Marks the last message with text; false when there is none.
fn mark_last(messages: &mut [Value], marker: &Value) -> bool {
    messages
        .iter_mut()
        .rev()
        .any(|message| mark_text(message, marker))
}

/// Marks the last text part of a message; false when it has none.
fn mark_text(message: &mut Value, marker: &Value) -> bool {
    let Some(content) = message.get_mut("content") else {
        return false;
    };
    if let Some(text) = content.as_str() {
        if text.is_empty() {
            return false;
        }
        *content = json!([{"type": "text", "text": text, "cache_control": marker}]);
        return true;
    }
    let parts = content.as_array_mut().into_iter().flatten().rev();
    let mut texts = parts.filter(|part| part.get("type").and_then(Value::as_str) == Some("text"));
    match texts.next().and_then(Value::as_object_mut) {
        Some(part) => {
            part.insert("cache_control".into(), marker.clone());
            true
        }
        None => false,
    }
}
