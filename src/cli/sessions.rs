//! Which session the arguments name.

use std::path::{Path, PathBuf};

use pi_nvim::files::agent_dir::resolve_path;
use pi_nvim::resources::Resources;
use pi_nvim::session::SessionChoice;
use pi_nvim::session::fork::fork_from;
use pi_nvim::session::listing::read_header;
use pi_nvim::session::store::Start;
use serde_json::Value;

use super::say;
use super::start::Startup;

/// The session to open, and the id a new one gets.
pub(crate) struct Chosen {
    pub(crate) session: SessionChoice,
    pub(crate) id: Option<String>,
}

impl From<SessionChoice> for Chosen {
    fn from(session: SessionChoice) -> Self {
        Self { session, id: None }
    }
}

/// Chooses by the arguments.
///
/// # Errors
/// A session that cannot be found or forked; the line is complete, `Error: ` does not belong before it.
pub(crate) fn choose(startup: &Startup, resources: &Resources) -> Result<Chosen, String> {
    let cli = &startup.cli;
    let setting = resources.settings.effective().get("sessionDir");
    let dir = startup.places.sessions_for(
        &startup.cwd,
        cli.session_dir.as_deref(),
        setting.and_then(Value::as_str),
    );
    if cli.no_session {
        return Ok(SessionChoice::InMemory.into());
    }
    if let Some(wanted) = &cli.fork {
        let source = find(startup, &dir, wanted)?;
        if let Some(id) = cli
            .session_id
            .as_deref()
            .filter(|id| by_id(&dir, id).is_some())
        {
            return Err(format!("Session already exists with id '{id}'"));
        }
        let start = Start {
            id: cli.session_id.clone(),
            ..Start::default()
        };
        let copy =
            fork_from(&source, &dir, &startup.cwd, start).map_err(|error| error.to_string())?;
        let file = copy.file().map(ToOwned::to_owned);
        return Ok(SessionChoice::Open(file.unwrap_or_default()).into());
    }
    if let Some(wanted) = &cli.session {
        return Ok(SessionChoice::Open(find(startup, &dir, wanted)?).into());
    }
    if let Some(id) = &cli.session_id {
        return Ok(match by_id(&dir, id) {
            Some(path) => SessionChoice::Open(path).into(),
            None => {
                say::warning(&format!(
                    "No project session found with id '{id}'; creating a new session with that id."
                ));
                Chosen {
                    session: SessionChoice::New,
                    id: Some(id.clone()),
                }
            }
        });
    }
    if cli.continue_recent || cli.resume {
        return Ok(SessionChoice::Continue.into());
    }
    Ok(SessionChoice::New.into())
}

/// The file a path, an id or the beginning of an id names: in this folder, then in all folders.
fn find(startup: &Startup, dir: &Path, wanted: &str) -> Result<PathBuf, String> {
    if wanted.contains(['/', '\\']) || wanted.ends_with(".jsonl") {
        return Ok(resolve_path(wanted, &startup.cwd, &startup.places.home));
    }
    if let Some(path) = by_id(dir, wanted) {
        return Ok(path);
    }
    let all = startup.places.agent_dir.join("sessions");
    let folders = std::fs::read_dir(&all).into_iter().flatten().flatten();
    let elsewhere = folders
        .filter_map(|folder| by_id(&folder.path(), wanted))
        .next();
    match elsewhere {
        Some(path) => Err(format!(
            "Session '{wanted}' belongs to another project; copy it into this one with --fork {}",
            path.display()
        )),
        None => Err(format!("No session found matching '{wanted}'")),
    }
}

/// The session of a folder with this id, else with an id that begins so.
fn by_id(dir: &Path, wanted: &str) -> Option<PathBuf> {
    let mut found: Vec<(String, PathBuf)> = std::fs::read_dir(dir)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "jsonl"))
        .filter_map(|path| Some((read_header(&path)?.id().to_owned(), path)))
        .collect();
    found.sort_by(|a, b| b.1.cmp(&a.1));
    let exact = found.iter().find(|(id, _)| id == wanted);
    let begins = || found.iter().find(|(id, _)| id.starts_with(wanted));
    exact.or_else(begins).map(|(_, path)| path.clone())
}
