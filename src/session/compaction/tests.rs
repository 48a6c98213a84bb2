//! Summaries asked of a scripted model, and decisions about the size of a context.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::decide::{self, Decision, Situation, When};
use super::*;
use crate::ai::providers::scripted::{Answer, Scripted};
use crate::ai::{Message, Model, RequestOptions, StopReason, ThinkingLevel, Usage};
use crate::session::branch_summary::{self, Instructions};
use crate::session::store::{CompactionEntry, Session, Start};

fn session() -> Session {
    Session::in_memory(Path::new("/"), Start::default()).unwrap()
}

fn append(session: &mut Session, value: Value) -> String {
    session
        .append_message(&Message::from_value(value))
        .unwrap()
        .to_string()
}

fn user(session: &mut Session, text: &str) -> String {
    append(
        session,
        json!({"role": "user", "content": text, "timestamp": 10}),
    )
}

fn answer(session: &mut Session, text: &str, stop: &str, usage: Value) -> String {
    let mut content = vec![json!({"type": "text", "text": text})];
    if stop == "toolUse" {
        content.push(json!({"type": "toolCall", "id": "c1", "name": "edit", "arguments": {"path": "src/a.rs"}}));
    }
    append(
        session,
        json!({
            "role": "assistant", "content": content, "stopReason": stop, "usage": usage, "provider": "scripted",
            "model": "scripted", "errorMessage": if stop == "error" { json!("prompt is too long: 9 > 8") } else { json!(null) },
            "timestamp": 4_102_444_800_000_i64,
        }),
    )
}

fn result(session: &mut Session, text: &str) -> String {
    append(
        session,
        json!({"role": "toolResult", "toolCallId": "c1", "toolName": "edit", "content": [{"type": "text", "text": text}]}),
    )
}

fn summariser(cancel: &CancellationToken) -> SummaryModel {
    SummaryModel {
        model: Arc::new(Scripted::model()),
        thinking: ThinkingLevel::High,
        options: RequestOptions {
            tool_choice: Some(json!("required")),
            max_tokens: Some(5),
            ..RequestOptions::default()
        },
        cancel: cancel.clone(),
    }
}

fn usage(total: u64) -> Usage {
    Usage {
        input: total,
        total_tokens: total,
        ..Usage::default()
    }
}

/// A turn that is over and a long one that the cut splits.
fn split() -> (Session, Preparation) {
    let mut session = session();
    user(&mut session, "first question");
    answer(&mut session, "first answer", "stop", json!({}));
    user(&mut session, "do the long thing");
    answer(&mut session, "working on it", "toolUse", json!({}));
    result(&mut session, "edited");
    answer(&mut session, &"recent ".repeat(40), "stop", json!({}));
    let settings = CompactionSettings {
        keep_recent_tokens: 50,
        ..CompactionSettings::default()
    };
    let preparation = prepare(&session, &session.path(), &settings).unwrap();
    assert!(preparation.is_split_turn);
    (session, preparation)
}

