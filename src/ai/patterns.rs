//! Choosing models by text: `[provider/]id-or-part[:level]`, lists of such patterns with globs, the model to start with.
//!
//! Ids that hold a colon win over reading the part after it as a thinking level. A text that fits models of several
//! providers is ambiguous unless credentials decide; the order of the catalogue never does.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use globset::GlobBuilder;

use super::catalogue;
use super::model::{Model, ThinkingLevel};

/// Models to choose from, and which providers have credentials.
#[derive(Clone, Copy)]
pub struct Pool<'a> {
    models: &'a [Arc<Model>],
    usable: &'a dyn Fn(&str) -> bool,
}

/// What to do with a part after the last colon that is no level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suffix {
    /// Nothing is found (`--model`).
    Strict,
    /// It is left out, with a warning (lists).
    Lenient,
}

/// What a text names.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// One model.
    Model {
        /// It.
        model: Arc<Model>,
        /// The level after the colon.
        level: Option<ThinkingLevel>,
        /// A part after the colon that was no level.
        ignored: Option<String>,
    },
    /// Models of several providers.
    Ambiguous {
        /// The best one of each provider, in catalogue order.
        candidates: Vec<Arc<Model>>,
        /// The level after the colon.
        level: Option<ThinkingLevel>,
    },
    /// Nothing; for a known provider the id that may be new.
    Missing {
        /// Provider and id as written.
        custom: Option<(String, String)>,
    },
}

/// One look-up without regard to levels.
enum Hit {
    One(Arc<Model>),
    Several(Vec<Arc<Model>>),
    None,
}

impl<'a> Pool<'a> {
    /// Makes a pool; `usable` tells whether a provider has credentials.
    pub fn new(models: &'a [Arc<Model>], usable: &'a dyn Fn(&str) -> bool) -> Self {
        Self { models, usable }
    }

    /// Resolves a text.
    pub fn find(&self, text: &str, suffix: Suffix) -> Found {
        let text = text.trim();
        if text.is_empty() {
            return Found::Missing { custom: None };
        }
        match self.look_up(text) {
            Hit::None => {}
            hit => return with_level(hit, None, None),
        }
        let custom = self
            .split_provider(text)
            .map(|(provider, rest)| (provider, rest.to_owned()));
        let Some((rest, word)) = text.rsplit_once(':') else {
            return Found::Missing { custom };
        };
        let level = ThinkingLevel::parse(&word.to_lowercase());
        if level.is_none() && suffix == Suffix::Strict {
            return Found::Missing { custom };
        }
        let ignored = level.is_none().then(|| word.to_owned());
        match self.find_rest(rest, level, ignored) {
            Some(found) => found,
            None => {
                let cut = custom.map(|(provider, id)| {
                    let id = if level.is_some() {
                        id.rsplit_once(':')
                            .map_or(id.clone(), |(id, _)| id.to_owned())
                    } else {
                        id
                    };
                    (provider, id)
                });
                Found::Missing { custom: cut }
            }
        }
    }

    /// Resolves what stands before the last colon; further levels in it are read too.
    fn find_rest(
        &self,
        rest: &str,
        level: Option<ThinkingLevel>,
        ignored: Option<String>,
    ) -> Option<Found> {
        match self.look_up(rest.trim()) {
            Hit::None => None,
            hit => Some(with_level(hit, level, ignored)),
        }
    }

    fn look_up(&self, text: &str) -> Hit {
        let lower = text.to_lowercase();
        match self.by_reference(&lower) {
            Hit::None => self.by_part(&lower, self.models),
            hit => hit,
        }
    }

