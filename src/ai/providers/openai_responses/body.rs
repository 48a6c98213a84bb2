//! From a conversation to the body of a Responses request.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::ai::ids::{self, short_hash};
use crate::ai::message::{
    AssistantMessage, Block, Content, ImageBlock, Message, TextBlock, ToolCall, ToolDeclaration,
    ToolResultMessage,
};
use crate::ai::providers::conversation::Rules;
use crate::ai::providers::{Body, Call, Retention, cut_chars};
use crate::ai::schema::{self, Strictness};

const NO_OUTPUT: &str = "(no tool output)";
/// Smallest output limit the API takes.
const LEAST_OUTPUT: u64 = 16;

/// Builds the request.
pub(super) fn build(call: &Call) -> Result<Body, String> {
    let model = &call.model;
    let offer = call.offer();
    let tools = call.tools(&offer, String::new(), &|tools| {
        let tools = tools.iter().map(|tool| tool_json(call, tool));
        Ok((tools.collect::<Result<Value, String>>()?, false))
    })?;
    let grammars = grammar_names(call, &offer.tools);
    let mut conversation = call.conversation(&Rules {
        rename: &|id, answer| {
            let foreign = answer.provider != model.provider || answer.api != model.api;
            ids::responses(id, &model.provider, foreign)
        },
        convert: &|prepared, start| items(call, &grammars, prepared, start),
        mark: None,
        variant: grammars.iter().copied().collect::<Vec<&str>>().join("\n"),
    })?;
    if !offer.prompt.is_empty() {
        let developer = model.reasoning && call.flag("supportsDeveloperRole", true);
        let role = if developer { "developer" } else { "system" };
        let lead = json!({"role": role, "content": offer.prompt});
        conversation.lead(&lead)?;
    }
    let mut out = Map::new();
    out.insert("model".into(), model.id.as_str().into());
    out.insert("input".into(), Value::Null);
    out.insert("stream".into(), true.into());
    out.insert("store".into(), false.into());
    if call.flag("supportsMaxOutputTokens", true) {
        let limit = call.max_tokens(&offer.tools).max(LEAST_OUTPUT);
        out.insert("max_output_tokens".into(), limit.into());
    }
    if let Some(temperature) = call.options.temperature {
        out.insert("temperature".into(), temperature.into());
    }
    if !offer.tools.is_empty() {
        out.insert("tools".into(), Value::Null);
    }
    if let Some(choice) = &call.options.tool_choice {
        out.insert("tool_choice".into(), choice.clone());
    }
    cache_fields(call, &mut out);
    thinking_fields(call, &mut out);
    if let Some(tier) = call.options.extra.get("serviceTier") {
        out.insert("service_tier".into(), tier.clone());
    }
    call.sampling(&mut out);
    Ok(Body {
        path: "/responses".to_owned(),
        headers: session_headers(call),
        json: out,
        member: "input",
        conversation,
        tools: Some(tools),
    })
}

/// Converts messages; `start` is the place of the first one in the conversation.
fn items(call: &Call, grammars: &BTreeSet<&str>, messages: &[Message], start: usize) -> Vec<Value> {
    let mut out = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        match message {
            Message::User(user) => out.extend(user_json(&user.content)),
            Message::Assistant(answer) => {
                answer_items(call, answer, start + index, grammars, &mut out);
            }
            Message::ToolResult(result) => out.push(result_json(result, grammars)),
            _ => {}
        }
    }
    out
}

fn session_headers(call: &Call) -> Vec<(&'static str, String)> {
    let Some(session) = call.cache_session() else {
        return Vec::new();
    };
    let format = call
        .compat("sessionAffinityFormat")
        .and_then(Value::as_str)
        .unwrap_or("openai");
    let names: &[&'static str] = match format {
        "openrouter" => &["x-session-id"],
        "openai-nosession" => &["x-client-request-id"],
        _ => &["session-id", "x-client-request-id"],
    };
    names
        .iter()
        .map(|name| (*name, session.to_owned()))
        .collect()
}

