//! One running session as the face sees it: its runtime, its chat, and where it stands.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::sync::{mpsc, oneshot};

use super::chat_view::tool::State;
use super::chat_view::{Chat, Kind, Look, history};
use super::face::{Answer, Answering, Face, notice};
use super::json::{at, put};
use super::outbox::{Outbox, Source};
use super::status::Status;
use super::written::Calls;
use crate::files::agent_dir::{real_path, shown};
use crate::review::{HunkState, ProposalState, ReviewEvent, ReviewMode};
use crate::session::projection::Entries as _;
use crate::session::tree_view::TreeView;
use crate::session::{Command, CommandError, Event, NoticeLevel, Runtime};

/// Events the face may be behind; it only updates its models, so this is a moment's worth.
const EVENTS: usize = 1_024;

/// A session that runs in this process.
pub struct Slot {
    /// The session itself.
    pub runtime: Runtime,
    /// Its directory, until another session takes its place.
    cwd: Mutex<PathBuf>,
    /// Layout of its tree, as last asked for.
    pub(super) tree: Mutex<TreeView>,
    /// Where the results of its calls stand.
    pub(super) calls: Mutex<Calls>,
    look: Look,
    /// Entries of the chat drawn at once.
    most_entries: usize,
    outbox: Outbox,
    state: Mutex<SlotState>,
    chat: Mutex<Chat>,
    status: Mutex<Status>,
}

#[derive(Default)]
struct SlotState {
    id: String,
    file: Option<PathBuf>,
    name: Option<String>,
    next_tag: u64,
    /// Whether something was run here already.
    ran: bool,
    waiting: HashMap<u64, oneshot::Sender<Result<Json, CommandError>>>,
    /// `:Pi edit` is at work: the tools are limited.
    editing: bool,
    /// Questions that wait for the person, and the calls they are about.
    questions: HashMap<u64, String>,
}

/// Draws the chat of a slot.
struct ChatSource(Arc<Slot>);
impl Source for ChatSource {
    fn take(&self) -> Vec<Json> {
        self.0.chat.lock().take_ops()
    }
}

struct StatusSource(Arc<Slot>);
impl Source for StatusSource {
    fn take(&self) -> Vec<Json> {
        let id = self.0.id();
        let mut op = self.0.status.lock().op();
        put(&mut op, "op", "status.set".into());
        put(&mut op, "session", id.into());
        vec![op]
    }
}

/// The option `chat.max_entries`.
fn most_entries(config: &Json) -> usize {
    let wish = at(config, "/chat/max_entries").as_u64().unwrap_or(200);
    usize::try_from(wish.max(1)).unwrap_or(usize::MAX)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |it| i64::try_from(it.as_millis()).unwrap_or(i64::MAX))
}

impl Slot {
    /// Takes a session in: follows its events and draws what it holds.
    ///
    /// # Errors
    /// One line when the session does not answer.
    pub async fn start(
        face: &Arc<Face>,
        runtime: Runtime,
        cwd: PathBuf,
    ) -> Result<Arc<Self>, String> {
        let events = runtime.subscribe(EVENTS);
        let filter = at(&face.config, "/tree/filter").as_str();
        let filter = filter.unwrap_or_else(|| runtime.tree_filter());
        let slot = Arc::new(Self {
            runtime,
            cwd: Mutex::new(cwd),
            tree: Mutex::new(super::tree::view(
                at(&face.config, "/ui/ascii") == true,
                filter,
            )),
            calls: Mutex::default(),
            look: Look::of(&face.config),
            most_entries: most_entries(&face.config),
            outbox: face.outbox.clone(),
            state: Mutex::default(),
            chat: Mutex::default(),
            status: Mutex::default(),
        });
        // Ends when the runtime drops its side, at the latest with the process.
        tokio::spawn(slot.clone().follow(face.clone(), events));
        slot.reload(face).await?;
        if let Some(tools) = super::edit::bring_back(&face.state, &slot) {
            tools.await?;
        }
        Ok(slot)
    }

    /// Session id.
    pub fn id(&self) -> String {
        self.state.lock().id.clone()
    }

    /// The directory it works in.
    pub fn cwd(&self) -> PathBuf {
        self.cwd.lock().clone()
    }

    /// Session file.
    pub fn file(&self) -> Option<PathBuf> {
        self.state.lock().file.clone()
    }

