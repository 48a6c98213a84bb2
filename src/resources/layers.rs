//! The layers that resources come from and their order: command line, project settings, project folders, the person's
//! settings, the person's folders, packages. The first of a name wins; the same real file counts once.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::filters::Filters;
use super::ignore_rules::{IgnoreRules, sorted_entries};
use super::packages::{self, PackageEntry, PackageRoot};
use super::settings::{Scope, Settings, Trust};
use super::skills::{self, RootKind, Skill};
use super::templates::{self, Depth, Template};
use super::{Collision, Diagnostic, DiagnosticCode, LoadOptions, Origin, Source, SourceScope};
use crate::files::agent_dir::{PROJECT_DIR, normalize, real_path, resolve_path};

/// An extension file that was found; it has not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionFile {
    /// The file.
    pub path: PathBuf,
    /// Where it comes from.
    pub source: Source,
}

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Extensions,
    Skills,
    Prompts,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Extensions, Self::Skills, Self::Prompts];

    /// Name of the key in settings and of the folder.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Extensions => "extensions",
            Self::Skills => "skills",
            Self::Prompts => "prompts",
        }
    }
}

/// Returns the files that one path of a list stands for; nothing when it does not exist or is of another kind.
pub(super) fn expand_entry(kind: Kind, path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        let name = path.to_string_lossy();
        let fits = match kind {
            Kind::Extensions => is_extension_name(&name),
            Kind::Skills | Kind::Prompts => name.ends_with(".md"),
        };
        return fits.then(|| path.to_owned()).into_iter().collect();
    }
    match kind {
        Kind::Extensions => extension_dir(path),
        Kind::Skills => skills::files_in(path, RootKind::Pi),
        Kind::Prompts => templates::files_in(path, Depth::Recursive),
    }
}

/// Extension files of a folder: what its manifest or index names, else its files and those of its sub-folders' manifests
/// and indexes, one level deep.
pub(super) fn extension_dir(dir: &Path) -> Vec<PathBuf> {
    if let Some(own) = extension_entry(dir) {
        return own;
    }
    let mut rules = IgnoreRules::new(dir);
    rules.enter(dir);
    let mut out = Vec::new();
    for entry in sorted_entries(dir) {
        let skipped = entry.name.starts_with('.') || entry.name == "node_modules";
        if skipped || rules.ignores(&entry.path, entry.is_dir) {
            continue;
        }
        if entry.is_dir {
            out.extend(extension_entry(&entry.path).unwrap_or_default());
        } else if entry.is_file && is_extension_name(&entry.name) {
            out.push(entry.path);
        }
    }
    out
}

fn is_extension_name(name: &str) -> bool {
    [".ts", ".js", ".lua"]
        .iter()
        .any(|suffix| name.ends_with(suffix))
}

fn extension_entry(dir: &Path) -> Option<Vec<PathBuf>> {
    let manifest = crate::files::read_text(&dir.join("package.json")).ok();
    let json = manifest.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let listed: Vec<PathBuf> = ["extensions", "luaExtensions"]
        .iter()
        .filter_map(|key| json.as_ref()?.get("pi")?.get(key)?.as_array())
        .flatten()
        .filter_map(Value::as_str)
        .map(|path| normalize(&dir.join(path)))
        .filter(|path| path.starts_with(dir) && path.is_file())
        .collect();
    if !listed.is_empty() {
        return Some(listed);
    }
    let index = ["index.ts", "index.js", "init.lua"]
        .iter()
        .map(|name| dir.join(name));
    index
        .into_iter()
        .find(|path| path.is_file())
        .map(|path| vec![path])
}

/// A file with its source.
type Found = (PathBuf, Source);

/// Finds resources of one session.
pub(super) struct Layers<'a> {
    options: &'a LoadOptions,
    settings: &'a Settings,
}

impl<'a> Layers<'a> {
    pub(super) fn new(options: &'a LoadOptions, settings: &'a Settings) -> Self {
        Self { options, settings }
    }

    pub(super) fn skills(&self) -> (Vec<Skill>, Vec<Diagnostic>) {
        let mut loader = skills::Loader::default();
        for (path, source) in self.find(Kind::Skills, self.options.flags.no_skills) {
            loader.add_file(&path, &source);
        }
        for path in &self.options.flags.skills {
            loader.add_path(&self.named(path), RootKind::Pi, &local_source());
        }
        (loader.skills, loader.diagnostics)
    }

