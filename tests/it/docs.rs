//! The pages in `doc/` say what is true.

use std::collections::BTreeSet;
use std::path::Path;

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Names of the crates in `Cargo.toml`'s dependency tables.
fn dependencies() -> BTreeSet<String> {
    let toml = read("Cargo.toml");
    let mut inside = false;
    let mut names = BTreeSet::new();
    for line in toml.lines() {
        if line.starts_with('[') {
            inside = line.contains("dependencies");
        } else if let Some((name, _)) = line.split_once('=').filter(|_| inside) {
            names.insert(name.trim().to_owned());
        }
    }
    names
}

/// Names in backquotes in the first column of tables.
fn first_column(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| line.split('|').nth(1))
        .flat_map(|cell| {
            cell.split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn every_dependency_has_its_line() {
    let used = dependencies();
    let listed = first_column(&read("doc/dependencies.md"));
    let missing: Vec<_> = used
        .difference(&listed)
        .filter(|name| *name != "pi-nvim")
        .collect();
    let stale: Vec<_> = listed.difference(&used).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "missing {missing:?}, gone {stale:?}"
    );
}

#[test]
fn the_architecture_page_is_short_and_names_every_module() {
    let page = read("doc/architecture.md");
    assert!(page.lines().count() < 300, "{} lines", page.lines().count());
    let lib = read("src/lib.rs");
    let modules = lib
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let missing: Vec<&str> = modules
        .filter(|name| !page.contains(&format!("- **`{name}`**")))
        .collect();
    assert!(missing.is_empty(), "the code map lacks {missing:?}");
}
