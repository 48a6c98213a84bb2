//! From a conversation to the body of a Gemini request.

use base64::Engine as _;
use serde_json::{Map, Value, json};

use crate::ai::ids;
use crate::ai::message::{
    AssistantMessage, Block, Content, ImageBlock, Message, ToolDeclaration, ToolResultMessage,
};
use crate::ai::model::{Model, ThinkingLevel};
use crate::ai::providers::conversation::Rules;
use crate::ai::providers::{Body, Call};
use crate::ai::schema::{self, Strictness};
use crate::ai::transcript::same_model;

const SEE_IMAGE: &str = "(see attached image)";
const IMAGE_FOLLOWS: &str = "Image returned by the tool:";

/// What a model id says about the model.
struct Family {
    /// Major version of a Gemini model.
    gemini: Option<u32>,
    /// Calls carry ids.
    ids: bool,
}

impl Family {
    fn of(model: &Model) -> Self {
        let id = bare_id(&model.id);
        let digits = id.strip_prefix("gemini-").map(|rest| {
            let rest = rest.strip_prefix("live-").unwrap_or(rest);
            rest.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        });
        let gemini = digits.and_then(|digits| digits.parse().ok());
        let ids = gemini.is_some_and(|major| major >= 3)
            || id.starts_with("claude-")
            || id.starts_with("gpt-oss-");
        Self { gemini, ids }
    }
}

/// The id without a vendor or path in front.
fn bare_id(id: &str) -> String {
    id.rsplit('/').next().unwrap_or(id).to_lowercase()
}

/// Builds the request.
pub(super) fn build(call: &Call) -> Result<Body, String> {
    let family = Family::of(&call.model);
    let offer = call.offer();
    let conversation = call.conversation(&Rules {
        rename: &|id, _| {
            if family.ids {
                ids::plain(id)
            } else {
                id.to_owned()
            }
        },
        convert: &|prepared, _| contents(call, &family, prepared),
        mark: None,
        variant: String::new(),
    })?;
    let tools = call.tools(&offer, String::new(), &|tools| {
        let mut strict = false;
        let tools = tools
            .iter()
            .map(|tool| tool_json(call, &family, tool, &mut strict))
            .collect::<Result<Vec<Value>, String>>()?;
        Ok((json!([{"functionDeclarations": tools}]), strict))
    })?;
    let mut out = Map::new();
    out.insert("contents".into(), Value::Null);
    if !offer.prompt.is_empty() {
        let system = json!({"parts": [{"text": offer.prompt}], "role": "user"});
        out.insert("systemInstruction".into(), system);
    }
    if !offer.tools.is_empty() {
        out.insert("tools".into(), Value::Null);
        if let Some(mode) = mode(call, tools.strict) {
            out.insert(
                "toolConfig".into(),
                json!({"functionCallingConfig": {"mode": mode}}),
            );
        }
    }
    let mut config = Map::new();
    if let Some(temperature) = call.options.temperature {
        config.insert("temperature".into(), temperature.into());
    }
    config.insert(
        "maxOutputTokens".into(),
        call.max_tokens(&offer.tools).into(),
    );
    if let Some(thinking) = thinking_config(call, &family) {
        config.insert("thinkingConfig".into(), thinking);
    }
    call.sampling(&mut config);
    out.insert("generationConfig".into(), config.into());
    Ok(Body {
        path: format!("/models/{}:streamGenerateContent?alt=sse", call.model.id),
        headers: Vec::new(),
        json: out,
        member: "contents",
        conversation,
        tools: Some(tools),
    })
}

fn mode(call: &Call, strict: bool) -> Option<&'static str> {
    match call.options.tool_choice.as_ref().and_then(Value::as_str) {
        Some("none") => Some("NONE"),
        Some("any" | "required") => Some("ANY"),
        _ if strict => Some("VALIDATED"),
        Some("auto") => Some("AUTO"),
        _ => None,
    }
}

