//! Context files (`AGENTS.md` and its kin): read from the agent folder and from every folder between the root of the
//! file system and the working directory. No trust is needed: they are text for the model, nothing of them runs.

use std::path::{Path, PathBuf};

use crate::files::agent_dir::{normalize, real_path};

/// Names in the order in which they win inside one folder.
pub const NAMES: [&str; 5] = [
    "AGENTS.override.md",
    "AGENTS.md",
    "AGENTS.MD",
    "CLAUDE.md",
    "CLAUDE.MD",
];

/// One context file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextFile {
    /// Where it was found, links not resolved.
    pub path: PathBuf,
    /// Its text without BOM; may be empty.
    pub content: String,
}

/// Reads the context files that hold in `cwd`, the most general first.
pub fn load(agent_dir: &Path, cwd: &Path) -> Vec<ContextFile> {
    let cwd = normalize(cwd);
    let mut dirs: Vec<&Path> = cwd.ancestors().collect();
    dirs.reverse();
    let mut found: Vec<ContextFile> = Vec::new();
    for dir in std::iter::once(agent_dir).chain(dirs) {
        if let Some(file) = first_in(dir)
            && found.iter().all(|other| other.path != file.path)
        {
            found.push(file);
        }
    }
    if let Some(shadowed) = shadowed_by_worktree(&cwd) {
        found.retain(|file| !shadowed.covers(&file.path));
    }
    found
}

fn first_in(dir: &Path) -> Option<ContextFile> {
    NAMES.iter().map(|name| dir.join(name)).find_map(|path| {
        // A folder or a dead link under such a name is passed over, as is what cannot be read.
        let is_file = std::fs::metadata(&path).is_ok_and(|meta| meta.is_file());
        let content = is_file
            .then(|| crate::files::read_text(&path).ok())
            .flatten()?;
        Some(ContextFile { path, content })
    })
}

/// A file of the main checkout that a linked worktree inside it has its own copy of.
struct Shadowed {
    main_root: PathBuf,
    name: std::ffi::OsString,
}

impl Shadowed {
    fn covers(&self, path: &Path) -> bool {
        path.file_name() == Some(&self.name)
            && path
                .parent()
                .is_some_and(|dir| real_path(dir) == self.main_root)
    }
}

fn shadowed_by_worktree(cwd: &Path) -> Option<Shadowed> {
    let root = cwd.ancestors().find(|dir| dir.join(".git").exists())?;
    let main_root = main_checkout_of(root)?;
    let real_root = real_path(root);
    if real_root == main_root || !real_root.starts_with(&main_root) {
        return None;
    }
    let own = first_in(root)?;
    Some(Shadowed {
        main_root,
        name: own.path.file_name()?.to_owned(),
    })
}

/// Returns the main checkout of a linked worktree. A submodule's git folder has no `commondir`, a bare repository's
/// common folder is not called `.git`: both give `None`.
fn main_checkout_of(worktree: &Path) -> Option<PathBuf> {
    let link = crate::files::read_text(&worktree.join(".git")).ok()?;
    let git_dir = worktree.join(link.strip_prefix("gitdir:")?.trim());
    let common = crate::files::read_text(&git_dir.join("commondir")).ok()?;
    let common = real_path(&git_dir.join(common.trim()));
    let main = common.parent()?;
    (common.file_name()? == ".git").then(|| main.to_owned())
}
