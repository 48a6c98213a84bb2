//! Whether an answer failed because the context is too big for the model.

use std::sync::OnceLock;

use regex::{Regex, RegexSet};

use crate::ai::{AssistantMessage, StopReason};

/// What providers say, case-insensitive.
const PATTERNS: &[&str] = &[
    r"prompt (is )?too long",
    r"prompt exceeds max length",
    r"request_too_large",
    r"input is too long for requested model",
    r"exceeds the context window",
    r"exceeds (the )?(model'?s )?maximum context length( of \d[\d,]* tokens| \(\d[\d,]*\))",
    r"context window exceeded",
    r"input token count.*exceeds the maximum",
    r"maximum prompt length is \d",
    r"reduce the length of the messages",
    r"maximum context length is \d+ tokens",
    r"exceeds (the )?maximum allowed input length of \d[\d,]* tokens",
    r"input \(\d[\d,]* tokens\) is longer than the model's context length \(\d[\d,]* tokens\)",
    r"exceeds the limit of \d",
    r"exceeds the available context size",
    r"greater than the context length",
    r"context window exceeds limit",
    r"exceeded model token limit",
    r"too large for model with \d+ maximum context length",
    r"prompt has \d[\d,]* tokens, but the configured context size is \d[\d,]* tokens",
    r"model_context_window_exceeded",
    r"prompt too long; exceeded (max )?context length",
    r"range of input length should be",
    r"context[_ ]length[_ ]exceeded",
    r"too many tokens",
    r"token limit exceeded",
    r"^413($|[\s:])",
    r"^\S+ api error \(413\):",
];

/// What looks like the above and is something else.
const OTHER_TROUBLE: &str =
    r"(?i)rate limit|too many requests|^throttling error:|^service unavailable:";

fn patterns() -> Option<&'static RegexSet> {
    static SET: OnceLock<Option<RegexSet>> = OnceLock::new();
    let build = || {
        regex::RegexSetBuilder::new(PATTERNS)
            .case_insensitive(true)
            .build()
            .ok()
    };
    SET.get_or_init(build).as_ref()
}

fn other_trouble(text: &str) -> bool {
    static OTHER: OnceLock<Option<Regex>> = OnceLock::new();
    let regex = OTHER.get_or_init(|| Regex::new(OTHER_TROUBLE).ok());
    regex.as_ref().is_some_and(|regex| regex.is_match(text))
}

/// Whether the request failed because the prompt was too long.
pub fn is_overflow_error(message: &AssistantMessage) -> bool {
    let Some(text) = message
        .error_message
        .as_deref()
        .filter(|_| message.stop_reason == StopReason::Error)
    else {
        return false;
    };
    if other_trouble(text) {
        return false;
    }
    let cerebras = message.provider == "cerebras" && is_bare_status(text);
    cerebras || patterns().is_some_and(|set| set.is_match(text))
}

/// Cerebras says no more than the status when the prompt is too long.
fn is_bare_status(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let status = lower.starts_with("400") || lower.starts_with("413");
    status && lower.contains("(no body)")
}

/// Whether the answer was accepted although it cannot have fit: providers that cut the prompt silently.
pub fn is_silent_overflow(message: &AssistantMessage, context_window: Option<u64>) -> bool {
    let Some(window) = context_window.filter(|window| *window > 0) else {
        return false;
    };
    let prompt = message.usage.input + message.usage.cache_read;
    match message.stop_reason {
        StopReason::Stop => prompt > window,
        // 99 % of the window, without floats.
        StopReason::Length => {
            message.usage.output == 0 && u128::from(prompt) * 100 >= u128::from(window) * 99
        }
        _ => false,
    }
}

/// Whether an answer says, in either way, that the context was too big.
pub fn is_overflow(message: &AssistantMessage, context_window: Option<u64>) -> bool {
    is_overflow_error(message) || is_silent_overflow(message, context_window)
}

/// Whether an answer was cut below the model's own output limit: the window left no more room.
pub fn is_recoverable_length(message: &AssistantMessage, max_output: u64) -> bool {
    message.stop_reason == StopReason::Length && message.usage.output < max_output
}
