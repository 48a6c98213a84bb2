//! Reading answers: each wire API's decoder beside a bare scan for line ends of the same bytes, the cost of one token,
//! and turns over one connection.
//!
//! `cargo bench --bench providers`; numbers stand in `doc/benchmarks.md`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group};
use futures::StreamExt;
use pi_nvim::ai::{Message, Model, ModelRegistry, Request, RequestOptions, StreamEvent};
use pi_nvim::session::{Command, Event, Runtime, RuntimeConfig};
use pi_nvim::testing::decode::decode;
use pi_nvim::testing::http::{Response, Server};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Tokens of one answer.
const TOKENS: usize = 10_000;
/// Most processor time that a token should cost from the socket to the event channel. Over twice of it fails.
const TOKEN_TARGET_US: f64 = 5.0;
/// Size of one read from a socket.
const PIECE: usize = 16 * 1024;

const APIS: [&str; 4] = [
    "openai-completions",
    "anthropic-messages",
    "openai-responses",
    "google-generative-ai",
];
/// An answer of one token.
const SHORT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// The least that any reader of lines does.
fn lines(bytes: &[u8]) -> usize {
    bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .count()
}

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
    for api in APIS {
        let body = body(api);
        let (message, events) = decode(api, body.as_bytes(), PIECE).unwrap();
        assert!(events > TOKENS && !message.content.is_empty());
        let mut group = c.benchmark_group(format!("parse/{api}"));
        group.sample_size(10);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function("line-scan", |b| {
            b.iter(|| lines(black_box(body.as_bytes())));
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
        pause: Duration::ZERO,
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
    let short = Response::ok(SHORT);
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
    group.finish();
}

/// Processor time of this thread. Only where the kernel tells it.
fn thread_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// Returns the processor time of one run of `work` in seconds: the least of five rounds of `repeats` runs. The kernel
/// counts in steps of milliseconds, so a round has to take many of them.
fn least_time<T>(repeats: u32, mut work: impl FnMut() -> T) -> Option<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let before = thread_time()?;
        for _ in 0..repeats {
            black_box(work());
        }
        let spent = thread_time()? - before;
        best = best.min(spent.as_secs_f64() / f64::from(repeats));
    }
    Some(best)
}

/// Prints what reading costs in processor time, which other work on the machine changes less than wall time.
fn reading_table() -> Option<()> {
    println!("| API | line scan | decoding | events |\n|---|---|---|---|");
    for api in APIS {
        let body = body(api);
        let megabytes = body.len() as f64 / 1e6;
        let read = || decode(api, black_box(body.as_bytes()), PIECE).map_or(0, |it| it.1);
        let scan = megabytes / least_time(200, || lines(black_box(body.as_bytes())))?;
        let (events, seconds) = (read(), least_time(10, read)?);
        let (rate, events) = (megabytes / seconds, events as f64 / seconds / 1e6);
        println!("| `{api}` | {scan:.0} MB/s | {rate:.0} MB/s | {events:.2} million/s |");
    }
    Some(())
}

/// The connections that 50 turns one after the other take, the best of three rounds: a busy machine may hold back the end of
/// an answer for longer than it is waited for. Twice the target fails.
fn connections() -> bool {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let registry = ModelRegistry::load(dir.path(), Arc::new(|_: &str| None));
    let round = |_| {
        runtime.block_on(async {
            let server = Server::start(vec![Response::ok(SHORT)]).await.unwrap();
            for _ in 0..50 {
                turn(&registry, &server.url()).await;
            }
            server.connections()
        })
    };
    let made = (0..3).map(round).min().unwrap_or(0);
    println!("connections: {made} for 50 turns (target 1)");
    (1..=2).contains(&made)
}

/// Starts a server in a thread of its own, so that its work is not counted as ours; returns its address.
fn server_elsewhere(response: Response) -> String {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let server = Server::start(vec![response]).await.unwrap();
            tell.send(server.url()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    told.recv().unwrap()
}

/// One prompt over HTTP, through provider, loop and event channel, on this thread; processor time and text events.
async fn prompt(base: &str, folder: &std::path::Path) -> Option<(Duration, usize)> {
    let registry = ModelRegistry::load(folder, Arc::new(|_: &str| None));
    registry.set_runtime_key("bench", "bench-key".into());
    let config = RuntimeConfig::in_memory(folder, registry.provider(), model(base));
    let runtime = Runtime::start(config).unwrap();
    let mut events = runtime.subscribe(1000);
    let before = thread_time()?;
    runtime.request(Command::prompt("hi")).await.unwrap();
    let mut pieces = 0;
    while let Some(event) = events.recv().await {
        match &*event {
            Event::MessageUpdate { .. } => pieces += 1,
            Event::AgentSettled { .. } => break,
            _ => {}
        }
    }
    let spent = thread_time()? - before;
    runtime.shutdown().await;
    Some((spent, pieces))
}

/// Prints the figure that has a target, the best of five runs; false when it is over twice the target.
fn token_cost() -> bool {
    let long = body("openai-completions");
    let cuts: Vec<usize> = (PIECE..long.len()).step_by(PIECE).collect();
    let response = Response {
        pause: Duration::ZERO,
        ..Response::ok(long)
    };
    let base = server_elsewhere(response.split_at(&cuts));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let runs: Option<Vec<f64>> = (0..5)
        .map(|_| {
            let folder = tempfile::tempdir().unwrap();
            let (spent, pieces) = runtime.block_on(prompt(&base, folder.path()))?;
            assert!(pieces > 0, "nothing was streamed");
            Some(spent.as_secs_f64() * 1e6 / TOKENS as f64)
        })
        .collect();
    let Some(runs) = runs else {
        println!("token: the processor time of a thread is not told here");
        return true;
    };
    let best = runs.into_iter().fold(f64::INFINITY, f64::min);
    println!("token: {best:.2} us of processor time (target {TOKEN_TARGET_US} us)");
    best <= 2.0 * TOKEN_TARGET_US
}

criterion_group!(benches, parse, over_http);

fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
    // `cargo test --benches` only looks whether everything runs.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    if reading_table().is_none() {
        println!("the processor time of a thread is not told here");
    }
    let good = [token_cost(), connections()];
    if good.contains(&false) {
        println!("a figure is over twice its target");
        std::process::exit(1);
    }
}
