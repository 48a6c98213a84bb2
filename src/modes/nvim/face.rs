//! The middle of the Neovim face: requests of the Lua side go in, sessions are looked up or opened, ops come out.
//!
//! [`Face`] is shared by all tasks of the face. Requests are taken one after the other in the order in which a person
//! made them; what they set off is awaited in tasks of its own, so that no request waits for another one's work.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::editor::value::to_json;
use super::editor::{Editor, Notification};
use super::opener::Opener;
use super::opening::Begin;
use super::outbox::Outbox;
use super::slot::Slot;
use crate::files::agent_dir::shown;
use crate::files::state::StateDir;
use crate::session::listing::same_file;
use crate::session::{SessionChoice, Wish};

/// A request (or, without `id`, a plain message) of the Lua side.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What is wanted: `prompt.send`, `review.act`, ...
    pub name: String,
    /// The Lua side's number for the answer.
    pub id: Option<u64>,
    /// Parameters, an object.
    pub params: Json,
}

impl Request {
    /// Reads a notification; `None` for one that is not ours.
    pub fn parse(note: &Notification) -> Option<Self> {
        if note.name != "pi" {
            return None;
        }
        let [name, id, params] = note.args.as_slice() else {
            return None;
        };
        Some(Self {
            name: name.as_str()?.to_owned(),
            id: id.as_u64(),
            params: to_json(params),
        })
    }

    /// Returns a text parameter.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.params.get(key).and_then(Json::as_str)
    }

    /// Returns whether a parameter is true.
    pub fn flag(&self, key: &str) -> bool {
        self.params
            .get(key)
            .and_then(Json::as_bool)
            .unwrap_or(false)
    }
}

/// The answer to a request: data, or one line that says what could not be done.
pub type Answer = Result<Json, String>;
/// An answer that is being worked out.
pub type Answering = BoxFuture<'static, Answer>;

/// Takes the requests whose names begin with one prefix (`review.`, `attention.`).
pub trait Panel: Send + Sync + 'static {
    /// Starts to answer. What has to happen in the order of the requests happens before this returns.
    fn request(&self, request: Request) -> Answering;
}

/// What the tasks of the face share.
pub struct Face {
    /// The running Neovim.
    pub editor: Editor,
    /// What goes to the Lua side.
    pub outbox: Outbox,
    /// Opens sessions.
    pub opener: Opener,
    /// Options of the plugin.
    pub config: Json,
    /// Our own state directory.
    pub state: StateDir,
    /// What the command line says about the session to begin with.
    pub(super) begin: Begin,
    pub(super) slots: Mutex<Slots>,
    /// Ends the list of sessions that is being made.
    pub(super) listing: Mutex<CancellationToken>,
    /// What was said about `models.json` already.
    told: Mutex<HashSet<String>>,
    panels: HashMap<&'static str, Arc<dyn Panel>>,
}

/// The sessions that run in this process, by id.
#[derive(Default)]
pub(super) struct Slots {
    pub(super) live: HashMap<String, Arc<Slot>>,
}

impl Face {
    /// Makes a face; `panels` take the requests with their prefixes.
    pub fn new(
        editor: Editor,
        outbox: Outbox,
        opener: Opener,
        config: Json,
        begin: Begin,
        panels: HashMap<&'static str, Arc<dyn Panel>>,
    ) -> Arc<Self> {
        let state = StateDir::new(&opener.places().state_dir);
        Arc::new(Self {
            editor,
            outbox,
            opener,
            config,
            state,
            begin,
            slots: Mutex::default(),
            listing: Mutex::default(),
            told: Mutex::default(),
            panels,
        })
    }