    /// Short state word for lists: `run`, `ask`, `idle`, `err`.
    pub fn word(&self) -> &'static str {
        self.status.lock().word()
    }

    /// Hands a command in, at its place among the others, and answers when it is carried out.
    pub fn command(self: &Arc<Self>, command: Command) -> Answering {
        let (answer, answered) = oneshot::channel();
        let tag = {
            let mut state = self.state.lock();
            state.next_tag += 1;
            let tag = state.next_tag;
            state.waiting.insert(tag, answer);
            tag
        };
        self.runtime.submit(command, tag);
        Box::pin(async move {
            match answered.await {
                Ok(answer) => answer.map_err(|error| error.to_string()),
                Err(_) => Err("the session has ended".into()),
            }
        })
    }

    /// Runs a shell command of the person, shown while it runs.
    pub fn shell(self: &Arc<Self>, command: &str, exclude_from_context: bool) -> Answering {
        let tag = format!("shell-{}", uuid::Uuid::new_v4());
        self.chat.lock().shell(&tag, command, now());
        self.draw();
        let answer = self.command(Command::Bash {
            command: command.to_owned(),
            exclude_from_context,
            tag: Some(tag.clone().into()),
        });
        let slot = self.clone();
        Box::pin(async move {
            let answer = answer.await;
            if let Err(line) = &answer {
                let finish = |tool: &mut super::chat_view::tool::ToolBlock| {
                    tool.finish(line.clone(), None, true);
                };
                slot.chat.lock().tool(&tag, finish);
                slot.draw();
            }
            answer
        })
    }

    /// Reads everything from the session and draws it anew.
    pub(super) async fn reload(self: &Arc<Self>, face: &Arc<Face>) -> Result<(), String> {
        let ask = |command| async {
            let answer = self.runtime.request(command).await;
            answer.map_err(|error| error.to_string())
        };
        let state = ask(Command::GetState).await?;
        let old = {
            let mut mine = self.state.lock();
            let id = at(&state, "/sessionId")
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let old = std::mem::replace(&mut mine.id, id);
            mine.file = at(&state, "/sessionFile").as_str().map(PathBuf::from);
            mine.name = at(&state, "/sessionName").as_str().map(str::to_owned);
            old
        };
        let id = self.id();
        if !old.is_empty() && old != id {
            self.rename(face, &old, &id);
        }
        let cwd = self.runtime.look(|session| session.cwd().to_owned());
        self.status.lock().load(&state, &cwd);
        *self.cwd.lock() = cwd;
        self.status.lock().mode(self.runtime.gate().mode());
        self.load_history(&id);
        self.greet(&face.first_steps(), &face.opener.places().home);
        self.warn_of_place(&face.opener.places().home);
        self.refresh_stats();
        self.draw();
        self.draw_status();
        Ok(())
    }

    /// The runtime went on to another session: the same windows show that one now.
    fn rename(self: &Arc<Self>, face: &Arc<Face>, old: &str, id: &str) {
        let mut slots = face.slots.lock();
        if let Some(slot) = slots.live.remove(old) {
            slots.live.insert(id.to_owned(), slot);
        }
        drop(slots);
        self.outbox
            .push(json!({"op": "session.moved", "from": old, "to": id,
            "info": self.info()}));
    }

    fn load_history(self: &Arc<Self>, id: &str) {
        let (first, entries) = self.window(None);
        let mut chat = Chat::new(id, self.cwd().to_string_lossy()).with_look(self.look);
        chat.load(&entries, first);
        *self.chat.lock() = chat;
    }

    /// What an empty chat says: what to do, where this is, and which model answers.
    fn greet(&self, without_model: &str, home: &Path) {
        let status = self.status.lock();
        let model = match status.model_name() {
            Some(model) => format!("Model      {model}"),
            None => without_model.to_owned(),
        };
        drop(status);
        let mode = match self.runtime.gate().mode() {
            ReviewMode::Ask => "every edit waits for you before it is written",
            ReviewMode::Auto => "edits are written at once and listed for you",
            ReviewMode::Readonly => "edits are refused",
            ReviewMode::Off => "edits are written at once",
        };
        let cwd = self.cwd();
        self.chat.lock().greet(&format!(
            "Type below and send with <C-s>, or `:Pi ask ...`. `?` lists the keys.\n\n\
             Directory  {}\nReview     {mode}\n{model}",
            shown(&cwd, home)
        ));
    }

    /// One line before anything is run where the directory is no project.
    fn warn_of_place(&self, home: &Path) {
        let line = no_project(&self.cwd(), home).filter(|_| !self.state.lock().ran);
        if let Some(line) = line {
            self.chat.lock().place(&line);
        }
    }

    /// The part of the active path that ends before `end`.
    fn window(&self, end: Option<usize>) -> (usize, Vec<Json>) {
        self.runtime.look(|session| {
            let path = session.path();
            let end = end.unwrap_or(path.len()).min(path.len());
            history::window(end, self.most_entries, |at| {
                let entry = session.entry(*path.get(at)?)?;
                Some(entry.value())
            })
        })
    }

    /// What the Lua side needs to know of a session to show it.
    pub fn info(&self) -> Json {
        let state = self.state.lock();
        json!({
            "id": state.id,
            "name": state.name,
            "file": state.file.as_ref().map(|file| file.to_string_lossy()),
            "cwd": self.cwd().to_string_lossy(),
        })
    }

    fn draw(self: &Arc<Self>) {
        let key = format!("chat:{}", self.id());
        self.outbox.dirty(key, Arc::new(ChatSource(self.clone())));
    }

    fn draw_status(self: &Arc<Self>) {
        let key = format!("status:{}", self.id());
        self.outbox.dirty(key, Arc::new(StatusSource(self.clone())));
    }

    /// Whether the run waits for nothing but the person: what is pending, and the questions that are open.
    pub(super) fn waits_for_person(&self) -> bool {
        let gate = self.runtime.gate();
        let id = self.id();
        let open = |state| matches!(state, ProposalState::Open | ProposalState::Waiting);
        let proposals = gate.proposals(Some(&id));
        !gate.questions(Some(&id)).is_empty()
            || proposals.iter().any(|it| open(it.state) && !it.unreviewed)
    }

    /// Whether a run is going on.
    pub(super) fn is_running(&self) -> bool {
        self.status.lock().is_running()
    }

    /// Whether `:Pi edit` is at work.
    pub(super) fn is_editing(&self) -> bool {
        self.state.lock().editing
    }

    /// Says whether `:Pi edit` is at work; returns whether that is news.
    pub(super) fn set_editing(&self, editing: bool) -> bool {
        std::mem::replace(&mut self.state.lock().editing, editing) != editing
    }

    /// Draws the whole chat again.
    pub fn redraw(self: &Arc<Self>) {
        self.chat.lock().redraw();
        self.draw();
        self.draw_status();
    }

    /// Draws entries above the first one shown.
    pub fn load_earlier(self: &Arc<Self>) -> Answer {
        let end = self.chat.lock().earlier();
        if end > 0 {
            let (first, entries) = self.window(Some(end));
            self.chat.lock().prepend(&entries, first);
            self.redraw();
        }
        Ok(json!({ "more": end > 0 }))
    }

    /// Adds a line of the face itself to the chat.
    pub fn note(self: &Arc<Self>, kind: Kind, text: &str) {
        self.chat.lock().note(kind, text);
        self.draw();
    }

    /// The whole output of a call, or the JSON of an entry, for a buffer of its own.
    pub fn details(&self, block: &str) -> Option<Json> {
        self.chat.lock().details(block)
    }

    fn refresh_stats(self: &Arc<Self>) {
        let slot = self.clone();
        // Detached: one question to our own runtime.
        tokio::spawn(async move {
            if let Ok(stats) = slot.runtime.request(Command::GetSessionStats).await {
                slot.status.lock().stats(&stats);
                slot.draw_status();
            }
        });
    }

    async fn follow(self: Arc<Self>, face: Arc<Face>, mut events: mpsc::Receiver<Arc<Event>>) {
        while let Some(event) = events.recv().await {
            self.absorb(&face, &event);
        }
        // Nobody is left to answer these.
        self.state.lock().waiting.clear();
    }

    fn absorb(self: &Arc<Self>, face: &Arc<Face>, event: &Event) {
        if let Event::Response { tag, answer } = event {
            if let Some(waiter) = self.state.lock().waiting.remove(tag) {
                // The one who asked may have gone.
                waiter.send(answer.clone()).ok();
            }
            return;
        }
        if !self.concerns(event) {
            return;
        }
        if self.status.lock().apply(event) {
            self.draw_status();
        }
        for op in super::events::user_events(&self.id(), event) {
            self.outbox.push(op);
        }
        if matches!(event, Event::AgentStart) {
            self.state.lock().ran = true;
        }
        match event {
            // While a run goes on nobody moves: a label or a context edit changes nothing of the chat, and reading it
            // anew would take what runs for interrupted.
            Event::TreeChanged { .. } if self.status.lock().is_running() => {}
            Event::SessionChanged { .. } | Event::TreeChanged { .. } => {
                let (slot, face) = (self.clone(), face.clone());
                // Detached: asks the runtime, which must not be done while its events are taken in.
                tokio::spawn(async move {
                    if let Err(line) = slot.reload(&face).await {
                        slot.outbox.push(notice("error", &line));
                    }
                });
            }
            Event::SessionInfoChanged { name } => {
                self.state.lock().name.clone_from(name);
            }
            Event::ExtensionUi { record } => {
                let (id, name) = {
                    let state = self.state.lock();
                    (state.id.clone(), state.name.clone())
                };
                if let Some(op) = super::dialog::op(&id, name.as_deref(), record) {
                    self.outbox.push(op);
                }
            }
            Event::Notice { level, text } => self.outbox.push(notice(level_name(*level), text)),
            Event::Review(review) => {
                self.review(review);
                let asks = self.waits_for_person();
                if self.status.lock().set_asks(asks) {
                    self.draw_status();
                }
            }
            Event::QueueUpdate {
                steering,
                follow_up,
            } => {
                let key = format!("queue:{}", self.id());
                let op = json!({"op": "prompt.queue", "session": self.id(),
                    "steering": steering, "follow_up": follow_up});
                self.outbox.set(key, op);
            }
            Event::ModelChanged { .. } => {
                self.greet(&face.first_steps(), &face.opener.places().home);
            }
            Event::AgentSettled { .. } | Event::TurnEnd { .. } | Event::CompactionEnd { .. } => {
                self.chat.lock().apply(event, now());
                self.refresh_stats();
                self.draw();
            }
            _ => {
                self.chat.lock().apply(event, now());
                self.draw();
            }
        }
    }

    /// Whether an event is about this session: the gate tells all sessions of the process about everything.
    fn concerns(&self, event: &Event) -> bool {
        match event {
            Event::Review(ReviewEvent::Changed { proposal }) => self
                .runtime
                .gate()
                .proposal(*proposal)
                .is_some_and(|proposal| proposal.session == self.id()),
            Event::Review(ReviewEvent::Approval { id, request }) => {
                let mine = request.session == self.id();
                if mine {
                    self.state
                        .lock()
                        .questions
                        .insert(*id, request.call_id.clone());
                }
                mine
            }
            Event::Review(ReviewEvent::ApprovalGone { id }) => {
                let call = self.state.lock().questions.remove(id);
                if let Some(call) = &call {
                    self.answered(call);
                }
                call.is_some()
            }
            _ => true,
        }
    }

    /// The person answered: the call goes on.
    fn answered(&self, call: &str) {
        self.chat.lock().tool(call, |tool| {
            if tool.state == State::Asks {
                tool.state = State::Running;
                tool.hint = None;
            }
        });
    }

    /// Shows in the tool block where its review stands.
    fn review(self: &Arc<Self>, event: &ReviewEvent) {
        match event {
            ReviewEvent::Changed { proposal } => {
                let Some(proposal) = self.runtime.gate().proposal(*proposal) else {
                    return;
                };
                let decided = |state: HunkState| state != HunkState::Pending;
                let done = proposal
                    .hunks
                    .iter()
                    .filter(|hunk| decided(hunk.state))
                    .count();
                let all = proposal.hunks.len();
                self.chat.lock().tool(&proposal.call_id, |tool| {
                    if tool.state.is_final() {
                        return;
                    }
                    tool.hunks = Some((done, all));
                    match proposal.state {
                        ProposalState::Waiting => tool.state = State::Waits,
                        ProposalState::Open => {
                            tool.state = State::Asks;
                            tool.hint = Some(format!("review: {} pending", all - done));
                        }
                        _ => {
                            tool.state = State::Running;
                            tool.hint = None;
                        }
                    }
                });
                self.draw();
            }
            ReviewEvent::Approval { request, .. } => {
                self.chat.lock().tool(&request.call_id, |tool| {
                    tool.state = State::Asks;
                    tool.hint = Some("waits for your answer, `:Pi attention`".into());
                });
                self.draw();
            }
            _ => self.draw(),
        }
    }
}

