//! What a session is configured with: settings, trust, context files, skills, prompt templates, the system prompt.
//!
//! Entry point: [`Resources::load`], once at the start of a session and again on reload. Everything is read from the
//! places given in [`LoadOptions`]; of a project that is not trusted only its context files and `sessionDir` are read.
//! Mistakes in files never stop a session: they come back as [`Diagnostic`]s. All functions block on the file system.

pub mod context_files;
mod filters;
mod frontmatter;
mod ignore_rules;
mod layers;
mod mcp;
mod packages;
pub mod settings;
pub mod skills;
pub mod system_prompt;
pub mod templates;
pub mod trust;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::files::agent_dir::{PROJECT_DIR, Places, resolve_path};
use context_files::ContextFile;
pub use layers::ExtensionFile;
use settings::{Settings, Trust};
use skills::Skill;
use system_prompt::{PromptInput, PromptTool, SectionNameError, Sections};
use templates::Template;
use trust::TrustRules;

/// Command-line flags about resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceFlags {
    /// `--system-prompt`: text, or the name of a file.
    pub system_prompt: Option<String>,
    /// `--append-system-prompt`, as often as given; replaces `APPEND_SYSTEM.md`.
    pub append_system_prompt: Vec<String>,
    /// `-e`.
    pub extensions: Vec<String>,
    /// `--skill`.
    pub skills: Vec<String>,
    /// `--prompt-template`.
    pub prompt_templates: Vec<String>,
    /// `-ne`.
    pub no_extensions: bool,
    /// `-ns`.
    pub no_skills: bool,
    /// `-np`.
    pub no_prompt_templates: bool,
    /// `-nc`.
    pub no_context_files: bool,
}

/// Where to load from.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Home folder, agent folder and so on.
    pub places: Places,
    /// Working directory of the session, absolute.
    pub cwd: PathBuf,
    /// Whether the project's own files may be used.
    pub trust: Trust,
    /// What decides about that again on a reload.
    pub trust_rules: TrustRules,
    /// Flags.
    pub flags: ResourceFlags,
}

/// Whose a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceScope {
    /// The person's.
    User,
    /// The project's.
    Project,
    /// Named on the command line.
    Temporary,
}

/// How a resource was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By itself.
    TopLevel,
    /// As part of a package.
    Package,
}

/// Where a resource comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Whose it is.
    pub scope: SourceScope,
    /// `auto`, `local`, `cli`, or the package as written in the settings.
    pub label: String,
    /// How it was found.
    pub origin: Origin,
    /// Folder that paths in settings about it start from.
    pub base_dir: Option<PathBuf>,
}

impl Source {
    /// Makes a source that is no package.
    pub fn top_level(scope: SourceScope, label: &str, base_dir: Option<&Path>) -> Self {
        Self {
            scope,
            label: label.to_owned(),
            origin: Origin::TopLevel,
            base_dir: base_dir.map(Path::to_owned),
        }
    }

    /// Returns the `sourceInfo` of Pi's protocol.
    pub fn to_wire(&self, path: &Path) -> Value {
        let scope = match self.scope {
            SourceScope::User => "user",
            SourceScope::Project => "project",
            SourceScope::Temporary => "temporary",
        };
        let origin = match self.origin {
            Origin::TopLevel => "top-level",
            Origin::Package => "package",
        };
        let mut out = json!({"path": path, "source": self.label, "scope": scope, "origin": origin});
        if let (Some(base), Some(out)) = (&self.base_dir, out.as_object_mut()) {
            out.insert("baseDir".into(), json!(base));
        }
        out
    }
}

/// Kinds of mistakes in resource files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum DiagnosticCode {
    DescriptionRequired,
    DescriptionTooLong,
    NameTooLong,
    NameInvalidChars,
    NameEdgeHyphen,
    NameDoubleHyphen,
    Yaml,
    Collision,
    PathMissing,
    NotMarkdown,
    Io,
    Settings,
    Mcp,
}

