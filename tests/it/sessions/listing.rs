//! Recorded lists of sessions, searches, folder names; continuing, finding, deleting.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pi_nvim::entry::{iso_ms, iso_time};
use pi_nvim::session::listing::{
    self, Deleted, Resolved, Scope, SessionDir, SessionInfo, continue_recent, dir_name, list,
    resolve,
};
use pi_nvim::session::search::{self, Sort};
use pi_nvim::session::store::Start;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{compare, replace};
use crate::conformance::{Outcome, Tally, data_dir};

struct Folder {
    root: tempfile::TempDir,
    expected: Value,
}

impl Folder {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let from = data_dir().join("sessions/listing");
        let expected: Value =
            serde_json::from_str(&std::fs::read_to_string(from.join("expected.json")).unwrap())
                .unwrap();
        let folder = Self { root, expected };
        for dir in [folder.dir(), folder.cwd(), folder.other()] {
            std::fs::create_dir(dir).unwrap();
        }
        for (name, mtime) in folder.expected["files"].as_object().unwrap() {
            let mut bytes = std::fs::read(from.join("files").join(name)).unwrap();
            let paths = [
                ("{cwd}", folder.cwd()),
                ("{othercwd}", folder.other()),
                ("{dir}", folder.dir()),
            ];
            for (mask, path) in paths {
                bytes = replace(&bytes, mask.as_bytes(), path.to_str().unwrap().as_bytes());
            }
            let path = folder.dir().join(name);
            std::fs::write(&path, bytes).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(mtime.as_u64().unwrap());
            std::fs::File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
        folder
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("sessions")
    }
    fn cwd(&self) -> PathBuf {
        self.root.path().join("cwd")
    }
    fn other(&self) -> PathBuf {
        self.root.path().join("othercwd")
    }

    fn shared(&self) -> SessionDir {
        SessionDir::new(
            &self.root.path().join("agent"),
            &self.cwd(),
            Some(&self.dir()),
        )
    }

    fn rows(&self, infos: &[SessionInfo]) -> Value {
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let optional = |info: &&SessionInfo| {
            let names = self.expected["optional"].as_array().unwrap();
            !names.contains(&name(&info.path).into())
        };
        let cwd = |text: &str| match Path::new(text) {
            path if path == self.cwd() => "{cwd}".to_owned(),
            path if path == self.other() => "{othercwd}".to_owned(),
            _ => text.to_owned(),
        };
        let row = |info: &SessionInfo| {
            json!({
                "file": name(&info.path), "id": info.id, "cwd": cwd(&info.cwd), "name": info.name,
                "parentSession": info.parent_session.as_ref().map(|path| name(Path::new(path))),
                "created": info.created, "modified": iso_time(info.modified_ms), "messageCount": info.message_count,
                "firstMessage": info.first_message, "allMessagesText": info.all_text,
            })
        };
        infos.iter().filter(optional).map(row).collect()
    }
}

fn file_name(path: Option<PathBuf>) -> Value {
    path.map_or(Value::Null, |path| {
        path.file_name().unwrap().to_str().into()
    })
}

#[test]
fn recorded_lists() {
    let folder = Folder::new();
    let mut tally = Tally::new("sessions/listing/expected.json#cases");
    let cancel = CancellationToken::new();
    let all = |scope| list(scope, &cancel, &mut |_| {});
    let (dir, cwd, other) = (folder.dir(), folder.cwd(), folder.other());
    let cases = folder.expected["cases"].as_object().unwrap();
    let recent_other = SessionDir {
        path: dir.clone(),
        shared: true,
    };
    let nowhere = folder.root.path().join("nowhere");
    for (name, expected) in cases {
        let actual = match &**name {
            "list_cwd_in_custom_dir" => folder.rows(&all(Scope::FolderFor(&dir, &cwd))),
            "list_all_custom_dir" => folder.rows(&all(Scope::Folder(&dir))),
            "most_recent_unfiltered" => file_name(
                SessionDir {
                    path: dir.clone(),
                    shared: false,
                }
                .most_recent(&cwd),
            ),
            "continue_recent_cwd" => file_name(folder.shared().most_recent(&cwd)),
            "continue_recent_othercwd" => file_name(recent_other.most_recent(&other)),
            "continue_recent_without_match_creates_new" => {
                let session = continue_recent(&recent_other, &nowhere, Start::default()).unwrap();
                (session.is_empty() && !session.file().unwrap().exists()).into()
            }
            "find_by_id" => {
                let mut found = serde_json::Map::new();
                for key in expected.as_object().unwrap().keys() {
                    let (id, from) = key.split_once(" from ").unwrap_or((key, "cwd"));
                    let from = if from == "othercwd" { &other } else { &cwd };
                    found.insert(key.clone(), file_name(recent_other.find_by_id(from, id)));
                }
                Value::Object(found)
            }
            other => panic!("unknown case {other}"),
        };
        tally.case(
            name,
            compare(expected, &actual).map_or_else(Outcome::Fail, |()| Outcome::Pass),
        );
    }
    tally.finish();
}

