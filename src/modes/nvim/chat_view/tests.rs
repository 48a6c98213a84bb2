use std::sync::Arc;

use expect_test::{Expect, expect};
use pretty_assertions::assert_eq;
use serde_json::{Value as Json, json};

use super::*;
use crate::ai::{AssistantMessage, Block as Content, Message, StreamEvent};
use crate::session::Event;

/// Applies ops as the Lua side does.
#[derive(Default)]
struct Drawn(Vec<(String, Vec<String>)>);

impl Drawn {
    fn apply(&mut self, ops: Vec<Json>) {
        let strings = |value: &Json| -> Vec<String> {
            let lines = value.as_array().unwrap().iter();
            lines
                .map(|line| line.as_str().unwrap().to_owned())
                .collect()
        };
        for op in ops {
            let id = op["id"].as_str().unwrap_or_default().to_owned();
            match op["op"].as_str().unwrap() {
                "chat.reset" => {
                    let blocks = op["blocks"].as_array().unwrap().iter();
                    self.0 = blocks
                        .map(|it| (it["id"].as_str().unwrap().to_owned(), strings(&it["lines"])))
                        .collect();
                }
                "chat.remove" => self.0.retain(|(it, _)| *it != id),
                "chat.block" => {
                    let from = usize::try_from(op["from"].as_u64().unwrap()).unwrap();
                    if !self.0.iter().any(|(it, _)| *it == id) {
                        self.0.push((id.clone(), Vec::new()));
                    }
                    let (_, lines) = self.0.iter_mut().find(|(it, _)| *it == id).unwrap();
                    lines.truncate(from);
                    lines.extend(strings(&op["lines"]));
                }
                other => panic!("{other}"),
            }
        }
    }

    fn lines(&self) -> Vec<String> {
        let mut out = Vec::new();
        for (_, lines) in &self.0 {
            if !out.is_empty() {
                out.push(String::new());
            }
            out.extend(lines.clone());
        }
        out
    }
}

fn update(event: StreamEvent) -> Event {
    Event::MessageUpdate {
        usage: Box::default(),
        event,
    }
}

fn user(text: &str) -> Event {
    let message = json!({"role": "user", "content": text, "timestamp": 0});
    Event::MessageEnd {
        message: Arc::new(Message::from_value(message)),
        entry: Some("u1".into()),
    }
}

fn assistant(content: Json, stop: &str) -> Arc<Message> {
    Arc::new(Message::from_value(json!({
        "role": "assistant", "model": "m1", "content": content, "stopReason": stop,
        "errorMessage": if stop == "error" { json!("401 wrong key") } else { Json::Null },
    })))
}

fn begin() -> [Event; 2] {
    let message = AssistantMessage {
        model: "m1".into(),
        ..AssistantMessage::default()
    };
    [
        Event::MessageStart {
            message: Arc::new(Message::Assistant(message.clone())),
        },
        update(StreamEvent::Start(Box::new(message))),
    ]
}

fn ended(name: &str, text: &str, details: Json, is_error: bool) -> Event {
    Event::ToolEnd {
        call_id: "c1".into(),
        name: name.into(),
        result: Box::new(crate::agent::ToolOutput {
            content: vec![Content::text(text)],
            details: Some(details),
            ..Default::default()
        }),
        is_error,
        duration_ms: Some(1_250),
    }
}

#[track_caller]
fn check(events: impl IntoIterator<Item = Event>, expect: Expect) {
    let mut chat = Chat::new("s", "/p");
    let mut drawn = Drawn::default();
    for (at, event) in events.into_iter().enumerate() {
        chat.apply(&event, 1_000 * i64::try_from(at).unwrap());
        drawn.apply(chat.take_ops());
        assert_eq!(drawn.lines(), chat.lines(), "after event {at}");
    }
    let shown: Vec<String> = chat
        .blocks
        .iter()
        .map(|block| {
            let fold = if block.closed { "closed" } else { "open" };
            format!(
                "[{} {fold}] {}",
                block.kind.name(),
                block.lines.join("\n    ")
            )
        })
        .collect();
    expect.assert_eq(&shown.join("\n").replace("\n    \n", "\n\n"));
}

