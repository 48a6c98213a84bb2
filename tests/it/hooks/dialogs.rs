//! The extension UI protocol over RPC: the recorded exchange with the same extension as functions of the test, and
//! dialogs that nobody answers.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use pi_nvim::extensions::{CommandInfo, DialogOptions, Host};
use pi_nvim::modes::rpc;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::world::{Ground, LIMIT};

/// The extension of the recording. Its file is not run: this is what it does.
fn demo(host: &Host) {
    let info = |name: &str, description: &str| CommandInfo {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        source_info: json!({
            "path": "<AGENT_DIR>/extensions/demo.ts", "source": "auto", "scope": "user",
            "origin": "top-level", "baseDir": "<AGENT_DIR>",
        }),
    };
    let asking = host.clone();
    host.command(info("ask", "Ask things"), move |args| {
        let host = asking.clone();
        Box::pin(async move { ask(&host, &args).await })
    });
    host.command(info("boom", "Throws"), |_| {
        Box::pin(async { Err("kaput".to_owned()) })
    });
}

async fn ask(host: &Host, args: &str) -> Result<(), String> {
    let ui = host.ui();
    ui.set_status("demo", Some("asking"));
    ui.set_title("T");
    ui.set_widget("w", Some(&["l1".to_owned(), "l2".to_owned()]), None);
    ui.set_editor_text("draft");
    let names = ["x".to_owned(), "y".to_owned()];
    let a = ui.select("Pick", &names, DialogOptions::default()).await;
    let minute = DialogOptions {
        timeout: Some(std::time::Duration::from_secs(60)),
        ..DialogOptions::default()
    };
    let b = ui.confirm("Sure?", "Really", minute).await;
    let c = ui
        .input("Name", Some("hint"), DialogOptions::default())
        .await;
    let d = ui
        .editor("Edit", Some("pre"), CancellationToken::new())
        .await;
    let said = json!({"args": args, "a": a, "b": b, "c": c, "d": d});
    ui.notify(&said.to_string(), Some("warning"));
    ui.set_status("demo", None);
    host.append_entry("demo-entry", Some(json!({"n": 1})))
}

/// A client at the other end of two pipes.
struct Client {
    input: UnixStream,
    output: UnixStream,
    pending: Vec<u8>,
    records: Vec<Value>,
}

impl Client {
    fn send(&mut self, record: &Value) {
        writeln!(self.input, "{record}").unwrap();
    }

    /// Reads until a record fits.
    fn wait(&mut self, from: usize, wanted: impl Fn(&Value) -> bool) -> (usize, Value) {
        let mut at = from;
        loop {
            while let Some(record) = self.records.get(at) {
                at += 1;
                if wanted(record) {
                    return (at, record.clone());
                }
            }
            let mut buffer = [0; 4096];
            let count = self.output.read(&mut buffer).unwrap();
            assert!(count > 0, "the end came first: {:#?}", self.records);
            self.pending.extend_from_slice(&buffer[..count]);
            while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                self.records.push(serde_json::from_slice(&line).unwrap());
            }
        }
    }
}

/// Plays the client's side of a recorded script.
fn play(mut client: Client, script: &[Value]) -> Vec<Value> {
    let (mut at, mut shown) = (0, Value::Null);
    for step in script {
        if let Some(record) = step.get("send") {
            client.send(record);
        } else if let Some(wanted) = step.get("wait_for") {
            let fields = wanted.as_object().unwrap();
            (at, shown) = client.wait(at, |record| {
                fields
                    .iter()
                    .all(|(key, value)| record.get(key) == Some(value))
            });
        } else if let Some(id) = step.get("wait_response") {
            client.wait(0, |record| {
                record["type"] == "response" && record["id"] == *id
            });
        } else {
            let mut answer = json!({"type": "extension_ui_response", "id": shown["id"]});
            for (key, value) in step["with"].as_object().unwrap() {
                answer[key] = value.clone();
            }
            client.send(&answer);
        }
    }
    client.records
}

/// Takes away what differs from run to run.
fn masked(mut record: Value) -> Value {
    if record["type"] == "extension_ui_request" {
        record["id"] = "<UUID>".into();
    }
    if record["type"] == "entry_appended" {
        for key in ["id", "parentId", "timestamp"] {
            record["entry"][key] = "<MASKED>".into();
        }
    }
    if record["command"] == "get_commands" {
        // Those of extensions that come with the reference.
        let commands = record["data"]["commands"].as_array_mut().unwrap();
        commands.retain(|it| it["sourceInfo"]["source"] != "builtin");
    }
    record
}

