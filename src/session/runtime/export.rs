//! Exports of the active session.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::core::{Answer, Core};
use super::state::describe;
use crate::session::protocol::CommandError;
use crate::session::store::{Session, StoreError};

/// Writes the session as a page. The path is given back as it was given; without one the page lands in the directory.
pub(super) async fn html(core: &Arc<Core>, path: Option<PathBuf>) -> Answer {
    core.with(|state| {
        if state.session.file().is_none() {
            return Err(CommandError::new("Cannot export in-memory session to HTML"));
        }
        if !state.session.is_saved() {
            return Err(CommandError::new(
                "Nothing to export yet - start a conversation first",
            ));
        }
        Ok(())
    })?;
    write(
        core,
        path,
        |session| session.html_name(),
        |session, to| session.export_html_to(to),
    )
    .await
}

/// Writes the active branch as a session file.
pub(super) async fn jsonl(core: &Arc<Core>, path: Option<PathBuf>) -> Answer {
    write(core, path, Session::jsonl_name, Session::export_jsonl_to).await
}

/// Writes beside the event loop: a page of thousands of entries takes its time.
async fn write(
    core: &Arc<Core>,
    path: Option<PathBuf>,
    name: fn(&mut Session) -> String,
    export: fn(&mut Session, &Path) -> Result<(), StoreError>,
) -> Answer {
    let core = Arc::clone(core);
    let export = move || {
        core.with(|state| {
            let shown = path.unwrap_or_else(|| PathBuf::from(name(&mut state.session)));
            let to = state.cwd.join(&shown);
            let own = state.session.file();
            if own.is_some_and(|file| crate::session::listing::same_file(file, &to)) {
                return Err(CommandError(format!(
                    "{} is the session itself: export to another path",
                    to.display()
                )));
            }
            export(&mut state.session, &to)?;
            Ok(json!({ "path": shown }))
        })
    };
    let done = tokio::task::spawn_blocking(export).await;
    done.map_err(|error| CommandError(describe(&error)))?
}
