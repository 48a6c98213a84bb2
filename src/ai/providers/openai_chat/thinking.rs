//! How a server is told to think or not to: nearly every host has words of its own.

use serde_json::{Map, Value, json};

use super::compat::Compat;
use crate::ai::limits::ANSWER_TOKENS;
use crate::ai::model::ThinkingLevel;
use crate::ai::providers::Call;

/// Formats whose own field says all; the others take `reasoning_effort` beside it, where the server knows that.
const COMPLETE: [&str; 6] = [
    "openrouter",
    "qwen-chat-template",
    "chat-template",
    "baseten",
    "string-thinking",
    "ant-ling",
];

/// Writes the fields that turn thinking on or off, in the words of the server.
pub(super) fn fields(call: &Call, compat: &Compat, max_tokens: u64, out: &mut Map<String, Value>) {
    if !call.model.reasoning {
        return;
    }
    let format = compat.thinking_format.as_str();
    let budget = call.budget().min(max_tokens.saturating_sub(ANSWER_TOKENS));
    if matches!(format, "chat-template" | "baseten") {
        for (flag, field) in [
            ("chatTemplateKwargs", "chat_template_kwargs"),
            ("chatTemplateArgs", "chat_template_args"),
        ] {
            if let Some(args) = template_args(call, flag, budget) {
                out.insert(field.into(), Value::Object(args));
            }
        }
    }
    if let Some((field, value)) = own_field(call, format) {
        out.insert(field.into(), value);
    }
    if call.thinks() && compat.reasoning_effort && !COMPLETE.contains(&format) {
        out.insert("reasoning_effort".into(), call.effort().into());
    }
    let field = call
        .compat("thinkingTokenBudgetField")
        .and_then(Value::as_str);
    if let (true, Some(field)) = (call.thinks() && call.level != ThinkingLevel::Off, field) {
        out.insert(field.to_owned(), budget.into());
    }
}

/// The one field of a format, when it has something to say.
fn own_field(call: &Call, format: &str) -> Option<(&'static str, Value)> {
    let on = call.thinks();
    // Without a word for "off" the model cannot stop thinking, and nothing is sent then.
    let off = call.off_word();
    let effort = || match on {
        true => Some(call.effort()),
        false => off.map(|word| word.unwrap_or("none")),
    };
    let kind = if on { "enabled" } else { "disabled" };
    match format {
        "openrouter" => Some(("reasoning", json!({"effort": effort()?}))),
        "string-thinking" => Some(("thinking", effort()?.into())),
        "deepseek" if on || off.is_some() => Some(("thinking", json!({"type": kind}))),
        "deepseek" | "chat-template" | "baseten" => None,
        "zai" if on => Some(("thinking", json!({"type": kind, "clear_thinking": false}))),
        "zai" => Some(("thinking", json!({"type": kind}))),
        "qwen" => Some(("enable_thinking", on.into())),
        "qwen-chat-template" => {
            let kwargs = json!({"enable_thinking": on, "preserve_thinking": true});
            Some(("chat_template_kwargs", kwargs))
        }
        "together" => Some(("reasoning", json!({"enabled": on}))),
        "ant-ling" => match call.model.level_word(call.level) {
            Some(Some(word)) if on => Some(("reasoning", json!({"effort": word}))),
            _ => None,
        },
        _ if on => None,
        _ => Some(("reasoning_effort", off??.into())),
    }
}

/// Fills the configured template arguments (`chatTemplateKwargs`); `None` when there are none.
fn template_args(call: &Call, field: &str, budget: u64) -> Option<Map<String, Value>> {
    let configured = call.compat(field).and_then(Value::as_object)?;
    let thinks = call.thinks();
    let mut out = Map::new();
    for (key, value) in configured {
        let variable = value.get("$var").and_then(Value::as_str);
        let omit = value
            .get("omitWhenOff")
            .and_then(Value::as_bool)
            .unwrap_or(false);
        let filled = match variable {
            None => Some(value.clone()),
            Some(_) if omit && !thinks => None,
            Some("thinking.enabled") => Some(thinks.into()),
            Some("thinking.effort") if thinks => Some(call.effort().into()),
            Some("thinking.effort") => call.off_word().flatten().map(Into::into),
            Some("thinking.budget") if thinks => Some(budget.into()),
            Some("thinking.budget") => Some(0.into()),
            Some(_) => None,
        };
        if let Some(value) = filled {
            out.insert(key.clone(), value);
        }
    }
    Some(out)
}
