//! Which session a request means, and which directory it works in.
//!
//! A session keeps the directory it was made in. When that is gone the person is asked: the request is answered with
//! `{missing, path}`, nothing is opened, and the same request with `directory` (`here` or `fork`) carries the answer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;

use super::face::{Answering, Face, Request};
use super::requests::done;
use crate::session::fork::fork_from;
use crate::session::listing::{SessionDir, read_header};
use crate::session::store::Start;
use crate::session::{SessionChoice, Wish};

/// What the command line says about the session to begin with.
#[derive(Debug, Default)]
pub struct Begin {
    /// The session that the first window shows, and the directory where it was asked for.
    pub first: Mutex<Option<(PathBuf, Wish)>>,
    /// Show the list of sessions at once (`--resume`).
    pub pick: bool,
    /// New sessions are kept in memory only (`--no-session`).
    pub in_memory: bool,
}

impl Begin {
    /// What the Lua side is to show unasked.
    pub(super) fn word(&self) -> Option<&'static str> {
        match (self.pick, self.first.lock().is_some()) {
            (true, _) => Some("pick"),
            (false, true) => Some("open"),
            (false, false) => None,
        }
    }
}

/// Opens the session that the command line names, for the first who wants one.
pub(super) fn begin(face: &Arc<Face>, request: &Request) -> Option<Answering> {
    let (cwd, wish) = face.begin.first.lock().take()?;
    Some(open(face, cwd, wish, Gone::of(request)))
}

/// What to do about a session whose directory is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    /// Ask the person.
    Ask,
    /// Go on in the directory of the tab page; the file keeps saying the old one.
    Here,
    /// Go on with a copy that belongs to the directory of the tab page.
    Fork,
}

impl Gone {
    fn of(request: &Request) -> Self {
        match request.text("directory") {
            Some("here") => Self::Here,
            Some("fork") => Self::Fork,
            _ => Self::Ask,
        }
    }
}

/// What a request comes to.
#[derive(Debug, PartialEq)]
enum Plan {
    Open { cwd: PathBuf, choice: SessionChoice },
    Ask { path: PathBuf, missing: PathBuf },
}

/// Opens a session and answers what the Lua side needs to show it.
pub(super) fn start(face: &Arc<Face>, request: &Request, choice: SessionChoice) -> Answering {
    let Some(cwd) = request.text("cwd").map(PathBuf::from) else {
        return done(Err(format!("{}: no directory given", request.name)));
    };
    // Something else is wanted before the session of the command line was.
    face.begin.first.lock().take();
    let session = match choice {
        SessionChoice::New if face.begin.in_memory => SessionChoice::InMemory,
        other => other,
    };
    // Old sessions are opened from a list, long after the command line was written: its flags do not hold for them.
    let wish = Wish {
        session,
        name: request.text("name").map(str::to_owned),
        ..Wish::default()
    };
    open(face, cwd, wish, Gone::of(request))
}

fn open(face: &Arc<Face>, cwd: PathBuf, mut wish: Wish, gone: Gone) -> Answering {
    let face = face.clone();
    Box::pin(async move {
        if let SessionChoice::Open(path) = &wish.session
            && let Some(live) = face.live_file(path)
        {
            live.redraw();
            return Ok(live.info());
        }
        let planner = face.clone();
        let choice = std::mem::take(&mut wish.session);
        // Reads headers of session files.
        let plan = tokio::task::spawn_blocking(move || {
            let folder = |cwd: &Path| planner.opener.session_folder(cwd);
            plan(
                &planner.opener.places().agent_dir,
                &folder,
                &cwd,
                choice,
                gone,
            )
        });
        let plan = plan
            .await
            .map_err(|error| format!("open the session: {error}"))??;
        match plan {
            Plan::Ask { path, missing } => Ok(json!({
                "missing": missing.to_string_lossy(),
                "path": path.to_string_lossy(),
            })),
            Plan::Open { cwd, choice } => {
                wish.session = choice;
                let slot = face.open(cwd, wish).await?;
                slot.redraw();
                Ok(slot.info())
            }
        }
    })
}

