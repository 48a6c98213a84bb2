//! Which key a request is sent with, and the words for why there is none.
//!
//! First hit wins: the key of the command line, `auth.json`, `apiKey` of `models.json`, the provider's environment variables.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::auth::{AuthFile, Entry};
use super::catalogue;
use super::config_value::ConfigValue;
use super::http::EnvLookup;
use super::model::Model;
use super::models_json::ProviderConfig;
use super::providers::{Api, bearer};
use super::secrets::Mask;

/// Headers that stand for credentials when there is no key.
const KEY_HEADERS: [&str; 4] = [
    "authorization",
    "x-api-key",
    "cf-aig-authorization",
    "x-goog-api-key",
];

/// What a request is sent with.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    key: Option<SecretString>,
    as_bearer: bool,
    auth_header: bool,
    model_headers: Vec<(String, SecretString)>,
    provider_headers: Vec<(String, SecretString)>,
    /// Everything that must not appear in a text.
    pub(crate) mask: Mask,
}

impl Credentials {
    /// Returns the headers in the order in which they are set.
    pub(crate) fn headers(&self, api: &dyn Api) -> Vec<(String, Option<String>)> {
        let mut out = Vec::new();
        let mut put = |name: &str, value: String| out.push((name.to_owned(), Some(value)));
        let key = self.key.as_ref().map(ExposeSecret::expose_secret);
        if let Some(key) = key {
            let (name, value) = if self.as_bearer {
                bearer(key)
            } else {
                api.key_header(key)
            };
            put(name, value);
        }
        for (name, value) in &self.model_headers {
            put(name, value.expose_secret().to_owned());
        }
        if let (Some(key), true) = (key, self.auth_header) {
            let (name, value) = bearer(key);
            put(name, value);
        }
        for (name, value) in &self.provider_headers {
            put(name, value.expose_secret().to_owned());
        }
        out
    }
}

/// Where keys may come from.
pub(crate) struct Sources<'a> {
    pub(crate) env: &'a EnvLookup,
    pub(crate) auth: &'a AuthFile,
    pub(crate) commands: &'a CommandCache,
    pub(crate) runtime: Option<SecretString>,
    pub(crate) config: Option<&'a ProviderConfig>,
}

/// Results of commands named in `auth.json`, which run once per process, failures included.
#[derive(Debug, Default)]
pub(crate) struct CommandCache {
    results: Mutex<HashMap<String, Option<SecretString>>>,
}

/// Resolves the credentials of a request; the error is for a person and holds no secret.
pub(crate) async fn resolve(
    sources: Sources<'_>,
    model: &Model,
    request_headers: Option<&Map<String, Value>>,
) -> Result<Credentials, String> {
    let entry = sources.auth.entry(&model.provider);
    let overlay = entry.as_ref().map(Entry::env).unwrap_or_default();
    let env = with_overlay(sources.env, &overlay);
    let mut out = Credentials::default();
    mask_password(&model.base_url, &mut out.mask);
    let model_own = model.headers.as_ref();
    let configured = sources
        .config
        .and_then(|config| config.model_headers.get(&model.id));
    let own = [model_own, configured].into_iter().flatten();
    out.model_headers = headers(texts(own), model, &env, &overlay, &mut out.mask).await?;
    let provider = sources.config.map(|config| &config.headers);
    out.provider_headers = headers(
        texts(provider.into_iter()),
        model,
        &env,
        &overlay,
        &mut out.mask,
    )
    .await?;
    for (name, value) in request_headers.into_iter().flatten() {
        if let (true, Some(value)) = (is_secret_name(name), value.as_str()) {
            mask_header(value, &mut out.mask);
        }
    }
    out.auth_header = sources.config.is_some_and(|config| config.auth_header);
    let (key, as_bearer) = find_key(&sources, entry.as_ref(), model, &env, &overlay).await?;
    if let Some(key) = &key {
        out.mask.add(key.expose_secret());
    }
    out.key = key;
    out.as_bearer = as_bearer;
    let own = out
        .model_headers
        .iter()
        .chain(&out.provider_headers)
        .map(|(name, _)| name.as_str());
    let asked = request_headers
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, _)| name.as_str());
    let by_header = own
        .chain(asked)
        .any(|name| KEY_HEADERS.iter().any(|key| name.eq_ignore_ascii_case(key)));
    if out.key.is_none() && !by_header {
        return Err(missing(&model.provider, entry.as_ref()));
    }
    Ok(out)
}

/// Says how to get a key.
pub(crate) fn missing(provider: &str, entry: Option<&Entry>) -> String {
    let variables = catalogue::provider(provider)
        .map(|known| known.env)
        .unwrap_or_default();
    let set = match variables.last() {
        Some(name) => format!("set {name} or run :Pi login {provider}"),
        None => format!("run :Pi login {provider} or give it an apiKey in models.json"),
    };
    if let Some(Entry::Other(kind)) = entry {
        return format!(
            "no API key for {provider}: its sign-in of type `{kind}` is not used here; {set}"
        );
    }
    format!("no API key for {provider}: {set}")
}

/// Looks variables up in the credential's own environment first.
pub(crate) fn with_overlay(env: &EnvLookup, overlay: &[(String, String)]) -> EnvLookup {
    if overlay.is_empty() {
        return Arc::clone(env);
    }
    let (env, overlay) = (Arc::clone(env), overlay.to_vec());
    Arc::new(move |name| {
        let own = overlay
            .iter()
            .find(|(have, _)| have == name)
            .map(|(_, value)| value.clone());
        own.filter(|value| !value.is_empty()).or_else(|| env(name))
    })
}

