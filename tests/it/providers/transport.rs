//! What happens between us and a server: pieces, silence, breaks, retries, reuse.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use pi_nvim::ai::http::HttpSettings;
use pi_nvim::ai::{
    AssistantMessage, Block, Message, Model, ModelRegistry, Request, RequestOptions, StopReason,
};
use pi_nvim::ai::{StreamEvent, retry};
use pi_nvim::testing::http::{End, Response, Server};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::support;
use crate::conformance::data_dir;

fn model(base: &str) -> Model {
    let value = json!({
        "id": "m", "name": "m", "api": "openai-completions", "provider": "mine", "baseUrl": base, "input": ["text"],
        "contextWindow": 100_000, "maxTokens": 1000,
    });
    serde_json::from_value(value).unwrap()
}

pub(super) fn request(base: &str, extra: Value) -> Request {
    Request {
        model: Arc::new(model(base)),
        messages: vec![Message::from_value(json!({"role": "user", "content": "hi"})).into()],
        options: RequestOptions {
            api_key: Some("sk-test-SECRET123".into()),
            extra: extra.as_object().cloned().unwrap_or_else(Map::new),
            ..RequestOptions::default()
        },
        cancel: CancellationToken::new(),
    }
}

fn chunk(delta: Value) -> String {
    format!(
        "data: {}\n\n",
        json!({"id": "c", "choices": [{"index": 0, "delta": delta}]})
    )
}

fn finish(reason: &str) -> String {
    format!(
        "data: {}\n\ndata: [DONE]\n\n",
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    )
}

pub(super) fn text(words: &[&str]) -> String {
    words
        .iter()
        .map(|word| chunk(json!({"content": word})))
        .collect::<String>()
        + &finish("stop")
}

pub(super) async fn last(registry: &ModelRegistry, request: Request) -> AssistantMessage {
    let events: Vec<StreamEvent> = registry.provider().stream(request).collect().await;
    match events.last() {
        Some(StreamEvent::Done(message) | StreamEvent::Error(message)) => (**message).clone(),
        other => panic!("{other:?}"),
    }
}

async fn answer(response: Response) -> AssistantMessage {
    let server = Server::start(vec![response]).await.unwrap();
    let (_dir, registry) = support::registry();
    last(&registry, request(&server.url(), json!({}))).await
}

pub(super) fn said(message: &AssistantMessage) -> String {
    message.content.iter().filter_map(Block::as_text).collect()
}

#[tokio::test]
async fn multi_byte_text_survives_every_border() {
    let body = text(&["中文🙂é"]);
    let server = Server::start(Vec::new()).await.unwrap();
    let (_dir, registry) = support::registry();
    let borders = body.find("中").unwrap() - 2..body.find("é").unwrap() + 4;
    for at in borders {
        server.set_script(vec![
            Response {
                pause: Duration::ZERO,
                ..Response::ok(body.clone())
            }
            .split_at(&[at]),
        ]);
        let message = last(&registry, request(&server.url(), json!({}))).await;
        assert_eq!(said(&message), "中文🙂é", "split at {at}");
    }
}

#[tokio::test]
async fn odd_chunks_are_no_trouble() {
    let body =
        ": PROCESSING\n\n:\n\ndata:{\"choices\":null}\r\n\r\ndata: {\"id\":\"c\"}\n\ndata: null\n\n"
            .to_owned()
            + &chunk(json!({"content": "ok"}))
            + ": ping\n"
            + "data: {\"choices\":[{\"index\":0,\"delta\":null,\"finish_reason\":\"stop\"}]}\n\n"
            + "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3,\"total_tokens\":13}}\n\ndata: [DONE]\n\n";
    let message = answer(Response::ok(body)).await;
    assert_eq!(
        (
            said(&message).as_str(),
            message.stop_reason,
            message.usage.total_tokens
        ),
        ("ok", StopReason::Stop, 13)
    );
}

