//! A session whose extensions are functions of the test, and a model server that answers by a script.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use pi_nvim::ai::ModelRegistry;
use pi_nvim::extensions::compose::Handler;
use pi_nvim::extensions::{Host, Registration};
use pi_nvim::files::agent_dir::Places;
use pi_nvim::review::gate::{Gate, GateConfig};
use pi_nvim::session::{Command, Desk, Event, Opener, Runtime, SessionChoice, Wish};
use pi_nvim::testing::http::{Response, Server};
use pi_nvim::workspace::Workspace;
use pi_nvim::workspace::disk::DiskWorkspace;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

/// No step of these tests takes as long.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

type Answering = dyn Fn(&mut Map<String, Value>) -> Result<Option<Value>, String> + Send + Sync;

/// A handler that is a function.
struct Does {
    name: &'static str,
    answer: Box<Answering>,
}

#[async_trait]
impl Handler for Does {
    fn extension(&self) -> &str {
        self.name
    }

    async fn call(&self, event: &mut Map<String, Value>) -> Result<Option<Value>, String> {
        (self.answer)(event)
    }
}

/// Makes a handler.
pub(super) fn does(
    answer: impl Fn(&mut Map<String, Value>) -> Result<Option<Value>, String> + Send + Sync + 'static,
) -> Arc<dyn Handler> {
    Arc::new(Does {
        name: "test",
        answer: Box::new(answer),
    })
}

/// A handler that always answers the same.
pub(super) fn says(answer: Value) -> Arc<dyn Handler> {
    does(move |_| Ok(Some(answer.clone())))
}

/// Pieces of a chat-completions answer.
fn answer(deltas: &[Value], finish: &str) -> Response {
    let chunk = |choices: Value| json!({"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "one", "choices": choices});
    let choice =
        |delta: &Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]));
    let mut chunks: Vec<Value> = deltas.iter().map(choice).collect();
    chunks.push(chunk(
        json!([{"index": 0, "delta": {}, "finish_reason": finish}]),
    ));
    let mut last = chunk(json!([]));
    last["usage"] = json!({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110});
    chunks.push(last);
    let mut body: String = chunks.iter().map(|it| format!("data: {it}\n\n")).collect();
    body.push_str("data: [DONE]\n\n");
    Response::ok(body)
}

/// An answer of text.
pub(super) fn say(text: &str) -> Response {
    answer(&[json!({"role": "assistant", "content": text})], "stop")
}

/// An answer that calls a tool.
pub(super) fn call(id: &str, name: &str, arguments: &Value) -> Response {
    let call = json!({"index": 0, "id": id, "type": "function",
        "function": {"name": name, "arguments": arguments.to_string()}});
    answer(
        &[json!({"role": "assistant", "tool_calls": [call]})],
        "tool_calls",
    )
}

pub(super) struct World {
    pub(super) dir: tempfile::TempDir,
    pub(super) server: Server,
    pub(super) host: Host,
    pub(super) runtime: Runtime,
    pub(super) events: mpsc::Receiver<Arc<Event>>,
}

/// What a test begins with, before the session is opened.
pub(super) struct Ground {
    dir: tempfile::TempDir,
    server: Server,
    pub(super) host: Host,
}

