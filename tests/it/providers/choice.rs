//! Recorded cases of choosing a model by text.

use std::collections::BTreeSet;
use std::sync::Arc;

use pi_nvim::ai::patterns::{
    ChoiceError, CliFlags, Found, PatternNote, Pool, StartPreferences, Suffix, cli, initial, scope,
};
use pi_nvim::ai::{Model, ThinkingLevel};
use serde_json::{Value, json};

use crate::conformance::{Outcome, Tally, data_dir};

fn read(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(data_dir().join(path)).unwrap()).unwrap()
}

fn models(list: &Value) -> Vec<Arc<Model>> {
    let model = |value: &Value| {
        let text = |key: &str| value[key].as_str().unwrap().to_owned();
        Arc::new(Model {
            id: text("id"),
            name: text("name"),
            provider: text("provider"),
            ..Model::default()
        })
    };
    list.as_array().unwrap().iter().map(model).collect()
}

fn name(model: &Model) -> String {
    format!("{}/{}", model.provider, model.id)
}

fn texts(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(|text| text.as_str().unwrap().to_owned())
        .collect()
}

fn compare(expected: &Value, actual: &Value) -> Outcome {
    if expected == actual {
        Outcome::Pass
    } else {
        Outcome::Fail(format!("expected {expected}\ngot      {actual}"))
    }
}

fn scoped(patterns: &Value, models: &[Arc<Model>]) -> (Value, Vec<PatternNote>) {
    let (found, notes) = scope(&texts(patterns), models);
    let entry = |found: &pi_nvim::ai::patterns::Scoped| match found.level {
        Some(level) => json!({"model": name(&found.model), "thinkingLevel": level.as_str()}),
        None => json!({"model": name(&found.model)}),
    };
    (found.iter().map(entry).collect(), notes)
}

fn code(note: &PatternNote) -> (&'static str, &str) {
    match note {
        PatternNote::Ambiguous(pattern) => ("ambiguous", pattern),
        PatternNote::NoMatch(pattern) => ("no-match", pattern),
        PatternNote::InvalidLevel(pattern) => ("invalid-thinking-level", pattern),
    }
}

#[test]
fn references() {
    let data = read("providers/units/model-reference.json");
    let models = models(&data["catalog"]);
    let mut tally = Tally::new("providers/units/model-reference.json#cases");
    for (at, case) in data["cases"].as_array().unwrap().iter().enumerate() {
        let with = case["usableProviders"].as_str().unwrap();
        let usable = |provider: &str| with == "all" || with.split(',').any(|id| id == provider);
        let suffix = if case["thinkingSuffix"] == "strict" {
            Suffix::Strict
        } else {
            Suffix::Lenient
        };
        let text = case["text"].as_str().unwrap();
        let mut have = json!({
            "text": text, "usableProviders": with, "thinkingSuffix": case["thinkingSuffix"], "fuzzy": true,
        });
        match Pool::new(&models, &usable).find(text, suffix) {
            Found::Model {
                model,
                level,
                ignored,
            } => {
                have["status"] = "resolved".into();
                have["model"] = name(&model).into();
                if let Some(level) = level {
                    have["thinkingLevel"] = level.as_str().into();
                }
                if ignored.is_some() {
                    have["warning"] = true.into();
                }
            }
            Found::Ambiguous { candidates, .. } => {
                let names: BTreeSet<String> = candidates.iter().map(|model| name(model)).collect();
                have["status"] = "ambiguous".into();
                have["candidates"] = json!(names);
            }
            Found::Missing { custom } => {
                have["status"] = "not-found".into();
                if let Some((provider, id)) = custom {
                    have["customId"] = format!("{provider}/{id}").into();
                }
            }
        }
        tally.case(&at.to_string(), compare(case, &have));
    }
    tally.finish();
}

#[test]
fn reference_scopes() {
    let data = read("providers/units/model-reference.json");
    let models = models(&data["catalog"]);
    let mut tally = Tally::new("providers/units/model-reference.json#scope");
    for (at, case) in data["scope"].as_array().unwrap().iter().enumerate() {
        let (found, notes) = scoped(&case["patterns"], &models);
        let warnings: Vec<&str> = notes.iter().map(|note| code(note).0).collect();
        let have = json!({"patterns": case["patterns"], "models": found, "warnings": warnings});
        tally.case(&at.to_string(), compare(case, &have));
    }
    tally.finish();
}

