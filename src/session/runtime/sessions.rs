//! Which session is active: new, switch, fork, clone, import, name, reload.
//!
//! Another session takes over only when the old one is at rest: its run is aborted and its aborted turn is stored in
//! the *old* file first. What may fail (opening, copying) is done before anything of the old session is given up.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::bind;
use super::core::{Answer, Core};
use super::settings;
use super::state::{State, describe};
use crate::entry::Role;
use crate::extensions::Reason;
use crate::files::agent_dir::real_path;
use crate::resources::Resources;
use crate::session::fork::import;
use crate::session::listing::{self, SessionDir, read_header};
use crate::session::protocol::{Command, CommandError, Event, NoticeLevel};
use crate::session::store::{Session, Start, StoreError};

pub(super) async fn answer(core: &Arc<Core>, command: Command) -> Answer {
    match command {
        Command::SetSessionName { name } => set_name(core, &name).await,
        Command::NewSession { parent, name } => new(core, parent, name).await,
        Command::SwitchSession { path } => switch(core, &path).await,
        Command::Fork { entry } => fork(core, &entry).await,
        Command::Clone => clone(core).await,
        Command::ImportSession { path } => import_file(core, &path).await,
        Command::Continue => continue_last(core).await,
        Command::DeleteSession { path } => delete(core, &path).await,
        other => Err(CommandError(format!("not built yet: {other:?}"))),
    }
}

async fn set_name(core: &Core, name: &str) -> Answer {
    let name = name.trim();
    if name.is_empty() {
        return Err(CommandError::new("Session name cannot be empty"));
    }
    let now = core.with(|state| -> Result<_, CommandError> {
        state.session.append_session_info(name)?;
        state.tell_notices(core);
        let name = state.session.name().map(ToOwned::to_owned);
        core.tell(Event::SessionInfoChanged { name: name.clone() });
        Ok(name)
    })?;
    core.hear("session_info_changed", || named(now)).await;
    Ok(Value::Null)
}

fn named(name: Option<String>) -> Value {
    name.map_or(json!({}), |name| json!({ "name": name }))
}

fn cancelled(cancelled: bool) -> Value {
    json!({ "cancelled": cancelled })
}

async fn new(core: &Arc<Core>, parent: Option<PathBuf>, name: Option<String>) -> Answer {
    if core.config.hooks.before_switch(Reason::New, None).await {
        return Ok(cancelled(true));
    }
    let start = Start {
        parent_session: parent.map(|path| path.to_string_lossy().into_owned()),
        ..Start::default()
    };
    let mut fresh = core.with(|state| match state.session.dir() {
        Some(dir) => Session::create(dir, &state.cwd, start),
        None => Session::in_memory(&state.cwd, start),
    })?;
    if let Some(name) = name
        .as_deref()
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        fresh.append_session_info(name)?;
    }
    let named_now = fresh.name().map(ToOwned::to_owned);
    take_over(core, fresh, Reason::New).await;
    if named_now.is_some() {
        core.hear("session_info_changed", || named(named_now)).await;
    }
    Ok(cancelled(false))
}

async fn switch(core: &Arc<Core>, path: &Path) -> Answer {
    let path = core.with(|state| state.cwd.join(path));
    let hooks = &core.config.hooks;
    if hooks.before_switch(Reason::Resume, Some(&path)).await {
        return Ok(cancelled(true));
    }
    let cwd = core.with(|state| state.cwd.clone());
    let session = Session::open(&path, &cwd, Start::default())?;
    if !session.cwd().is_dir() {
        return Err(missing_directory(&session));
    }
    take_over(core, session, Reason::Resume).await;
    Ok(cancelled(false))
}

async fn fork(core: &Arc<Core>, entry: &str) -> Answer {
    let is_user = |state: &mut State| {
        let entry = state.session.get(entry);
        entry.is_some_and(|entry| entry.facts().is_message(Role::User))
    };
    if !core.with(is_user) {
        return Err(CommandError::new("Invalid entry ID for forking"));
    }
    if core.config.hooks.before_fork(entry, false).await {
        return Ok(json!({"text": "", "cancelled": true}));
    }
    let (session, text) = core.with(|state| {
        let forked = state.session.forked_before(entry, Start::default());
        forked.map_err(unsaved)
    })?;
    take_over(core, session, Reason::Fork).await;
    Ok(json!({"text": text, "cancelled": false}))
}

