//! Commands about tools, other session files and moves in the tree.

use std::path::PathBuf;

use super::*;
use crate::session::protocol::SummaryWish;

/// A session with one exchange.
async fn talked(answers: impl IntoIterator<Item = Answer>) -> Fixture {
    let mut it = Fixture::new(answers);
    it.prompt("the first question").await;
    it.until("settled").await;
    it
}

async fn file(it: &Fixture) -> PathBuf {
    let state = it.ask(Command::GetState).await;
    PathBuf::from(state["sessionFile"].as_str().unwrap())
}

async fn id(it: &Fixture) -> String {
    let state = it.ask(Command::GetState).await;
    state["sessionId"].as_str().unwrap().to_owned()
}

fn new() -> Command {
    Command::NewSession {
        parent: None,
        name: None,
    }
}

#[tokio::test]
async fn tools_are_listed_with_those_that_are_active() {
    let dir = tempfile::tempdir().unwrap();
    let model = Arc::new(Scripted::replay([]));
    let record = Arc::new(Scripted::model());
    let config = RuntimeConfig::in_memory(dir.path(), model, record);
    let runtime = Runtime::start(config).unwrap();
    let active = async || {
        let tools = runtime.request(Command::GetTools).await.unwrap();
        let rows = tools["tools"].as_array().unwrap().clone();
        assert!(
            rows.iter()
                .all(|row| row["description"].as_str().unwrap().len() > 20)
        );
        let rows = rows.iter().map(|row| {
            let mark = if row["active"] == true { "+" } else { "-" };
            format!("{mark}{}", row["name"].as_str().unwrap())
        });
        rows.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(active().await, "+read +bash +edit +write -grep -find -ls");
    let names = vec!["ls".to_owned(), "nothing".to_owned()];
    runtime
        .request(Command::SetActiveTools { names })
        .await
        .unwrap();
    assert_eq!(active().await, "-read -bash -edit -write -grep -find +ls");
}

#[tokio::test]
async fn sessions_are_listed_found_and_gone_on_with() {
    let it = talked([Answer::say("the first answer")]).await;
    let first = id(&it).await;
    it.ask(new()).await;
    let list = async |query: Option<&str>, all: bool| {
        let query = query.map(str::to_owned);
        let rows = it.ask(Command::ListSessions { all, query }).await;
        let rows = rows["sessions"].as_array().unwrap().clone();
        rows.iter()
            .map(|row| row["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for all in [false, true] {
        assert_eq!(list(None, all).await, [first.as_str()]);
        assert_eq!(list(Some("first question"), all).await, [first.as_str()]);
        assert!(list(Some("zebra"), all).await.is_empty());
    }
    assert_ne!(id(&it).await, first);
    it.ask(Command::Continue).await;
    assert_eq!(id(&it).await, first);
}

#[tokio::test]
async fn there_may_be_nothing_to_go_on_with() {
    let it = Fixture::new([]);
    let error = it.refused(Command::Continue).await;
    assert!(error.contains("no session of this directory"), "{error}");
}

#[tokio::test]
async fn an_imported_session_is_a_copy() {
    let it = talked([Answer::say("the first answer")]).await;
    let (own, first) = (file(&it).await, id(&it).await);
    let elsewhere = it._dir.path().join("given.jsonl");
    let text = std::fs::read_to_string(&own)
        .unwrap()
        .replace(&first, "another-id");
    std::fs::write(&elsewhere, &text).unwrap();
    let path = elsewhere.clone();
    let answer = it.ask(Command::ImportSession { path }).await;
    assert_eq!(answer, json!({"cancelled": false}));
    let now = file(&it).await;
    assert!(now.parent() == own.parent() && now != own, "{now:?}");
    assert_eq!(id(&it).await, "another-id");
    let name = Command::SetSessionName { name: "n".into() };
    it.ask(name).await;
    assert_eq!(
        std::fs::read_to_string(&elsewhere).unwrap(),
        text,
        "the given file stays"
    );

    let before = id(&it).await;
    let path = it._dir.path().join("none.jsonl");
    let error = it.refused(Command::ImportSession { path }).await;
    assert!(error.contains("none.jsonl"), "{error}");
    let gone = text.replace("project\"", "project-that-is-gone\"");
    std::fs::write(&elsewhere, gone.replace("another-id", "third-id")).unwrap();
    let path = elsewhere.clone();
    let error = it.refused(Command::ImportSession { path }).await;
    assert!(error.contains("project-that-is-gone"), "{error}");
    assert_eq!(
        id(&it).await,
        before,
        "the session stays when another cannot be had"
    );
    let files = std::fs::read_dir(own.parent().unwrap()).unwrap().count();
    assert_eq!(files, 2, "nothing is left of what was refused");
}

#[tokio::test]
async fn only_session_files_that_are_not_in_use_are_deleted() {
    let it = talked([Answer::say("the first answer")]).await;
    let path = file(&it).await;
    let delete = |path: &PathBuf| Command::DeleteSession { path: path.clone() };
    let error = it.refused(delete(&path)).await;
    assert_eq!(error, "the active session cannot be deleted");
    let other = it._dir.path().join("project/notes.txt");
    std::fs::write(&other, "mine\n").unwrap();
    let error = it.refused(delete(&other)).await;
    assert!(error.contains("is no session file"), "{error}");
    assert!(path.exists() && other.exists());
    it.ask(new()).await;
    it.ask(delete(&path)).await;
    assert!(!path.exists());
    let error = it.refused(delete(&path)).await;
    assert!(error.contains("is no session file"), "{error}");
}

#[tokio::test]
async fn a_reload_takes_over_what_the_settings_say_now() {
    let it = Fixture::new([]);
    let settings = it._dir.path().join("agent/settings.json");
    let modes = async || {
        let state = it.ask(Command::GetState).await;
        [
            &state["steeringMode"],
            &state["followUpMode"],
            &state["autoCompactionEnabled"],
        ]
        .map(ToString::to_string)
        .join(" ")
    };
    assert_eq!(modes().await, r#""one-at-a-time" "one-at-a-time" true"#);
    let now = json!({"steeringMode": "all", "compaction": {"enabled": false}});
    std::fs::write(&settings, now.to_string()).unwrap();
    it.ask(Command::Reload).await;
    assert_eq!(modes().await, r#""all" "one-at-a-time" false"#);
    std::fs::write(&settings, "{\n  \"steeringMode\": all\n}").unwrap();
    it.ask(Command::Reload).await;
    assert_eq!(
        modes().await,
        r#""all" "one-at-a-time" false"#,
        "a broken file changes nothing"
    );
    let text = std::fs::read_to_string(&settings).unwrap();
    assert!(text.contains(": all"), "and is left alone");
}

#[tokio::test]
async fn a_reload_reaches_tools_and_requests_of_a_running_session() {
    let dir = tempfile::tempdir().unwrap();
    let settings = dir.path().join("agent/settings.json");
    std::fs::create_dir_all(settings.parent().unwrap()).unwrap();
    let model = Scripted::replay([Answer::new().text("one"), Answer::new().text("two")]);
    let mut config = config(dir.path(), &model);
    config.shell = Some(ToolEnv {
        workspace: Arc::new(DiskWorkspace::default()),
        gate: gate(dir.path()),
        options: LiveOptions::default(),
    });
    let runtime = Runtime::start(config).unwrap();
    let mut it = Fixture {
        events: runtime.subscribe(1000),
        runtime,
        model,
        _dir: dir,
    };
    let said = async |it: &Fixture| {
        let command = Command::Bash {
            command: "echo \"[$MARK]\"".to_owned(),
            exclude_from_context: true,
            tag: None,
        };
        it.ask(command).await["output"].as_str().unwrap().to_owned()
    };
    assert_eq!(said(&it).await.trim(), "[]");
    it.prompt("first").await;
    it.until("settled").await;

    let now = json!({"shellCommandPrefix": "MARK=here", "thinkingBudgets": {"low": 7}});
    std::fs::write(&settings, now.to_string()).unwrap();
    it.ask(Command::Reload).await;
    assert_eq!(said(&it).await.trim(), "[here]");
    it.prompt("second").await;
    it.until("settled").await;
    let budgets: Vec<Option<Value>> = it
        .model
        .requests()
        .iter()
        .map(|request| request.options.extra.get("thinkingBudgets").cloned())
        .collect();
    assert_eq!(budgets, [None, Some(json!({"low": 7}))]);
}

/// The entry of the first message of the person.
async fn first_user(it: &Fixture) -> String {
    let messages = it.ask(Command::GetForkMessages).await;
    messages["messages"][0]["entryId"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn to(target: &str, summary: SummaryWish) -> Command {
    Command::Navigate {
        target: Some(target.to_owned()),
        summary,
        label: Some("before".to_owned()),
    }
}

#[tokio::test]
async fn a_branch_that_is_left_is_summarised_for_the_new_one() {
    let mut it = talked([
        Answer::say("the first answer"),
        Answer::say("the second answer"),
        Answer::say("what was tried there"),
        Answer::say("the third answer"),
    ])
    .await;
    let place = it
        .runtime
        .look(|session| session.leaf_id().unwrap().to_string());
    it.prompt("the second question").await;
    it.until("settled").await;
    let wish = SummaryWish::With("only the errors".to_owned());
    let answer = it.ask(to(&place, wish)).await;
    assert_eq!(answer, json!({"cancelled": false}));
    let asked = it.model.requests().pop().unwrap();
    let asked = format!("{:?}", asked.messages);
    assert!(
        asked.contains("the second question") && asked.contains("only the errors"),
        "{asked}"
    );
    it.prompt("the third question").await;
    it.until("settled").await;
    let texts: Vec<String> = it
        .model
        .requests()
        .pop()
        .unwrap()
        .messages
        .iter()
        .map(|it| show_message(it))
        .collect();
    let texts = texts.join("\n");
    assert!(texts.contains("what was tried there"), "{texts}");
    assert!(!texts.contains("the second question"), "{texts}");
    let labels = it.runtime.look(|session| session.labels().len());
    assert_eq!(labels, 1);
}

#[tokio::test]
async fn a_move_gives_the_text_back_and_is_refused_while_a_run_goes_on() {
    let mut it = talked([Answer::say("the first answer"), Answer::new().hang()]).await;
    let user = first_user(&it).await;
    it.prompt("wait").await;
    it.until("agent_start").await;
    let error = it.refused(to(&user, SummaryWish::None)).await;
    assert!(error.contains("while a response runs"), "{error}");
    it.ask(Command::Abort).await;
    let answer = it.ask(to(&user, SummaryWish::None)).await;
    assert_eq!(
        answer,
        json!({"prefill": "the first question", "cancelled": false})
    );
    let error = it.refused(to("nowhere", SummaryWish::None)).await;
    assert!(error.contains("nowhere"), "{error}");
}

#[tokio::test]
async fn an_abort_ends_a_summary_and_nothing_moves() {
    let it = talked([Answer::say("the first answer"), Answer::new().hang()]).await;
    let user = first_user(&it).await;
    let leaf = |it: &Fixture| it.runtime.look(|session| session.leaf_id().cloned());
    let before = leaf(&it);
    let runtime = it.runtime.clone();
    let moving = tokio::spawn(async move { runtime.request(to(&user, SummaryWish::Plain)).await });
    while it.model.requests().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(it.ask(Command::GetState).await["isCompacting"], true);
    it.ask(Command::Abort).await;
    assert_eq!(moving.await.unwrap().unwrap(), json!({"cancelled": true}));
    assert_eq!(leaf(&it), before);
    assert_eq!(it.ask(Command::GetState).await["isCompacting"], false);
}
