//! Requests of the Lua side, one function each. What must keep the person's order (handing commands in) happens before
//! the function returns; the rest in the future it returns.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::face::{Answer, Answering, Face, Request};
use super::json::at;
use super::slot::Slot;
use super::{opening, prompt, sessions, tree};
use crate::session::{Command, SessionChoice};

pub(super) fn done(answer: Answer) -> Answering {
    Box::pin(std::future::ready(answer))
}

/// Starts to answer a request that no panel takes.
pub(super) fn start(face: &Arc<Face>, request: Request) -> Answering {
    match request.name.as_str() {
        "session.ensure" => ensure(face, request),
        "session.new" => opening::start(face, &request, SessionChoice::New),
        "session.continue" => opening::start(face, &request, SessionChoice::Continue),
        "session.open" => match request.text("path") {
            Some(path) => opening::start(face, &request, SessionChoice::Open(path.into())),
            None => done(Err("no session named".into())),
        },
        "session.stop" => sessions::stop(face, &request),
        "session.list" => sessions::list(face, &request),
        "session.preview" => sessions::preview(face, &request),
        "session.rename" => sessions::rename(face, &request),
        "session.delete" => sessions::delete(face, &request),
        name => {
            if let Some(answering) = super::admin::start(face, &request) {
                return answering;
            }
            let slot = match face.slot(request.text("session")) {
                Ok(slot) => slot,
                Err(line) => return done(Err(line)),
            };
            match name.split('.').next() {
                Some("prompt") => prompt::start(face, &slot, &request),
                Some("tree") => tree::start(&slot, &request),
                Some("dialog") => super::dialog::answer(&slot, &request),
                Some("edit") => super::edit::start(face, slot, &request),
                Some("changes") => super::changes::start(face, &slot, &request),
                _ => of_session(face, &slot, &request),
            }
        }
    }
}

/// Answers the session of a tab page, opening a new one when it has none.
fn ensure(face: &Arc<Face>, request: Request) -> Answering {
    if let Some(id) = request.text("session")
        && let Ok(slot) = face.slot(Some(id))
    {
        return done(Ok(slot.info()));
    }
    if let Some(answering) = opening::begin(face, &request) {
        return answering;
    }
    // After a restart the session goes on from its file; one without a message has none.
    let stored = request.text("path").map(PathBuf::from);
    match stored.filter(|path| path.exists()) {
        Some(path) => opening::start(face, &request, SessionChoice::Open(path)),
        None => opening::start(face, &request, SessionChoice::New),
    }
}

fn of_session(face: &Face, slot: &Arc<Slot>, request: &Request) -> Answering {
    let text = |key: &str| request.text(key).map(str::to_owned);
    let need = |key: &str| text(key).ok_or_else(|| format!("{}: no {key} given", request.name));
    let command = match request.name.as_str() {
        "run.abort" => return abort(slot, request.flag("clear")),
        "run.queue_clear" => Ok(Command::ClearQueue),
        "run.compact" => Ok(Command::Compact {
            instructions: text("instructions"),
        }),
        "run.bash" => {
            return match request.text("command") {
                Some(command) => slot.shell(command, request.flag("exclude")),
                None => done(Err("run.bash: no command given".into())),
            };
        }
        "model.list" => Ok(Command::GetAvailableModels),
        "model.set" => need("provider")
            .and_then(|provider| need("id").map(|id| Command::SetModel { provider, id })),
        "model.cycle" => Ok(Command::CycleModel),
        "thinking.list" => Ok(Command::GetAvailableThinkingLevels),
        "thinking.set" => need("level").map(|level| Command::SetThinkingLevel { level }),
        "session.name" => need("name").map(|name| Command::SetSessionName { name }),
        "session.fork" => need("entry").map(|entry| Command::Fork { entry }),
        "session.clone" => Ok(Command::Clone),
        "session.stats" => Ok(Command::GetSessionStats),
        "session.state" => Ok(Command::GetState),
        "session.commands" => Ok(Command::GetCommands),
        "session.reload" => Ok(Command::Reload),
        "session.export" => Ok(match text("path").map(PathBuf::from) {
            Some(path) if path.extension().is_some_and(|it| it == "jsonl") => {
                Command::ExportJsonl { path: Some(path) }
            }
            path => Command::ExportHtml { path },
        }),
        "session.import" => need("path").map(|path| Command::ImportSession { path: path.into() }),
        "session.last_answer" => Ok(Command::GetLastAssistantText),
        "session.all_tools" => Ok(Command::GetTools),
        "session.tools" => match at(&request.params, "/names").as_array() {
            Some(names) => {
                super::edit::forget(&face.state, slot);
                let names = names.iter().filter_map(Json::as_str);
                Ok(Command::SetActiveTools {
                    names: names.map(str::to_owned).collect(),
                })
            }
            None => Err("session.tools: no names given".into()),
        },
        "chat.earlier" => return done(slot.load_earlier()),
        "chat.redraw" => {
            slot.redraw();
            return done(Ok(Json::Null));
        }
        "chat.details" => return done(details(slot, request)),
        name => Err(format!("the backend knows no request {name}")),
    };
    match command {
        Ok(command) => slot.command(command),
        Err(line) => done(Err(line)),
    }
}

fn details(slot: &Arc<Slot>, request: &Request) -> Answer {
    let block = request.text("block").unwrap_or_default();
    slot.details(block)
        .ok_or_else(|| "nothing more is known about this line".into())
}

/// Stops the run; the queue goes too when asked for, before the run could take from it.
fn abort(slot: &Arc<Slot>, clear: bool) -> Answering {
    let cleared = clear.then(|| slot.command(Command::ClearQueue));
    let aborted = slot.command(Command::Abort);
    Box::pin(async move {
        let queue = match cleared {
            Some(cleared) => cleared.await?,
            None => Json::Null,
        };
        aborted.await?;
        Ok(json!({ "queue": queue }))
    })
}