fn prompt(request: &crate::ai::Request) -> String {
    let messages: Vec<&Message> = request.messages.iter().map(|message| &**message).collect();
    match messages[..] {
        [Message::System(_), Message::User(message)] => message.content.text(""),
        ref other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_split_turn_asks_twice_history_first_and_adds_up() {
    let (_, preparation) = split();
    let model = Scripted::replay([
        Answer::say("HISTORY").usage(usage(10)),
        Answer::say("PREFIX").usage(usage(5)),
    ]);
    let cancel = CancellationToken::new();
    let summary = summarise(
        &Once(Arc::new(model.clone())),
        &summariser(&cancel),
        &preparation,
        Some(" the lexer "),
    )
    .await
    .unwrap();
    assert_eq!(
        summary.text,
        "HISTORY\n\n---\n\n**Turn Context (split turn):**\n\nPREFIX\n\n<modified-files>\nsrc/a.rs\n</modified-files>"
    );
    assert_eq!(
        summary.details,
        json!({"readFiles": [], "modifiedFiles": ["src/a.rs"]})
    );
    assert_eq!(summary.usage.map(|usage| usage.total_tokens), Some(15));
    let requests = model.requests();
    let [history, prefix] = [prompt(&requests[0]), prompt(&requests[1])];
    assert!(history.starts_with(
        "<conversation>\n[User]: first question\n\n[Assistant]: first answer\n</conversation>\n\n"
    ));
    for heading in [
        "## Goal",
        "## Constraints & Preferences",
        "### Done",
        "### In Progress",
        "### Blocked",
        "## Key Decisions",
        "## Next Steps",
        "## Critical Context",
    ] {
        assert!(history.contains(heading), "{heading}");
    }
    assert!(prefix.starts_with("# Conversation\n[User]: do the long thing"));
    for heading in [
        "# Instructions",
        "## Original Request",
        "## Progress So Far",
        "## Context Needed to Continue",
    ] {
        assert!(prefix.contains(heading), "{heading}");
    }
    for text in [&history, &prefix] {
        assert!(text.ends_with("\n\nAdditional focus: the lexer"));
    }
}

#[tokio::test]
async fn a_summary_request_carries_neither_tools_nor_limits_nor_a_cache() {
    let (_, preparation) = split();
    let model = Scripted::replay([Answer::say("A"), Answer::say("B")]);
    let cancel = CancellationToken::new();
    summarise(
        &Once(Arc::new(model.clone())),
        &summariser(&cancel),
        &preparation,
        None,
    )
    .await
    .unwrap();
    let requests = model.requests();
    for request in &requests {
        let options = &request.options;
        assert_eq!(
            (
                options.max_tokens,
                &options.tool_choice,
                options.cache_retention.as_deref()
            ),
            (None, &None, Some("none"))
        );
        assert_eq!(
            options.thinking,
            ThinkingLevel::Off,
            "the model cannot think"
        );
        let Message::System(system) = &*request.messages[0] else {
            panic!()
        };
        assert!(system.tools_added.is_none());
    }
    assert_ne!(
        requests[0].options.session_id,
        requests[1].options.session_id
    );
}

#[tokio::test]
async fn failures_say_what_happened_and_store_nothing() {
    let (session, preparation) = split();
    let before = session.len();
    let cases: [(Answer, SummaryError); 5] = [
        (
            Answer::say("half").stop(StopReason::Length),
            SummaryError::Truncated,
        ),
        (
            Answer::new().call("c", "read", json!({})),
            SummaryError::ToolCall,
        ),
        (
            Answer::fail("503 busy"),
            SummaryError::Provider("503 busy".into()),
        ),
        (Answer::say(" \n"), SummaryError::Empty),
        (
            Answer::say("x").stop(StopReason::Aborted),
            SummaryError::Aborted,
        ),
    ];
    for (answer, expected) in cases {
        let cancel = CancellationToken::new();
        let model = Scripted::replay([answer]);
        let got = summarise(
            &Once(Arc::new(model)),
            &summariser(&cancel),
            &preparation,
            None,
        )
        .await;
        assert_eq!(got, Err(expected));
    }
    assert_eq!(session.len(), before);
}

#[tokio::test]
async fn an_abort_between_the_two_requests_stops_the_second() {
    let (_, preparation) = split();
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let model = Scripted::new(move |_| {
        stop.cancel();
        Answer::say("too late")
    });
    let got = summarise(
        &Once(Arc::new(model.clone())),
        &summariser(&cancel),
        &preparation,
        None,
    )
    .await;
    assert_eq!(
        (got, model.requests().len()),
        (Err(SummaryError::Aborted), 1)
    );
}

#[tokio::test]
async fn the_previous_summary_and_its_files_are_carried_on() {
    let mut session = session();
    user(&mut session, "old");
    session
        .append_compaction(CompactionEntry {
            summary: "EARLIER".into(),
            details: Some(json!({"readFiles": ["r.rs"], "modifiedFiles": ["m.rs"]})),
            from_hook: Some(false),
            ..CompactionEntry::default()
        })
        .unwrap();
    user(&mut session, "new question");
    answer(&mut session, "new answer", "stop", json!({}));
    user(&mut session, &"recent ".repeat(20));
    let settings = CompactionSettings {
        keep_recent_tokens: 10,
        ..CompactionSettings::default()
    };
    let preparation = prepare(&session, &session.path(), &settings).unwrap();
    let model = Scripted::replay([Answer::say("NEW")]);
    let summary = summarise(
        &Once(Arc::new(model.clone())),
        &summariser(&CancellationToken::new()),
        &preparation,
        None,
    )
    .await
    .unwrap();
    assert_eq!(
        summary.text,
        "NEW\n\n<read-files>\nr.rs\n</read-files>\n\n<modified-files>\nm.rs\n</modified-files>"
    );
    let asked = prompt(&model.requests()[0]);
    assert!(
        asked.contains("</conversation>\n\n<previous-summary>\nEARLIER\n</previous-summary>\n\n"),
        "{asked}"
    );
    assert!(!asked.contains("[User]: old"));
}

#[tokio::test]
async fn a_branch_without_content_needs_no_request() {
    let model = Scripted::replay([Answer::say("BRANCH"), Answer::say("OWN")]);
    let asker = Once(Arc::new(model.clone()));
    let cancel = CancellationToken::new();
    let none = branch_summary::summarise(
        &asker,
        &summariser(&cancel),
        &Default::default(),
        Instructions::None,
    )
    .await
    .unwrap();
    assert_eq!(
        (none.text.as_str(), none.usage),
        (branch_summary::NO_CONTENT, None)
    );
    let mut session = session();
    user(&mut session, "tried anyhow");
    let selection = branch_summary::select(&session, &session.path(), 0);
    let done =
        branch_summary::summarise(&asker, &summariser(&cancel), &selection, Instructions::None)
            .await
            .unwrap();
    assert_eq!(done.text, format!("{}\n\nBRANCH", branch_summary::PREAMBLE));
    branch_summary::summarise(
        &asker,
        &summariser(&cancel),
        &selection,
        Instructions::Replace("Only the file names."),
    )
    .await
    .unwrap();
    let asked: Vec<String> = model.requests().iter().map(prompt).collect();
    assert!(asked[0].contains("## Next Steps") && !asked[0].contains("## Critical Context"));
    assert_eq!(
        asked[1],
        "<conversation>\n[User]: tried anyhow\n</conversation>\n\nOnly the file names."
    );
}

#[test]
fn there_is_nothing_to_do_right_after_a_compaction_and_in_a_small_session() {
    let mut session = session();
    user(&mut session, "hi");
    let settings = CompactionSettings::default();
    let text = |session: &Session| {
        prepare(session, &session.path(), &settings)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(text(&session), "Nothing to compact (session too small)");
    session
        .append_compaction(CompactionEntry::default())
        .unwrap();
    assert_eq!(text(&session), "Already compacted");
}

fn model() -> Model {
    Model {
        context_window: 1000,
        max_tokens: 100,
        ..Scripted::model()
    }
}

fn decided(session: &Session, when: When, recovered_once: bool) -> Decision {
    let settings = CompactionSettings {
        reserve_tokens: 100,
        keep_recent_tokens: 1,
        ..CompactionSettings::default()
    };
    let situation = Situation {
        when,
        model: &model(),
        settings: &settings,
        recovered_once,
    };
    decide::after_answer(session, &session.path(), &session.context(), &situation)
}

#[test]
fn an_overflow_is_recovered_from_once() {
    let mut session = session();
    user(&mut session, "q");
    let failed = answer(&mut session, "", "error", json!({}));
    let retry = Decision::OverflowRetry {
        omit: vec![failed.as_str().into()],
    };
    assert_eq!(decided(&session, When::AfterRun, false), retry);
    assert_eq!(
        decided(&session, When::AfterRun, true),
        Decision::GiveUp {
            message: decide::OVERFLOW_GAVE_UP
        }
    );
    session.append_context_edit(&failed, Value::Null).unwrap();
    assert_eq!(
        decided(&session, When::AfterRun, false),
        Decision::Nothing,
        "omitted already"
    );
    let mut other = self::session();
    user(&mut other, "q");
    append(
        &mut other,
        json!({"role": "assistant", "content": [], "stopReason": "error", "errorMessage": "prompt is too long", "provider": "p", "model": "old", "timestamp": 4_102_444_800_000_i64}),
    );
    assert_eq!(
        decided(&other, When::AfterRun, false),
        Decision::Nothing,
        "another model's overflow"
    );
}

#[test]
fn a_complete_answer_that_overflowed_is_not_asked_for_again() {
    let mut session = session();
    user(&mut session, "q");
    answer(
        &mut session,
        "done",
        "stop",
        json!({"input": 1200, "totalTokens": 1210}),
    );
    assert_eq!(
        decided(&session, When::AfterRun, false),
        Decision::OverflowKept
    );
}

#[test]
fn an_answer_cut_by_the_window_goes_with_its_results() {
    let mut session = session();
    user(&mut session, "q");
    user(&mut session, "another");
    let call = json!({"type": "toolCall", "id": "c1", "name": "edit", "arguments": {}});
    let cut = append(
        &mut session,
        json!({"role": "assistant", "content": [call], "stopReason": "length", "usage": {"output": 50, "totalTokens": 900}, "provider": "scripted", "model": "scripted", "timestamp": 4_102_444_800_000_i64}),
    );
    let results = result(&mut session, "r");
    let omit = vec![cut.as_str().into(), results.as_str().into()];
    assert_eq!(
        decided(&session, When::AfterRun, false),
        Decision::OverflowRetry { omit }
    );
    assert_eq!(
        decided(&session, When::AfterRun, true),
        Decision::GiveUp {
            message: decide::LENGTH_GAVE_UP
        }
    );
    let mut small = self::session();
    user(&mut small, "q");
    append(
        &mut small,
        json!({"role": "assistant", "content": [], "stopReason": "length", "usage": {"output": 50}, "provider": "scripted", "model": "scripted", "timestamp": 4_102_444_800_000_i64}),
    );
    assert_eq!(
        decided(&small, When::AfterRun, false),
        Decision::Nothing,
        "nothing to compact: the answer stays"
    );
}

#[test]
fn the_threshold_counts_what_the_model_reported_unless_it_is_old() {
    let mut session = session();
    user(&mut session, "q");
    answer(&mut session, "done", "stop", json!({"totalTokens": 900}));
    assert_eq!(
        decided(&session, When::AfterRun, false),
        Decision::Nothing,
        "exactly at the limit"
    );
    user(&mut session, "q");
    answer(&mut session, "done", "stop", json!({"totalTokens": 901}));
    assert_eq!(
        decided(&session, When::BeforePrompt, false),
        Decision::Threshold
    );
    assert!(decide::between_turns(
        &session.context(),
        &model(),
        &CompactionSettings {
            reserve_tokens: 100,
            ..Default::default()
        }
    ));
    // An answer from before the newest compaction says nothing any more (its clock is behind the compaction's).
    let mut old = self::session();
    append(
        &mut old,
        json!({"role": "assistant", "content": [], "stopReason": "stop", "usage": {"totalTokens": 950}, "provider": "scripted", "model": "scripted", "timestamp": 1}),
    );
    old.append_compaction(CompactionEntry::default()).unwrap();
    assert_eq!(decided(&old, When::BeforePrompt, false), Decision::Nothing);
}

#[test]
fn a_stopped_answer_counts_only_before_the_next_prompt() {
    let mut session = session();
    user(&mut session, &"x".repeat(4000));
    answer(&mut session, "", "aborted", json!({}));
    assert_eq!(decided(&session, When::AfterRun, false), Decision::Nothing);
    assert_eq!(
        decided(&session, When::BeforePrompt, false),
        Decision::Threshold
    );
}

#[test]
fn a_model_may_have_its_own_numbers() {
    let settings = json!({
        "reserveTokens": 5, "modelOverrides": {"p/m": {"keepRecentTokens": 7}, "P/m": {"reserveTokens": 1}},
    });
    let read = CompactionSettings::read(&settings, "p", "m").unwrap();
    assert_eq!(
        (read.enabled, read.reserve_tokens, read.keep_recent_tokens),
        (true, 5, 7)
    );
    let other = CompactionSettings::read(&settings, "p", "x").unwrap();
    assert_eq!(
        (other.reserve_tokens, other.keep_recent_tokens),
        (5, KEEP_RECENT_TOKENS)
    );
}

#[test]
fn a_wrong_value_is_named() {
    for bad in [json!(-1), json!(1.5), json!("9"), json!(null), json!(1e300)] {
        let settings = json!({"modelOverrides": {"p/m": {"reserveTokens": bad}}});
        let error = CompactionSettings::read(&settings, "p", "m").unwrap_err();
        assert!(
            error.contains("compaction.modelOverrides[\"p/m\"].reserveTokens"),
            "{error}"
        );
    }
}
