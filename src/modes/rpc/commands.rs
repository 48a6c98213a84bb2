//! Records of the client, read into commands.

use std::path::PathBuf;

use serde_json::Value;

use crate::ai::{Block, ThinkingLevel};
use crate::session::Command;
use crate::session::protocol::{Behavior, QueueMode, SummaryWish};

/// Reads a command of this type; `None` for a type that does not exist. The error is one line for the response.
pub fn parse(kind: &str, record: &Value) -> Option<Result<Command, String>> {
    let fields = Fields { kind, record };
    Some(match kind {
        "prompt" => fields.prompt(),
        "steer" => fields
            .message()
            .map(|(text, images)| Command::Steer { text, images }),
        "follow_up" => fields
            .message()
            .map(|(text, images)| Command::FollowUp { text, images }),
        "abort" => Ok(Command::Abort),
        "clear_queue" => Ok(Command::ClearQueue),
        "new_session" => fields
            .optional("parentSession")
            .map(|parent| Command::NewSession {
                parent: parent.map(PathBuf::from),
                name: None,
            }),
        "get_state" => Ok(Command::GetState),
        "get_messages" => Ok(Command::GetMessages),
        "set_model" => fields.model(),
        "cycle_model" => Ok(Command::CycleModel),
        "get_available_models" => Ok(Command::GetAvailableModels),
        "set_thinking_level" => fields.level(),
        "cycle_thinking_level" => Ok(Command::CycleThinkingLevel),
        "get_available_thinking_levels" => Ok(Command::GetAvailableThinkingLevels),
        "set_steering_mode" => fields.mode().map(|mode| Command::SetSteeringMode { mode }),
        "set_follow_up_mode" => fields.mode().map(|mode| Command::SetFollowUpMode { mode }),
        "compact" => fields
            .optional("customInstructions")
            .map(|instructions| Command::Compact { instructions }),
        "set_auto_compaction" => fields
            .flag("enabled")
            .map(|enabled| Command::SetAutoCompaction { enabled }),
        "set_auto_retry" => fields
            .flag("enabled")
            .map(|enabled| Command::SetAutoRetry { enabled }),
        "abort_retry" => Ok(Command::AbortRetry),
        "bash" => fields.bash(),
        "abort_bash" => Ok(Command::AbortBash),
        "get_session_stats" => Ok(Command::GetSessionStats),
        "export_html" => fields
            .optional("outputPath")
            .map(|path| Command::ExportHtml {
                path: path.map(PathBuf::from),
            }),
        "switch_session" => fields
            .text("sessionPath")
            .map(|path| Command::SwitchSession {
                path: PathBuf::from(path),
            }),
        "fork" => fields.text("entryId").map(|entry| Command::Fork { entry }),
        "clone" => Ok(Command::Clone),
        "get_fork_messages" => Ok(Command::GetForkMessages),
        "get_entries" => fields
            .optional("since")
            .map(|since| Command::GetEntries { since }),
        "get_tree" => Ok(Command::GetTree),
        "get_last_assistant_text" => Ok(Command::GetLastAssistantText),
        "set_session_name" => fields
            .text("name")
            .map(|name| Command::SetSessionName { name }),
        "get_commands" => Ok(Command::GetCommands),
        // Ours: what the tree of a face can do, a program can.
        "navigate_tree" => fields.navigate(),
        "set_label" => fields.label(),
        "edit_context" => fields.edit(),
        _ => return None,
    })
}

struct Fields<'a> {
    kind: &'a str,
    record: &'a Value,
}

