//! Whether an answer failed because the context is too big for the model.

use crate::ai::overflow::is_overflow_text;
use crate::ai::{AssistantMessage, StopReason};

/// Whether the request failed because the prompt was too long.
pub fn is_overflow_error(message: &AssistantMessage) -> bool {
    let text = message
        .error_message
        .as_deref()
        .filter(|_| message.stop_reason == StopReason::Error);
    text.is_some_and(|text| is_overflow_text(text, &message.provider))
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
