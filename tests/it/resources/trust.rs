use std::path::PathBuf;

use pi_nvim::resources::settings::Trust;
use pi_nvim::resources::trust::{
    DefaultTrust, HandlerAnswer, TrustChoice, TrustFacts, TrustRules, TrustStore, Verdict, decide,
    needs_trust, not_used,
};
use serde_json::{Value, json};

use super::world::World;
use super::{run, same};

#[test]
fn recorded_needs() {
    run("resources", "trust.json", "needsTrust", |case| {
        let mut world = World::project();
        world.make(&case["files"]);
        world.cwd = PathBuf::from(world.real(case["cwd"].as_str().unwrap()));
        if case["id"] == "agents-skills-parent" || case["id"] == "parent-pi-not-considered" {
            world.cwd = PathBuf::from(world.real("$HOME/up/proj"));
            std::fs::create_dir_all(&world.cwd).unwrap();
        }
        same(
            &needs_trust(&world.places(), &world.cwd).into(),
            &case["expected"],
        )
    });
}

fn store_with(world: &World, content: &Value) -> TrustStore {
    let dir = world.places().agent_dir;
    if !content.is_null() {
        std::fs::write(
            dir.join("trust.json"),
            world.real_value(content).to_string(),
        )
        .unwrap();
    }
    TrustStore::new(&dir)
}

#[test]
fn recorded_lookup() {
    run("resources", "trust.json", "nearestEntry", |case| {
        let world = World::project();
        let store = store_with(&world, &case["store"]);
        let cwd = world.real(case["cwd"].as_str().unwrap());
        let got = match store.nearest(cwd.as_ref()) {
            Err(_) => json!({"error": true}),
            Ok(None) => Value::Null,
            Ok(Some((path, decision))) => {
                json!({"path": world.placeheld_path(&path), "decision": decision})
            }
        };
        same(&got, &case["expected"])
    });
}

fn handler(value: &Value) -> HandlerAnswer {
    let decided = |trusted| HandlerAnswer::Decided {
        trusted,
        remember: value["remember"] == true,
    };
    match value["trusted"].as_str() {
        Some("yes") => decided(true),
        Some("no") => decided(false),
        _ => HandlerAnswer::Undecided,
    }
}

#[test]
fn recorded_decisions() {
    run("resources", "trust.json", "decision", |case| {
        let world = World::project();
        let saved = match case["saved"].as_bool() {
            Some(saved) => json!({"$CWD": saved}),
            None => Value::Null,
        };
        let store = store_with(&world, &saved);
        let facts = TrustFacts {
            flag: case["override"].as_bool(),
            needs_trust: case["resources"] == true,
            saved: store
                .nearest(&world.cwd)
                .unwrap()
                .map(|(_, decision)| decision),
            default: match case["default"].as_str() {
                Some("always") => DefaultTrust::Always,
                Some("never") => DefaultTrust::Never,
                _ => DefaultTrust::Ask,
            },
        };
        let handlers = case["handlers"].as_array().into_iter().flatten();
        let mut failed = 0;
        let answers = handlers.map(|value| {
            failed += u32::from(value == "throw");
            handler(value)
        });
        let verdict = decide(&world.cwd, &facts, answers);
        let mut asked = 0;
        let (trusted, save) = match verdict {
            Verdict::Decided { trusted, save } => (trusted, save),
            Verdict::Ask(_) if case["hasUI"] == false => (false, Vec::new()),
            Verdict::Ask(choices) => {
                asked = choices.len();
                let answer = case["answer"].as_u64().map(|idx| choices[idx as usize]);
                answer.map_or((false, Vec::new()), |choice: TrustChoice| {
                    choice.apply(&world.cwd)
                })
            }
        };
        store.save(&save).unwrap();
        let file = std::fs::read_to_string(world.places().agent_dir.join("trust.json"));
        let file: Value = file.map_or(Value::Null, |text| {
            serde_json::from_str(&world.placeheld(&text)).unwrap()
        });
        let mut got = json!({"trusted": trusted, "asked": asked > 0, "optionCount": asked, "savedFile": file});
        if failed > 0 {
            got["extensionErrors"] = failed.into();
        }
        same(&got, &case["expected"])
    });
}

#[test]
fn the_file_is_sorted_and_keeps_other_answers() {
    let world = World::project();
    let store = store_with(&world, &json!({"/z": null, "/b": true}));
    store
        .save(&vec![("/a".into(), Some(false)), ("/b".into(), None)])
        .unwrap();
    let text = std::fs::read_to_string(world.places().agent_dir.join("trust.json")).unwrap();
    assert_eq!(text, "{\n  \"/a\": false,\n  \"/z\": null\n}\n");
    assert!(!world.places().agent_dir.join("trust.json.lock").exists());
}

#[test]
fn a_broken_store_is_an_error_and_stays() {
    let world = World::project();
    let store = store_with(&world, &json!({"/a": 1}));
    let err = store.save(&vec![("/b".into(), Some(true))]).unwrap_err();
    assert!(err.to_string().contains("trust.json"), "{err}");
    let text = std::fs::read_to_string(world.places().agent_dir.join("trust.json")).unwrap();
    assert_eq!(text, "{\"/a\":1}");
}

#[test]
fn the_agent_folder_is_no_project() {
    let mut world = World::project();
    world.cwd = world.root.join("home/.pi");
    let mut places = world.places();
    places.agent_dir = world.cwd.join(".pi");
    std::fs::create_dir_all(places.agent_dir.join("skills")).unwrap();
    assert!(!needs_trust(&places, &world.cwd));
}

#[test]
fn what_is_not_used_is_named() {
    let world = World::project();
    assert_eq!(not_used(&world.places(), &world.cwd), None);
    world.make(&json!([
        {"path": "$CWD/.pi/settings.json", "content": "{}"},
        {"path": "$CWD/.agents/skills", "dir": true},
    ]));
    let line = world.placeheld(&not_used(&world.places(), &world.cwd).unwrap());
    let want = "$CWD is not trusted yet, so these are not used: .pi/settings.json, .agents/skills; --approve uses them";
    assert_eq!(line, want);
}

#[test]
fn an_answer_counts_at_the_next_reload() {
    let world = World::project();
    let (places, cwd) = (world.places(), world.cwd.clone());
    let rules = TrustRules::new(None);
    // Nothing to trust: trusted, and it stays so when the session makes the first `.pi`.
    assert_eq!(rules.again(&places, &cwd, Trust::Trusted), Trust::Trusted);
    world.make(&json!([{"path": "$CWD/.pi/settings.json", "content": "{}"}]));
    assert_eq!(rules.again(&places, &cwd, Trust::Trusted), Trust::Trusted);
    assert_eq!(
        rules.again(&places, &cwd, Trust::Untrusted),
        Trust::Untrusted
    );
    rules.answer(&cwd, true);
    assert_eq!(rules.again(&places, &cwd, Trust::Untrusted), Trust::Trusted);
    rules.answer(&cwd, false);
    assert_eq!(rules.again(&places, &cwd, Trust::Trusted), Trust::Untrusted);
    // Another process hears of it through the store.
    let other = TrustRules::new(None);
    TrustStore::new(&places.agent_dir)
        .save(&TrustChoice::Trust.apply(&cwd).1)
        .unwrap();
    assert_eq!(other.again(&places, &cwd, Trust::Untrusted), Trust::Trusted);
}
