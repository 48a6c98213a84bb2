//! What answers of handlers do to a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pi_nvim::session::protocol::SummaryWish;
use pi_nvim::session::{Command, Event};
use serde_json::{Value, json};

use super::world::{World, call, does, say, says};

#[tokio::test]
async fn the_wire_of_a_request_can_be_changed() {
    let mut world = World::new(vec![say("hi")]).await;
    world.on(
        "before_provider_headers",
        does(|event| {
            event["headers"]["x-extra"] = "1".into();
            event["headers"]["authorization"] = Value::Null;
            Ok(None)
        }),
    );
    world.on(
        "before_provider_request",
        does(|event| {
            let mut payload = event["payload"].clone();
            payload["temperature"] = 0.5.into();
            Ok(Some(payload))
        }),
    );
    world.prompt("go").await;
    let request = world.server.requests().remove(0);
    assert_eq!(request.header("x-extra"), Some("1"));
    assert_eq!(request.header("authorization"), None);
    assert_eq!(world.sent(0)["temperature"], 0.5);
}

#[tokio::test]
async fn a_retry_sends_what_the_handlers_made_of_the_request() {
    let refused = pi_nvim::testing::http::Response::status(429, "{}");
    let mut world = World::new(vec![refused, say("hi")]).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    world.on(
        "before_provider_request",
        does(move |event| {
            event["payload"]["nth"] = count.fetch_add(1, Ordering::Relaxed).into();
            Ok(Some(event["payload"].clone()))
        }),
    );
    world.prompt("go").await;
    // The retry of the run is another request; it passes the handlers again.
    assert_eq!(
        (world.sent(0)["nth"].as_u64(), world.sent(1)["nth"].as_u64()),
        (Some(0), Some(1))
    );
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn context_and_prompt_are_changed_for_requests_only() {
    let mut world = World::new(vec![say("one"), say("two")]).await;
    world.prompt("first").await;
    world.on(
        "context",
        does(|event| {
            let messages = event["messages"].as_array_mut().unwrap();
            messages.remove(0);
            Ok(None)
        }),
    );
    world.on(
        "before_agent_start",
        does(|event| {
            let options = event["systemPromptOptions"].as_object_mut().unwrap();
            options["sections"]["mine"] = "my section".into();
            options["promptGuidelines"] = json!(["Be odd"]);
            options["selectedTools"] = json!(["read"]);
            Ok(Some(
                json!({"message": {"customType": "t", "content": "beside", "display": false}}),
            ))
        }),
    );
    world.prompt("second").await;
    let texts = world.texts(1);
    let (system, rest) = texts.split_first().unwrap();
    assert!(
        system.contains("<mine>\nmy section\n</mine>") && system.contains("- Be odd"),
        "{system}"
    );
    assert_eq!(rest, ["assistant: one", "user: second", "user: beside"]);
    let tools = world.sent(1)["tools"].as_array().unwrap().len();
    assert_eq!(tools, 1);
    let users = world.request(Command::GetForkMessages).await;
    assert_eq!(
        users["messages"].as_array().unwrap().len(),
        2,
        "the session keeps all"
    );
}

#[tokio::test]
async fn a_forced_prompt_leads_the_requests_of_its_run() {
    let mut world = World::new(vec![say("one"), say("two")]).await;
    let forced = world.on(
        "before_agent_start",
        says(json!({"systemPrompt": "Only this."})),
    );
    world.prompt("first").await;
    assert_eq!(world.texts(0), ["system: Only this.", "user: first"]);
    assert_eq!(world.sent(0)["tools"].as_array().unwrap().len(), 4);
    forced.off();
    world.prompt("second").await;
    assert!(world.texts(1)[0].contains("<cwd>"), "{:?}", world.texts(1));
}

#[tokio::test]
async fn calls_are_changed_blocked_and_their_results_rewritten() {
    let script = vec![
        call("c1", "bash", &json!({"command": "echo asked"})),
        call("c2", "bash", &json!({"command": "echo never"})),
        call("c3", "read", &json!({"path": "x"})),
        say("done"),
    ];
    let mut world = World::new(script).await;
    world.on(
        "tool_call",
        does(|event| match event["toolCallId"].as_str().unwrap() {
            "c1" => {
                event["input"]["command"] = "echo changed".into();
                Ok(None)
            }
            "c2" => Ok(Some(json!({"block": true, "reason": "not today"}))),
            _ => Err("the guard broke".to_owned()),
        }),
    );
    world.on(
        "tool_result",
        does(|event| {
            let text = event["content"][0]["text"]
                .as_str()
                .unwrap()
                .trim()
                .to_owned();
            let content = json!([{"type": "text", "text": format!("<{text}>")}]);
            Ok(Some(json!({"content": content, "isError": true})))
        }),
    );
    world.prompt("go").await;
    let texts = world.texts(3);
    let results: Vec<&String> = texts.iter().filter(|it| it.starts_with("tool:")).collect();
    assert_eq!(
        results,
        [
            "tool: <changed>",
            "tool: not today",
            "tool: the guard broke"
        ]
    );
}

#[tokio::test]
async fn boundaries_add_entries_and_ask_for_one_more_request() {
    let mut world = World::new(vec![say("one"), say("two"), say("three")]).await;
    let times = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&times);
    world.on(
        "agent_before_settle",
        does(move |event| {
            let context = &event["context"];
            assert_eq!(context["canContinue"], false, "the answer is the last");
            Ok(match count.fetch_add(1, Ordering::Relaxed) {
                0 => Some(json!({"continue": true, "entries": [
                    {"type": "custom", "customType": "state", "data": 1},
                    {"type": "custom_message", "customType": "note", "content": "look again", "display": true}]})),
                1 => Some(json!({"continue": true})),
                _ => None,
            })
        }),
    );
    world.prompt("go").await;
    assert_eq!(times.load(Ordering::Relaxed), 3);
    let texts = world.texts(1);
    assert_eq!(texts.last().unwrap(), "user: look again");
    // Asked for without anything new: the context goes as it is.
    assert_eq!(world.texts(2).last().unwrap(), "assistant: two");
    let kinds: Vec<Value> = world
        .entries()
        .iter()
        .map(|it| it["type"].clone())
        .collect();
    assert!(kinds.contains(&"custom".into()) && kinds.contains(&"custom_message".into()));
}

