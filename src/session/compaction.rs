//! Keeping a conversation small: when to compact, what to summarise, and the summary itself.
//!
//! The steps are separate so that each can be tested alone: [`decide::after_answer`] says whether something has to be
//! done, [`prepare::prepare`] finds the cut and the messages (both pure), [`summary::summarise`] asks the model. Nothing
//! is appended here: the caller appends the result, and after a failure there is nothing to undo.

pub mod decide;
pub mod files;
pub mod prepare;
pub mod prompts;
pub mod serialise;
pub mod summary;

use serde_json::Value;

pub use self::prepare::{Preparation, prepare};
pub use self::summary::{Asker, Once, Summary, SummaryError, SummaryModel, summarise};

/// Tokens kept free for the answer, when settings say nothing.
pub const RESERVE_TOKENS: u64 = 16_384;
/// Tokens of recent messages kept word for word, when settings say nothing.
pub const KEEP_RECENT_TOKENS: u64 = 20_000;
/// Greatest whole number that JSON settings can carry exactly.
const MAX_SAFE: u64 = (1 << 53) - 1;

/// Settings of compaction for one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionSettings {
    /// Whether compaction happens by itself; by hand it always can.
    pub enabled: bool,
    /// Tokens kept free for the answer.
    pub reserve_tokens: u64,
    /// Tokens of recent messages kept word for word.
    pub keep_recent_tokens: u64,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            reserve_tokens: RESERVE_TOKENS,
            keep_recent_tokens: KEEP_RECENT_TOKENS,
        }
    }
}

impl CompactionSettings {
    /// Reads the `compaction` object of the merged settings for a model.
    ///
    /// # Errors
    /// One line that names the key of a value that is no whole number.
    pub fn read(compaction: &Value, provider: &str, model_id: &str) -> Result<Self, String> {
        let model = format!("{provider}/{model_id}");
        let own = compaction
            .get("modelOverrides")
            .and_then(|overrides| overrides.get(&model));
        let number = |key: &str, default: u64| {
            let own_key = || format!("compaction.modelOverrides[\"{model}\"].{key}");
            let found = own
                .and_then(|own| own.get(key))
                .map(|value| (own_key(), value));
            let found = found.or_else(|| {
                compaction
                    .get(key)
                    .map(|value| (format!("compaction.{key}"), value))
            });
            match found {
                None => Ok(default),
                Some((key, value)) => whole_number(value).ok_or_else(|| {
                    format!("setting {key} is {value}; give a whole number of tokens, 0 or more")
                }),
            }
        };
        Ok(Self {
            enabled: compaction
                .get("enabled")
                .and_then(Value::as_bool)
                .unwrap_or(true),
            reserve_tokens: number("reserveTokens", RESERVE_TOKENS)?,
            keep_recent_tokens: number("keepRecentTokens", KEEP_RECENT_TOKENS)?,
        })
    }

    /// Whether a context of this size has to be compacted.
    pub fn is_over(&self, tokens: u64, context_window: u64) -> bool {
        self.enabled
            && i128::from(tokens) > i128::from(context_window) - i128::from(self.reserve_tokens)
    }
}

fn whole_number(value: &Value) -> Option<u64> {
    let float = value.as_f64()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be whole and in range first"
    )]
    let whole = (float.fract() == 0.0 && float >= 0.0).then_some(float as u64);
    value
        .as_u64()
        .or(whole)
        .filter(|number| *number <= MAX_SAFE)
}

#[cfg(test)]
mod tests;
