//! The comparison rules of the recorded wire cases.

use std::collections::{BTreeMap, BTreeSet};

use pi_nvim::ai::{AssistantMessage, StreamEvent};
use pi_nvim::testing::http::Captured;
use serde_json::{Map, Value};

/// The recorded name of an event; empty for our own usage event.
pub fn event_type(event: &StreamEvent) -> &'static str {
    match event {
        StreamEvent::Start(_) => "start",
        StreamEvent::TextStart { .. } => "text_start",
        StreamEvent::TextDelta { .. } => "text_delta",
        StreamEvent::TextEnd { .. } => "text_end",
        StreamEvent::ThinkingStart { .. } => "thinking_start",
        StreamEvent::ThinkingDelta { .. } => "thinking_delta",
        StreamEvent::ThinkingEnd { .. } => "thinking_end",
        StreamEvent::ToolCallStart { .. } => "toolcall_start",
        StreamEvent::ToolCallDelta { .. } => "toolcall_delta",
        StreamEvent::ToolCallEnd { .. } => "toolcall_end",
        StreamEvent::Usage(_) => "",
        StreamEvent::Done(_) => "done",
        StreamEvent::Error(_) => "error",
    }
}

/// Ids that the recording masks because the program invents them: any text does, but no two in one message are the same.
fn same_id(expected: &str, actual: &str) -> bool {
    if expected.starts_with("<generated:") {
        !actual.is_empty()
    } else {
        expected == actual
    }
}

/// Texts of our own wording stand where the recording has these.
const OWN_WORDING: [(&str, &str); 4] = [
    (
        "I have processed the tool results.",
        "Tool results received.",
    ),
    (
        "Attached image(s) from tool result:",
        "Images returned by the tool calls above:",
    ),
    (
        "Images from the error result of tool call ",
        "Images of the failed call ",
    ),
    ("Tool result image:", "Image returned by the tool:"),
];

/// Compares JSON under the rules for bodies; returns the first difference.
pub fn body(path: &str, expected: &Value, actual: &Value) -> Result<(), String> {
    match (expected, actual) {
        (Value::Object(want), Value::Object(have)) => object(path, want, have),
        (Value::Array(want), Value::Array(have)) => {
            if want.len() != have.len() {
                return Err(format!(
                    "{path}: {} items expected, {} sent\n  want {expected}\n  have {actual}",
                    want.len(),
                    have.len()
                ));
            }
            for (at, (want, have)) in want.iter().zip(have).enumerate() {
                body(&format!("{path}[{at}]"), want, have)?;
            }
            Ok(())
        }
        (Value::String(want), Value::String(have)) => text(path, want, have),
        (Value::Number(want), Value::Number(have))
            if close(want.as_f64(), have.as_f64(), 1e-12) =>
        {
            Ok(())
        }
        _ if expected == actual => Ok(()),
        _ => Err(format!("{path}: expected {expected}, sent {actual}")),
    }
}

fn object(path: &str, want: &Map<String, Value>, have: &Map<String, Value>) -> Result<(), String> {
    if let Some(key) = have.keys().find(|key| !want.contains_key(*key)) {
        return Err(format!(
            "{path}.{key}: sent, but not expected: {}",
            have[key]
        ));
    }
    for (key, value) in want {
        let path = format!("{path}.{key}");
        let Some(actual) = have.get(key) else {
            return Err(format!("{path}: not sent; expected {value}"));
        };
        let arguments = key == "arguments" || key == "thinkingSignature" || key == "textSignature";
        if let (true, Some(want), Some(have)) = (arguments, value.as_str(), actual.as_str())
            && let (Ok(want), Ok(have)) = (
                serde_json::from_str::<Value>(want),
                serde_json::from_str::<Value>(have),
            )
        {
            body(&path, &want, &have)?;
            continue;
        }
        body(&path, value, actual)?;
    }
    Ok(())
}

fn text(path: &str, want: &str, have: &str) -> Result<(), String> {
    let own = OWN_WORDING.iter().any(|(theirs, ours)| {
        want.strip_prefix(theirs)
            .is_some_and(|rest| have.strip_prefix(ours) == Some(rest))
    });
    let invented = want.starts_with("msg_pi_")
        && !have.is_empty()
        && have.len() <= 64
        && have.starts_with("msg_");
    if own || invented || same_id(want, have) {
        Ok(())
    } else {
        Err(format!("{path}: expected {want:?}, sent {have:?}"))
    }
}

fn close(a: Option<f64>, b: Option<f64>, tolerance: f64) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= tolerance * a.abs().max(b.abs()),
        _ => false,
    }
}