async fn clone(core: &Arc<Core>) -> Answer {
    let leaf = core.with(|state| {
        if state.session.file().is_some() && !state.session.is_saved() {
            return Err(unsaved(StoreError::NotSaved));
        }
        let leaf = state.session.leaf_id().map(ToString::to_string);
        leaf.ok_or_else(|| CommandError::new("Cannot clone session: no current entry selected"))
    })?;
    if core.config.hooks.before_fork(&leaf, true).await {
        return Ok(cancelled(true));
    }
    let session = core.with(|state| state.session.branched(&leaf, Start::default()))?;
    take_over(core, session, Reason::Fork).await;
    Ok(cancelled(false))
}

fn unsaved(error: StoreError) -> CommandError {
    match error {
        StoreError::NotSaved => CommandError::new(
            "This session has not been saved yet. Send a message before cloning or forking it.",
        ),
        other => other.into(),
    }
}

/// Copies a session file into the session folder and makes the copy active.
async fn import_file(core: &Arc<Core>, path: &Path) -> Answer {
    let (path, cwd, dir) = core.with(|state| {
        let dir = state.session.dir().map(ToOwned::to_owned);
        (state.cwd.join(path), state.cwd.clone(), dir)
    });
    let Some(dir) = dir else {
        return Err(CommandError::new(
            "cannot import into a session that is kept in memory: start without --no-session",
        ));
    };
    let imported = import(&path, &dir, &cwd, Start::default())?;
    if !imported.session.cwd().is_dir() {
        let gone = missing_directory(&imported.session);
        imported.discard();
        return Err(gone);
    }
    take_over(core, imported.session, Reason::Resume).await;
    Ok(cancelled(false))
}

fn missing_directory(session: &Session) -> CommandError {
    CommandError(format!(
        "the directory of this session is gone: {}; fork the session into a directory that exists",
        session.cwd().display()
    ))
}

/// Deletes a session file that is not in use: into the trash where there is one.
async fn delete(core: &Core, path: &Path) -> Answer {
    let (path, active) = core.with(|state| {
        let active = state.session.file().map(real_path);
        (state.cwd.join(path), active)
    });
    if active.is_some_and(|active| active == real_path(&path)) {
        return Err(CommandError::new("the active session cannot be deleted"));
    }
    if read_header(&path).is_none() {
        return Err(CommandError(format!(
            "{} is no session file",
            path.display()
        )));
    }
    let name = path.display().to_string();
    let deleted = tokio::task::spawn_blocking(move || listing::delete(&path, "trash")).await;
    match deleted {
        Ok(Ok(_)) => Ok(Value::Null),
        Ok(Err(error)) => Err(CommandError(format!("delete {name}: {error}"))),
        Err(error) => Err(CommandError(describe(&error))),
    }
}

/// Opens the most recent session of the directory.
async fn continue_last(core: &Arc<Core>) -> Answer {
    let recent = core.with(|state| {
        let cwd = &state.cwd;
        state.session_dir(core)?.most_recent(cwd)
    });
    match recent {
        Some(path) => switch(core, &path).await,
        None => Err(CommandError::new(
            "there is no session of this directory yet",
        )),
    }
}

impl State {
    /// Where the sessions of this directory lie; `None` when they are kept in memory.
    pub(super) fn session_dir(&self, core: &Core) -> Option<SessionDir> {
        let agent_dir = &core.config.load.places.agent_dir;
        let dir = self.session.dir()?;
        Some(SessionDir::new(agent_dir, &self.cwd, Some(dir)))
    }
}

