//! `models.json`: the person's own providers and models, and changes to the bundled ones.
//!
//! A file that cannot be read or has a value of a wrong type counts as absent as a whole, with one line that says where; an
//! entry that makes no sense counts as absent alone. The bundled models stay usable either way.

mod check;
mod jsonc;
mod merge;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::model::Model;

pub use merge::apply_entry;

/// What an entry says about a provider beside its models.
#[derive(Clone, Default, PartialEq)]
pub struct ProviderConfig {
    /// Name for people.
    pub name: Option<String>,
    /// `apiKey`, unresolved.
    pub api_key: Option<String>,
    /// `headers`, unresolved.
    pub headers: Map<String, Value>,
    /// `authHeader`: send the key as a bearer token too.
    pub auth_header: bool,
    /// Headers of single models, unresolved.
    pub model_headers: BTreeMap<String, Map<String, Value>>,
}

/// Without values: a key may stand in any of them.
impl std::fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderConfig")
            .field("name", &self.name)
            .field("has_key", &self.api_key.is_some())
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// The effective models and what is wrong with the file.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    /// Bundled models with the file applied.
    pub models: Vec<Model>,
    /// Configuration per provider id.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// One line each, for the person.
    pub problems: Vec<String>,
}

/// Reads the file and applies it to the bundled models. A missing file changes nothing.
pub fn load(path: &Path, bundled: Vec<Model>) -> Overlay {
    let text = match std::fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Overlay {
                models: bundled,
                ..Overlay::default()
            };
        }
        Err(error) => return ignored(path, &error.to_string(), bundled),
    };
    match apply(&text, bundled.clone()) {
        Ok(mut overlay) => {
            for problem in &mut overlay.problems {
                *problem = format!("{}: {problem}", path.display());
            }
            overlay
        }
        Err(why) => ignored(path, &why, bundled),
    }
}

fn ignored(path: &Path, why: &str, models: Vec<Model>) -> Overlay {
    let problem = format!("{} is ignored: {why}", path.display());
    Overlay {
        models,
        problems: vec![problem],
        ..Overlay::default()
    }
}

/// Applies the text of the file. The error is a fault of the whole file.
pub fn apply(text: &str, bundled: Vec<Model>) -> Result<Overlay, String> {
    let root: Value =
        serde_json::from_str(&jsonc::strip(text)).map_err(|error| error.to_string())?;
    check::check(&root)?;
    let mut overlay = Overlay {
        models: bundled,
        ..Overlay::default()
    };
    let providers = root.get("providers").and_then(Value::as_object);
    for (id, entry) in providers.into_iter().flatten() {
        let (own, mut others): (Vec<Model>, Vec<Model>) = overlay
            .models
            .into_iter()
            .partition(|model| model.provider == *id);
        match apply_entry(id, own.clone(), entry) {
            Ok(models) => {
                others.extend(models);
                overlay.providers.insert(id.clone(), config(entry));
            }
            Err(why) => {
                others.extend(own);
                overlay
                    .problems
                    .push(format!("provider `{id}` is ignored: {why}"));
            }
        }
        overlay.models = others;
    }
    Ok(overlay)
}

fn config(entry: &Value) -> ProviderConfig {
    let map = |value: Option<&Value>| {
        value
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut model_headers = BTreeMap::new();
    for model in entry
        .get("models")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if let Some(id) = model.get("id").and_then(Value::as_str) {
            model_headers.insert(id.to_owned(), map(model.get("headers")));
        }
    }
    for (id, model) in map(entry.get("modelOverrides")) {
        let headers: &mut Map<String, Value> = model_headers.entry(id).or_default();
        headers.extend(map(model.get("headers")));
    }
    ProviderConfig {
        name: text("name"),
        api_key: text("apiKey"),
        headers: map(entry.get("headers")),
        auth_header: entry
            .get("authHeader")
            .and_then(Value::as_bool)
            .unwrap_or(false),
        model_headers,
    }
}
