//! The model a session begins with: what the command line, the settings and the credentials say, put together.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::model::{Model, ThinkingLevel};
use super::patterns::{self, ChoiceError, CliFlags, PatternNote, StartPreferences};
use super::registry::ModelRegistry;

/// What the command line asks for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// `--provider` and `--model`.
    pub flags: CliFlags,
    /// `--thinking`.
    pub thinking: Option<ThinkingLevel>,
    /// `--models`; the setting `enabledModels` when absent.
    pub patterns: Option<Vec<String>>,
}

/// The outcome.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The model; `None` when there is none that can be asked.
    pub model: Option<Arc<Model>>,
    /// The level to begin with, not yet clamped to the model; settings decide when absent.
    pub level: Option<ThinkingLevel>,
    /// Models to cycle through, when they are not all.
    pub scope: Option<Vec<Arc<Model>>>,
    /// For the person, one line each.
    pub warnings: Vec<String>,
}

/// Chooses. `continuing`: an old session is opened, which has its own model and level; the scope chooses neither then.
///
/// # Errors
/// `--model` or `--provider` names nothing, or too much.
pub fn choose(
    wanted: &Wanted,
    registry: &ModelRegistry,
    settings: &Map<String, Value>,
    continuing: bool,
) -> Result<Choice, ChoiceError> {
    let available = registry.available();
    let enabled = || serde_json::from_value(settings.get("enabledModels")?.clone()).ok();
    let listed: Vec<String> = wanted.patterns.clone().or_else(enabled).unwrap_or_default();
    let (scoped, notes) = patterns::scope(&listed, &available);
    let mut choice = Choice {
        level: wanted.thinking,
        warnings: notes.iter().map(PatternNote::text).collect(),
        ..Choice::default()
    };
    let models = scoped.iter().map(|scoped| Arc::clone(&scoped.model));
    choice.scope = (!scoped.is_empty()).then(|| models.collect());
    let providers: HashSet<&str> = available.iter().map(|it| it.provider.as_str()).collect();
    let usable = |provider: &str| providers.contains(provider);
    if let Some(named) = patterns::cli(&registry.models(), &usable, &wanted.flags)? {
        choice.model = Some(named.model);
        choice.level = choice.level.or(named.level);
        choice.warnings.extend(named.warning);
        return Ok(choice);
    }
    let preferences = StartPreferences {
        scoped,
        continuing,
        ..preferences(settings)
    };
    let (model, level) = patterns::initial(&available, &|_| true, &preferences);
    choice.model = model;
    choice.level = choice.level.or((!continuing).then_some(level));
    Ok(choice)
}

fn preferences(settings: &Map<String, Value>) -> StartPreferences {
    let text = |key: &str| settings.get(key)?.as_str();
    let levels = settings
        .get("modelThinkingLevels")
        .and_then(Value::as_object);
    let level = |(name, value): (&String, &Value)| {
        Some((name.clone(), ThinkingLevel::parse(value.as_str()?)?))
    };
    let model_levels: BTreeMap<_, _> = levels.into_iter().flatten().filter_map(level).collect();
    StartPreferences {
        default_provider: text("defaultProvider").map(str::to_owned),
        default_model: text("defaultModel").map(str::to_owned),
        model_levels,
        default_level: text("defaultThinkingLevel").and_then(ThinkingLevel::parse),
        ..StartPreferences::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two providers on this machine that need no stored credentials, and nothing from the environment.
    fn registry(dir: &std::path::Path) -> ModelRegistry {
        let model = |id: &str| serde_json::json!({"id": id, "reasoning": true});
        let provider = |ids: &[&str]| {
            let models: Vec<Value> = ids.iter().map(|id| model(id)).collect();
            serde_json::json!({
                "baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions", "apiKey": "k",
                "models": models,
            })
        };
        let providers = serde_json::json!({"providers": {
            "one": provider(&["alpha-1", "beta-1"]), "two": provider(&["gamma-1", "beta-1"]),
        }});
        std::fs::write(dir.join("models.json"), providers.to_string()).unwrap();
        ModelRegistry::load(dir, Arc::new(|_| None))
    }

    fn settings(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    fn chosen(choice: &Choice) -> (String, Option<&'static str>) {
        let model = choice.model.as_ref().unwrap();
        let level = choice.level.map(ThinkingLevel::as_str);
        (format!("{}/{}", model.provider, model.id), level)
    }

    #[test]
    fn flags_before_scope_before_settings() {
        let dir = tempfile::tempdir().unwrap();
        let registry = registry(dir.path());
        let set = settings(serde_json::json!({
            "defaultProvider": "one", "defaultModel": "beta-1", "enabledModels": ["gamma:low", "nothing"],
            "modelThinkingLevels": {"one/beta-1": "high"},
        }));
        let mut wanted = Wanted::default();
        let by_scope = choose(&wanted, &registry, &set, false).unwrap();
        assert_eq!(chosen(&by_scope), ("two/gamma-1".into(), Some("low")));
        assert_eq!(
            (by_scope.scope.unwrap().len(), by_scope.warnings.len()),
            (1, 1)
        );
        let old = choose(&wanted, &registry, &set, true).unwrap();
        assert_eq!(chosen(&old), ("one/beta-1".into(), None));
        wanted.patterns = Some(Vec::new());
        let saved = choose(&wanted, &registry, &set, false).unwrap();
        assert_eq!(chosen(&saved), ("one/beta-1".into(), Some("high")));
        wanted.flags.model = Some("alpha:minimal".into());
        let named = choose(&wanted, &registry, &set, false).unwrap();
        assert_eq!(chosen(&named), ("one/alpha-1".into(), Some("minimal")));
        wanted.thinking = Some(ThinkingLevel::Off);
        let named = choose(&wanted, &registry, &set, false).unwrap();
        assert_eq!(chosen(&named), ("one/alpha-1".into(), Some("off")));
    }

    #[test]
    fn names_that_fit_nothing_or_too_much_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let registry = registry(dir.path());
        let fails = |provider: Option<&str>, model: &str| {
            let flags = CliFlags {
                provider: provider.map(str::to_owned),
                model: Some(model.to_owned()),
                ..CliFlags::default()
            };
            let wanted = Wanted {
                flags,
                ..Wanted::default()
            };
            choose(&wanted, &registry, &Map::new(), false)
                .unwrap_err()
                .to_string()
        };
        assert!(fails(None, "zzz-none").starts_with("Model \"zzz-none\" not found."));
        assert!(fails(None, "beta-1").contains("one/beta-1, two/beta-1"));
        assert!(fails(Some("zzz"), "beta-1").starts_with("Unknown provider \"zzz\"."));
    }
}
