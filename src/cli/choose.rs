//! Which model a session begins with, and at which thinking level.

use std::sync::Arc;

use pi_nvim::ai::{Model, ModelRegistry, ThinkingLevel};
use serde_json::{Map, Value};

use super::Cli;

/// The outcome.
#[derive(Default)]
pub(crate) struct Choice {
    pub(crate) model: Option<Arc<Model>>,
    /// What the arguments want; settings decide when absent.
    pub(crate) level: Option<ThinkingLevel>,
    /// Models to cycle through, when they are not all.
    pub(crate) scope: Option<Vec<Arc<Model>>>,
    /// For stderr.
    pub(crate) warnings: Vec<String>,
}

/// Chooses by arguments, else scope, else settings, else what there is.
///
/// # Errors
/// `--model` or `--provider` that names nothing.
pub(crate) fn choose(
    cli: &Cli,
    registry: &ModelRegistry,
    settings: &Map<String, Value>,
) -> Result<Choice, String> {
    let mut choice = Choice {
        level: cli.thinking,
        ..Choice::default()
    };
    let available = registry.available();
    let patterns: Option<Vec<String>> = cli.models.clone().or_else(|| {
        let enabled = settings.get("enabledModels")?;
        serde_json::from_value(enabled.clone()).ok()
    });
    let mut scope_level = None;
    if let Some(patterns) = patterns.filter(|patterns| !patterns.is_empty()) {
        let mut scope: Vec<Arc<Model>> = Vec::new();
        for pattern in &patterns {
            let (found, level) = find_all(pattern, &available);
            if found.is_empty() {
                let warning = format!("No models match pattern \"{pattern}\"");
                choice.warnings.push(warning);
            }
            if scope.is_empty() {
                scope_level = level;
            }
            for model in found {
                let known = scope.iter().any(|other| same(other, &model));
                scope.extend((!known).then_some(model));
            }
        }
        choice.scope = (!scope.is_empty()).then_some(scope);
    }
    if let Some(pattern) = &cli.model {
        let (model, level) = named(cli, registry, pattern)?;
        choice.model = Some(model);
        choice.level = choice.level.or(level);
        return Ok(choice);
    }
    let text = |key: &str| settings.get(key).and_then(Value::as_str);
    let first_scoped = choice
        .scope
        .as_ref()
        .and_then(|scope| scope.first().cloned());
    if first_scoped.is_some() {
        choice.level = choice.level.or(scope_level);
    }
    let saved = || {
        let (provider, id) = (text("defaultProvider")?, text("defaultModel")?);
        let model = registry.find(provider, id)?;
        registry.why_unusable(&model).is_none().then_some(model)
    };
    choice.model = first_scoped
        .or_else(saved)
        .or_else(|| usual_model(registry))
        .or_else(|| available.first().cloned());
    Ok(choice)
}

/// The usual model of the first provider that has credentials.
fn usual_model(registry: &ModelRegistry) -> Option<Arc<Model>> {
    pi_nvim::ai::catalogue::PROVIDERS.iter().find_map(|known| {
        let model = registry.find(known.id, known.default_model?)?;
        registry.why_unusable(&model).is_none().then_some(model)
    })
}

fn same(a: &Model, b: &Model) -> bool {
    a.provider == b.provider && a.id == b.id
}

/// The model `--model` names, among all models; usable ones win.
fn named(
    cli: &Cli,
    registry: &ModelRegistry,
    pattern: &str,
) -> Result<(Arc<Model>, Option<ThinkingLevel>), String> {
    let mut models = registry.models();
    if let Some(provider) = &cli.provider {
        models.retain(|model| model.provider == *provider);
        if models.is_empty() {
            return Err(format!(
                "Unknown provider \"{provider}\". Use --list-models to see available providers and models."
            ));
        }
    }
    let (found, level) = find_all(pattern, &models);
    let usable = found
        .iter()
        .find(|model| registry.why_unusable(model).is_none());
    let model = usable.or(found.first()).cloned();
    let model = model.ok_or_else(|| {
        format!("Model \"{pattern}\" not found. Use --list-models to see available models.")
    })?;
    Ok((model, level))
}

/// Models that fit `[provider/]id[:level]`: exactly, else by glob, else as a part of id or name.
fn find_all(pattern: &str, models: &[Arc<Model>]) -> (Vec<Arc<Model>>, Option<ThinkingLevel>) {
    let found = find(pattern, models);
    if !found.is_empty() {
        return (found, None);
    }
    if let Some((rest, word)) = pattern.rsplit_once(':')
        && let Some(level) = ThinkingLevel::parse(word)
    {
        return (find(rest, models), Some(level));
    }
    (Vec::new(), None)
}

fn find(pattern: &str, models: &[Arc<Model>]) -> Vec<Arc<Model>> {
    let pattern = pattern.trim().to_lowercase();
    let keep = |fits: &dyn Fn(&Model) -> bool| -> Vec<Arc<Model>> {
        models.iter().filter(|model| fits(model)).cloned().collect()
    };
    let full = |model: &Model| format!("{}/{}", model.provider, model.id).to_lowercase();
    let exact = keep(&|model| model.id.to_lowercase() == pattern || full(model) == pattern);
    if !exact.is_empty() {
        return exact;
    }
    if pattern.contains(['*', '?', '[']) {
        let glob = globset::GlobBuilder::new(&pattern)
            .literal_separator(true)
            .build();
        let Ok(glob) = glob.map(|glob| glob.compile_matcher()) else {
            return Vec::new();
        };
        return keep(&|model| glob.is_match(full(model)) || glob.is_match(model.id.to_lowercase()));
    }
    let mut part = keep(&|model| {
        full(model).contains(&pattern) || model.name.to_lowercase().contains(&pattern)
    });
    // The highest id of what fits: newer models sort behind older ones.
    part.sort_by(|a, b| b.id.cmp(&a.id));
    part.truncate(1);
    part
}
