//! A whole session against the scripted model: commands in, events and session file out.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::ai::providers::scripted::{Answer, Scripted};
use crate::ai::{Block, Message};

mod beside;
mod compaction;
mod files;

struct Fixture {
    _dir: tempfile::TempDir,
    runtime: Runtime,
    events: mpsc::Receiver<Arc<Event>>,
    model: Scripted,
}

fn config(dir: &Path, model: &Scripted) -> RuntimeConfig {
    let cwd = dir.join("project");
    std::fs::create_dir_all(&cwd).unwrap();
    let places = Places {
        home: dir.join("home"),
        agent_dir: dir.join("agent"),
        session_dir: None,
        state_dir: dir.join("state"),
    };
    let load = LoadOptions {
        places,
        cwd,
        trust: Trust::Untrusted,
        trust_rules: TrustRules::default(),
        flags: ResourceFlags::default(),
    };
    let env = ToolEnv {
        workspace: Arc::new(DiskWorkspace::default()),
        gate: gate(dir),
        options: LiveOptions::default(),
    };
    let record = Arc::new(Scripted::model());
    let models = Arc::new(vec![Arc::clone(&record)]);
    RuntimeConfig {
        tools: Vec::new(),
        active_tools: None,
        shell: None,
        ..RuntimeConfig::over(load, env, Arc::new(model.clone()), models, Some(record))
    }
}

impl Fixture {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::with_settings(answers, json!({"retry": {"baseDelayMs": 20}}))
    }

    fn with_settings(answers: impl IntoIterator<Item = Answer>, settings: Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("agent")).unwrap();
        std::fs::write(dir.path().join("agent/settings.json"), settings.to_string()).unwrap();
        let model = Scripted::replay(answers);
        let runtime = Runtime::start(config(dir.path(), &model)).unwrap();
        let events = runtime.subscribe(1000);
        Self {
            _dir: dir,
            runtime,
            events,
            model,
        }
    }

    async fn ask(&self, command: Command) -> Value {
        self.runtime.request(command).await.unwrap()
    }

    async fn refused(&self, command: Command) -> String {
        self.runtime.request(command).await.unwrap_err().0
    }

    async fn prompt(&self, text: &str) -> Value {
        self.ask(Command::Prompt {
            text: text.to_owned(),
            images: Vec::new(),
            behavior: None,
        })
        .await
    }

    /// Collects events up to one that fits, each as a short line.
    async fn until(&mut self, last: &str) -> String {
        let mut lines = Vec::new();
        loop {
            let event = self.events.recv().await.unwrap();
            let line = show(&event);
            let done = line.starts_with(last);
            lines.extend((!line.is_empty()).then_some(line));
            if done {
                return lines.join("\n");
            }
        }
    }

    async fn settled(&mut self, expect: Expect) {
        let seen = self.until("settled").await;
        expect.assert_eq(&seen);
    }

    /// The session's entries as short lines.
    fn entries(&self) -> String {
        self.runtime.with_session(|session| {
            let lines: Vec<String> = session
                .entries()
                .map(|entry| match entry.message() {
                    Some(message) => show_message(&message),
                    None => entry.facts().kind.as_str().to_owned(),
                })
                .collect();
            lines.join("\n")
        })
    }
}

fn show_message(message: &Message) -> String {
    let blocks = |blocks: &[Block]| {
        let texts: Vec<&str> = blocks.iter().filter_map(Block::as_text).collect();
        texts.join("|")
    };
    match message {
        Message::System(_) => "system".to_owned(),
        Message::User(user) => format!("user {}", user.content.text("|")),
        Message::Assistant(answer) => {
            format!(
                "answer {:?} {}",
                answer.stop_reason,
                blocks(&answer.content)
            )
        }
        Message::ToolResult(result) => format!("result {}", blocks(&result.content)),
        other => other.role().to_owned(),
    }
}

