//! Compactions and branch summaries that fail, are stopped or come at a bad moment leave the session as it was.

use super::*;
use crate::ai::{StopReason, Usage};
use crate::session::protocol::SummaryWish;

/// Two turns with some history; every message but the last may be summarised.
async fn history(answers: impl IntoIterator<Item = Answer>) -> Fixture {
    let first = [Answer::say("answer one"), Answer::say("answer two")];
    let settings = json!({"compaction": {"keepRecentTokens": 1}, "retry": {"baseDelayMs": 5, "maxRetries": 1}});
    let mut it = Fixture::with_settings(first.into_iter().chain(answers), settings);
    for text in ["question one", "question two"] {
        it.prompt(text).await;
        it.until("settled").await;
    }
    it
}

fn compact() -> Command {
    Command::Compact { instructions: None }
}

/// Texts of the newest request.
fn last_request(it: &Fixture) -> String {
    let request = it.model.requests().pop().unwrap();
    let texts: Vec<String> = request.messages.iter().map(|it| show_message(it)).collect();
    texts.join("\n")
}

#[tokio::test]
async fn a_summary_that_fails_changes_nothing_and_the_history_goes_on() {
    let bad = [
        (
            Answer::say("half a summ").stop(StopReason::Length),
            "output limit",
        ),
        (
            Answer::say("x").call("c", "read", json!({})),
            "called a tool",
        ),
        (Answer::say("  "), "empty summary"),
        (Answer::fail("the key is not valid"), "the key is not valid"),
    ];
    for (answer, why) in bad {
        let mut it = history([answer, Answer::say("answer three")]).await;
        let before = it.entries();
        let error = it.refused(compact()).await;
        assert!(error.contains(why), "{error}");
        let told = it.until("compaction_end").await;
        assert_eq!(told, "compaction_start\ncompaction_end");
        assert_eq!(it.entries(), before);
        it.prompt("question three").await;
        it.until("settled").await;
        let sent = last_request(&it);
        for text in ["question one", "answer one", "question two", "answer two"] {
            assert!(sent.contains(text), "{sent}");
        }
    }
}

#[tokio::test]
async fn a_stopped_compaction_is_told_and_leaves_all_as_it_was() {
    let mut it = history([Answer::say("part").hang(), Answer::say("answer three")]).await;
    let before = it.entries();
    let runtime = it.runtime.clone();
    let compacting = tokio::spawn(async move { runtime.request(compact()).await });
    it.until("compaction_start").await;
    // What comes meanwhile is refused in words, not half done.
    let refused = it.refused(Command::prompt("meanwhile")).await;
    assert!(refused.contains("compaction is in progress"), "{refused}");
    let user = it.runtime.with_session(|session| {
        let user = session
            .entries()
            .find(|it| it.text().contains("question one"));
        user.unwrap().id().to_string()
    });
    let edit = Command::EditContext {
        target: user.clone(),
        replacement: Value::Null,
    };
    let refused = it.refused(edit).await;
    assert!(
        refused.contains("while a summary of it is written"),
        "{refused}"
    );
    let navigate = Command::Navigate {
        target: Some(user),
        summary: SummaryWish::None,
        label: None,
    };
    assert!(!it.refused(navigate).await.is_empty());
    it.ask(Command::Abort).await;
    let error = compacting.await.unwrap().unwrap_err();
    assert_eq!(error.0, "Compaction cancelled");
    let mut end = None;
    while end.is_none() {
        if let Event::CompactionEnd { aborted, error, .. } = &*it.events.recv().await.unwrap() {
            end = Some((*aborted, error.clone()));
        }
    }
    assert_eq!(end, Some((true, None)));
    assert_eq!(it.entries(), before);
    it.prompt("question three").await;
    it.until("settled").await;
    assert!(last_request(&it).contains("question one"));
}

#[tokio::test]
async fn usage_from_before_a_compaction_starts_no_other_one() {
    let full = Usage {
        input: 190_000,
        total_tokens: 190_000,
        ..Usage::default()
    };
    let settings = json!({"compaction": {"keepRecentTokens": 1, "reserveTokens": 30_000}});
    let answers = [
        Answer::say("answer one"),
        // Over the threshold: compacted after the run.
        Answer::say("answer two").usage(full),
        // The cut falls inside the second turn: its head is summarised by a request of its own.
        Answer::say("## Goal\nsummary"),
        Answer::say("## Original Request\nsummary"),
        Answer::say("answer three"),
        Answer::say("answer four"),
    ];
    let mut it = Fixture::with_settings(answers, settings);
    let window = Scripted::model().context_window;
    assert!(190_000 > window - 30_000, "{window}");
    it.prompt("question one").await;
    it.until("settled").await;
    it.prompt("question two").await;
    let told = it.until("settled").await;
    assert_eq!(told.matches("compaction_start").count(), 1, "{told}");
    for (prompt, requests) in [("question three", 5), ("question four", 6)] {
        it.prompt(prompt).await;
        let told = it.until("settled").await;
        assert!(!told.contains("compaction"), "{told}");
        assert_eq!(it.model.requests().len(), requests);
    }
    assert!(last_request(&it).contains("summary"));
}

#[tokio::test]
async fn a_branch_summary_that_fails_or_is_stopped_leaves_the_leaf() {
    let hang = Answer::say("part").hang();
    let cut = Answer::say("half").stop(StopReason::Length);
    let it = history([cut, hang, Answer::say("## Goal\nwhat was learned")]).await;
    let (leaf, first) = it.runtime.with_session(|session| {
        let first = session
            .entries()
            .find(|it| it.text().contains("answer one"));
        (session.leaf_id().cloned(), first.unwrap().id().to_string())
    });
    let navigate = || Command::Navigate {
        target: Some(first.clone()),
        summary: SummaryWish::Plain,
        label: None,
    };
    let before = it.entries();
    let error = it.refused(navigate()).await;
    assert!(error.contains("Branch summary failed"), "{error}");
    let runtime = it.runtime.clone();
    let stopped = navigate();
    let moving = tokio::spawn(async move { runtime.request(stopped).await });
    while it.model.requests().len() < 4 {
        tokio::task::yield_now().await;
    }
    it.ask(Command::Abort).await;
    assert_eq!(moving.await.unwrap().unwrap()["cancelled"], true);
    let now = it
        .runtime
        .with_session(|session| session.leaf_id().cloned());
    assert_eq!((now, it.entries()), (leaf, before));
    let moved = it.ask(navigate()).await;
    assert_eq!(moved["cancelled"], false);
    assert!(it.entries().ends_with("branch_summary"));
}