/// Compares one request.
pub fn request(case: &Value, expected: &Value, actual: &Captured) -> Result<(), String> {
    if expected["method"] != actual.method.as_str() {
        return Err(format!("method {}", actual.method));
    }
    let plain = |path: &str| path.trim_end_matches("?beta=true").to_owned();
    let path = expected["path"].as_str().unwrap();
    if plain(path) != plain(&actual.path) {
        return Err(format!("path: expected {path}, sent {}", actual.path));
    }
    for (name, value) in expected["headers"].as_object().unwrap() {
        let want = value.as_str().unwrap();
        let have = actual.header(name);
        let entries = |text: &str| {
            text.split(',')
                .map(|e| e.trim().to_owned())
                .collect::<Vec<_>>()
        };
        let good = match name.as_str() {
            "accept" => true,
            "content-type" => have.is_some_and(|have| have.starts_with(want)),
            "anthropic-beta" => {
                have.is_some_and(|have| entries(want).iter().all(|e| entries(have).contains(e)))
            }
            _ => have == Some(want),
        };
        if !good {
            return Err(format!("header {name}: expected {want}, sent {have:?}"));
        }
    }
    for name in expected["absent_headers"].as_array().into_iter().flatten() {
        if let Some(value) = actual.header(name.as_str().unwrap()) {
            return Err(format!("header {name} sent: {value}"));
        }
    }
    let mut sent: Value =
        serde_json::from_slice(&actual.body).map_err(|error| format!("body: {error}"))?;
    if case["name"] == "max-tokens-clamped-to-context" {
        for key in ["max_tokens", "max_output_tokens", "max_completion_tokens"] {
            if close(expected["body"][key].as_f64(), sent[key].as_f64(), 0.05) {
                sent[key] = expected["body"][key].clone();
            }
        }
        sent.as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
    }
    body("body", &expected["body"], &sent)
}

/// Events of one block, joined.
#[derive(Debug, Default, PartialEq)]
struct Track {
    kinds: Vec<String>,
    delta: String,
    end: Option<Value>,
}

/// Compares the events.
pub fn events(expected: &[Value], actual: &[StreamEvent]) -> Result<(), String> {
    let actual: Vec<&StreamEvent> = actual
        .iter()
        .filter(|event| !event_type(event).is_empty())
        .collect();
    let names: Vec<&str> = actual.iter().map(|event| event_type(event)).collect();
    let first = expected
        .first()
        .map(|event| event["type"].as_str().unwrap());
    let last = expected.last().map(|event| event["type"].as_str().unwrap());
    if names.first().copied() != first || names.last().copied() != last {
        return Err(format!(
            "events: expected {first:?} … {last:?}, got {names:?}"
        ));
    }
    let terminal = names
        .iter()
        .filter(|name| matches!(**name, "done" | "error"))
        .count();
    if terminal != 1 {
        return Err(format!("events: {terminal} terminal events in {names:?}"));
    }
    let failed = last == Some("error");
    let want = expected_tracks(expected);
    let have = actual_tracks(&actual);
    for (index, want) in &want {
        let empty = Track::default();
        let have = have.get(index).unwrap_or(&empty);
        let strip = |kinds: &[String]| {
            let kept = kinds
                .iter()
                .filter(|kind| !failed || !kind.ends_with("_end"));
            kept.cloned().collect::<Vec<_>>()
        };
        if strip(&want.kinds) != strip(&have.kinds) {
            return Err(format!(
                "events of block {index}: expected {:?}, got {:?}",
                want.kinds, have.kinds
            ));
        }
        if !want.delta.contains("<any>") && want.delta != have.delta {
            return Err(format!(
                "text of block {index}: expected {:?}, got {:?}",
                want.delta, have.delta
            ));
        }
        if let (Some(want), Some(have)) = (&want.end, &have.end) {
            message_json(&format!("end of block {index}"), want, have)?;
        }
    }
    if let Some(index) = have.keys().find(|index| !want.contains_key(index)) {
        return Err(format!("events: block {index} is not expected"));
    }
    Ok(())
}

fn note(track: &mut Track, kind: &str) {
    if !kind.ends_with("_delta") || track.kinds.last().is_none_or(|last| last != kind) {
        track.kinds.push(kind.to_owned());
    }
}

