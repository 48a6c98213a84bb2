//! Commands that only look.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::core::{Answer, Core};
use super::models;
use super::state::State;
use crate::agent::Queue;
use crate::ai::{Block, Message, StopReason};
use crate::session::listing::{self, Scope, SessionDir, SessionInfo};
use crate::session::protocol::{Command, CommandError};
use crate::session::search::{Sort, search};

pub(super) async fn answer(core: &Arc<Core>, query: Command) -> Answer {
    match query {
        Command::GetState => Ok(core.with(|state| session_state(state))),
        Command::GetMessages => Ok(core.with(|state| {
            let context = state.session.context();
            let messages = context.values(&state.session);
            json!({ "messages": messages })
        })),
        Command::GetAvailableModels => models::list(core).await,
        Command::GetAvailableThinkingLevels => {
            let levels: Vec<&str> = models::levels(core).iter().map(|it| it.as_str()).collect();
            Ok(json!({ "levels": levels }))
        }
        Command::GetLastAssistantText => Ok(core.with(|state| last_text(state))),
        Command::GetCommands => Ok(commands(core)),
        Command::GetForkMessages => Ok(core.with(|state| fork_messages(state))),
        Command::GetEntries { since } => core.with(|state| entries(state, since.as_deref())),
        Command::GetSessionStats => Ok(stats(core).await),
        Command::GetTools => Ok(tools(core)),
        Command::ListSessions { all, query } => list(core, all, query).await,
        Command::ExportHtml { path } => super::export::html(core, path).await,
        Command::ExportJsonl { path } => super::export::jsonl(core, path).await,
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
        .user_texts()
        .filter(|(_, text)| !text.is_empty())
        .map(|(id, text)| json!({"entryId": id.as_str(), "text": text}))
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

/// Entries that may be counted while the session stands still.
const COUNTED_AT_ONCE: usize = 256;

/// Counts of the session. Those of a long file that was just opened are made beside it, on a snapshot.
async fn stats(core: &Arc<Core>) -> Value {
    let snapshot = core.with(|state| {
        let many = state.session.uncounted() > COUNTED_AT_ONCE;
        many.then(|| state.session.snapshot())
    });
    if let Some(Ok(snapshot)) = snapshot {
        // The session shares what was counted. Were it to fail, the count below would only take longer.
        drop(tokio::task::spawn_blocking(move || snapshot.stats()).await);
    }
    core.with(|state| counts(state))
}

fn counts(state: &State) -> Value {
    let stats = state.session.stats();
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| drop(out.insert(key.to_owned(), value));
    if let Some(file) = state.session.file() {
        put("sessionFile", json!(file));
    }
    put("sessionId", state.session.id().into());
    put("userMessages", stats.user_messages.into());
    put("assistantMessages", stats.assistant_messages.into());
    put("toolCalls", stats.tool_calls.into());
    put("toolResults", stats.tool_results.into());
    put("totalMessages", stats.total_messages.into());
    let spent = &stats.spent;
    put(
        "tokens",
        json!({
            "input": spent.input, "output": spent.output, "cacheRead": spent.cache_read,
            "cacheWrite": spent.cache_write, "total": spent.total(),
        }),
    );
    put("cost", json!(spent.cost));
    if let Some(usage) = context_usage(state) {
        put("contextUsage", usage);
    }
    Value::Object(out)
}

/// How full the context is; unknown right after a compaction.
fn context_usage(state: &State) -> Option<Value> {
    let window = state.model.as_ref()?.context_window;
    if window == 0 {
        return None;
    }
    let tokens = state.session.context().shown_tokens();
    #[expect(
        clippy::cast_precision_loss,
        reason = "token counts are far below 2^52"
    )]
    let percent = tokens.map(|tokens| tokens as f64 * 100.0 / window as f64);
    Some(json!({"tokens": tokens, "contextWindow": window, "percent": percent}))
}

fn tools(core: &Core) -> Value {
    let active = core.active_tools();
    let is_active = |name: &str| active.iter().any(|tool| tool.declaration().name == name);
    let rows: Vec<Value> = core
        .all_tools()
        .iter()
        .map(|tool| {
            let declaration = tool.declaration();
            json!({
                "name": declaration.name, "description": declaration.description,
                "active": is_active(&declaration.name),
            })
        })
        .collect();
    json!({ "tools": rows })
}

/// Sessions of the directory, or all of them, newest first; with a query those that fit it, best first.
async fn list(core: &Arc<Core>, all: bool, query: Option<String>) -> Answer {
    let root = core.config.load.places.agent_dir.join("sessions");
    let (cwd, dir) = core.with(|state| (state.cwd.clone(), state.session_dir(core)));
    let dir =
        dir.unwrap_or_else(|| SessionDir::new(&core.config.load.places.agent_dir, &cwd, None));
    let cancel = core.stop.child_token();
    let listed = tokio::task::spawn_blocking(move || {
        let scope = match (all, dir.shared) {
            (true, true) => Scope::Folder(&dir.path),
            (true, false) => Scope::All(&root),
            (false, true) => Scope::FolderFor(&dir.path, &cwd),
            (false, false) => Scope::Folder(&dir.path),
        };
        let sessions = listing::list(scope, &cancel, &mut |_| {});
        let rows: Vec<Value> = match query.filter(|query| !query.trim().is_empty()) {
            None => sessions.iter().map(row).collect(),
            Some(query) => search(&sessions, &query, Sort::Relevance, false)
                .into_iter()
                .filter_map(|at| sessions.get(at).map(row))
                .collect(),
        };
        json!({ "sessions": rows })
    });
    listed
        .await
        .map_err(|error| CommandError(format!("list the sessions: {error}")))
}

fn row(info: &SessionInfo) -> Value {
    json!({
        "path": info.path, "id": info.id, "cwd": info.cwd, "name": info.name, "created": info.created,
        "modified": info.modified_ms, "messageCount": info.message_count, "firstMessage": info.first_message,
        "parentSession": info.parent_session,
    })
}
