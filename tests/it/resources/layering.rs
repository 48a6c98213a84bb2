//! Which resource comes from where, and who wins.

use pi_nvim::resources::settings::Trust;
use pi_nvim::resources::{LoadOptions, Origin, ResourceFlags, Resources, Source, SourceScope};
use serde_json::{Map, Value, json};

use super::run;
use super::world::World;
use crate::conformance::Outcome;

fn load(world: &World, case: &Value) -> Resources {
    let options = &case["options"];
    let list = |key: &str| {
        let list = options[key].as_array().into_iter().flatten();
        list.map(|it| world.real(it.as_str().unwrap())).collect()
    };
    let flags = ResourceFlags {
        extensions: list("cliExtensions"),
        skills: list("cliSkills"),
        prompt_templates: list("cliPrompts"),
        no_extensions: options["noExtensions"] == true,
        no_skills: options["noSkills"] == true,
        no_prompt_templates: options["noPromptTemplates"] == true,
        no_context_files: options["noContextFiles"] == true,
        ..ResourceFlags::default()
    };
    Resources::load(&LoadOptions {
        places: world.places(),
        cwd: world.cwd.clone(),
        trust: match case["projectTrusted"] == true {
            true => Trust::Trusted,
            false => Trust::Untrusted,
        },
        trust_rules: Default::default(),
        flags,
    })
}

fn source(world: &World, path: &std::path::Path, source: &Source) -> Map<String, Value> {
    let scope = match source.scope {
        SourceScope::User => "user",
        SourceScope::Project => "project",
        SourceScope::Temporary => "temporary",
    };
    let out = json!({"path": world.placeheld_path(path), "scope": scope, "source": source.label});
    out.as_object().unwrap().clone()
}

fn report(world: &World, loaded: &Resources) -> Value {
    let extensions = loaded.extensions.iter().map(|it| {
        let mut out = source(world, &it.path, &it.source);
        let origin = match it.source.origin {
            Origin::Package => "package",
            Origin::TopLevel => "top-level",
        };
        out.insert("origin".into(), origin.into());
        out
    });
    let skills = loaded.skills.iter().map(|it| {
        let mut out = source(world, &it.path, &it.source);
        out.insert("name".into(), it.name.as_str().into());
        out
    });
    let prompts = loaded.templates.iter().map(|it| {
        let mut out = source(world, &it.path, &it.source);
        out.insert("name".into(), it.name.as_str().into());
        out
    });
    let collisions = loaded
        .diagnostics
        .iter()
        .filter_map(|it| it.collision.as_ref())
        .map(|it| {
            json!({
                "type": it.kind, "name": it.name, "winner": world.placeheld_path(&it.winner),
                "loser": world.placeheld_path(&it.loser),
            })
        });
    let context = loaded
        .context_files
        .iter()
        .filter(|it| it.path.starts_with(&world.root));
    json!({
        "extensions": extensions.collect::<Vec<_>>(),
        "skills": skills.collect::<Vec<_>>(),
        "prompts": prompts.collect::<Vec<_>>(),
        "collisions": collisions.collect::<Vec<_>>(),
        "contextFiles": context.map(|it| world.placeheld_path(&it.path)).collect::<Vec<_>>(),
        "systemPrompt": loaded.custom_prompt,
        "appendSystemPrompt": loaded.addendum,
    })
}

/// Inside one directory the order means nothing: sorts runs of neighbours that share one.
fn settle(list: &Value) -> Vec<Value> {
    let root = |value: &Value| {
        let path = value["path"].as_str().unwrap_or_default();
        let kinds = ["/extensions/", "/skills/", "/prompts/"];
        kinds
            .iter()
            .find_map(|kind| path.find(kind).map(|at| path[..at].to_owned()))
            .unwrap_or_default()
    };
    let mut out: Vec<Value> = list.as_array().cloned().unwrap_or_default();
    for run in out.chunk_by_mut(|a, b| root(a) == root(b)) {
        run.sort_by_key(|it| it["path"].to_string());
    }
    out
}

