//! Requests about the person's own set-up, which need no session: keys, local servers, trust, files of settings, health.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::SecretString;
use serde_json::json;

use super::face::{Answer, Answering, Face, Request};
use super::json::at;
use crate::ai::{auth, local};
use crate::files::replace::{Only, Options, replace_if};
use crate::resources::settings::{Settings, Trust};
use crate::resources::trust::{self, TrustChoice, TrustStore, Verdict};

/// Starts to answer; `None` for a request that is not about these.
pub(super) fn start(face: &Arc<Face>, request: &Request) -> Option<Answering> {
    let work: fn(&Face, &Request) -> Answer = match request.name.as_str() {
        "auth.login" => login,
        "auth.logout" => logout,
        "auth.status" => status,
        "model.others" => others,
        "auth.local" => return Some(local_servers(face)),
        "trust.ask" => trust_question,
        "trust.answer" => trust_answer,
        "settings.file" => settings_file,
        "health.facts" => health,
        _ => return None,
    };
    let (face, request) = (face.clone(), request.clone());
    // All of them read or write files.
    let work = tokio::task::spawn_blocking(move || work(&face, &request));
    Some(Box::pin(async move {
        work.await
            .map_err(|error| format!("the request failed: {error}"))?
    }))
}

fn need<'a>(request: &'a Request, key: &str) -> Result<&'a str, String> {
    request
        .text(key)
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .ok_or_else(|| format!("{}: no {key} given", request.name))
}

fn login(face: &Face, request: &Request) -> Answer {
    let provider = need(request, "provider")?;
    let key = SecretString::from(need(request, "key")?.to_owned());
    auth::login(&face.opener.places().agent_dir, provider, &key).map_err(|it| it.to_string())?;
    face.opener.registry().reload();
    let first = face.opener.registry().available();
    let first = first.into_iter().find(|model| model.provider == provider);
    Ok(json!({ "model": first.map(|model| model.id.clone()) }))
}

fn logout(face: &Face, request: &Request) -> Answer {
    let provider = need(request, "provider")?;
    let gone = auth::logout(&face.opener.places().agent_dir, provider);
    let gone = gone.map_err(|error| error.to_string())?;
    face.opener.registry().reload();
    Ok(json!({ "gone": gone }))
}

/// Names of providers and whether they have a key; never the key.
fn status(face: &Face, _request: &Request) -> Answer {
    let rows = face.opener.registry().status().into_iter().map(|row| {
        json!({
            "provider": row.provider,
            "name": row.name,
            "configured": row.source.is_some(),
            "problem": row.problem,
            "models": row.models,
        })
    });
    Ok(json!({ "providers": rows.collect::<Vec<_>>() }))
}

/// The models that cannot be used, each with the reason, and the same by provider.
fn others(face: &Face, _request: &Request) -> Answer {
    face.tell_model_problems();
    let registry = face.opener.registry();
    let providers = registry.status().into_iter().filter_map(|row| {
        // A key alone would not help where nothing is known of the models.
        let why = row.problem.filter(|_| row.models > 0 || row.set_up)?;
        let why = auth::beside_name(&row.provider, &why);
        Some(json!({"provider": row.provider, "name": row.name, "models": row.models, "why": why}))
    });
    let models = registry.models().into_iter().filter_map(|model| {
        let why = registry.why_unusable(&model)?;
        let why = auth::beside_name(&model.provider, &why);
        Some(json!({"provider": model.provider, "id": model.id, "why": why}))
    });
    Ok(json!({
        "providers": providers.collect::<Vec<_>>(),
        "models": models.collect::<Vec<_>>(),
    }))
}

/// Asks the model servers of this machine, on loopback only and only when a person wants it.
fn local_servers(face: &Arc<Face>) -> Answering {
    let face = face.clone();
    Box::pin(async move {
        let registry = face.opener.registry();
        let targets = registry.local_targets();
        let servers = local::probe(registry, &targets).await;
        let servers = servers.map_err(|error| error.to_string())?;
        let mut models = Vec::new();
        for server in servers {
            for model in &server.models {
                let context = model.context_window;
                models
                    .push(json!({"provider": model.provider, "id": model.id, "context": context}));
            }
            registry.add_local(server.models);
        }
        let asked = targets
            .iter()
            .map(|target| json!({"provider": target.kind.provider(), "port": target.port}));
        Ok(json!({ "models": models, "asked": asked.collect::<Vec<_>>() }))
    })
}

