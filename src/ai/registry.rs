//! All models there are, which of them can be used, and the one [`Provider`] that answers for all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::StreamExt;
use parking_lot::{Mutex, RwLock};
use reqwest::{Client, Url};
use secrecy::SecretString;
use serde_json::Value;

use super::auth::{self, AuthFile, Entry, KeySource, ProviderStatus};
use super::catalogue;
use super::config_value::ConfigValue;
use super::credentials::{self, CommandCache, Credentials, Sources};
use super::http::{self, EnvLookup, HttpError, HttpSettings};
use super::local;
use super::model::Model;
use super::models_json::{self, Overlay, ProviderConfig};
use super::provider::{EventStream, Provider, Request};
use super::providers::conversation::Kept;
use super::providers::{APIS, Call, driver};

/// The models of one agent folder. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct ModelRegistry {
    services: Arc<Services>,
}

/// What requests need; shared by the registry and the streams.
pub(crate) struct Services {
    env: EnvLookup,
    agent_dir: PathBuf,
    auth: AuthFile,
    commands: CommandCache,
    state: RwLock<Arc<Overlay>>,
    added: Mutex<Added>,
    runtime_keys: Mutex<HashMap<String, SecretString>>,
    settings: RwLock<HttpSettings>,
    client: Mutex<Option<Client>>,
    plain_tools: Mutex<HashSet<String>>,
    kept: Mutex<VecDeque<KeptSession>>,
}

/// A session id and what its conversation was converted to.
type KeptSession = (String, Arc<Mutex<Kept>>);

/// So many sessions' converted conversations are kept, each about as large as its requests.
const KEPT_SESSIONS: usize = 2;

/// What the program added to the files' models.
#[derive(Default)]
struct Added {
    hidden: Vec<Arc<Model>>,
    providers: HashMap<String, Arc<dyn Provider>>,
    local: Vec<Model>,
}

impl ModelRegistry {
    /// Reads the bundled models and `models.json` of `agent_dir`. Nothing fails: see [`Self::problems`].
    pub fn load(agent_dir: &Path, env: EnvLookup) -> Self {
        let registry = Self {
            services: Arc::new(Services {
                env,
                agent_dir: agent_dir.to_owned(),
                auth: AuthFile::new(agent_dir),
                commands: CommandCache::default(),
                state: RwLock::default(),
                added: Mutex::default(),
                runtime_keys: Mutex::default(),
                settings: RwLock::default(),
                client: Mutex::default(),
                plain_tools: Mutex::default(),
                kept: Mutex::default(),
            }),
        };
        registry.reload();
        registry
    }

    /// Reads `models.json` again.
    pub fn reload(&self) {
        let path = self.services.agent_dir.join("models.json");
        let mut overlay = models_json::load(&path, catalogue::models());
        for model in &self.services.added.lock().local {
            add_local(&mut overlay, model);
        }
        *self.services.state.write() = Arc::new(overlay);
    }

    /// Returns what is wrong with `models.json`, one line each.
    pub fn problems(&self) -> Vec<String> {
        self.services.overlay().problems.clone()
    }

    /// Returns all models in catalogue order, usable or not.
    pub fn models(&self) -> Vec<Arc<Model>> {
        self.services
            .overlay()
            .models
            .iter()
            .cloned()
            .map(Arc::new)
            .collect()
    }

    /// Returns the models that can be used now. No command is run to find out.
    pub fn available(&self) -> Vec<Arc<Model>> {
        let mut models = self.models();
        models.retain(|model| self.why_unusable(model).is_none());
        models
    }

    /// Finds a model, hidden ones too.
    pub fn find(&self, provider: &str, id: &str) -> Option<Arc<Model>> {
        let is = |model: &Model| model.provider == provider && model.id == id;
        let hidden = self
            .services
            .added
            .lock()
            .hidden
            .iter()
            .find(|model| is(model))
            .cloned();
        hidden.or_else(|| {
            let overlay = self.services.overlay();
            overlay
                .models
                .iter()
                .find(|model| is(model))
                .cloned()
                .map(Arc::new)
        })
    }

    /// Returns why a model cannot be used, in one line; `None` when it can.
    pub fn why_unusable(&self, model: &Model) -> Option<String> {
        if self
            .services
            .added
            .lock()
            .providers
            .contains_key(&model.api)
        {
            return None;
        }
        if !APIS.contains(&model.api.as_str()) {
            return Some(format!("its API `{}` is not supported yet", model.api));
        }
        match self.source(&model.provider) {
            Ok(Some(_)) => None,
            Ok(None) => Some(self.missing_key(&model.provider)),
            Err(why) => Some(why),
        }
    }

    fn missing_key(&self, provider: &str) -> String {
        credentials::missing(provider, self.services.auth.entry(provider).as_ref())
    }

