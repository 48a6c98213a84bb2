//! Keeping the conversation's tool declarations equal to the tools that can run.

use std::sync::Arc;

use serde_json::Map;

use super::host::RunHost;
use super::tool::Tool;
use crate::ai::message::ToolName;
use crate::ai::{Content, Message, SystemMessage, ToolDeclaration};

/// Adds the difference between declared and executable tools to the last system message of `messages`, or to a new one
/// before the first message of another role. A changed definition is a removal and an addition.
pub(super) fn declare_tools(host: &dyn RunHost, messages: &mut Vec<Message>, known: &mut Known) {
    let declared = host.declared();
    let tools: Vec<Arc<dyn Tool>> = host.tools();
    if known.is(declared.as_ref(), &tools) {
        return;
    }
    let wanted: Vec<&ToolDeclaration> = tools.iter().map(|tool| tool.declaration()).collect();
    let system = declared.as_deref();
    let so_far = system.and_then(|system| system.tools_added.as_deref());
    let (added, removed) = difference(so_far.unwrap_or_default(), &wanted);
    if added.is_empty() && removed.is_empty() {
        *known = Known(declared.map(|declared| (declared, tools)));
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

/// A comparison that found no difference: the same two things need not be compared again.
#[derive(Default)]
pub(super) struct Known(Option<Declared>);

/// What the branch declares, and the tools it was compared with.
type Declared = (Arc<SystemMessage>, Vec<Arc<dyn Tool>>);

impl Known {
    fn is(&self, declared: Option<&Arc<SystemMessage>>, tools: &[Arc<dyn Tool>]) -> bool {
        let (Some((system, own)), Some(declared)) = (&self.0, declared) else {
            return false;
        };
        Arc::ptr_eq(system, declared)
            && own.len() == tools.len()
            && own
                .iter()
                .zip(tools)
                .all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

fn difference(
    declared: &[ToolDeclaration],
    wanted: &[&ToolDeclaration],
) -> (Vec<ToolDeclaration>, Vec<String>) {
    let known = |tool: &ToolDeclaration| declared.iter().any(|other| same(other, tool));
    let kept = |tool: &ToolDeclaration| wanted.iter().any(|other| same(other, tool));
    let added = wanted.iter().filter(|tool| !known(tool));
    let added = added.map(|tool| (*tool).clone()).collect();
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