/// Whether thinking is asked for by level instead of by budget.
fn by_level(call: &Call, family: &Family) -> bool {
    let id = bare_id(&call.model.id);
    let three = family.gemini == Some(3) && (id.contains("pro") || id.contains("flash"));
    three
        || family.gemini.is_some_and(|major| major >= 4)
        || matches!(
            id.as_str(),
            "gemini-flash-latest" | "gemini-flash-lite-latest"
        )
        || id.starts_with("gemma-4")
}

fn thinking_config(call: &Call, family: &Family) -> Option<Value> {
    if !call.model.reasoning {
        return None;
    }
    let levels = by_level(call, family);
    if !call.thinks() {
        if call.off_word().is_some() || !levels {
            return Some(json!({"thinkingBudget": 0}));
        }
        let least = call.model.clamp_level(ThinkingLevel::Off);
        return Some(json!({"thinkingLevel": level_word(call, least)}));
    }
    if levels {
        return Some(
            json!({"includeThoughts": true, "thinkingLevel": level_word(call, call.level)}),
        );
    }
    Some(json!({"includeThoughts": true, "thinkingBudget": budget(call)}))
}

fn level_word(call: &Call, level: ThinkingLevel) -> String {
    if let Some(Some(word)) = call.model.level_word(level) {
        return word.to_uppercase();
    }
    match level {
        ThinkingLevel::Off | ThinkingLevel::Minimal => "MINIMAL",
        ThinkingLevel::Low => "LOW",
        ThinkingLevel::Medium => "MEDIUM",
        ThinkingLevel::High | ThinkingLevel::XHigh | ThinkingLevel::Max => "HIGH",
    }
    .to_owned()
}

fn budget(call: &Call) -> i64 {
    let step = match call.level {
        ThinkingLevel::Off | ThinkingLevel::Minimal => 0,
        ThinkingLevel::Low => 1,
        ThinkingLevel::Medium => 2,
        ThinkingLevel::High | ThinkingLevel::XHigh | ThinkingLevel::Max => 3,
    };
    let names = ["minimal", "low", "medium", "high"];
    let custom = call
        .custom_budgets()
        .zip(names.get(step))
        .and_then(|(map, name)| map.get(*name));
    if let Some(budget) = custom.and_then(Value::as_i64) {
        return budget;
    }
    let id = bare_id(&call.model.id);
    let table = if id.contains("2.5-pro") {
        [128, 2048, 8192, 32768]
    } else if id.contains("2.5-flash-lite") {
        [512, 2048, 8192, 24576]
    } else if id.contains("2.5-flash") {
        [128, 2048, 8192, 24576]
    } else {
        return -1;
    };
    table.get(step).copied().unwrap_or(-1)
}

fn inline(image: &ImageBlock) -> Value {
    json!({"inlineData": {"mimeType": image.mime_type, "data": image.data}})
}

fn contents(call: &Call, family: &Family, messages: &[Message]) -> Vec<Value> {
    let mut out = Vec::new();
    let mut results: Vec<&ToolResultMessage> = Vec::new();
    for message in messages {
        if let Message::ToolResult(result) = message {
            results.push(result);
            continue;
        }
        push_results(family, &mut out, &mut results);
        let (role, parts) = match message {
            Message::User(user) => ("user", user_parts(&user.content)),
            Message::Assistant(answer) => ("model", answer_parts(call, family, answer)),
            _ => continue,
        };
        if !parts.is_empty() {
            out.push(json!({"parts": parts, "role": role}));
        }
    }
    push_results(family, &mut out, &mut results);
    out
}

fn user_parts(content: &Content) -> Vec<Value> {
    match content {
        Content::Text(text) => vec![json!({"text": text})],
        Content::Blocks(blocks) => blocks
            .iter()
            .filter_map(|block| match block {
                Block::Text(text) => Some(json!({"text": text.text})),
                Block::Image(image) => Some(inline(image)),
                _ => None,
            })
            .collect(),
    }
}

