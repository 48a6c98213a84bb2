//! No key in anything the program says or writes: the binary is asked over every wire API, by a server that gives the key
//! back in every way it can, and then everything that came out is searched.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use pi_nvim::testing::http::{Response, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const SECRET: &str = "sk-test-SECRET123";
/// A secret that only a header of models.json carries.
const HEADER_SECRET: &str = "hdr-SECRET456-x";
const APIS: [&str; 4] = [
    "openai-completions",
    "anthropic-messages",
    "openai-responses",
    "google-generative-ai",
];

/// A running `pi-nvim --mode rpc` in folders of its own.
struct Rpc {
    root: PathBuf,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    said: String,
}

impl Rpc {
    fn start(root: &Path, port: u16) -> Self {
        let agent = root.join("agent");
        for dir in [&agent, &root.join("work"), &root.join("tmp")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let providers: serde_json::Map<String, Value> = APIS
            .iter()
            .map(|api| {
                let provider = json!({
                    "baseUrl": format!("http://127.0.0.1:{port}/{api}"), "api": api, "headers": {"x-gateway-token": HEADER_SECRET},
                    "models": [{"id": "m"}],
                });
                (format!("p-{api}"), provider)
            })
            .collect();
        let keys: serde_json::Map<String, Value> = APIS
            .iter()
            .map(|api| {
                (
                    format!("p-{api}"),
                    json!({"type": "api_key", "key": SECRET}),
                )
            })
            .collect();
        let settings = json!({"retry": {"enabled": false}, "defaultProvider": "p-openai-completions", "defaultModel": "m"});
        let write =
            |name: &str, value: Value| std::fs::write(agent.join(name), value.to_string()).unwrap();
        write("models.json", json!({"providers": providers}));
        write("auth.json", keys.into());
        write("settings.json", settings);
        let mut child = Command::new(env!("CARGO_BIN_EXE_pi-nvim"))
            .args(["--mode", "rpc"])
            .current_dir(root.join("work"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", root)
            .env("TMPDIR", root.join("tmp"))
            .env("XDG_STATE_HOME", root.join("state"))
            .env("PI_CODING_AGENT_DIR", &agent)
            .env("PI_OFFLINE", "1")
            .env("PI_NVIM_LOG", "trace")
            .env("RUST_LOG", "trace")
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            root: root.to_owned(),
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            said: String::new(),
        }
    }

    /// Sends a command and reads up to a record of this type.
    async fn ask(&mut self, command: Value, until: &str) -> Value {
        let line = format!("{command}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
        let read = async {
            loop {
                let mut line = String::new();
                assert!(
                    self.output.read_line(&mut line).await.unwrap() > 0,
                    "it ended: {}",
                    self.said
                );
                self.said.push_str(&line);
                let record: Value = serde_json::from_str(&line).unwrap();
                if record["type"] == until {
                    return record;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), read)
            .await
            .unwrap()
    }

    /// Ends it; returns all it said on both channels.
    async fn end(mut self) -> (PathBuf, String) {
        drop(self.input);
        self.output.read_to_string(&mut self.said).await.unwrap();
        let mut errors = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut errors).await.unwrap();
        assert!(self.child.wait().await.unwrap().success());
        (self.root, self.said + &errors)
    }
}

/// Every way in which a server may give the secrets back: refusals in JSON, HTML, headers and URLs, and errors in a stream.
fn echoes() -> Vec<Response> {
    let both = format!("{SECRET} {HEADER_SECRET}");
    let message = format!("Incorrect API key provided: {both}");
    let refused =
        json!({"error": {"message": message, "type": "invalid_request_error", "code": SECRET}})
            .to_string();
    let escaped = both.replace('-', "%2D");
    let in_stream = [
        json!({"error": {"message": message, "code": 401}}),
        json!({"type": "error", "error": {"type": SECRET, "message": message}}),
        json!({"type": "error", "code": SECRET, "message": message}),
    ];
    let stream = |value: &Value| Response::ok(format!("event: error\ndata: {value}\n\n"));
    let mut all = vec![
        Response::status(401, refused),
        Response::status(403, format!("<html><b>{both}</b></html>")).header("x-echo", SECRET),
        Response::status(400, format!("{{\"error\":\"bad url ?key={escaped}\"}}")),
        Response::status(500, "").header("location", &format!("/{SECRET}")),
        Response::ok(format!("data: {{oops {both}\n\n")),
        Response::ok(format!("{both} is no event stream")),
    ];
    all.extend(in_stream.iter().map(stream));
    all
}

/// All files below a folder but those that hold the secrets by order of the person.
fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, out);
        } else if !path.ends_with("agent/auth.json") && !path.ends_with("agent/models.json") {
            out.push(path);
        }
    }
}

fn assert_clean(what: &str, text: &str) {
    for secret in ["SECRET123", "SECRET456"] {
        if let Some((before, after)) = text.split_once(secret) {
            let tail: String = before.chars().rev().take(120).collect();
            let tail: String = tail.chars().rev().collect();
            let head: String = after.chars().take(60).collect();
            panic!("{what} holds a secret: {tail}[here]{head}");
        }
    }
}

#[tokio::test]
async fn no_face_file_or_log_holds_a_key_that_servers_give_back() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let server = Server::start(Vec::new()).await.unwrap();
    let mut rpc = Rpc::start(&root, server.port());
    let mut failures = 0;
    for api in APIS {
        let set = json!({"type": "set_model", "provider": format!("p-{api}"), "modelId": "m"});
        let answer = rpc.ask(set, "response").await;
        assert_eq!(answer["success"], true, "{answer}");
        for response in echoes() {
            server.set_script(vec![response]);
            let before = rpc.said.len();
            rpc.ask(
                json!({"type": "prompt", "message": "hello"}),
                "agent_settled",
            )
            .await;
            let said = &rpc.said[before..];
            assert!(said.contains("\"stopReason\":\"error\""), "{api}: {said}");
            failures += 1;
        }
    }
    assert_eq!(failures, 36);
    // What was sent is what the masks are about.
    let sent = server.requests();
    assert!(sent.iter().all(|request| {
        request
            .headers
            .iter()
            .any(|(_, value)| value.contains(SECRET))
            && request.header("x-gateway-token") == Some(HEADER_SECRET)
    }));
    let args = json!({"type": "bash", "command": "cat /proc/$PPID/cmdline /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"});
    rpc.ask(args, "response").await;
    rpc.ask(json!({"type": "get_messages"}), "response").await;
    let page = root.join("page.html");
    let export = rpc
        .ask(
            json!({"type": "export_html", "outputPath": page}),
            "response",
        )
        .await;
    assert_eq!(export["success"], true, "{export}");
    let (root, said) = rpc.end().await;
    assert_clean("an event or the standard error", &said);
    let mut found = Vec::new();
    files(&root, &mut found);
    let named = |part: &str| {
        found
            .iter()
            .any(|path| path.to_string_lossy().contains(part))
    };
    assert!(
        named(".jsonl") && named("page.html") && named("pi-nvim.log"),
        "{found:?}"
    );
    let mut masked = 0;
    for path in &found {
        let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        assert_clean(&path.display().to_string(), &text);
        masked += text.matches("[secret]").count();
    }
    assert!(masked > 36, "the echoes never arrived");
}