#[test]
fn an_answer_streams_in() {
    let mut events = vec![user("hello\nyou")];
    events.extend(begin());
    events.extend([
        update(StreamEvent::ThinkingStart { index: 0, block: Default::default() }),
        update(StreamEvent::ThinkingDelta { index: 0, delta: "let me".into() }),
        update(StreamEvent::ThinkingDelta { index: 0, delta: " see\nwell".into() }),
        update(StreamEvent::TextStart { index: 1, text: String::new() }),
        update(StreamEvent::TextDelta { index: 1, delta: "\n\nHi".into() }),
        update(StreamEvent::TextDelta { index: 1, delta: " there\n".into() }),
        update(StreamEvent::TextDelta { index: 1, delta: "you".into() }),
        Event::MessageEnd {
            message: assistant(
                json!([{"type": "thinking", "thinking": "let me see\nwell"}, {"type": "text", "text": "Hi there\nyou"}]),
                "stop",
            ),
            entry: Some("a1".into()),
        },
    ]);
    check(
        events,
        expect![[r#"
            [user open] You
                hello
                you
            [thinking closed] thinking 2s
                let me see
                well
            [assistant open] Assistant m1
                Hi there
                you"#]],
    );
}

#[test]
fn a_tool_call_is_one_block_that_folds_when_the_next_begins() {
    let mut events = begin().to_vec();
    events.extend([
        update(StreamEvent::ToolCallStart {
            index: 0,
            id: "c1".into(),
            name: "edit".into(),
        }),
        Event::ToolStart {
            call_id: "c1".into(),
            name: "edit".into(),
            args: json!({"path": "src/a.rs", "edits": []}),
        },
        ended(
            "edit",
            "done",
            json!({"diff": " 1 a\n-2 b\n+2 c\n+3 d", "firstChangedLine": 2}),
            false,
        ),
    ]);
    check(
        events.clone(),
        expect![[r#"
            [tool open] edit src/a.rs  +2 -1  ok
                 1 a
                -2 b
                +2 c
                +3 d"#]],
    );
    events.push(user("next"));
    check(
        events,
        expect![[r#"
            [tool closed] edit src/a.rs  +2 -1  ok
                 1 a
                -2 b
                +2 c
                +3 d
            [user open] You
                next"#]],
    );
}

#[test]
fn a_failed_command_stays_open_and_says_how_it_ended() {
    check(
        [
            Event::ToolStart {
                call_id: "c1".into(),
                name: "bash".into(),
                args: json!({"command": "cargo test"}),
            },
            ended(
                "bash",
                "\u{1b}[31mFAILED\u{1b}[0m\n\nCommand exited with code 101",
                json!({}),
                true,
            ),
            user("hm"),
        ],
        expect![[r#"
            [tool open] bash cargo test  1.2s  exit 101  fail
                ```
                FAILED

                Command exited with code 101
                ```
            [user open] You
                hm"#]],
    );
}

#[test]
fn what_waits_and_what_was_ended_says_so() {
    let call = |id: &str| Event::ToolStart {
        call_id: id.into(),
        name: "bash".into(),
        args: json!({"command": "make\nmake test"}),
    };
    check(
        [
            call("c1"),
            Event::ToolWaits {
                call_id: "c1".into(),
            },
            call("c2"),
            ended("bash", "Operation aborted", json!({}), true),
            Event::AgentSettled { aborted: true },
        ],
        expect![[r#"
            [tool closed] bash make …  1.2s  ! aborted
                ```sh
                make
                make test
                ```
                ```
                Operation aborted
                ```
            [tool open] bash make …  ! aborted
                ```sh
                make
                make test
                ```"#]],
    );
}

#[test]
fn errors_and_retries_are_lines() {
    let mut events = begin().to_vec();
    events.extend([
        Event::RetryStart {
            attempt: 2,
            max_attempts: 3,
            delay_ms: 4_000,
            error: "503".into(),
        },
        Event::RetryEnd {
            success: false,
            attempt: 2,
            error: None,
        },
        Event::MessageEnd {
            message: assistant(json!([]), "error"),
            entry: Some("a".into()),
        },
    ]);
    check(
        events,
        expect![[r#"
            [error open] 401 wrong key
                `:Pi login` stores another key, `:Pi model` takes another model"#]],
    );
}

#[test]
fn long_sessions_show_their_end_first() {
    let entry = |i: usize| {
        Some(json!({"type": "message", "id": format!("e{i}"),
            "message": {"role": "user", "content": format!("text {i}")}}))
    };
    let mut chat = Chat::new("s", "/p");
    let (first, entries) = history::window(540, 200, entry);
    chat.load(&entries, first);
    let ops = chat.take_ops();
    assert_eq!(ops[0]["earlier"], 340);
    assert_eq!(ops[0]["blocks"].as_array().unwrap().len(), 200);
    while chat.earlier() > 0 {
        let (first, entries) = history::window(chat.earlier(), 200, entry);
        chat.prepend(&entries, first);
    }
    assert_eq!(chat.lines().len(), 540 * 3 - 1);
    assert_eq!(chat.lines()[1], "text 0");
}

#[test]
fn a_result_is_never_parted_from_its_call() {
    // The call stands just above the place where the window would end.
    let entry = |i: usize| {
        let message = match i {
            10 => json!({"role": "assistant", "content": [
                {"type": "toolCall", "id": "c", "name": "bash", "arguments": {"command": "ls"}}]}),
            11 => {
                json!({"role": "toolResult", "toolCallId": "c", "content": [{"type": "text", "text": "out"}]})
            }
            _ => json!({"role": "user", "content": "x"}),
        };
        Some(json!({"type": "message", "id": format!("e{i}"), "message": message}))
    };
    let (first, entries) = history::window(211, 200, entry);
    assert_eq!((first, entries.len()), (10, 201));
}

#[test]
fn streaming_sends_only_the_tail() {
    let mut chat = Chat::new("s", "/p");
    for event in begin() {
        chat.apply(&event, 0);
    }
    let text = (0..1_000)
        .map(|i| format!("line {i}\n"))
        .collect::<String>();
    chat.apply(
        &update(StreamEvent::TextDelta {
            index: 0,
            delta: text,
        }),
        0,
    );
    chat.take_ops();
    chat.apply(
        &update(StreamEvent::TextDelta {
            index: 0,
            delta: "more".into(),
        }),
        0,
    );
    let ops = chat.take_ops();
    assert_eq!(ops[0]["from"], 1001);
    assert_eq!(ops[0]["lines"], json!(["more"]));
}

proptest::proptest! {
    /// Whatever is streamed in whatever pieces: what is drawn is what the model of the chat says.
    #[test]
    fn drawing_follows_the_model(pieces in proptest::collection::vec((0usize..4, "[a\n\r` é]{0,8}"), 0..40)) {
        let mut chat = Chat::new("s", "/p");
        let mut drawn = Drawn::default();
        drawn.apply(chat.take_ops());
        for event in begin() {
            chat.apply(&event, 0);
        }
        for (at, (index, delta)) in pieces.into_iter().enumerate() {
            let event = match index {
                0 => StreamEvent::ThinkingDelta { index, delta },
                3 => StreamEvent::ToolCallStart { index, id: delta.trim().to_owned(), name: "x".into() },
                _ => StreamEvent::TextDelta { index, delta },
            };
            chat.apply(&update(event), 0);
            if at % 3 == 0 {
                drawn.apply(chat.take_ops());
                proptest::prop_assert_eq!(drawn.lines(), chat.lines());
            }
        }
        chat.apply(&Event::AgentSettled { aborted: false }, 0);
        drawn.apply(chat.take_ops());
        proptest::prop_assert_eq!(drawn.lines(), chat.lines());
    }
}

#[test]
fn an_id_used_again_is_a_call_of_its_own() {
    let turn = |command: &str, text: &str| {
        let mut events = begin().to_vec();
        events.extend([
            update(StreamEvent::ToolCallStart {
                index: 0,
                id: "c1".into(),
                name: "bash".into(),
            }),
            Event::MessageEnd {
                message: assistant(
                    json!([{"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": command}}]),
                    "toolUse",
                ),
                entry: None,
            },
            ended("bash", text, json!({}), false),
        ]);
        events
    };
    let events = [turn("first", "one"), turn("second", "two")].concat();
    check(
        events,
        expect![[r#"
            [tool closed] bash first  1.2s  ok
                ```
                one
                ```
            [tool open] bash second  1.2s  ok
                ```
                two
                ```"#]],
    );
}
