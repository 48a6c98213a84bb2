//! A host of extensions that writes down what it is asked and changes, blocks and adds what it may.

use std::sync::Arc;

use async_trait::async_trait;
use expect_test::expect;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::agent::{BeforeCall, CallInfo, CallOutcome};
use crate::ai::providers::scripted::{Answer, Scripted};
use crate::ai::{Block, Content, CustomMessage, Message};
use crate::extensions::{
    Boundary, BoundaryAnswer, BoundaryPoint, Draft, Input, InputVerdict, RunPlan, RunStart,
};

#[derive(Default)]
struct Recorder {
    log: Mutex<Vec<String>>,
}

impl Recorder {
    fn log(&self, line: impl Into<String>) {
        self.log.lock().push(line.into());
    }
}

#[async_trait]
impl Hooks for Recorder {
    fn wants(&self, event: &str) -> bool {
        !event.starts_with("message_") && !event.contains("provider")
    }

    async fn observe(&self, record: &Value) {
        self.log(record["type"].as_str().unwrap());
    }

    async fn command(&self, name: &str, args: &str) -> Option<Result<(), String>> {
        (name == "hi").then(|| {
            self.log(format!("command {args}"));
            Ok(())
        })
    }

    async fn input(&self, input: Input) -> InputVerdict {
        self.log(format!("input {}", input.text));
        match input.text.as_str() {
            "swallow" => InputVerdict::Handled,
            text => InputVerdict::Go {
                text: text.replace("please", "now"),
                images: input.images,
            },
        }
    }

    async fn before_run(&self, plan: RunPlan) -> RunStart {
        let Message::User(user) = &plan.message else {
            return RunStart::default();
        };
        self.log(format!("before run {}", user.content.text("")));
        RunStart {
            messages: vec![CustomMessage {
                custom_type: "t".into(),
                content: Content::Text("added".into()),
                ..CustomMessage::default()
            }],
            sections: vec![("mine".into(), "my section".into())],
            ..RunStart::default()
        }
    }

    async fn message_end(&self, message: &Message) -> Option<Message> {
        match message {
            Message::Assistant(answer) => {
                let mut answer = answer.clone();
                answer.content.push(Block::text("(seen)"));
                Some(Message::Assistant(answer))
            }
            _ => None,
        }
    }

    async fn tool_call(&self, call: &CallInfo, args: Value) -> Result<BeforeCall, String> {
        self.log(format!("tool call {}", call.id));
        match call.id.as_str() {
            "blocked" => Ok(BeforeCall::Block {
                reason: Some("not today".into()),
                terminate: false,
            }),
            "broken" => Err("handler broke".into()),
            _ => Ok(BeforeCall::Run(args)),
        }
    }

    async fn tool_result(
        &self,
        call: &CallInfo,
        _: &Value,
        mut outcome: CallOutcome,
    ) -> CallOutcome {
        self.log(format!("tool result {}", call.id));
        outcome.output.content = vec![Block::text("rewritten")];
        outcome
    }

    async fn context(&self, messages: &[Arc<Message>]) -> Option<Vec<Message>> {
        self.log(format!("context {}", messages.len()));
        None
    }

    async fn boundary(&self, point: &BoundaryPoint<'_>) -> BoundaryAnswer {
        let at = point.at;
        self.log(format!("boundary {at:?} {}", point.outcome));
        let first = at == Boundary::BeforeSettle
            && self
                .log
                .lock()
                .iter()
                .filter(|line| line.contains("BeforeSettle"))
                .count()
                == 1;
        BoundaryAnswer {
            drafts: if first {
                vec![Draft::Custom {
                    custom_type: "state".into(),
                    data: Some(json!(1)),
                }]
            } else {
                Vec::new()
            },
            go_on: false,
        }
    }
}

