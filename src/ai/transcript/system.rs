//! System messages: each is a patch, together they give the current prompt and tools.
//!
//! The one place that folds them, for requests, the projection and extensions alike: a prompt that differed between them
//! would cost the provider's cache with every compaction.

use serde_json::{Map, Value};

use crate::ai::message::{Content, Message, SystemMessage, ToolDeclaration};

/// Folds all system messages into the current one; `None` when there is none. A section or tool that is replaced keeps
/// its place; one that was removed and comes again stands at the end.
pub fn replay<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Option<SystemMessage> {
    let mut fold: Option<Fold> = None;
    for message in messages {
        if let Message::System(message) = message {
            let fold = fold.get_or_insert_with(|| Fold {
                timestamp: message.timestamp,
                ..Fold::default()
            });
            fold.apply(message);
        }
    }
    fold.map(Fold::finish)
}

#[derive(Default)]
struct Fold {
    contents: Vec<String>,
    sections: Map<String, Value>,
    tools: Vec<ToolDeclaration>,
    timestamp: i64,
}

impl Fold {
    fn apply(&mut self, message: &SystemMessage) {
        let content = message.content.text("\n");
        if !content.is_empty() {
            self.contents.push(content);
        }
        for (name, text) in message.sections.iter().flatten() {
            if text.is_null() {
                self.sections.shift_remove(name);
            } else {
                self.sections.insert(name.clone(), text.clone());
            }
        }
        for removed in message.tools_removed.iter().flatten() {
            self.tools.retain(|tool| tool.name != removed.name);
        }
        for added in message.tools_added.iter().flatten() {
            match self.tools.iter_mut().find(|tool| tool.name == added.name) {
                Some(tool) => *tool = added.clone(),
                None => self.tools.push(added.clone()),
            }
        }
    }

    fn finish(self) -> SystemMessage {
        SystemMessage {
            content: Content::Text(self.contents.join("\n\n")),
            sections: Some(self.sections).filter(|sections| !sections.is_empty()),
            tools_added: Some(self.tools).filter(|tools| !tools.is_empty()),
            timestamp: self.timestamp,
            ..SystemMessage::default()
        }
    }
}

/// Returns the prompt text of a system message: its content, then its sections.
pub fn rendered(message: &SystemMessage) -> String {
    let sections = message.sections.iter().flatten();
    let texts = sections.filter_map(|(_, text)| text.as_str().map(str::to_owned));
    let parts = [message.content.text("\n")].into_iter().chain(texts);
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn folded(systems: &[Value]) -> (String, Vec<String>) {
        let messages: Vec<Message> = systems
            .iter()
            .cloned()
            .map(|mut system| {
                system["role"] = "system".into();
                Message::from_value(system)
            })
            .collect();
        let system = replay(&messages).unwrap();
        let tools = system.tools_added.iter().flatten();
        let names = tools.map(|tool| tool.name.clone()).collect();
        (rendered(&system), names)
    }

    #[test]
    fn a_replaced_section_keeps_its_place_and_one_added_again_stands_at_the_end() {
        let first = json!({"content": "base", "sections": {"a": "A1", "b": "B1"}});
        let second = json!({"content": "", "sections": {"b": null, "c": "C1"}});
        let third = json!({"content": [{"type": "text", "text": "p"}, {"type": "text", "text": "q"}],
            "sections": {"a": "A2", "b": "B2", "never": null}});
        let (prompt, _) = folded(&[first, second, third]);
        assert_eq!(prompt, "base\n\np\nq\n\nA2\n\nC1\n\nB2");
    }

    #[test]
    fn tools_are_removed_first_and_a_changed_one_keeps_its_place() {
        let tool =
            |name: &str| json!({"name": name, "description": "", "parameters": {"type": "object"}});
        let first =
            json!({"content": "", "toolsAdded": [tool("read"), tool("bash"), tool("edit")]});
        let second = json!({"content": "", "toolsRemoved": [{"name": "bash"}, {"name": "gone"}], "toolsAdded": [tool("bash"), tool("read")]});
        assert_eq!(folded(&[first, second]).1, ["read", "edit", "bash"]);
    }
}