#[tokio::test]
async fn drafts_see_each_other_and_a_wrong_list_is_dropped_whole() {
    let mut world = World::new(vec![say("one"), say("two")]).await;
    world.on(
        "turn_end",
        does(|event| {
            let id = event["messageEntryId"].clone();
            Ok(Some(json!({"entries": [
                {"type": "custom", "customType": "kept?"},
                {"type": "context_edit", "targetId": id, "replacement": {"content": "short"}}]})))
        }),
    );
    world.on(
        "turn_end",
        does(|event| {
            assert_eq!(event["entries"].as_array().unwrap().len(), 2);
            let messages = event["context"]["llmMessages"].as_array().unwrap();
            assert!(messages.last().unwrap().to_string().contains("short"));
            Ok(None)
        }),
    );
    world.prompt("first").await;
    let edits = |world: &World| {
        let entries = world.entries();
        entries
            .iter()
            .filter(|it| it["type"] == "context_edit")
            .count()
    };
    assert_eq!(edits(&world), 1);
    let entries = json!([{"type": "custom", "customType": "lost"},
        {"type": "context_edit", "targetId": "nowhere", "replacement": null}]);
    world.on(
        "turn_end",
        says(json!({"entries": entries, "continue": true})),
    );
    world.request(Command::prompt("second")).await;
    let told = world
        .until(|event| matches!(event, Event::ExtensionError { .. }))
        .await;
    let Event::ExtensionError { event, error, .. } = &*told else {
        return;
    };
    assert!(event == "turn_end" && error.contains("nowhere"), "{error}");
    world.settled().await;
    assert_eq!(edits(&world), 1);
    assert!(!world.entries().iter().any(|it| it["customType"] == "lost"));
    assert_eq!(world.server.requests().len(), 2, "it does not go on either");
}

#[tokio::test]
async fn a_boundary_may_compact() {
    let mut world = World::new(vec![say("one"), say("two")]).await;
    let compact = world.on(
        "agent_before_settle",
        says(json!({"entries": [{"type": "compaction", "summary": "all of it", "firstKeptEntryId": null}]})),
    );
    world.prompt("first").await;
    compact.off();
    world.prompt("second").await;
    let texts = world.texts(1);
    assert!(
        texts[1].contains("<summary>\nall of it\n</summary>"),
        "{texts:?}"
    );
    assert_eq!(texts.len(), 3, "{texts:?}");
}

