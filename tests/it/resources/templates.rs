use pi_nvim::resources::settings::Trust;
use pi_nvim::resources::templates::{Template, expand, split_arguments, substitute};
use pi_nvim::resources::{
    DiagnosticCode, LoadOptions, ResourceFlags, Resources, Source, SourceScope,
};
use serde_json::{Value, json};

use super::world::World;
use super::{run, same};
use crate::conformance::Outcome;

fn template(name: &str, content: &str) -> Template {
    Template {
        name: name.to_owned(),
        description: String::new(),
        argument_hint: None,
        content: content.to_owned(),
        path: name.into(),
        source: Source::top_level(SourceScope::User, "auto", None),
    }
}

#[test]
fn recorded_arguments() {
    run("resources", "prompt-templates.json", "arguments", |case| {
        let input = case["input"].as_str().unwrap();
        let text = case["template"].as_str().unwrap();
        let args = split_arguments(input.strip_prefix("/t").unwrap());
        let got = json!([
            args,
            substitute(text, &args),
            expand(input, &[template("t", text)])
        ]);
        same(
            &got,
            &json!([case["args"], case["expected"], case["expected"]]),
        )
    });
}

#[test]
fn recorded_matching() {
    run("resources", "prompt-templates.json", "matching", |case| {
        let input = case["input"].as_str().unwrap();
        let all: Vec<Template> = case["templates"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| {
                template(
                    it["name"].as_str().unwrap(),
                    it["content"].as_str().unwrap(),
                )
            })
            .collect();
        let got = expand(input, &all).unwrap_or_else(|| input.to_owned());
        same(&got.into(), &case["expected"])
    });
}

fn record(world: &World, template: &Template) -> Value {
    let mut out = json!({
        "name": template.name, "description": template.description, "content": template.content,
        "path": world.placeheld_path(&template.path), "scope": match template.source.scope {
            SourceScope::User => "user",
            SourceScope::Project => "project",
            SourceScope::Temporary => "temporary",
        },
    });
    if let Some(hint) = &template.argument_hint {
        out["argumentHint"] = hint.as_str().into();
    }
    out
}

/// The recorded loader is the raw one; ours is the whole layer. What the layer adds is told apart here: it drops dot
/// files it was not pointed at, reports a named path that is missing, and keeps one of two templates of one name.
#[test]
fn recorded_files() {
    run("resources", "prompt-templates.json", "files", |case| {
        let world = World::project();
        world.make(&case["files"]);
        let mut flags = ResourceFlags {
            no_prompt_templates: case["includeDefaults"] == false,
            ..ResourceFlags::default()
        };
        let paths = case["promptPaths"].as_array().unwrap();
        flags.prompt_templates = paths
            .iter()
            .map(|path| world.real(path.as_str().unwrap()))
            .collect();
        let by_hand = case["id"] == "other-ext";
        if by_hand {
            flags.prompt_templates.push(world.real("$AGENT/prompts"));
        }
        let loaded = Resources::load(&LoadOptions {
            places: world.places(),
            cwd: world.cwd.clone(),
            trust: Trust::Trusted,
            trust_rules: Default::default(),
            flags,
        });
        let mut templates: Vec<Value> = loaded
            .templates
            .iter()
            .map(|it| record(&world, it))
            .collect();
        if by_hand {
            templates[0]["scope"] = "user".into();
        }
        templates.sort_by_key(|it| it["path"].to_string());
        let mut diagnostics = Vec::new();
        for it in &loaded.diagnostics {
            match (it.code, &it.collision) {
                (DiagnosticCode::Collision, Some(collision)) => {
                    // Raw: both, the person's first. Layer: the project's.
                    let loser = Template::read(
                        &collision.loser,
                        &Source::top_level(SourceScope::User, "auto", None),
                    )
                    .unwrap();
                    templates.insert(0, record(&world, &loser));
                }
                (DiagnosticCode::PathMissing, _) => {}
                (DiagnosticCode::Yaml, _) => diagnostics
                    .push(json!({"code": "yaml_error", "path": world.placeheld_path(&it.path)})),
                other => return Outcome::Fail(format!("{other:?}")),
            }
        }
        same(
            &json!({"templates": templates, "diagnostics": diagnostics}),
            &case["expected"],
        )
    });
}
