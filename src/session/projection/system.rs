//! System messages: each is a patch, together they give the current prompt and tools.

use serde_json::{Map, Value};

use crate::ai::{Content, Message, SystemMessage, ToolDeclaration};

/// Folds all system messages into the current one; `None` when there is none.
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
