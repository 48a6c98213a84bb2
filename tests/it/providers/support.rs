//! What the tests of the providers share: a registry without environment, recorded cases as requests and scripts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use pi_nvim::ai::http::EnvLookup;
use pi_nvim::ai::{
    Message, Model, ModelRegistry, Request, RequestOptions, StreamEvent, ThinkingLevel, json,
};
use pi_nvim::testing::http::{End, Response, Server};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// An environment with these variables.
pub fn env(pairs: &[(&str, &str)]) -> EnvLookup {
    let pairs: Vec<(String, String)> = pairs
        .iter()
        .map(|(k, v)| ((*k).into(), (*v).into()))
        .collect();
    Arc::new(move |name| {
        pairs
            .iter()
            .find(|(have, _)| have == name)
            .map(|(_, value)| value.clone())
    })
}

/// A registry over an empty folder.
pub fn registry() -> (tempfile::TempDir, ModelRegistry) {
    let dir = tempfile::tempdir().unwrap();
    let registry = ModelRegistry::load(dir.path(), env(&[]));
    (dir, registry)
}

/// Reads all cases of a folder, in order of their names.
pub fn cases(folder: &Path) -> Vec<(String, Value)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let read = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        (name, value)
    };
    files.into_iter().map(read).collect()
}

/// The scripted responses of a case.
pub fn script(case: &Value) -> Vec<Response> {
    case["served"]
        .as_array()
        .unwrap()
        .iter()
        .map(response)
        .collect()
}

fn response(served: &Value) -> Response {
    let headers = served["headers"].as_object().into_iter().flatten();
    let splits: Vec<usize> = served["split_at"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|at| at.as_u64().unwrap() as usize)
        .collect();
    let end = match served["end"].as_str().unwrap_or("close") {
        "close" => End::Close,
        "reset" => End::Reset,
        "hang" => End::Hang,
        "no_response" => End::NoResponse,
        other => panic!("unknown end {other}"),
    };
    let response = Response {
        status: served["status"].as_u64().unwrap_or(200) as u16,
        headers: headers
            .map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned()))
            .collect(),
        pause: Duration::from_millis(10),
        end,
        ..Response::ok(served["stream"].as_str().unwrap_or_default())
    };
    if splits.is_empty() {
        response
    } else {
        response.split_at(&splits)
    }
}

/// The request of a case against a server.
pub fn request(case: &Value, base: &str) -> Request {
    let mut model = case["model"].clone();
    model["baseUrl"] = model["baseUrl"]
        .as_str()
        .unwrap()
        .replace("{BASE}", base)
        .into();
    let model: Model = serde_json::from_value(model).unwrap();
    let context = match case["context_json"].as_str() {
        Some(text) => json::parse(text).unwrap(),
        None => case["context"].clone(),
    };
    Request {
        model: Arc::new(model),
        messages: messages(&context).into_iter().map(Arc::new).collect(),
        options: options(&case["options"]),
        cancel: CancellationToken::new(),
    }
}

fn messages(context: &Value) -> Vec<Message> {
    let mut out = Vec::new();
    let prompt = context["systemPrompt"].as_str().unwrap_or_default();
    let tools = context["tools"].as_array().cloned().unwrap_or_default();
    if !prompt.is_empty() || !tools.is_empty() {
        let mut system = serde_json::json!({"role": "system", "content": prompt, "timestamp": 0});
        if !tools.is_empty() {
            system["toolsAdded"] = tools.into();
        }
        out.push(Message::from_value(system));
    }
    out.extend(
        context["messages"]
            .as_array()
            .unwrap()
            .iter()
            .cloned()
            .map(Message::from_value),
    );
    out
}

fn options(value: &Value) -> RequestOptions {
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    let mut extra = Map::new();
    for key in [
        "headers",
        "metadata",
        "samplingParams",
        "thinkingBudgets",
        "maxRetries",
        "maxRetryDelayMs",
    ] {
        if let Some(value) = value.get(key) {
            extra.insert(key.into(), value.clone());
        }
    }
    RequestOptions {
        thinking: text("reasoning").map_or(ThinkingLevel::Off, |word| {
            ThinkingLevel::parse(&word).unwrap()
        }),
        max_tokens: value["maxTokens"].as_u64(),
        temperature: value["temperature"].as_f64(),
        session_id: text("sessionId"),
        cache_retention: text("cacheRetention"),
        tool_choice: value.get("toolChoice").cloned(),
        api_key: text("apiKey").map(Into::into),
        extra,
        ..RequestOptions::default()
    }
}

/// Plays a case and returns the events; cancels where the case says so.
pub async fn play(registry: &ModelRegistry, server: &Server, case: &Value) -> Vec<StreamEvent> {
    let request = request(case, &server.url());
    let cancel = request.cancel.clone();
    let abort = &case["abort"];
    let mut stream = registry.provider().stream(request);
    if abort["immediately"] == true {
        cancel.cancel();
    }
    let mut left = abort["count"].as_u64().unwrap_or(0);
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        if abort["after_event"] == super::compare::event_type(&event) {
            left = left.saturating_sub(1);
            if left == 0 {
                cancel.cancel();
            }
        }
        events.push(event);
    }
    events
}
