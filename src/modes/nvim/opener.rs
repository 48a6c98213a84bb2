//! What Neovim adds to opening a session: one gate that a person decides at, and files as its buffers show them.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;

use super::json::at;
use crate::ai::ModelRegistry;
use crate::files::agent_dir::Places;
use crate::resources::trust::Verdict;
use crate::review::ReviewMode;
use crate::review::gate::{Gate, GateConfig, Reviewer, Rule};
use crate::session::{self, CommandError, Desk, Runtime, Wish};
use crate::workspace::Workspace;

/// Opens sessions over one gate and one view of files.
pub struct Opener {
    opener: session::Opener,
    desk: Desk,
}

impl Opener {
    /// Makes one; `config` holds the plugin's options, `cwd` the directory of the Neovim it serves.
    ///
    /// # Errors
    /// One line when a review rule cannot be read.
    pub fn new(
        opener: session::Opener,
        workspace: Arc<dyn Workspace>,
        config: &Json,
        cwd: &Path,
    ) -> Result<Self, String> {
        let review = at(config, "/review");
        let mut gate = GateConfig::new(workspace.clone(), cwd);
        gate.state_dir = Some(opener.places.state_dir.clone());
        gate.reviewer = Reviewer::Person;
        gate.mode = mode(at(review, "/mode")).unwrap_or_default();
        gate.rules = rules(at(review, "/rules"))?;
        gate.stop_on_reject = at(review, "/on_reject") == "stop";
        if let Some(join) = at(review, "/join").as_u64() {
            gate.join = usize::try_from(join).unwrap_or(gate.join);
        }
        Ok(Self {
            opener,
            desk: Desk {
                gate: Gate::new(gate),
                workspace,
            },
        })
    }

    /// The gate that all sessions of this process share.
    pub fn gate(&self) -> &Gate {
        &self.desk.gate
    }

    /// The models.
    pub fn registry(&self) -> &ModelRegistry {
        &self.opener.registry
    }

    /// Where things live.
    pub fn places(&self) -> &Places {
        &self.opener.places
    }

    /// The folder where sessions of a directory lie.
    pub fn session_folder(&self, cwd: &Path) -> std::path::PathBuf {
        self.opener.session_folder(cwd)
    }

    /// Lets extensions decide about the trust in a directory, before a session of it is opened.
    pub async fn consult(&self, cwd: &Path) {
        self.opener.consult(cwd).await;
    }

    /// Opens a session of a directory. Blocks on the file system.
    ///
    /// # Errors
    /// One line that says which session could not be opened and why.
    pub fn open(&self, cwd: &Path, wish: Wish) -> Result<Runtime, CommandError> {
        if !cwd.is_dir() {
            let line = format!("{} is no directory any more", cwd.display());
            return Err(CommandError::new(line));
        }
        let loaded = self.opener.load(cwd);
        self.opener.open(loaded, wish, self.desk.clone())
    }

    /// Where the rules about trust lead for a directory.
    pub fn verdict(&self, cwd: &Path) -> Verdict {
        self.opener.verdict(cwd)
    }

    /// Takes an answer for the life of this process.
    pub fn trust_once(&self, cwd: &Path, trusted: bool) {
        self.opener.trust.answer(cwd, trusted);
    }
}

fn mode(value: &Json) -> Option<ReviewMode> {
    serde_json::from_value(value.clone()).ok()
}

/// `review.rules`: `{glob = '**/*.lock', mode = 'auto'}` or `{outside_cwd = true, mode = 'ask'}`.
fn rules(value: &Json) -> Result<Vec<Rule>, String> {
    let given = value.as_array().into_iter().flatten();
    given
        .map(|rule| {
            let mode = mode(at(rule, "/mode")).ok_or_else(|| {
                format!("review rule {rule}: mode is one of ask, auto, readonly, off")
            })?;
            match at(rule, "/glob").as_str() {
                Some(glob) => Rule::glob(glob, mode),
                None if at(rule, "/outside_cwd") == true => Ok(Rule::outside_cwd(mode)),
                None => Err(format!("review rule {rule}: give a glob or outside_cwd")),
            }
        })
        .collect()
}
