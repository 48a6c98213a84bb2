//! Which session the arguments name.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use pi_nvim::files::agent_dir::{Places, resolve_path};
use pi_nvim::resources::Resources;
use pi_nvim::session::fork::fork_from;
use pi_nvim::session::listing::{Resolved, SessionDir, resolve};
use pi_nvim::session::store::Start;
use pi_nvim::session::{Opener, SessionChoice};

use super::say::Complaint;
use super::{Cli, Mode, say};

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
    if cli.continue_recent || cli.resume {
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

/// Asks whether a session of another project is to be copied into this one. Nobody can be asked where stdin is no
/// terminal or carries a protocol.
fn may_fork(mode: Mode, wanted: &str, other: &str) -> bool {
    let stdin = std::io::stdin();
    if mode == Mode::Rpc || !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    say::line(&format!(
        "Session '{wanted}' belongs to another project ({other}). Copy it into this one? [y/N]"
    ));
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