async fn calls(deltas: &[Value], reason: &str) -> Vec<(String, Value, bool)> {
    let body = deltas
        .iter()
        .map(|call| chunk(json!({"tool_calls": call})))
        .collect::<String>()
        + &finish(reason);
    let message = answer(Response::ok(body)).await;
    assert!(message.tool_calls().all(|call| !call.id.is_empty()));
    let shown = |call: &pi_nvim::ai::message::ToolCall| {
        (
            call.name.clone(),
            call.arguments.clone(),
            call.arguments_error.is_some(),
        )
    };
    message.tool_calls().map(shown).collect()
}

#[tokio::test]
async fn calls_in_all_their_forms() {
    let whole =
        |id: &str, args: &str| json!({"id": id, "function": {"name": "bash", "arguments": args}});
    let two = calls(
        &[
            json!([whole("a", "{\"n\":1}")]),
            json!([whole("b", "{\"n\":2}")]),
        ],
        "tool_calls",
    )
    .await;
    assert_eq!(
        two.iter()
            .map(|call| call.1["n"].clone())
            .collect::<Vec<_>>(),
        [1, 2]
    );
    let begun =
        json!([{"id": "a", "index": 0, "function": {"name": "bash", "arguments": "{\"n\""}}]);
    let more = json!([{"index": 0, "function": {"arguments": ":1}"}}]);
    assert_eq!(
        calls(&[begun, more.clone()], "tool_calls").await,
        [("bash".into(), json!({"n": 1}), false)]
    );
    let unnumbered = json!([{"id": "a", "function": {"name": "bash", "arguments": "{\"n\""}}]);
    assert_eq!(
        calls(&[unnumbered, more], "tool_calls").await,
        [("bash".into(), json!({"n": 1}), false)]
    );
    let nameless_id = json!([{"index": 0, "function": {"name": "bash", "arguments": "{}"}}]);
    assert_eq!(
        calls(&[nameless_id], "stop").await,
        [("bash".into(), json!({}), false)]
    );
    let both = json!([whole("a", "{\"n\":1}"), whole("b", "{\"n\":2}")]);
    assert_eq!(calls(&[both], "stop").await.len(), 2);
    let empty = json!([{"index": 0, "id": "a", "function": {"name": "bash", "arguments": ""}}]);
    assert_eq!(
        calls(&[empty.clone(), empty], "tool_calls").await,
        [("bash".into(), json!({}), false)]
    );
    let cut = json!([whole("a", "{\"command\":\"echo hi")]);
    assert_eq!(
        calls(&[cut], "tool_calls").await,
        [("bash".into(), json!({}), true)]
    );
}

#[tokio::test]
async fn a_silent_stream_can_be_left_at_once() {
    for pieces in [
        Vec::new(),
        vec![chunk(json!({"content": "par"})).into_bytes()],
    ] {
        let server = Server::start(vec![Response {
            pieces,
            end: End::Hang,
            ..Response::default()
        }])
        .await
        .unwrap();
        let (_dir, registry) = support::registry();
        let request = request(&server.url(), json!({}));
        let cancel = request.cancel.clone();
        let mut stream = registry.provider().stream(request);
        let first = stream.next().await;
        assert!(matches!(first, Some(StreamEvent::Start(_))), "{first:?}");
        cancel.cancel();
        let began = Instant::now();
        let rest: Vec<StreamEvent> = stream.collect().await;
        let Some(StreamEvent::Error(message)) = rest.last() else {
            panic!("{rest:?}");
        };
        assert_eq!(message.stop_reason, StopReason::Aborted);
        assert!(!retry::is_retryable(message, 0));
        assert!(began.elapsed() < Duration::from_millis(500));
    }
}

#[tokio::test]
async fn silence_has_a_limit() {
    let slow = HttpSettings {
        idle_timeout: Some(Duration::from_millis(80)),
        ..HttpSettings::default()
    };
    let headers = Response {
        pieces: vec![chunk(json!({"content": "par"})).into_bytes()],
        end: End::Hang,
        ..Response::default()
    };
    let server = Server::start(vec![headers]).await.unwrap();
    let (_dir, registry) = support::registry();
    registry.configure(slow.clone());
    let message = last(&registry, request(&server.url(), json!({}))).await;
    assert_eq!(
        (said(&message).as_str(), retry::is_retryable(&message, 0)),
        ("par", true),
        "{message:?}"
    );
    // A server that accepts and never answers.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let message = last(&registry, request(&url, json!({}))).await;
    assert!(
        retry::is_retryable(&message, 0) && message.error_message.unwrap().contains("127.0.0.1")
    );
    drop(listener);
}

