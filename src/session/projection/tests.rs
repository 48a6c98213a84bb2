//! Properties: the context carried on by appends is the context computed anew, whatever the session.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ai::Usage;
use crate::session::store::{CompactionEntry, Session, Start, SummaryEntry};

/// One thing that may happen to a session. Numbers choose among what exists, modulo its count.
#[derive(Clone, Debug)]
enum Step {
    Say(u8, String),
    Answer(u8, String, u64),
    Result(String),
    System(u8),
    Bash(String),
    Custom(String),
    Model(u8),
    Thinking(u8),
    Edit(usize, u8),
    Compact(Option<usize>),
    Branch(usize),
    Reset,
    BranchSummary(Option<usize>, String),
    Label(usize),
    Raw(usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let text = || "[a-z é]{0,12}";
    prop_oneof![
        4 => (any::<u8>(), text()).prop_map(|(kind, text)| Step::Say(kind, text)),
        4 => (any::<u8>(), text(), 0..3000u64).prop_map(|(stop, text, usage)| Step::Answer(stop, text, usage)),
        3 => text().prop_map(Step::Result),
        1 => any::<u8>().prop_map(Step::System),
        1 => text().prop_map(Step::Bash),
        1 => text().prop_map(Step::Custom),
        1 => any::<u8>().prop_map(Step::Model),
        1 => any::<u8>().prop_map(Step::Thinking),
        3 => (any::<usize>(), any::<u8>()).prop_map(|(target, kind)| Step::Edit(target, kind)),
        1 => proptest::option::of(any::<usize>()).prop_map(Step::Compact),
        2 => any::<usize>().prop_map(Step::Branch),
        1 => Just(Step::Reset),
        1 => (proptest::option::of(any::<usize>()), text()).prop_map(|(at, text)| Step::BranchSummary(at, text)),
        1 => any::<usize>().prop_map(Step::Label),
        2 => (any::<usize>(), any::<u8>()).prop_map(|(parent, kind)| Step::Raw(parent, kind)),
    ]
}

fn message(value: Value) -> Message {
    Message::from_value(value)
}

fn chosen(session: &Session, at: usize) -> Option<String> {
    let at = at.checked_rem(session.len())?;
    Entries::id(session, Pos::try_from(at).ok()?).map(ToString::to_string)
}

fn system(kind: u8) -> Value {
    let name = ["a", "b", "c"][usize::from(kind) % 3];
    let tool = json!({"name": name, "description": "d", "parameters": {}});
    match kind % 4 {
        0 => json!({"role": "system", "content": name, "sections": {name: "text"}}),
        1 => json!({"role": "system", "content": "", "sections": {name: null}}),
        2 => json!({"role": "system", "content": null, "toolsAdded": [tool]}),
        _ => {
            json!({"role": "system", "content": "", "toolsRemoved": [{"name": name}], "toolsAdded": [tool]})
        }
    }
}

/// A line as another program might have written it, at any parent.
fn raw_line(session: &Session, parent: usize, kind: u8, at: usize) -> String {
    let parent = chosen(session, parent);
    let id = format!("raw{at}");
    let body = match kind % 8 {
        0 => json!({"type": "message", "message": {"role": "user", "content": null}}),
        1 => json!({"type": "message", "message": null}),
        2 => json!({"type": "message", "message": {"role": "alien"}}),
        3 => json!({"type": "context_edit", "targetId": parent, "replacement": null}),
        4 => {
            json!({"type": "context_edit", "targetId": id, "replacement": {"content": [{"type": "text", "text": "self"}]}})
        }
        5 => json!({"type": "branch_summary", "summary": ""}),
        6 => json!({"type": "context_edit", "targetId": parent, "replacement": {"content": 7}}),
        _ => json!({"type": "future", "thing": [1]}),
    };
    let mut entry = json!({"id": id, "parentId": session.leaf_id()});
    entry
        .as_object_mut()
        .unwrap()
        .extend(body.as_object().unwrap().clone());
    entry.to_string()
}

fn apply(session: &mut Session, step: &Step, at: usize) {
    match step {
        Step::Say(kind, text) => {
            let content = if kind % 2 == 0 {
                json!(text)
            } else {
                json!([{"type": "text", "text": text}, {"type": "image", "data": "", "mimeType": "image/png"}])
            };
            session
                .append_message(&message(json!({"role": "user", "content": content})))
                .unwrap();
        }
        Step::Answer(stop, text, usage) => {
            let stop = ["stop", "error", "aborted", "toolUse", "length"][usize::from(*stop) % 5];
            let content = json!([{"type": "text", "text": text}, {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": text}}]);
            let usage = json!({"totalTokens": usage});
            session.append_message(&message(json!({"role": "assistant", "content": content, "stopReason": stop, "usage": usage, "provider": "p", "model": text}))).unwrap();
        }
        Step::Result(text) => {
            let content = json!([{"type": "text", "text": text}]);
            session
                .append_message(&message(
                    json!({"role": "toolResult", "toolCallId": "c", "content": content}),
                ))
                .unwrap();
        }
        Step::System(kind) => drop(session.append_message(&message(system(*kind))).unwrap()),
        Step::Bash(text) => drop(
            session
                .append_message(&message(
                    json!({"role": "bashExecution", "command": text, "output": text}),
                ))
                .unwrap(),
        ),
        Step::Custom(text) => drop(
            session
                .append_custom_message("x", &Content::Text(text.clone()), true, None)
                .unwrap(),
        ),
        Step::Model(id) => drop(session.append_model_change("p", &id.to_string()).unwrap()),
        Step::Thinking(level) => drop(session.append_thinking_level(&level.to_string()).unwrap()),
        Step::Edit(target, kind) => {
            let replacement = if kind % 2 == 0 {
                Value::Null
            } else {
                json!({"content": "edited"})
            };
            if let Some(target) = chosen(session, *target) {
                // Refused targets change nothing, which is what the property wants too.
                drop(session.append_context_edit(&target, replacement));
            }
        }
        Step::Compact(kept) => {
            let first_kept = kept.and_then(|at| chosen(session, at));
            session
                .append_compaction(CompactionEntry {
                    summary: "S".into(),
                    first_kept,
                    usage: Some(Usage::default()),
                    ..CompactionEntry::default()
                })
                .unwrap();
        }
        Step::Branch(target) => {
            if let Some(id) = chosen(session, *target) {
                session.branch(&id).unwrap();
            }
        }
        Step::Reset => session.reset_leaf(),
        Step::BranchSummary(target, text) => {
            let target = target.and_then(|at| chosen(session, at));
            session
                .branch_with_summary(
                    target.as_deref(),
                    SummaryEntry {
                        summary: text.clone(),
                        ..SummaryEntry::default()
                    },
                )
                .unwrap();
        }
        Step::Label(target) => {
            if let Some(id) = chosen(session, *target) {
                session.append_label(&id, Some("l")).unwrap();
            }
        }
        Step::Raw(parent, kind) => session
            .append_line(&raw_line(session, *parent, *kind, at))
            .unwrap(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn carrying_a_context_on_equals_computing_it_anew(steps in proptest::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let mut session = Session::create(dir.path(), Path::new("/"), Start::default()).unwrap();
        for (at, step) in steps.iter().enumerate() {
            drop(session.context());
            apply(&mut session, step, at);
            let anew = session.context_at(session.leaf());
            prop_assert_eq!(&*session.context(), &anew, "after {:?}", step);
            prop_assert_eq!(session.path(), session.path_to(session.leaf()));
            prop_assert_eq!(anew.values(&session).len(), anew.messages().count());
            anew.estimate();
            anew.llm_messages();
        }
        // What the file says is what memory says.
        if let Some(path) = session.file().filter(|path| path.exists()) {
            let read = Session::open(path, Path::new("/"), Start::default()).unwrap();
            prop_assert_eq!(read.len(), session.len());
            let last = session.positions().next_back();
            prop_assert_eq!(read.context_at(last), session.context_at(last));
            prop_assert_eq!(read.labels(), session.labels());
            prop_assert_eq!(read.stats(), session.stats());
        }
        for pos in session.positions() {
            session.context_at(Some(pos));
        }
    }

    #[test]
    fn a_cut_never_parts_a_result_from_its_call(steps in proptest::collection::vec(step(), 1..60), keep in 0..400u64) {
        let mut session = Session::in_memory(Path::new("/"), Start::default()).unwrap();
        for (at, step) in steps.iter().enumerate() {
            apply(&mut session, step, at);
        }
        let settings = crate::session::compaction::CompactionSettings { keep_recent_tokens: keep, ..Default::default() };
        let path = session.path();
        if let Ok(preparation) = crate::session::compaction::prepare(&session, &path, &settings) {
            let context = session.context();
            let items = context.items();
            let at = items.iter().position(|item| item.id == preparation.first_kept).unwrap();
            // The first message that stays opens a context: never a tool result.
            let opens = items[at..].iter().flat_map(|item| &item.messages).find(|message| !matches!(***message, Message::System(_)));
            let is_result = opens.is_some_and(|message| matches!(**message, Message::ToolResult(_)));
            prop_assert!(!is_result || !items[..at].iter().any(|item| item.facts.is_message(Role::Assistant) && !item.messages.is_empty()), "{:?}", preparation);
        }
    }
}

#[test]
fn orphans_of_older_compactions_stay_for_the_provider_layer_to_drop() {
    let mut session = Session::in_memory(Path::new("/"), Start::default()).unwrap();
    session
        .append_message(&message(json!({"role": "user", "content": "q"})))
        .unwrap();
    session
        .append_compaction(CompactionEntry {
            summary: "S".into(),
            ..CompactionEntry::default()
        })
        .unwrap();
    session
        .append_message(&message(
            json!({"role": "toolResult", "toolCallId": "gone", "content": []}),
        ))
        .unwrap();
    let roles: Vec<String> = session
        .context()
        .messages()
        .map(|message| message.role().to_owned())
        .collect();
    assert_eq!(roles, ["compactionSummary", "toolResult"]);
}
