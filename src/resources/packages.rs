//! Packages: a folder (or a single extension file) that brings extensions, skills and prompt templates.
//!
//! Only what is on disk already is used: local paths, and packages that Pi installed below the agent folder. Nothing is
//! fetched and nothing of a package runs here.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::filters::{Filters, matcher};
use super::ignore_rules::sorted_entries;
use super::layers::{Kind, expand_entry, extension_dir};
use crate::files::agent_dir::{normalize, resolve_path};

/// One entry of a `packages` list.
#[derive(Clone, Debug)]
pub(super) struct PackageEntry {
    /// As written.
    pub(super) source: String,
    /// False: only a change of an entry of the other file.
    pub(super) autoload: bool,
    /// Filters by kind; `None`: everything.
    filters: [Option<Vec<String>>; 3],
}

impl PackageEntry {
    /// Reads a text or `{source, autoload?, extensions?, skills?, prompts?}`; anything else is passed over.
    pub(super) fn parse(value: &Value) -> Option<Self> {
        if let Some(source) = value.as_str() {
            return Some(Self {
                source: source.to_owned(),
                autoload: true,
                filters: [None, None, None],
            });
        }
        let list = |kind: Kind| {
            let list = value.get(kind.key())?.as_array()?;
            Some(
                list.iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
            )
        };
        Some(Self {
            source: value.get("source")?.as_str()?.to_owned(),
            autoload: value
                .get("autoload")
                .and_then(Value::as_bool)
                .unwrap_or(true),
            filters: [
                list(Kind::Extensions),
                list(Kind::Skills),
                list(Kind::Prompts),
            ],
        })
    }

    fn filter(&self, kind: Kind) -> Option<&Vec<String>> {
        let [extensions, skills, prompts] = &self.filters;
        match kind {
            Kind::Extensions => extensions.as_ref(),
            Kind::Skills => skills.as_ref(),
            Kind::Prompts => prompts.as_ref(),
        }
    }

    /// Keeps what the entry's own filter lets through.
    pub(super) fn select(
        &self,
        kind: Kind,
        files: Vec<PathBuf>,
        root: &Path,
        home: &Path,
    ) -> Vec<PathBuf> {
        match self.filter(kind) {
            None if self.autoload => files,
            None => Vec::new(),
            Some(list) if list.is_empty() => Vec::new(),
            Some(list) => keep(files, list, root, home),
        }
    }

    /// Applies an `autoload: false` entry to the files that the other file's entry selected.
    pub(super) fn narrow(
        &self,
        kind: Kind,
        files: Vec<PathBuf>,
        root: &Path,
        home: &Path,
    ) -> Vec<PathBuf> {
        match self.filter(kind) {
            Some(list) => keep(files, list, root, home),
            None => files,
        }
    }
}

fn keep(mut files: Vec<PathBuf>, list: &[String], root: &Path, home: &Path) -> Vec<PathBuf> {
    let filters = Filters::parse(list.iter().map(String::as_str), home);
    files.retain(|file| filters.selects(file, root) && filters.admits(file, root));
    files
}

/// Where a package lies, and the name by which two entries are one package.
#[derive(Debug, PartialEq)]
pub(super) struct PackageRoot {
    pub(super) identity: String,
    pub(super) path: PathBuf,
}

impl PackageRoot {
    /// Works out the place of a source. `base` is where relative paths start, `install` the folder that Pi installs
    /// into.
    pub(super) fn of(source: &str, base: &Path, install: &Path, home: &Path) -> Option<Self> {
        if let Some(spec) = source.strip_prefix("npm:") {
            let name = npm_name(spec);
            let modules = install.join("npm/node_modules");
            return inside(&modules, name).map(|path| Self {
                identity: format!("npm:{name}"),
                path,
            });
        }
        if let Some(place) = git_place(source) {
            return inside(&install.join("git"), &place).map(|path| Self {
                identity: format!("git:{place}"),
                path,
            });
        }
        let path = resolve_path(source, base, home);
        Some(Self {
            identity: path.to_string_lossy().into_owned(),
            path,
        })
    }
}

/// A name that leads out of the install folder is nobody's package.
fn inside(root: &Path, name: &str) -> Option<PathBuf> {
    let path = normalize(&root.join(name));
    (path != root && path.starts_with(root)).then_some(path)
}

fn npm_name(spec: &str) -> &str {
    let at = spec
        .char_indices()
        .skip(1)
        .find(|(_, c)| *c == '@')
        .map(|(idx, _)| idx);
    at.and_then(|at| spec.get(..at)).unwrap_or(spec)
}

/// `host/path` of a git source, without a ref.
fn git_place(source: &str) -> Option<String> {
    let rest = ["git:", "https://", "http://", "ssh://"]
        .iter()
        .find_map(|prefix| source.strip_prefix(prefix))?;
    let rest = rest.strip_prefix("https://").unwrap_or(rest);
    let rest = rest.strip_prefix("git@").unwrap_or(rest);
    let rest = rest
        .split(['@', '#'])
        .next()
        .unwrap_or(rest)
        .replace(':', "/");
    Some(
        rest.trim_end_matches('/')
            .trim_end_matches(".git")
            .to_owned(),
    )
}