fn cache_fields(call: &Call, out: &mut Map<String, Value>) {
    let explicit = call.flag("supportsExplicitPromptCacheMode", false);
    if call.retention == Retention::None {
        if explicit {
            out.insert("prompt_cache_options".into(), json!({"mode": "explicit"}));
        }
        return;
    }
    let mode = call
        .compat("promptCacheKeyMode")
        .and_then(Value::as_str)
        .unwrap_or("auto");
    if let (Some(session), true) = (call.cache_session(), mode != "disabled") {
        out.insert("prompt_cache_key".into(), cut_chars(session, 64).into());
    }
    if call.retention == Retention::Long {
        if explicit {
            out.insert("prompt_cache_options".into(), json!({"ttl": "30m"}));
        } else if call.flag("supportsLongCacheRetention", call.model.provider != "xai") {
            out.insert("prompt_cache_retention".into(), "24h".into());
        }
    }
}

fn thinking_fields(call: &Call, out: &mut Map<String, Value>) {
    if !call.model.reasoning {
        return;
    }
    let encrypted = json!(["reasoning.encrypted_content"]);
    if call.thinks() {
        out.insert(
            "reasoning".into(),
            json!({"effort": call.effort(), "summary": "auto"}),
        );
        out.insert("include".into(), encrypted);
        return;
    }
    if call.model.provider == "xai" {
        out.insert("include".into(), encrypted);
    }
    if let (Some(word), false) = (call.off_word(), call.model.provider == "github-copilot") {
        out.insert(
            "reasoning".into(),
            json!({"effort": word.unwrap_or("none")}),
        );
    }
}

fn image_json(image: &ImageBlock) -> Value {
    let url = format!("data:{};base64,{}", image.mime_type, image.data);
    json!({"type": "input_image", "detail": "auto", "image_url": url})
}

fn user_json(content: &Content) -> Option<Value> {
    let parts: Vec<Value> = match content {
        Content::Text(text) => vec![json!({"type": "input_text", "text": text})],
        Content::Blocks(blocks) => blocks
            .iter()
            .filter_map(|block| match block {
                Block::Text(text) => Some(json!({"type": "input_text", "text": text.text})),
                Block::Image(image) => Some(image_json(image)),
                _ => None,
            })
            .collect(),
    };
    (!parts.is_empty()).then(|| json!({"role": "user", "content": parts}))
}

fn answer_items(
    call: &Call,
    answer: &AssistantMessage,
    index: usize,
    grammars: &BTreeSet<&str>,
    out: &mut Vec<Value>,
) {
    let same_api = answer.provider == call.model.provider && answer.api == call.model.api;
    let other_model = same_api && answer.model != call.model.id;
    let mut texts = 0;
    for block in &answer.content {
        match block {
            Block::Thinking(thinking) => {
                let stored = thinking.thinking_signature.as_deref();
                let item = stored.and_then(|text| serde_json::from_str::<Value>(text).ok());
                out.extend(item.filter(Value::is_object));
            }
            Block::Text(text) => {
                out.push(text_item(text, index, texts));
                texts += 1;
            }
            Block::ToolCall(tool) => out.push(call_item(
                tool,
                other_model,
                grammars.contains(tool.name.as_str()),
            )),
            _ => {}
        }
    }
}

/// The item of a text; an id the provider did not give is made from its place.
fn text_item(text: &TextBlock, index: usize, nth: usize) -> Value {
    let signature = text.text_signature.as_deref().unwrap_or_default();
    let stored: Option<Value> = serde_json::from_str(signature)
        .ok()
        .filter(Value::is_object);
    let field = |key: &str| {
        stored
            .as_ref()
            .and_then(|map| map.get(key))
            .and_then(Value::as_str)
    };
    let known = if stored.is_some() {
        field("id").unwrap_or_default()
    } else {
        signature
    };
    let id = match known.chars().count() {
        0 if nth == 0 => format!("msg_pi_{index}"),
        0 => format!("msg_pi_{index}_{nth}"),
        1..=64 => known.to_owned(),
        _ => format!("msg_{}", short_hash(known)),
    };
    let content = json!([{"type": "output_text", "text": text.text, "annotations": []}]);
    let mut item = json!({
        "type": "message", "role": "assistant", "content": content, "status": "completed", "id": id,
    });
    if let (Some(phase), Some(map)) = (field("phase"), item.as_object_mut()) {
        map.insert("phase".into(), phase.into());
    }
    item
}

