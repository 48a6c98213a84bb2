//! The order of imports holds: `doc/architecture.md` says who may know whom, this reads the `use crate::` lines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Which modules a module may name. Read off the one order: `files ← {ai, resources, workspace}; ai ← agent;
/// workspace ← review; {agent, review} ← tools; {tools, resources, entry} ← extensions ← session ← modes ← main`.
/// The right side may use the left, also through several arrows; `review` knows `agent`'s tool results.
fn allowed() -> BTreeMap<&'static str, Vec<&'static str>> {
    BTreeMap::from([
        ("files", vec![]),
        ("ai", vec!["files"]),
        ("entry", vec!["ai"]),
        ("agent", vec!["ai", "files"]),
        ("resources", vec!["ai", "files"]),
        ("workspace", vec!["files"]),
        ("review", vec!["workspace", "files", "agent", "ai"]),
        ("tools", vec!["agent", "review", "workspace", "ai", "files"]),
        (
            "extensions",
            vec![
                "tools",
                "resources",
                "entry",
                "agent",
                "review",
                "workspace",
                "ai",
                "files",
            ],
        ),
        (
            "session",
            vec![
                "extensions",
                "tools",
                "resources",
                "entry",
                "agent",
                "review",
                "workspace",
                "ai",
                "files",
            ],
        ),
        (
            "modes",
            vec![
                "session",
                "extensions",
                "tools",
                "resources",
                "entry",
                "agent",
                "review",
                "workspace",
                "ai",
                "files",
            ],
        ),
    ])
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            out.push(path);
        }
    }
}

/// Modules named by `crate::x` anywhere in the text (use lines and full paths alike), outside of tests.
fn named(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or(text);
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let mut found = BTreeSet::new();
    for line in lines {
        for piece in line.split("crate::").skip(1) {
            if let Some(group) = piece.strip_prefix('{') {
                for item in group.trim_end_matches([';', '}']).split(',') {
                    found.insert(
                        item.trim()
                            .split("::")
                            .next()
                            .unwrap_or_default()
                            .to_owned(),
                    );
                }
            } else {
                found.insert(
                    piece
                        .chars()
                        .take_while(|c| c.is_alphanumeric() || *c == '_')
                        .collect(),
                );
            }
        }
    }
    found
}

#[test]
fn imports_follow_the_order() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allowed = allowed();
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let mut trouble = Vec::new();
    for file in files {
        let relative = file
            .strip_prefix(&src)
            .unwrap()
            .to_string_lossy()
            .replace('\\', "/");
        let module = relative.split(['/', '.']).next().unwrap();
        let Some(may) = allowed.get(module) else {
            continue;
        };
        for name in named(&std::fs::read_to_string(&file).unwrap()) {
            if allowed.contains_key(name.as_str())
                && name != module
                && !may.contains(&name.as_str())
            {
                trouble.push(format!("src/{relative} names crate::{name}"));
            }
        }
    }
    assert!(trouble.is_empty(), "{}", trouble.join("\n"));
}

#[test]
fn only_the_editor_adapter_names_nvim_rs() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let inside = file.starts_with(src.join("modes/nvim")) || file.ends_with("modes/nvim.rs");
        assert!(
            inside || !text.contains("nvim_rs::"),
            "{} names nvim_rs",
            file.display()
        );
    }
}