fn expected_tracks(events: &[Value]) -> BTreeMap<usize, Track> {
    let mut out: BTreeMap<usize, Track> = BTreeMap::new();
    for event in events {
        let Some(index) = event["contentIndex"].as_u64() else {
            continue;
        };
        let track = out.entry(index as usize).or_default();
        let delta = event["delta"].as_str().unwrap_or_default();
        let kind = event["type"].as_str().unwrap();
        if kind.ends_with("_delta") && delta.is_empty() {
            continue;
        }
        note(track, kind);
        track.delta.push_str(delta);
        let end = event.get("content").or_else(|| event.get("toolCall"));
        if end.is_some() {
            track.end = end.cloned();
        }
    }
    out
}

fn actual_tracks(events: &[&StreamEvent]) -> BTreeMap<usize, Track> {
    let mut out: BTreeMap<usize, Track> = BTreeMap::new();
    for event in events {
        let (index, delta, end) = match event {
            StreamEvent::TextStart { index, .. }
            | StreamEvent::ThinkingStart { index, .. }
            | StreamEvent::ToolCallStart { index, .. } => (*index, "", None),
            StreamEvent::TextDelta { index, delta }
            | StreamEvent::ThinkingDelta { index, delta }
            | StreamEvent::ToolCallDelta { index, delta } => (*index, delta.as_str(), None),
            StreamEvent::TextEnd { index, content }
            | StreamEvent::ThinkingEnd { index, content } => {
                (*index, "", Some(Value::from(content.as_str())))
            }
            StreamEvent::ToolCallEnd { index, call } => {
                let mut value = serde_json::to_value(call).unwrap();
                value["type"] = "toolCall".into();
                (*index, "", Some(value))
            }
            _ => continue,
        };
        let track = out.entry(index).or_default();
        if event_type(event).ends_with("_delta") && delta.is_empty() {
            continue;
        }
        note(track, event_type(event));
        track.delta.push_str(delta);
        if end.is_some() {
            track.end = end;
        }
    }
    out
}

/// Compares parts of a message: only the tail of `argumentsError` is exact.
fn message_json(path: &str, want: &Value, have: &Value) -> Result<(), String> {
    let (mut want, mut have) = (want.clone(), have.clone());
    for value in [&mut want, &mut have] {
        cut_argument_errors(value);
    }
    body(path, &want, &have)
}

fn cut_argument_errors(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(text)) = map.get_mut("argumentsError") {
                let tail = text
                    .find("Received arguments:")
                    .map(|at| text.split_off(at));
                *text = tail.unwrap_or_default();
            }
            map.values_mut().for_each(cut_argument_errors);
        }
        Value::Array(list) => list.iter_mut().for_each(cut_argument_errors),
        _ => {}
    }
}

/// Compares the final message.
pub fn message(expected: &Value, actual: &AssistantMessage) -> Result<(), String> {
    let ids: Vec<&str> = actual.tool_calls().map(|call| call.id.as_str()).collect();
    if ids.iter().collect::<BTreeSet<_>>().len() != ids.len() {
        return Err(format!("calls share an id: {ids:?}"));
    }
    let have = serde_json::to_value(actual).unwrap();
    for key in [
        "api",
        "provider",
        "model",
        "stopReason",
        "rawStopReason",
        "responseId",
        "responseModel",
    ] {
        let (want, have) = (expected.get(key), have.get(key));
        let (Some(want), Some(have)) = (want, have) else {
            if want == have {
                continue;
            }
            return Err(format!("message.{key}: expected {want:?}, got {have:?}"));
        };
        body(&format!("message.{key}"), want, have)?;
    }
    message_json("message.content", &expected["content"], &have["content"])?;
    usage(&expected["usage"], &have["usage"])
}

fn usage(want: &Value, have: &Value) -> Result<(), String> {
    for key in [
        "input",
        "output",
        "cacheRead",
        "cacheWrite",
        "cacheWrite1h",
        "reasoning",
        "totalTokens",
    ] {
        let count = |value: &Value| value[key].as_u64().unwrap_or(0);
        if count(want) != count(have) {
            return Err(format!(
                "usage.{key}: expected {}, got {}",
                want[key], have[key]
            ));
        }
    }
    for key in ["input", "output", "cacheRead", "cacheWrite", "total"] {
        let (want, have) = (&want["cost"][key], &have["cost"][key]);
        if !close(want.as_f64(), have.as_f64(), 1e-9) {
            return Err(format!("usage.cost.{key}: expected {want}, got {have}"));
        }
    }
    let stated = |value: &Value| {
        value["cost"]["totalFromProvider"]
            .as_bool()
            .unwrap_or(false)
    };
    if stated(want) != stated(have) {
        return Err(format!(
            "usage.cost.totalFromProvider: expected {}",
            stated(want)
        ));
    }
    Ok(())
}
