//! Events and messages in the JSON of Pi's RPC and JSON modes.
//!
//! Entry points: [`Event::to_line`], [`Event::to_wire`]. Events that are not on that wire give `None`.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::protocol::Event;
use crate::ai::{Block, Message, StreamEvent, Usage};

/// Builds an object; `None` values are left out.
macro_rules! record {
    ($kind:expr $(, $key:literal : $value:expr)* $(,)?) => {{
        let mut map = Map::new();
        map.insert("type".to_owned(), Value::from($kind));
        $(put(&mut map, $key, $value);)*
        Some(Value::Object(map))
    }};
}

/// Something that may be absent from a record.
trait Field {
    fn value(self) -> Option<Value>;
}

impl Field for Value {
    fn value(self) -> Option<Value> {
        Some(self)
    }
}

impl Field for Option<Value> {
    fn value(self) -> Option<Value> {
        self
    }
}

fn put(map: &mut Map<String, Value>, key: &str, field: impl Field) {
    if let Some(value) = field.value() {
        map.insert(key.to_owned(), value);
    }
}

fn text(value: &str) -> Value {
    Value::from(value)
}

fn opt(value: Option<&String>) -> Option<Value> {
    value.map(|text| Value::from(text.as_str()))
}

/// The records that come most often or hold whole messages, written without a value in between. Fields and their order
/// are those of [`Event::to_wire`], held by a test.
#[derive(Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
enum Line<'a> {
    AgentEnd {
        messages: &'a [Arc<Message>],
        will_retry: bool,
    },
    TurnEnd {
        message: &'a Message,
        tool_results: &'a [Arc<Message>],
    },
    MessageStart {
        message: &'a Message,
    },
    MessageEnd {
        message: &'a Message,
    },
    MessageUpdate {
        usage: &'a Usage,
        assistant_message_event: Value,
    },
}

impl Event {
    /// Returns the text of [`Event::to_wire`].
    pub fn to_line(&self) -> Option<String> {
        let line = match self {
            Self::AgentEnd {
                messages,
                will_retry,
            } => Line::AgentEnd {
                messages,
                will_retry: *will_retry,
            },
            Self::TurnEnd {
                message,
                tool_results,
            } => Line::TurnEnd {
                message,
                tool_results,
            },
            Self::MessageStart { message } => Line::MessageStart { message },
            Self::MessageEnd { message, .. } => Line::MessageEnd { message },
            Self::MessageUpdate { usage, event } => Line::MessageUpdate {
                usage,
                assistant_message_event: piece(event)?,
            },
            other => return Some(text_of(&other.to_wire()?)),
        };
        serde_json::to_string(&line).ok()
    }

    /// Returns the record of this event on Pi's wire; `None` for events that are only for faces of this process.
    pub fn to_wire(&self) -> Option<Value> {
        match self {
            Self::AgentStart => record!("agent_start"),
            Self::TurnStart => record!("turn_start"),
            Self::AgentEnd {
                messages,
                will_retry,
            } => record!("agent_end", "messages": all(messages), "willRetry": json!(will_retry)),
            Self::AgentSettled { aborted } => {
                record!("agent_settled", "aborted": json!(aborted))
            }
            Self::TurnEnd {
                message,
                tool_results,
            } => {
                record!("turn_end", "message": message.to_value(), "toolResults": all(tool_results))
            }
            Self::MessageStart { message } => {
                record!("message_start", "message": message.to_value())
            }
            Self::MessageEnd { message, .. } => {
                record!("message_end", "message": message.to_value())
            }
            Self::MessageUpdate { usage, event } => record!(
                "message_update",
                "usage": json!(usage),
                "assistantMessageEvent": piece(event)?,
            ),
            Self::ToolStart { .. } | Self::ToolUpdate { .. } | Self::ToolEnd { .. } => {
                self.tool_record()
            }
            Self::QueueUpdate {
                steering,
                follow_up,
            } => record!("queue_update", "steering": json!(steering), "followUp": json!(follow_up)),
            Self::EntryAppended { entry } => record!("entry_appended", "entry": entry.clone()),
            Self::SessionInfoChanged { name } => {
                record!("session_info_changed", "name": opt(name.as_ref()))
            }
            Self::ThinkingLevelChanged { level } => {
                record!("thinking_level_changed", "level": text(level))
            }
            Self::CompactionStart { reason } => {
                record!("compaction_start", "reason": text(reason))
            }
            Self::CompactionEnd {
                reason,
                result,
                aborted,
                will_retry,
                error,
            } => record!(
                "compaction_end",
                "reason": text(reason),
                "result": result.clone(),
                "aborted": json!(aborted),
                "willRetry": json!(will_retry),
                "errorMessage": opt(error.as_ref()),
            ),
            Self::RetryStart {
                attempt,
                max_attempts,
                delay_ms,
                error,
            } => record!(
                "auto_retry_start",
                "attempt": json!(attempt),
                "maxAttempts": json!(max_attempts),
                "delayMs": json!(delay_ms),
                "errorMessage": text(error),
            ),
            Self::RetryEnd {
                success,
                attempt,
                error,
            } => record!(
                "auto_retry_end",
                "success": json!(success),
                "attempt": json!(attempt),
                "finalError": opt(error.as_ref()),
            ),
            Self::Summarization { record } | Self::ExtensionUi { record } => Some(record.clone()),
            Self::BashUpdate { tag, delta } => {
                record!("bash_execution_update", "id": tag.clone(), "delta": text(delta))
            }
            Self::ExtensionError { path, event, error } => record!(
                "extension_error",
                "extensionPath": text(path),
                "event": text(event),
                "error": text(error),
            ),
            Self::Response { .. }
            | Self::ToolWaits { .. }
            | Self::SessionChanged { .. }
            | Self::TreeChanged { .. }
            | Self::ModelChanged { .. }
            | Self::Review(_)
            | Self::Notice { .. } => None,
        }
    }

