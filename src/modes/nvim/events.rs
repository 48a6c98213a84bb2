//! `User` autocommands that other plugins may listen to.

use serde_json::{Value as Json, json};

use super::json::put;
use crate::review::ReviewEvent;
use crate::session::Event;

/// Returns the ops that fire the autocommands of an event. Streaming text fires none.
pub(super) fn user_events(session: &str, event: &Event) -> Vec<Json> {
    let fired = match event {
        Event::AgentStart => ("PiRunStart", json!({})),
        Event::AgentSettled { aborted } => {
            let reason = if *aborted { "aborted" } else { "done" };
            ("PiRunEnd", json!({ "reason": reason }))
        }
        Event::TurnEnd { .. } => ("PiTurnEnd", json!({})),
        Event::MessageEnd { message, entry } => {
            ("PiMessage", json!({"role": message.role(), "entry": entry}))
        }
        Event::ToolStart { call_id, name, .. } => (
            "PiToolStart",
            json!({"tool": name, "id": call_id, "error": false}),
        ),
        Event::ToolEnd {
            call_id,
            name,
            is_error,
            ..
        } => (
            "PiToolEnd",
            json!({"tool": name, "id": call_id, "error": is_error}),
        ),
        Event::SessionInfoChanged { name } => ("PiSessionRename", json!({ "name": name })),
        Event::SessionChanged { id, .. } => ("PiSessionSwitch", json!({ "to": id })),
        Event::ModelChanged { provider, id } => {
            ("PiModelChanged", json!({"provider": provider, "model": id}))
        }
        Event::CompactionStart { .. } => ("PiCompaction", json!({"phase": "start"})),
        Event::CompactionEnd { .. } => ("PiCompaction", json!({"phase": "end"})),
        Event::TreeChanged { leaf } => ("PiTreeChanged", json!({ "leaf": leaf })),
        Event::Review(ReviewEvent::Mode { mode }) => ("PiModeChanged", json!({ "mode": mode })),
        _ => return Vec::new(),
    };
    let (name, mut data) = fired;
    put(&mut data, "session", session.into());
    vec![json!({"op": "events.fire", "name": name, "data": data})]
}
