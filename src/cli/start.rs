//! Begins a session from the command line. The one place that reads the environment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pi_nvim::ai::ModelRegistry;
use pi_nvim::ai::http::EnvLookup;
use pi_nvim::extensions::Source;
use pi_nvim::files::agent_dir::Places;
use pi_nvim::resources::trust::{Verdict, not_used};
use pi_nvim::review::gate::{Gate, GateConfig, Reviewer};
use pi_nvim::session::{Desk, Opener, Runtime, Wish};
use pi_nvim::workspace::Workspace;
use pi_nvim::workspace::disk::DiskWorkspace;

use super::say::Complaint;
use super::{Cli, HeadlessReview, Mode, say};

/// What all sessions of the process share.
pub(crate) struct Startup {
    pub(crate) cli: Cli,
    pub(crate) cwd: PathBuf,
    pub(crate) opener: Opener,
}

impl Startup {
    /// Reads environment and models.
    pub(crate) fn new(mut cli: Cli) -> Result<Self, String> {
        let cwd = std::env::current_dir()
            .map_err(|error| format!("the working directory cannot be used: {error}"))?;
        let places = Places::from_env(|name| std::env::var_os(name), &cwd);
        super::log::start(&places.state_dir);
        let env: EnvLookup = Arc::new(|name| std::env::var(name).ok());
        let registry = ModelRegistry::load(&places.agent_dir, env);
        for problem in registry.problems() {
            say::warning(&problem);
        }
        let mut opener = cli.opener(places, registry);
        if cli.mode == Mode::Rpc {
            opener.source = Source::Rpc;
            opener.has_ui = true;
        }
        let claimed = |(name, value): &(String, Option<String>)| {
            let name = name.trim_start_matches('-');
            opener.hooks.claims_flag(name, value.as_deref())
        };
        cli.unclaimed.retain(|flag| !claimed(flag));
        if let Some(error) = cli.unclaimed_error() {
            return Err(error);
        }
        Ok(Self { cli, cwd, opener })
    }

    /// Opens the session the arguments name, without an editor.
    pub(crate) async fn open(&self) -> Result<Runtime, Complaint> {
        self.opener.consult(&self.cwd).await;
        self.say_what_is_not_used(&self.cwd);
        let loaded = self.opener.load(&self.cwd);
        let chosen =
            super::sessions::choose(&self.cli, &self.opener, &self.cwd, &loaded.resources)?;
        let wish = Wish {
            session: chosen.session,
            id: chosen.id,
            name: self.cli.name.clone(),
            flags_hold: true,
        };
        Ok(self.opener.open(loaded, wish, self.desk())?)
    }

    /// Nobody can be asked about an undecided project here: what it brings is left out, and named.
    fn say_what_is_not_used(&self, cwd: &Path) {
        let places = &self.opener.places;
        let (verdict, trouble) = self.opener.trust.verdict(places, cwd);
        if let Some(trouble) = trouble {
            say::warning(&trouble.to_string());
        }
        if let (Verdict::Ask(_), Some(line)) = (verdict, not_used(places, cwd)) {
            say::warning(&line);
        }
    }

    /// The gate of a face without an editor.
    fn desk(&self) -> Desk {
        let workspace: Arc<dyn Workspace> = Arc::new(DiskWorkspace::default());
        let gate = Gate::new(GateConfig {
            state_dir: Some(self.opener.places.state_dir.clone()),
            reviewer: match self.cli.review {
                HeadlessReview::Auto => Reviewer::AutoAccept,
                HeadlessReview::Reject => Reviewer::Reject,
            },
            ..GateConfig::new(Arc::clone(&workspace), &self.cwd)
        });
        Desk { gate, workspace }
    }
}
