//! `.gitignore`, `.ignore` and `.fdignore` below a resource folder.
//!
//! All rules of one tree live in one matcher that is rooted at the tree's top: a rule of a deeper file is prefixed with
//! the folder it stands in, loses a leading `/` and keeps its negation. That is narrower than git (a bare name of a
//! nested file matches only beside that file) and what the reference does.

use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

const FILES: [&str; 3] = [".gitignore", ".ignore", ".fdignore"];

/// The rules met so far on the way down.
pub(super) struct IgnoreRules {
    root: PathBuf,
    lines: Vec<String>,
    matcher: Gitignore,
}

impl IgnoreRules {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            lines: Vec::new(),
            matcher: Gitignore::empty(),
        }
    }

    /// Adds the rules that stand in `dir`, the root or a folder below it.
    pub(super) fn enter(&mut self, dir: &Path) {
        let prefix = match dir.strip_prefix(&self.root) {
            Ok(rest) if rest.as_os_str().is_empty() => String::new(),
            Ok(rest) => format!("{}/", rest.to_string_lossy().replace('\\', "/")),
            Err(_) => return,
        };
        let before = self.lines.len();
        for name in FILES {
            let Ok(text) = crate::files::read_text(&dir.join(name)) else {
                continue;
            };
            self.lines
                .extend(text.lines().filter_map(|line| prefixed(line, &prefix)));
        }
        if self.lines.len() > before {
            self.rebuild();
        }
    }

    fn rebuild(&mut self) {
        let mut builder = GitignoreBuilder::new(&self.root);
        for line in &self.lines {
            // A rule that cannot be read ignores nothing.
            drop(builder.add_line(None, line));
        }
        self.matcher = builder.build().unwrap_or_else(|_| Gitignore::empty());
    }

    pub(super) fn ignores(&self, path: &Path, is_dir: bool) -> bool {
        self.matcher.matched(path, is_dir).is_ignore()
    }
}

fn prefixed(line: &str, prefix: &str) -> Option<String> {
    let line = line.trim_end_matches('\r');
    if line.trim().is_empty() || line.starts_with('#') {
        return None;
    }
    let (mark, rule) = match line.strip_prefix('!') {
        Some(rule) => ("!", rule),
        None => ("", line),
    };
    let rule = rule.strip_prefix('/').unwrap_or(rule);
    Some(format!("{mark}{prefix}{rule}"))
}

/// One entry of a folder, links followed.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) is_dir: bool,
    pub(super) is_file: bool,
}

/// Returns the entries of `dir` sorted by name; a folder that cannot be read has none, broken links are left out.
pub(super) fn sorted_entries(dir: &Path) -> Vec<Entry> {
    let Ok(reader) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut entries: Vec<Entry> = reader
        .flatten()
        .filter_map(|entry| {
            let meta = std::fs::metadata(entry.path()).ok()?;
            Some(Entry {
                name: entry.file_name().to_string_lossy().into_owned(),
                path: entry.path(),
                is_dir: meta.is_dir(),
                is_file: meta.is_file(),
            })
        })
        .collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}
