//! Events and messages in the JSON of Pi's RPC and JSON modes.
//!
//! Entry point: [`Event::to_wire`]. Events that are not on that wire give `None`.

use serde_json::{Map, Value, json};

use super::protocol::Event;
use crate::ai::{Block, Message, StreamEvent};

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

impl Event {
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

fn all(messages: &[std::sync::Arc<Message>]) -> Value {
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
