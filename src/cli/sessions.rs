//! Which session the arguments name.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pi_nvim::files::agent_dir::{Places, resolve_path};
use pi_nvim::resources::Resources;
use pi_nvim::session::fork::fork_from;
use pi_nvim::session::listing::{self, Resolved, Scope, SessionDir, SessionInfo, resolve};
use pi_nvim::session::store::Start;
use pi_nvim::session::{Opener, SessionChoice};
use tokio_util::sync::CancellationToken;

use super::say::Complaint;
use super::{Cli, Mode, ask, say};

/// So many sessions are offered to choose from.
const SHOWN: usize = 20;

/// So much of a title is shown.
const TITLE: usize = 60;

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
/// One line about a session that cannot be found or forked.
pub(crate) fn choose(
    cli: &Cli,
    opener: &Opener,
    cwd: &Path,
    resources: &Resources,
) -> Result<Chosen, Complaint> {
    if cli.no_session {
        return Ok(SessionChoice::InMemory.into());
    }
    let places = &opener.places;
    let given = opener.folder_by(&resources.settings, cwd);
    let dir = SessionDir::new(&places.agent_dir, cwd, Some(&given));
    if let Some(wanted) = &cli.fork {
        let id = cli.session_id.as_deref();
        if let Some(id) = id.filter(|id| dir.find_by_id(cwd, id).is_some()) {
            let line = format!("Session already exists with id '{id}'");
            return Err(line.into());
        }
        let source = match find(places, cwd, &dir, wanted)? {
            Hit::Here(path) | Hit::Elsewhere { path, .. } => path,
        };
        return fork(cwd, &dir, &source, id);
    }
    if let Some(wanted) = &cli.session {
        return match find(places, cwd, &dir, wanted)? {
            Hit::Here(path) => Ok(SessionChoice::Open(path).into()),
            Hit::Elsewhere { path, cwd: other } if may_fork(cli.mode, wanted, &other) => {
                fork(cwd, &dir, &path, None)
            }
            Hit::Elsewhere { path, cwd: other } => Err(Complaint::Error(format!(
                "Session '{wanted}' belongs to another project ({other}); copy it into this one with --fork {}",
                path.display()
            ))),
        };
    }
    if let Some(id) = &cli.session_id {
        return Ok(match dir.find_by_id(cwd, id) {
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
    if cli.resume {
        return pick(cli.mode, cwd, &dir);
    }
    if cli.continue_recent {
        return Ok(SessionChoice::Continue.into());
    }
    Ok(SessionChoice::New.into())
}

/// A session that an argument names.
enum Hit {
    Here(PathBuf),
    Elsewhere { path: PathBuf, cwd: String },
}

fn find(places: &Places, cwd: &Path, dir: &SessionDir, wanted: &str) -> Result<Hit, Complaint> {
    let all = places.agent_dir.join("sessions");
    match resolve(wanted, dir, &all, cwd) {
        Resolved::File(path) => {
            let path = resolve_path(&path.to_string_lossy(), cwd, &places.home);
            Ok(Hit::Here(path))
        }
        Resolved::Elsewhere { path, cwd } => Ok(Hit::Elsewhere { path, cwd }),
        Resolved::Nothing => Err(Complaint::Plain(format!(
            "No session found matching '{wanted}'"
        ))),
    }
}

/// Copies a session into the folder of this project.
fn fork(
    cwd: &Path,
    dir: &SessionDir,
    source: &Path,
    id: Option<&str>,
) -> Result<Chosen, Complaint> {
    let start = Start {
        id: id.map(str::to_owned),
        ..Start::default()
    };
    let copy = fork_from(source, &dir.path, cwd, start);
    let copy = copy.map_err(|error| error.to_string())?;
    let file = copy.file().map(ToOwned::to_owned);
    Ok(SessionChoice::Open(file.unwrap_or_default()).into())
}

/// Asks whether a session of another project is to be copied into this one; no where nobody can be asked.
fn may_fork(mode: Mode, wanted: &str, other: &str) -> bool {
    let question =
        format!("Session '{wanted}' belongs to another project ({other}). Copy it into this one?");
    ask::person(mode).is_some_and(|mut person| person.confirm(&question))
}

/// Lets a person choose among the sessions of this directory.
fn pick(mode: Mode, cwd: &Path, dir: &SessionDir) -> Result<Chosen, Complaint> {
    let Some(mut person) = ask::person(mode) else {
        return Err(Complaint::Error(
            "--resume lets a person choose, which needs a terminal: use --continue for the most recent session, or --session ID"
                .to_owned(),
        ));
    };
    let scope = match dir.shared {
        true => Scope::FolderFor(&dir.path, cwd),
        false => Scope::Folder(&dir.path),
    };
    let sessions = listing::list(scope, &CancellationToken::new(), &mut |_| {});
    let recent: Vec<&SessionInfo> = sessions.iter().take(SHOWN).collect();
    if recent.is_empty() {
        let line = "there is no session of this directory yet: leave --resume out to begin one";
        return Err(line.to_owned().into());
    }
    let rows: Vec<String> = recent.iter().map(|info| row(info)).collect();
    let picked = person.pick("Sessions of this directory, newest first:", &rows);
    match picked.and_then(|at| recent.get(at)) {
        Some(info) => Ok(SessionChoice::Open(info.path.clone()).into()),
        None => Err(Complaint::Plain("No session chosen".to_owned())),
    }
}

fn row(info: &SessionInfo) -> String {
    let time = Timestamp::from_millisecond(info.modified_ms).unwrap_or_default();
    let time = time
        .to_zoned_datetime(TimeZone::system())
        .strftime("%Y-%m-%d %H:%M");
    let title = info.name.as_deref().unwrap_or(&info.first_message);
    let title: Vec<&str> = title.split_whitespace().collect();
    let title: String = title.join(" ").chars().take(TITLE).collect();
    format!("{time}  {title}  ({} messages)", info.message_count)
}
