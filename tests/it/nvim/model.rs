//! A model server on loopback that plays a script: one entry a request, in the form of the chat-completions API.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::harness::{Nv, Options};

/// One piece of an answer.
#[derive(Clone)]
pub(super) enum Piece {
    /// Text.
    Say(String),
    /// A tool call: id, name, arguments.
    Call(&'static str, &'static str, Value),
    /// Waits until [`Model::go_on`].
    Wait,
}

/// One answer.
#[derive(Clone)]
pub(super) enum Answer {
    /// Pieces that stream.
    Pieces(Vec<Piece>),
    /// An HTTP error.
    Error(u16, String),
    /// Bytes as they are, then the end of the connection; a second part waits for [`Model::go_on`].
    Raw(String, Option<String>),
}

/// An answer of one text.
pub(super) fn say(text: &str) -> Answer {
    Answer::Pieces(vec![Piece::Say(text.to_owned())])
}

/// An answer of one tool call.
pub(super) fn call(id: &'static str, name: &'static str, arguments: Value) -> Answer {
    Answer::Pieces(vec![Piece::Call(id, name, arguments)])
}

#[derive(Default)]
struct Shared {
    script: Mutex<Vec<Answer>>,
    requests: Mutex<Vec<Value>>,
    gate: Notify,
}

/// The server; it ends with the test's runtime.
#[derive(Clone)]
pub(super) struct Model {
    url: String,
    shared: Arc<Shared>,
}

impl Model {
    /// Starts it. When the script is used up it says `done`.
    pub(super) async fn start(script: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            script: Mutex::new(script),
            ..Shared::default()
        });
        tokio::spawn({
            let shared = shared.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, shared.clone()));
                }
            }
        });
        Self { url, shared }
    }

    /// Lets one waiting answer go on.
    pub(super) fn go_on(&self) {
        self.shared.gate.notify_one();
    }

    /// Bodies of the requests so far.
    pub(super) fn requests(&self) -> Vec<Value> {
        self.shared.requests.lock().clone()
    }

    /// Writes the agent directory's files so that this model is the one to ask.
    pub(super) fn install(&self, agent_dir: &std::path::Path) {
        self.install_with(agent_dir, json!({}));
    }

    /// The same with more settings.
    pub(super) fn install_with(&self, agent_dir: &std::path::Path, more: Value) {
        let models = json!({"providers": {"mock": {
            "baseUrl": self.url, "api": "openai-completions", "apiKey": "sk-test-SECRET123",
            "models": [{"id": "m1", "name": "Mock", "contextWindow": 200_000, "maxTokens": 4096,
                "input": ["text"], "reasoning": false,
                "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}}],
        }}});
        let mut settings =
            json!({"defaultProvider": "mock", "defaultModel": "m1", "quietStartup": true});
        if let (Value::Object(settings), Value::Object(more)) = (&mut settings, more) {
            settings.extend(more);
        }
        std::fs::write(agent_dir.join("models.json"), models.to_string()).unwrap();
        std::fs::write(agent_dir.join("settings.json"), settings.to_string()).unwrap();
    }

    /// Starts a Neovim whose backend asks this model.
    pub(super) async fn nvim(&self, options: Options) -> Nv {
        let nv = Nv::start_with(options).await;
        self.install(&nv.root.path().join("agent"));
        nv
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let Some(body) = read_request(&mut stream).await else {
        return;
    };
    shared.requests.lock().push(body);
    let answer = {
        let mut script = shared.script.lock();
        if script.is_empty() {
            say("done")
        } else {
            script.remove(0)
        }
    };
    // The client may hang up at any time: an abort.
    drop(reply(&mut stream, answer, &shared).await);
}

async fn read_request(stream: &mut TcpStream) -> Option<Value> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 65536];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.trim().parse().ok())?
            });
            if body.len() >= length.unwrap_or(0usize) {
                return serde_json::from_str(body).ok().or(Some(Value::Null));
            }
        }
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

async fn reply(stream: &mut TcpStream, answer: Answer, shared: &Shared) -> std::io::Result<()> {
    let pieces = match answer {
        Answer::Error(status, body) => {
            let head = format!(
                "HTTP/1.1 {status} Error\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            return stream.write_all(head.as_bytes()).await;
        }
        Answer::Raw(first, second) => {
            stream.write_all(first.as_bytes()).await?;
            if let Some(second) = second {
                shared.gate.notified().await;
                stream.write_all(second.as_bytes()).await?;
            }
            return Ok(());
        }
        Answer::Pieces(pieces) => pieces,
    };
    stream
        .write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
        )
        .await?;
    let mut reason = "stop";
    let mut calls = 0;
    for piece in pieces {
        let delta = match piece {
            Piece::Say(text) => json!({ "content": text }),
            Piece::Call(id, name, arguments) => {
                reason = "tool_calls";
                calls += 1;
                json!({"tool_calls": [{"index": calls - 1, "id": id, "type": "function",
                    "function": {"name": name, "arguments": arguments.to_string()}}]})
            }
            Piece::Wait => {
                shared.gate.notified().await;
                continue;
            }
        };
        send(
            stream,
            &json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}),
        )
        .await?;
    }
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110});
    let last =
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage});
    send(stream, &last).await?;
    stream.write_all(b"data: [DONE]\n\n").await
}

async fn send(stream: &mut TcpStream, event: &Value) -> std::io::Result<()> {
    stream
        .write_all(format!("data: {event}\n\n").as_bytes())
        .await
}