    pub(super) fn templates(&self) -> (Vec<Template>, Vec<Diagnostic>) {
        let mut files = self.find(Kind::Prompts, self.options.flags.no_prompt_templates);
        let mut diagnostics = Vec::new();
        for path in self
            .options
            .flags
            .prompt_templates
            .iter()
            .map(|path| self.named(path))
        {
            if !path.exists() {
                let what = "prompt template does not exist";
                diagnostics.push(Diagnostic::new(DiagnosticCode::PathMissing, &path, what));
            } else if path.is_dir() {
                let named = templates::files_in(&path, Depth::Named);
                files.extend(named.into_iter().map(|file| (file, local_source())));
            } else if path.extension().is_some_and(|ext| ext == "md") {
                files.push((path, local_source()));
            } else {
                let what = "is no prompt template: the file name must end in .md";
                diagnostics.push(Diagnostic::new(DiagnosticCode::NotMarkdown, &path, what));
            }
        }
        let mut out: Vec<Template> = Vec::new();
        for (path, source) in unique(files) {
            match Template::read(&path, &source) {
                Err(diagnostic) => diagnostics.push(diagnostic),
                Ok(template) => match out.iter().find(|other| other.name == template.name) {
                    None => out.push(template),
                    Some(winner) => diagnostics.push(Diagnostic::collision(Collision {
                        kind: "prompt",
                        name: template.name,
                        winner: winner.path.clone(),
                        loser: template.path,
                    })),
                },
            }
        }
        (out, diagnostics)
    }

    pub(super) fn extensions(&self) -> (Vec<ExtensionFile>, Vec<Diagnostic>) {
        let missing = self
            .options
            .flags
            .extensions
            .iter()
            .map(|path| self.named(path));
        let diagnostics = missing
            .filter(|path| !path.exists())
            .map(|path| {
                Diagnostic::new(
                    DiagnosticCode::PathMissing,
                    &path,
                    "extension does not exist",
                )
            })
            .collect();
        let found = self.find(Kind::Extensions, self.options.flags.no_extensions);
        let files = found
            .into_iter()
            .map(|(path, source)| ExtensionFile { path, source });
        (files.collect(), diagnostics)
    }

    /// A path of the command line.
    fn named(&self, path: &str) -> PathBuf {
        resolve_path(path, &self.options.cwd, &self.options.places.home)
    }

    fn find(&self, kind: Kind, only_named: bool) -> Vec<Found> {
        let mut out = self.found_on_command_line(kind);
        if !only_named {
            for scope in [Scope::Project, Scope::Global] {
                if scope == Scope::Project && self.options.trust == Trust::Untrusted {
                    continue;
                }
                out.extend(self.found_in_scope(kind, scope));
            }
            out.extend(self.found_in_packages(kind));
        }
        unique(out)
    }

    fn found_on_command_line(&self, kind: Kind) -> Vec<Found> {
        let mut out = Vec::new();
        for path in self
            .options
            .flags
            .extensions
            .iter()
            .map(|path| self.named(path))
        {
            let files = if path.is_dir() && packages::is_package(&path) {
                packages::files_of(&path, kind, &self.options.places.home)
            } else if kind == Kind::Extensions {
                expand_entry(kind, &path)
            } else {
                Vec::new()
            };
            let source = Source::top_level(SourceScope::Temporary, "cli", None);
            out.extend(files.into_iter().map(|file| (file, source.clone())));
        }
        out
    }

    /// Entries of one settings file, then the folders that are looked into without being named.
    fn found_in_scope(&self, kind: Kind, scope: Scope) -> Vec<Found> {
        let base = self.base(scope);
        let list = self
            .settings
            .scope(scope)
            .get(kind.key())
            .and_then(Value::as_array);
        let list = list.into_iter().flatten().filter_map(Value::as_str);
        let home = &self.options.places.home;
        let filters = Filters::parse(list, home);
        let mut out = Vec::new();
        let local = Source::top_level(source_scope(scope), "local", Some(&base));
        for entry in &filters.plain {
            let files = expand_entry(kind, &resolve_path(entry, &base, home));
            let kept = files
                .into_iter()
                .filter(|file| filters.narrows_to(file, &base) && filters.admits(file, &base));
            out.extend(kept.map(|file| (file, local.clone())));
        }
        for (base, files) in self.automatic(kind, scope) {
            let auto = Source::top_level(source_scope(scope), "auto", Some(&base));
            let kept = files.into_iter().filter(|file| filters.admits(file, &base));
            out.extend(kept.map(|file| (file, auto.clone())));
        }
        out
    }

