//! Opens sessions: the one place where resources, models, tools, the gate and extensions are put together.
//!
//! Entry points: [`Opener`] (what the sessions of a process share), [`Opener::load`], then [`Opener::open`]. Every face
//! goes through it. A face brings its [`Desk`] (the gate and the view of files) and says by [`Wish`] which session it
//! wants. A program with one model of its own and nothing to configure is served by
//! [`RuntimeConfig::in_memory`](super::RuntimeConfig::in_memory), which fills in the same form.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::SecretString;

use super::protocol::CommandError;
use super::runtime::settings::follow;
use super::runtime::{Runtime, RuntimeConfig, ScopedModels, SessionChoice};
use crate::agent::Tool;
use crate::ai::choice::{Wanted, choose};
use crate::ai::http::HttpSettings;
use crate::ai::{Model, ModelRegistry};
use crate::extensions::{Hooks, NoHooks, Source};
use crate::files::agent_dir::Places;
use crate::resources::settings::{Settings, Trust};
use crate::resources::trust::{HandlerAnswer, TrustFacts, TrustRules, TrustStore, Verdict};
use crate::resources::{LoadOptions, ResourceFlags, Resources};
use crate::review::gate::Gate;
use crate::tools::{self, ToolEnv, ToolOptions};
use crate::workspace::Workspace;

/// Variables that tell commands who runs them.
const CHILD_ENV: [(&str, &str); 2] = [("AI_AGENT", "pi"), ("PI_CODING_AGENT", "true")];

/// What the sessions of a process share. [`Opener::new`] gives one that has its fields to be changed.
pub struct Opener {
    /// Where things live.
    pub places: Places,
    /// Models and their credentials.
    pub registry: ModelRegistry,
    /// Flags about resources.
    pub flags: ResourceFlags,
    /// Rules and answers about the trust in projects.
    pub trust: TrustRules,
    /// Model to begin with instead of one that is chosen by `wanted` and the settings.
    pub model: Option<Arc<Model>>,
    /// What the command line says about models.
    pub wanted: Wanted,
    /// `--api-key`: for the provider of the model to begin with.
    pub api_key: Option<SecretString>,
    /// `--session-dir`.
    pub session_dir: Option<String>,
    /// Which tools are active at first.
    pub tools: ToolChoice,
    /// The binary that guards commands.
    pub guard: Option<PathBuf>,
    /// Extensions. They serve one session: a process that opens several gives each its own.
    pub hooks: Arc<dyn Hooks>,
    /// Who writes the prompts of this process.
    pub source: Source,
    /// Whether the face answers dialogs of extensions.
    pub has_ui: bool,
}

/// The gate and the view of files of a face.
#[derive(Clone)]
pub struct Desk {
    /// Every change passes it.
    pub gate: Gate,
    /// Files as tools see them.
    pub workspace: Arc<dyn Workspace>,
}

/// Which session is wanted.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// New, old or the most recent one.
    pub session: SessionChoice,
    /// Id of a new session instead of a fresh one.
    pub id: Option<String>,
    /// Name to give the session.
    pub name: Option<String>,
    /// Whether the model, the level and the tools of the command line also hold for an old session, which has its own:
    /// they do for the one that the command line names, not for one picked from a list later.
    pub flags_hold: bool,
}

/// What was read of a directory.
pub struct Loaded {
    /// From where.
    pub options: LoadOptions,
    /// What.
    pub resources: Resources,
}

/// Which tools are active at first: what the command line says (`--tools` and the like).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolChoice {
    /// Exactly those that fit one of these names or patterns.
    pub only: Option<Vec<String>>,
    /// Besides the default ones.
    pub added: Vec<String>,
    /// Of the default ones.
    pub removed: Vec<String>,
    /// Patterns of tools that stay away, whatever the rest says.
    pub exclude: Vec<String>,
    /// No built-in tool.
    pub no_builtin: bool,
    /// No tool at all.
    pub none: bool,
}

impl Opener {
    /// Makes one without any flags, for a process whose prompts a person writes.
    pub fn new(places: Places, registry: ModelRegistry) -> Self {
        Self {
            places,
            registry,
            flags: ResourceFlags::default(),
            trust: TrustRules::default(),
            model: None,
            wanted: Wanted::default(),
            api_key: None,
            session_dir: None,
            tools: ToolChoice::default(),
            guard: None,
            hooks: Arc::new(NoHooks),
            source: Source::Interactive,
            has_ui: false,
        }
    }

