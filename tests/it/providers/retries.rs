//! Failures that pass, end to end: a server on loopback, the real provider, the runtime, and the events that faces count
//! down from.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pi_nvim::ai::{Block, Message};
use pi_nvim::session::{Command, Event, Runtime, RuntimeConfig};
use pi_nvim::testing::http::{Response, Server};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::support;

/// Longest wait for an event; only a broken program takes that long.
const PATIENCE: Duration = Duration::from_secs(30);

struct Talk {
    _home: tempfile::TempDir,
    _agent: tempfile::TempDir,
    server: Server,
    runtime: Runtime,
    events: mpsc::Receiver<Arc<Event>>,
}

/// An answer over the chat API.
fn good(text: &str) -> Response {
    Response::ok(format!(
        "data: {}\n\ndata: [DONE]\n\n",
        json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]})
    ))
}

fn busy() -> Response {
    Response::status(429, r#"{"error":{"message":"slow down"}}"#)
}

impl Talk {
    /// A session with these settings of `retry`, whose model answers by the script.
    async fn start(retry: Value, script: Vec<Response>) -> Self {
        let server = Server::start(script).await.unwrap();
        let home = tempfile::tempdir().unwrap();
        let own = home.path().join(".pi-nvim");
        std::fs::create_dir_all(&own).unwrap();
        let settings = json!({"retry": retry}).to_string();
        std::fs::write(own.join("settings.json"), settings).unwrap();
        let (agent, registry) = support::registry();
        registry.set_runtime_key("mine", "sk-test-SECRET123".into());
        let model = json!({
            "id": "m", "name": "m", "api": "openai-completions", "provider": "mine", "baseUrl": server.url(),
            "input": ["text"], "contextWindow": 100_000, "maxTokens": 1000,
        });
        let model = Arc::new(serde_json::from_value(model).unwrap());
        let config = RuntimeConfig::in_memory(home.path(), registry.provider(), model);
        let runtime = Runtime::start(config).unwrap();
        let events = runtime.subscribe(1000);
        runtime.request(Command::prompt("hi")).await.unwrap();
        Self {
            _home: home,
            _agent: agent,
            server,
            runtime,
            events,
        }
    }

    /// Returns what `pick` makes of the first event that it wants.
    async fn next<T>(&mut self, pick: impl Fn(&Event) -> Option<T>) -> T {
        let wait = async {
            loop {
                let event = self.events.recv().await.unwrap();
                if let Some(found) = pick(&event) {
                    return found;
                }
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap()
    }

    /// The announced wait: attempt, milliseconds, error.
    async fn announced(&mut self) -> (u32, u64, String) {
        self.next(|event| match event {
            Event::RetryStart {
                attempt,
                delay_ms,
                error,
                ..
            } => Some((*attempt, *delay_ms, error.clone())),
            _ => None,
        })
        .await
    }

    /// How the attempts ended: success, number, error.
    async fn ended(&mut self) -> (bool, u32, Option<String>) {
        self.next(|event| match event {
            Event::RetryEnd {
                success,
                attempt,
                error,
            } => Some((*success, *attempt, error.clone())),
            _ => None,
        })
        .await
    }

    async fn settled(&mut self) {
        self.next(|event| matches!(event, Event::AgentSettled { .. }).then_some(()))
            .await;
    }

    /// The last request's messages as text.
    fn sent(&self) -> String {
        let requests = self.server.requests();
        String::from_utf8(requests.last().unwrap().body.clone()).unwrap()
    }
}

#[tokio::test]
async fn the_wait_a_server_asks_for_is_announced_and_kept() {
    let wait = busy().header("retry-after-ms", "120");
    let mut talk = Talk::start(json!({"baseDelayMs": 1}), vec![wait, good("second")]).await;
    let (attempt, delay, error) = talk.announced().await;
    let told = Instant::now();
    assert_eq!((attempt, delay), (1, 120));
    assert!(
        error.contains("429") && error.contains("slow down"),
        "{error}"
    );
    let text = talk
        .next(|event| match event {
            Event::MessageEnd { message, .. } => match &**message {
                Message::Assistant(answer) => answer
                    .content
                    .first()
                    .and_then(Block::as_text)
                    .map(str::to_owned),
                _ => None,
            },
            _ => None,
        })
        .await;
    assert_eq!(text, "second");
    // Told a moment before the wait began; a little less than the whole is what is left of it here.
    assert!(
        told.elapsed() >= Duration::from_millis(100),
        "{:?}",
        told.elapsed()
    );
    assert_eq!(talk.ended().await, (true, 1, None));
    talk.settled().await;
    assert_eq!(talk.server.requests().len(), 2);
    assert!(!talk.sent().contains("slow down"));
}

#[tokio::test]
async fn seconds_dates_and_nonsense() {
    let date = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(40));
    for (value, from, to) in [
        ("7", 7000, 7000),
        (date.as_str(), 30_000, 40_000),
        ("soon", 25, 25),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 25, 25),
    ] {
        let wait = busy().header("retry-after", value);
        let mut talk = Talk::start(json!({"baseDelayMs": 25}), vec![wait, good("ok")]).await;
        let (_, delay, _) = talk.announced().await;
        assert!((from..=to).contains(&delay), "{value}: {delay} ms");
        talk.runtime.request(Command::Abort).await.unwrap();
        talk.runtime.shutdown().await;
    }
}

#[tokio::test]
async fn a_long_wait_is_capped() {
    let wait = busy().header("retry-after", "3600");
    let settings = json!({"baseDelayMs": 1, "maxAgentDelayMs": 30});
    let mut talk = Talk::start(settings, vec![wait, good("ok")]).await;
    assert_eq!(talk.announced().await.1, 30);
    assert_eq!(talk.ended().await, (true, 1, None));
}

#[tokio::test]
async fn a_wait_can_be_left_by_both_commands() {
    for leave in [Command::Abort, Command::AbortRetry] {
        let wait = busy().header("retry-after", "30");
        let mut talk = Talk::start(json!({}), vec![wait, good("later")]).await;
        assert_eq!(talk.announced().await.1, 30_000);
        let began = Instant::now();
        talk.runtime.request(leave).await.unwrap();
        let (success, attempt, error) = talk.ended().await;
        assert_eq!((success, attempt), (false, 1));
        assert_eq!(error.as_deref(), Some("Retry cancelled"));
        talk.settled().await;
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(talk.server.requests().len(), 1);
        // The session lives on.
        talk.runtime
            .request(Command::prompt("again"))
            .await
            .unwrap();
        talk.settled().await;
        assert!(talk.sent().contains("again"));
    }
}

#[tokio::test]
async fn a_server_that_stays_broken_is_asked_four_times() {
    for status in [500, 429] {
        let broken = Response::status(status, r#"{"error":{"message":"broken"}}"#);
        let settings = json!({"baseDelayMs": 50, "maxRetries": 3});
        let mut talk = Talk::start(settings, vec![broken]).await;
        for expected in [(1, 50), (2, 100), (3, 200)] {
            let (attempt, delay, _) = talk.announced().await;
            assert_eq!((attempt, delay), expected);
        }
        let (success, attempt, error) = talk.ended().await;
        assert_eq!((success, attempt), (false, 3));
        assert!(error.unwrap().contains(&status.to_string()));
        talk.settled().await;
        assert_eq!(talk.server.requests().len(), 4);
    }
}

#[tokio::test]
async fn the_text_of_a_broken_answer_is_not_sent_again() {
    let begun = r#"data: {"choices":[{"index":0,"delta":{"content":"half a sentence"}}]}"#;
    let cut = Response {
        keep_alive: false,
        ..Response::ok(format!("{begun}\n\n"))
    };
    let mut talk = Talk::start(json!({"baseDelayMs": 1}), vec![cut, good("whole")]).await;
    talk.announced().await;
    talk.settled().await;
    assert!(!talk.sent().contains("half a sentence"), "{}", talk.sent());
}

#[tokio::test]
async fn a_spent_quota_is_not_asked_for_again() {
    let spent = Response::status(
        429,
        r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#,
    )
    .header("retry-after", "1");
    let mut talk = Talk::start(json!({"baseDelayMs": 1}), vec![spent]).await;
    let announced = talk
        .next(|event| match event {
            Event::RetryStart { .. } => Some(true),
            Event::AgentSettled { .. } => Some(false),
            _ => None,
        })
        .await;
    assert!(!announced);
    assert_eq!(talk.server.requests().len(), 1);
}
