//! The scripted chat-completions server of the transcripts, as their README describes it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Answers requests by a script; ends when dropped.
pub(super) struct Mock {
    pub(super) port: u16,
    requests: Arc<Mutex<Vec<Value>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Mock {
    pub(super) async fn start(script: Vec<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
        let seen = Arc::clone(&requests);
        let script = Arc::new(script);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                tokio::spawn(async move {
                    // A client that went away is the client's business.
                    drop(serve(stream, seen, script).await);
                });
            }
        });
        Self {
            port,
            requests,
            task,
        }
    }

    /// The requests so far: `{method, path, body}`.
    pub(super) fn requests(&self) -> Vec<Value> {
        self.requests.lock().clone()
    }
}

async fn serve(
    stream: TcpStream,
    seen: Arc<Mutex<Vec<Value>>>,
    script: Arc<Vec<Value>>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let mut words = line.split_whitespace();
        let method = words.next().unwrap_or_default().to_owned();
        let path = words.next().unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await?;
            let header = header.trim().to_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(count) = header.strip_prefix("content-length:") {
                length = count.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let model = body["model"].as_str().unwrap_or_default().to_owned();
        let number = {
            let mut seen = seen.lock();
            seen.push(json!({"method": method, "path": path, "body": body}));
            seen.len()
        };
        match script.get(number - 1) {
            Some(answer) => respond(stream.get_mut(), answer, number, &model).await?,
            None => {
                let body = json!({"error": {"message": "mock: script exhausted", "type": "invalid_request_error"}});
                plain(stream.get_mut(), 400, &json!({}), Some(&body)).await?;
            }
        }
    }
}

async fn plain(
    out: &mut TcpStream,
    status: u64,
    headers: &Value,
    body: Option<&Value>,
) -> std::io::Result<()> {
    let body = body.map(ToString::to_string).unwrap_or_default();
    let mut head = format!(
        "HTTP/1.1 {status} Status\r\ncontent-length: {}\r\n",
        body.len()
    );
    if !body.is_empty() {
        head.push_str("content-type: application/json\r\n");
    }
    for (name, value) in headers.as_object().into_iter().flatten() {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    out.write_all(format!("{head}\r\n{body}").as_bytes()).await
}

async fn respond(
    out: &mut TcpStream,
    answer: &Value,
    number: usize,
    model: &str,
) -> std::io::Result<()> {
    if let Some(ms) = answer["delay_ms"].as_u64() {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    if let Some(error) = answer.get("http_error") {
        let status = error["status"].as_u64().unwrap_or(500);
        return plain(out, status, &error["headers"], error.get("body")).await;
    }
    out.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    )
    .await?;
    for event in events(answer) {
        tokio::time::sleep(Duration::from_millis(4)).await;
        match event {
            Event::Chunk(mut body) => {
                let mut chunk = json!({"id": format!("chatcmpl-{number}"), "object": "chat.completion.chunk",
                    "created": 1_700_000_000, "model": model});
                chunk
                    .as_object_mut()
                    .unwrap()
                    .append(body.as_object_mut().unwrap());
                item(out, &chunk.to_string()).await?;
            }
            Event::Raw(text) => item(out, &text).await?,
            Event::Pause(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Event::Hang => {
                // Until the client closes.
                let mut rest = [0; 64];
                while out.read(&mut rest).await? > 0 {}
                return Ok(());
            }
            Event::Drop => {
                out.shutdown().await?;
                return Err(std::io::ErrorKind::ConnectionAborted.into());
            }
        }
    }
    out.write_all(b"0\r\n\r\n").await
}

async fn item(out: &mut TcpStream, data: &str) -> std::io::Result<()> {
    let text = format!("data: {data}\n\n");
    let chunk = format!("{:x}\r\n{text}\r\n", text.len());
    out.write_all(chunk.as_bytes()).await?;
    out.flush().await
}

enum Event {
    Chunk(Value),
    Raw(String),
    Pause(u64),
    Hang,
    Drop,
}

fn pieces(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().unwrap().to_owned())
            .collect(),
        _ => Vec::new(),
    }
}

fn delta(delta: Value) -> Event {
    Event::Chunk(json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

fn events(answer: &Value) -> Vec<Event> {
    let mut out = vec![delta(json!({"role": "assistant", "content": ""}))];
    for piece in pieces(&answer["thinking"]) {
        out.push(delta(json!({"reasoning_content": piece})));
    }
    for piece in pieces(&answer["text"]) {
        out.push(delta(json!({"content": piece})));
    }
    if answer
        .get("hang_after_text")
        .is_some_and(|it| *it != json!(false))
    {
        out.push(Event::Hang);
        return out;
    }
    if let Some(ms) = answer["pause_ms"].as_u64() {
        out.push(Event::Pause(ms));
    }
    let calls = answer["tool_calls"].as_array().cloned().unwrap_or_default();
    for (index, call) in calls.iter().enumerate() {
        out.push(delta(
            json!({"tool_calls": [{"index": index, "id": call["id"], "type": "function",
            "function": {"name": call["name"], "arguments": ""}}]}),
        ));
        let arguments = match &call["arguments"] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let units: Vec<char> = arguments.chars().collect();
        for slice in units.chunks(24) {
            let slice: String = slice.iter().collect();
            out.push(delta(
                json!({"tool_calls": [{"index": index, "function": {"arguments": slice}}]}),
            ));
        }
    }
    if let Some(error) = answer.get("stream_error") {
        out.push(Event::Raw(json!({ "error": error }).to_string()));
        return out;
    }
    if answer.get("drop").is_some_and(|it| *it != json!(false)) {
        out.push(Event::Drop);
        return out;
    }
    let reason = match answer.get("finish_reason") {
        Some(Value::Null) => None,
        Some(reason) => Some(reason.clone()),
        None if calls.is_empty() => Some(json!("stop")),
        None => Some(json!("tool_calls")),
    };
    if let Some(reason) = reason {
        out.push(Event::Chunk(
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
        ));
    }
    let usage = answer.get("usage").cloned().unwrap_or_else(|| json!({}));
    let count = |keys: &[&str], default: u64| {
        keys.iter()
            .find_map(|key| usage[*key].as_u64())
            .unwrap_or(default)
    };
    let prompt = count(&["prompt_tokens", "prompt"], 100);
    let completion = count(&["completion_tokens", "completion"], 10);
    let mut full = json!({"prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion});
    if let Some(cached) = usage.get("cached_tokens") {
        full["prompt_tokens_details"] = json!({ "cached_tokens": cached });
    }
    out.push(Event::Chunk(json!({"choices": [], "usage": full})));
    out.push(Event::Raw("[DONE]".to_owned()));
    out
}