    /// Whether a provider has credentials.
    pub fn is_configured(&self, provider: &str) -> bool {
        matches!(self.source(provider), Ok(Some(_)))
    }

    /// Returns where a provider's key would come from, without running commands.
    fn source(&self, provider: &str) -> Result<Option<KeySource>, String> {
        let services = &self.services;
        if services.runtime_keys.lock().contains_key(provider) {
            return Ok(Some(KeySource::CommandLine));
        }
        let entry = services.auth.entry(provider);
        let overlay = entry.as_ref().map(Entry::env).unwrap_or_default();
        let env = credentials::with_overlay(&services.env, &overlay);
        if let Some(Entry::Key { key: Some(key), .. }) = &entry {
            let value = ConfigValue::parse(secrecy::ExposeSecret::expose_secret(key));
            if value.is_configured(&env) {
                return Ok(Some(KeySource::AuthFile(auth::stored_as(key))));
            }
        }
        let state = services.overlay();
        let config = state.providers.get(provider);
        if let Some(text) = config.and_then(|config| config.api_key.as_deref()) {
            let value = ConfigValue::parse(text);
            let missing = value
                .variables()
                .into_iter()
                .find(|name| env(name).is_none_or(|v| v.is_empty()));
            return match missing {
                None => Ok(Some(KeySource::ModelsFile)),
                Some(name) => Err(format!(
                    "no API key for {provider}: apiKey in models.json names {name}, which is not set"
                )),
            };
        }
        if config.is_some_and(|config| {
            config
                .headers
                .keys()
                .any(|name| name.eq_ignore_ascii_case("authorization"))
        }) {
            return Ok(Some(KeySource::ModelsFile));
        }
        let variables = catalogue::provider(provider)
            .map(|known| known.env)
            .unwrap_or_default();
        let set = variables
            .iter()
            .find(|name| env(name).is_some_and(|value| !value.is_empty()));
        Ok(set.map(|name| KeySource::Environment((*name).to_owned())))
    }

    /// Returns the state of every provider that has models, a key or an entry, for `auth check`.
    pub fn status(&self) -> Vec<ProviderStatus> {
        let state = self.services.overlay();
        let mut ids: Vec<String> = catalogue::PROVIDERS
            .iter()
            .map(|known| known.id.to_owned())
            .collect();
        let more = state.models.iter().map(|model| model.provider.clone());
        let more: BTreeSet<String> = more
            .chain(state.providers.keys().cloned())
            .chain(self.services.auth.providers())
            .collect();
        ids.extend(
            more.into_iter()
                .filter(|id| catalogue::provider(id).is_none()),
        );
        let status = |provider: String| {
            let own = |model: &&Model| model.provider == provider;
            let models: Vec<&Model> = state.models.iter().filter(own).collect();
            let found = self.source(&provider);
            let set_up =
                !matches!(found, Ok(None)) || self.services.auth.entry(&provider).is_some();
            let (source, problem) = match found {
                Ok(Some(source)) => (Some(source), self.without_models(&models)),
                Ok(None) => (None, Some(self.missing_key(&provider))),
                Err(why) => (None, Some(why)),
            };
            let named = state
                .providers
                .get(&provider)
                .and_then(|config| config.name.clone());
            ProviderStatus {
                name: named.unwrap_or_else(|| auth::display_name(&provider)),
                models: models.len(),
                provider,
                source,
                set_up,
                problem,
            }
        };
        ids.into_iter().map(status).collect()
    }

    /// Says why a provider with a key still gives nothing to choose from.
    fn without_models(&self, models: &[&Model]) -> Option<String> {
        let Some(first) = models.first() else {
            return Some("none of its models is known; name them in models.json".to_owned());
        };
        let speaks = |model: &&Model| self.why_unusable(model).is_none();
        let any = models.iter().any(speaks);
        (!any).then(|| self.why_unusable(first)).flatten()
    }

    /// Returns where model servers of this machine are looked for.
    pub fn local_targets(&self) -> Vec<local::Target> {
        local::targets(&self.services.env)
    }

    /// Returns the agent folder, for [`auth::login`] and [`auth::logout`].
    pub fn agent_dir(&self) -> &Path {
        &self.services.agent_dir
    }

    /// Sets the key of the command line for one provider, in memory only.
    pub fn set_runtime_key(&self, provider: &str, key: SecretString) {
        self.services
            .runtime_keys
            .lock()
            .insert(provider.to_owned(), key);
    }

    /// Takes over what settings say about HTTP; the next request uses it. Connections stay open unless the proxy changes.
    pub fn configure(&self, settings: HttpSettings) {
        let proxy = settings.proxy.clone();
        let before = std::mem::replace(&mut *self.services.settings.write(), settings);
        if before.proxy != proxy {
            *self.services.client.lock() = None;
        }
    }

