//! Choosing models and thinking levels.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::core::{Answer, Core};
use super::state::State;
use crate::ai::http::HttpSettings;
use crate::ai::registry::ModelRegistry;
use crate::ai::{Model, ThinkingLevel};
use crate::extensions::put;
use crate::session::protocol::{CommandError, Event};

/// The models a session can choose from. The catalogue behind it may change while the session runs.
pub trait Models: Send + Sync + 'static {
    /// Models that can be asked now (their provider has credentials), in listing order.
    fn available(&self) -> Vec<Arc<Model>>;

    /// Reads again what a person may have changed; called before a list is shown. May block on the file system.
    fn reload(&self) {}

    /// Takes over what the settings say about connections.
    fn configure(&self, _settings: &Map<String, Value>) {}

    /// Models that cycling goes through, when they are fewer than all.
    fn scoped(&self) -> Option<Vec<Arc<Model>>> {
        None
    }

    /// Whether the model's provider has credentials.
    ///
    /// # Errors
    /// One line that says what to do.
    fn check_credentials(&self, _model: &Model) -> Result<(), String> {
        Ok(())
    }
}

impl Models for Vec<Arc<Model>> {
    fn available(&self) -> Vec<Arc<Model>> {
        self.clone()
    }
}

/// The models of a registry, of which cycling goes through some.
pub struct ScopedModels {
    /// All.
    pub registry: ModelRegistry,
    /// Those for cycling, when they are not all.
    pub scope: Option<Vec<Arc<Model>>>,
}

impl Models for ScopedModels {
    fn available(&self) -> Vec<Arc<Model>> {
        self.registry.available()
    }

    fn reload(&self) {
        self.registry.reload();
    }

    fn configure(&self, settings: &Map<String, Value>) {
        self.registry
            .configure(HttpSettings::from_settings(settings));
    }

    fn scoped(&self) -> Option<Vec<Arc<Model>>> {
        self.scope.clone()
    }

    fn check_credentials(&self, model: &Model) -> Result<(), String> {
        self.registry.why_unusable(model).map_or(Ok(()), Err)
    }
}

/// Carries out `get_available_models`: what `models.json` says now.
pub(super) async fn list(core: &Core) -> Answer {
    let models = Arc::clone(&core.config.models);
    let read = move || {
        models.reload();
        models.available()
    };
    let models = tokio::task::spawn_blocking(read).await;
    let models = models.map_err(|error| CommandError(error.to_string()))?;
    let models: Vec<Value> = models.iter().map(|model| json!(**model)).collect();
    Ok(json!({ "models": models }))
}

/// Carries out `set_model`.
pub(super) async fn set(core: &Core, provider: &str, id: &str) -> Answer {
    let models = core.config.models.available();
    let Some(model) = models
        .into_iter()
        .find(|model| model.provider == provider && model.id == id)
    else {
        return Err(CommandError(format!("Model not found: {provider}/{id}")));
    };
    select(core, &model, "set").await?;
    Ok(json!(&*model))
}

/// Carries out `cycle_model`.
pub(super) async fn cycle(core: &Core) -> Answer {
    let scoped = core.config.models.scoped();
    let is_scoped = scoped.is_some();
    let models = scoped.unwrap_or_else(|| core.config.models.available());
    if models.len() < 2 {
        return Ok(Value::Null);
    }
    let current = core.with(|state| state.model.clone());
    let at = models
        .iter()
        .position(|model| current.as_ref().is_some_and(|current| same(current, model)));
    let next = at.map_or(0, |at| (at + 1) % models.len());
    let Some(model) = models.get(next) else {
        return Ok(Value::Null);
    };
    select(core, model, "cycle").await?;
    let level = core.with(|state| state.thinking);
    Ok(json!({"model": &**model, "thinkingLevel": level.as_str(), "isScoped": is_scoped}))
}

fn same(a: &Model, b: &Model) -> bool {
    a.provider == b.provider && a.id == b.id
}

