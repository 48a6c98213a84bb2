//! What is known without any file: providers with their environment variables, and the bundled models.
//!
//! `catalogue.json` is data compiled in; `models.json` of the person overlays it. No network is used for it.

use serde_json::Value;

use super::model::Model;

/// A provider this version knows.
#[derive(Clone, Copy, Debug)]
pub struct ProviderInfo {
    /// Id.
    pub id: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// Environment variables that may hold its key; the first one set counts.
    pub env: &'static [&'static str],
    /// The model a person gets who names none.
    pub default_model: Option<&'static str>,
}

const fn known(
    id: &'static str,
    name: &'static str,
    env: &'static [&'static str],
    default_model: &'static str,
) -> ProviderInfo {
    let default_model = if default_model.is_empty() {
        None
    } else {
        Some(default_model)
    };
    ProviderInfo {
        id,
        name,
        env,
        default_model,
    }
}

/// All known providers; those with a default model first, in order of priority.
pub const PROVIDERS: [ProviderInfo; 35] = [
    known(
        "anthropic",
        "Anthropic",
        &[
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_OAUTH_TOKEN",
            "ANTHROPIC_API_KEY",
        ],
        "claude-opus-5-5",
    ),
    known("openai", "OpenAI", &["OPENAI_API_KEY"], "gpt-6.2-sol"),
    known(
        "deepseek",
        "DeepSeek",
        &["DEEPSEEK_API_KEY"],
        "deepseek-v4-pro",
    ),
    known(
        "google",
        "Google Gemini",
        &["GEMINI_API_KEY"],
        "gemini-4-argon",
    ),
    known(
        "openrouter",
        "OpenRouter",
        &["OPENROUTER_API_KEY"],
        "moonshotai/kimi-k2.7-code",
    ),
    known(
        "vercel-ai-gateway",
        "Vercel AI Gateway",
        &["AI_GATEWAY_API_KEY"],
        "zai/glm-5.3",
    ),
    known("xai", "xAI", &["XAI_API_KEY"], "grok-4.7"),
    known("groq", "Groq", &["GROQ_API_KEY"], "openai/gpt-oss-120b"),
    known(
        "cerebras",
        "Cerebras",
        &["CEREBRAS_API_KEY"],
        "gpt-oss-120b",
    ),
    known("zai", "Z.ai", &["ZAI_API_KEY"], "glm-5.3"),
    known(
        "mistral",
        "Mistral",
        &["MISTRAL_API_KEY"],
        "devstral-medium-latest",
    ),
    known("minimax", "MiniMax", &["MINIMAX_API_KEY"], "MiniMax-M3"),
    known(
        "moonshotai",
        "Moonshot AI",
        &["MOONSHOT_API_KEY"],
        "kimi-k2.7-code",
    ),
    known(
        "huggingface",
        "Hugging Face",
        &["HF_TOKEN"],
        "moonshotai/Kimi-K2.7-Code",
    ),
    known(
        "fireworks",
        "Fireworks",
        &["FIREWORKS_API_KEY"],
        "accounts/fireworks/models/kimi-k3",
    ),
    known(
        "together",
        "Together",
        &["TOGETHER_API_KEY"],
        "moonshotai/Kimi-K3",
    ),
    known(
        "kimi-coding",
        "Kimi For Coding",
        &["KIMI_API_KEY"],
        "kimi-for-coding",
    ),
    known("xiaomi", "Xiaomi", &["XIAOMI_API_KEY"], "mimo-v2.6-pro"),
    known(
        "zai-coding-cn",
        "Z.ai (China)",
        &["ZAI_CODING_CN_API_KEY"],
        "",
    ),
    known(
        "moonshotai-cn",
        "Moonshot AI (China)",
        &["MOONSHOT_API_KEY"],
        "",
    ),
    known("minimax-cn", "MiniMax (China)", &["MINIMAX_CN_API_KEY"], ""),
    known("nvidia", "NVIDIA", &["NVIDIA_API_KEY"], ""),
    known("baseten", "Baseten", &["BASETEN_API_KEY"], ""),
    known(
        "qwen-token-plan",
        "Qwen token plan",
        &["QWEN_TOKEN_PLAN_TEAM_API_KEY", "QWEN_TOKEN_PLAN_API_KEY"],
        "",
    ),
    known(
        "qwen-token-plan-cn",
        "Qwen token plan (China)",
        &[
            "QWEN_TOKEN_PLAN_CN_TEAM_API_KEY",
            "QWEN_TOKEN_PLAN_CN_API_KEY",
        ],
        "",
    ),
    known("meta", "Meta", &["META_API_KEY"], ""),
    known(
        "azure-openai-responses",
        "Azure OpenAI",
        &["AZURE_OPENAI_API_KEY"],
        "",
    ),
    known(
        "google-vertex",
        "Google Vertex",
        &["GOOGLE_CLOUD_API_KEY"],
        "",
    ),
    known(
        "github-copilot",
        "GitHub Copilot",
        &["COPILOT_GITHUB_TOKEN"],
        "",
    ),
    known(
        "cloudflare-workers-ai",
        "Cloudflare Workers AI",
        &["CLOUDFLARE_API_KEY"],
        "",
    ),
    known(
        "cloudflare-ai-gateway",
        "Cloudflare AI Gateway",
        &["CLOUDFLARE_API_KEY"],
        "",
    ),
    known("opencode", "OpenCode", &["OPENCODE_API_KEY"], ""),
    known("opencode-go", "OpenCode Go", &["OPENCODE_API_KEY"], ""),
    known("ant-ling", "Ant Ling", &["ANT_LING_API_KEY"], ""),
    known("chutes", "Chutes", &["CHUTES_API_KEY"], ""),
];

/// Finds a known provider.
pub fn provider(id: &str) -> Option<&'static ProviderInfo> {
    PROVIDERS.iter().find(|provider| provider.id == id)
}

/// Variables whose value is sent as `Authorization: Bearer`, whatever the API's own header is.
pub fn is_bearer_variable(name: &str) -> bool {
    matches!(name, "ANTHROPIC_AUTH_TOKEN" | "ANTHROPIC_OAUTH_TOKEN")
}

/// Returns the bundled models in catalogue order.
pub fn models() -> Vec<Model> {
    let text = include_str!("catalogue.json");
    let Ok(Value::Object(providers)) = serde_json::from_str::<Value>(text) else {
        debug_assert!(false, "catalogue.json is an object");
        return Vec::new();
    };
    let mut out = Vec::new();
    for (provider, list) in providers {
        let Value::Array(list) = list else {
            continue;
        };
        for mut model in list {
            if let Some(map) = model.as_object_mut() {
                map.insert("provider".into(), provider.as_str().into());
            }
            match serde_json::from_value(model) {
                Ok(model) => out.push(model),
                Err(error) => debug_assert!(false, "catalogue.json: {error}"),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bundled_model_reads() {
        let models = models();
        assert_eq!(models.len(), 119);
        assert!(
            models
                .iter()
                .all(|model| model.context_window > 0 && !model.base_url.is_empty())
        );
    }
}
