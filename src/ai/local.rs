//! Model servers on this machine: asked for on demand, never unasked, only on loopback.
//!
//! Each kind answers on its usual port and tells its models and context sizes in its own way. A server that is not there
//! is no error; one that answers oddly is left out.

use std::time::Duration;

use futures::StreamExt;
use reqwest::Client;
use serde_json::{Map, Value, json};

use super::http::{EnvLookup, HttpError};
use super::model::Model;
use super::proxy;
use super::registry::ModelRegistry;

/// How long a server may take for one answer.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Most bytes of one answer.
const MAX_BYTES: usize = 4 << 20;
/// Context of an Ollama model when nothing says more: more is cut off silently there.
const OLLAMA_DEFAULT_CONTEXT: u64 = 4096;
/// Context assumed for a server that does not tell.
const UNKNOWN_CONTEXT: u64 = 8192;

/// The kinds of servers that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// llama.cpp's `llama-server`.
    LlamaCpp,
    /// Ollama.
    Ollama,
    /// LM Studio.
    LmStudio,
    /// vLLM.
    Vllm,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::LlamaCpp, Self::Ollama, Self::LmStudio, Self::Vllm];

    /// Returns the provider id its models get.
    pub fn provider(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llama.cpp",
            Self::Ollama => "ollama",
            Self::LmStudio => "lmstudio",
            Self::Vllm => "vllm",
        }
    }

    /// Returns its default port.
    pub fn port(self) -> u16 {
        match self {
            Self::LlamaCpp => 8080,
            Self::Ollama => 11434,
            Self::LmStudio => 1234,
            Self::Vllm => 8000,
        }
    }
}

/// Where to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is expected there.
    pub kind: Kind,
    /// Port on loopback.
    pub port: u16,
}

/// Returns where each kind listens: its default port, or the one that the server's own variable names (`OLLAMA_HOST`,
/// `LLAMA_ARG_PORT`).
pub fn targets(env: &EnvLookup) -> Vec<Target> {
    let named = |kind: Kind| match kind {
        Kind::Ollama => env("OLLAMA_HOST").and_then(|host| port_of(&host)),
        Kind::LlamaCpp => env("LLAMA_ARG_PORT").and_then(|port| port.trim().parse().ok()),
        Kind::LmStudio | Kind::Vllm => None,
    };
    Kind::ALL
        .into_iter()
        .map(|kind| Target {
            kind,
            port: named(kind).unwrap_or_else(|| kind.port()),
        })
        .collect()
}

/// The port of `host:port`, with or without a scheme, when the host is this machine.
fn port_of(host: &str) -> Option<u16> {
    let host = host.trim();
    let text = if host.contains("://") {
        host.to_owned()
    } else {
        format!("http://{host}")
    };
    let url = reqwest::Url::parse(&text).ok()?;
    let here = proxy::is_loopback(&url) || matches!(url.host_str(), Some("0.0.0.0" | "[::]"));
    url.port().filter(|_| here)
}

/// A server that answered.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalServer {
    /// What it is.
    pub kind: Kind,
    /// Base URL of its OpenAI-style API.
    pub base_url: String,
    /// Its models, ready to be used.
    pub models: Vec<Model>,
}

/// What a server says about one model.
#[derive(Default)]
struct Facts {
    id: String,
    context: Option<u64>,
    vision: bool,
    thinking: bool,
}

/// Asks the targets, all at once. Nothing is added to the registry: see [`ModelRegistry::add_local`].
///
/// # Errors
/// When no HTTP client can be made.
pub async fn probe(
    registry: &ModelRegistry,
    targets: &[Target],
) -> Result<Vec<LocalServer>, HttpError> {
    let client = registry.client()?;
    let ask = |target: Target| {
        let client = client.clone();
        async move { ask(&client, target).await }
    };
    let found: Vec<Option<LocalServer>> = futures::stream::iter(targets.to_vec())
        .map(ask)
        .buffered(8)
        .collect()
        .await;
    Ok(found.into_iter().flatten().collect())
}

async fn ask(client: &Client, target: Target) -> Option<LocalServer> {
    let root = format!("http://127.0.0.1:{}", target.port);
    let facts = match target.kind {
        Kind::LlamaCpp => llama_cpp(client, &root).await?,
        Kind::Ollama => ollama(client, &root).await?,
        Kind::LmStudio => lm_studio(client, &root).await?,
        Kind::Vllm => vllm(client, &root).await?,
    };
    let base_url = format!("{root}/v1");
    let models = facts
        .into_iter()
        .map(|facts| model(target.kind, &base_url, facts))
        .collect();
    Some(LocalServer {
        kind: target.kind,
        base_url,
        models,
    })
}

fn model(kind: Kind, base_url: &str, facts: Facts) -> Model {
    let context = facts.context.unwrap_or(UNKNOWN_CONTEXT);
    let mut compat = Map::new();
    compat.insert("supportsStore".into(), false.into());
    compat.insert("maxTokensField".into(), "max_tokens".into());
    let mut input = vec!["text".to_owned()];
    if facts.vision {
        input.push("image".to_owned());
    }
    Model {
        name: facts.id.clone(),
        id: facts.id,
        api: "openai-completions".to_owned(),
        provider: kind.provider().to_owned(),
        base_url: base_url.to_owned(),
        reasoning: facts.thinking,
        input,
        context_window: context,
        max_tokens: (context / 2).clamp(256, 16_384),
        compat: Some(compat),
        ..Model::default()
    }
}

