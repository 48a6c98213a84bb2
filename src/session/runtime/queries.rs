//! Commands that only look.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::core::{Answer, Core};
use super::models;
use super::state::State;
use crate::agent::Queue;
use crate::ai::{Block, Message, StopReason};
use crate::session::protocol::{Command, CommandError};

pub(super) async fn answer(core: &Arc<Core>, query: Command) -> Answer {
    match query {
        Command::GetState => Ok(core.with(|state| session_state(state))),
        Command::GetMessages => Ok(core.with(|state| {
            let context = state.session.context();
            let messages: Vec<Value> = context.messages().map(|it| it.to_value()).collect();
            json!({ "messages": messages })
        })),
        Command::GetAvailableModels => {
            let models = core.config.models.available();
            let models: Vec<Value> = models.iter().map(|model| json!(**model)).collect();
            Ok(json!({ "models": models }))
        }
        Command::GetAvailableThinkingLevels => {
            let levels: Vec<&str> = models::levels(core).iter().map(|it| it.as_str()).collect();
            Ok(json!({ "levels": levels }))
        }
        Command::GetLastAssistantText => Ok(core.with(|state| last_text(state))),
        Command::GetCommands => Ok(commands(core)),
        Command::GetForkMessages => Ok(core.with(|state| fork_messages(state))),
        Command::GetEntries { since } => core.with(|state| entries(state, since.as_deref())),
        Command::GetTree => Ok(core
            .with(|state| json!({"treeJson": state.session.tree_json(), "leafId": leaf(state)}))),
        other => Err(CommandError(format!("not a query: {other:?}"))),
    }
}

fn leaf(state: &State) -> Value {
    state
        .session
        .leaf_id()
        .map_or(Value::Null, |id| id.as_str().into())
}

fn session_state(state: &State) -> Value {
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
    if let Some(model) = &state.model {
        put("model", json!(**model));
    }
    put("thinkingLevel", state.thinking.as_str().into());
    put("isStreaming", state.run.is_some().into());
    let compacting = state.compacting || state.summarizing.is_some();
    put("isCompacting", compacting.into());
    let mode = |queue| Value::from(state.queues.mode(queue).as_str());
    put("steeringMode", mode(Queue::Steering));
    put("followUpMode", mode(Queue::FollowUp));
    if let Some(file) = state.session.file() {
        put("sessionFile", json!(file));
    }
    put("sessionId", state.session.id().into());
    if let Some(name) = state.session.name() {
        put("sessionName", name.into());
    }
    put(
        "autoCompactionEnabled",
        state.settings().auto_compaction.into(),
    );
    let messages = state.session.context().messages().count();
    put("messageCount", messages.into());
    put("pendingMessageCount", state.queues.shown_len().into());
    Value::Object(out)
}

/// The text of the newest answer that has one, or that ended by itself.
fn last_text(state: &State) -> Value {
    let context = state.session.context();
    let answers: Vec<&crate::ai::AssistantMessage> = context
        .messages()
        .filter_map(|message| match &**message {
            Message::Assistant(answer) => Some(answer),
            _ => None,
        })
        .collect();
    for answer in answers.into_iter().rev() {
        let texts: Vec<&str> = answer.content.iter().filter_map(Block::as_text).collect();
        let text = texts.concat();
        let text = text.trim();
        if !text.is_empty() {
            return json!({ "text": text });
        }
        if answer.stop_reason == StopReason::Stop {
            break;
        }
    }
    json!({})
}

fn commands(core: &Core) -> Value {
    let extensions = core.config.hooks.commands().into_iter().map(|command| {
        let mut out = Map::new();
        out.insert("name".to_owned(), command.name.into());
        if let Some(description) = command.description {
            out.insert("description".to_owned(), description.into());
        }
        out.insert("source".to_owned(), "extension".into());
        out.insert("sourceInfo".to_owned(), command.source_info);
        Value::Object(out)
    });
    let mut all: Vec<Value> = extensions.collect();
    all.extend(core.with(|state| state.resources.commands()));
    json!({ "commands": all })
}

fn fork_messages(state: &State) -> Value {
    let rows: Vec<Value> = state
        .session
        .entries()
        .filter_map(|entry| match entry.message()? {
            Message::User(user) => {
                let text = user.content.text("");
                (!text.is_empty()).then(|| json!({"entryId": entry.id().as_str(), "text": text}))
            }
            _ => None,
        })
        .collect();
    json!({ "messages": rows })
}

fn entries(state: &State, since: Option<&str>) -> Answer {
    let entries = state
        .session
        .entries_since(since)
        .map_err(|_| CommandError(format!("Entry not found: {}", since.unwrap_or_default())))?;
    let entries: Vec<Value> = entries.map(|entry| entry.value()).collect();
    Ok(json!({"entries": entries, "leafId": leaf(state)}))
}