impl Fields<'_> {
    fn wrong(&self, key: &str, wanted: &str, found: &Value) -> String {
        format!("{}: `{key}` must be {wanted}, not {found}", self.kind)
    }

    fn text(&self, key: &str) -> Result<String, String> {
        match self.record.get(key) {
            Some(Value::String(text)) => Ok(text.clone()),
            None => Err(format!("{}: `{key}` is missing", self.kind)),
            Some(other) => Err(self.wrong(key, "a text", other)),
        }
    }

    fn optional(&self, key: &str) -> Result<Option<String>, String> {
        match self.record.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.text(key).map(Some),
        }
    }

    fn flag(&self, key: &str) -> Result<bool, String> {
        match self.record.get(key) {
            Some(Value::Bool(flag)) => Ok(*flag),
            None => Err(format!("{}: `{key}` is missing", self.kind)),
            Some(other) => Err(self.wrong(key, "true or false", other)),
        }
    }

    fn images(&self) -> Result<Vec<Block>, String> {
        let items = match self.record.get("images") {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.wrong("images", "a list", other)),
        };
        let image = |item: &Value| match Block::from_value(item.clone()) {
            block @ Block::Image(_) => Ok(block),
            _ => Err(format!(
                "{}: an image needs type, data and mimeType",
                self.kind
            )),
        };
        items.iter().map(image).collect()
    }

    fn message(&self) -> Result<(String, Vec<Block>), String> {
        Ok((self.text("message")?, self.images()?))
    }

    fn prompt(&self) -> Result<Command, String> {
        let (text, images) = self.message()?;
        let behavior = match self.optional("streamingBehavior")?.as_deref() {
            None => None,
            Some("steer") => Some(Behavior::Steer),
            Some("followUp") => Some(Behavior::FollowUp),
            Some(other) => {
                return Err(format!(
                    "prompt: `streamingBehavior` must be steer or followUp, not {other}"
                ));
            }
        };
        Ok(Command::Prompt {
            text,
            images,
            behavior,
        })
    }

    fn model(&self) -> Result<Command, String> {
        Ok(Command::SetModel {
            provider: self.text("provider")?,
            id: self.text("modelId")?,
        })
    }

    fn level(&self) -> Result<Command, String> {
        let level = self.text("level")?;
        if ThinkingLevel::parse(&level).is_none() {
            let words: Vec<&str> = ThinkingLevel::ALL.iter().map(|it| it.as_str()).collect();
            return Err(format!(
                "{}: `level` must be one of {}, not {level}",
                self.kind,
                words.join(", ")
            ));
        }
        Ok(Command::SetThinkingLevel { level })
    }

    fn mode(&self) -> Result<QueueMode, String> {
        let word = self.text("mode")?;
        QueueMode::parse(&word).ok_or_else(|| {
            format!(
                "{}: `mode` must be one-at-a-time or all, not {word}",
                self.kind
            )
        })
    }

    fn bash(&self) -> Result<Command, String> {
        let exclude = match self.record.get("excludeFromContext") {
            None | Some(Value::Null) => false,
            Some(_) => self.flag("excludeFromContext")?,
        };
        Ok(Command::Bash {
            command: self.text("command")?,
            exclude_from_context: exclude,
            tag: self.record.get("id").cloned(),
        })
    }

    fn label(&self) -> Result<Command, String> {
        Ok(Command::SetLabel {
            entry: self.text("entryId")?,
            label: self.optional("label")?,
        })
    }

    /// `replacement`: null, `{content}`, or `{original: true}`; what it holds is checked with the entry.
    fn edit(&self) -> Result<Command, String> {
        let replacement = self.record.get("replacement");
        Ok(Command::EditContext {
            target: self.text("targetId")?,
            replacement: replacement
                .cloned()
                .ok_or_else(|| format!("{}: `replacement` is missing", self.kind))?,
        })
    }

    fn navigate(&self) -> Result<Command, String> {
        let summary = match self.record.get("summarize") {
            None | Some(Value::Null | Value::Bool(false)) => SummaryWish::None,
            Some(_) => match self.optional("customInstructions")? {
                Some(instructions) => SummaryWish::With(instructions),
                None => SummaryWish::Plain,
            },
        };
        Ok(Command::Navigate {
            target: self.optional("targetId")?,
            summary,
            label: self.optional("label")?,
        })
    }
}