    /// Lets extensions decide about the trust in a directory, where nothing else has decided and there is something to
    /// trust. Called before [`Opener::load`].
    pub async fn consult(&self, cwd: &Path) {
        let (facts, _) = TrustFacts::gather(&self.places, cwd, self.trust.known(cwd));
        if facts.flag.is_some() || !facts.needs_trust || !self.hooks.wants("project_trust") {
            return;
        }
        let answer = self.hooks.project_trust(cwd).await;
        let HandlerAnswer::Decided { trusted, remember } = answer else {
            return;
        };
        self.trust.answer(cwd, trusted);
        let store = TrustStore::new(&self.places.agent_dir);
        let entry = (crate::files::agent_dir::real_path(cwd), Some(trusted));
        if remember && let Err(error) = store.save(&vec![entry]) {
            tracing::warn!("an answer about trust is not remembered: {error}");
        }
    }

    /// Where the rules about trust lead for a directory. What is wrong with the store goes to the log.
    pub fn verdict(&self, cwd: &Path) -> Verdict {
        let (verdict, trouble) = self.trust.verdict(&self.places, cwd);
        if let Some(trouble) = trouble {
            tracing::warn!("{trouble}");
        }
        verdict
    }

    /// The project's own resources are used only after someone said so.
    fn trusts(&self, cwd: &Path) -> Trust {
        match self.verdict(cwd) {
            Verdict::Decided { trusted: true, .. } => Trust::Trusted,
            _ => Trust::Untrusted,
        }
    }

    /// The folder where sessions of a directory lie.
    pub fn session_folder(&self, cwd: &Path) -> PathBuf {
        let settings = Settings::load(&self.places.agent_dir, cwd, self.trusts(cwd));
        self.folder_by(&settings, cwd)
    }

    /// The same, of settings that were read already.
    pub fn folder_by(&self, settings: &Settings, cwd: &Path) -> PathBuf {
        let flag = self.session_dir.as_deref();
        self.places.sessions_for(cwd, flag, settings.session_dir())
    }

    /// Reads what a directory's sessions are configured with. Blocks on the file system.
    pub fn load(&self, cwd: &Path) -> Loaded {
        let options = LoadOptions {
            places: self.places.clone(),
            cwd: cwd.to_owned(),
            trust: self.trusts(cwd),
            trust_rules: self.trust.clone(),
            flags: self.flags.clone(),
        };
        let resources = Resources::load(&options);
        Loaded { options, resources }
    }

    /// Opens a session. Blocks on the file system; must be called inside a tokio runtime.
    ///
    /// # Errors
    /// One line that says which model or session cannot be had and why.
    pub fn open(&self, loaded: Loaded, wish: Wish, desk: Desk) -> Result<Runtime, CommandError> {
        let Loaded { options, resources } = loaded;
        let settings = resources.settings.effective();
        self.registry
            .configure(HttpSettings::from_settings(settings));
        let old = wish.session.is_old();
        let choice = choose(&self.wanted, &self.registry, settings, old)
            .map_err(|error| CommandError(error.to_string()))?;
        let model = self.model.clone().or(choice.model);
        if let (Some(key), Some(model)) = (&self.api_key, &model) {
            self.registry.set_runtime_key(&model.provider, key.clone());
        }
        let env = ToolEnv {
            workspace: desk.workspace,
            gate: desk.gate,
            options: self.tool_options(&resources.settings).into(),
        };
        let builtin = tools::builtin(env.clone());
        let extra = self.hooks.tools();
        let (active, unknown) = self.tools.resolve(
            &names(&builtin),
            &names(&extra),
            resources.settings.default_tools(),
        );
        let mut warnings = choice.warnings;
        warnings.extend(unknown);
        let config = RuntimeConfig {
            session_dir: self.session_dir.clone(),
            session: wish.session,
            session_id: wish.id,
            session_name: wish.name,
            thinking: choice.level,
            model_fixed: wish.flags_hold && self.wanted.flags.model.is_some(),
            thinking_fixed: wish.flags_hold && self.wanted.thinking.is_some(),
            warnings,
            active_tools: Some(active),
            tools_fixed: wish.flags_hold && self.tools != ToolChoice::default(),
            hooks: Arc::clone(&self.hooks),
            source: self.source,
            has_ui: self.has_ui,
            ..RuntimeConfig::over(
                options,
                env,
                self.registry.provider(),
                Arc::new(ScopedModels {
                    registry: self.registry.clone(),
                    scope: choice.scope,
                }),
                model,
            )
        };
        Runtime::start_with(config, resources)
    }

