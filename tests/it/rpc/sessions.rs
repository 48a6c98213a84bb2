//! Sessions named on the command line.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Stores a session of a working directory.
fn store(folder: &Path, cwd: &str, id: &str) {
    std::fs::create_dir_all(folder).unwrap();
    let time = "2026-01-02T03:04:05.000Z";
    let text = format!(
        "{{\"type\":\"session\",\"version\":3,\"id\":\"{id}\",\"timestamp\":\"{time}\",\"cwd\":\"{cwd}\"}}\n\
         {{\"type\":\"message\",\"id\":\"00000001\",\"parentId\":null,\"timestamp\":\"{time}\",\
         \"message\":{{\"role\":\"user\",\"content\":\"hi\",\"timestamp\":1}}}}\n"
    );
    std::fs::write(folder.join(format!("{id}.jsonl")), text).unwrap();
}

fn run(home: &Path, args: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pi-nvim"))
        .args(args)
        .env_clear()
        .env("HOME", home)
        .current_dir(home.join("project"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The end of this input ends the process.
    let mut stdin = child.stdin.take().unwrap();
    // Fails when the process has refused its arguments already.
    drop(stdin.write_all(b"{\"id\":\"1\",\"type\":\"get_state\"}\n"));
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn session_id(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let answer: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    answer["data"]["sessionId"].as_str().unwrap().to_owned()
}

#[test]
fn ids_find_sessions_of_this_project_and_others_are_only_copied() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().canonicalize().unwrap();
    let cwd = home.join("project");
    std::fs::create_dir(&cwd).unwrap();
    let sessions = home.join(".pi/agent/sessions");
    let own = pi_nvim::session::listing::dir_name(&cwd);
    store(&sessions.join(own), &cwd.to_string_lossy(), "own-1");
    store(&sessions.join("--other--"), "/other", "other-1");
    let rpc = |args: &[&str]| run(&home, &[&["--mode", "rpc"], args].concat());

    assert_eq!(session_id(&rpc(&["--session", "own"])), "own-1");
    assert_eq!(session_id(&rpc(&["--continue"])), "own-1");
    // An id is taken whole where it may name a new session.
    assert_eq!(session_id(&rpc(&["--session-id", "own"])), "own");
    assert_eq!(session_id(&rpc(&["--session-id", "own-1"])), "own-1");

    let nobody = rpc(&["--resume"]);
    let text = String::from_utf8_lossy(&nobody.stderr);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(
        text.starts_with("Error: --resume") && text.contains("--continue"),
        "{text}"
    );
    let unknown = rpc(&["--session", "nothing-like-it"]);
    let text = String::from_utf8_lossy(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(1));
    assert_eq!(text, "No session found matching 'nothing-like-it'\n");
    let odd = rpc(&["--tools", "read,raed"]);
    let text = String::from_utf8_lossy(&odd.stderr);
    assert!(
        text.contains("no tool is named raed; there are read, bash"),
        "{text}"
    );

    let refused = rpc(&["--session", "other"]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text.contains("/other") && text.contains("--fork"), "{text}");
    let copy = session_id(&rpc(&["--fork", "other", "--session-id", "copy-1"]));
    assert_eq!(copy, "copy-1");
    let taken = rpc(&["--fork", "other", "--session-id", "own-1"]);
    assert_eq!(taken.status.code(), Some(1));
}