#[tokio::test]
async fn slow_bytes_are_no_silence() {
    let body = text(&["a", "b", "c"]);
    let pieces: Vec<usize> = (1..body.len()).step_by(9).collect();
    let server = Server::start(vec![
        Response {
            pause: Duration::from_millis(5),
            ..Response::ok(body)
        }
        .split_at(&pieces),
    ]);
    let server = server.await.unwrap();
    let (_dir, registry) = support::registry();
    registry.configure(HttpSettings {
        idle_timeout: Some(Duration::from_millis(400)),
        ..HttpSettings::default()
    });
    let message = last(&registry, request(&server.url(), json!({}))).await;
    assert_eq!(
        (said(&message).as_str(), message.stop_reason),
        ("abc", StopReason::Stop)
    );
}

#[tokio::test]
async fn a_cut_answer_is_a_retryable_error_that_keeps_its_text() {
    let begun = chunk(json!({"content": "par"})).into_bytes();
    for (end, keep_alive) in [
        (End::Close, true),
        (End::Close, false),
        (End::Reset, true),
        (End::Reset, false),
    ] {
        let message = answer(Response {
            pieces: vec![begun.clone()],
            end,
            keep_alive,
            ..Response::default()
        })
        .await;
        assert_eq!(
            (said(&message).as_str(), &message.stop_reason),
            ("par", &StopReason::Error),
            "{end:?}"
        );
        let why = message.error_message.clone().unwrap();
        assert!(retry::is_retryable(&message, 0), "{end:?}: {why}");
        assert!(!why.contains("decoding"), "{why}");
    }
}

/// An address on loopback where nobody listens.
pub(super) fn free_url() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[tokio::test]
async fn nobody_listens() {
    let url = free_url();
    let (_dir, registry) = support::registry();
    let message = last(&registry, request(&url, json!({}))).await;
    let why = message.error_message.clone().unwrap();
    assert!(
        why.contains("refused") && why.contains("127.0.0.1:"),
        "{why}"
    );
    assert!(retry::is_retryable(&message, 0));
}

#[tokio::test]
async fn the_servers_wait_comes_with_the_error() {
    for (name, value, expected) in [
        ("retry-after", "7", Some(7000)),
        ("retry-after-ms", "1500", Some(1500)),
        ("retry-after", "soon", None),
        ("retry-after", "3600", Some(3_600_000)),
    ] {
        let message = answer(
            Response::status(429, "{\"error\":{\"message\":\"slow down\"}}").header(name, value),
        )
        .await;
        assert_eq!(message.retry_after_ms, expected, "{name}: {value}");
        assert!(retry::is_retryable(&message, 0));
        assert!(
            !serde_json::to_string(&message)
                .unwrap()
                .contains("retryAfter")
        );
    }
    let date = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(30));
    let message = answer(Response::status(503, "{}").header("retry-after", &date)).await;
    assert!((20_000..=30_000).contains(&message.retry_after_ms.unwrap()));
}

