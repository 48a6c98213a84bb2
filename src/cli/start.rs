//! Puts a session together from arguments, environment, settings and models. The one place that reads the environment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pi_nvim::ai::choice::choose;
use pi_nvim::ai::http::{EnvLookup, HttpSettings};
use pi_nvim::ai::{ModelRegistry, RequestOptions};
use pi_nvim::extensions::{Hooks, NoHooks};
use pi_nvim::files::agent_dir::Places;
use pi_nvim::resources::settings::Trust;
use pi_nvim::resources::trust::{TrustRules, Verdict, not_used};
use pi_nvim::resources::{LoadOptions, ResourceFlags, Resources};
use pi_nvim::review::gate::{Gate, GateConfig, Reviewer};
use pi_nvim::session::{CommandError, Runtime, RuntimeConfig, ScopedModels};
use pi_nvim::tools::{self, ToolEnv, ToolOptions};
use pi_nvim::workspace::Workspace;
use pi_nvim::workspace::disk::DiskWorkspace;
use serde_json::Value;

use super::{Cli, HeadlessReview, ToolSelection, say};

/// What all sessions of the process share.
pub(crate) struct Startup {
    pub(crate) cli: Cli,
    pub(crate) places: Places,
    pub(crate) cwd: PathBuf,
    pub(crate) registry: ModelRegistry,
    hooks: Arc<dyn Hooks>,
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
        let hooks: Arc<dyn Hooks> = Arc::new(NoHooks);
        let claimed = |(name, value): &(String, Option<String>)| {
            hooks.claims_flag(name.trim_start_matches('-'), value.as_deref())
        };
        cli.unclaimed.retain(|flag| !claimed(flag));
        if let Some(error) = cli.unclaimed_error() {
            return Err(error);
        }
        Ok(Self {
            cli,
            places,
            cwd,
            registry,
            hooks,
        })
    }

    /// Whether the project's own resources may be used when nobody can be asked.
    fn trust(&self, cwd: &Path) -> Trust {
        let (verdict, trouble) = TrustRules::new(self.cli.trust).verdict(&self.places, cwd);
        if let Some(trouble) = trouble {
            say::warning(&trouble.to_string());
        }
        match verdict {
            Verdict::Decided { trusted: true, .. } => Trust::Trusted,
            Verdict::Decided { trusted: false, .. } => Trust::Untrusted,
            Verdict::Ask(_) => {
                if let Some(line) = not_used(&self.places, cwd) {
                    say::warning(&line);
                }
                Trust::Untrusted
            }
        }
    }

    /// Says where a directory's resources are read from.
    fn load_options(&self, cwd: &Path) -> LoadOptions {
        let cli = &self.cli;
        LoadOptions {
            places: self.places.clone(),
            cwd: cwd.to_owned(),
            trust: self.trust(cwd),
            trust_rules: TrustRules::new(cli.trust),
            flags: ResourceFlags {
                system_prompt: cli.system_prompt.clone(),
                append_system_prompt: cli.append_system_prompt.clone(),
                extensions: cli.extensions.clone(),
                skills: cli.skills.clone(),
                prompt_templates: cli.prompt_templates.clone(),
                no_extensions: cli.no_extensions,
                no_skills: cli.no_skills,
                no_prompt_templates: cli.no_prompt_templates,
                no_context_files: cli.no_context_files,
            },
        }
    }

    /// Makes the gate of a face without an editor.
    pub(crate) fn headless_gate(&self, workspace: Arc<dyn Workspace>) -> Gate {
        Gate::new(GateConfig {
            state_dir: Some(self.places.state_dir.clone()),
            reviewer: match self.cli.review {
                HeadlessReview::Auto => Reviewer::AutoAccept,
                HeadlessReview::Reject => Reviewer::Reject,
            },
            ..GateConfig::new(workspace, &self.cwd)
        })
    }

    /// Opens the session the arguments name, without an editor.
    pub(crate) fn open_default(&self) -> Result<Runtime, CommandError> {
        let workspace: Arc<dyn Workspace> = Arc::new(DiskWorkspace::default());
        let gate = self.headless_gate(Arc::clone(&workspace));
        let options = self.load_options(&self.cwd);
        let resources = Resources::load(&options);
        let session = super::sessions::choose(self, &resources).map_err(CommandError)?;
        self.open_with(options, resources, session, gate, workspace)
    }

    fn open_with(
        &self,
        options: LoadOptions,
        resources: Resources,
        chosen: super::sessions::Chosen,
        gate: Gate,
        workspace: Arc<dyn Workspace>,
    ) -> Result<Runtime, CommandError> {
        let settings = resources.settings.effective().clone();
        self.registry
            .configure(HttpSettings::from_settings(&settings));
        let continuing = chosen.session.is_old();
        let choice = choose(&self.cli.wanted(), &self.registry, &settings, continuing)
            .map_err(|error| CommandError(error.to_string()))?;
        for warning in &choice.warnings {
            say::warning(warning);
        }
        let model = choice.model;
        if let (Some(key), Some(model)) = (&self.cli.api_key, &model) {
            self.registry.set_runtime_key(&model.provider, key.clone());
        }
        let env = ToolEnv {
            workspace,
            gate: gate.clone(),
            options: self.tool_options(&settings),
        };
        let tools = tools::builtin(env.clone());
        let names: Vec<String> = tools
            .iter()
            .map(|tool| tool.declaration().name.clone())
            .collect();
        let config = RuntimeConfig {
            load: options,
            session_dir: self.cli.session_dir.clone(),
            session: chosen.session,
            session_id: chosen.id,
            session_name: self.cli.name.clone(),
            provider: self.registry.provider(),
            options: RequestOptions::from_settings(&settings),
            models: Arc::new(ScopedModels {
                registry: self.registry.clone(),
                scope: choice.scope,
            }),
            model,
            thinking: choice.level,
            model_fixed: self.cli.model.is_some(),
            thinking_fixed: self.cli.thinking.is_some(),
            warnings: Vec::new(),
            tools,
            active_tools: Some(self.active_tools(&names, &settings)),
            tools_fixed: self.cli.tools.is_some()
                || self.cli.no_tools
                || self.cli.no_builtin_tools
                || !self.cli.exclude_tools.is_empty(),
            shell: Some(env),
            gate,
            hooks: Arc::clone(&self.hooks),
        };
        Runtime::start_with(config, resources)
    }

    fn tool_options(&self, settings: &serde_json::Map<String, Value>) -> ToolOptions {
        let text = |key: &str| settings.get(key).and_then(Value::as_str);
        let resize = settings
            .get("images")
            .and_then(|images| images.get("autoResize"))
            .and_then(Value::as_bool);
        ToolOptions {
            command_prefix: text("shellCommandPrefix").map(ToOwned::to_owned),
            shell_path: text("shellPath").map(PathBuf::from),
            auto_resize_images: resize.unwrap_or(true),
            home: self.places.home.clone(),
            agent_bin_dir: Some(self.places.agent_dir.join("bin")),
            guard: std::env::current_exe().ok(),
            extra_env: ["AI_AGENT", "PI_CODING_AGENT"]
                .into_iter()
                .zip(["pi", "true"])
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            ..ToolOptions::default()
        }
    }

    /// Names of the tools that are active at first.
    fn active_tools(
        &self,
        all: &[String],
        settings: &serde_json::Map<String, Value>,
    ) -> Vec<String> {
        let cli = &self.cli;
        let default: Vec<String> = settings
            .get("tools")
            .and_then(|list| serde_json::from_value(list.clone()).ok())
            .unwrap_or_else(|| tools::DEFAULT_TOOLS.map(ToOwned::to_owned).to_vec());
        let mut active = match &cli.tools {
            _ if cli.no_tools || cli.no_builtin_tools => Vec::new(),
            None => default,
            Some(ToolSelection::Only(patterns)) => all
                .iter()
                .filter(|name| patterns.iter().any(|pattern| matches(pattern, name)))
                .cloned()
                .collect(),
            Some(ToolSelection::Modified { added, removed }) => {
                let mut names = default;
                names.extend(added.iter().cloned());
                names.retain(|name| !removed.contains(name));
                names
            }
        };
        active.retain(|name| {
            let out = |pattern: &String| matches(pattern, name);
            !cli.exclude_tools.iter().any(out)
        });
        active
    }
}

/// Whether a name fits a pattern in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            let Some(rest) = name.strip_prefix(head) else {
                return false;
            };
            (0..=rest.len())
                .filter_map(|at| rest.get(at..))
                .any(|rest| matches(tail, rest))
        }
    }
}