fn answer_parts(call: &Call, family: &Family, answer: &AssistantMessage) -> Vec<Value> {
    let same = same_model(answer, &call.model);
    let signature = |text: &Option<String>| {
        text.as_deref()
            .filter(|text| same && is_base64(text))
            .map(str::to_owned)
    };
    let mut out = Vec::new();
    for block in &answer.content {
        let (mut part, signature) = match block {
            Block::Text(text) => {
                let signature = signature(&text.text_signature);
                if text.text.trim().is_empty() && signature.is_none() {
                    continue;
                }
                (json!({"text": text.text}), signature)
            }
            Block::Thinking(thinking) => {
                let signature = signature(&thinking.thinking_signature);
                if thinking.thinking.trim().is_empty() && signature.is_none() {
                    continue;
                }
                (
                    json!({"text": thinking.thinking, "thought": true}),
                    signature,
                )
            }
            Block::ToolCall(tool) => {
                let mut function = json!({"name": tool.name, "args": tool.arguments});
                if let (true, Some(map)) = (family.ids, function.as_object_mut()) {
                    map.insert("id".into(), tool.id.as_str().into());
                }
                (
                    json!({"functionCall": function}),
                    signature(&tool.thought_signature),
                )
            }
            _ => continue,
        };
        if let (Some(signature), Some(map)) = (signature, part.as_object_mut()) {
            map.insert("thoughtSignature".into(), signature.into());
        }
        out.push(part);
    }
    out
}

fn is_base64(text: &str) -> bool {
    let engine = &base64::engine::general_purpose::STANDARD;
    !text.is_empty() && text.len().is_multiple_of(4) && engine.decode(text).is_ok()
}

/// Consecutive results are one user turn; older models get the images in turns of their own after it.
fn push_results(family: &Family, out: &mut Vec<Value>, results: &mut Vec<&ToolResultMessage>) {
    if results.is_empty() {
        return;
    }
    let nested = family.gemini.is_some_and(|major| major >= 3);
    let mut parts = Vec::new();
    let mut turns = Vec::new();
    for result in results.drain(..) {
        let texts: Vec<&str> = result.content.iter().filter_map(Block::as_text).collect();
        let images: Vec<Value> = result
            .content
            .iter()
            .filter_map(|block| match block {
                Block::Image(image) => Some(inline(image)),
                _ => None,
            })
            .collect();
        let text = match texts.join("\n") {
            text if text.is_empty() && !images.is_empty() => SEE_IMAGE.to_owned(),
            text => text,
        };
        let key = if result.is_error { "error" } else { "output" };
        let mut response = json!({"name": result.tool_name, "response": {key: text}});
        if let Some(map) = response.as_object_mut() {
            if nested && !images.is_empty() {
                map.insert("parts".into(), images.clone().into());
            }
            if family.ids {
                map.insert("id".into(), result.tool_call_id.as_str().into());
            }
        }
        parts.push(json!({"functionResponse": response}));
        if !nested && !images.is_empty() {
            let mut turn = vec![json!({"text": IMAGE_FOLLOWS})];
            turn.extend(images);
            turns.push(json!({"parts": turn, "role": "user"}));
        }
    }
    out.push(json!({"parts": parts, "role": "user"}));
    out.append(&mut turns);
}

fn tool_json(
    call: &Call,
    family: &Family,
    tool: &ToolDeclaration,
    strict: &mut bool,
) -> Result<Value, String> {
    let wanted = schema::strictness(tool);
    let can = family.gemini.is_some_and(|major| major >= 3);
    let converted = match wanted {
        Strictness::Plain => None,
        _ if !can => None,
        _ => schema::strict(&tool.parameters),
    };
    if wanted == Strictness::Require && converted.is_none() {
        return Err(format!(
            "tool `{}` wants strict arguments, which {}/{} cannot give for its schema",
            tool.name, call.model.provider, call.model.id
        ));
    }
    *strict |= converted.is_some();
    let schema = schema::gemini(converted.as_ref().unwrap_or(&tool.parameters));
    Ok(json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": schema}))
}