#[tokio::test]
async fn hooks_are_asked_in_order_and_may_change_block_and_add() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "text").unwrap();
    let calls = Answer::new()
        .call("runs", "read", json!({"path": "a.txt"}))
        .call("blocked", "read", json!({"path": "a.txt"}))
        .call("broken", "read", json!({"path": "a.txt"}));
    let model = Scripted::replay([calls, Answer::say("done")]);
    let hooks = Arc::new(Recorder::default());
    let record = Arc::new(Scripted::model());
    let mut config = RuntimeConfig::in_memory(dir.path(), Arc::new(model.clone()), record);
    config.hooks = Arc::clone(&hooks) as Arc<dyn Hooks>;
    let runtime = Runtime::start(config).unwrap();
    let mut events = runtime.subscribe(1000);
    let answer = runtime.request(Command::prompt("/hi there")).await.unwrap();
    assert_eq!(answer["disposition"], "handled");
    let answer = runtime.request(Command::prompt("swallow")).await.unwrap();
    assert_eq!(answer["disposition"], "handled");
    runtime.request(Command::prompt("go please")).await.unwrap();
    while let Some(event) = events.recv().await {
        if matches!(*event, Event::AgentSettled { .. }) {
            break;
        }
    }
    expect![[r#"
        command there
        input swallow
        input go please
        before run go now
        agent_start
        turn_start
        context 3
        tool_execution_start
        tool call runs
        tool_execution_start
        tool call blocked
        tool_execution_end
        tool_execution_start
        tool call broken
        tool_execution_end
        tool result runs
        tool_execution_end
        boundary TurnEnd completed
        turn_start
        context 7
        boundary TurnEnd completed
        agent_end
        boundary BeforeSettle completed
        agent_settled"#]]
    .assert_eq(&hooks.log.lock().join("\n"));
    let last = model.requests().pop().unwrap();
    let texts: Vec<String> = last
        .messages
        .iter()
        .filter_map(|message| match &**message {
            Message::ToolResult(result) => result.content.first()?.as_text().map(str::to_owned),
            Message::User(user) => Some(user.content.text("")),
            _ => None,
        })
        .collect();
    assert_eq!(
        texts,
        ["go now", "added", "rewritten", "not today", "handler broke"]
    );
    let stored = runtime.with_session(|session| {
        let customs = session
            .entries()
            .filter(|entry| entry.facts().kind.as_str() == "custom");
        customs.count()
    });
    assert_eq!(stored, 1);
    let text = runtime
        .request(Command::GetLastAssistantText)
        .await
        .unwrap();
    assert_eq!(text["text"], "done(seen)");
}

/// Adds drafts once, at the end of the first turn, and wants to go on.
struct Drafting(Mutex<Vec<Draft>>);

#[async_trait]
impl Hooks for Drafting {
    async fn boundary(&self, _: &BoundaryPoint<'_>) -> BoundaryAnswer {
        let drafts = std::mem::take(&mut *self.0.lock());
        BoundaryAnswer {
            go_on: !drafts.is_empty(),
            drafts,
        }
    }
}

/// What two prompts leave behind when the drafts are offered in the second: kinds of entries, requests, notices.
async fn drafted(make: impl Fn(&[String]) -> Vec<Draft>) -> (Vec<String>, usize, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let model = Scripted::replay(["one", "two", "three"].map(Answer::say));
    let hooks = Arc::new(Drafting(Mutex::default()));
    let record = Arc::new(Scripted::model());
    let mut config = RuntimeConfig::in_memory(dir.path(), Arc::new(model.clone()), record);
    config.hooks = Arc::clone(&hooks) as Arc<dyn Hooks>;
    let runtime = Runtime::start(config).unwrap();
    let mut events = runtime.subscribe(1000);
    let mut notices = Vec::new();
    for prompt in ["first", "second"] {
        if prompt == "second" {
            let ids = runtime.with_session(|session| {
                let users = session.entries().filter(|it| it.text().contains("user"));
                users
                    .map(|entry| entry.id().to_string())
                    .collect::<Vec<_>>()
            });
            *hooks.0.lock() = make(&ids);
        }
        runtime.request(Command::prompt(prompt)).await.unwrap();
        while let Some(event) = events.recv().await {
            match &*event {
                Event::Notice { text, .. } => notices.push(text.clone()),
                Event::AgentSettled { .. } => break,
                _ => {}
            }
        }
    }
    let kinds = runtime.with_session(|session| {
        let kinds = session.entries().map(|entry| entry.facts().kind);
        kinds.map(|kind| kind.as_str().to_owned()).collect()
    });
    (kinds, model.requests().len(), notices)
}

#[tokio::test]
async fn drafts_of_a_boundary_may_compact_and_edit_and_one_request_follows() {
    let (kinds, requests, notices) = drafted(|ids| {
        vec![
            Draft::Edit {
                target: ids.last().unwrap().clone(),
                replacement: json!({"content": "shorter"}),
            },
            Draft::Compaction {
                summary: "all of it".into(),
                first_kept: ids.last().cloned(),
                details: None,
                usage: None,
            },
        ]
    })
    .await;
    assert_eq!(notices, Vec::<String>::new());
    assert_eq!(requests, 3);
    let tail: Vec<&str> = kinds.iter().rev().take(4).map(String::as_str).collect();
    assert_eq!(tail, ["message", "compaction", "context_edit", "message"]);
}

#[tokio::test]
async fn of_drafts_that_cannot_all_stand_none_is_added() {
    let (kinds, requests, notices) = drafted(|ids| {
        vec![
            Draft::Custom {
                custom_type: "mine".into(),
                data: None,
            },
            Draft::Compaction {
                summary: "s".into(),
                first_kept: Some("nowhere".into()),
                details: None,
                usage: None,
            },
            Draft::Edit {
                target: ids[0].clone(),
                replacement: Value::Null,
            },
        ]
    })
    .await;
    assert_eq!(
        notices,
        ["nothing of an extension was added: Entry nowhere not found"]
    );
    assert_eq!(requests, 2, "and nothing is asked for them");
    assert!(
        !kinds
            .iter()
            .any(|kind| kind == "custom" || kind == "compaction")
    );
}
