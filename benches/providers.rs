//! Reading answers: each wire API's decoder beside a bare scan for line ends of the same bytes, the cost of one token,
//! and turns over one connection.
//!
//! `cargo bench --bench providers`; numbers stand in `doc/benchmarks.md`.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "a bench")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures::StreamExt;
use pi_nvim::ai::{Message, Model, ModelRegistry, Request, RequestOptions, StreamEvent};
use pi_nvim::testing::decode::decode;
use pi_nvim::testing::http::{Response, Server};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Tokens of one answer.
const TOKENS: usize = 10_000;
/// Size of one read from a socket.
const PIECE: usize = 16 * 1024;

fn data(value: Value) -> String {
    format!("data: {value}\n\n")
}

fn named(name: &str, value: Value) -> String {
    format!("event: {name}\ndata: {value}\n\n")
}

/// An answer of many small pieces of text, as each API sends it.
fn body(api: &str) -> String {
    let words = ["the ", "quick ", "brown\\n", "füchs ", "jumps "];
    let tokens = words.into_iter().cycle().take(TOKENS);
    match api {
        "openai-completions" => {
            let chunk = |delta: Value, finish: Value| {
                data(json!({
                    "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
                }))
            };
            let text: String = tokens
                .map(|word| chunk(json!({"content": word}), Value::Null))
                .collect();
            text + &chunk(json!({}), "stop".into()) + "data: [DONE]\n\n"
        }
        "anthropic-messages" => {
            let text: String = tokens
                .map(|word| {
                    let delta = json!({"type": "text_delta", "text": word});
                    named(
                        "content_block_delta",
                        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
                    )
                })
                .collect();
            named(
                "message_start",
                json!({"type": "message_start", "message": {"id": "a", "model": "m"}}),
            ) + &named(
                "content_block_start",
                json!({"index": 0, "content_block": {"type": "text", "text": ""}}),
            ) + &text
                + &named("content_block_stop", json!({"index": 0}))
                + &named(
                    "message_delta",
                    json!({"delta": {"stop_reason": "end_turn"}}),
                )
                + &named("message_stop", json!({}))
        }
        "openai-responses" => {
            let text: String = tokens
                .map(|word| {
                    named(
                        "response.output_text.delta",
                        json!({
                            "type": "response.output_text.delta", "sequence_number": 4, "output_index": 0,
                            "item_id": "msg_1", "content_index": 0, "delta": word,
                        }),
                    )
                })
                .collect();
            let item = json!({"id": "msg_1", "type": "message", "content": []});
            data(json!({"type": "response.output_item.added", "output_index": 0, "item": item}))
                + &text
                + &data(
                    json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
                )
                + &data(
                    json!({"type": "response.completed", "response": {"id": "r", "status": "completed"}}),
                )
        }
        _ => {
            let chunk = |text: &str, finish: Value| {
                let content = json!({"parts": [{"text": text}], "role": "model"});
                data(json!({
                    "candidates": [{"content": content, "finishReason": finish, "index": 0}], "responseId": "r",
                    "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 6, "totalTokenCount": 26},
                }))
            };
            tokens
                .map(|word| chunk(word, Value::Null))
                .collect::<String>()
                + &chunk("", "STOP".into())
        }
    }
}

fn parse(c: &mut Criterion) {
    for api in [
        "openai-completions",
        "anthropic-messages",
        "openai-responses",
        "google-generative-ai",
    ] {
        let body = body(api);
        let (message, events) = decode(api, body.as_bytes(), PIECE).unwrap();
        assert!(events > TOKENS && !message.content.is_empty());
        let mut group = c.benchmark_group(format!("parse/{api}"));
        group.sample_size(10);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function("line-scan", |b| {
            b.iter(|| {
                black_box(body.as_bytes())
                    .split(|byte| *byte == b'\n')
                    .filter(|line| !line.is_empty())
                    .count()
            });
        });
        group.bench_function("decode-bytes", |b| {
            b.iter(|| decode(api, black_box(body.as_bytes()), PIECE));
        });
        group.throughput(Throughput::Elements(TOKENS as u64));
        group.bench_function("decode-tokens", |b| {
            b.iter(|| decode(api, black_box(body.as_bytes()), PIECE));
        });
        group.finish();
    }
}

fn model(base: &str) -> Arc<Model> {
    let value = json!({
        "id": "m", "name": "m", "api": "openai-completions", "provider": "bench", "baseUrl": base, "input": ["text"],
        "contextWindow": 100_000, "maxTokens": 1000,
    });
    Arc::new(serde_json::from_value(value).unwrap())
}

async fn turn(registry: &ModelRegistry, base: &str) -> usize {
    let request = Request {
        model: model(base),
        messages: vec![Message::from_value(json!({"role": "user", "content": "hi"})).into()],
        options: RequestOptions {
            api_key: Some("bench-key".into()),
            ..RequestOptions::default()
        },
        cancel: CancellationToken::new(),
    };
    let events: Vec<StreamEvent> = registry.provider().stream(request).collect().await;
    events.len()
}

fn over_http(c: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let registry = ModelRegistry::load(dir.path(), Arc::new(|_: &str| None));
    let long = body("openai-completions");
    let cuts: Vec<usize> = (PIECE..long.len()).step_by(PIECE).collect();
    let response = Response {
        pause: std::time::Duration::ZERO,
        ..Response::ok(long)
    }
    .split_at(&cuts);
    let server = runtime.block_on(Server::start(vec![response])).unwrap();
    let mut group = c.benchmark_group("http");
    group.sample_size(10);
    group.throughput(Throughput::Elements(TOKENS as u64));
    group.bench_function("tokens", |b| {
        b.iter(|| runtime.block_on(turn(&registry, &server.url())));
    });
    let short = Response::ok(
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    );
    let server = runtime.block_on(Server::start(vec![short])).unwrap();
    group.throughput(Throughput::Elements(50));
    group.bench_function("50-turns", |b| {
        b.iter(|| {
            runtime.block_on(async {
                for _ in 0..50 {
                    turn(&registry, &server.url()).await;
                }
            });
        });
    });
    assert_eq!(server.connections(), 1, "all turns share one connection");
    group.finish();
}

criterion_group!(benches, parse, over_http);
criterion_main!(benches);