impl Ground {
    pub(super) async fn new(script: Vec<Response>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["project", "agent", "home"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let server = Server::start(script).await.unwrap();
        let model = |id: &str, reasoning: bool| json!({"id": id, "reasoning": reasoning, "contextWindow": 200_000, "maxTokens": 8192});
        let models = json!({"providers": {"mock": {
            "baseUrl": format!("{}/v1", server.url()), "api": "openai-completions", "apiKey": "k",
            "models": [model("one", false), model("two", true)]}}});
        let settings =
            json!({"defaultProvider": "mock", "defaultModel": "one", "retry": {"baseDelayMs": 10}});
        let ground = Self {
            dir,
            server,
            host: Host::new(),
        };
        ground.write("agent/models.json", &models.to_string());
        ground.write("agent/settings.json", &settings.to_string());
        ground
    }

    /// Writes a file below the test's folder.
    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(super) fn path(&self, path: &str) -> String {
        self.dir.path().join(path).to_string_lossy().into_owned()
    }

    /// Opens the session as every face does, and listens to it.
    pub(super) async fn open(self) -> World {
        let runtime = self.runtime().await;
        let events = runtime.subscribe(10_000);
        World {
            runtime,
            events,
            dir: self.dir,
            server: self.server,
            host: self.host,
        }
    }

    /// Opens the session; nobody listens yet.
    pub(super) async fn runtime(&self) -> Runtime {
        let root = self.dir.path();
        let places = Places {
            home: root.join("home"),
            agent_dir: root.join("agent"),
            session_dir: None,
            state_dir: root.join("state"),
        };
        let cwd = root.join("project");
        let registry = ModelRegistry::load(&places.agent_dir, Arc::new(|_| None));
        let opener = Opener {
            hooks: Arc::new(self.host.clone()),
            has_ui: true,
            ..Opener::new(places, registry)
        };
        let workspace: Arc<dyn Workspace> = Arc::new(DiskWorkspace::default());
        let gate = Gate::new(GateConfig::new(Arc::clone(&workspace), &cwd));
        opener.consult(&cwd).await;
        let loaded = opener.load(&cwd);
        let wish = Wish {
            session: SessionChoice::New,
            ..Wish::default()
        };
        opener.open(loaded, wish, Desk { gate, workspace }).unwrap()
    }
}

impl World {
    /// A session with these answers and nothing else.
    pub(super) async fn new(script: Vec<Response>) -> Self {
        Ground::new(script).await.open().await
    }

    pub(super) fn on(&self, event: &str, handler: Arc<dyn Handler>) -> Registration {
        self.host.on(event, handler)
    }

    pub(super) async fn request(&self, command: Command) -> Value {
        let done = tokio::time::timeout(LIMIT, self.runtime.request(command)).await;
        done.unwrap().unwrap()
    }

    /// Prompts and waits until the run has settled.
    pub(super) async fn prompt(&mut self, text: &str) {
        let answer = self.request(Command::prompt(text)).await;
        assert_eq!(answer["disposition"], "started");
        self.settled().await;
    }

    /// Waits for the end of a run.
    pub(super) async fn settled(&mut self) {
        self.until(|event| matches!(event, Event::AgentSettled { .. }))
            .await;
    }

    /// Waits for an event.
    pub(super) async fn until(&mut self, wanted: impl Fn(&Event) -> bool) -> Arc<Event> {
        let waiting = async {
            loop {
                let event = self.events.recv().await.unwrap();
                if wanted(&event) {
                    return event;
                }
            }
        };
        tokio::time::timeout(LIMIT, waiting).await.unwrap()
    }

    /// The body of a request.
    pub(super) fn sent(&self, at: usize) -> Value {
        serde_json::from_slice(&self.server.requests()[at].body).unwrap()
    }

    /// Texts of the messages of a request, with their roles.
    pub(super) fn texts(&self, at: usize) -> Vec<String> {
        let body = self.sent(at);
        let messages = body["messages"].as_array().unwrap().iter();
        let text = |message: &Value| match &message["content"] {
            Value::Array(blocks) => {
                let texts = blocks.iter().filter_map(|it| it["text"].as_str());
                texts.collect::<Vec<_>>().concat()
            }
            other => other.as_str().unwrap_or_default().to_owned(),
        };
        messages
            .map(|it| format!("{}: {}", it["role"].as_str().unwrap(), text(it)))
            .collect()
    }

    /// Types of the entries of the session.
    pub(super) fn entries(&self) -> Vec<Value> {
        self.runtime
            .look(|session| session.entries().map(|entry| entry.value()).collect())
    }
}

/// Keeps what it is told, in order.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<Map<String, Value>>>>);

impl Log {
    pub(super) fn add(&self, event: &Map<String, Value>) {
        self.0.lock().push(event.clone());
    }

    pub(super) fn take(&self) -> Vec<Map<String, Value>> {
        std::mem::take(&mut *self.0.lock())
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
