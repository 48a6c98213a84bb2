//! The settings a run goes by, read from the merged settings file: each value falls back to its default alone.

use serde_json::{Map, Value};

use std::path::PathBuf;

use crate::ai::retry::RetryPolicy;
use crate::resources::settings::Settings;
use crate::tools::ToolOptions;

/// Settings of runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RuntimeSettings {
    pub(super) retry: RetrySettings,
    /// `compaction.enabled`.
    pub(super) auto_compaction: bool,
}

/// Takes over what the settings say about tools.
pub(in crate::session) fn follow(options: &mut ToolOptions, settings: &Settings) {
    options.command_prefix = settings.shell_command_prefix().map(str::to_owned);
    options.shell_path = settings.shell_path().map(PathBuf::from);
    options.auto_resize_images = settings.image_auto_resize();
}

/// `retry`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RetrySettings {
    pub(super) enabled: bool,
    pub(super) max_retries: u32,
    pub(super) policy: RetryPolicy,
}

impl RuntimeSettings {
    pub(super) fn of(settings: &Map<String, Value>) -> Self {
        let at = |group: &str, key: &str| settings.get(group).and_then(|group| group.get(key));
        let flag = |group: &str, key: &str| at(group, key).and_then(Value::as_bool);
        let number = |group: &str, key: &str| at(group, key).and_then(Value::as_u64);
        let default = RetryPolicy::default();
        Self {
            retry: RetrySettings {
                enabled: flag("retry", "enabled").unwrap_or(true),
                max_retries: number("retry", "maxRetries")
                    .and_then(|count| u32::try_from(count).ok())
                    .unwrap_or(3),
                policy: RetryPolicy {
                    base_delay_ms: number("retry", "baseDelayMs").unwrap_or(default.base_delay_ms),
                    max_delay_ms: number("retry", "maxAgentDelayMs")
                        .unwrap_or(default.max_delay_ms),
                },
            },
            auto_compaction: flag("compaction", "enabled").unwrap_or(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_value_falls_back_alone() {
        let settings = json!({"retry": {"baseDelayMs": 20, "maxRetries": "x"}, "compaction": {"enabled": false}});
        let read = RuntimeSettings::of(settings.as_object().unwrap());
        assert_eq!(read.retry.policy.base_delay_ms, 20);
        assert_eq!(read.retry.policy.max_delay_ms, 60_000);
        assert_eq!(read.retry.max_retries, 3);
        assert!(read.retry.enabled && !read.auto_compaction);
    }
}