/// Makes a session the active one, after the old one has come to rest.
pub(super) async fn take_over(core: &Arc<Core>, session: Session, reason: Reason) {
    let switching = core.stop.child_token();
    rest(core, &switching).await;
    let (old_id, old_file) = core.with(|state| {
        let file = state.session.file().map(ToOwned::to_owned);
        (state.session.id().to_owned(), file)
    });
    core.config.gate.cancel(Some(&old_id)).await;
    let hooks = &core.config.hooks;
    let target = session.file().map(ToOwned::to_owned);
    hooks.session_shutdown(reason, target.as_ref()).await;
    core.with_activity(|state| {
        state.summarizing = None;
        state.queues.clear();
        state.held.clear();
        state.beside.clear();
        state.cwd = session.cwd().to_owned();
        state.session = session;
        begin_session(core, state);
        core.tell(Event::SessionChanged {
            id: state.session.id().to_owned(),
            file: state.session.file().map(ToOwned::to_owned),
        });
    });
    bind::begin(core, reason, old_file.as_ref()).await;
}

/// Aborts what runs, waits for it, and keeps anything new from beginning until the new session is there.
async fn rest(core: &Core, switching: &CancellationToken) {
    core.abort();
    loop {
        core.wait_idle().await;
        let at_rest = core.with_activity(|state| {
            let idle = state.run.is_none() && state.summarizing.is_none();
            if idle {
                state.summarizing = Some(switching.clone());
            }
            idle
        });
        if at_rest {
            return;
        }
    }
}

/// Brings the selection in line with a session that has just become active: a branch with a conversation decides by its
/// entries, a new one records the live selection.
pub(super) fn begin_session(core: &Core, state: &mut State) {
    state.tell_notices(core);
    let context = state.session.context();
    let existing = context.messages().next().is_some();
    if existing {
        restore(core, state);
    } else {
        state.record_selection(core);
    }
}

fn restore(core: &Core, state: &mut State) {
    if !core.config.tools_fixed {
        state.restore_tools();
    }
    let context = state.session.context();
    if let Some(wanted) = context.model().filter(|_| !core.config.model_fixed) {
        let known = core
            .config
            .models
            .available()
            .into_iter()
            .find(|model| model.provider == wanted.provider && model.id == wanted.model_id);
        match (known, &state.model) {
            (Some(model), _) => state.model = Some(model),
            (None, Some(model)) => core.notice(
                NoticeLevel::Warning,
                format!(
                    "Could not restore model {}/{}. Using {}/{}",
                    wanted.provider, wanted.model_id, model.provider, model.id
                ),
            ),
            (None, None) => core.notice(
                NoticeLevel::Warning,
                format!(
                    "Could not restore model {}/{}. No other model is available: choose one",
                    wanted.provider, wanted.model_id
                ),
            ),
        }
    }
    let level = context
        .chosen_thinking_level()
        .filter(|_| !core.config.thinking_fixed)
        .and_then(crate::ai::ThinkingLevel::parse);
    let missing = context.chosen_thinking_level().is_none();
    state.thinking = state.clamp(level.unwrap_or(state.thinking));
    if missing {
        let stored = state.session.append_thinking_level(state.thinking.as_str());
        state.report(core, stored.map(drop));
    }
}

/// Carries out `reload`: settings, resources and context files are read again.
pub(super) async fn reload(core: &Arc<Core>) -> Answer {
    let busy = core.with(|state| state.run.is_some() || state.summarizing.is_some());
    if busy {
        return Err(CommandError::new(
            "cannot reload while a response or a compaction runs: wait for it or abort it",
        ));
    }
    let hooks = &core.config.hooks;
    hooks.session_shutdown(Reason::Reload, None).await;
    let mut options = core.config.load.clone();
    let before = core.with(|state| state.resources.settings.clone());
    let load = move || {
        options.trust = options
            .trust_rules
            .again(&options.places, &options.cwd, options.trust);
        Resources::reload(&options, before)
    };
    let loaded = tokio::task::spawn_blocking(load).await;
    let resources = loaded.map_err(|error| CommandError(describe(&error)))?;
    core.with(|state| {
        for diagnostic in &resources.diagnostics {
            core.notice(NoticeLevel::Warning, diagnostic.message.clone());
        }
        state.queues.follow(resources.settings.effective());
        core.config.models.configure(resources.settings.effective());
        if let Some(env) = &core.config.shell {
            env.options
                .change(|options| settings::follow(options, &resources.settings));
        }
        state.resources = resources;
    });
    bind::begin(core, Reason::Reload, None).await;
    Ok(Value::Null)
}