    fn tool_options(&self, settings: &Settings) -> ToolOptions {
        let child = CHILD_ENV.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut options = ToolOptions {
            home: self.places.home.clone(),
            agent_bin_dir: Some(self.places.agent_dir.join("bin")),
            guard: self.guard.clone(),
            extra_env: child.into(),
            ..ToolOptions::default()
        };
        follow(&mut options, settings);
        options
    }
}

fn names(tools: &[Arc<dyn Tool>]) -> Vec<String> {
    let name = |tool: &Arc<dyn Tool>| tool.declaration().name.clone();
    tools.iter().map(name).collect()
}

impl ToolChoice {
    /// Returns the names of the tools that are active at first, and a line about names that no tool has. Settings speak
    /// only of built-in tools; those of extensions are active unless the command line says otherwise.
    fn resolve(
        &self,
        builtin: &[String],
        extra: &[String],
        default: Option<Vec<String>>,
    ) -> (Vec<String>, Option<String>) {
        let mut all: Vec<&String> = builtin.iter().collect();
        all.extend(extra.iter().filter(|name| !builtin.contains(name)));
        let known = |pattern: &String| all.iter().any(|name| fits(pattern, name));
        let named = self.only.iter().flatten().chain(&self.added);
        let unknown: Vec<&str> = named
            .filter(|pattern| !known(pattern))
            .map(String::as_str)
            .collect();
        let list: Vec<&str> = all.iter().map(|name| name.as_str()).collect();
        let warning = (!unknown.is_empty()).then(|| {
            format!(
                "no tool is named {}; there are {}",
                unknown.join(", "),
                list.join(", ")
            )
        });
        (self.active(builtin, extra, default, &all), warning)
    }

    fn active(
        &self,
        builtin: &[String],
        extra: &[String],
        default: Option<Vec<String>>,
        all: &[&String],
    ) -> Vec<String> {
        if self.none {
            return Vec::new();
        }
        let mut active: Vec<String> = match &self.only {
            Some(patterns) => {
                let wanted = |name: &&&String| patterns.iter().any(|it| fits(it, name));
                all.iter().filter(wanted).map(|it| (*it).clone()).collect()
            }
            None => {
                let usual = || tools::DEFAULT_TOOLS.map(str::to_owned).to_vec();
                let mut names = default.unwrap_or_else(usual);
                for name in extra.iter().chain(&self.added) {
                    if !names.contains(name) {
                        names.push(name.clone());
                    }
                }
                names.retain(|name| !self.removed.contains(name));
                names
            }
        };
        active.retain(|name| {
            let own = extra.contains(name) || !builtin.contains(name);
            let out = self.exclude.iter().any(|pattern| fits(pattern, name));
            !out && (own || !self.no_builtin)
        });
        active
    }
}

/// Whether a name fits a pattern in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(rest) = name.strip_prefix(head) else {
        return false;
    };
    (0..=rest.len())
        .filter_map(|at| rest.get(at..))
        .any(|rest| fits(tail, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &str) -> Vec<String> {
        names.split_whitespace().map(str::to_owned).collect()
    }

    fn active(choice: &ToolChoice, default: Option<&str>) -> (String, Option<String>) {
        let (names, warning) = choice.resolve(
            &list("read bash edit write grep find ls"),
            &list("deploy"),
            default.map(list),
        );
        (names.join(" "), warning)
    }

    #[test]
    fn tools_by_flags_and_settings() {
        let usual = ToolChoice::default();
        assert_eq!(active(&usual, None).0, "read bash edit write deploy");
        assert_eq!(active(&usual, Some("read")).0, "read deploy");
        let only = ToolChoice {
            only: Some(list("grep re* deploy")),
            ..ToolChoice::default()
        };
        assert_eq!(
            active(&only, Some("bash")),
            ("read grep deploy".into(), None)
        );
        let modified = ToolChoice {
            added: list("grep"),
            removed: list("bash"),
            exclude: list("w*"),
            ..ToolChoice::default()
        };
        assert_eq!(active(&modified, None).0, "read edit deploy grep");
        let foreign = ToolChoice {
            no_builtin: true,
            ..ToolChoice::default()
        };
        assert_eq!(active(&foreign, None).0, "deploy");
        let none = ToolChoice {
            none: true,
            ..ToolChoice::default()
        };
        assert_eq!(active(&none, None).0, "");
    }

    #[test]
    fn a_name_without_a_tool_is_said() {
        let odd = ToolChoice {
            only: Some(list("read raed x*")),
            ..ToolChoice::default()
        };
        let (names, warning) = active(&odd, None);
        assert_eq!(names, "read");
        assert_eq!(
            warning.as_deref(),
            Some(
                "no tool is named raed, x*; there are read, bash, edit, write, grep, find, ls, deploy"
            )
        );
    }
}