    fn tool_record(&self) -> Option<Value> {
        match self {
            Self::ToolStart {
                call_id,
                name,
                args,
            } => record!(
                "tool_execution_start",
                "toolCallId": text(call_id),
                "toolName": text(name),
                "args": args.clone(),
            ),
            Self::ToolUpdate {
                call_id,
                name,
                args,
                content,
                details,
            } => {
                let mut partial = Map::new();
                partial.insert("content".to_owned(), json!(content));
                put(&mut partial, "details", details.clone());
                record!(
                    "tool_execution_update",
                    "toolCallId": text(call_id),
                    "toolName": text(name),
                    "args": args.clone(),
                    "partialResult": Value::Object(partial),
                )
            }
            Self::ToolEnd {
                call_id,
                name,
                result,
                is_error,
                duration_ms,
            } => {
                let mut out = Map::new();
                out.insert("content".to_owned(), json!(result.content));
                put(&mut out, "details", result.details.clone());
                put(
                    &mut out,
                    "structuredContent",
                    result.structured_content.clone(),
                );
                put(
                    &mut out,
                    "usage",
                    result.usage.as_ref().map(|usage| json!(usage)),
                );
                put(
                    &mut out,
                    "terminate",
                    result.terminate.then_some(Value::Bool(true)),
                );
                // A tool that returned a failure says so in its result; one that was thrown, refused or stopped does not.
                let returned = result.is_error && result.details != Some(json!({}));
                put(&mut out, "isError", returned.then_some(Value::Bool(true)));
                record!(
                    "tool_execution_end",
                    "toolCallId": text(call_id),
                    "toolName": text(name),
                    "result": Value::Object(out),
                    "isError": json!(is_error),
                    "durationMs": duration_ms.map(Value::from),
                )
            }
            _ => None,
        }
    }
}

fn all(messages: &[Arc<Message>]) -> Value {
    messages.iter().map(|message| message.to_value()).collect()
}

/// Returns the `assistantMessageEvent` of a streamed piece; `None` for those that are no update.
fn piece(event: &StreamEvent) -> Option<Value> {
    let at = |index: &usize| json!(index);
    match event {
        StreamEvent::TextStart { index, .. } => record!("text_start", "contentIndex": at(index)),
        StreamEvent::ThinkingStart { index, .. } => {
            record!("thinking_start", "contentIndex": at(index))
        }
        StreamEvent::TextDelta { index, delta } => {
            record!("text_delta", "contentIndex": at(index), "delta": text(delta))
        }
        StreamEvent::ThinkingDelta { index, delta } => {
            record!("thinking_delta", "contentIndex": at(index), "delta": text(delta))
        }
        StreamEvent::ToolCallDelta { index, delta } => {
            record!("toolcall_delta", "contentIndex": at(index), "delta": text(delta))
        }
        StreamEvent::TextEnd { index, content } => {
            record!("text_end", "contentIndex": at(index), "content": text(content))
        }
        StreamEvent::ThinkingEnd { index, content } => {
            record!("thinking_end", "contentIndex": at(index), "content": text(content))
        }
        StreamEvent::ToolCallStart { index, id, name } => record!(
            "toolcall_start",
            "contentIndex": at(index),
            "id": text(id),
            "toolName": text(name),
        ),
        StreamEvent::ToolCallEnd { index, call } => record!(
            "toolcall_end",
            "contentIndex": at(index),
            "toolCall": json!(Block::ToolCall(call.clone())),
        ),
        StreamEvent::Start(_)
        | StreamEvent::Usage(_)
        | StreamEvent::Done(_)
        | StreamEvent::Error(_) => None,
    }
}

/// Writes a record as text. Not by `Display`, which formats piece by piece.
pub fn text_of(record: &Value) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ai::ToolResultMessage;

    fn messages() -> Vec<Arc<Message>> {
        let values = [
            json!({"role": "user", "content": "h\u{e4}\n\u{2028}\"", "timestamp": 1, "own": {"b": 1, "a": [0.5, 1e30]}}),
            json!({"role": "assistant", "content": [{"type": "text", "text": "x", "more": true}], "stopReason": "stop",
                "usage": {"input": 1, "cost": {"total": 0.25}}, "timestamp": 2}),
            json!({"role": "newer", "content": 1}),
            json!({"role": "custom", "customType": "c", "content": [], "display": false, "timestamp": 3}),
        ];
        values.map(Message::from_value).map(Arc::new).to_vec()
    }

    #[test]
    fn a_line_is_the_text_of_its_record() {
        let all = messages();
        let result = Arc::new(Message::ToolResult(ToolResultMessage::default()));
        let mut events = vec![
            Event::AgentEnd {
                messages: all.clone(),
                will_retry: true,
            },
            Event::TurnStart,
            Event::AgentSettled { aborted: false },
        ];
        for message in all {
            events.push(Event::MessageStart {
                message: message.clone(),
            });
            events.push(Event::MessageEnd {
                message: message.clone(),
                entry: None,
            });
            events.push(Event::TurnEnd {
                message,
                tool_results: vec![result.clone()],
            });
        }
        for event in [
            StreamEvent::TextDelta {
                index: 0,
                delta: "d\u{1f600}".to_owned(),
            },
            StreamEvent::Usage(Usage::default()),
        ] {
            events.push(Event::MessageUpdate {
                usage: Box::default(),
                event,
            });
        }
        for event in events {
            assert_eq!(
                event.to_line(),
                event.to_wire().map(|record| record.to_string()),
                "{event:?}"
            );
        }
    }
}