#[test]
fn recorded_cases() {
    run("extensions", "resource-layering.json", "cases", |case| {
        let world = World::new(case["options"]["cwd"].as_str().unwrap_or("home/proj"));
        world.make(&case["files"]);
        let got = report(&world, &load(&world, case));
        let want = &case["expected"];
        for key in [
            "extensions",
            "skills",
            "prompts",
            "collisions",
            "contextFiles",
            "appendSystemPrompt",
        ] {
            let (mut got, want_list) = (settle(&got[key]), settle(&want[key]));
            if key == "extensions" && want["extensionErrors"].is_u64() {
                // Bodies do not run here, so what fails when it runs is found like the others.
                got.retain(|it| want_list.iter().any(|other| other["path"] == it["path"]));
            }
            if got != want_list {
                return Outcome::Fail(format!("{key}\ngot  {got:#?}\nwant {want_list:#?}"));
            }
        }
        match got["systemPrompt"] == want["systemPrompt"] {
            true => Outcome::Pass,
            false => Outcome::Fail(format!("system prompt {}", got["systemPrompt"])),
        }
    });
}

#[test]
fn commands_are_listed_as_the_protocol_wants_them() {
    let world = World::project();
    world.make(&json!([
        {"path": "$AGENT/prompts/greet.md", "content": "---\ndescription: Greets\n---\nHi"},
        {"path": "$AGENT/skills/demo/SKILL.md", "content": "---\ndescription: A demo skill.\n---\nx"},
    ]));
    let loaded = load(&world, &json!({"projectTrusted": true}));
    let commands: Value = loaded.commands().into();
    let info = |path: &str| {
        json!({
            "path": world.real(path), "source": "auto", "scope": "user", "origin": "top-level",
            "baseDir": world.real("$AGENT"),
        })
    };
    let want = json!([
        {"name": "greet", "description": "Greets", "source": "prompt",
         "sourceInfo": info("$AGENT/prompts/greet.md")},
        {"name": "skill:demo", "description": "A demo skill.", "source": "skill",
         "sourceInfo": info("$AGENT/skills/demo/SKILL.md")},
    ]);
    assert_eq!(commands, want);
}

#[test]
fn a_flag_names_a_file_or_is_the_text() {
    let world = World::project();
    std::fs::write(world.cwd.join("sys.md"), "from file").unwrap();
    let options = |prompt: &str| LoadOptions {
        places: world.places(),
        cwd: world.cwd.clone(),
        trust: Trust::Trusted,
        trust_rules: Default::default(),
        flags: ResourceFlags {
            system_prompt: Some(prompt.to_owned()),
            append_system_prompt: vec!["sys.md".into(), "plain".into()],
            ..ResourceFlags::default()
        },
    };
    let loaded = Resources::load(&options("sys.md"));
    assert_eq!(loaded.custom_prompt.as_deref(), Some("from file"));
    assert_eq!(loaded.addendum, ["from file", "plain"]);
    let loaded = Resources::load(&options("You are brief."));
    assert_eq!(loaded.custom_prompt.as_deref(), Some("You are brief."));
}

#[test]
fn a_cloned_repository_loads_nothing_before_it_is_trusted() {
    let world = World::project();
    world.make(&json!([
        {"path": "$CWD/.pi/settings.json", "content": "{\"shellCommandPrefix\": \"evil\", \"packages\": [\"../pkg\"]}"},
        {"path": "$CWD/pkg/extensions/e.js", "content": ""},
        {"path": "$CWD/.pi/extensions/e.lua", "content": "os.exit(1)"},
        {"path": "$CWD/.pi/skills/s/SKILL.md", "content": "---\ndescription: d\n---\n"},
        {"path": "$CWD/.pi/prompts/p.md", "content": "p"},
        {"path": "$CWD/.pi/SYSTEM.md", "content": "evil"},
        {"path": "$CWD/.pi/APPEND_SYSTEM.md", "content": "evil"},
        {"path": "$CWD/.agents/skills/s/SKILL.md", "content": "---\ndescription: d\n---\n"},
    ]));
    let loaded = load(&world, &json!({"projectTrusted": false}));
    assert_eq!(loaded.settings.shell_command_prefix(), None);
    assert!(
        loaded.extensions.is_empty() && loaded.skills.is_empty() && loaded.templates.is_empty()
    );
    assert_eq!((loaded.custom_prompt, loaded.addendum.len()), (None, 0));
    let loaded = load(&world, &json!({"projectTrusted": true}));
    assert_eq!((loaded.extensions.len(), loaded.templates.len()), (2, 1));
    assert_eq!(loaded.settings.shell_command_prefix(), Some("evil"));
}

