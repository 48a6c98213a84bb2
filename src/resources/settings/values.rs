//! Typed getters. A value of a wrong kind counts as unset, except where using the default in silence could cost money or
//! hang a session: those getters give an error.

use serde_json::{Map, Value};

use super::{Scope, Settings};
use crate::resources::trust::DefaultTrust;

/// The largest whole number that Pi's files can hold exactly.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// A value that cannot be used as it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("setting {key} is {value}; it must be {must}")]
pub struct ValueError {
    /// Key, with dots.
    pub key: String,
    /// What stands there.
    pub value: String,
    /// What may stand there.
    pub must: &'static str,
}

macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name { $($(#[$vmeta])* $variant,)* }

        impl $name {
            /// Reads the word used in the file.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)* _ => None }
            }

            /// Returns the word used in the file.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

choice! {
    /// How queued messages are delivered.
    QueueMode {
        /// One a poll.
        #[default]
        OneAtATime = "one-at-a-time",
        /// All at once.
        All = "all",
    }
}
choice! {
    /// How a provider is reached.
    Transport {
        /// The provider's own choice.
        #[default]
        Auto = "auto",
        /// Server-sent events.
        Sse = "sse",
        /// A web socket.
        Websocket = "websocket",
        /// A web socket kept open.
        WebsocketCached = "websocket-cached",
    }
}
choice! {
    /// What the session tree shows at first.
    TreeFilter {
        /// Messages and their labels.
        #[default]
        Default = "default",
        /// Without tool results.
        NoTools = "no-tools",
        /// What the person wrote.
        UserOnly = "user-only",
        /// What has a label.
        LabeledOnly = "labeled-only",
        /// Everything.
        All = "all",
    }
}
choice! {
    /// What pressing escape twice opens.
    DoubleEscape {
        /// The tree.
        #[default]
        Tree = "tree",
        /// The list of forks.
        Fork = "fork",
        /// Nothing.
        None = "none",
    }
}
choice! {
    /// When the provider's cache is kept warm.
    CacheWarming {
        /// Never.
        Off = "off",
        /// While an answer comes in.
        Streaming = "streaming",
        /// Also while the person thinks.
        #[default]
        Idle = "idle",
    }
}

/// Numbers of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionSettings {
    /// Whether it happens by itself.
    pub enabled: bool,
    /// Tokens kept free for the answer.
    pub reserve_tokens: u64,
    /// Tokens of recent messages that stay.
    pub keep_recent_tokens: u64,
}

/// How a failed turn is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// Whether at all.
    pub enabled: bool,
    /// How often.
    pub max_retries: u32,
    /// First pause; doubles.
    pub base_delay_ms: u64,
    /// Longest pause.
    pub max_agent_delay_ms: u64,
}

/// How one request is tried again inside a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderRetry {
    /// Limit for one request.
    pub timeout_ms: Option<u64>,
    /// How often; `None` leaves it to the provider.
    pub max_retries: Option<u32>,
    /// A server that asks for a longer pause is not waited for.
    pub max_retry_delay_ms: u64,
}

/// Summary of a branch that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchSummarySettings {
    /// Tokens kept free for the answer.
    pub reserve_tokens: u64,
    /// Whether the question for a summary is skipped.
    pub skip_prompt: bool,
}

impl Settings {
    /// Looks up a dotted path in the merged view.
    pub fn get(&self, path: &[&str]) -> Option<&Value> {
        lookup(self.effective(), path)
    }

    /// Returns a text setting.
    pub fn text(&self, path: &[&str]) -> Option<&str> {
        self.get(path).and_then(Value::as_str)
    }

    /// Returns a yes-or-no setting.
    pub fn flag(&self, path: &[&str], default: bool) -> bool {
        self.get(path).and_then(Value::as_bool).unwrap_or(default)
    }

    fn number(&self, path: &[&str], default: u64) -> u64 {
        self.get(path).and_then(whole).unwrap_or(default)
    }

    fn texts(&self, path: &[&str]) -> Option<Vec<String>> {
        let list = self.get(path)?.as_array()?;
        Some(
            list.iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
        )
    }

    /// `defaultProvider` and `defaultModel`.
    pub fn default_model(&self) -> (Option<&str>, Option<&str>) {
        (
            self.text(&["defaultProvider"]),
            self.text(&["defaultModel"]),
        )
    }

    /// `modelThinkingLevels` of the model, else `defaultThinkingLevel`.
    pub fn thinking_level(&self, provider: &str, id: &str) -> Option<&str> {
        let key = format!("{provider}/{id}");
        self.model_thinking_level(&key)
            .or_else(|| self.text(&["defaultThinkingLevel"]))
    }

