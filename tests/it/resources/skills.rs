use std::path::{Path, PathBuf};

use pi_nvim::files::agent_dir::resolve_path;
use pi_nvim::resources::skills::{Loader, Reader, RootKind, Skill, expand, listing};
use pi_nvim::resources::{Diagnostic, DiagnosticCode, Source, SourceScope};
use serde_json::{Value, json};

use super::world::World;
use super::{run, same};
use crate::conformance::Outcome;

fn scope_of(world: &World, path: &Path) -> SourceScope {
    if path.starts_with(world.places().agent_dir.join("skills")) {
        SourceScope::User
    } else if path.starts_with(world.cwd.join(".pi/skills")) {
        SourceScope::Project
    } else {
        SourceScope::Temporary
    }
}

fn code(code: DiagnosticCode) -> &'static str {
    match code {
        DiagnosticCode::DescriptionRequired => "description_required",
        DiagnosticCode::DescriptionTooLong => "description_too_long",
        DiagnosticCode::NameTooLong => "name_too_long",
        DiagnosticCode::NameInvalidChars => "name_invalid_chars",
        DiagnosticCode::NameEdgeHyphen => "name_edge_hyphen",
        DiagnosticCode::NameDoubleHyphen => "name_double_hyphen",
        DiagnosticCode::Yaml => "yaml_error",
        DiagnosticCode::Collision => "collision",
        DiagnosticCode::PathMissing => "path_missing",
        DiagnosticCode::NotMarkdown => "not_markdown",
        DiagnosticCode::Io | DiagnosticCode::Settings | DiagnosticCode::Mcp => "io_error",
    }
}

fn diagnostic(world: &World, it: &Diagnostic) -> Value {
    let mut out = json!({"code": code(it.code), "path": world.placeheld_path(&it.path)});
    if let Some(collision) = &it.collision {
        out["name"] = collision.name.as_str().into();
        out["winner"] = world.placeheld_path(&collision.winner).into();
        out["loser"] = world.placeheld_path(&collision.loser).into();
    }
    assert!(
        it.message.contains(it.path.to_str().unwrap()),
        "{}",
        it.message
    );
    out
}

fn skill(world: &World, it: &Skill) -> Value {
    let scope = match it.source.scope {
        SourceScope::User => "user",
        SourceScope::Project => "project",
        SourceScope::Temporary => "temporary",
    };
    json!({
        "name": it.name, "description": it.description, "filePath": world.placeheld_path(&it.path),
        "baseDir": world.placeheld_path(&it.base_dir), "scope": scope,
        "disableModelInvocation": it.hidden_from_model,
    })
}

fn sort(list: &mut Value, ordered: bool) {
    if !ordered {
        list.as_array_mut().unwrap().sort_by_key(Value::to_string);
    }
}

#[test]
fn recorded_discovery() {
    run("resources", "skills.json", "discovery", |case| {
        let world = World::project();
        world.make(&case["files"]);
        let mut roots: Vec<PathBuf> = Vec::new();
        if case["includeDefaults"] == true {
            let own = [
                world.places().agent_dir.join("skills"),
                world.cwd.join(".pi/skills"),
            ];
            roots.extend(own.into_iter().filter(|path| path.exists()));
        }
        let named = case["skillPaths"].as_array().unwrap().iter();
        roots.extend(named.map(|path| {
            resolve_path(
                &world.real(path.as_str().unwrap()),
                &world.cwd,
                &world.places().home,
            )
        }));
        let mut loader = Loader::default();
        for root in roots {
            let source = Source::top_level(scope_of(&world, &root), "auto", None);
            loader.add_path(&root, RootKind::Pi, &source);
        }
        let mut skills: Value = loader.skills.iter().map(|it| skill(&world, it)).collect();
        let mut diagnostics: Value = loader
            .diagnostics
            .iter()
            .map(|it| diagnostic(&world, it))
            .collect();
        let mut want = case["expected"].clone();
        let ordered = case["ordered"] == true;
        for list in [&mut skills, &mut diagnostics, &mut want["skills"]] {
            sort(list, ordered);
        }
        sort(&mut want["diagnostics"], ordered);
        same(
            &json!({"skills": skills, "diagnostics": diagnostics}),
            &want,
        )
    });
}

/// Texts between `<tag>` and `</tag>`.
fn elements(text: &str, tag: &str) -> Vec<String> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    text.split(&open)
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(&close)?.0.to_owned()))
        .collect()
}

#[test]
fn recorded_listing() {
    run("resources", "skills.json", "promptListing", |case| {
        let skills: Vec<Skill> = case["skills"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| {
                let name = it["name"].as_str().unwrap();
                Skill {
                    name: name.to_owned(),
                    description: it["description"].as_str().unwrap().to_owned(),
                    path: format!("/s/{name}/SKILL.md").into(),
                    base_dir: format!("/s/{name}").into(),
                    hidden_from_model: it["disableModelInvocation"] == true,
                    source: Source::top_level(SourceScope::User, "auto", None),
                }
            })
            .collect();
        let reader = match case["reader"].as_str().unwrap() {
            "indirect" => Reader::Unnamed,
            tool => Reader::Tool(tool),
        };
        let text = listing(&skills, reader);
        let list = text.clone().unwrap_or_default();
        let intro = list.split("<available_skills>").next().unwrap().to_owned();
        let words: Vec<&str> = intro.split_whitespace().collect();
        let named = ["read", "bash"]
            .into_iter()
            .find(|tool| words.windows(2).any(|pair| pair == [tool, "tool"]));
        let got = json!({
            "present": text.is_some(),
            "names": elements(&list, "name"),
            "descriptions": elements(&list, "description"),
            "locations": elements(&list, "location"),
            "namesReader": named,
            "listElement": list.contains("<available_skills>").then_some("available_skills"),
        });
        same(&got, &case["expected"])
    });
}

#[test]
fn recorded_expansion() {
    run("resources", "skills.json", "expansion", |case| {
        let world = World::project();
        let dir = world.places().agent_dir.join("skills/pdf");
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("SKILL.md");
        if let Some(text) = case["skillFile"].as_str() {
            std::fs::write(&path, text).unwrap();
        }
        let skill = Skill {
            name: "pdf".into(),
            description: "d".into(),
            path,
            base_dir: dir,
            hidden_from_model: false,
            source: Source::top_level(SourceScope::User, "auto", None),
        };
        let input = case["input"].as_str().unwrap();
        let result = expand(input, std::slice::from_ref(&skill));
        if result.is_err() != (case["errorEvent"] == "skill_expansion") {
            return Outcome::Fail(format!("{result:?}"));
        }
        let text = result.ok().flatten().unwrap_or_else(|| input.to_owned());
        let note = "References are relative to $AGENT/skills/pdf.";
        let got = world.placeheld(&text).replace(note, "{{BASE_DIR_NOTE}}");
        same(&got.into(), &case["expected"])
    });
}

#[test]
fn a_folder_that_links_to_itself_ends() {
    let world = World::project();
    let dir = world.cwd.join(".pi/skills/grp");
    std::fs::create_dir_all(&dir).unwrap();
    std::os::unix::fs::symlink(&dir, dir.join("again")).unwrap();
    assert_eq!(
        pi_nvim::resources::skills::files_in(&dir, RootKind::Pi),
        Vec::<PathBuf>::new()
    );
}