#[test]
fn a_reload_sees_what_changed_on_disk() {
    let world = World::project();
    world.make(&json!([
        {"path": "$AGENT/settings.json", "content": "{\"steeringMode\": \"all\"}"},
        {"path": "$AGENT/prompts/a.md", "content": "old"},
        {"path": "$CWD/AGENTS.md", "content": "old"},
    ]));
    let options = LoadOptions {
        places: world.places(),
        cwd: world.cwd.clone(),
        trust: Trust::Trusted,
        trust_rules: Default::default(),
        flags: ResourceFlags::default(),
    };
    let loaded = Resources::load(&options);
    world.make(&json!([
        {"path": "$AGENT/settings.json", "content": "{broken"},
        {"path": "$AGENT/prompts/a.md", "content": "new"},
        {"path": "$AGENT/prompts/b.md", "content": "b"},
        {"path": "$CWD/AGENTS.md", "content": "new"},
    ]));
    let loaded = Resources::reload(&options, loaded.settings);
    assert_eq!(loaded.settings.steering_mode().as_str(), "all");
    assert_eq!(loaded.expand("/a").text, "new");
    assert_eq!(
        (
            loaded.templates.len(),
            loaded.context_files[0].content.as_str()
        ),
        (2, "new")
    );
    let warnings: Vec<&str> = loaded
        .diagnostics
        .iter()
        .map(|it| it.message.as_str())
        .collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("settings.json:1:"), "{warnings:?}");
}

#[test]
fn a_filter_may_name_the_home_folder() {
    let world = World::project();
    world.make(&json!([
        {"path": "$AGENT/settings.json", "content": "{\"skills\": [\"~/more\", \"-~/more/a\", \"!~/.agents/**\"]}"},
        {"path": "$HOME/more/a/SKILL.md", "content": "---\ndescription: d\n---\n"},
        {"path": "$HOME/more/b/SKILL.md", "content": "---\ndescription: d\n---\n"},
        {"path": "$HOME/.agents/skills/c/SKILL.md", "content": "---\ndescription: d\n---\n"},
    ]));
    let loaded = load(&world, &json!({"projectTrusted": true}));
    let names: Vec<&str> = loaded.skills.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["b"]);
}

#[test]
fn configured_mcp_servers_are_named_once_and_left_alone() {
    let world = World::project();
    let file = r#"{"mcpServers": {"a": {"command": "x"}, "b": {"url": "y", "enabled": false}}}"#;
    world.make(&json!([
        {"path": "$AGENT/mcp.json", "content": file},
        {"path": "$CWD/.pi/mcp.json", "content": file},
    ]));
    let lines = |trusted: bool| -> Vec<String> {
        let loaded = load(&world, &json!({"projectTrusted": trusted}));
        loaded
            .diagnostics
            .into_iter()
            .map(|it| it.message)
            .collect()
    };
    assert_eq!(lines(true).len(), 2);
    let user = lines(false);
    assert!(
        user.len() == 1 && user[0].ends_with("do not run: a"),
        "{user:?}"
    );
    let text = std::fs::read_to_string(world.places().agent_dir.join("mcp.json")).unwrap();
    assert_eq!(text, file);
}
