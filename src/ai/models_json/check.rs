//! Types of the known keys of `models.json`. Unknown keys are nobody's business.

use serde_json::Value;

/// What a key must hold.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Bool,
    Number,
    Texts,
    Object,
    /// An object of texts.
    TextMap,
    /// An object of texts or null.
    LevelMap,
    Cost,
}

const PROVIDER: [(&str, Kind); 7] = [
    ("name", Kind::Text),
    ("baseUrl", Kind::Text),
    ("apiKey", Kind::Text),
    ("api", Kind::Text),
    ("headers", Kind::TextMap),
    ("compat", Kind::Object),
    ("authHeader", Kind::Bool),
];

const MODEL: [(&str, Kind); 15] = [
    ("id", Kind::Text),
    ("name", Kind::Text),
    ("api", Kind::Text),
    ("baseUrl", Kind::Text),
    ("reasoning", Kind::Bool),
    ("thinkingLevelMap", Kind::LevelMap),
    ("input", Kind::Texts),
    ("inputLimits", Kind::Object),
    ("cost", Kind::Cost),
    ("promptCache", Kind::Object),
    ("contextWindow", Kind::Number),
    ("maxTokens", Kind::Number),
    ("samplingParams", Kind::Object),
    ("headers", Kind::TextMap),
    ("compat", Kind::Object),
];

const RATES: [&str; 4] = ["input", "output", "cacheRead", "cacheWrite"];

/// Checks the whole file; the error names the failing key.
pub(super) fn check(root: &Value) -> Result<(), String> {
    let Some(root) = root.as_object() else {
        return Err("the file must hold an object".to_owned());
    };
    let Some(providers) = root.get("providers") else {
        return Err("providers: missing; the file must have a `providers` object".to_owned());
    };
    let Some(providers) = providers.as_object() else {
        return Err("providers: must be an object".to_owned());
    };
    for (id, provider) in providers {
        let path = format!("providers.{id}");
        keys(provider, &path, &PROVIDER)?;
        if let Some(models) = provider.get("models") {
            let Some(models) = models.as_array() else {
                return Err(format!("{path}.models: must be a list"));
            };
            for (at, model) in models.iter().enumerate() {
                let path = format!("{path}.models[{at}]");
                keys(model, &path, &MODEL)?;
                if model.get("id").is_none() {
                    return Err(format!("{path}.id: missing"));
                }
                whole_cost(model, &path)?;
            }
        }
        if let Some(overrides) = provider.get("modelOverrides") {
            let Some(overrides) = overrides.as_object() else {
                return Err(format!("{path}.modelOverrides: must be an object"));
            };
            for (model, value) in overrides {
                keys(value, &format!("{path}.modelOverrides.{model}"), &MODEL)?;
            }
        }
    }
    Ok(())
}

fn whole_cost(model: &Value, path: &str) -> Result<(), String> {
    let Some(cost) = model.get("cost") else {
        return Ok(());
    };
    match RATES.iter().find(|rate| cost.get(**rate).is_none()) {
        Some(rate) => Err(format!("{path}.cost.{rate}: missing; give all four rates")),
        None => Ok(()),
    }
}

fn keys(value: &Value, path: &str, known: &[(&str, Kind)]) -> Result<(), String> {
    let Some(map) = value.as_object() else {
        return Err(format!("{path}: must be an object"));
    };
    for (key, kind) in known {
        if let Some(value) = map.get(*key) {
            one(value, *kind).map_err(|why| format!("{path}.{key}: {why}"))?;
        }
    }
    Ok(())
}

fn one(value: &Value, kind: Kind) -> Result<(), &'static str> {
    let is_text = |value: &Value| value.is_string();
    let good = match kind {
        Kind::Text if value.as_str() == Some("") => return Err("must not be empty"),
        Kind::Text => (value.is_string(), "must be text"),
        Kind::Bool => (value.is_boolean(), "must be true or false"),
        Kind::Number => (
            value.as_f64().is_some_and(|n| n >= 0.0),
            "must be a number of at least 0",
        ),
        Kind::Texts => (
            value
                .as_array()
                .is_some_and(|list| list.iter().all(is_text)),
            "must be a list of texts",
        ),
        Kind::Object => (value.is_object(), "must be an object"),
        Kind::TextMap => (
            value
                .as_object()
                .is_some_and(|map| map.values().all(is_text)),
            "must be an object of texts",
        ),
        Kind::LevelMap => (
            value
                .as_object()
                .is_some_and(|map| map.values().all(|v| v.is_string() || v.is_null())),
            "must map levels to text or null",
        ),
        Kind::Cost => (
            value.as_object().is_some_and(|map| {
                RATES
                    .iter()
                    .all(|rate| map.get(*rate).is_none_or(Value::is_number))
                    && map.get("tiers").is_none_or(Value::is_array)
            }),
            "must be an object of numbers",
        ),
    };
    if good.0 { Ok(()) } else { Err(good.1) }
}