#[tokio::test]
async fn provider_retries_stop_at_their_limit_and_can_be_left() {
    let server = Server::start(vec![
        Response::status(500, "{}").header("retry-after-ms", "1"),
    ])
    .await
    .unwrap();
    let (_dir, registry) = support::registry();
    let message = last(&registry, request(&server.url(), json!({"maxRetries": 3}))).await;
    assert_eq!(
        (message.stop_reason, server.requests().len()),
        (StopReason::Error, 4)
    );
    let server = Server::start(vec![
        Response::status(500, "{}").header("retry-after", "30"),
    ])
    .await
    .unwrap();
    let request = request(&server.url(), json!({"maxRetries": 3}));
    let cancel = request.cancel.clone();
    let running = tokio::spawn({
        let registry = registry.clone();
        async move { last(&registry, request).await }
    });
    while server.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    let began = Instant::now();
    assert_eq!(running.await.unwrap().stop_reason, StopReason::Aborted);
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn fifty_turns_share_a_connection() {
    let server = Server::start(vec![Response::ok(text(&["a"]))])
        .await
        .unwrap();
    let (_dir, registry) = support::registry();
    for _ in 0..50 {
        assert_eq!(
            said(&last(&registry, request(&server.url(), json!({}))).await),
            "a"
        );
    }
    assert_eq!((server.requests().len(), server.connections()), (50, 1));
}

#[tokio::test]
async fn settings_are_read_and_keep_connections_open() {
    let read = |value: Value| HttpSettings::from_settings(value.as_object().unwrap());
    assert_eq!(
        read(json!({"httpIdleTimeoutMs": "soon", "httpProxy": "", "retry": 3})),
        HttpSettings::default()
    );
    let off = read(
        json!({"httpIdleTimeoutMs": "disabled", "retry": {"provider": {"maxRetryDelayMs": 0, "maxRetries": 2}}}),
    );
    assert_eq!(
        (off.idle_timeout, off.max_retry_delay, off.max_retries),
        (None, None, 2)
    );
    let server = Server::start(vec![Response::ok(text(&["a"]))])
        .await
        .unwrap();
    let (_dir, registry) = support::registry();
    for idle in [0, 5000] {
        registry.configure(read(json!({"httpIdleTimeoutMs": idle})));
        last(&registry, request(&server.url(), json!({}))).await;
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_redirect_to_another_server_is_not_followed() {
    let other = Server::start(vec![Response::ok(text(&["stolen"]))])
        .await
        .unwrap();
    let away = Response::status(307, "")
        .header("location", &format!("{}/v1/chat/completions", other.url()));
    let message = answer(away).await;
    assert_eq!(message.stop_reason, StopReason::Error);
    assert_eq!(other.requests().len(), 0);
}

/// The events without what differs from run to run.
fn shape(events: Vec<StreamEvent>) -> String {
    let plain = |event| match event {
        StreamEvent::Start(_) => StreamEvent::Start(Box::default()),
        StreamEvent::Done(mut message) | StreamEvent::Error(mut message) => {
            (message.timestamp, message.duration_ms) = (0, None);
            StreamEvent::Done(message)
        }
        event => event,
    };
    format!("{:#?}", events.into_iter().map(plain).collect::<Vec<_>>())
}

/// Plays each answer of an API whole and in pieces of random borders.
async fn split_anyhow(api: &str) {
    let mut seed = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below.max(1) as u64) as usize
    };
    let server = Server::start(Vec::new()).await.unwrap();
    let (_dir, registry) = support::registry();
    for (name, case) in support::cases(&data_dir().join("providers").join(api)) {
        let served = &case["served"][0];
        let whole =
            served["status"] == 200 && served["end"] == "close" && case.get("abort").is_none();
        // Invented ids differ from run to run.
        if !whole || case["expected_message"].to_string().contains("<generated") {
            continue;
        }
        let body = served["stream"].as_str().unwrap();
        let mut cuts: Vec<usize> = (0..24).map(|_| random(body.len())).collect();
        cuts.sort_unstable();
        let mut shapes = Vec::new();
        for cuts in [&[][..], &cuts] {
            let response = Response {
                pause: Duration::ZERO,
                ..Response::ok(body)
            };
            server.set_script(vec![response.split_at(cuts)]);
            shapes.push(shape(support::play(&registry, &server, &case).await));
        }
        assert_eq!(shapes[0], shapes[1], "{api}/{name}, cut at {cuts:?}");
    }
}

#[tokio::test]
async fn any_split_gives_the_same_chat_events() {
    split_anyhow("openai-completions").await;
}

#[tokio::test]
async fn any_split_gives_the_same_messages_events() {
    split_anyhow("anthropic-messages").await;
}

#[tokio::test]
async fn any_split_gives_the_same_responses_events() {
    split_anyhow("openai-responses").await;
}

#[tokio::test]
async fn any_split_gives_the_same_gemini_events() {
    split_anyhow("google-generative-ai").await;
}
