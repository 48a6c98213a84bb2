//! The list of sessions: what is stored, and what of it runs here.
//!
//! A list is told while it is made: at once the sessions that run here and the headers of the newest files, then what was
//! read of the files so far, and the whole list as the answer. A newer request ends the reading for an older one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::face::{Answer, Answering, Face, Request};
use super::json::{at, put};
use super::requests::done;
use crate::entry::iso_ms;
use crate::session::listing::{self, Scope, SessionInfo};
use crate::session::search::{Sort, search};
use crate::session::store::{Session, Start, StoreNotice};

mod preview;

/// Most sessions of an answer.
const ROWS: usize = 1_000;
/// Files whose headers are shown before anything else is read.
const HEADERS: usize = 60;
/// Shortest time between two lists on the way to the whole one.
const PART: Duration = Duration::from_millis(150);

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

/// Rows of stored sessions; those that run here carry `live` with their state. With `stream` (a number) parts of the list
/// come as the op `sessions.part` before.
pub(super) fn list(face: &Arc<Face>, request: &Request) -> Answering {
    let cancel = CancellationToken::new();
    std::mem::replace(&mut *face.listing.lock(), cancel.clone()).cancel();
    let (face, request) = (face.clone(), request.clone());
    let work = tokio::task::spawn_blocking(move || rows(&face, &request, &cancel));
    Box::pin(async move { work.await.map_err(|error| format!("sessions: {error}"))? })
}

/// What a list is to hold.
struct Wish<'a> {
    query: &'a str,
    named: bool,
    /// The number under which parts are wanted.
    stream: Option<u64>,
}

fn rows(face: &Face, request: &Request, cancel: &CancellationToken) -> Answer {
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
    let wish = Wish {
        query: request.text("query").unwrap_or_default(),
        named: request.flag("named"),
        stream: at(&request.params, "/stream").as_u64(),
    };
    let here = |row: &Json| request.flag("all") || Path::new(text(row, "/cwd")) == cwd;
    let live = live_rows(face, here);
    // Names and texts are not known of headers: they answer no search.
    let headers = match wish.query.is_empty() && !wish.named && wish.stream.is_some() {
        true => header_rows(scope),
        false => Vec::new(),
    };
    tell(face, &wish, with_live(headers.clone(), &live, &wish));
    let mut told = Instant::now();
    let mut first = true;
    let mut part = |found: &[SessionInfo]| {
        if first || told.elapsed() >= PART {
            (first, told) = (false, Instant::now());
            let mut rows = found_rows(found, &wish);
            let known: Vec<String> = rows.iter().map(|row| text(row, "/path").into()).collect();
            let unread = |row: &&Json| !known.iter().any(|path| path == text(row, "/path"));
            rows.extend(headers.iter().filter(unread).cloned());
            // Stable: what was read keeps its order.
            rows.sort_by_key(|row| std::cmp::Reverse(at(row, "/modified_ms").as_i64()));
            tell(face, &wish, with_live(rows, &live, &wish));
        }
    };
    let found = match wish.stream {
        Some(_) => listing::list(scope, cancel, &mut part),
        None => listing::list(scope, cancel, &mut |_| {}),
    };
    if cancel.is_cancelled() {
        return Ok(json!({ "cancelled": true }));
    }
    Ok(json!({
        "sessions": with_live(found_rows(&found, &wish), &live, &wish),
        "found": found.len(),
    }))
}

fn text<'a>(row: &'a Json, pointer: &str) -> &'a str {
    at(row, pointer).as_str().unwrap_or_default()
}

fn tell(face: &Face, wish: &Wish<'_>, rows: Vec<Json>) {
    if let Some(stream) = wish.stream {
        let op = json!({"op": "sessions.part", "stream": stream, "sessions": rows});
        face.outbox.set("sessions.part", op);
    }
}

