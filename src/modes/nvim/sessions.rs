//! The list of sessions: what is stored, and what of it runs here.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::face::{Answer, Answering, Face, Request};
use super::json::{at, put};
use super::requests::done;
use crate::session::listing::{self, Scope, SessionInfo};
use crate::session::search::{Sort, search};

/// Most sessions of an answer.
const ROWS: usize = 1_000;

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
    let (face, request) = (face.clone(), request.clone());
    let work = tokio::task::spawn_blocking(move || rows(&face, &request));
    Box::pin(async move { work.await.map_err(|error| format!("sessions: {error}"))? })
}

fn rows(face: &Face, request: &Request) -> Answer {
    let cwd = PathBuf::from(request.text("cwd").unwrap_or_default());
    let places = face.opener.places();
    let folder = face.opener.session_folder(&cwd);
    let root = places.agent_dir.join("sessions");
    let scope = match (request.flag("all"), folder.starts_with(&root)) {
        (true, true) => Scope::All(&root),
        (true, false) => Scope::Folder(&folder),
        (false, true) => Scope::Folder(&folder),
        (false, false) => Scope::FolderFor(&folder, &cwd),
    };
    let found = listing::list(scope, &CancellationToken::new(), &mut |_| {});
    let query = request.text("query").unwrap_or_default();
    let order = search(&found, query, Sort::default(), request.flag("named"));
    let live: Vec<_> = face.slots.lock().live.values().cloned().collect();
    let mut rows: Vec<Json> = order
        .into_iter()
        .filter_map(|at| found.get(at))
        .take(ROWS)
        .map(row)
        .collect();
    for slot in live {
        let id = slot.id();
        match rows.iter_mut().find(|row| at(row, "/id") == id.as_str()) {
            Some(row) => put(row, "live", slot.word().into()),
            // Not written yet: it has no message.
            None => {
                let mut info = slot.info();
                put(&mut info, "live", slot.word().into());
                put(&mut info, "messages", 0.into());
                rows.push(info);
            }
        }
    }
    // Live ones first, otherwise as they came.
    rows.sort_by_key(|row| row.get("live").is_none());
    Ok(json!({ "sessions": rows }))
}

fn row(info: &SessionInfo) -> Json {
    json!({
        "id": info.id,
        "path": info.path.to_string_lossy(),
        "cwd": info.cwd,
        "name": info.name,
        "first_message": info.first_message.chars().take(200).collect::<String>(),
        "messages": info.message_count,
        "modified_ms": info.modified_ms,
    })
}

/// Deletes the file of a session that does not run.
pub(super) fn delete(face: &Arc<Face>, request: &Request) -> Answering {
    let Some(path) = request.text("path").map(PathBuf::from) else {
        return done(Err("no session named".into()));
    };
    let live: Vec<_> = face.slots.lock().live.values().cloned().collect();
    let same = |file: &Path| listing::same_file(file, &path);
    if live
        .iter()
        .any(|slot| slot.file().as_deref().is_some_and(same))
    {
        return done(Err("this session is running; stop it first".into()));
    }
    let work = tokio::task::spawn_blocking(move || match listing::read_header(&path) {
        Some(_) => listing::delete(&path, "trash")
            .map(|how| json!({ "trashed": how == listing::Deleted::Trashed }))
            .map_err(|error| format!("delete {}: {error}", path.display())),
        None => Err(format!("{} is no session", path.display())),
    });
    Box::pin(async move { work.await.map_err(|error| format!("delete: {error}"))? })
}