/// Works out where a session is opened. `folder` names the folder where sessions of a directory lie.
fn plan(
    agent_dir: &Path,
    folder: &dyn Fn(&Path) -> PathBuf,
    cwd: &Path,
    choice: SessionChoice,
    gone: Gone,
) -> Result<Plan, String> {
    let here = |choice| {
        Ok(Plan::Open {
            cwd: cwd.to_owned(),
            choice,
        })
    };
    let path = match choice {
        SessionChoice::Open(path) => path,
        SessionChoice::Continue => {
            let dir = SessionDir::new(agent_dir, cwd, Some(&folder(cwd)));
            match dir.most_recent(cwd) {
                Some(path) => path,
                None => return here(SessionChoice::New),
            }
        }
        other => return here(other),
    };
    let header = read_header(&path);
    let stored = header.as_ref().and_then(|header| header.cwd());
    // A file without a directory of its own is opened where the person is.
    let Some(stored) = stored.filter(|text| !text.is_empty()).map(PathBuf::from) else {
        return here(SessionChoice::Open(path));
    };
    if stored.is_dir() {
        return Ok(Plan::Open {
            cwd: stored,
            choice: SessionChoice::Open(path),
        });
    }
    match gone {
        Gone::Ask => Ok(Plan::Ask {
            path,
            missing: stored,
        }),
        Gone::Here => here(SessionChoice::OpenHere(path)),
        Gone::Fork => {
            let copy = fork_from(&path, &folder(cwd), cwd, Start::default());
            let copy = copy.map_err(|error| error.to_string())?;
            let file = copy.file().map(Path::to_owned);
            here(SessionChoice::Open(file.ok_or("the copy has no file")?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    struct Place {
        root: tempfile::TempDir,
        cwd: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let cwd = root.path().join("project");
            std::fs::create_dir(&cwd).unwrap();
            Self { root, cwd }
        }

        /// A session file that says it ran in `cwd`.
        fn session(&self, cwd: &Path) -> PathBuf {
            let dir = self.root.path().join("sessions");
            std::fs::create_dir_all(&dir).unwrap();
            let path = dir.join("s.jsonl");
            let header = json!({"type": "session", "version": 3, "id": "0198-a",
                "timestamp": "2026-01-01T00:00:00.000Z", "cwd": cwd});
            let entry = json!({"type": "message", "id": "e1", "parentId": null,
                "timestamp": "2026-01-01T00:00:01.000Z",
                "message": {"role": "user", "content": "hello", "timestamp": 1}});
            std::fs::write(&path, format!("{header}\n{entry}\n")).unwrap();
            path
        }

        fn plan(&self, choice: SessionChoice, gone: Gone) -> Plan {
            let root = self.root.path().to_owned();
            let folder = move |_: &Path| root.join("sessions");
            plan(self.root.path(), &folder, &self.cwd, choice, gone).unwrap()
        }
    }

    #[test]
    fn a_session_is_opened_where_it_was_made() {
        let place = Place::new();
        let other = place.root.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let path = place.session(&other);
        let choice = SessionChoice::Open(path);
        let expected = Plan::Open {
            cwd: other,
            choice: choice.clone(),
        };
        assert_eq!(place.plan(choice, Gone::Ask), expected);
    }

    #[test]
    fn a_directory_that_is_gone_is_asked_about_and_nothing_is_made() {
        let place = Place::new();
        let missing = place.root.path().join("gone");
        let path = place.session(&missing);
        let before = std::fs::read(&path).unwrap();
        let ask = Plan::Ask {
            path: path.clone(),
            missing,
        };
        assert_eq!(
            place.plan(SessionChoice::Open(path.clone()), Gone::Ask),
            ask
        );
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1
        );
    }

    #[test]
    fn going_on_here_keeps_the_file_and_a_fork_says_where_it_is() {
        let place = Place::new();
        let path = place.session(&place.root.path().join("gone"));
        let open = SessionChoice::Open(path.clone());
        let here = Plan::Open {
            cwd: place.cwd.clone(),
            choice: SessionChoice::OpenHere(path.clone()),
        };
        assert_eq!(place.plan(open.clone(), Gone::Here), here);
        let Plan::Open {
            cwd,
            choice: SessionChoice::Open(copy),
        } = place.plan(open, Gone::Fork)
        else {
            panic!("a fork is opened as a file");
        };
        assert_eq!(cwd, place.cwd);
        assert_ne!(copy, path);
        let header = read_header(&copy).unwrap();
        assert_eq!(header.cwd(), place.cwd.to_str());
        assert_eq!(header.parent_session(), path.to_str());
    }

    #[test]
    fn nothing_to_continue_is_a_new_session() {
        let place = Place::new();
        let expected = Plan::Open {
            cwd: place.cwd.clone(),
            choice: SessionChoice::New,
        };
        assert_eq!(place.plan(SessionChoice::Continue, Gone::Ask), expected);
    }
}
