//! Recorded compaction preparations and branch summaries.

use pi_nvim::ai::Message;
use pi_nvim::session::branch_summary;
use pi_nvim::session::compaction::prepare::Sourced;
use pi_nvim::session::compaction::{CompactionSettings, Preparation, prepare, serialise};
use pi_nvim::session::projection::{Entries, Pos};
use pi_nvim::session::store::Session;
use serde_json::{Value, json};

use super::{Place, cases, compare, without_intros};
use crate::conformance::{Outcome, Tally};

/// Recorded as split turns; metadata before a cut makes none here.
const METADATA: [&str; 3] = [
    "10-metadata-before-cut-is-kept",
    "11-custom-usage-info-before-cut-kept",
    "39-tokensbefore-replayed-system-counted-once",
];

fn sources(sources: &[Sourced]) -> Value {
    sources.iter().map(|source| source.id.as_str()).collect()
}

fn prepared(preparation: &Preparation) -> Value {
    let lists = preparation.file_ops.lists();
    json!({
        "prepared": true,
        "firstKeptEntryId": preparation.first_kept,
        "isSplitTurn": preparation.is_split_turn,
        "messagesToSummarizeEntryIds": sources(&preparation.history),
        "turnPrefixEntryIds": sources(&preparation.turn_prefix),
        "tokensBefore": preparation.tokens_before,
        "previousSummary": preparation.previous_summary,
        "fileOps": {
            "read": preparation.file_ops.read,
            "written": preparation.file_ops.written,
            "edited": preparation.file_ops.edited,
        },
        "readFiles": lists.read,
        "modifiedFiles": lists.modified,
        "fileListSuffix": lists.suffix(),
    })
}

fn run(case: &Value, expected: &Value) -> Result<(), String> {
    let place = Place::new();
    let session = place.open(case["session_file"].as_str().unwrap());
    let settings = CompactionSettings::read(&case["settings"], "p", "m").unwrap();
    let mut actual = match prepare(&session, &session.path(), &settings) {
        Ok(preparation) => prepared(&preparation),
        Err(_) => json!({"prepared": false}),
    };
    let estimate = session.context().estimate();
    actual["estimate"] = json!({
        "tokens": estimate.tokens, "usageTokens": estimate.usage_tokens, "trailingTokens": estimate.trailing_tokens,
        "lastUsageMessageIndex": estimate.last_usage_index,
    });
    actual["shouldCompactAt2000"] = settings.is_over(estimate.tokens, 2000).into();
    let mut expected = expected.clone();
    for set in ["read", "written", "edited"] {
        if let Some(Value::Array(items)) = expected.pointer_mut(&format!("/fileOps/{set}")) {
            items.sort_by_key(ToString::to_string);
        }
    }
    let actual: serde_json::Map<String, Value> = actual
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| expected.get(*key).is_some())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    compare(&expected, &Value::Object(actual))
}

#[test]
fn recorded_cut_points() {
    let mut tally = Tally::new("sessions/cut-points/*.json");
    for (name, case) in cases("cut-points") {
        let mut expected = case["expected"].clone();
        let differs = METADATA.contains(&&*name);
        if differs {
            expected["isSplitTurn"] = false.into();
            expected["messagesToSummarizeEntryIds"] = expected["turnPrefixEntryIds"].take();
            expected["turnPrefixEntryIds"] = json!([]);
        }
        let outcome = match run(&case, &expected) {
            Ok(()) if differs => Outcome::Differs,
            Ok(()) => Outcome::Pass,
            Err(why) => Outcome::Fail(why),
        };
        tally.case(&name, outcome);
    }
    tally.finish();
}

fn branch(case: &Value) -> Result<(), String> {
    let place = Place::new();
    let session = place.open(case["session_file"].as_str().unwrap());
    let id = |pos: Pos| session_id(&session, pos);
    let old = case["oldLeafId"]
        .as_str()
        .map(|id| session.find(id).unwrap());
    let target = session.find(case["targetId"].as_str().unwrap()).unwrap();
    let left = session.left_behind(old, target);
    let selection = branch_summary::select(
        &session,
        &left.entries,
        case["tokenBudget"].as_u64().unwrap(),
    );
    let destination = session.destination(target);
    let messages: Vec<Value> = selection
        .messages
        .iter()
        .map(|message| message.to_value())
        .collect();
    let no_op = old == Some(target);
    let actual = json!({
        "noOp": no_op,
        "entryIds": left.entries.iter().map(|pos| id(*pos)).collect::<Vec<_>>(),
        "commonAncestorId": left.common_ancestor.map(id),
        "messages": messages,
        "totalTokens": selection.total_tokens,
        "readFiles": selection.files.read,
        "modifiedFiles": selection.files.modified,
        "fileListSuffix": selection.files.suffix(),
        "serialized": serialise::conversation(selection.messages.iter().map(|message| &**message)),
        // Selecting the leaf itself does nothing.
        "navigation": if no_op {
            json!({"newLeafId": id(target), "editorText": null})
        } else {
            json!({"newLeafId": destination.leaf.map(id), "editorText": destination.prefill})
        },
    });
    let recorded = case["expected"]["messages"].as_array().unwrap();
    let mut expected = without_intros(&case["expected"]);
    expected["messages"] = recorded
        .iter()
        .map(|message| Message::from_value(message.clone()).to_value())
        .collect();
    compare(&expected, &without_intros(&actual))
}

fn session_id(session: &Session, pos: Pos) -> String {
    Entries::id(session, pos).unwrap().to_string()
}

#[test]
fn recorded_branch_summaries() {
    let mut tally = Tally::new("sessions/branch-summary/*.json");
    for (name, case) in cases("branch-summary") {
        tally.case(
            &name,
            branch(&case).map_or_else(Outcome::Fail, |()| Outcome::Pass),
        );
    }
    tally.finish();
}