fn call_item(call: &ToolCall, other_model: bool, grammar: bool) -> Value {
    let (call_id, item_id) = call.id.split_once('|').unwrap_or((call.id.as_str(), ""));
    let mut item = Map::new();
    let prefix = if grammar { "ctc_" } else { "fc_" };
    item.insert(
        "type".into(),
        if grammar {
            "custom_tool_call"
        } else {
            "function_call"
        }
        .into(),
    );
    if item_id.starts_with(prefix) && !other_model {
        item.insert("id".into(), item_id.into());
    }
    item.insert("call_id".into(), call_id.into());
    item.insert("name".into(), call.name.as_str().into());
    if grammar {
        let text = call
            .arguments
            .as_object()
            .and_then(|map| map.values().next());
        item.insert(
            "input".into(),
            text.and_then(Value::as_str).unwrap_or_default().into(),
        );
    } else {
        item.insert("arguments".into(), call.arguments.to_string().into());
    }
    item.into()
}

fn result_json(result: &ToolResultMessage, grammars: &BTreeSet<&str>) -> Value {
    let call_id = result.tool_call_id.split('|').next().unwrap_or_default();
    let texts: Vec<&str> = result.content.iter().filter_map(Block::as_text).collect();
    let text = texts.join("\n");
    let images: Vec<Value> = result
        .content
        .iter()
        .filter_map(|block| match block {
            Block::Image(image) => Some(image_json(image)),
            _ => None,
        })
        .collect();
    let output: Value = if images.is_empty() {
        if text.is_empty() {
            NO_OUTPUT.into()
        } else {
            text.into()
        }
    } else {
        let lead = (!text.is_empty()).then(|| json!({"type": "input_text", "text": text}));
        lead.into_iter().chain(images).collect()
    };
    let kind = if grammars.contains(result.tool_name.as_str()) {
        "custom_tool_call_output"
    } else {
        "function_call_output"
    };
    json!({"type": kind, "call_id": call_id, "output": output})
}

fn grammar_names<'a>(call: &Call, tools: &'a [ToolDeclaration]) -> BTreeSet<&'a str> {
    let supported = call.flag("supportsOpenAIGrammarTools", false);
    let is_grammar = |tool: &&ToolDeclaration| {
        supported && grammar(tool).is_some() && grammar_property(tool).is_some()
    };
    tools
        .iter()
        .filter(is_grammar)
        .map(|tool| tool.name.as_str())
        .collect()
}

/// Returns syntax and definition of a tool whose text follows a grammar.
pub(super) fn grammar(tool: &ToolDeclaration) -> Option<(&'static str, &str)> {
    let sampling = tool.constrained_sampling.as_ref()?;
    if sampling.get("type").and_then(Value::as_str) != Some("grammar") {
        return None;
    }
    let variants = sampling.get("variants")?;
    [("lark", "openai_lark"), ("regex", "openai_regex")]
        .into_iter()
        .find_map(|(syntax, key)| Some((syntax, variants.get(key)?.as_str()?)))
}

/// Returns the one required text property that holds a grammar tool's text.
pub(super) fn grammar_property(tool: &ToolDeclaration) -> Option<String> {
    let required = tool.parameters.get("required")?.as_array()?;
    let [name] = required.as_slice() else {
        return None;
    };
    let name = name.as_str()?;
    let property = tool.parameters.get("properties")?.get(name)?;
    (property.get("type")?.as_str()? == "string").then(|| name.to_owned())
}

fn tool_json(call: &Call, tool: &ToolDeclaration) -> Result<Value, String> {
    if let (true, Some((syntax, definition)), Some(_)) = (
        call.flag("supportsOpenAIGrammarTools", false),
        grammar(tool),
        grammar_property(tool),
    ) {
        let format = json!({"type": "grammar", "syntax": syntax, "definition": definition});
        return Ok(json!({
            "type": "custom", "name": tool.name, "description": tool.description, "format": format,
        }));
    }
    let supported = call.flag("supportsStrictMode", false);
    let wanted = schema::strictness(tool);
    let strict = match wanted {
        Strictness::Plain => None,
        _ if !supported => None,
        _ => schema::strict(&tool.parameters),
    };
    if wanted == Strictness::Require && strict.is_none() {
        return Err(format!(
            "tool `{}` wants strict arguments, which {}/{} cannot give for its schema",
            tool.name, call.model.provider, call.model.id
        ));
    }
    let mut out = Map::new();
    out.insert("type".into(), "function".into());
    out.insert("name".into(), tool.name.as_str().into());
    out.insert("description".into(), tool.description.as_str().into());
    let is_strict = strict.is_some();
    out.insert(
        "parameters".into(),
        strict.unwrap_or_else(|| tool.parameters.clone()),
    );
    if supported {
        out.insert("strict".into(), is_strict.into());
    }
    Ok(out.into())
}