async fn select(core: &Core, model: &Arc<Model>, source: &str) -> Result<(), CommandError> {
    core.config
        .models
        .check_credentials(model)
        .map_err(CommandError)?;
    let before = core.with(|state| state.model.clone());
    let change = core.with(|state| -> Result<_, CommandError> {
        state.model = Some(Arc::clone(model));
        state
            .session
            .append_model_change(&model.provider, &model.id)?;
        state.tell_notices(core);
        core.tell(Event::ModelChanged {
            provider: model.provider.clone(),
            id: model.id.clone(),
        });
        let wanted = state.preferred_level(model).unwrap_or(state.thinking);
        Ok(change_level(core, state, wanted))
    })?;
    tell_level(core, change).await;
    core.hear("model_select", || {
        let mut fields = json!({"model": &**model, "source": source});
        if let Some(before) = before {
            put(&mut fields, "previousModel", json!(*before));
        }
        fields
    })
    .await;
    Ok(())
}

/// Carries out `set_thinking_level`.
pub(super) async fn set_level(core: &Core, level: &str) -> Answer {
    let Some(level) = ThinkingLevel::parse(level) else {
        let words: Vec<&str> = ThinkingLevel::ALL.iter().map(|it| it.as_str()).collect();
        return Err(CommandError(format!(
            "Unknown thinking level: {level}. Use one of {}",
            words.join(", ")
        )));
    };
    let change = core.with(|state| change_level(core, state, level));
    tell_level(core, change).await;
    Ok(Value::Null)
}

/// Carries out `cycle_thinking_level`.
pub(super) async fn cycle_level(core: &Core) -> Answer {
    let levels = levels(core);
    if levels.len() < 2 {
        return Ok(Value::Null);
    }
    let change = core.with(|state| {
        let at = levels.iter().position(|level| *level == state.thinking);
        let next = at.map_or(0, |at| (at + 1) % levels.len());
        let level = levels.get(next).copied().unwrap_or_default();
        change_level(core, state, level)
    });
    tell_level(core, change).await;
    let level = core.with(|state| state.thinking);
    Ok(json!({"level": level.as_str()}))
}

/// Levels of the selected model; only `off` for one that does not think.
pub(super) fn levels(core: &Core) -> Vec<ThinkingLevel> {
    core.with(|state| match &state.model {
        Some(model) if model.reasoning => model.supported_levels(),
        _ => vec![ThinkingLevel::Off],
    })
}

/// Clamps and sets the level; an entry and an event only when it changes. Returns the change.
fn change_level(
    core: &Core,
    state: &mut State,
    wanted: ThinkingLevel,
) -> Option<(ThinkingLevel, ThinkingLevel)> {
    let level = state.clamp(wanted);
    let before = state.thinking;
    if level == before {
        return None;
    }
    state.thinking = level;
    let stored = state.session.append_thinking_level(level.as_str());
    state.report(core, stored.map(drop));
    core.tell(Event::ThinkingLevelChanged {
        level: level.as_str().to_owned(),
    });
    Some((level, before))
}

async fn tell_level(core: &Core, change: Option<(ThinkingLevel, ThinkingLevel)>) {
    if let Some((level, before)) = change {
        core.hear(
            "thinking_level_select",
            || json!({"level": level.as_str(), "previousLevel": before.as_str()}),
        )
        .await;
    }
}

impl State {
    /// The nearest level the selected model has; `off` for one that does not think.
    pub(super) fn clamp(&self, level: ThinkingLevel) -> ThinkingLevel {
        match &self.model {
            Some(model) if model.reasoning => model.clamp_level(level),
            Some(_) => ThinkingLevel::Off,
            None => level,
        }
    }

    /// The level that settings want for a model: its own, else the default one.
    pub(super) fn preferred_level(&self, model: &Model) -> Option<ThinkingLevel> {
        let settings = self.resources.settings.effective();
        let own = settings
            .get("modelThinkingLevels")
            .and_then(|all| all.get(format!("{}/{}", model.provider, model.id)));
        own.or_else(|| settings.get("defaultThinkingLevel"))
            .and_then(Value::as_str)
            .and_then(ThinkingLevel::parse)
    }
}
