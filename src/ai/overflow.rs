//! Whether an answer failed because the conversation no longer fits the model's window (then it is compacted).

use std::sync::LazyLock;

use regex::Regex;

use super::message::{AssistantMessage, StopReason};
use super::retry::compile;

/// A number as servers write it, with or without separators.
macro_rules! with_numbers {
    ($($pattern:literal),* $(,)?) => { [$($pattern.replace("#N", r"[\d,._]+")),*] };
}

static OVERFLOW: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let patterns = with_numbers![
        r"prompt (?:is )?too long",
        r"prompt exceeds max length",
        r"request_too_large",
        r"input is too long for requested model",
        r"exceeds the context window",
        r"exceeds (?:the )?(?:model's )?maximum context length(?: of #N tokens?| ?\(#N\))",
        r"context.?window exceeded",
        r"input token count.*exceeds the maximum",
        r"maximum prompt length is #N",
        r"reduce the length of the messages",
        r"maximum context length is #N tokens",
        r"exceeds (?:the )?maximum allowed input length of #N tokens",
        r"input \(#N tokens\) is longer than the model's context length \(#N tokens\)",
        r"exceeds the limit of #N",
        r"exceeds the available context size",
        r"greater than the context length",
        r"context window exceeds limit",
        r"exceeded model token limit",
        r"too large for model with #N maximum context length",
        r"prompt has #N tokens, but the configured context size is #N",
        r"model_context_window_exceeded",
        r"prompt too long; exceeded (?:max )?context length",
        r"range of input length should be",
        r"context[_ ]length[_ ]exceeded",
        r"too many tokens",
        r"token limit exceeded",
        r"^413\b",
        r"^\S+ API error \(413\):",
    ];
    compile(&patterns.iter().map(String::as_str).collect::<Vec<_>>())
});

/// Throttling that reads like an overflow.
static THROTTLED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compile(&[
        r"rate.?limit",
        r"too many requests",
        r"^(?:Throttling error|Service unavailable):",
    ])
});

static NO_BODY: LazyLock<Option<Regex>> =
    LazyLock::new(|| compile(&[r"^(?:400|413)\s*status code \(no body\)"]));

/// Whether the text of an error says that the prompt was too large. Some providers say so only by an empty body.
pub fn is_overflow_text(text: &str, provider: &str) -> bool {
    let matches =
        |list: &LazyLock<Option<Regex>>| list.as_ref().is_some_and(|regex| regex.is_match(text));
    if matches(&THROTTLED) {
        return false;
    }
    matches(&OVERFLOW) || (provider == "cerebras" && matches(&NO_BODY))
}

/// Whether an answer says, in either way, that the context was too big. `context_window` 0 = unknown.
pub fn is_overflow(message: &AssistantMessage, context_window: u64) -> bool {
    is_overflow_error(message) || is_silent_overflow(message, context_window)
}

/// Whether the request failed because the prompt was too long.
pub fn is_overflow_error(message: &AssistantMessage) -> bool {
    let text = message.error_message.as_deref();
    message.stop_reason == StopReason::Error
        && text.is_some_and(|text| is_overflow_text(text, &message.provider))
}

/// Whether the answer was accepted although the prompt cannot have fit: it was above the window (some providers cut it
/// silently), or left no room for an answer. `context_window` 0 = unknown.
pub fn is_silent_overflow(message: &AssistantMessage, context_window: u64) -> bool {
    let prompt = message.usage.input.saturating_add(message.usage.cache_read);
    match message.stop_reason {
        _ if context_window == 0 => false,
        StopReason::Stop => prompt > context_window,
        // 99 % of the window, without floats.
        StopReason::Length => {
            message.usage.output == 0 && u128::from(prompt) * 100 >= u128::from(context_window) * 99
        }
        _ => false,
    }
}

/// Whether an answer was cut below the model's own output limit: the window left no more room.
pub fn is_recoverable_length(message: &AssistantMessage, max_output: u64) -> bool {
    message.stop_reason == StopReason::Length && message.usage.output < max_output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_compile() {
        assert!(OVERFLOW.is_some() && THROTTLED.is_some() && NO_BODY.is_some());
    }
}