/// Sessions that run here, in the order of their ids, that is of their making.
fn live_rows(face: &Face, here: impl Fn(&Json) -> bool) -> Vec<Json> {
    let mut live: Vec<_> = face.slots.lock().live.values().cloned().collect();
    live.sort_by_key(|slot| std::cmp::Reverse(slot.id()));
    let rows = live.into_iter().map(|slot| {
        let mut info = slot.info();
        let path = at(&info, "/file").clone();
        put(&mut info, "path", path);
        put(&mut info, "live", slot.word().into());
        put(&mut info, "messages", 0.into());
        info
    });
    rows.filter(here).collect()
}

/// What can be said of the newest files without reading more than their first lines.
fn header_rows(scope: Scope<'_>) -> Vec<Json> {
    let files = listing::files(scope);
    let rows = files.into_iter().take(HEADERS).filter_map(|path| {
        let header = listing::read_header(&path)?;
        let fits = match scope {
            Scope::FolderFor(_, cwd) => header.cwd().is_some_and(|it| Path::new(it) == cwd),
            _ => true,
        };
        let row = json!({
            "id": header.id(),
            "path": path.to_string_lossy(),
            "cwd": header.cwd().unwrap_or_default(),
            "created_ms": header.timestamp().and_then(iso_ms),
            "modified_ms": listing::modified_ms(&path),
        });
        fits.then_some(row)
    });
    rows.collect()
}

fn found_rows(found: &[SessionInfo], wish: &Wish<'_>) -> Vec<Json> {
    let order = search(found, wish.query, Sort::default(), wish.named);
    let infos = order.into_iter().filter_map(|at| found.get(at));
    infos.take(ROWS).map(row).collect()
}

/// Puts what runs here in front: with what its file says, or by itself when it has none yet.
fn with_live(mut rows: Vec<Json>, live: &[Json], wish: &Wish<'_>) -> Vec<Json> {
    let mut first = Vec::new();
    for it in live {
        let word = at(it, "/live").clone();
        match rows.iter().position(|row| at(row, "/id") == at(it, "/id")) {
            Some(place) => {
                let mut row = rows.remove(place);
                put(&mut row, "live", word);
                first.push(row);
            }
            // Not written yet: it has no message to look in.
            None => {
                let name = at(it, "/name").as_str();
                let words = wish.query.to_lowercase();
                let found = |name: &str| name.to_lowercase().contains(&words);
                if (name.is_some() || !wish.named) && (words.is_empty() || name.is_some_and(found))
                {
                    first.push(it.clone());
                }
            }
        }
    }
    first.append(&mut rows);
    first
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
        "created_ms": info.created.as_deref().and_then(iso_ms),
        "cost": info.cost,
    })
}

/// The file a request names.
fn named(request: &Request) -> Result<PathBuf, String> {
    let path = request.text("path").map(PathBuf::from);
    path.ok_or_else(|| format!("{}: no session named", request.name))
}

/// Answers the end of a stored session as lines of a chat.
pub(super) fn preview(face: &Arc<Face>, request: &Request) -> Answering {
    let path = match named(request) {
        Ok(path) => path,
        Err(line) => return done(Err(line)),
    };
    let live = face.live_file(&path).is_some();
    let work = tokio::task::spawn_blocking(move || match preview::tail(&path) {
        Ok(lines) => Ok(json!({ "lines": lines })),
        // Its file is made with the first message.
        Err(error) if live && error.kind() == std::io::ErrorKind::NotFound => {
            Ok(json!({ "lines": ["nothing was said here yet"] }))
        }
        Err(error) => Err(format!("read {}: {error}", path.display())),
    });
    Box::pin(async move { work.await.map_err(|error| format!("preview: {error}"))? })
}

/// Names a stored session that does not run here.
pub(super) fn rename(face: &Arc<Face>, request: &Request) -> Answering {
    let path = match named(request) {
        Ok(path) => path,
        Err(line) => return done(Err(line)),
    };
    if face.live_file(&path).is_some() {
        return done(Err(
            "this session is running; `:Pi name {text}` names it".into()
        ));
    }
    let name = request.text("name").unwrap_or_default().trim().to_owned();
    if name.is_empty() {
        return done(Err("a session's name cannot be empty".into()));
    }
    let work = tokio::task::spawn_blocking(move || rename_file(&path, &name));
    Box::pin(async move { work.await.map_err(|error| format!("rename: {error}"))? })
}

