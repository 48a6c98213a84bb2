use pi_nvim::resources::settings::{Scope, Settings, SettingsError, Trust};
use serde_json::{Value, json};

use super::world::World;
use super::{run, same};
use crate::conformance::Outcome;

fn path(world: &World, scope: Scope) -> std::path::PathBuf {
    match scope {
        Scope::Global => world.places().agent_dir.join("settings.json"),
        Scope::Project => world.cwd.join(".pi/settings.json"),
    }
}

fn write(world: &World, scope: Scope, content: &Value) {
    let text = match content {
        Value::Null => return,
        Value::String(raw) => raw.clone(),
        json => json.to_string(),
    };
    let path = path(world, scope);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn load(world: &World, case: &Value) -> Settings {
    write(world, Scope::Global, &case["global"]);
    write(world, Scope::Project, &case["project"]);
    let trust = match case["projectTrusted"] == false {
        true => Trust::Untrusted,
        false => Trust::Trusted,
    };
    Settings::load(&world.places().agent_dir, &world.cwd, trust)
}

fn thrown<T>(result: Result<T, impl std::fmt::Display>, show: impl Fn(T) -> Value) -> Value {
    result.map_or_else(|_| json!({"throws": true}), show)
}

fn getter(settings: &Settings, name: &str, model: Option<&str>) -> Value {
    match name {
        "getDefaultTools" => json!(settings.default_tools()),
        "getSteeringMode" => settings.steering_mode().as_str().into(),
        "getFollowUpMode" => settings.follow_up_mode().as_str().into(),
        "getTransport" => settings.transport().as_str().into(),
        "getTreeFilterMode" => settings.tree_filter().as_str().into(),
        "getDoubleEscapeAction" => settings.double_escape().as_str().into(),
        "getCacheWarmingMode" => settings.cache_warming().as_str().into(),
        "getDefaultProjectTrust" => format!("{:?}", settings.default_project_trust())
            .to_lowercase()
            .into(),
        "getHideThinkingBlock" => settings.hide_thinking().into(),
        "getEnableSkillCommands" => settings.enable_skill_commands().into(),
        "getImageAutoResize" => settings.image_auto_resize().into(),
        "getBlockImages" => settings.block_images().into(),
        "getQuietStartup" => settings.flag(&["quietStartup"], false).into(),
        // Of the terminal program only; kept in the file, without effect here.
        "getOutputPad" => 1.into(),
        "getCompactionSettings" => thrown(settings.compaction(model), |it| {
            json!({
                "enabled": it.enabled, "reserveTokens": it.reserve_tokens,
                "keepRecentTokens": it.keep_recent_tokens,
            })
        }),
        "getBranchSummarySettings" => {
            let it = settings.branch_summary();
            json!({"reserveTokens": it.reserve_tokens, "skipPrompt": it.skip_prompt})
        }
        "getRetrySettings" => {
            let it = settings.retry();
            json!({
                "enabled": it.enabled, "maxRetries": it.max_retries, "baseDelayMs": it.base_delay_ms,
                "maxAgentDelayMs": it.max_agent_delay_ms,
            })
        }
        "getProviderRetrySettings" => {
            json!({"maxRetryDelayMs": settings.provider_retry().max_retry_delay_ms})
        }
        "getHttpIdleTimeoutMs" => thrown(settings.http_idle_timeout_ms(), |it| it.into()),
        "getWebSocketConnectTimeoutMs" => {
            thrown(settings.websocket_connect_timeout_ms(), |it| json!(it))
        }
        other => panic!("no getter for {other}"),
    }
}

fn report(world: &World, settings: &Settings, case: &Value) -> Value {
    let mut got = json!({"effective": settings.effective()});
    let errors: Vec<Value> = settings
        .errors()
        .map(|err| match err {
            SettingsError::Invalid {
                scope, path, line, ..
            } => {
                assert!(*line > 0);
                assert!(
                    err.to_string()
                        .contains(&format!("{}:{line}:", path.display())),
                    "{err}"
                );
                let scope = match scope {
                    Scope::Global => "global",
                    Scope::Project => "project",
                };
                json!({"scope": scope, "path": world.placeheld_path(path)})
            }
            other => panic!("{other}"),
        })
        .collect();
    if !errors.is_empty() {
        got["errors"] = errors.into();
    }
    let model = case["modelArg"].as_object();
    let model = model.map(|it| {
        format!(
            "{}/{}",
            it["provider"].as_str().unwrap(),
            it["id"].as_str().unwrap()
        )
    });
    if let Some(accessors) = case["expected"]["accessors"].as_object() {
        let all = accessors
            .keys()
            .map(|name| (name.clone(), getter(settings, name, model.as_deref())));
        got["accessors"] = Value::Object(all.collect());
    }
    got
}

#[test]
fn recorded_merging() {
    run("resources", "settings.json", "merge", |case| {
        let world = World::project();
        let got = report(&world, &load(&world, case), case);
        // The two cases whose notes ask for something else.
        let ours = match case["id"].as_str().unwrap() {
            "json-array-file" => {
                json!({"effective": {}, "errors": [{"scope": "global", "path": "$AGENT/settings.json"}]})
            }
            "steering-no-validation" => {
                json!({"effective": {"steeringMode": "weird"}, "accessors": {"getSteeringMode": "one-at-a-time"}})
            }
            _ => return same(&got, &case["expected"]),
        };
        match same(&got, &ours) {
            Outcome::Pass => Outcome::Differs,
            other => other,
        }
    });
}

fn call(settings: &mut Settings, operation: &Value) -> Result<(), SettingsError> {
    let arg = |idx: usize| operation["args"][idx].clone();
    let text = |idx: usize| arg(idx).as_str().unwrap().to_owned();
    match operation["call"].as_str().unwrap() {
        "setTheme" => settings.set(Scope::Global, &["theme"], arg(0)),
        "setDefaultThinkingLevel" => settings.set(Scope::Global, &["defaultThinkingLevel"], arg(0)),
        "setCompactionEnabled" => settings.set(Scope::Global, &["compaction", "enabled"], arg(0)),
        "setProjectSkillPaths" => settings.set(Scope::Project, &["skills"], arg(0)),
        "setDefaultModelAndProvider" => {
            settings.set(Scope::Global, &["defaultProvider"], arg(0))?;
            settings.set(Scope::Global, &["defaultModel"], arg(1))
        }
        "setModelThinkingLevel" => {
            let key = format!("{}/{}", text(0), text(1));
            settings.set(Scope::Global, &["modelThinkingLevels", &key], arg(2))
        }
        other => panic!("no setter for {other}"),
    }
}

fn file(world: &World, scope: Scope) -> Value {
    match std::fs::read_to_string(path(world, scope)) {
        Err(_) => Value::Null,
        Ok(text) => serde_json::from_str(&text).unwrap_or_else(|_| json!({"raw": text})),
    }
}

#[test]
fn recorded_writes() {
    run("resources", "settings.json", "writes", |case| {
        let world = World::project();
        let mut settings = load(&world, case);
        let mut threw = false;
        for operation in case["operations"].as_array().unwrap() {
            match operation.get("externalWrite") {
                Some(content) => write(&world, Scope::Global, content),
                None => {
                    let result = call(&mut settings, operation);
                    threw |= matches!(result, Err(SettingsError::Untrusted { .. }));
                }
            }
        }
        let subset = case["expected"]["effectiveSubset"].as_object().unwrap();
        let effective = subset
            .keys()
            .map(|key| (key.clone(), settings.effective()[key].clone()));
        let mut got = json!({
            "globalFile": file(&world, Scope::Global),
            "projectFile": file(&world, Scope::Project),
        });
        if threw {
            got["threw"] = true.into();
        }
        got["effectiveSubset"] = Value::Object(effective.collect());
        same(&got, &case["expected"])
    });
}

#[test]
fn reading_creates_nothing() {
    let world = World::project();
    load(&world, &json!({}));
    assert!(!world.cwd.join(".pi").exists());
    assert_eq!(
        std::fs::read_dir(world.places().agent_dir).unwrap().count(),
        0
    );
}

#[test]
fn a_file_that_became_invalid_keeps_its_values_until_it_is_mended() {
    let world = World::project();
    let mut settings = load(&world, &json!({"global": {"theme": "a"}}));
    write(&world, Scope::Global, &"{\n \"theme\": \n}".into());
    settings.reload(Trust::Trusted);
    assert_eq!(settings.effective()["theme"], "a");
    let err = settings.errors().next().unwrap().to_string();
    assert!(err.contains("settings.json:3:"), "{err}");
    write(
        &world,
        Scope::Global,
        &json!({"theme": "b", "steeringMode": "all"}),
    );
    settings.reload(Trust::Trusted);
    assert_eq!(settings.errors().count(), 0);
    assert_eq!(settings.steering_mode().as_str(), "all");
}

#[test]
fn a_value_that_could_not_be_written_is_written_with_the_next_one() {
    let world = World::project();
    let mut settings = load(&world, &json!({"global": {"a": 1}}));
    write(&world, Scope::Global, &"{".into());
    let err = settings
        .set(Scope::Global, &["theme"], "x".into())
        .unwrap_err();
    assert!(err.to_string().contains("left alone"), "{err}");
    assert_eq!(settings.effective()["theme"], "x");
    write(&world, Scope::Global, &json!({"b": 2}));
    settings.set(Scope::Global, &["c"], 3.into()).unwrap();
    assert_eq!(
        file(&world, Scope::Global),
        json!({"b": 2, "theme": "x", "c": 3})
    );
}

#[test]
fn a_write_keeps_the_last_line_end_and_the_order() {
    let world = World::project();
    write(
        &world,
        Scope::Global,
        &"{\"z\":1,\"a\":{\"k\":[1,2]}}\n".into(),
    );
    let mut settings = load(&world, &json!({}));
    settings.set(Scope::Global, &["b"], true.into()).unwrap();
    let text = std::fs::read_to_string(path(&world, Scope::Global)).unwrap();
    let want = "{\n  \"z\": 1,\n  \"a\": {\n    \"k\": [\n      1,\n      2\n    ]\n  },\n  \"b\": true\n}\n";
    assert_eq!(text, want);
}

#[test]
fn the_session_folder_of_a_project_needs_no_trust() {
    let world = World::project();
    let case = json!({
        "global": {"sessionDir": "g"}, "project": {"sessionDir": "p", "theme": "x"}, "projectTrusted": false,
    });
    let settings = load(&world, &case);
    assert_eq!(settings.session_dir(), Some("p"));
    assert_eq!(settings.effective().get("theme"), None);
}

#[test]
fn global_only_keys_of_a_project_do_nothing() {
    let world = World::project();
    let settings = load(
        &world,
        &json!({"project": {"httpProxy": "http://p", "defaultProjectTrust": "always"}}),
    );
    assert_eq!(settings.http_proxy(), None);
    assert_eq!(format!("{:?}", settings.default_project_trust()), "Ask");
}