    /// `modelThinkingLevels` alone; `model` is `provider/id`.
    pub fn model_thinking_level(&self, model: &str) -> Option<&str> {
        self.text(&["modelThinkingLevels", model])
    }

    /// `thinkingBudgets`: tokens by level.
    pub fn thinking_budget(&self, level: &str) -> Option<u64> {
        self.get(&["thinkingBudgets", level]).and_then(whole)
    }

    /// `enabledModels`: patterns of the models that can be cycled through.
    pub fn enabled_models(&self) -> Option<Vec<String>> {
        self.texts(&["enabledModels"])
    }

    /// Names of the built-in tools to begin with; `None`: the usual four.
    pub fn default_tools(&self) -> Option<Vec<String>> {
        let value = self.get(&["defaultTools"])?;
        let Some(list) = value.as_array() else {
            return Some(Vec::new());
        };
        Some(resolve_tools(list))
    }

    /// `steeringMode`.
    pub fn steering_mode(&self) -> QueueMode {
        self.choice("steeringMode", QueueMode::parse)
    }

    /// `followUpMode`.
    pub fn follow_up_mode(&self) -> QueueMode {
        self.choice("followUpMode", QueueMode::parse)
    }

    /// `transport`.
    pub fn transport(&self) -> Transport {
        self.choice("transport", Transport::parse)
    }

    /// `treeFilterMode`.
    pub fn tree_filter(&self) -> TreeFilter {
        self.choice("treeFilterMode", TreeFilter::parse)
    }

    /// `doubleEscapeAction`.
    pub fn double_escape(&self) -> DoubleEscape {
        self.choice("doubleEscapeAction", DoubleEscape::parse)
    }

    fn choice<T: Default>(&self, key: &str, parse: impl Fn(&str) -> Option<T>) -> T {
        self.text(&[key]).and_then(parse).unwrap_or_default()
    }

    /// `cacheWarming`, which a project cannot set.
    pub fn cache_warming(&self) -> CacheWarming {
        self.global_text("cacheWarming")
            .and_then(CacheWarming::parse)
            .unwrap_or_default()
    }

    /// `defaultProjectTrust`, which a project cannot set.
    pub fn default_project_trust(&self) -> DefaultTrust {
        match self.global_text("defaultProjectTrust") {
            Some("always") => DefaultTrust::Always,
            Some("never") => DefaultTrust::Never,
            _ => DefaultTrust::Ask,
        }
    }

    /// `httpProxy`, which a project cannot set.
    pub fn http_proxy(&self) -> Option<&str> {
        self.global_text("httpProxy")
    }

    fn global_text(&self, key: &str) -> Option<&str> {
        self.scope(Scope::Global).get(key).and_then(Value::as_str)
    }

    /// `compaction`; for a model its `modelOverrides` come first. `model` is `provider/id`.
    ///
    /// # Errors
    /// A token count that is no whole number from 0.
    pub fn compaction(&self, model: Option<&str>) -> Result<CompactionSettings, ValueError> {
        let tokens = |name: &str, default| {
            let of_model = model.and_then(|model| {
                let path = ["compaction", "modelOverrides", model, name];
                self.get(&path).map(|value| (path.join("."), value))
            });
            let plain = || {
                self.get(&["compaction", name])
                    .map(|value| (format!("compaction.{name}"), value))
            };
            match of_model.or_else(plain) {
                None => Ok(default),
                Some((key, value)) => whole(value).ok_or_else(|| ValueError {
                    key,
                    value: value.to_string(),
                    must: "a whole number of tokens from 0",
                }),
            }
        };
        Ok(CompactionSettings {
            enabled: self.flag(&["compaction", "enabled"], true),
            reserve_tokens: tokens("reserveTokens", 16_384)?,
            keep_recent_tokens: tokens("keepRecentTokens", 20_000)?,
        })
    }

    /// `branchSummary`.
    pub fn branch_summary(&self) -> BranchSummarySettings {
        BranchSummarySettings {
            reserve_tokens: self.number(&["branchSummary", "reserveTokens"], 16_384),
            skip_prompt: self.flag(&["branchSummary", "skipPrompt"], false),
        }
    }

    /// `retry`.
    pub fn retry(&self) -> RetrySettings {
        let retries = self.number(&["retry", "maxRetries"], 3);
        RetrySettings {
            enabled: self.flag(&["retry", "enabled"], true),
            max_retries: u32::try_from(retries).unwrap_or(u32::MAX),
            base_delay_ms: self.number(&["retry", "baseDelayMs"], 2_000),
            max_agent_delay_ms: self.number(&["retry", "maxAgentDelayMs"], 60_000),
        }
    }

