//! What came out against what was recorded, by the rules of the README.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::case::Run;
use super::pattern::Matcher;

/// How strictly texts are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    /// As recorded, but for texts that come from the recording program's language.
    Exact,
    /// Wording of results, errors and intro lines is our own: the same record, the same flags, some text.
    OwnWording,
}

/// Applies the differences that are decided and not a matter of wording; `None` when the case has none.
pub(super) fn decided(recorded: &Value) -> Option<Value> {
    let mut case = recorded.clone();
    let without = |list: &mut Value, unwanted: &dyn Fn(&Value) -> bool| {
        list.as_array_mut().unwrap().retain(|item| !unwanted(item));
    };
    let is_edit = |entry: &Value| entry["type"] == "context_edit";
    match case["name"].as_str().unwrap() {
        "length-text-below-limit" => {
            without(&mut case["stdout_records"], &|record| {
                record["type"] == "entry_appended"
            });
            for record in case["stdout_records"].as_array_mut().unwrap() {
                if record["id"] == "m" {
                    record["data"]["messages"] = json!(["$M1", "$M2", "$M3"]);
                } else if record["id"] == "t" {
                    record["data"]["text"] = recorded["mock_responses"][0]["text"].clone();
                }
            }
        }
        "print-length-below" => {
            case["exit"]["code"] = json!(1);
            case["stdout_text"] = json!("cut\n");
            case["stderr"] = json!("truncated");
        }
        _ => return None,
    }
    without(&mut case["session_files"][0]["entries"], &is_edit);
    Some(case)
}