async fn serve(
    host_with: impl FnOnce(&Host),
) -> (tokio::task::JoinHandle<std::io::Result<rpc::Ended>>, Client) {
    let ground = Ground::new(vec![]).await;
    host_with(&ground.host);
    let runtime = ground.runtime().await;
    let (input, theirs) = UnixStream::pair().unwrap();
    let (output, ours) = UnixStream::pair().unwrap();
    output.set_read_timeout(Some(LIMIT)).unwrap();
    let serving = tokio::spawn(async move {
        let source = rpc::Source::new(theirs);
        let served = rpc::serve(runtime, source, rpc::Sink::new(ours), |_| ()).await;
        // Its folder is there until the end.
        drop(ground);
        served
    });
    let client = Client {
        input,
        output,
        pending: Vec::new(),
        records: Vec::new(),
    };
    (serving, client)
}

/// Plays the recorded case `extension-ui`, whose extension are functions here; all records have to be as recorded.
pub(crate) async fn recorded(case: &Value) -> Result<(), String> {
    let (serving, client) = serve(demo).await;
    let script = case["stdin_records"].as_array().unwrap().clone();
    let records = tokio::task::spawn_blocking(move || play(client, &script)).await;
    let ended = serving.await.unwrap();
    let masked = |records: &[Value]| records.iter().cloned().map(masked).collect::<Vec<_>>();
    let ours = masked(&records.map_err(|error| error.to_string())?);
    let wanted = masked(case["stdout_records"].as_array().unwrap());
    if ours != wanted {
        let wanted = serde_json::to_string_pretty(&wanted).unwrap();
        let ours = serde_json::to_string_pretty(&ours).unwrap();
        return Err(pretty_assertions::StrComparison::new(&ours, &wanted).to_string());
    }
    match ended {
        Ok(rpc::Ended::Input) => Ok(()),
        other => Err(format!("ended with {other:?}")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_gives_every_dialog_up() {
    let (serving, mut client) = serve(demo).await;
    let left = tokio::task::spawn_blocking(move || {
        client.send(&json!({"id": "p", "type": "prompt", "message": "/ask"}));
        client.wait(0, |record| record["method"] == "select");
        // Answers to nothing, and odd ones, are passed over.
        client.send(&json!({"type": "extension_ui_response", "id": "nobody", "value": "x"}));
        client.send(&json!({"type": "extension_ui_response"}));
        client.input.shutdown(std::net::Shutdown::Write).unwrap();
        client
    });
    let _reads_on = left.await.unwrap();
    let ended = tokio::time::timeout(LIMIT, serving).await.unwrap().unwrap();
    assert_eq!(ended.unwrap(), rpc::Ended::Input);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dialog_at_the_beginning_of_a_session_can_be_answered() {
    let (serving, client) = serve(|host| {
        struct Begins(Host);
        #[async_trait::async_trait]
        impl pi_nvim::extensions::compose::Handler for Begins {
            fn extension(&self) -> &str {
                "begins"
            }

            async fn call(
                &self,
                _: &mut serde_json::Map<String, Value>,
            ) -> Result<Option<Value>, String> {
                let sure = self
                    .0
                    .ui()
                    .confirm("Begin?", "", DialogOptions::default())
                    .await;
                self.0.ui().notify(&format!("sure: {sure}"), None);
                Ok(None)
            }
        }
        host.on("session_start", std::sync::Arc::new(Begins(host.clone())));
    })
    .await;
    let script = json!([
        {"send": {"id": "s", "type": "get_state"}},
        {"wait_for": {"type": "extension_ui_request", "method": "confirm"}},
        {"answer_ui": "confirm", "with": {"confirmed": true}},
        {"wait_for": {"method": "notify", "message": "sure: true"}},
        {"wait_response": "s"}
    ]);
    let script = script.as_array().unwrap().clone();
    let played = tokio::task::spawn_blocking(move || play(client, &script));
    let records = tokio::time::timeout(LIMIT, played).await.unwrap().unwrap();
    assert!(records.iter().any(|record| record["id"] == "s"));
    serving.await.unwrap().unwrap();
}