/// Two resources of one name; the first found wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// `skill` or `prompt`.
    pub kind: &'static str,
    /// The name.
    pub name: String,
    /// The file in use.
    pub winner: PathBuf,
    /// The file that is not.
    pub loser: PathBuf,
}

/// Something wrong with a resource file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// What kind.
    pub code: DiagnosticCode,
    /// The file.
    pub path: PathBuf,
    /// One line for a person, with the path.
    pub message: String,
    /// For [`DiagnosticCode::Collision`].
    pub collision: Option<Box<Collision>>,
}

impl Diagnostic {
    fn new(code: DiagnosticCode, path: &Path, what: &str) -> Self {
        Self {
            code,
            path: path.to_owned(),
            message: format!("{}: {what}", path.display()),
            collision: None,
        }
    }

    fn collision(collision: Collision) -> Self {
        let Collision {
            kind,
            name,
            winner,
            loser,
        } = &collision;
        let message = format!(
            "{}: {kind} \"{name}\" is not used, {} has the same name and comes first",
            loser.display(),
            winner.display()
        );
        Self {
            code: DiagnosticCode::Collision,
            path: loser.clone(),
            message,
            collision: Some(Box::new(collision)),
        }
    }
}

/// What a prompt became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expansion {
    /// The text to send.
    pub text: String,
    /// Why a skill could not be put in; the text is as it was typed then.
    pub error: Option<String>,
}

/// Everything loaded.
#[derive(Debug)]
pub struct Resources {
    /// Working directory.
    pub cwd: PathBuf,
    /// Settings of the person and the project.
    pub settings: Settings,
    /// Context files in prompt order.
    pub context_files: Vec<ContextFile>,
    /// Skills in order of precedence.
    pub skills: Vec<Skill>,
    /// Prompt templates in order of precedence.
    pub templates: Vec<Template>,
    /// Extension files in load order; nothing of them has run.
    pub extensions: Vec<ExtensionFile>,
    /// Replaces the preamble.
    pub custom_prompt: Option<String>,
    /// Texts of the `addendum` section.
    pub addendum: Vec<String>,
    /// What is wrong with the files.
    pub diagnostics: Vec<Diagnostic>,
}

impl Resources {
    /// Reads everything. Never fails: what cannot be used is left out and named in `diagnostics`.
    pub fn load(options: &LoadOptions) -> Self {
        let settings = Settings::load(&options.places.agent_dir, &options.cwd, options.trust);
        Self::with_settings(options, settings)
    }

    /// Reads everything again, `before` being the settings until now: a settings file that became invalid keeps the
    /// values it had, and what was set but could not be written stays set. Everything else is as on disk now.
    pub fn reload(options: &LoadOptions, mut before: Settings) -> Self {
        if !before.belong_to(&options.cwd) {
            return Self::load(options);
        }
        before.reload(options.trust);
        Self::with_settings(options, before)
    }

    fn with_settings(options: &LoadOptions, settings: Settings) -> Self {
        let layers = layers::Layers::new(options, &settings);
        let mut diagnostics: Vec<Diagnostic> = settings.errors().map(settings_diagnostic).collect();
        let mut mcp_files = vec![options.places.agent_dir.join("mcp.json")];
        if options.trust == Trust::Trusted {
            mcp_files.push(options.cwd.join(PROJECT_DIR).join("mcp.json"));
        }
        diagnostics.extend(mcp_files.iter().filter_map(|path| mcp::not_started(path)));
        let (skills, found) = layers.skills();
        diagnostics.extend(found);
        let (templates, found) = layers.templates();
        diagnostics.extend(found);
        let (extensions, found) = layers.extensions();
        diagnostics.extend(found);
        let context_files = match options.flags.no_context_files {
            true => Vec::new(),
            false => context_files::load(&options.places.agent_dir, &options.cwd),
        };
        Self {
            context_files,
            skills,
            templates,
            extensions,
            custom_prompt: custom_prompt(options),
            addendum: addendum(options),
            diagnostics,
            settings,
            cwd: options.cwd.clone(),
        }
    }