/// Puts placeholders in for the paths and addresses of this run.
fn mask(value: &Value, places: &[(String, &'static str)]) -> Value {
    match value {
        Value::String(text) => {
            let mut text = text.clone();
            for (place, name) in places {
                text = text.replace(place.as_str(), name);
            }
            Value::String(text)
        }
        Value::Array(items) => items.iter().map(|item| mask(item, places)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| {
                let key = places.iter().fold(key.clone(), |key, (place, name)| {
                    key.replace(place.as_str(), name)
                });
                (key, mask(value, places))
            })
            .collect(),
        other => other.clone(),
    }
}

/// Compares a run with its case; the error lists what differs.
pub(super) fn compare(case: &Value, run: &Run, strictness: Strictness) -> Result<(), String> {
    let name = case["name"].as_str().unwrap();
    let masked = |value: &Value| mask(value, &run.places);
    let records: Vec<Value> = run.records.iter().map(masked).collect();
    let ends = records
        .iter()
        .filter(|record| record["type"] == "message_end");
    let messages = ends.map(|record| record["message"].clone()).collect();
    let mut matcher = Matcher::new(messages, strictness == Strictness::OwnWording);
    matcher.pipelined = name == "pipelined-commands";
    let mut trouble = Vec::new();
    let mut note = |result: Result<(), String>| trouble.extend(result.err());

    note(matcher.value(&case["exit"], &run.exit, "exit"));
    let cut_short = name.starts_with("eof-") || name.starts_with("sigterm-");
    if let Some(expected) = case.get("stdout_records").and_then(Value::as_array)
        && !cut_short
    {
        note(stream(&mut matcher, expected, &records));
    }
    if let Some(text) = case.get("stdout_text").and_then(Value::as_str)
        && name != "print-version"
    {
        note(matcher.value(&json!(text), &masked(&json!(run.stdout)), "stdout"));
    }
    if case["stderr"].as_str().is_some_and(|text| !text.is_empty()) && run.stderr.is_empty() {
        note(Err(format!("stderr is empty, expected {}", case["stderr"])));
    }
    let requests: Vec<Value> = run.requests.iter().map(masked).collect();
    if !cut_short {
        note(matcher.value(
            &case["http_requests"],
            &Value::Array(requests),
            "http_requests",
        ));
    }
    let sessions: Vec<Value> = run
        .sessions
        .iter()
        .map(|(path, entries)| masked(&json!({"path": path, "entries": entries})))
        .collect();
    note(session_files(
        &mut matcher,
        &case["session_files"],
        &sessions,
    ));
    note(files(case, run, &masked));
    if let Some(expected) = case.get("settings_after").filter(|it| !it.is_null()) {
        note(matcher.value(expected, &run.settings, "settings_after"));
    }
    if trouble.is_empty() {
        return Ok(());
    }
    if !run.stderr.is_empty() {
        trouble.push(format!(
            "stderr: {}",
            run.stderr.chars().take(600).collect::<String>()
        ));
    }
    Err(trouble.join("\n"))
}

fn session_files(matcher: &mut Matcher, expected: &Value, actual: &[Value]) -> Result<(), String> {
    let expected = expected.as_array().unwrap();
    if expected.len() != actual.len() {
        return Err(format!(
            "{} session files, expected {}",
            actual.len(),
            expected.len()
        ));
    }
    for (index, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        let at = format!("session_files[{index}]");
        let (wanted, found) = (
            expected["entries"].as_array().unwrap(),
            actual["entries"].as_array().unwrap(),
        );
        if wanted.len() != found.len() {
            let kinds = |entries: &[Value]| -> Vec<String> {
                entries
                    .iter()
                    .map(|it| {
                        format!(
                            "{} {}",
                            it["type"].as_str().unwrap(),
                            it["message"]["role"].as_str().unwrap_or("")
                        )
                    })
                    .collect()
            };
            return Err(format!(
                "{at}: entries\n  expected {:?}\n  actual   {:?}",
                kinds(wanted),
                kinds(found)
            ));
        }
        matcher.value(expected, actual, &at)?;
    }
    Ok(())
}

fn files(case: &Value, run: &Run, masked: &dyn Fn(&Value) -> Value) -> Result<(), String> {
    let expected = match &case["files_after"] {
        Value::String(_) => case["files_before"].clone(),
        other => other.clone(),
    };
    let expected = expected.as_object().unwrap();
    let mut matcher = Matcher::new(Vec::new(), false);
    let actual = masked(&Value::Object(run.files.clone()));
    let actual = actual.as_object().unwrap();
    if expected.len() != actual.len() {
        let names = |map: &serde_json::Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
        return Err(format!(
            "files: expected {:?}, actual {:?}",
            names(expected),
            names(actual)
        ));
    }
    let (mut wanted, mut found): (Vec<_>, Vec<_>) =
        (expected.iter().collect(), actual.iter().collect());
    wanted.sort_by_key(|(name, _)| (*name).clone());
    found.sort_by_key(|(name, _)| (*name).clone());
    for ((name, expected), (other, actual)) in wanted.into_iter().zip(found) {
        matcher.value(&json!(name), &json!(other), "file name")?;
        if expected.is_string() {
            matcher.value(expected, actual, &format!("file {name}"))?;
        }
    }
    Ok(())
}

/// The records in the parts that have an order of their own.
#[derive(Default)]
struct Parts {
    /// Everything whose order counts.
    main: Vec<Value>,
    responses: Vec<Value>,
    queue: Vec<Value>,
    /// Last partial result of each call.
    updates: BTreeMap<String, Value>,
    /// Concatenated output by id.
    output: BTreeMap<String, String>,
    ends: BTreeMap<String, Value>,
    /// Pieces of each answer by content index.
    pieces: Vec<BTreeMap<u64, Vec<Value>>>,
}

fn split(records: &[Value]) -> Parts {
    let mut parts = Parts::default();
    for record in records {
        let call = || record["toolCallId"].as_str().unwrap_or_default().to_owned();
        match record["type"].as_str().unwrap_or_default() {
            "response" => parts.responses.push(record.clone()),
            "queue_update" => parts.queue.push(record.clone()),
            "tool_execution_update" => drop(
                parts
                    .updates
                    .insert(call(), record["partialResult"].clone()),
            ),
            "bash_execution_update" => {
                let output = parts.output.entry(record["id"].to_string()).or_default();
                output.push_str(record["delta"].as_str().unwrap());
            }
            "tool_execution_end" => drop(parts.ends.insert(call(), record.clone())),
            "message_update" => {
                let event = &record["assistantMessageEvent"];
                let index = event["contentIndex"].as_u64().unwrap();
                if let Some(pieces) = parts.pieces.last_mut() {
                    pieces.entry(index).or_default().push(event.clone());
                }
            }
            "message_start" => {
                parts.pieces.push(BTreeMap::new());
                let mut record = record.clone();
                if record["message"]["role"] == "assistant"
                    && record["message"]["stopReason"] == "pending"
                {
                    let fields = record["message"].as_object_mut().unwrap();
                    fields.remove("content");
                    fields.remove("usage");
                }
                parts.main.push(record);
            }
            _ => parts.main.push(record.clone()),
        }
    }
    parts
}

fn stream(matcher: &mut Matcher, expected: &[Value], actual: &[Value]) -> Result<(), String> {
    let (wanted, found) = (split(expected), split(actual));
    let kinds = |records: &[Value]| -> Vec<String> {
        let kind = |record: &Value| {
            let role = record["message"]["role"].as_str().unwrap_or_default();
            format!("{} {role}", record["type"].as_str().unwrap_or("?"))
                .trim()
                .to_owned()
        };
        records.iter().map(kind).collect()
    };
    for (index, (a, b)) in wanted.main.iter().zip(&found.main).enumerate() {
        matcher
            .value(
                a,
                b,
                &format!(
                    "record {index} ({})",
                    a["type"].as_str().unwrap_or_default()
                ),
            )
            .map_err(|why| {
                let (a, b) = (kinds(&wanted.main), kinds(&found.main));
                if a.len() == b.len() {
                    why
                } else {
                    format!("{why}\n  expected {a:?}\n  actual   {b:?}")
                }
            })?;
    }
    if wanted.main.len() != found.main.len() {
        return Err(format!(
            "records\n  expected {:?}\n  actual   {:?}",
            kinds(&wanted.main),
            kinds(&found.main)
        ));
    }
    responses(matcher, &wanted.responses, &found.responses)?;
    matcher.value(&json!(wanted.queue), &json!(found.queue), "queue updates")?;
    matcher.value(
        &json!(wanted.updates),
        &json!(found.updates),
        "last updates",
    )?;
    matcher.value(
        &json!(wanted.output),
        &json!(found.output),
        "command output",
    )?;
    matcher.value(&json!(wanted.ends), &json!(found.ends), "tool ends")?;
    for (index, (a, b)) in wanted.pieces.iter().zip(&found.pieces).enumerate() {
        matcher.value(&json!(a), &json!(b), &format!("pieces of message {index}"))?;
    }
    Ok(())
}

/// Responses by id and command: those of commands sent without waiting come in any order.
fn responses(matcher: &mut Matcher, expected: &[Value], actual: &[Value]) -> Result<(), String> {
    let key = |record: &Value| {
        record
            .get("id")
            .map(ToString::to_string)
            .unwrap_or_default()
    };
    if expected.len() != actual.len() {
        return Err(format!(
            "responses: expected {:?}, actual {:?}",
            expected.iter().map(key).collect::<Vec<_>>(),
            actual.iter().map(key).collect::<Vec<_>>()
        ));
    }
    let (mut expected, mut actual) = (expected.to_vec(), actual.to_vec());
    let place = |record: &Value| (key(record), record["command"].to_string());
    expected.sort_by_key(place);
    actual.sort_by_key(place);
    for (a, b) in expected.iter().zip(&actual) {
        let at = format!("response {}", key(a));
        let mut a = a.clone();
        if let Some(commands) = a
            .pointer_mut("/data/commands")
            .and_then(Value::as_array_mut)
        {
            commands.retain(|command| command["sourceInfo"]["source"] != "builtin");
        }
        // What a state shows depends on when commands sent without waiting are looked at.
        if matcher.pipelined {
            for field in ["pendingMessageCount", "isStreaming", "messageCount"] {
                let path = format!("/data/{field}");
                if let (Some(shown), Some(real)) = (a.pointer_mut(&path), b.pointer(&path)) {
                    *shown = real.clone();
                }
            }
        }
        matcher.value(&a, b, &at)?;
    }
    Ok(())
}
