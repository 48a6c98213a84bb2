//! Lists of resources in settings and manifests: plain paths, globs, and the prefixes `!glob`, `+path`, `-path`.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use crate::files::agent_dir::{expand_home, normalize};

/// A parsed list.
#[derive(Debug, Default)]
pub(super) struct Filters {
    /// Paths as written.
    pub(super) plain: Vec<String>,
    /// Unprefixed globs as written.
    pub(super) globs: Vec<String>,
    narrow: Vec<GlobMatcher>,
    exclude: Vec<GlobMatcher>,
    include_exact: Vec<String>,
    exclude_exact: Vec<String>,
}

impl Filters {
    pub(super) fn parse<'a>(list: impl IntoIterator<Item = &'a str>, home: &Path) -> Self {
        let mut out = Self::default();
        for entry in list {
            let entry = entry.trim();
            let home_of = |text: &str| {
                expand_home(text.trim(), home)
                    .to_string_lossy()
                    .into_owned()
            };
            let exact = |text: &str| home_of(text.trim().strip_prefix("./").unwrap_or(text));
            if let Some(glob) = entry.strip_prefix('!') {
                out.exclude.extend(matcher(&home_of(glob)));
            } else if let Some(path) = entry.strip_prefix('+') {
                out.include_exact.push(exact(path));
            } else if let Some(path) = entry.strip_prefix('-') {
                out.exclude_exact.push(exact(path));
            } else if is_glob(entry) {
                let glob = home_of(entry.strip_prefix("./").unwrap_or(entry));
                out.narrow.extend(matcher(&glob));
                out.globs.push(glob);
            } else if !entry.is_empty() {
                out.plain.push(entry.to_owned());
            }
        }
        out
    }

    /// Tells whether the prefixed entries leave the file in: `-path` beats `+path` beats `!glob`.
    pub(super) fn admits(&self, path: &Path, base: &Path) -> bool {
        let names = Names::of(path, base);
        if names.exactly(&self.exclude_exact) {
            return false;
        }
        names.exactly(&self.include_exact) || !names.match_any(&self.exclude)
    }

    /// Tells whether the unprefixed globs, if any, leave the file in.
    pub(super) fn narrows_to(&self, path: &Path, base: &Path) -> bool {
        self.narrow.is_empty() || Names::of(path, base).match_any(&self.narrow)
    }

    /// As [`Self::narrows_to`], with plain paths counting as well: for a package, whose files are there already.
    pub(super) fn selects(&self, path: &Path, base: &Path) -> bool {
        if self.narrow.is_empty() && self.plain.is_empty() {
            return true;
        }
        let names = Names::of(path, base);
        let plain: Vec<String> = self
            .plain
            .iter()
            .map(|it| it.strip_prefix("./").unwrap_or(it).to_owned())
            .collect();
        names.exactly(&plain) || names.match_any(&self.narrow)
    }
}

pub(super) fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

/// `*` stops at `/`, as in the reference. A glob that cannot be read matches nothing.
pub(super) fn matcher(glob: &str) -> Option<GlobMatcher> {
    let glob = GlobBuilder::new(glob)
        .literal_separator(true)
        .build()
        .ok()?;
    Some(glob.compile_matcher())
}

/// What a file may be called in a filter; a skill also by its folder.
struct Names {
    /// Relative to the base, and absolute.
    paths: Vec<String>,
    /// Without folders.
    bare: Vec<String>,
}

impl Names {
    fn of(path: &Path, base: &Path) -> Self {
        let path = normalize(path);
        let folder = path
            .parent()
            .filter(|_| path.file_name().is_some_and(|name| name == "SKILL.md"));
        let mut names = Self {
            paths: Vec::new(),
            bare: Vec::new(),
        };
        for path in std::iter::once(path.as_path()).chain(folder) {
            let text = |path: &Path| path.to_string_lossy().replace('\\', "/");
            names.paths.extend(path.strip_prefix(base).ok().map(text));
            names.paths.push(text(path));
            names.bare.extend(
                path.file_name()
                    .map(|name| name.to_string_lossy().into_owned()),
            );
        }
        names
    }

    fn exactly(&self, list: &[String]) -> bool {
        let same = |entry: &String| self.paths.contains(&entry.trim_end_matches('/').to_owned());
        list.iter().any(same)
    }

    fn match_any(&self, globs: &[GlobMatcher]) -> bool {
        let all = || self.paths.iter().chain(&self.bare);
        globs
            .iter()
            .any(|glob| all().any(|name| glob.is_match(name)))
    }
}
