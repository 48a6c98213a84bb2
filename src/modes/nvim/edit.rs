//! `:Pi edit`: a change asked for in one line, made with the file tools alone, in the running session or in one that is
//! thrown away. Its hunks are reviewed like all others.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use super::chat_view::text::first_line;
use super::face::{Answer, Answering, Face, Request};
use super::json::at;
use super::prompt::with_context;
use super::requests::done;
use super::slot::Slot;
use crate::ai::{Message, StopReason};
use crate::files::state::{StateDir, fingerprint};
use crate::session::{Command, Event, SessionChoice, Wish};

/// What an edit may use.
const FILE_TOOLS: [&str; 6] = ["read", "edit", "write", "grep", "find", "ls"];

/// Events a watcher may be behind; it only looks for the end.
const EVENTS: usize = 256;

/// Starts to answer `edit.run`: the instruction in `text`, what it is about in `context`, `apart` for a session of its own.
pub(super) fn start(face: &Arc<Face>, slot: Arc<Slot>, request: &Request) -> Answering {
    let Some(text) = request.text("text").filter(|text| !text.trim().is_empty()) else {
        return done(Err(
            "`:Pi edit {instruction}`: what is to be changed?".into()
        ));
    };
    let prompt = with_context(text.trim_end(), at(&request.params, "/context"));
    let face = face.clone();
    if request.flag("apart") {
        let title = format!("edit: {}", first_line(text, 40));
        return Box::pin(async move { apart(face, slot, title, prompt).await });
    }
    if slot.is_running() {
        return done(Err(
            "the agent is at work: `:Pi steer` reaches it, `:Pi abort` stops it".into(),
        ));
    }
    Box::pin(async move { here(face, slot, prompt).await })
}

/// In the running session. Its tools are the old ones again when the run ends.
async fn here(face: Arc<Face>, slot: Arc<Slot>, prompt: String) -> Answer {
    if !slot.set_editing(true) {
        return Err("an edit is under way already".into());
    }
    let answer = begin(&face, &slot, prompt).await;
    match answer {
        Ok(mut events) => {
            // Ends with the run, or with the session.
            tokio::spawn(async move {
                let end = end_of(&mut events).await;
                back(&face, &slot).await;
                say(&face, &slot.id(), &end);
            });
            Ok(Json::Null)
        }
        Err(line) => {
            back(&face, &slot).await;
            Err(line)
        }
    }
}

async fn begin(
    face: &Face,
    slot: &Arc<Slot>,
    prompt: String,
) -> Result<mpsc::Receiver<Arc<Event>>, String> {
    let tools = tools(slot).await?;
    let active: Vec<String> = tools
        .iter()
        .filter(|it| it.1)
        .map(|it| it.0.clone())
        .collect();
    // What the branch declares from here on are the file tools: whoever opens or moves it later needs to know better.
    if let Err(error) = set_aside(&face.state, slot, &active) {
        tracing::warn!("keep the tools of the session: {error}");
    }
    limit(slot, &tools).await?;
    ask(slot, prompt).await
}

/// Names of all tools, and whether they are active.
async fn tools(slot: &Arc<Slot>) -> Result<Vec<(String, bool)>, String> {
    let answer = slot.command(Command::GetTools).await?;
    let rows = at(&answer, "/tools").as_array().cloned();
    let row = |row: &Json| {
        Some((
            at(row, "/name").as_str()?.to_owned(),
            at(row, "/active") == true,
        ))
    };
    Ok(rows.unwrap_or_default().iter().filter_map(row).collect())
}

async fn limit(slot: &Arc<Slot>, tools: &[(String, bool)]) -> Result<(), String> {
    let all: HashSet<&str> = tools.iter().map(|it| it.0.as_str()).collect();
    let names = FILE_TOOLS.into_iter().filter(|name| all.contains(name));
    let names = names.map(str::to_owned).collect();
    slot.command(Command::SetActiveTools { names }).await?;
    Ok(())
}

/// Sends the prompt and gives the events from before it on.
async fn ask(slot: &Arc<Slot>, text: String) -> Result<mpsc::Receiver<Arc<Event>>, String> {
    let events = slot.runtime.subscribe(EVENTS);
    let prompt = Command::Prompt {
        text,
        images: Vec::new(),
        behavior: None,
    };
    let answer = slot.command(prompt).await?;
    match at(&answer, "/disposition") == "started" {
        true => Ok(events),
        false => Err("this instruction was taken as a command".into()),
    }
}