    /// Returns the sections of the system prompt for these active tools. `extra` are sections of extensions,
    /// `guidelines` more rules of theirs.
    ///
    /// # Errors
    /// A section of an extension with a name that cannot be used.
    pub fn sections(
        &self,
        tools: &[PromptTool],
        extra: &[(String, String)],
        guidelines: &[String],
    ) -> Result<Sections, SectionNameError> {
        PromptInput {
            tools,
            custom: self.custom_prompt.as_deref(),
            addendum: &self.addendum,
            context_files: &self.context_files,
            skills: &self.skills,
            guidelines,
            cwd: &self.cwd.to_string_lossy(),
            extra,
        }
        .sections()
    }

    /// Expands a submitted text: a skill call, else a template call, else nothing.
    pub fn expand(&self, text: &str) -> Expansion {
        match skills::expand(text, &self.skills) {
            Ok(Some(text)) => Expansion { text, error: None },
            Ok(None) => Expansion {
                text: templates::expand(text, &self.templates).unwrap_or_else(|| text.to_owned()),
                error: None,
            },
            Err(err) => Expansion {
                text: text.to_owned(),
                error: Some(err),
            },
        }
    }

    /// Returns the slash commands of templates and skills as Pi's protocol lists them (behind those of extensions).
    pub fn commands(&self) -> Vec<Value> {
        let templates = self.templates.iter().map(|it| {
            json!({
                "name": it.name, "description": it.description, "source": "prompt",
                "sourceInfo": it.source.to_wire(&it.path),
            })
        });
        let skills = self.skills.iter().map(|it| {
            json!({
                "name": format!("skill:{}", it.name), "description": it.description, "source": "skill",
                "sourceInfo": it.source.to_wire(&it.path),
            })
        });
        templates.chain(skills).collect()
    }
}

fn settings_diagnostic(err: &settings::SettingsError) -> Diagnostic {
    let path = match err {
        settings::SettingsError::Invalid { path, .. }
        | settings::SettingsError::Io { path, .. }
        | settings::SettingsError::Untrusted { path } => path.clone(),
        settings::SettingsError::Lock(_) => PathBuf::new(),
    };
    Diagnostic {
        code: DiagnosticCode::Settings,
        path,
        message: err.to_string(),
        collision: None,
    }
}

/// A flag's value is the name of a file when there is such a file, else the text itself.
fn flag_text(value: &str, options: &LoadOptions) -> String {
    let path = resolve_path(value, &options.cwd, &options.places.home);
    let is_file = !value.trim().is_empty() && path.is_file();
    let text = is_file
        .then(|| crate::files::read_text(&path).ok())
        .flatten();
    text.unwrap_or_else(|| value.to_owned())
}

/// The project's file, when trusted, else the person's.
fn prompt_file(name: &str, options: &LoadOptions) -> Option<String> {
    let project = (options.trust == Trust::Trusted).then(|| options.cwd.join(PROJECT_DIR));
    let dirs = project
        .into_iter()
        .chain([options.places.agent_dir.clone()]);
    dirs.map(|dir| dir.join(name))
        .find_map(|path| crate::files::read_text(&path).ok())
}

fn custom_prompt(options: &LoadOptions) -> Option<String> {
    match &options.flags.system_prompt {
        Some(value) => Some(flag_text(value, options)),
        None => prompt_file("SYSTEM.md", options),
    }
}

fn addendum(options: &LoadOptions) -> Vec<String> {
    if options.flags.append_system_prompt.is_empty() {
        return prompt_file("APPEND_SYSTEM.md", options)
            .into_iter()
            .collect();
    }
    let values = options.flags.append_system_prompt.iter();
    values.map(|value| flag_text(value, options)).collect()
}
