//! Long work goes on beside the session: what waits for a file must not keep the session from answering.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::*;

/// A pipe in the place of a file: opening one end waits for the other.
fn pipe(path: &Path) {
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        path,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .unwrap();
}

/// Waits for an answer as long as a slow machine may need, not as long as a lock may last.
async fn soon<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), answer)
        .await
        .expect("the session answers meanwhile")
}

async fn talked() -> Fixture {
    let mut fixture = Fixture::new([Answer::say("answer")]);
    fixture.prompt("question").await;
    fixture.until("settled").await;
    fixture
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_answers_while_an_export_is_written() {
    let fixture = talked().await;
    let to = fixture._dir.path().join("pipe");
    pipe(&to);
    for html in [true, false] {
        let runtime = fixture.runtime.clone();
        let path = Some(to.clone());
        let export = tokio::spawn(async move {
            let command = match html {
                true => Command::ExportHtml { path },
                false => Command::ExportJsonl { path },
            };
            runtime.request(command).await
        });
        let model = soon(fixture.ask(Command::GetState)).await;
        assert_eq!(model["isStreaming"], false);
        soon(fixture.ask(Command::SetSessionName {
            name: format!("while {html}"),
        }))
        .await;
        assert!(!export.is_finished(), "nobody reads the pipe yet");
        let from = to.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            std::fs::File::open(from)
                .unwrap()
                .read_to_string(&mut text)
                .unwrap();
            text
        });
        let text = read.await.unwrap();
        export.await.unwrap().unwrap();
        assert!(text.contains("question") && text.contains("answer"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_answers_while_settings_are_written() {
    let fixture = talked().await;
    let file = fixture._dir.path().join("agent/settings.json");
    std::fs::remove_file(&file).unwrap();
    pipe(&file);
    let save = |enabled| {
        let runtime = fixture.runtime.clone();
        tokio::spawn(async move {
            runtime
                .request(Command::SetAutoCompaction { enabled })
                .await
        })
    };
    let first = save(false);
    // In force at once, though the file can't be read yet.
    while soon(fixture.ask(Command::GetState)).await["autoCompactionEnabled"] != false {
        tokio::task::yield_now().await;
    }
    assert!(!first.is_finished());
    let to = file.clone();
    let write = tokio::task::spawn_blocking(move || {
        let mut out = std::fs::File::options().write(true).open(&to).unwrap();
        std::fs::remove_file(&to).unwrap();
        out.write_all(b"{\"theme\": \"t\"}").unwrap();
    });
    write.await.unwrap();
    soon(first).await.unwrap().unwrap();
    soon(save(true)).await.unwrap().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let settings: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(settings["compaction"]["enabled"], true, "{text}");
}

#[tokio::test]
async fn settings_that_could_not_be_written_go_with_the_next_ones() {
    let mut fixture = talked().await;
    let file = fixture._dir.path().join("agent/settings.json");
    std::fs::write(&file, "{ broken").unwrap();
    fixture
        .ask(Command::SetAutoCompaction { enabled: false })
        .await;
    let told = fixture.until("notice").await;
    assert!(told.contains("settings.json"), "{told}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{ broken");
    std::fs::write(&file, "{}").unwrap();
    fixture.ask(Command::SetAutoRetry { enabled: false }).await;
    let settings: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(
        settings,
        json!({"compaction": {"enabled": false}, "retry": {"enabled": false}})
    );
}

/// A session file with this many messages.
fn long_session(dir: &Path, count: usize) -> PathBuf {
    let path = dir.join("long.jsonl");
    let mut text = String::from(
        "{\"type\":\"session\",\"version\":3,\"id\":\"s\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n",
    );
    for at in 0..count {
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        let usage = json!({"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2, "cost": {"total": 0}});
        let parent = at.checked_sub(1).map(|it| format!("e{it}"));
        let entry = json!({"type": "message", "id": format!("e{at}"), "parentId": parent, "timestamp": "2026-01-01T00:00:00.000Z",
            "message": {"role": role, "content": [{"type": "text", "text": "x"}], "usage": usage, "stopReason": "stop"}});
        text.push_str(&format!("{entry}\n"));
    }
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test]
async fn a_long_session_is_counted_beside_it_and_only_once() {
    let fixture = talked().await;
    let path = long_session(fixture._dir.path(), 2000);
    fixture.ask(Command::SwitchSession { path }).await;
    let uncounted = || fixture.runtime.look(Session::uncounted);
    assert!(uncounted() >= 2000);
    let stats = fixture.ask(Command::GetSessionStats).await;
    assert_eq!(
        (
            &stats["userMessages"],
            &stats["assistantMessages"],
            &stats["tokens"]["total"]
        ),
        (&json!(1000), &json!(1000), &json!(2000))
    );
    assert_eq!(uncounted(), 0);
}