/// A session of its own, kept in memory, gone when its run ends.
async fn apart(face: Arc<Face>, near: Arc<Slot>, title: String, prompt: String) -> Answer {
    let state = near.command(Command::GetState).await?;
    let wish = Wish {
        session: SessionChoice::InMemory,
        ..Wish::default()
    };
    let slot = face.open(near.cwd(), wish).await?;
    let started = async {
        let model = |key| at(&state, key).as_str().map(str::to_owned);
        if let (Some(provider), Some(id)) = (model("/model/provider"), model("/model/id")) {
            slot.command(Command::SetModel { provider, id }).await?;
        }
        slot.command(Command::SetSessionName { name: title })
            .await?;
        let tools = tools(&slot).await?;
        limit(&slot, &tools).await?;
        ask(&slot, prompt).await
    };
    let started: Result<_, String> = started.await;
    match started {
        Ok(mut events) => {
            let id = slot.id();
            // Ends with the run, or with the session.
            tokio::spawn(async move {
                let end = end_of(&mut events).await;
                drop(events);
                say(&face, &slot.id(), &end);
                throw_away(&face, &slot).await;
            });
            Ok(json!({ "session": id }))
        }
        Err(line) => {
            throw_away(&face, &slot).await;
            Err(line)
        }
    }
}

async fn throw_away(face: &Face, slot: &Slot) {
    slot.runtime.shutdown().await;
    let id = slot.id();
    face.slots.lock().live.remove(&id);
    face.outbox.push(json!({"op": "edit.gone", "session": id}));
}

/// How an edit ended: its last words, and whether they are an error.
#[derive(Default)]
struct End {
    text: String,
    failed: bool,
}

async fn end_of(events: &mut mpsc::Receiver<Arc<Event>>) -> End {
    let mut end = End::default();
    while let Some(event) = events.recv().await {
        match &*event {
            Event::MessageEnd { message, .. } => {
                if let Message::Assistant(message) = &**message {
                    end.failed = message.stop_reason == StopReason::Error;
                    let text = message.content.iter().filter_map(|block| block.as_text());
                    end.text = match &message.error_message {
                        Some(error) if end.failed => super::chat_view::plain_error(error),
                        _ => text.collect::<Vec<_>>().join("\n"),
                    };
                }
            }
            Event::AgentSettled { .. } => break,
            _ => {}
        }
    }
    end
}

fn say(face: &Face, session: &str, end: &End) {
    let level = if end.failed { "error" } else { "info" };
    let text = first_line(&end.text, 200);
    face.outbox
        .push(json!({"op": "edit.done", "session": session, "level": level, "text": text}));
}

fn file_name(slot: &Slot) -> String {
    format!("aside/{}", fingerprint(slot.id().as_bytes()))
}

fn set_aside(state: &StateDir, slot: &Slot, names: &[String]) -> std::io::Result<()> {
    let bytes = serde_json::to_vec(names).unwrap_or_default();
    state.write(&file_name(slot), &bytes)
}

/// The person chose tools or sent a prompt with the right ones: the branch says so from here on.
pub(super) fn forget(state: &StateDir, slot: &Slot) {
    if let Err(error) = state.remove(&file_name(slot)) {
        tracing::warn!("forget the tools set aside: {error}");
    }
}

/// Gives the session the tools it had before an edit; `None` when nothing was set aside.
pub(super) fn bring_back(state: &StateDir, slot: &Arc<Slot>) -> Option<Answering> {
    if slot.is_editing() {
        return None;
    }
    let bytes = state.read(&file_name(slot)).ok().flatten()?;
    let names = serde_json::from_slice(&bytes).ok()?;
    Some(slot.command(Command::SetActiveTools { names }))
}

async fn back(face: &Face, slot: &Arc<Slot>) {
    slot.set_editing(false);
    if let Some(set) = bring_back(&face.state, slot)
        && let Err(line) = set.await
    {
        tracing::warn!("give the session its tools back: {line}");
    }
}
