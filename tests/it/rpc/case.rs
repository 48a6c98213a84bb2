//! One transcript played against the binary: its surroundings, its script, and what came out.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

use super::mock::Mock;

/// Longest time for one transcript.
const LIMIT: Duration = Duration::from_secs(60);

/// What a run gave.
pub(super) struct Run {
    pub(super) stdout: String,
    pub(super) records: Vec<Value>,
    pub(super) stderr: String,
    pub(super) exit: Value,
    pub(super) requests: Vec<Value>,
    pub(super) sessions: Vec<(String, Vec<Value>)>,
    pub(super) files: Map<String, Value>,
    pub(super) settings: Value,
    /// Paths and addresses with the placeholders they stand for, longest first.
    pub(super) places: Vec<(String, &'static str)>,
}

struct Places {
    cwd: PathBuf,
    agent: PathBuf,
    home: PathBuf,
    tmp: PathBuf,
}

fn write_files(root: &Path, files: &Value) {
    for (name, content) in files.as_object().into_iter().flatten() {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes = match content {
            Value::String(text) => text.clone().into_bytes(),
            other => {
                use base64::Engine as _;
                let data = other["base64"].as_str().or(other["base64_data"].as_str());
                match data {
                    Some(data) => base64::engine::general_purpose::STANDARD
                        .decode(data)
                        .unwrap(),
                    None => base64::engine::general_purpose::STANDARD
                        .decode(PIXEL)
                        .unwrap(),
                }
            }
        };
        std::fs::write(path, bytes).unwrap();
    }
}

/// The picture of the transcripts: one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn models(port: u16) -> Value {
    let model = |id: &str, window: u64, most: u64, reasoning: bool| {
        json!({"id": id, "name": id, "reasoning": reasoning, "input": ["text", "image"],
            "cost": {"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 1.25},
            "contextWindow": window, "maxTokens": most})
    };
    json!({"providers": {"mock": {"baseUrl": format!("http://127.0.0.1:{port}/v1"), "api": "openai-completions",
        "apiKey": "test-key", "models": [
            model("mock-1", 200_000, 8192, false), model("mock-think", 200_000, 8192, true),
            model("mock-small", 20_000, 1000, false)]}}})
}

/// Plays a case.
pub(super) async fn play(case: &Value) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let places = Places {
        cwd: root.join("work"),
        agent: root.join("agent"),
        home: root.join("home"),
        tmp: root.join("tmp"),
    };
    for path in [&places.cwd, &places.agent, &places.home, &places.tmp] {
        std::fs::create_dir_all(path).unwrap();
    }
    let script = case["mock_responses"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mock = Mock::start(script).await;
    write_files(&places.cwd, &case["files_before"]);
    write_files(&places.agent, &case["agent_files"]);
    std::fs::write(
        places.agent.join("settings.json"),
        case["settings"].to_string(),
    )
    .unwrap();
    std::fs::write(
        places.agent.join("models.json"),
        models(mock.port).to_string(),
    )
    .unwrap();
    let mut child = spawn(case, &places);
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut errors = child.stderr.take().unwrap();
    let reading = tokio::spawn(async move {
        let mut text = String::new();
        drop(errors.read_to_string(&mut text).await);
        text
    });
    let stdout = if case["mode"] == "rpc" {
        script_rpc(case, &mut child, input, output).await
    } else {
        let text = case["stdin_text"].as_str().unwrap_or_default().to_owned();
        drop(input.write_all(text.as_bytes()).await);
        drop(input);
        if let Some(kill) = case.get("kill").filter(|kill| !kill.is_null()) {
            tokio::time::sleep(Duration::from_millis(kill["after_ms"].as_u64().unwrap())).await;
            send_signal(&child, kill["signal"].as_str().unwrap());
        }
        let mut text = String::new();
        drop(tokio::time::timeout(LIMIT, output.read_to_string(&mut text)).await);
        text
    };
    let exit = match tokio::time::timeout(LIMIT, child.wait()).await {
        Ok(status) => json!({"code": status.unwrap().code(), "signal": null}),
        Err(_) => {
            drop(child.kill().await);
            json!({"code": "it did not end", "signal": null})
        }
    };
    let stderr = reading.await.unwrap();
    let records = stdout
        .split('\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            serde_json::from_str(line).unwrap_or_else(|_| json!({"type": "NOT JSON", "line": line}))
        })
        .collect();
    Run {
        records,
        stderr,
        exit,
        requests: mock.requests(),
        sessions: sessions(&places.agent),
        files: files(&places.cwd),
        settings: serde_json::from_slice(
            &std::fs::read(places.agent.join("settings.json")).unwrap(),
        )
        .unwrap(),
        places: placeholders(&places, mock.port),
        stdout,
    }
}