fn directory(request: &Request) -> Result<PathBuf, String> {
    need(request, "cwd").map(PathBuf::from)
}

/// What a project wants to have loaded, and the answers there are.
fn trust_question(face: &Face, request: &Request) -> Answer {
    let cwd = directory(request)?;
    let found = trust::protected_resources(face.opener.places(), &cwd);
    let ask = matches!(face.opener.verdict(&cwd), Verdict::Ask(_));
    let choices = TrustChoice::ALL.map(|choice| choice.label(&cwd));
    let found: Vec<_> = found.iter().map(|path| path.to_string_lossy()).collect();
    Ok(json!({"resources": found, "ask": ask, "choices": choices}))
}

/// Takes the answer: the number of a choice, from 1.
fn trust_answer(face: &Face, request: &Request) -> Answer {
    let cwd = directory(request)?;
    let number = at(&request.params, "/choice").as_u64().unwrap_or(0);
    let number = usize::try_from(number).unwrap_or(0);
    let Some(choice) = number
        .checked_sub(1)
        .and_then(|at| TrustChoice::ALL.get(at))
    else {
        return Err("no such answer".into());
    };
    let (trusted, changes) = choice.apply(&cwd);
    let store = TrustStore::new(&face.opener.places().agent_dir);
    store.save(&changes).map_err(|error| error.to_string())?;
    face.opener.trust_once(&cwd, trusted);
    Ok(json!({ "trusted": trusted }))
}

/// An example for a local server, written only when a person asks for the file and there is none.
const MODELS_EXAMPLE: &str = r#"{
  // Models of your own. This example works for Ollama; `:Pi model` lists what is here.
  "providers": {
    "ollama": {
      "baseUrl": "http://127.0.0.1:11434/v1",
      "api": "openai-completions",
      "apiKey": "ollama",
      "models": [{ "id": "qwen3-coder" }]
    }
  }
}
"#;

/// Names a settings file for the person to edit.
fn settings_file(face: &Face, request: &Request) -> Answer {
    let dir = &face.opener.places().agent_dir;
    let (path, example) = match request.text("which") {
        Some("models") => (dir.join("models.json"), MODELS_EXAMPLE),
        _ => (dir.join("settings.json"), "{}\n"),
    };
    if !path.exists() {
        // Whole or not at all, and never over one that appeared meanwhile.
        let example = example.as_bytes();
        replace_if(&path, example, Only::IfMissing, Options::default())
            .map_err(|error| format!("write {}: {error}", path.display()))?;
    }
    Ok(json!({ "path": path.to_string_lossy() }))
}

/// Facts for `:checkhealth pi`. Names only, never a key.
fn health(face: &Face, request: &Request) -> Answer {
    let places = face.opener.places();
    let cwd = directory(request)?;
    let settings = Settings::load(&places.agent_dir, &cwd, Trust::Untrusted);
    let problems: Vec<String> = settings.errors().map(ToString::to_string).collect();
    let configured = face.opener.registry().status().into_iter();
    let configured: Vec<_> = configured
        .filter(|row| row.source.is_some())
        .map(|row| row.provider)
        .collect();
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "target": format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        "agent_dir": places.agent_dir.to_string_lossy(),
        "state_dir": places.state_dir.to_string_lossy(),
        "settings_problems": problems,
        "model_problems": face.opener.registry().problems(),
        "providers": configured,
        "models": face.opener.registry().available().len(),
        "sessions_bytes": folder_size(&places.agent_dir.join("sessions")),
        "untrusted": trust::needs_trust(places, &cwd)
            && matches!(face.opener.verdict(&cwd), Verdict::Ask(_)),
    }))
}

/// Bytes of the session files, two levels deep as they lie.
fn folder_size(root: &Path) -> u64 {
    let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries(root)
        .flat_map(|project| entries(&project.path()).collect::<Vec<_>>())
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value as Json;

    #[test]
    fn the_example_is_readable_as_models() {
        let overlay = crate::ai::models_json::apply(MODELS_EXAMPLE, Vec::new()).unwrap();
        let found = overlay.models.iter().any(|model| model.id == "qwen3-coder");
        assert!(found, "{:?}", overlay.problems);
    }

    #[test]
    fn a_request_without_its_field_says_which() {
        let request = Request {
            name: "auth.login".into(),
            id: None,
            params: Json::Null,
        };
        assert_eq!(
            need(&request, "key").unwrap_err(),
            "auth.login: no key given"
        );
    }
}