/// What to say of a directory that holds everything a person has.
fn no_project(cwd: &Path, home: &Path) -> Option<String> {
    let cwd = real_path(cwd);
    let what = match () {
        () if cwd.parent().is_none() => "the root of this machine",
        () if cwd == real_path(home) => "your home directory",
        () => return None,
    };
    Some(format!(
        "This is {what}, not a project: the agent sees all of it. `:tcd {{project}}`, then `:Pi new`."
    ))
}

fn level_name(level: NoticeLevel) -> &'static str {
    match level {
        NoticeLevel::Info => "info",
        NoticeLevel::Warning => "warn",
        NoticeLevel::Error => "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_home_and_root_are_no_projects() {
        let home = tempfile::tempdir().unwrap();
        let project = home.path().join("project");
        std::fs::create_dir(&project).unwrap();
        let link = home.path().join("link");
        std::os::unix::fs::symlink(home.path(), &link).unwrap();
        let says = |cwd: &Path, word: &str| {
            no_project(cwd, home.path()).is_some_and(|line| line.contains(word))
        };
        assert!(says(home.path(), "your home directory"));
        assert!(says(&link, "your home directory"));
        assert!(says(Path::new("/"), "the root"));
        assert_eq!(no_project(&project, home.path()), None);
    }
}