fn spawn(case: &Value, places: &Places) -> Child {
    let argv: Vec<&str> = case["argv"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    Command::new(env!("CARGO_BIN_EXE_pi-nvim"))
        .args(argv)
        .current_dir(&places.cwd)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", &places.home)
        .env("TMPDIR", &places.tmp)
        .env("XDG_STATE_HOME", places.home.join("state"))
        .env("PI_CODING_AGENT_DIR", &places.agent)
        .env("PI_OFFLINE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

fn send_signal(child: &Child, name: &str) {
    let signal = match name {
        "SIGHUP" => rustix::process::Signal::HUP,
        "SIGINT" => rustix::process::Signal::INT,
        _ => rustix::process::Signal::TERM,
    };
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Plays the script of an rpc case and returns all of stdout.
async fn script_rpc(
    case: &Value,
    child: &mut Child,
    input: ChildStdin,
    output: tokio::process::ChildStdout,
) -> String {
    let (tell, mut lines) = mpsc::unbounded_channel::<String>();
    let reading = tokio::spawn(async move {
        let mut output = BufReader::new(output);
        let mut all = Vec::new();
        loop {
            let from = all.len();
            match output.read_until(b'\n', &mut all).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {
                    let line = String::from_utf8_lossy(&all[from..]).into_owned();
                    drop(tell.send(line));
                }
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    });
    let mut seen: Vec<Value> = Vec::new();
    let mut waited = 0;
    let (mut input, mut signalled) = (Some(input), false);
    for step in case["stdin_records"].as_array().unwrap() {
        let mut next = async |seen: &mut Vec<Value>| match tokio::time::timeout(
            Duration::from_secs(20),
            lines.recv(),
        )
        .await
        {
            Ok(Some(line)) => {
                seen.push(serde_json::from_str(&line).unwrap_or(Value::Null));
                true
            }
            _ => false,
        };
        if let Some(record) = step.get("send") {
            let mut text = fill(record, &seen).to_string();
            text.push('\n');
            write(&mut input, &text).await;
        } else if let Some(text) = step.get("send_raw") {
            write(&mut input, text.as_str().unwrap()).await;
        } else if let Some(wanted) = step.get("wait_for") {
            loop {
                if waited >= seen.len() && !next(&mut seen).await {
                    break;
                }
                waited += 1;
                if contains(&seen[waited - 1], wanted) {
                    break;
                }
            }
        } else if let Some(id) = step.get("wait_response") {
            let is = |record: &Value| record["type"] == "response" && record["id"] == *id;
            while !seen.iter().any(is) {
                if !next(&mut seen).await {
                    break;
                }
            }
            // What came before the response is not waited for any more.
            let at = seen.iter().rposition(is).map_or(0, |at| at + 1);
            waited = waited.max(at);
        } else if let Some(ms) = step.get("sleep_ms") {
            tokio::time::sleep(Duration::from_millis(ms.as_u64().unwrap())).await;
        } else if step.get("close_stdin").is_some() {
            input = None;
        } else if let Some(name) = step.get("signal") {
            send_signal(child, name.as_str().unwrap());
            signalled = true;
        }
    }
    // After a signal the process ends by that: the end of its input must not be quicker.
    let held = if signalled { input.take() } else { None };
    drop(input);
    let text = tokio::time::timeout(LIMIT, reading).await;
    drop(held);
    match text {
        Ok(text) => text.unwrap(),
        Err(_) => String::new(),
    }
}

async fn write(input: &mut Option<ChildStdin>, text: &str) {
    if let Some(input) = input {
        drop(input.write_all(text.as_bytes()).await);
        drop(input.flush().await);
    }
}

fn contains(record: &Value, wanted: &Value) -> bool {
    match wanted {
        Value::Object(fields) => fields
            .iter()
            .all(|(key, value)| contains(&record[key], value)),
        other => record == other,
    }
}

/// Fills in `${id.path}` from responses.
fn fill(value: &Value, seen: &[Value]) -> Value {
    match value {
        Value::String(text) if text.contains("${") => {
            let mut out = text.clone();
            while let Some(start) = out.find("${") {
                let end = out[start..].find('}').unwrap() + start;
                let mut path = out[start + 2..end].split('.');
                let id = path.next().unwrap();
                let response = seen
                    .iter()
                    .rev()
                    .find(|it| it["type"] == "response" && it["id"] == id);
                let found = path.fold(response.cloned().unwrap_or_default(), |at, key| {
                    match key.parse::<usize>() {
                        Ok(index) => at[index].clone(),
                        Err(_) => at[key].clone(),
                    }
                });
                out.replace_range(start..=end, found.as_str().unwrap_or_default());
            }
            Value::String(out)
        }
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), fill(value, seen)))
            .collect(),
        Value::Array(items) => items.iter().map(|item| fill(item, seen)).collect(),
        other => other.clone(),
    }
}

/// Session files in creation order, with their lines.
fn sessions(agent: &Path) -> Vec<(String, Vec<Value>)> {
    let mut paths = Vec::new();
    for folder in std::fs::read_dir(agent.join("sessions"))
        .into_iter()
        .flatten()
        .flatten()
    {
        for file in std::fs::read_dir(folder.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            paths.push(file.path());
        }
    }
    paths.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    paths
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let lines = text.split('\n').filter(|line| !line.is_empty());
            let lines = lines
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            (path.to_string_lossy().into_owned(), lines)
        })
        .collect()
}

fn files(root: &Path) -> Map<String, Value> {
    fn walk(root: &Path, dir: &Path, out: &mut Map<String, Value>) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(root, &path, out);
                continue;
            }
            let name = path
                .strip_prefix(root)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            let bytes = std::fs::read(&path).unwrap();
            let content = match String::from_utf8(bytes) {
                Ok(text) => Value::String(text),
                Err(error) => json!({"base64_bytes": error.as_bytes().len()}),
            };
            out.insert(name, content);
        }
    }
    let mut out = Map::new();
    walk(root, root, &mut out);
    out
}

fn placeholders(places: &Places, port: u16) -> Vec<(String, &'static str)> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let encoded = format!(
        "--{}--",
        text(&places.cwd).trim_start_matches('/').replace('/', "-")
    );
    vec![
        (encoded, "<ENCODED_CWD>"),
        (text(&places.agent), "<AGENT_DIR>"),
        (text(&places.cwd), "<CWD>"),
        (text(&places.home), "<HOME>"),
        (text(&places.tmp), "<TMP>"),
        (format!("127.0.0.1:{port}"), "<MOCK>"),
    ]
}
