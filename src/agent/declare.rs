//! Keeping the conversation's tool declarations equal to the tools that can run.

use serde_json::Map;

use super::host::RunHost;
use crate::ai::message::ToolName;
use crate::ai::{Content, Message, SystemMessage, ToolDeclaration};

/// Adds the difference between declared and executable tools to the last system message of `messages`, or to a new one
/// before the first message of another role. A changed definition is a removal and an addition.
pub(super) fn declare_tools(host: &dyn RunHost, messages: &mut Vec<Message>) {
    let wanted: Vec<ToolDeclaration> = host
        .tools()
        .iter()
        .map(|tool| tool.declaration().clone())
        .collect();
    let (added, removed) = difference(&host.declared(), &wanted);
    if added.is_empty() && removed.is_empty() {
        return;
    }
    let Some(system) = system_slot(messages, host.now_ms()) else {
        return;
    };
    if !added.is_empty() {
        system.tools_added.get_or_insert_default().extend(added);
    }
    if !removed.is_empty() {
        let names = removed.into_iter().map(|name| ToolName {
            name,
            extra: Map::new(),
        });
        system.tools_removed.get_or_insert_default().extend(names);
    }
}

fn difference(
    declared: &[ToolDeclaration],
    wanted: &[ToolDeclaration],
) -> (Vec<ToolDeclaration>, Vec<String>) {
    let known = |tool: &ToolDeclaration| declared.iter().any(|other| same(other, tool));
    let kept = |tool: &ToolDeclaration| wanted.iter().any(|other| same(other, tool));
    let added = wanted.iter().filter(|tool| !known(tool)).cloned().collect();
    let removed = declared
        .iter()
        .filter(|tool| !kept(tool))
        .map(|tool| tool.name.clone())
        .collect();
    (added, removed)
}

/// Unknown keys of a declaration do not count.
fn same(a: &ToolDeclaration, b: &ToolDeclaration) -> bool {
    a.name == b.name
        && a.description == b.description
        && a.parameters == b.parameters
        && a.constrained_sampling == b.constrained_sampling
}

fn system_slot(messages: &mut Vec<Message>, now_ms: i64) -> Option<&mut SystemMessage> {
    let is_system = |message: &Message| matches!(message, Message::System(_));
    let at = match messages.iter().rposition(is_system) {
        Some(at) => at,
        None => {
            messages.insert(
                0,
                Message::System(SystemMessage {
                    content: Content::Text(String::new()),
                    timestamp: now_ms,
                    ..SystemMessage::default()
                }),
            );
            0
        }
    };
    match messages.get_mut(at) {
        Some(Message::System(system)) => Some(system),
        _ => None,
    }
}