fn rename_file(path: &Path, name: &str) -> Answer {
    let fail = |what: &dyn std::fmt::Display| format!("rename {}: {what}", path.display());
    if listing::read_header(path).is_none() {
        return Err(fail(&"it is no session"));
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let session = Session::open(path, folder, Start::default());
    let mut session = session.map_err(|error| fail(&error))?;
    match session.take_notices().into_iter().next() {
        Some(StoreNotice::OpenElsewhere(_)) => {
            return Err(fail(&"another program has it open; name it there"));
        }
        Some(other) => return Err(fail(&other)),
        None => {}
    }
    let stored = session.append_session_info(name);
    stored.map_err(|error| fail(&error))?;
    match session.take_notices().into_iter().next() {
        Some(notice) => Err(fail(&notice)),
        None => Ok(Json::Null),
    }
}

/// Deletes the file of a session that does not run.
pub(super) fn delete(face: &Arc<Face>, request: &Request) -> Answering {
    let path = match named(request) {
        Ok(path) => path,
        Err(line) => return done(Err(line)),
    };
    if face.live_file(&path).is_some() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    const ALL: Wish<'_> = Wish {
        query: "",
        named: false,
        stream: None,
    };

    fn ids(rows: &[Json]) -> Vec<&str> {
        rows.iter().map(|row| text(row, "/id")).collect()
    }

    #[test]
    fn what_runs_stands_first_and_keeps_what_its_file_says() {
        let rows = vec![
            json!({"id": "a", "messages": 3}),
            json!({"id": "b", "messages": 5}),
        ];
        let live = [
            json!({"id": "b", "live": "run", "messages": 0}),
            json!({"id": "new", "live": "idle", "messages": 0}),
        ];
        let rows = with_live(rows, &live, &ALL);
        assert_eq!(ids(&rows), ["b", "new", "a"]);
        assert_eq!(
            rows.first().unwrap(),
            &json!({"id": "b", "messages": 5, "live": "run"})
        );
    }

    #[test]
    fn what_has_no_file_yet_is_found_by_its_name_only() {
        let live = [
            json!({"id": "plain", "live": "idle", "name": null}),
            json!({"id": "named", "live": "idle", "name": "Fix Parser"}),
        ];
        let find = |query, named| {
            let wish = Wish {
                query,
                named,
                stream: None,
            };
            ids(&with_live(Vec::new(), &live, &wish)).join(" ")
        };
        assert_eq!(find("", false), "plain named");
        assert_eq!(find("", true), "named");
        assert_eq!(find("parser", false), "named");
        assert_eq!(find("lexer", false), "");
    }

    #[test]
    fn a_stored_session_gets_its_name_as_one_more_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        let header = json!({"type": "session", "version": 3, "id": "s1",
            "timestamp": "2026-01-01T00:00:00.000Z", "cwd": dir.path()});
        let user = json!({"type": "message", "id": "u1", "parentId": null,
            "timestamp": "2026-01-01T00:00:01.000Z",
            "message": {"role": "user", "content": "one", "timestamp": 1}});
        let before = format!("{header}\n{user}\n");
        std::fs::write(&path, &before).unwrap();
        rename_file(&path, "a name").unwrap();
        let after = std::fs::read_to_string(&path).unwrap();
        assert!(after.starts_with(&before), "{after}");
        assert_eq!(after.lines().count(), 3);
        let info = listing::read_info(&path, &CancellationToken::new()).unwrap();
        assert_eq!(info.name.as_deref(), Some("a name"));
        let other = dir.path().join("notes.txt");
        std::fs::write(&other, "notes\n").unwrap();
        assert!(rename_file(&other, "x").unwrap_err().contains("no session"));
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "notes\n");
    }
}