    /// The longest known provider id that the text begins with, and the rest.
    fn split_provider<'t>(&self, text: &'t str) -> Option<(String, &'t str)> {
        let ids: HashSet<&str> = self
            .models
            .iter()
            .map(|model| model.provider.as_str())
            .collect();
        let fits = |id: &&str| {
            text.get(..id.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(id))
                && text
                    .get(id.len()..)
                    .is_some_and(|rest| rest.starts_with('/') && rest.len() > 1)
        };
        let id = ids.into_iter().filter(fits).max_by_key(|id| id.len())?;
        Some((id.to_owned(), text.get(id.len() + 1..)?))
    }

    /// The whole text as `provider/id`, or as an id.
    fn by_reference(&self, text: &str) -> Hit {
        let is = |model: &Model, id: &str| model.id.to_lowercase() == id;
        let mut others: Vec<Arc<Model>> = self
            .models
            .iter()
            .filter(|model| is(model, text))
            .cloned()
            .collect();
        let named = self.split_provider(text).and_then(|(provider, rest)| {
            let own: Vec<Arc<Model>> = self
                .models
                .iter()
                .filter(|model| model.provider == provider)
                .cloned()
                .collect();
            let exact = own
                .iter()
                .find(|model| is(model, rest))
                .or_else(|| own.iter().find(|model| is(model, text)));
            exact.cloned().or_else(|| match self.by_part(rest, &own) {
                Hit::One(model) => Some(model),
                _ => None,
            })
        });
        if let Some(named) = &named {
            others.retain(|model| model.provider != named.provider);
            if others.is_empty() || self.is_usable(named) {
                return Hit::One(Arc::clone(named));
            }
        }
        let candidates: Vec<Arc<Model>> = named.iter().chain(&others).cloned().collect();
        let Some(first) = candidates.first() else {
            return Hit::None;
        };
        if candidates
            .iter()
            .all(|model| model.provider == first.provider)
        {
            return Hit::One(Arc::clone(first));
        }
        let usable: Vec<Arc<Model>> = others
            .into_iter()
            .filter(|model| self.is_usable(model))
            .collect();
        match (usable.as_slice(), named) {
            ([one], _) => Hit::One(Arc::clone(one)),
            ([], Some(named)) => Hit::One(named),
            _ => Hit::Several(self.narrowed(candidates)),
        }
    }

    /// Models whose id or name contains the text.
    fn by_part(&self, text: &str, pool: &[Arc<Model>]) -> Hit {
        let contains = |model: &&Arc<Model>| {
            model.id.to_lowercase().contains(text) || model.name.to_lowercase().contains(text)
        };
        let found = self.narrowed(pool.iter().filter(contains).cloned().collect());
        let Some(best) = found.iter().max_by_key(|model| rank(model)).cloned() else {
            return Hit::None;
        };
        let same: Vec<Arc<Model>> = found
            .into_iter()
            .filter(|model| model.id.eq_ignore_ascii_case(&best.id))
            .collect();
        match same.as_slice() {
            [one] => Hit::One(Arc::clone(one)),
            _ => Hit::Several(same),
        }
    }

    /// Models of providers with credentials, when several providers are left and one has any.
    fn narrowed(&self, found: Vec<Arc<Model>>) -> Vec<Arc<Model>> {
        let several = found
            .windows(2)
            .any(|pair| matches!(pair, [a, b] if a.provider != b.provider));
        let usable: Vec<Arc<Model>> = found
            .iter()
            .filter(|model| self.is_usable(model))
            .cloned()
            .collect();
        if several && !usable.is_empty() {
            usable
        } else {
            found
        }
    }

    fn is_usable(&self, model: &Model) -> bool {
        (self.usable)(&model.provider)
    }
}

fn with_level(hit: Hit, level: Option<ThinkingLevel>, ignored: Option<String>) -> Found {
    match hit {
        Hit::One(model) => Found::Model {
            model,
            level,
            ignored,
        },
        Hit::Several(candidates) => Found::Ambiguous { candidates, level },
        Hit::None => Found::Missing { custom: None },
    }
}

/// Names without a date before dated ones, then the highest id.
fn rank(model: &Model) -> (bool, String) {
    let id = model.id.to_lowercase();
    let tail = id.rsplit('-').next().unwrap_or_default();
    let dated = tail.len() == 8 && tail.bytes().all(|byte| byte.is_ascii_digit()) && id.len() > 8;
    (!dated, id)
}

/// A model of a list of patterns.
#[derive(Clone, Debug, PartialEq)]
pub struct Scoped {
    /// The model.
    pub model: Arc<Model>,
    /// The level its pattern named.
    pub level: Option<ThinkingLevel>,
}

/// Something about a pattern that the person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternNote {
    /// It fits models of several providers; all were taken.
    Ambiguous(String),
    /// It fits nothing.
    NoMatch(String),
    /// The part after its colon is no thinking level.
    InvalidLevel(String),
}

impl PatternNote {
    /// Returns the line for the person.
    pub fn text(&self) -> String {
        match self {
            Self::Ambiguous(pattern) => {
                format!(
                    "model pattern `{pattern}` fits several providers; write provider/id to choose one"
                )
            }
            Self::NoMatch(pattern) => {
                format!("model pattern `{pattern}` fits no model that can be used")
            }
            Self::InvalidLevel(pattern) => {
                format!("model pattern `{pattern}` does not end in a thinking level")
            }
        }
    }
}

/// Resolves a list of patterns among models that can be used. Order is kept; of duplicates the first one counts.
pub fn scope(patterns: &[String], models: &[Arc<Model>]) -> (Vec<Scoped>, Vec<PatternNote>) {
    let (mut out, mut notes): (Vec<Scoped>, Vec<PatternNote>) = (Vec::new(), Vec::new());
    for written in patterns {
        let pattern = written.trim();
        let (found, level) = one_pattern(pattern, written, models, &mut notes);
        for model in found {
            let known =
                |have: &Scoped| have.model.provider == model.provider && have.model.id == model.id;
            if !out.iter().any(known) {
                out.push(Scoped { model, level });
            }
        }
    }
    (out, notes)
}