    /// `retry.provider`.
    pub fn provider_retry(&self) -> ProviderRetry {
        let number = |name| self.get(&["retry", "provider", name]).and_then(whole);
        ProviderRetry {
            timeout_ms: number("timeoutMs"),
            max_retries: number("maxRetries").and_then(|n| u32::try_from(n).ok()),
            max_retry_delay_ms: number("maxRetryDelayMs").unwrap_or(60_000),
        }
    }

    /// `httpIdleTimeoutMs`; 0 means no limit.
    ///
    /// # Errors
    /// A value that is no number of milliseconds.
    pub fn http_idle_timeout_ms(&self) -> Result<u64, ValueError> {
        Ok(self.timeout("httpIdleTimeoutMs")?.unwrap_or(300_000))
    }

    /// `websocketConnectTimeoutMs`; `None`: the usual 15 s.
    ///
    /// # Errors
    /// A value that is no number of milliseconds.
    pub fn websocket_connect_timeout_ms(&self) -> Result<Option<u64>, ValueError> {
        self.timeout("websocketConnectTimeoutMs")
    }

    fn timeout(&self, key: &str) -> Result<Option<u64>, ValueError> {
        let Some(value) = self.get(&[key]) else {
            return Ok(None);
        };
        let millis = match value {
            Value::String(text) if text == "disabled" => Some(0.0),
            Value::String(text) => text.trim().parse::<f64>().ok(),
            other => other.as_f64(),
        };
        match millis.filter(|n| n.is_finite() && *n >= 0.0) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "finite and not negative"
            )]
            Some(millis) => Ok(Some(millis as u64)),
            None => Err(ValueError {
                key: key.to_owned(),
                value: value.to_string(),
                must: "a number of milliseconds from 0, or \"disabled\"",
            }),
        }
    }

    /// `sessionDir`, as written. The project's counts even without trust.
    pub fn session_dir(&self) -> Option<&str> {
        let project = self.project_session_dir.as_deref();
        project.or_else(|| self.global_text("sessionDir"))
    }

    /// `enableSkillCommands`: whether completion offers skills.
    pub fn enable_skill_commands(&self) -> bool {
        self.flag(&["enableSkillCommands"], true)
    }

    /// `images.autoResize`.
    pub fn image_auto_resize(&self) -> bool {
        self.flag(&["images", "autoResize"], true)
    }

    /// `images.blockImages`.
    pub fn block_images(&self) -> bool {
        self.flag(&["images", "blockImages"], false)
    }

    /// `hideThinkingBlock`.
    pub fn hide_thinking(&self) -> bool {
        self.flag(&["hideThinkingBlock"], false)
    }

    /// `shellPath`.
    pub fn shell_path(&self) -> Option<&str> {
        self.text(&["shellPath"])
    }

    /// `shellCommandPrefix`, put before every command of the bash tool.
    pub fn shell_command_prefix(&self) -> Option<&str> {
        self.text(&["shellCommandPrefix"])
    }
}

fn lookup<'a>(map: &'a Map<String, Value>, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(map.get(*first)?, |value, part| value.get(*part))
}

/// A whole number from 0; `3.0` is one.
fn whole(value: &Value) -> Option<u64> {
    let number = value.as_u64().or_else(|| {
        let float = value.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole and not negative"
        )]
        let number = float as u64;
        Some(number)
    })?;
    (number <= MAX_SAFE_INTEGER).then_some(number)
}

/// Plain names are the base (none, but changes: the usual four), then `+x` and `-x` in their order.
fn resolve_tools(list: &[Value]) -> Vec<String> {
    let entries: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
    let (changes, plain): (Vec<&str>, Vec<&str>) = entries
        .iter()
        .partition(|entry| entry.starts_with(['+', '-']));
    let base = if plain.is_empty() && !changes.is_empty() {
        super::super::system_prompt::DEFAULT_TOOLS.to_vec()
    } else {
        plain
    };
    let mut names: Vec<String> = Vec::new();
    let add = |names: &mut Vec<String>, name: &str| {
        if !names.iter().any(|other| other == name) {
            names.push(name.to_owned());
        }
    };
    for name in base {
        add(&mut names, name);
    }
    for change in changes {
        match (change.strip_prefix('+'), change.strip_prefix('-')) {
            (Some(name), _) => add(&mut names, name),
            (_, Some(name)) => names.retain(|other| other != name),
            _ => {}
        }
    }
    names
}