    /// Takes one notification. Returns at once.
    pub fn take(self: &Arc<Self>, note: &Notification) {
        let Some(request) = Request::parse(note) else {
            // Not its arguments: they may hold a key.
            tracing::warn!("not understood: {}", note.name);
            return;
        };
        let (id, name) = (request.id, request.name.clone());
        let answering = self.start(request);
        let outbox = self.outbox.clone();
        // Detached: it ends with its answer, and with the process when that comes first.
        tokio::spawn(async move {
            let answer = answering.await;
            match (id, answer) {
                (Some(id), answer) => outbox.reply(id, answer),
                (None, Err(line)) => outbox.push(notice("error", &line)),
                (None, Ok(_)) => tracing::trace!("{name} done"),
            }
        });
    }

    fn start(self: &Arc<Self>, request: Request) -> Answering {
        let prefix = request.name.split('.').next().unwrap_or_default();
        match self.panels.get(prefix) {
            Some(panel) => panel.request(request),
            None => super::requests::start(self, request),
        }
    }

    /// Returns a running session: the one named by the request, or the only one there is.
    pub(super) fn slot(&self, session: Option<&str>) -> Result<Arc<Slot>, String> {
        let slots = self.slots.lock();
        match session {
            Some(id) => {
                slots.live.get(id).cloned().ok_or_else(|| {
                    format!("session {id} is not running; `:Pi resume` opens it again")
                })
            }
            None => slots
                .live
                .values()
                .next()
                .cloned()
                .ok_or_else(|| "no session is open; `:Pi new` starts one".into()),
        }
    }

    /// Opens a session of a directory that is there, or returns the running one of that file.
    pub(super) async fn open(
        self: &Arc<Self>,
        cwd: PathBuf,
        wish: Wish,
    ) -> Result<Arc<Slot>, String> {
        if let SessionChoice::Open(path) = &wish.session
            && let Some(live) = self.live_file(path)
        {
            return Ok(live);
        }
        let face = self.clone();
        let directory = cwd.clone();
        self.opener.consult(&cwd).await;
        // Reads settings, skills and the session file.
        let opened = tokio::task::spawn_blocking(move || face.opener.open(&directory, wish));
        let runtime = opened
            .await
            .map_err(|error| format!("open the session: {error}"))?
            .map_err(|error| error.to_string())?;
        let slot = Slot::start(self, runtime, cwd).await?;
        self.tell_model_problems();
        let mut slots = self.slots.lock();
        slots.live.insert(slot.id(), slot.clone());
        Ok(slot)
    }

    /// The running session of a file.
    pub(super) fn live_file(&self, path: &Path) -> Option<Arc<Slot>> {
        let live: Vec<_> = self.slots.lock().live.values().cloned().collect();
        let same = |slot: &Arc<Slot>| slot.file().is_some_and(|file| same_file(&file, path));
        live.into_iter().find(same)
    }

    /// Says what is wrong with `models.json`, each thing once.
    pub(super) fn tell_model_problems(&self) {
        let path = self.opener.places().agent_dir.join("models.json");
        let path = path.to_string_lossy();
        for problem in self.opener.registry().problems() {
            if self.told.lock().insert(problem.clone()) {
                // A line on the screen is short; the folder is the person's own.
                let line = problem.replace(&*path, "models.json");
                self.outbox.push(notice("warn", &line));
            }
        }
    }

    /// What to do when there is no model yet.
    pub(super) fn first_steps(&self) -> String {
        let places = self.opener.places();
        let file = shown(&places.agent_dir.join("models.json"), &places.home);
        format!(
            "Model      No model yet\n\
             {blank}:Pi login anthropic   (or openai, google, ...) stores a key\n\
             {blank}:Pi model local       finds a server on this machine\n\
             {blank}:Pi settings models   opens {file} with an example",
            blank = " ".repeat(11),
        )
    }

    /// Ends all sessions.
    pub async fn shutdown(&self) {
        let slots: Vec<_> = self.slots.lock().live.drain().map(|(_, it)| it).collect();
        futures::future::join_all(slots.iter().map(|slot| slot.runtime.shutdown())).await;
    }
}

/// An op that shows one line to the person.
pub fn notice(level: &str, text: &str) -> Json {
    json!({"op": "notice.show", "level": level, "text": text})
}
