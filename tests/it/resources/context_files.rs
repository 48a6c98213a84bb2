use std::process::Command;

use pi_nvim::resources::context_files;
use serde_json::{Value, json};

use super::world::World;
use super::{run, same};

fn shell(world: &World, script: &str) {
    let script =
        format!("export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null; {script}");
    let out = Command::new("sh")
        .args(["-ec", &script])
        .envs([
            ("GIT_AUTHOR_NAME", "t"),
            ("GIT_AUTHOR_EMAIL", "t@t"),
            ("GIT_COMMITTER_NAME", "t"),
            ("GIT_COMMITTER_EMAIL", "t@t"),
        ])
        .current_dir(&world.root)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

fn load(world: &World) -> Value {
    let files = context_files::load(&world.places().agent_dir, &world.cwd);
    let inside = files
        .iter()
        .filter(|file| file.path.starts_with(&world.root));
    inside
        .map(|file| json!({"path": world.placeheld_path(&file.path), "content": file.content}))
        .collect()
}

#[test]
fn recorded_cases() {
    run("resources", "context-files.json", "cases", |case| {
        let base = World::project();
        // `$CWD` stays the usual one in paths; the case's own `cwd` is where the session runs.
        base.make(&case["files"]);
        for command in case["setupCommands"].as_array().into_iter().flatten() {
            shell(&base, &base.real(command.as_str().unwrap()));
        }
        base.make(&case["filesAfterSetup"]);
        let cwd = base.real(case["cwd"].as_str().unwrap());
        // Some cases work in a folder of their own below the files they make.
        let cwd = match case["id"].as_str().unwrap() {
            "ancestors-outermost-first" => base.real("$HOME/a/b/c"),
            _ => cwd,
        };
        std::fs::create_dir_all(&cwd).unwrap();
        let files = context_files::load(&base.places().agent_dir, cwd.as_ref());
        let inside = files
            .iter()
            .filter(|file| file.path.starts_with(&base.root));
        let got: Value = inside
            .map(|file| json!({"path": base.placeheld_path(&file.path), "content": file.content}))
            .collect();
        same(&got, &case["expected"])
    });
}

#[test]
fn a_submodule_keeps_the_files_of_its_parent() {
    let mut world = World::project();
    let sub = world.cwd.join("sub");
    std::fs::create_dir_all(world.cwd.join(".git/modules/sub")).unwrap();
    std::fs::create_dir_all(&sub).unwrap();
    std::fs::write(sub.join(".git"), "gitdir: ../.git/modules/sub\n").unwrap();
    std::fs::write(world.cwd.join("AGENTS.md"), "outer").unwrap();
    std::fs::write(sub.join("AGENTS.md"), "inner").unwrap();
    world.cwd = sub;
    assert_eq!(load(&world).as_array().unwrap().len(), 2);
}