fn one_pattern(
    pattern: &str,
    written: &str,
    models: &[Arc<Model>],
    notes: &mut Vec<PatternNote>,
) -> (Vec<Arc<Model>>, Option<ThinkingLevel>) {
    let exact = |model: &Arc<Model>| model.id.eq_ignore_ascii_case(pattern);
    if pattern.contains(['*', '?', '[']) && !models.iter().any(exact) {
        let (glob, level) = match pattern.rsplit_once(':') {
            Some((rest, word)) if ThinkingLevel::parse(&word.to_lowercase()).is_some() => {
                (rest, ThinkingLevel::parse(&word.to_lowercase()))
            }
            _ => (pattern, None),
        };
        let found = by_glob(glob, models);
        if found.is_empty() {
            notes.push(PatternNote::NoMatch(written.to_owned()));
        }
        return (found, level);
    }
    let pool = Pool::new(models, &|_| true);
    match pool.find(pattern, Suffix::Lenient) {
        Found::Model {
            model,
            level,
            ignored,
        } => {
            if ignored.is_some() {
                notes.push(PatternNote::InvalidLevel(written.to_owned()));
            }
            (vec![model], level)
        }
        Found::Ambiguous { candidates, level } => {
            notes.push(PatternNote::Ambiguous(written.to_owned()));
            (candidates, level)
        }
        Found::Missing { .. } => {
            notes.push(PatternNote::NoMatch(written.to_owned()));
            (Vec::new(), None)
        }
    }
}

fn by_glob(glob: &str, models: &[Arc<Model>]) -> Vec<Arc<Model>> {
    let built = GlobBuilder::new(glob)
        .case_insensitive(true)
        .literal_separator(true)
        .build();
    let Ok(matcher) = built.map(|glob| glob.compile_matcher()) else {
        return Vec::new();
    };
    let fits = |model: &&Arc<Model>| {
        matcher.is_match(format!("{}/{}", model.provider, model.id)) || matcher.is_match(&model.id)
    };
    models.iter().filter(fits).cloned().collect()
}

/// What the command line says about the model.
#[derive(Clone, Debug, Default)]
pub struct CliFlags {
    /// `--provider`.
    pub provider: Option<String>,
    /// `--model`.
    pub model: Option<String>,
    /// `--thinking` is given: a level after a colon stays part of an unknown id.
    pub has_thinking: bool,
    /// `--api-key` is given: credentials do not decide between providers.
    pub has_api_key: bool,
}

/// The model of the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct CliChoice {
    /// The model.
    pub model: Arc<Model>,
    /// The level after the colon.
    pub level: Option<ThinkingLevel>,
    /// The id is not in the catalogue; the line says so.
    pub warning: Option<String>,
}

/// Why the command line names no model. Each text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// Nobody knows the provider.
    #[error("Unknown provider \"{0}\". Use --list-models to see available providers and models.")]
    UnknownProvider(String),
    /// Several providers have it.
    #[error("Model \"{text}\" is offered by several providers: {candidates}. Write one of these.")]
    Ambiguous {
        /// As written.
        text: String,
        /// `provider/id`, comma separated.
        candidates: String,
    },
    /// Nobody has it.
    #[error("Model \"{0}\" not found. Use --list-models to see available models.")]
    NotFound(String),
    /// There are no models at all.
    #[error("there are no models; check models.json")]
    NoModels,
    /// `--provider` alone.
    #[error("--provider {0} needs --model")]
    ProviderAlone(String),
}

/// Resolves `--provider` and `--model` among all models.
///
/// # Errors
/// See [`ChoiceError`].
pub fn cli(
    models: &[Arc<Model>],
    usable: &dyn Fn(&str) -> bool,
    flags: &CliFlags,
) -> Result<Option<CliChoice>, ChoiceError> {
    let Some(text) = flags
        .model
        .as_deref()
        .map(str::trim)
        .filter(|text| !text.is_empty())
    else {
        return match &flags.provider {
            Some(provider) => Err(ChoiceError::ProviderAlone(provider.clone())),
            None => Ok(None),
        };
    };
    if models.is_empty() {
        return Err(ChoiceError::NoModels);
    }
    let usable = |provider: &str| !flags.has_api_key && usable(provider);
    let own = match &flags.provider {
        Some(name) => Some(own_models(models, name)?),
        None => None,
    };
    let pool = Pool::new(own.as_deref().unwrap_or(models), &usable);
    match pool.find(text, Suffix::Strict) {
        Found::Model { model, level, .. } => Ok(Some(CliChoice {
            model,
            level,
            warning: None,
        })),
        Found::Ambiguous { candidates, .. } => {
            let names: Vec<String> = candidates
                .iter()
                .map(|m| format!("{}/{}", m.provider, m.id))
                .collect();
            Err(ChoiceError::Ambiguous {
                text: text.to_owned(),
                candidates: names.join(", "),
            })
        }
        Found::Missing { .. } => {
            let named = pool
                .split_provider(text)
                .map(|(provider, id)| (provider, id.to_owned()));
            let explicit = own
                .as_ref()
                .and_then(|own| own.first())
                .map(|m| (m.provider.clone(), text.to_owned()));
            let Some((provider, id)) = named.or(explicit) else {
                return Err(ChoiceError::NotFound(text.to_owned()));
            };
            Ok(Some(custom_model(
                models,
                &provider,
                &id,
                flags.has_thinking,
            )))
        }
    }
}

