//! Recorded projections: what a session file means.

use pi_nvim::ai::Message;
use pi_nvim::session::projection::{Context, Entries, Pos};
use pi_nvim::session::store::Session;
use serde_json::{Value, json};

use super::{Place, cases, compare, without_intros};
use crate::conformance::{Outcome, Tally, data_dir};

fn values<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Value {
    messages.into_iter().map(Message::to_value).collect()
}

fn ids(session: &Session, positions: &[Pos]) -> Value {
    positions.iter().map(|pos| id_at(session, *pos)).collect()
}

fn id_at(session: &Session, pos: Pos) -> Value {
    Entries::id(session, pos).map_or(Value::Null, |id| id.as_str().into())
}

fn tree(session: &Session) -> Value {
    fn node(value: &Value) -> Value {
        let mut out = json!({"id": value["entry"]["id"], "type": value["entry"]["type"]});
        for key in ["label", "labelTimestamp"] {
            if let Some(text) = value.get(key) {
                out[key] = text.clone();
            }
        }
        let children = value["children"].as_array().unwrap();
        out["children"] = children.iter().map(node).collect();
        out
    }
    let text = session.tree_json();
    let roots = pi_nvim::entry::json::parse(&text).unwrap();
    roots.as_array().unwrap().iter().map(node).collect()
}

fn observed(session: &Session, path: &[Pos], context: &Context) -> Value {
    let system = context.system().map_or(Value::Null, |message| {
        Message::System((**message).clone()).to_value()
    });
    let estimate = context.estimate();
    let projection = context.items().iter();
    json!({
        "header": session.header().fields(),
        "entryIds": session.positions().map(|pos| id_at(session, pos)).collect::<Vec<_>>(),
        "loadedLeafId": session.leaf_id(),
        "sessionName": session.name(),
        "pathIds": ids(session, path),
        "contextEntryIds": context.items().iter().map(|item| &item.id).collect::<Vec<_>>(),
        "projection": projection.map(|item| json!({"entryId": item.id, "messages": item.messages.len()})).collect::<Vec<_>>(),
        "model": context.model().map(|model| json!({"provider": model.provider, "modelId": model.model_id})),
        "thinkingLevel": context.thinking_level(),
        "contextMessages": context.values(session),
        "llmMessages": values(context.llm_messages().iter().map(|message| &**message)),
        "replayedSystemMessage": system,
        "estimatedTokens": estimate.tokens,
        "lastUsageMessageIndex": estimate.last_usage_index,
        "tree": tree(session),
    })
}

fn run(case: &Value) -> Result<(), String> {
    let place = Place::new();
    let file = case["session_file"].as_str().unwrap();
    let path = place.copy(file);
    let before = std::fs::read(&path).unwrap();
    let session = Session::open(&path, &place.cwd(), Default::default()).unwrap();
    let after = std::fs::read(&path).unwrap();
    let leaf_path = match case["leaf"].get("id") {
        None => session.path(),
        Some(Value::Null) => Vec::new(),
        Some(id) => session.path_to_id(id.as_str().unwrap()),
    };
    let context = Context::build(&session, &leaf_path);
    let mut actual = observed(&session, &leaf_path, &context);
    let changed = match () {
        () if after == before => "no",
        () if after == [&before[..], b"\n"].concat() => "newline-appended",
        () => "rewritten",
    };
    actual["fileChangedByLoad"] = changed.into();
    if changed == "rewritten" {
        let lines = String::from_utf8(after).unwrap();
        actual["fileLinesAfterLoad"] = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .collect();
    }
    let actual = mask_new_ids(&session, &without_intros(&place.masked(&actual)), case);
    let mut expected = without_intros(&case["expected"]);
    // What goes to a provider is typed: compare it so, that absent and default fields count the same.
    let sent = expected["llmMessages"].as_array().unwrap();
    expected["llmMessages"] = sent
        .iter()
        .map(|message| Message::from_value(message.clone()).to_value())
        .collect();
    compare(&expected, &actual)
}

/// Ids that a migration gave become `{id:N}`.
fn mask_new_ids(session: &Session, actual: &Value, case: &Value) -> Value {
    if !case["expected"]["entryIds"].to_string().contains("{id:") {
        return actual.clone();
    }
    let mut text = actual.to_string();
    for pos in session.positions() {
        let id = id_at(session, pos);
        text = text.replace(&id.to_string(), &format!("\"{{id:{pos}}}\""));
    }
    serde_json::from_str(&text).unwrap()
}

#[test]
fn recorded_projections() {
    let mut tally = Tally::new("sessions/projections/*.json");
    for (name, case) in cases("projections") {
        let outcome = match run(&case) {
            Ok(()) => Outcome::Pass,
            Err(_) if name.starts_with("51-") => duplicate_listed_once(&case),
            Err(why) => Outcome::Fail(why),
        };
        tally.case(&name, outcome);
    }
    assert!(data_dir().join("sessions/files").is_dir());
    tally.finish();
}

/// Pi lists the node of a duplicate id twice; ours lists it once, all else is as recorded.
fn duplicate_listed_once(case: &Value) -> Outcome {
    fn dedupe(nodes: &mut Vec<Value>) {
        let mut seen = std::collections::HashSet::new();
        nodes.retain(|node| seen.insert(node["id"].to_string()));
        for node in nodes {
            dedupe(node["children"].as_array_mut().unwrap());
        }
    }
    let mut case = case.clone();
    dedupe(case["expected"]["tree"].as_array_mut().unwrap());
    match run(&case) {
        Ok(()) => Outcome::Differs,
        Err(why) => Outcome::Fail(why),
    }
}