/// Returns the files of one kind that a package brings.
pub(super) fn files_of(root: &Path, kind: Kind, home: &Path) -> Vec<PathBuf> {
    if root.is_file() {
        return match kind {
            Kind::Extensions => vec![root.to_owned()],
            Kind::Skills | Kind::Prompts => Vec::new(),
        };
    }
    match manifest(root) {
        Some(manifest) => from_manifest(root, &manifest, kind, home),
        None => {
            let dir = root.join(kind.key());
            match kind {
                Kind::Extensions if dir.is_dir() => extension_dir(&dir),
                Kind::Extensions => Vec::new(),
                Kind::Skills | Kind::Prompts => expand_entry(kind, &dir),
            }
        }
    }
}

/// Tells whether a folder is a package rather than one extension.
pub(super) fn is_package(root: &Path) -> bool {
    manifest(root).is_some() || Kind::ALL.iter().any(|kind| root.join(kind.key()).is_dir())
}

/// The `pi` object of `package.json`, when it lists any resource: convention folders do not count then.
fn manifest(root: &Path) -> Option<Value> {
    let text = crate::files::read_text(&root.join("package.json")).ok()?;
    let json: Value = serde_json::from_str(&text).ok()?;
    let pi = json.get("pi")?;
    let keys = ["extensions", "luaExtensions", "skills", "prompts", "themes"];
    keys.iter()
        .any(|key| pi.get(key).is_some_and(Value::is_array))
        .then(|| pi.clone())
}

fn from_manifest(root: &Path, manifest: &Value, kind: Kind, home: &Path) -> Vec<PathBuf> {
    let keys: &[&str] = match kind {
        Kind::Extensions => &["extensions", "luaExtensions"],
        Kind::Skills => &["skills"],
        Kind::Prompts => &["prompts"],
    };
    let lists = keys.iter().filter_map(|key| manifest.get(key)?.as_array());
    let entries: Vec<&str> = lists.flatten().filter_map(Value::as_str).collect();
    let filters = Filters::parse(entries.iter().copied(), home);
    let plain = filters
        .plain
        .iter()
        .map(|entry| normalize(&root.join(entry)));
    let mut starts: Vec<PathBuf> = plain.filter(|path| path.starts_with(root)).collect();
    for glob in &filters.globs {
        starts.extend(matches_below(root, glob));
    }
    let mut files: Vec<PathBuf> = Vec::new();
    for file in starts.iter().flat_map(|start| expand_entry(kind, start)) {
        if filters.admits(&file, root) && !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

/// Files and folders below a package that a glob names.
fn matches_below(root: &Path, glob: &str) -> Vec<PathBuf> {
    /// Deeper folders hold no resources of a sane package; the bound keeps a link to itself from going on for ever.
    const MAX_DEPTH: usize = 8;
    fn walk(
        dir: &Path,
        root: &Path,
        depth: usize,
        glob: &globset::GlobMatcher,
        out: &mut Vec<PathBuf>,
    ) {
        for entry in sorted_entries(dir) {
            if entry.name.starts_with('.') || entry.name == "node_modules" {
                continue;
            }
            let is_match = entry
                .path
                .strip_prefix(root)
                .is_ok_and(|path| glob.is_match(path));
            if is_match {
                out.push(entry.path);
            } else if entry.is_dir && depth < MAX_DEPTH {
                walk(&entry.path, root, depth + 1, glob, out);
            }
        }
    }
    let mut out = Vec::new();
    if let Some(glob) = matcher(glob) {
        walk(root, root, 0, &glob, &mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(source: &str) -> Option<(String, PathBuf)> {
        let root = PackageRoot::of(
            source,
            Path::new("/base"),
            Path::new("/agent"),
            Path::new("/h"),
        )?;
        Some((root.identity, root.path))
    }

    #[test]
    fn sources_have_an_identity_and_a_place() {
        for (source, identity, path) in [
            ("npm:a@1.2", "npm:a", "/agent/npm/node_modules/a"),
            ("npm:@s/a@^1", "npm:@s/a", "/agent/npm/node_modules/@s/a"),
            (
                "git:host.example/x/y@v1",
                "git:host.example/x/y",
                "/agent/git/host.example/x/y",
            ),
            (
                "https://host.example/x/y.git",
                "git:host.example/x/y",
                "/agent/git/host.example/x/y",
            ),
            ("~/pkg", "/h/pkg", "/h/pkg"),
            ("../p", "/p", "/p"),
        ] {
            assert_eq!(
                place(source),
                Some((identity.to_owned(), PathBuf::from(path))),
                "{source}"
            );
        }
    }

    #[test]
    fn names_do_not_lead_out_of_the_install_folder() {
        assert_eq!(place("npm:../../etc"), None);
        assert_eq!(place("git:host/../../../etc"), None);
    }
}