    /// Adds an API that another part of the program answers, with models that no list shows.
    pub fn register(&self, api: &str, provider: Arc<dyn Provider>, models: Vec<Model>) {
        let mut added = self.services.added.lock();
        added.providers.insert(api.to_owned(), provider);
        added.hidden.extend(models.into_iter().map(Arc::new));
    }

    /// Returns the shared HTTP client.
    pub(crate) fn client(&self) -> Result<Client, HttpError> {
        self.services.client()
    }

    /// Adds models of servers on this machine for the rest of the process; one with the same provider and id is replaced.
    pub fn add_local(&self, models: Vec<Model>) {
        self.services.added.lock().local.extend(models);
        self.reload();
    }

    /// Returns the provider for all models.
    pub fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(Dispatcher {
            services: Arc::clone(&self.services),
        })
    }
}

fn add_local(overlay: &mut Overlay, model: &Model) {
    overlay
        .models
        .retain(|have| have.provider != model.provider || have.id != model.id);
    overlay.models.push(model.clone());
    let config: &mut BTreeMap<String, ProviderConfig> = &mut overlay.providers;
    let config = config.entry(model.provider.clone()).or_default();
    config.api_key.get_or_insert_with(|| "local".to_owned());
}

impl Services {
    fn overlay(&self) -> Arc<Overlay> {
        Arc::clone(&self.state.read())
    }

    /// The current HTTP settings.
    pub(crate) fn settings(&self) -> HttpSettings {
        self.settings.read().clone()
    }

    /// Whether the environment asks for long cache retention.
    pub(crate) fn long_cache(&self) -> bool {
        (self.env)("PI_CACHE_RETENTION").as_deref() == Some("long")
    }

    /// The shared client, made on first use.
    pub(crate) fn client(&self) -> Result<Client, HttpError> {
        let mut slot = self.client.lock();
        if let Some(client) = &*slot {
            return Ok(client.clone());
        }
        let client = http::client(&self.env, &self.settings())?;
        Ok(slot.insert(client).clone())
    }

    /// Returns the proxy for a URL; fails for one of a kind we cannot use.
    pub(crate) fn proxy_of(&self, url: &Url) -> Result<Option<String>, HttpError> {
        http::proxy_of(&self.env, &self.settings(), url)
    }

    /// Resolves the credentials of a request.
    pub(crate) async fn credentials(&self, request: &Request) -> Result<Credentials, String> {
        let state = self.overlay();
        let provider = &request.model.provider;
        let runtime = request.options.api_key.clone();
        let runtime = runtime.or_else(|| self.runtime_keys.lock().get(provider).cloned());
        let sources = Sources {
            env: &self.env,
            auth: &self.auth,
            commands: &self.commands,
            runtime,
            config: state.providers.get(provider),
        };
        let headers = request
            .options
            .extra
            .get("headers")
            .and_then(Value::as_object);
        credentials::resolve(sources, &request.model, headers).await
    }

    /// What earlier requests of the session were converted to; nothing for one that no cache shall know.
    pub(crate) fn kept(&self, request: &Request) -> Arc<Mutex<Kept>> {
        let options = &request.options;
        let once = options.cache_retention.as_deref() == Some("none");
        let Some(session) = options.session_id.as_ref().filter(|_| !once) else {
            return Arc::default();
        };
        let mut all = self.kept.lock();
        let at = all.iter().position(|(id, _)| id == session);
        let entry = at.and_then(|at| all.remove(at));
        let entry = entry.unwrap_or_else(|| (session.clone(), Arc::default()));
        let kept = Arc::clone(&entry.1);
        all.push_front(entry);
        all.truncate(KEPT_SESSIONS);
        kept
    }

    /// Whether a server refused the strict schemas of this session before.
    pub(crate) fn plain_tools(&self, call: &Call) -> bool {
        self.plain_tools.lock().contains(&plain_key(call))
    }

    /// Remembers that a server refused strict schemas.
    pub(crate) fn note_plain_tools(&self, call: &Call) {
        if call.plain_tools {
            self.plain_tools.lock().insert(plain_key(call));
        }
    }
}

fn plain_key(call: &Call) -> String {
    let session = call.options.session_id.as_deref().unwrap_or_default();
    format!("{session}\n{}\n{}", call.model.provider, call.model.id)
}

/// Sends each request to the API of its model.
struct Dispatcher {
    services: Arc<Services>,
}

impl Provider for Dispatcher {
    fn stream(&self, request: Request) -> EventStream {
        let own = self
            .services
            .added
            .lock()
            .providers
            .get(&request.model.api)
            .cloned();
        match own {
            Some(provider) => provider.stream(request),
            None => driver::stream(Arc::clone(&self.services), request).boxed(),
        }
    }
}
