//! The list of sessions: what is stored, and what of it runs here.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::face::{Answering, Face, Request};
use super::requests::done;
use crate::session::Command;

/// Ends a running session of this process; its file stays.
pub(super) fn stop(face: &Arc<Face>, request: &Request) -> Answering {
    let slot = match face.slot(request.text("session")) {
        Ok(slot) => slot,
        Err(line) => return done(Err(line)),
    };
    let face = face.clone();
    Box::pin(async move {
        slot.runtime.shutdown().await;
        let id = slot.id();
        face.slots.lock().live.remove(&id);
        face.outbox
            .push(json!({"op": "session.stopped", "session": id}));
        Ok(Json::Null)
    })
}

/// Rows of stored sessions; those that run here carry `live` with their state.
pub(super) fn list(face: &Arc<Face>, request: &Request) -> Answering {
    let live: Vec<_> = face.slots.lock().live.values().cloned().collect();
    let Some(any) = live.first().cloned() else {
        return done(Err("no session is open; `:Pi new` starts one".into()));
    };
    let asked = any.command(Command::ListSessions {
        all: request.flag("all"),
        query: request.text("query").map(str::to_owned),
    });
    Box::pin(async move {
        let mut answer = asked.await?;
        let rows = match answer.get_mut("sessions") {
            Some(rows) => rows.take(),
            None => answer.take(),
        };
        let mut rows = match rows {
            Json::Array(rows) => rows,
            _ => Vec::new(),
        };
        for row in &mut rows {
            let id = row["id"].as_str().unwrap_or_default();
            if let Some(slot) = live.iter().find(|slot| slot.id() == id) {
                row["live"] = slot.word().into();
            }
        }
        // Live ones first, otherwise as they came.
        rows.sort_by_key(|row| row.get("live").is_none());
        Ok(json!({ "sessions": rows }))
    })
}

/// Deletes the file of a session that does not run.
pub(super) fn delete(face: &Arc<Face>, request: &Request) -> Answering {
    let Some(path) = request.text("path").map(PathBuf::from) else {
        return done(Err("no session named".into()));
    };
    let live: Vec<_> = face.slots.lock().live.values().cloned().collect();
    if live.iter().any(|slot| slot.file().as_ref() == Some(&path)) {
        return done(Err("this session is running; stop it first".into()));
    }
    match live.first() {
        Some(any) => any.command(Command::DeleteSession { path }),
        None => done(Err("no session is open; `:Pi new` starts one".into())),
    }
}