/// One request for JSON; anything else than a good answer is `None`.
async fn fetch(request: reqwest::RequestBuilder) -> Option<Value> {
    let read = async {
        let mut response = request.send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.ok()? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BYTES {
                return None;
            }
        }
        serde_json::from_slice(&body).ok()
    };
    tokio::time::timeout(PATIENCE, read).await.ok()?
}

async fn get(client: &Client, url: String) -> Option<Value> {
    fetch(client.get(url)).await
}

fn entries<'a>(value: &'a Value, key: &str) -> Option<&'a Vec<Value>> {
    value.get(key).and_then(Value::as_array)
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn count(value: &Value, path: &[&str]) -> Option<u64> {
    let found = path.iter().try_fold(value, |value, key| value.get(key))?;
    found.as_u64().filter(|count| *count > 0)
}

async fn llama_cpp(client: &Client, root: &str) -> Option<Vec<Facts>> {
    let props = get(client, format!("{root}/props")).await?;
    let listed = get(client, format!("{root}/v1/models")).await?;
    let context = count(&props, &["default_generation_settings", "n_ctx"])
        .or_else(|| count(&props, &["n_ctx"]));
    let vision = props
        .get("modalities")
        .and_then(|map| map.get("vision"))
        .and_then(Value::as_bool);
    let facts = |entry: &Value| {
        Some(Facts {
            id: text(entry, "id")?,
            context: context.or_else(|| count(entry, &["meta", "n_ctx_train"])),
            vision: vision.unwrap_or(false),
            thinking: false,
        })
    };
    Some(entries(&listed, "data")?.iter().filter_map(facts).collect())
}

async fn ollama(client: &Client, root: &str) -> Option<Vec<Facts>> {
    let tags = get(client, format!("{root}/api/tags")).await?;
    let loaded = get(client, format!("{root}/api/ps"))
        .await
        .unwrap_or_default();
    let mut out = Vec::new();
    for entry in entries(&tags, "models")? {
        let Some(id) = text(entry, "model").or_else(|| text(entry, "name")) else {
            continue;
        };
        let body = json!({"model": id}).to_string();
        let request = client
            .post(format!("{root}/api/show"))
            .header("content-type", "application/json")
            .body(body);
        let shown = fetch(request).await.unwrap_or_default();
        let can = |what: &str| {
            entries(&shown, "capabilities").is_some_and(|list| list.iter().any(|item| item == what))
        };
        if entries(&shown, "capabilities").is_some() && !can("completion") {
            continue;
        }
        let context = running_context(&loaded, &id).or_else(|| configured_context(&shown));
        let context = context.unwrap_or_else(|| {
            trained_context(&shown)
                .unwrap_or(u64::MAX)
                .min(OLLAMA_DEFAULT_CONTEXT)
        });
        out.push(Facts {
            context: Some(context),
            vision: can("vision"),
            thinking: can("thinking"),
            id,
        });
    }
    Some(out)
}

/// What a loaded model runs with.
fn running_context(loaded: &Value, id: &str) -> Option<u64> {
    let models = entries(loaded, "models")?;
    let is = |entry: &&Value| {
        text(entry, "model").as_deref() == Some(id) || text(entry, "name").as_deref() == Some(id)
    };
    count(models.iter().find(is)?, &["context_length"])
}

/// `num_ctx` of the model's own parameters.
fn configured_context(shown: &Value) -> Option<u64> {
    let parameters = text(shown, "parameters")?;
    let line = parameters
        .lines()
        .find_map(|line| line.trim().strip_prefix("num_ctx"))?;
    line.trim().parse().ok().filter(|count| *count > 0)
}

/// What the model was trained for.
fn trained_context(shown: &Value) -> Option<u64> {
    let info = shown.get("model_info")?.as_object()?;
    info.iter()
        .find(|(key, _)| key.ends_with(".context_length"))
        .and_then(|(_, value)| value.as_u64())
}

async fn lm_studio(client: &Client, root: &str) -> Option<Vec<Facts>> {
    let listed = get(client, format!("{root}/api/v0/models")).await?;
    let facts = |entry: &Value| {
        let kind = text(entry, "type").unwrap_or_default();
        if kind == "embeddings" {
            return None;
        }
        let loaded = count(entry, &["loaded_context_length"]);
        Some(Facts {
            id: text(entry, "id")?,
            context: loaded.or_else(|| count(entry, &["max_context_length"])),
            vision: kind == "vlm",
            thinking: false,
        })
    };
    Some(entries(&listed, "data")?.iter().filter_map(facts).collect())
}

async fn vllm(client: &Client, root: &str) -> Option<Vec<Facts>> {
    let listed = get(client, format!("{root}/v1/models")).await?;
    let facts = |entry: &Value| {
        let context = count(entry, &["max_model_len"])?;
        Some(Facts {
            id: text(entry, "id")?,
            context: Some(context),
            ..Facts::default()
        })
    };
    Some(entries(&listed, "data")?.iter().filter_map(facts).collect())
}