    fn base(&self, scope: Scope) -> PathBuf {
        match scope {
            Scope::Global => self.options.places.agent_dir.clone(),
            Scope::Project => self.options.cwd.join(PROJECT_DIR),
        }
    }

    /// Files of the standard folders, with the folder that filters are relative to.
    fn automatic(&self, kind: Kind, scope: Scope) -> Vec<(PathBuf, Vec<PathBuf>)> {
        let base = self.base(scope);
        let dir = base.join(kind.key());
        let own = match kind {
            Kind::Extensions => extension_dir(&dir),
            Kind::Skills => skills::files_in(&dir, RootKind::Pi),
            Kind::Prompts => templates::files_in(&dir, Depth::Flat),
        };
        let mut out = vec![(base, own)];
        if kind == Kind::Skills {
            let agents = self.agents_dirs(scope).into_iter();
            out.extend(agents.map(|dir| {
                let files = skills::files_in(&dir.join("skills"), RootKind::Agents);
                (dir, files)
            }));
        }
        out
    }

    /// `.agents` folders: the person's, or those from the working directory up to the repository's root.
    fn agents_dirs(&self, scope: Scope) -> Vec<PathBuf> {
        let own = self.options.places.home.join(".agents");
        if scope == Scope::Global {
            return vec![own];
        }
        let cwd = normalize(&self.options.cwd);
        let mut out = Vec::new();
        for dir in cwd.ancestors() {
            let agents = dir.join(".agents");
            if real_path(&agents) != real_path(&own) {
                out.push(agents);
            }
            if dir.join(".git").exists() {
                break;
            }
        }
        out
    }

    fn found_in_packages(&self, kind: Kind) -> Vec<Found> {
        let project = self.packages(Scope::Project);
        let user = self.packages(Scope::Global);
        let home = &self.options.places.home;
        let find = |list: &[(PackageRoot, PackageEntry)], root: &PackageRoot| {
            list.iter()
                .find(|(other, _)| other.identity == root.identity)
                .map(|(_, entry)| entry.clone())
        };
        let mut out = Vec::new();
        for (root, entry) in &project {
            // A change of the person's entry is applied there.
            if !entry.autoload && find(&user, root).is_some() {
                continue;
            }
            let files = packages::files_of(&root.path, kind, home);
            let files = entry.select(kind, files, &root.path, home);
            out.extend(package_files(files, SourceScope::Project, root, entry));
        }
        for (root, entry) in &user {
            let over = find(&project, root);
            if over.as_ref().is_some_and(|over| over.autoload) {
                continue;
            }
            let files = packages::files_of(&root.path, kind, home);
            let mut files = entry.select(kind, files, &root.path, home);
            if let Some(over) = over {
                files = over.narrow(kind, files, &root.path, home);
            }
            out.extend(package_files(files, SourceScope::User, root, entry));
        }
        out
    }

    fn packages(&self, scope: Scope) -> Vec<(PackageRoot, PackageEntry)> {
        let base = self.base(scope);
        let list = self
            .settings
            .scope(scope)
            .get("packages")
            .and_then(Value::as_array);
        let entries = list.into_iter().flatten().filter_map(PackageEntry::parse);
        entries
            .filter_map(|entry| {
                let root = PackageRoot::of(&entry.source, &base, &base, &self.options.places.home)?;
                root.path.exists().then_some((root, entry))
            })
            .collect()
    }
}

fn package_files(
    files: Vec<PathBuf>,
    scope: SourceScope,
    root: &PackageRoot,
    entry: &PackageEntry,
) -> Vec<Found> {
    let source = Source {
        scope,
        label: entry.source.clone(),
        origin: Origin::Package,
        base_dir: Some(root.path.clone()),
    };
    files
        .into_iter()
        .map(|file| (file, source.clone()))
        .collect()
}

fn source_scope(scope: Scope) -> SourceScope {
    match scope {
        Scope::Global => SourceScope::User,
        Scope::Project => SourceScope::Project,
    }
}

fn local_source() -> Source {
    Source::top_level(SourceScope::Temporary, "local", None)
}

/// Drops files that are in the list already under another name.
fn unique(files: Vec<Found>) -> Vec<Found> {
    let mut seen = HashSet::new();
    files
        .into_iter()
        .filter(|(path, _)| seen.insert(real_path(path)))
        .collect()
}
