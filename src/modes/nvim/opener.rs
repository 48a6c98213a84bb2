//! Opens sessions: puts models, tools, the gate and the resources of a directory together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::SecretString;
use serde_json::Value as Json;

use super::json::at;
use crate::ai::choice::{Wanted, choose};
use crate::ai::http::HttpSettings;
use crate::ai::registry::ModelRegistry;
use crate::ai::{Model, RequestOptions};
use crate::extensions::NoHooks;
use crate::files::agent_dir::Places;
use crate::resources::settings::{Settings, Trust};
use crate::resources::trust::{TrustRules, Verdict};
use crate::resources::{LoadOptions, ResourceFlags, Resources};
use crate::review::ReviewMode;
use crate::review::gate::{Gate, GateConfig, Reviewer, Rule};
use crate::session::{CommandError, Runtime, RuntimeConfig, ScopedModels, SessionChoice};
use crate::tools::{self, ToolEnv, ToolOptions};
use crate::workspace::Workspace;

/// What the command line says about sessions.
pub struct Setup {
    /// Where things live.
    pub places: Places,
    /// Models and their credentials.
    pub registry: ModelRegistry,
    /// Flags about resources.
    pub flags: ResourceFlags,
    /// Model to begin with instead of one that is chosen by `wanted` and the settings.
    pub model: Option<Arc<Model>>,
    /// What the command line says about models.
    pub wanted: Wanted,
    /// `--api-key`: for the provider of the model to begin with.
    pub api_key: Option<SecretString>,
    /// `--session-dir`.
    pub session_dir: Option<String>,
    /// What to think of a project's own resources, for this process.
    pub trust: Option<bool>,
    /// The binary that guards commands.
    pub guard: Option<PathBuf>,
}

/// Opens sessions over one gate and one view of files.
pub struct Opener {
    setup: Setup,
    workspace: Arc<dyn Workspace>,
    gate: Gate,
    /// Rules and answers about trust of this process.
    trust: TrustRules,
}

impl Opener {
    /// Makes one; `config` holds the plugin's options, `cwd` the directory of the Neovim it serves.
    ///
    /// # Errors
    /// One line when a review rule cannot be read.
    pub fn new(
        setup: Setup,
        workspace: Arc<dyn Workspace>,
        config: &Json,
        cwd: &Path,
    ) -> Result<Self, String> {
        let review = at(config, "/review");
        let mut gate = GateConfig::new(workspace.clone(), cwd);
        gate.state_dir = Some(setup.places.state_dir.clone());
        gate.reviewer = Reviewer::Person;
        gate.mode = mode(at(review, "/mode")).unwrap_or_default();
        gate.rules = rules(at(review, "/rules"))?;
        gate.stop_on_reject = at(review, "/on_reject") == "stop";
        if let Some(join) = at(review, "/join").as_u64() {
            gate.join = usize::try_from(join).unwrap_or(gate.join);
        }
        Ok(Self {
            gate: Gate::new(gate),
            trust: TrustRules::new(setup.trust),
            setup,
            workspace,
        })
    }

    /// The gate that all sessions of this process share.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The models.
    pub fn registry(&self) -> &ModelRegistry {
        &self.setup.registry
    }

    /// Where things live.
    pub fn places(&self) -> &Places {
        &self.setup.places
    }

    /// The folder where sessions of a directory lie.
    pub fn session_folder(&self, cwd: &Path) -> PathBuf {
        let places = &self.setup.places;
        let settings = Settings::load(&places.agent_dir, cwd, self.trust(cwd));
        let flag = self.setup.session_dir.as_deref();
        places.sessions_for(cwd, flag, settings.session_dir())
    }

    /// Opens a session of a directory. Blocks on the file system.
    ///
    /// # Errors
    /// One line that says which session could not be opened and why.
    pub fn open(&self, cwd: &Path, session: SessionChoice) -> Result<Runtime, CommandError> {
        if !cwd.is_dir() {
            let line = format!("{} is no directory any more", cwd.display());
            return Err(CommandError::new(line));
        }
        let load = LoadOptions {
            places: self.setup.places.clone(),
            cwd: cwd.to_owned(),
            trust: self.trust(cwd),
            trust_rules: self.trust.clone(),
            flags: self.setup.flags.clone(),
        };
        let resources = Resources::load(&load);
        let settings = &resources.settings;
        let setup = &self.setup;
        let choice = choose(
            &setup.wanted,
            &setup.registry,
            settings.effective(),
            session.is_old(),
        )
        .map_err(|error| CommandError(error.to_string()))?;
        let model = setup.model.clone().or(choice.model);
        if let (Some(key), Some(model)) = (&setup.api_key, &model) {
            setup.registry.set_runtime_key(&model.provider, key.clone());
        }
        let http = HttpSettings::from_settings(settings.effective());
        self.setup.registry.configure(http);
        let options = ToolOptions {
            command_prefix: settings.shell_command_prefix().map(str::to_owned),
            shell_path: settings.shell_path().map(PathBuf::from),
            auto_resize_images: settings.image_auto_resize(),
            home: self.setup.places.home.clone(),
            agent_bin_dir: Some(self.setup.places.agent_dir.join("bin")),
            guard: self.setup.guard.clone(),
            ..ToolOptions::default()
        };
        let shell = ToolEnv {
            workspace: self.workspace.clone(),
            gate: self.gate.clone(),
            options,
        };
        let tools = tools::builtin(shell.clone());
        let config = RuntimeConfig {
            load,
            session_dir: self.setup.session_dir.clone(),
            session,
            session_id: None,
            session_name: None,
            provider: self.setup.registry.provider(),
            options: RequestOptions::from_settings(resources.settings.effective()),
            models: Arc::new(ScopedModels {
                registry: self.setup.registry.clone(),
                scope: choice.scope,
            }),
            model,
            thinking: choice.level,
            // Old sessions are opened from a list, long after the command line was written.
            model_fixed: false,
            thinking_fixed: false,
            warnings: choice.warnings,
            tools,
            active_tools: Some(tools::DEFAULT_TOOLS.map(str::to_owned).to_vec()),
            tools_fixed: false,
            shell: Some(shell),
            gate: self.gate.clone(),
            hooks: Arc::new(NoHooks),
        };
        Runtime::start_with(config, resources)
    }

    /// The project's own resources are used only after a person said so.
    fn trust(&self, cwd: &Path) -> Trust {
        match self.verdict(cwd) {
            Verdict::Decided { trusted: true, .. } => Trust::Trusted,
            _ => Trust::Untrusted,
        }
    }

    /// Where the rules about trust lead for a directory.
    pub fn verdict(&self, cwd: &Path) -> Verdict {
        let (verdict, trouble) = self.trust.verdict(&self.setup.places, cwd);
        if let Some(trouble) = trouble {
            tracing::warn!("{trouble}");
        }
        verdict
    }

    /// Takes an answer for the life of this process.
    pub fn trust_once(&self, cwd: &Path, trusted: bool) {
        self.trust.answer(cwd, trusted);
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