#[test]
fn recorded_searches() {
    let text = std::fs::read_to_string(data_dir().join("sessions/listing/search.json")).unwrap();
    let recorded: Value = serde_json::from_str(&text).unwrap();
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let read = |value: &Value| SessionInfo {
        path: text(value, "path").into(),
        id: text(value, "id"),
        cwd: text(value, "cwd"),
        name: value["name"].as_str().map(str::to_owned),
        parent_session: None,
        created: None,
        modified_ms: iso_ms(&text(value, "modified")).unwrap(),
        message_count: 1,
        first_message: text(value, "firstMessage"),
        all_text: text(value, "allMessagesText"),
        cost: 0.0,
    };
    let sessions: Vec<SessionInfo> = recorded["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(read)
        .collect();
    let mut tally = Tally::new("sessions/listing/search.json#cases");
    for (at, case) in recorded["cases"].as_array().unwrap().iter().enumerate() {
        let sort = if case["sort"] == "relevance" {
            Sort::Relevance
        } else {
            Sort::Recent
        };
        let found = search::search(
            &sessions,
            &text(case, "query"),
            sort,
            case["nameFilter"] == "named",
        );
        let actual: Value = found.iter().map(|at| sessions[*at].id.as_str()).collect();
        let outcome =
            compare(&case["expectedIds"], &actual).map_or_else(Outcome::Fail, |()| Outcome::Pass);
        tally.case(&format!("{at} {} {}", case["query"], case["sort"]), outcome);
    }
    tally.finish();
}

#[test]
fn recorded_folder_names() {
    let text = std::fs::read_to_string(data_dir().join("sessions/listing/dir-names.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut tally = Tally::new("sessions/listing/dir-names.json");
    for case in cases {
        let cwd = case["cwd"].as_str().unwrap();
        let actual = dir_name(Path::new(cwd)).into();
        tally.case(
            cwd,
            compare(&case["expectedDirName"], &actual)
                .map_or_else(Outcome::Fail, |()| Outcome::Pass),
        );
    }
    tally.finish();
}

#[test]
fn an_argument_names_a_path_an_id_or_the_beginning_of_one() {
    let folder = Folder::new();
    let agent = folder.root.path().join("agent");
    let there = listing::default_dir(&agent, &folder.other());
    std::fs::create_dir_all(&there).unwrap();
    let moved = there.join("x.jsonl");
    let id = "01990000-0000-7000-8000-000000000009";
    let header =
        json!({"type": "session", "version": 3, "id": id, "timestamp": "t", "cwd": folder.other()});
    std::fs::write(&moved, format!("{header}\n")).unwrap();
    let find = |argument: &str| {
        resolve(
            argument,
            &folder.shared(),
            &agent.join("sessions"),
            &folder.cwd(),
        )
    };
    let own = folder
        .dir()
        .join("2026-01-05T09-03-20-000Z_01980000-0000-7000-8000-000000000002.jsonl");
    assert_eq!(find("a/b"), Resolved::File("a/b".into()));
    assert_eq!(find("b.jsonl"), Resolved::File("b.jsonl".into()));
    assert_eq!(
        find("01980000-0000-7000-8000-000000000002"),
        Resolved::File(own)
    );
    let elsewhere = Resolved::Elsewhere {
        path: moved,
        cwd: folder.other().to_str().unwrap().to_owned(),
    };
    assert_eq!(find("0199"), elsewhere);
    assert_eq!(find(id), elsewhere);
    assert_eq!(
        (find("zzz"), find("")),
        (Resolved::Nothing, Resolved::Nothing)
    );
}

#[test]
fn a_list_can_be_stopped_and_tells_what_it_has_so_far() {
    let folder = Folder::new();
    let cancel = CancellationToken::new();
    let mut sizes = Vec::new();
    let infos = list(Scope::Folder(&folder.dir()), &cancel, &mut |infos| {
        sizes.push(infos.len());
    });
    assert_eq!(sizes.last(), Some(&infos.len()));
    assert!(sizes.len() >= 2, "first and last: {sizes:?}");
    cancel.cancel();
    assert!(list(Scope::Folder(&folder.dir()), &cancel, &mut |_| {}).is_empty());
}

#[test]
fn deleting_tries_the_trash_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    std::fs::write(&path, "x").unwrap();
    assert_eq!(
        listing::delete(&path, "a-program-that-is-not-there").unwrap(),
        Deleted::Removed
    );
    assert!(!path.exists());
    std::fs::write(&path, "x").unwrap();
    assert_eq!(listing::delete(&path, "rm").unwrap(), Deleted::Trashed);
    assert!(listing::delete(&path, "rm").is_err());
}

#[test]
fn threads_follow_the_session_each_was_made_from() {
    let info = |name: &str, parent: Option<&str>, modified: i64| SessionInfo {
        path: name.into(),
        id: name.into(),
        cwd: String::new(),
        name: None,
        parent_session: parent.map(str::to_owned),
        created: None,
        modified_ms: modified,
        message_count: 0,
        first_message: String::new(),
        all_text: String::new(),
        cost: 0.0,
    };
    let sessions = [
        info("a", None, 1),
        info("b", None, 5),
        info("c", Some("a"), 9),
        info("x", Some("y"), 3),
        info("y", Some("x"), 2),
    ];
    let rows = search::threaded(&sessions);
    let shown: Vec<(usize, usize)> = rows.iter().map(|row| (row.at, row.depth)).collect();
    assert_eq!(shown, [(0, 0), (2, 1), (1, 0), (3, 0), (4, 0)]);
}