#[tokio::test]
async fn gates_cancel_and_say_so() {
    let mut world = World::new(vec![say("one")]).await;
    world.prompt("first").await;
    let user = world.request(Command::GetForkMessages).await["messages"][0]["entryId"].clone();
    let user = user.as_str().unwrap().to_owned();
    let commands = [
        (
            "session_before_switch",
            Command::NewSession {
                parent: None,
                name: None,
            },
        ),
        (
            "session_before_fork",
            Command::Fork {
                entry: user.clone(),
            },
        ),
        ("session_before_fork", Command::Clone),
        (
            "session_before_tree",
            Command::Navigate {
                target: Some(user),
                summary: SummaryWish::Plain,
                label: None,
            },
        ),
    ];
    let id = world.request(Command::GetState).await["sessionId"].clone();
    for (event, command) in commands {
        let gate = world.on(event, says(json!({"cancel": true})));
        assert_eq!(world.request(command).await["cancelled"], true, "{event}");
        gate.off();
    }
    let state = world.request(Command::GetState).await;
    assert_eq!(
        (&state["sessionId"], &state["isCompacting"]),
        (&id, &json!(false))
    );
    world.on("session_before_compact", says(json!({"cancel": true})));
    let compact = Command::Compact { instructions: None };
    let error = world.runtime.request(compact).await.unwrap_err();
    assert!(error.0.contains("Nothing to compact"), "{error}");
    world.on(
        "user_bash",
        says(json!({"result": {"output": "elsewhere", "exitCode": 3,
        "cancelled": false, "truncated": false}})),
    );
    let bash = || Command::Bash {
        command: "rm -rf x".into(),
        exclude_from_context: false,
        tag: None,
    };
    let answer = world.request(bash()).await;
    assert_eq!(
        (&answer["output"], &answer["exitCode"]),
        (&json!("elsewhere"), &json!(3))
    );
}

#[tokio::test]
async fn an_odd_answer_to_a_shell_command_keeps_it_from_running() {
    let world = World::new(vec![]).await;
    for answer in [json!({"result": 1}), json!({"operations": {"exec": 1}})] {
        let gate = world.on("user_bash", says(answer));
        let command = format!("touch {}", world.dir.path().join("made").display());
        let bash = Command::Bash {
            command,
            exclude_from_context: false,
            tag: None,
        };
        world.runtime.request(bash).await.unwrap_err();
        assert!(!world.dir.path().join("made").exists());
        gate.off();
    }
}

#[tokio::test]
async fn work_asked_for_at_rest_begins_when_all_have_heard() {
    let mut world = World::new(vec![say("one"), say("two")]).await;
    let log = super::world::Log::default();
    let (first, runtime) = (log.clone(), world.runtime.clone());
    let once = AtomicUsize::new(0);
    world.on(
        "agent_settled",
        does(move |event| {
            first.add(event);
            if once.fetch_add(1, Ordering::Relaxed) == 0 {
                runtime.submit(Command::prompt("more"), 9);
            }
            Ok(None)
        }),
    );
    for name in ["agent_settled", "agent_start"] {
        let log = log.clone();
        world.on(
            name,
            does(move |event| {
                log.add(event);
                Ok(None)
            }),
        );
    }
    world.prompt("go").await;
    world.settled().await;
    world.runtime.shutdown().await;
    let order: Vec<String> = log
        .take()
        .iter()
        .map(|it| it["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        order,
        [
            "agent_start",
            "agent_settled",
            "agent_settled",
            "agent_start",
            "agent_settled",
            "agent_settled"
        ]
    );
}

#[tokio::test]
async fn messages_change_but_not_their_role_and_input_is_taken() {
    let mut world = World::new(vec![say("one")]).await;
    world.on(
        "input",
        does(|event| {
            Ok(match event["text"].as_str().unwrap() {
                "mine" => Some(json!({"action": "handled"})),
                text => Some(json!({"action": "transform", "text": format!("{text}!")})),
            })
        }),
    );
    world.on(
        "message_end",
        does(|event| {
            Ok((event["message"]["role"] == "assistant").then(|| {
                let mut message = event["message"].clone();
                message["content"] = json!([{"type": "text", "text": "changed"}]);
                json!({"message": message})
            }))
        }),
    );
    world.on(
        "message_end",
        does(|event| {
            let other = json!({"message": {"role": "user", "content": "no"}});
            Ok((event["message"]["role"] == "assistant").then_some(other))
        }),
    );
    assert_eq!(
        world.request(Command::prompt("mine")).await["disposition"],
        "handled"
    );
    world.prompt("go").await;
    assert_eq!(world.texts(0).last().unwrap(), "user: go!");
    let text = world.request(Command::GetLastAssistantText).await;
    assert_eq!(text["text"], "changed");
}