async fn find_key(
    sources: &Sources<'_>,
    entry: Option<&Entry>,
    model: &Model,
    env: &EnvLookup,
    overlay: &[(String, String)],
) -> Result<(Option<SecretString>, bool), String> {
    if let Some(key) = &sources.runtime {
        return Ok((Some(key.clone()), false));
    }
    if let Some(Entry::Key {
        key: Some(text), ..
    }) = entry
        && let Some(key) = stored_key(sources.commands, text, env, overlay).await
    {
        return Ok((Some(key), false));
    }
    if let Some(text) = sources.config.and_then(|config| config.api_key.as_deref()) {
        let resolved = ConfigValue::parse(text).resolve(env, overlay).await;
        return match resolved {
            Ok(key) => Ok((Some(key.into()), false)),
            Err(why) => Err(format!(
                "no API key for {}: apiKey in models.json: {why}",
                model.provider
            )),
        };
    }
    let variables = catalogue::provider(&model.provider)
        .map(|known| known.env)
        .unwrap_or_default();
    let found = variables.iter().find_map(|name| {
        let value = env(name).filter(|value| !value.is_empty())?;
        Some((
            Some(SecretString::from(value)),
            catalogue::is_bearer_variable(name),
        ))
    });
    Ok(found.unwrap_or((None, false)))
}

/// Resolves a key of `auth.json`; commands run once.
async fn stored_key(
    commands: &CommandCache,
    text: &SecretString,
    env: &EnvLookup,
    overlay: &[(String, String)],
) -> Option<SecretString> {
    let value = ConfigValue::parse(text.expose_secret());
    let ConfigValue::Command(command) = &value else {
        return value
            .resolve(env, overlay)
            .await
            .ok()
            .filter(|key| !key.is_empty())
            .map(Into::into);
    };
    let known = commands.results.lock().get(command).cloned();
    if let Some(result) = known {
        return result;
    }
    let result = value
        .resolve(env, overlay)
        .await
        .ok()
        .map(SecretString::from);
    commands
        .results
        .lock()
        .insert(command.clone(), result.clone());
    result
}

/// Flattens layers of configured headers.
fn texts<'a>(layers: impl Iterator<Item = &'a Map<String, Value>>) -> Vec<(String, String)> {
    let pairs = layers.flatten();
    pairs
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
}

async fn headers(
    configured: Vec<(String, String)>,
    model: &Model,
    env: &EnvLookup,
    overlay: &[(String, String)],
    mask: &mut Mask,
) -> Result<Vec<(String, SecretString)>, String> {
    let mut out = Vec::new();
    for (name, text) in configured {
        let value = ConfigValue::parse(&text);
        let resolved = value.resolve(env, overlay).await.map_err(|why| {
            format!(
                "header `{name}` for {}/{} in models.json: {why}",
                model.provider, model.id
            )
        })?;
        if value.is_reference() || is_secret_name(&name) {
            mask_header(&resolved, mask);
        }
        out.push((name, resolved.into()));
    }
    Ok(out)
}

/// Masks a header's value, with and without the word of its scheme.
fn mask_header(value: &str, mask: &mut Mask) {
    mask.add(value);
    if let Some((_, rest)) = value.trim().split_once(' ') {
        mask.add(rest);
    }
}

/// Masks what a URL says before its host (`https://user:password@gateway/v1`).
fn mask_password(base_url: &str, mask: &mut Mask) {
    let url = reqwest::Url::parse(base_url).ok();
    if let Some(password) = url.as_ref().and_then(reqwest::Url::password) {
        mask.add(password);
        mask.add(&percent_encoding::percent_decode_str(password).decode_utf8_lossy());
    }
}

/// Whether a header of this name usually carries a secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase();
    ["auth", "key", "token", "secret", "cookie", "password"]
        .iter()
        .any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ai::provider::RequestOptions;
    use crate::ai::providers::api;

    const SECRET: &str = "sk-test-SECRET123";

    #[test]
    fn what_holds_a_key_does_not_show_it() {
        let mut mask = Mask::default();
        mask_header(&format!("Bearer {SECRET}"), &mut mask);
        mask_password("https://me:pass%2DSECRET123@gateway/v1", &mut mask);
        let credentials = Credentials {
            key: Some(SECRET.into()),
            provider_headers: vec![("x-token".to_owned(), SECRET.into())],
            mask: mask.clone(),
            ..Credentials::default()
        };
        let mut options = RequestOptions {
            api_key: Some(SECRET.into()),
            ..RequestOptions::default()
        };
        let headers = serde_json::json!({"authorization": SECRET});
        options.extra.insert("headers".into(), headers);
        let commands = CommandCache::default();
        let found = Some(SecretString::from(SECRET.to_owned()));
        commands.results.lock().insert("pass".to_owned(), found);
        let values = [SECRET, "!echo sk-test-SECRET123", "$KEY-SECRET123"].map(ConfigValue::parse);
        let shown = format!("{credentials:?} {mask:?} {options:?} {commands:?} {values:?}");
        assert!(!shown.contains("SECRET123"), "{shown}");
        assert!(shown.contains("Variable(\"KEY\")"), "{shown}");
        let said = mask.apply("refused sk-test-SECRET123 for pass-SECRET123, pass%2DSECRET123");
        assert!(!said.contains("SECRET123"), "{said}");
        for name in crate::ai::providers::APIS {
            let sent = credentials.headers(&*api(name).unwrap());
            assert!(
                sent.iter()
                    .any(|(_, value)| value.as_deref().is_some_and(|it| it.contains(SECRET)))
            );
        }
    }
}
