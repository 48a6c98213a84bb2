//! One entry of `models.json` applied to the models of its provider.

use serde_json::{Map, Value};

use crate::ai::model::Model;

/// Keys of which an entry must have one; a name alone says nothing.
const SUBSTANCE: [&str; 8] = [
    "baseUrl",
    "headers",
    "compat",
    "modelOverrides",
    "models",
    "apiKey",
    "authHeader",
    "oauth",
];

/// Members of `compat` that merge one level deeper.
const DEEP: [&str; 4] = [
    "openRouterRouting",
    "vercelGatewayRouting",
    "chatTemplateKwargs",
    "chatTemplateArgs",
];

/// Applies `entry` to the bundled models of provider `id`; the error says why the entry is rejected.
pub fn apply_entry(id: &str, bundled: Vec<Model>, entry: &Value) -> Result<Vec<Model>, String> {
    if !SUBSTANCE.iter().any(|key| entry.get(*key).is_some()) {
        return Err(format!("it has none of {}", SUBSTANCE.join(", ")));
    }
    let provider_compat = entry.get("compat").and_then(Value::as_object);
    let mut models = bundled;
    for model in &mut models {
        if let Some(url) = entry.get("baseUrl").and_then(Value::as_str) {
            model.base_url = url.to_owned();
        }
        merge_compat(&mut model.compat, provider_compat);
    }
    for new in entry
        .get("models")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let model = full_model(id, new, entry, &models)?;
        match models.iter_mut().find(|have| have.id == model.id) {
            Some(have) => *have = model,
            None => models.push(model),
        }
    }
    for (model_id, change) in entry
        .get("modelOverrides")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        if let Some(model) = models.iter_mut().find(|model| model.id == *model_id) {
            override_model(model, change)?;
        }
    }
    if models.is_empty() && entry.get("models").is_some() {
        return Err("it has no models".to_owned());
    }
    Ok(models)
}

/// Makes a complete model of a `models` entry. Only API and base URL are taken from elsewhere.
fn full_model(provider: &str, new: &Value, entry: &Value, have: &[Model]) -> Result<Model, String> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let id = text(new, "id").unwrap_or_default();
    let own_api = text(new, "api").or_else(|| text(entry, "api"));
    let like = have
        .iter()
        .find(|model| model.id == id)
        .or_else(|| {
            have.iter()
                .find(|model| own_api.as_ref() == Some(&model.api))
        })
        .or_else(|| have.iter().find(|model| model.api == "openai-completions"))
        .or_else(|| have.first());
    let api = own_api
        .or_else(|| like.map(|model| model.api.clone()))
        .ok_or_else(|| format!("model `{id}` has no api"))?;
    let same_api = have.iter().find(|model| model.api == api);
    let base_url = text(new, "baseUrl")
        .or_else(|| text(entry, "baseUrl"))
        .or_else(|| {
            have.iter()
                .find(|model| model.id == id)
                .or(same_api)
                .or(like)
                .map(|m| m.base_url.clone())
        })
        .ok_or_else(|| format!("model `{id}` has no baseUrl"))?;
    let mut map = new.as_object().cloned().unwrap_or_default();
    map.shift_remove("headers");
    map.shift_remove("compat");
    map.entry("name").or_insert_with(|| id.as_str().into());
    map.insert("api".into(), api.into());
    map.insert("provider".into(), provider.into());
    map.insert("baseUrl".into(), base_url.into());
    map.entry("input")
        .or_insert_with(|| serde_json::json!(["text"]));
    map.entry("contextWindow").or_insert_with(|| 128_000.into());
    map.entry("maxTokens").or_insert_with(|| 16_384.into());
    let mut model: Model =
        read(Value::Object(map)).map_err(|why| format!("model `{id}`: {why}"))?;
    merge_compat(
        &mut model.compat,
        entry.get("compat").and_then(Value::as_object),
    );
    merge_compat(
        &mut model.compat,
        new.get("compat").and_then(Value::as_object),
    );
    Ok(model)
}

/// Reads a model; counts written with a fraction are cut.
fn read(mut value: Value) -> Result<Model, String> {
    for key in ["contextWindow", "maxTokens"] {
        if let Some(number) = value.get_mut(key)
            && let Some(float) = number.as_f64()
        {
            *number = (float.max(0.0) as u64).into();
        }
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// Applies an override: objects merge per key, everything else replaces.
fn override_model(model: &mut Model, change: &Value) -> Result<(), String> {
    let mut compat = model.compat.take();
    merge_compat(&mut compat, change.get("compat").and_then(Value::as_object));
    let Ok(Value::Object(mut map)) = serde_json::to_value(&*model) else {
        return Ok(());
    };
    for (key, value) in change.as_object().into_iter().flatten() {
        if matches!(
            key.as_str(),
            "id" | "api" | "provider" | "baseUrl" | "compat" | "headers"
        ) {
            continue;
        }
        match (map.get_mut(key), value) {
            (Some(Value::Object(have)), Value::Object(new))
                if key == "samplingParamsByThinkingLevel" || key == "inputLimits" =>
            {
                merge_nested(have, new);
            }
            (Some(Value::Object(have)), Value::Object(new)) => have.extend(new.clone()),
            _ => {
                map.insert(key.clone(), value.clone());
            }
        }
    }
    let id = model.id.clone();
    *model = read(Value::Object(map)).map_err(|why| format!("override of `{id}`: {why}"))?;
    model.compat = compat;
    Ok(())
}

fn merge_nested(have: &mut Map<String, Value>, new: &Map<String, Value>) {
    for (key, value) in new {
        match (have.get_mut(key), value) {
            (Some(Value::Object(below)), Value::Object(value)) => merge_nested(below, value),
            _ => {
                have.insert(key.clone(), value.clone());
            }
        }
    }
}

fn merge_compat(compat: &mut Option<Map<String, Value>>, over: Option<&Map<String, Value>>) {
    let Some(over) = over else {
        return;
    };
    let have = compat.get_or_insert_default();
    for (key, value) in over {
        match (have.get_mut(key), value) {
            (Some(Value::Object(below)), Value::Object(value)) if DEEP.contains(&key.as_str()) => {
                below.extend(value.clone());
            }
            _ => {
                have.insert(key.clone(), value.clone());
            }
        }
    }
}