fn own_models(models: &[Arc<Model>], provider: &str) -> Result<Vec<Arc<Model>>, ChoiceError> {
    let own = models
        .iter()
        .filter(|model| model.provider.eq_ignore_ascii_case(provider.trim()));
    let own: Vec<Arc<Model>> = own.cloned().collect();
    if own.is_empty() {
        Err(ChoiceError::UnknownProvider(provider.to_owned()))
    } else {
        Ok(own)
    }
}

/// A model of a known provider with an id the catalogue does not have: a copy of its default or first model.
fn custom_model(models: &[Arc<Model>], provider: &str, id: &str, keep_suffix: bool) -> CliChoice {
    let split = id.rsplit_once(':').filter(|_| !keep_suffix);
    let split =
        split.and_then(|(rest, word)| Some((rest, ThinkingLevel::parse(&word.to_lowercase())?)));
    let (id, level) = match split {
        Some((rest, level)) => (rest, Some(level)),
        None => (id, None),
    };
    let default = catalogue::provider(provider).and_then(|known| known.default_model);
    let mut own = models.iter().filter(|model| model.provider == provider);
    let template = own
        .clone()
        .find(|model| Some(model.id.as_str()) == default)
        .or_else(|| own.next());
    let mut model = template.map(|model| (**model).clone()).unwrap_or_default();
    model.id = id.to_owned();
    model.name = id.to_owned();
    model.provider = provider.to_owned();
    if level.is_some_and(|level| level != ThinkingLevel::Off) {
        model.reasoning = true;
    }
    let warning = format!(
        "{provider} has no model `{id}` in the list; it is used with the settings of another model"
    );
    CliChoice {
        model: Arc::new(model),
        level,
        warning: Some(warning),
    }
}

/// What settings and session say about the model to start with.
#[derive(Clone, Debug, Default)]
pub struct StartPreferences {
    /// Models of the scope, resolved.
    pub scoped: Vec<Scoped>,
    /// A session is continued: the scope does not choose.
    pub continuing: bool,
    /// `defaultProvider`.
    pub default_provider: Option<String>,
    /// `defaultModel`.
    pub default_model: Option<String>,
    /// `modelThinkingLevels`.
    pub model_levels: BTreeMap<String, ThinkingLevel>,
    /// `defaultThinkingLevel`.
    pub default_level: Option<ThinkingLevel>,
}

impl StartPreferences {
    /// Returns the level for a model that no pattern gave one.
    pub fn level_for(&self, model: Option<&Model>) -> ThinkingLevel {
        let own = model.and_then(|model| {
            self.model_levels
                .get(&format!("{}/{}", model.provider, model.id))
        });
        own.copied()
            .or(self.default_level)
            .unwrap_or(ThinkingLevel::Medium)
    }
}

/// Chooses the model to start with when neither command line nor session names one, and its level (not yet clamped).
pub fn initial(
    models: &[Arc<Model>],
    usable: &dyn Fn(&str) -> bool,
    preferences: &StartPreferences,
) -> (Option<Arc<Model>>, ThinkingLevel) {
    if let (Some(first), false) = (preferences.scoped.first(), preferences.continuing) {
        let level = first
            .level
            .unwrap_or_else(|| preferences.level_for(Some(&first.model)));
        return (Some(Arc::clone(&first.model)), level);
    }
    let find = |provider: &str, id: &str| {
        models
            .iter()
            .find(|model| model.provider == provider && model.id == id && usable(provider))
            .cloned()
    };
    let saved = preferences
        .default_provider
        .as_deref()
        .zip(preferences.default_model.as_deref());
    let saved = saved.and_then(|(provider, id)| find(provider, id));
    let model = saved
        .or_else(|| {
            let defaults = catalogue::PROVIDERS.iter();
            defaults
                .filter_map(|known| find(known.id, known.default_model?))
                .next()
        })
        .or_else(|| models.iter().find(|model| usable(&model.provider)).cloned());
    let level = preferences.level_for(model.as_deref());
    (model, level)
}