#[test]
fn scopes() {
    let data = read("resources/model-patterns.json");
    let models = models(&data["catalogue"]);
    let mut tally = Tally::new("resources/model-patterns.json#scope");
    for case in data["scope"].as_array().unwrap() {
        let (found, notes) = scoped(&case["patterns"], &models);
        let note = |note: &PatternNote| {
            let (code, pattern) = code(note);
            json!({"code": code, "pattern": pattern})
        };
        let diagnostics: Vec<Value> = notes.iter().map(note).collect();
        let have = json!({"models": found, "diagnostics": diagnostics});
        tally.case(
            case["id"].as_str().unwrap(),
            compare(&case["expected"], &have),
        );
    }
    tally.finish();
}

#[test]
fn command_lines() {
    let data = read("resources/model-patterns.json");
    let all = models(&data["catalogue"]);
    let mut tally = Tally::new("resources/model-patterns.json#cli");
    for case in data["cli"].as_array().unwrap() {
        let authenticated = texts(&case["authenticated"]);
        let usable = |provider: &str| authenticated.iter().any(|id| id == provider);
        let text = |key: &str| case[key].as_str().map(str::to_owned);
        let flags = CliFlags {
            provider: text("provider"),
            model: text("model"),
            has_thinking: case.get("thinking").is_some(),
            has_api_key: case.get("apiKey").is_some(),
        };
        let models = if case["noModels"] == true {
            &[]
        } else {
            all.as_slice()
        };
        let mut have = json!({"model": null, "warning": false, "error": null});
        match cli(models, &usable, &flags) {
            Ok(None) => {}
            Ok(Some(choice)) => {
                have["model"] = name(&choice.model).into();
                have["warning"] = choice.warning.is_some().into();
                if choice.warning.is_some() {
                    have["custom"] = true.into();
                }
                if let Some(level) = choice.level {
                    have["thinkingLevel"] = level.as_str().into();
                    assert!(choice.model.reasoning || choice.warning.is_none());
                }
            }
            Err(error) => {
                have["error"] = match error {
                    ChoiceError::UnknownProvider(_) => "unknown_provider",
                    ChoiceError::Ambiguous { .. } => "ambiguous",
                    ChoiceError::NotFound(_) => "not_found",
                    ChoiceError::NoModels => "no_models",
                    ChoiceError::ProviderAlone(_) => "provider_alone",
                }
                .into();
            }
        }
        tally.case(
            case["id"].as_str().unwrap(),
            compare(&case["expected"], &have),
        );
    }
    tally.finish();
}

#[test]
fn start_models() {
    let data = read("resources/model-patterns.json");
    let all = models(&data["catalogue"]);
    let mut tally = Tally::new("resources/model-patterns.json#initial");
    for case in data["initial"].as_array().unwrap() {
        let authenticated = texts(&case["authenticated"]);
        let usable = |provider: &str| authenticated.iter().any(|id| id == provider);
        let available: Vec<Arc<Model>> = all
            .iter()
            .filter(|model| usable(&model.provider))
            .cloned()
            .collect();
        let text = |key: &str| case[key].as_str().map(str::to_owned);
        let level = |value: &Value| ThinkingLevel::parse(value.as_str().unwrap_or_default());
        let levels = case["modelThinkingLevels"]
            .as_object()
            .into_iter()
            .flatten();
        let preferences = StartPreferences {
            scoped: scope(&texts(&case["scoped"]), &available).0,
            continuing: case["continuing"] == true,
            default_provider: text("defaultProvider"),
            default_model: text("defaultModel"),
            model_levels: levels
                .map(|(name, value)| (name.clone(), level(value).unwrap()))
                .collect(),
            default_level: level(&case["defaultThinkingLevel"]),
        };
        let (model, level) = initial(&all, &usable, &preferences);
        let have =
            json!({"model": model.map(|model| name(&model)), "thinkingLevel": level.as_str()});
        tally.case(
            case["id"].as_str().unwrap(),
            compare(&case["expected"], &have),
        );
    }
    tally.finish();
}