fn show(event: &Event) -> String {
    match event {
        Event::MessageUpdate { .. } | Event::MessageStart { .. } => String::new(),
        Event::MessageEnd { message, entry } => {
            format!(
                "{}{}",
                show_message(message),
                if entry.is_some() { "" } else { " (not stored)" }
            )
        }
        Event::AgentSettled { aborted } => format!("settled aborted={aborted}"),
        Event::AgentEnd {
            messages,
            will_retry,
        } => format!("agent end {} retry={will_retry}", messages.len()),
        Event::QueueUpdate {
            steering,
            follow_up,
        } => format!("queue {steering:?} {follow_up:?}"),
        Event::EntryAppended { entry } => format!("entry {}", entry["type"].as_str().unwrap()),
        Event::RetryStart {
            attempt, delay_ms, ..
        } => format!("retry {attempt} in {delay_ms}"),
        Event::RetryEnd {
            success, attempt, ..
        } => format!("retry end {attempt} {success}"),
        Event::Notice { text, .. } => format!("notice {text}"),
        other => match other.to_wire() {
            Some(record) => record["type"].as_str().unwrap().to_owned(),
            None => String::new(),
        },
    }
}

#[tokio::test]
async fn one_prompt_is_stored_before_it_is_told() {
    let mut it = Fixture::new([Answer::say("Hello!")]);
    assert_eq!(it.prompt("Hi").await, json!({"disposition": "started"}));
    it.settled(expect![[r#"
        agent_start
        turn_start
        system
        user Hi
        answer Stop Hello!
        turn_end
        agent end 3 retry=false
        settled aborted=false"#]])
        .await;
    expect![[r#"
        model_change
        thinking_level_change
        system
        user Hi
        answer Stop Hello!"#]]
    .assert_eq(&it.entries());
    let file = it.ask(Command::GetState).await["sessionFile"].clone();
    let text = std::fs::read_to_string(file.as_str().unwrap()).unwrap();
    assert_eq!(text.lines().count(), 6);
    assert_eq!(
        it.ask(Command::GetLastAssistantText).await,
        json!({"text": "Hello!"})
    );
}

#[tokio::test]
async fn a_second_prompt_needs_a_behavior_while_one_runs() {
    let mut it = Fixture::new([
        Answer::say("one").pause(Duration::from_millis(50)),
        Answer::say("two"),
    ]);
    it.prompt("a").await;
    let error = it
        .refused(Command::Prompt {
            text: "b".into(),
            images: Vec::new(),
            behavior: None,
        })
        .await;
    assert!(error.starts_with("Agent is already processing."), "{error}");
    it.ask(Command::FollowUp {
        text: "c".into(),
        images: Vec::new(),
    })
    .await;
    it.settled(expect![[r#"
        agent_start
        turn_start
        system
        user a
        queue [] ["c"]
        answer Stop one
        turn_end
        turn_start
        queue [] []
        user c
        answer Stop two
        turn_end
        agent end 5 retry=false
        settled aborted=false"#]])
        .await;
}

#[tokio::test]
async fn a_passing_failure_is_tried_again_without_the_failed_answer() {
    let mut it = Fixture::new([
        Answer::new().text("par").error("500 overloaded"),
        Answer::say("done"),
    ]);
    it.prompt("go").await;
    it.settled(expect![[r#"
        agent_start
        turn_start
        system
        user go
        answer Error par
        turn_end
        agent end 3 retry=true
        retry 1 in 20
        entry context_edit
        agent_start
        turn_start
        answer Stop done
        retry end 1 true
        turn_end
        agent end 1 retry=false
        settled aborted=false"#]])
        .await;
    let last = it.model.requests().pop().unwrap();
    assert!(
        !last
            .messages
            .iter()
            .any(|message| message.role() == "assistant")
    );
}

#[tokio::test]
async fn an_abort_answers_when_everything_is_at_rest() {
    let mut it = Fixture::new([Answer::new().text("Hel").hang()]);
    it.prompt("go").await;
    it.until("user go").await;
    it.ask(Command::Abort).await;
    it.settled(expect![[r#"
        answer Aborted Hel
        turn_end
        agent end 3 retry=false
        settled aborted=true"#]])
        .await;
    it.ask(Command::Abort).await;
}

#[tokio::test]
async fn an_abort_cuts_the_wait_before_the_next_attempt() {
    let mut it = Fixture::with_settings(
        [Answer::fail("503 unavailable")],
        json!({"retry": {"baseDelayMs": 60_000}}),
    );
    it.prompt("go").await;
    it.until("retry 1").await;
    it.ask(Command::Abort).await;
    it.settled(expect![[r#"
        entry context_edit
        retry end 1 false
        settled aborted=true"#]])
        .await;
    assert_eq!(it.model.requests().len(), 1);
}

#[tokio::test]
async fn shutting_down_stores_the_aborted_turn() {
    let it = Fixture::new([Answer::new().text("Hel").hang()]);
    it.prompt("go").await;
    it.runtime.shutdown().await;
    assert!(
        it.entries().ends_with("user go\nanswer Aborted Hel")
            || it.entries().ends_with("answer Aborted ")
    );
    assert_eq!(it.refused(Command::GetState).await, "the session is closed");
}

#[tokio::test]
async fn another_session_takes_over_after_the_old_one_is_at_rest() {
    let mut it = Fixture::new([Answer::new().text("Hel").hang(), Answer::say("new")]);
    it.prompt("go").await;
    it.until("user go").await;
    let old = it.ask(Command::GetState).await;
    it.ask(Command::NewSession {
        parent: None,
        name: Some("next".into()),
    })
    .await;
    let new = it.ask(Command::GetState).await;
    assert_ne!(old["sessionFile"], new["sessionFile"]);
    assert_eq!(new["sessionName"], "next");
    let text = std::fs::read_to_string(old["sessionFile"].as_str().unwrap()).unwrap();
    assert!(
        text.lines().last().unwrap().contains("\"aborted\""),
        "{text}"
    );
    it.prompt("again").await;
    it.until("answer Stop new").await;
}

fn gate(dir: &Path) -> Gate {
    let workspace = Arc::new(DiskWorkspace::default());
    Gate::new(GateConfig {
        state_dir: Some(dir.join("state")),
        ..GateConfig::new(workspace, dir.join("project"))
    })
}

/// A tool of somebody else that returns a picture wider than models take.
struct Camera(crate::ai::ToolDeclaration);

impl Tool for Camera {
    fn declaration(&self) -> &crate::ai::ToolDeclaration {
        &self.0
    }

    fn start(
        &self,
        _: Value,
        _: crate::agent::ToolContext,
    ) -> futures::future::BoxFuture<
        'static,
        Result<crate::agent::ToolOutput, crate::agent::ToolError>,
    > {
        let wide = image::DynamicImage::new_luma8(2500, 10);
        let mut png = std::io::Cursor::new(Vec::new());
        wide.write_to(&mut png, image::ImageFormat::Png).unwrap();
        let data =
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, png.into_inner());
        let content = vec![Block::image(data, "image/png")];
        Box::pin(async {
            Ok(crate::agent::ToolOutput {
                content,
                ..crate::agent::ToolOutput::default()
            })
        })
    }
}

#[tokio::test]
async fn pictures_of_any_tool_are_scaled_before_they_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let model = Scripted::replay([
        Answer::new().call("c1", "camera", json!({})),
        Answer::say("done"),
    ]);
    let camera = Camera(crate::ai::ToolDeclaration {
        name: "camera".to_owned(),
        parameters: json!({"type": "object"}),
        ..crate::ai::ToolDeclaration::default()
    });
    let runtime = Runtime::start(RuntimeConfig {
        tools: vec![Arc::new(camera)],
        ..config(dir.path(), &model)
    })
    .unwrap();
    let events = runtime.subscribe(1000);
    let mut it = Fixture {
        _dir: dir,
        runtime,
        events,
        model,
    };
    it.prompt("look").await;
    it.until("settled").await;
    let entries = it.entries();
    assert!(
        entries.contains("original 2500x10, displayed at 2000x8"),
        "{entries}"
    );
}

#[tokio::test]
async fn a_named_model_holds_for_an_old_session_and_any_other_does_not() {
    let mut it = Fixture::new([Answer::say("hi")]);
    it.prompt("hello").await;
    it.until("settled").await;
    it.runtime.shutdown().await;
    for (fixed, expected) in [(true, "other"), (false, &*Scripted::model().id)] {
        let mut again = config(it._dir.path(), &it.model);
        let other = Arc::new(Model {
            id: "other".to_owned(),
            ..Scripted::model()
        });
        again.models = Arc::new(vec![Arc::new(Scripted::model()), Arc::clone(&other)]);
        again.session = SessionChoice::Continue;
        again.model = Some(other);
        again.model_fixed = fixed;
        let runtime = Runtime::start(again).unwrap();
        let state = runtime.request(Command::GetState).await.unwrap();
        assert_eq!(state["model"]["id"], expected, "{fixed}");
        assert!(state["messageCount"].as_u64() > Some(1), "{state}");
        runtime.shutdown().await;
    }
}
