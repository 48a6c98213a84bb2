//! How a server departs from OpenAI's Chat Completions: known by provider or host, overridden by the model's `compat`.

use serde_json::Value;

use crate::ai::providers::{Call, host_is};

/// The flags of one request, resolved.
#[derive(Clone, Debug)]
pub(crate) struct Compat {
    pub(crate) store: bool,
    pub(crate) developer_role: bool,
    pub(crate) reasoning_effort: bool,
    pub(crate) usage_in_streaming: bool,
    pub(crate) finish_reason: bool,
    pub(crate) max_tokens_field: String,
    pub(crate) tool_result_name: bool,
    pub(crate) assistant_after_tool_result: bool,
    pub(crate) non_null_content: bool,
    pub(crate) tools_with_history: bool,
    pub(crate) thinking_as_text: bool,
    pub(crate) reasoning_content: bool,
    pub(crate) thinking_format: String,
    pub(crate) strict: bool,
    pub(crate) anthropic_cache: bool,
    pub(crate) affinity: Option<String>,
    pub(crate) cache_key_mode: String,
    pub(crate) long_retention: bool,
}

/// Which of the servers with known habits this is.
struct Host {
    known: Option<&'static str>,
}

/// Provider ids and hosts of the servers with known habits.
const HOSTS: [(&str, &[&str], &[&str]); 15] = [
    ("openai", &["openai"], &["api.openai.com"]),
    ("deepseek", &["deepseek"], &["deepseek.com"]),
    ("zai", &["zai", "zai-coding-cn"], &["z.ai", "bigmodel.cn"]),
    (
        "moonshot",
        &["moonshotai", "moonshotai-cn"],
        &["moonshot.ai", "moonshot.cn"],
    ),
    ("together", &["together"], &["together.ai", "together.xyz"]),
    ("openrouter", &["openrouter"], &["openrouter.ai"]),
    ("xai", &["xai"], &["x.ai"]),
    ("nvidia", &["nvidia"], &["nvidia.com"]),
    ("cerebras", &["cerebras"], &["cerebras.ai"]),
    ("chutes", &["chutes"], &["chutes.ai"]),
    ("opencode", &["opencode", "opencode-go"], &["opencode.ai"]),
    (
        "cloudflare-gateway",
        &["cloudflare-ai-gateway"],
        &["gateway.ai.cloudflare.com"],
    ),
    (
        "cloudflare",
        &["cloudflare-workers-ai"],
        &["api.cloudflare.com"],
    ),
    ("ant-ling", &["ant-ling"], &["ant-ling.com"]),
    ("baseten", &["baseten"], &["baseten.co"]),
];

impl Host {
    fn of(call: &Call) -> Self {
        let provider = call.model.provider.to_lowercase();
        let found = HOSTS.iter().find(|(_, providers, hosts)| {
            providers.contains(&provider.as_str())
                || hosts.iter().any(|host| host_is(&call.model, host))
        });
        Self {
            known: found.map(|(name, _, _)| *name),
        }
    }

    fn is(&self, names: &[&str]) -> bool {
        self.known.is_some_and(|known| names.contains(&known))
    }
}

impl Compat {
    /// Resolves the flags of a call.
    pub(crate) fn of(call: &Call) -> Self {
        let host = Host::of(call);
        let not = |names: &[&str]| !host.is(names);
        let word = |flag: &str, default: &str| {
            call.compat(flag)
                .and_then(Value::as_str)
                .unwrap_or(default)
                .to_owned()
        };
        let few_tokens = [
            "chutes",
            "deepseek",
            "moonshot",
            "cloudflare-gateway",
            "together",
            "nvidia",
            "ant-ling",
            "zai",
        ];
        let max_tokens = if host.is(&few_tokens) {
            "max_tokens"
        } else {
            "max_completion_tokens"
        };
        let named = call.flag("requiresToolResultName", false);
        let after = call.flag("requiresAssistantAfterToolResult", false);
        Self {
            store: call.flag(
                "supportsStore",
                not(&[
                    "nvidia",
                    "cerebras",
                    "xai",
                    "together",
                    "chutes",
                    "deepseek",
                    "zai",
                    "moonshot",
                    "opencode",
                    "cloudflare",
                    "cloudflare-gateway",
                    "ant-ling",
                ]),
            ),
            developer_role: call.flag("supportsDeveloperRole", host.is(&["openai"])),
            reasoning_effort: call.flag(
                "supportsReasoningEffort",
                not(&[
                    "xai",
                    "zai",
                    "moonshot",
                    "together",
                    "cloudflare-gateway",
                    "nvidia",
                    "ant-ling",
                ]),
            ),
            usage_in_streaming: call.flag("supportsUsageInStreaming", true),
            finish_reason: call.flag("supportsFinishReason", true),
            max_tokens_field: word("maxTokensField", max_tokens),
            tool_result_name: named,
            assistant_after_tool_result: after,
            non_null_content: after || call.flag("requiresNonNullAssistantContent", false),
            tools_with_history: call.flag("requiresToolsWithToolHistory", false),
            thinking_as_text: call.flag("requiresThinkingAsText", false),
            reasoning_content: call.flag(
                "requiresReasoningContentOnAssistantMessages",
                host.is(&["deepseek"]),
            ),
            thinking_format: word("thinkingFormat", thinking_format(&host)),
            strict: call.flag("supportsStrictMode", false),
            anthropic_cache: word(
                "cacheControlFormat",
                if host.is(&["openrouter"]) && call.model.id.starts_with("anthropic/") {
                    "anthropic"
                } else {
                    ""
                },
            ) == "anthropic",
            affinity: affinity(call, &host),
            cache_key_mode: word("promptCacheKeyMode", "auto"),
            long_retention: call.flag(
                "supportsLongCacheRetention",
                not(&[
                    "together",
                    "cloudflare",
                    "cloudflare-gateway",
                    "nvidia",
                    "ant-ling",
                ]),
            ),
        }
    }

    /// Whether a cache key is sent.
    pub(crate) fn sends_cache_key(&self, call: &Call, long: bool) -> bool {
        match self.cache_key_mode.as_str() {
            "enabled" => true,
            "disabled" => false,
            _ => host_is(&call.model, "api.openai.com") || (self.long_retention && long),
        }
    }
}

fn thinking_format(host: &Host) -> &'static str {
    match host.known {
        Some("deepseek") => "deepseek",
        Some("zai") => "zai",
        Some("together") => "together",
        Some("ant-ling") => "ant-ling",
        Some("openrouter") => "openrouter",
        _ => "openai",
    }
}

/// The form of session headers, when they are sent.
fn affinity(call: &Call, host: &Host) -> Option<String> {
    let router = host.is(&["openrouter"]);
    let format = call.compat("sessionAffinityFormat").and_then(Value::as_str);
    let default = if router { "openrouter" } else { "openai" };
    call.flag("sendSessionAffinityHeaders", router)
        .then(|| format.unwrap_or(default).to_owned())
}
