//! Against model servers that others wrote. Runs only when `scripts/interop_providers.py` started them and named their
//! addresses in `PI_NVIM_INTEROP` (a JSON object); without it the test says so and does nothing.

use std::sync::Arc;

use futures::StreamExt;
use pi_nvim::ai::{
    AssistantMessage, Block, Message, Model, Request, RequestOptions, StopReason, StreamEvent,
    ThinkingLevel, retry,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support;

const APIS: [&str; 4] = [
    "openai-completions",
    "openai-responses",
    "anthropic-messages",
    "google-generative-ai",
];

/// Addresses of the servers; `None` = not started.
fn servers() -> Option<Value> {
    let text = std::env::var("PI_NVIM_INTEROP").ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

/// The base URL of an API at a server: the two servers use different paths.
fn base(servers: &Value, server: &str, api: &str) -> String {
    let url = servers[server].as_str().unwrap();
    let path = match (server, api) {
        ("aimock", "anthropic-messages") => "",
        ("aimock", "google-generative-ai") => "/v1beta",
        (_, "anthropic-messages") => "/anthropic",
        (_, "google-generative-ai") => "/gemini/v1beta",
        _ => "/v1",
    };
    format!("{url}{path}")
}

fn model(api: &str, base: String) -> Model {
    let id = if api == "google-generative-ai" {
        "gemini-interop"
    } else {
        "interop"
    };
    let value = json!({
        "id": id, "name": id, "api": api, "provider": "mock", "baseUrl": base, "input": ["text"], "reasoning": true,
        "contextWindow": 100_000, "maxTokens": 4000,
    });
    serde_json::from_value(value).unwrap()
}

fn tools() -> Message {
    let parameters =
        json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    Message::from_value(json!({
        "role": "system", "content": "You are a test.", "timestamp": 0,
        "toolsAdded": [{"name": "read", "description": "Read a file", "parameters": parameters}],
    }))
}

async fn ask(model: Model, messages: Vec<Message>) -> AssistantMessage {
    let (_dir, registry) = support::registry();
    let request = Request {
        model: Arc::new(model),
        messages: messages.into_iter().map(Arc::new).collect(),
        options: RequestOptions {
            api_key: Some("interop-key-1".into()),
            thinking: ThinkingLevel::Low,
            ..RequestOptions::default()
        },
        cancel: CancellationToken::new(),
    };
    let events: Vec<StreamEvent> = registry.provider().stream(request).collect().await;
    match events.last() {
        Some(StreamEvent::Done(message) | StreamEvent::Error(message)) => (**message).clone(),
        other => panic!("{other:?}"),
    }
}

fn user(text: &str) -> Message {
    Message::from_value(json!({"role": "user", "content": text, "timestamp": 1}))
}

fn said(message: &AssistantMessage) -> String {
    message.content.iter().filter_map(Block::as_text).collect()
}

fn results(message: &AssistantMessage) -> Vec<Message> {
    let result = |call: &pi_nvim::ai::message::ToolCall| {
        let content = json!([{"type": "text", "text": "A"}]);
        Message::from_value(json!({
            "role": "toolResult", "toolCallId": call.id, "toolName": call.name, "content": content, "isError": false,
            "timestamp": 2,
        }))
    };
    message.tool_calls().map(result).collect()
}

/// Asks, answers the calls, and asks again; returns both answers.
async fn tool_loop(model: Model, prompt: &str) -> (AssistantMessage, AssistantMessage) {
    let mut messages = vec![tools(), user(prompt)];
    let first = ask(model.clone(), messages.clone()).await;
    messages.push(Message::Assistant(first.clone()));
    messages.extend(results(&first));
    (first, ask(model, messages).await)
}

/// Asks until the fault shows: the place of a cut is drawn by lot, and one after the last event breaks nothing.
async fn broken(model: Model) -> AssistantMessage {
    for _ in 0..20 {
        let message = ask(model.clone(), vec![user("hello")]).await;
        if message.stop_reason != StopReason::Stop {
            return message;
        }
    }
    panic!("the server never broke a stream");
}

#[tokio::test]
async fn mock_servers_of_others() {
    let Some(servers) = servers() else {
        println!("skipped: scripts/interop_providers.py starts the servers and runs this");
        return;
    };
    for api in APIS {
        let at = |server: &str| model(api, base(&servers, server, api));
        let hello = ask(at("aimock"), vec![tools(), user("hello")]).await;
        assert_eq!(
            said(&hello),
            "Hello from the mock, grüße 🙂",
            "{api}: {hello:?}"
        );
        assert_eq!(hello.stop_reason, StopReason::Stop, "{api}");
        let (first, second) = tool_loop(at("aimock"), "read the file").await;
        let paths: Vec<Value> = first
            .tool_calls()
            .map(|call| call.arguments["path"].clone())
            .collect();
        assert_eq!(paths, ["a", "b"], "{api}: {first:?}");
        assert_eq!(said(&second), "The file says A.", "{api}: {second:?}");
        let thinking = ask(at("aimock"), vec![user("think")]).await;
        let thought = thinking
            .content
            .iter()
            .any(|block| matches!(block, Block::Thinking(b) if b.thinking == "let me see"));
        assert!(thought && said(&thinking) == "done", "{api}: {thinking:?}");
        let limited = ask(at("aimock"), vec![user("limit")]).await;
        let why = limited.error_message.clone().unwrap_or_default();
        assert!(
            why.contains("429") && why.contains("slow down"),
            "{api}: {why}"
        );
        assert!(retry::is_retryable(&limited, 0), "{api}: {why}");
        println!("ok   aimock {api}: text, two calls, follow-up, thinking, 429");

        let (first, second) = tool_loop(at("llmock"), "read the file").await;
        assert_eq!(first.tool_calls().count(), 1, "{api}: {first:?}");
        assert!(
            second.stop_reason == StopReason::Stop && !said(&second).is_empty(),
            "{api}: {second:?}"
        );
        for (fault, mark) in [
            ("limited", "429"),
            ("truncate", ""),
            ("malformed", ""),
            ("disconnect", ""),
        ] {
            let message = broken(at(fault)).await;
            let why = message.error_message.clone().unwrap_or_default();
            assert!(
                why.contains(mark) && retry::is_retryable(&message, 0),
                "{api} {fault}: {message:?}"
            );
        }
        println!("ok   llmock {api}: tool loop, 429, truncated, malformed and broken streams");
    }
}
