//! Exports of the active session. The session is copied for a moment's look; it goes on while the file is written.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use super::core::{Answer, Core, now_ms};
use super::state::{State, describe};
use crate::session::protocol::CommandError;
use crate::session::store::{Session, Snapshot, StoreError};

/// Writes the session as a page. The path is given back as it was given; without one the page lands in the directory.
pub(super) async fn html(core: &Arc<Core>, path: Option<PathBuf>) -> Answer {
    let job = core.with(|state| {
        if state.session.file().is_none() {
            return Err(CommandError::new("Cannot export in-memory session to HTML"));
        }
        if !state.session.is_saved() {
            return Err(CommandError::new(
                "Nothing to export yet - start a conversation first",
            ));
        }
        Job::new(state, path, |session| session.html_name())
    })?;
    write(job, |session, to| session.export_html_to(to)).await
}

/// Writes the active branch as a session file.
pub(super) async fn jsonl(core: &Arc<Core>, path: Option<PathBuf>) -> Answer {
    let now = now_ms();
    let job = core.with(|state| Job::new(state, path, |_| Session::jsonl_name(now)))?;
    write(job, move |session, to| session.write_jsonl(now, to)).await
}

/// What is exported, and where to.
struct Job {
    session: Snapshot,
    shown: PathBuf,
    to: PathBuf,
}

impl Job {
    fn new(
        state: &State,
        path: Option<PathBuf>,
        name: impl FnOnce(&Session) -> String,
    ) -> Result<Self, CommandError> {
        let shown = path.unwrap_or_else(|| PathBuf::from(name(&state.session)));
        let to = state.cwd.join(&shown);
        let own = state.session.file();
        if own.is_some_and(|file| crate::session::listing::same_file(file, &to)) {
            return Err(CommandError(format!(
                "{} is the session itself: export to another path",
                to.display()
            )));
        }
        Ok(Self {
            session: state.session.snapshot()?,
            shown,
            to,
        })
    }
}

/// Writes beside the event loop: a page of thousands of entries takes its time.
async fn write(
    job: Job,
    export: impl FnOnce(&Session, &std::path::Path) -> Result<(), StoreError> + Send + 'static,
) -> Answer {
    let work = move || -> Answer {
        export(&job.session, &job.to)?;
        Ok(json!({ "path": job.shown }))
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| CommandError(describe(&error)))?
}
