//! Keys: where they come from, how `auth.json` is kept, and that they appear in no text.

use std::path::Path;
use std::sync::Arc;

use futures::StreamExt;
use pi_nvim::ai::auth::{self, KeySource, StoredAs};
use pi_nvim::ai::{Message, Model, ModelRegistry, Request, RequestOptions, StreamEvent};
use pi_nvim::testing::http::{Response, Server};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support::{self, env};
use crate::conformance::data_dir;

const SECRET: &str = "sk-test-SECRET123";

fn model(provider: &str, base: &str) -> Model {
    let value = json!({
        "id": "m", "name": "m", "api": "openai-completions", "provider": provider, "baseUrl": format!("{base}/v1"),
        "input": ["text"], "contextWindow": 1000, "maxTokens": 100,
    });
    serde_json::from_value(value).unwrap()
}

fn request(model: Model) -> Request {
    Request {
        model: Arc::new(model),
        messages: vec![Message::from_value(json!({"role": "user", "content": "hi"})).into()],
        options: RequestOptions::default(),
        cancel: CancellationToken::new(),
    }
}

/// The key that a request was sent with; `Err` holds the error text when none was sent.
async fn key_sent(
    dir: &Path,
    variables: &[(&str, &str)],
    provider: &str,
) -> Result<String, String> {
    let server = Server::start(vec![Response::ok("data: [DONE]\n\n")])
        .await
        .unwrap();
    let registry = ModelRegistry::load(dir, env(variables));
    sent_by(&registry, &server, model(provider, &server.url())).await
}

async fn sent_by(
    registry: &ModelRegistry,
    server: &Server,
    model: Model,
) -> Result<String, String> {
    let events: Vec<StreamEvent> = registry.provider().stream(request(model)).collect().await;
    match server.requests().last() {
        Some(request) => Ok(request
            .header("authorization")
            .unwrap_or_default()
            .to_owned()),
        None => match events.last() {
            Some(StreamEvent::Error(message)) => Err(message.error_message.clone().unwrap()),
            other => panic!("{other:?}"),
        },
    }
}

fn write(dir: &Path, name: &str, value: &Value) {
    std::fs::write(dir.join(name), value.to_string()).unwrap();
}

#[tokio::test]
async fn the_first_source_wins() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let variables = [("GROQ_API_KEY", "from-env-1"), ("MINE", "from-mine-1")];
    assert_eq!(
        key_sent(dir, &variables, "groq").await.unwrap(),
        "Bearer from-env-1"
    );
    write(
        dir,
        "models.json",
        &json!({"providers": {"groq": {"apiKey": "$MINE"}}}),
    );
    assert_eq!(
        key_sent(dir, &variables, "groq").await.unwrap(),
        "Bearer from-mine-1"
    );
    write(
        dir,
        "auth.json",
        &json!({"groq": {"type": "api_key", "key": "!echo from-auth-1"}}),
    );
    assert_eq!(
        key_sent(dir, &variables, "groq").await.unwrap(),
        "Bearer from-auth-1"
    );
    let server = Server::start(vec![Response::ok("data: [DONE]\n\n")])
        .await
        .unwrap();
    let registry = ModelRegistry::load(dir, env(&variables));
    registry.set_runtime_key("groq", "from-flag-1".into());
    assert_eq!(
        sent_by(&registry, &server, model("groq", &server.url()))
            .await
            .unwrap(),
        "Bearer from-flag-1"
    );
}

#[tokio::test]
async fn a_source_that_does_not_resolve() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // In auth.json it falls through, with the entry's own variables in force.
    write(
        dir,
        "auth.json",
        &json!({"groq": {"type": "api_key", "key": "$NOT_SET", "env": {"GROQ_API_KEY": "own-value"}}}),
    );
    assert_eq!(
        key_sent(dir, &[], "groq").await.unwrap(),
        "Bearer own-value"
    );
    // In models.json it fails with the reason.
    write(dir, "auth.json", &json!({}));
    write(
        dir,
        "models.json",
        &json!({"providers": {"groq": {"apiKey": "$NOT_SET"}}}),
    );
    let why = key_sent(dir, &[("GROQ_API_KEY", "x-env-value")], "groq")
        .await
        .unwrap_err();
    assert!(why.contains("groq") && why.contains("NOT_SET"), "{why}");
    let why = key_sent(dir, &[], "somebody").await.unwrap_err();
    assert!(
        why.contains("no API key for somebody") && why.contains("models.json"),
        "{why}"
    );
}

#[tokio::test]
async fn commands_of_auth_json_run_once_those_of_models_json_every_time() {
    let dir = tempfile::tempdir().unwrap();
    let counter = dir.path().join("count");
    let command = format!(
        "!echo x >> {0}; echo key-$(wc -l < {0} | tr -d ' ')",
        counter.display()
    );
    let server = Server::start(vec![Response::ok("data: [DONE]\n\n")])
        .await
        .unwrap();
    for (file, value, expected) in [
        (
            "auth.json",
            json!({"groq": {"type": "api_key", "key": command}}),
            "Bearer key-1",
        ),
        (
            "models.json",
            json!({"providers": {"groq": {"apiKey": command}}}),
            "Bearer key-2",
        ),
    ] {
        let home = tempfile::tempdir().unwrap();
        std::fs::remove_file(&counter).ok();
        write(home.path(), file, &value);
        let registry = ModelRegistry::load(home.path(), env(&[]));
        assert!(registry.is_configured("groq"));
        assert!(!counter.exists(), "listing ran the command");
        for _ in 0..2 {
            sent_by(&registry, &server, model("groq", &server.url()))
                .await
                .unwrap();
        }
        let last = server
            .requests()
            .last()
            .unwrap()
            .header("authorization")
            .unwrap()
            .to_owned();
        assert_eq!(last, expected);
    }
}

#[tokio::test]
async fn headers_of_models_json_are_resolved_and_win() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(vec![Response::ok("data: [DONE]\n\n")])
        .await
        .unwrap();
    let models = json!({"providers": {"mine": {
        "baseUrl": format!("{}/v1", server.url()), "api": "openai-completions", "apiKey": "k-12345678", "authHeader": true,
        "headers": {"x-a": "$A", "x-b": "provider"},
        "models": [{"id": "m", "headers": {"x-b": "model", "x-c": "literal"}}],
    }}});
    write(dir.path(), "models.json", &models);
    let registry = ModelRegistry::load(dir.path(), env(&[("A", "resolved")]));
    assert_eq!(registry.problems(), Vec::<String>::new());
    let model = (*registry.find("mine", "m").unwrap()).clone();
    sent_by(&registry, &server, model).await.unwrap();
    let sent = server.requests().remove(0);
    let header = |name| sent.header(name).unwrap_or_default().to_owned();
    assert_eq!(
        (header("x-a"), header("x-b"), header("x-c")),
        ("resolved".into(), "provider".into(), "literal".into())
    );
    let registry = ModelRegistry::load(dir.path(), env(&[]));
    let model = (*registry.find("mine", "m").unwrap()).clone();
    let gone = Server::start(vec![]).await.unwrap();
    let why = sent_by(&registry, &gone, model).await.unwrap_err();
    assert!(
        why.contains("x-a") && why.contains("environment variable A"),
        "{why}"
    );
}

#[test]
fn login_keeps_everything_else_and_is_private() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("agent");
    auth::login(&dir, "groq", &SECRET.into()).unwrap();
    let path = dir.join("auth.json");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&path)), (0o700, 0o600));
    }
    let oauth =
        json!({"type": "oauth", "access": "a", "refresh": "r", "expires": 1, "more": {"x": [1]}});
    let mut stored: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    stored["anthropic"] = oauth.clone();
    stored["groq"]["env"] = json!({"X": "y"});
    std::fs::write(&path, stored.to_string()).unwrap();
    auth::login(&dir, "groq", &"other-key-123".into()).unwrap();
    let stored: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(stored["anthropic"], oauth);
    assert_eq!(
        stored["groq"],
        json!({"type": "api_key", "key": "other-key-123", "env": {"X": "y"}})
    );
    assert!(auth::logout(&dir, "groq").unwrap());
    assert!(!auth::logout(&dir, "groq").unwrap());
    let stored: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(stored, json!({"anthropic": oauth}));
    assert!(!dir.join("auth.json.lock").exists());
}

#[test]
fn a_broken_file_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("auth.json"), "{\"a\": ").unwrap();
    let error = auth::login(dir.path(), "groq", &SECRET.into())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("auth.json") && !error.contains("SECRET123"),
        "{error}"
    );
    assert_eq!(
        std::fs::read_to_string(dir.path().join("auth.json")).unwrap(),
        "{\"a\": "
    );
}

#[cfg(unix)]
#[test]
fn login_writes_through_a_symlink_under_one_lock() {
    let home = tempfile::tempdir().unwrap();
    let (dir, real) = (home.path().join("agent"), home.path().join("real"));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::create_dir_all(&real).unwrap();
    std::fs::write(real.join("keys.json"), "{}").unwrap();
    std::os::unix::fs::symlink(real.join("keys.json"), dir.join("auth.json")).unwrap();
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let dir = dir.clone();
            std::thread::spawn(move || {
                auth::login(&dir, &format!("p{n}"), &format!("key-{n}").into()).unwrap();
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(
        std::fs::symlink_metadata(dir.join("auth.json"))
            .unwrap()
            .is_symlink()
    );
    let stored: Value =
        serde_json::from_str(&std::fs::read_to_string(real.join("keys.json")).unwrap()).unwrap();
    assert_eq!(stored.as_object().unwrap().len(), 8);
}

#[test]
fn status_names_sources_and_holds_no_key() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        "auth.json",
        &json!({
            "groq": {"type": "api_key", "key": SECRET}, "xai": {"type": "api_key", "key": "!pass"},
            "anthropic": {"type": "oauth", "access": SECRET},
        }),
    );
    write(
        dir.path(),
        "models.json",
        &json!({"providers": {"openai": {"apiKey": "$NOT_SET"}}}),
    );
    let registry = ModelRegistry::load(dir.path(), env(&[("GEMINI_API_KEY", SECRET)]));
    let status = registry.status();
    let of = |id: &str| {
        status
            .iter()
            .find(|status| status.provider == id)
            .unwrap()
            .clone()
    };
    assert_eq!(of("groq").source, Some(KeySource::AuthFile(StoredAs::Key)));
    assert_eq!(
        of("xai").source,
        Some(KeySource::AuthFile(StoredAs::Command))
    );
    assert_eq!(
        of("google").source,
        Some(KeySource::Environment("GEMINI_API_KEY".into()))
    );
    assert_eq!(of("anthropic").source, None);
    assert!(of("openai").problem.unwrap().contains("NOT_SET"));
    assert!(!format!("{status:?}").contains("SECRET123"));
    let model = registry
        .models()
        .into_iter()
        .find(|model| model.provider == "anthropic")
        .unwrap();
    let why = registry.why_unusable(&model).unwrap();
    assert!(
        why.contains("oauth") && why.contains("ANTHROPIC_API_KEY"),
        "{why}"
    );
    assert!(
        registry
            .available()
            .iter()
            .all(|model| model.provider != "anthropic")
    );
}

#[tokio::test]
async fn bearer_variables_are_sent_as_such() {
    let (dir, server) = (
        tempfile::tempdir().unwrap(),
        Server::start(vec![Response::status(401, "{}")])
            .await
            .unwrap(),
    );
    let registry = ModelRegistry::load(
        dir.path(),
        env(&[
            ("ANTHROPIC_AUTH_TOKEN", "tok-123456"),
            ("ANTHROPIC_API_KEY", "k"),
        ]),
    );
    let mut model = model("anthropic", &server.url());
    model.api = "anthropic-messages".into();
    assert_eq!(
        sent_by(&registry, &server, model).await.unwrap(),
        "Bearer tok-123456"
    );
    assert_eq!(server.requests()[0].header("x-api-key"), None);
}

/// Puts the key into every text a server can send back.
fn echoing(case: &Value) -> Vec<Response> {
    let echo = |response: Response| {
        let body = String::from_utf8(response.pieces.concat()).unwrap();
        let body = if response.status == 200 {
            body.replace("\"message\":\"", &format!("\"message\":\"{SECRET} "))
                .replace(
                    "\"explanation\":\"",
                    &format!("\"explanation\":\"{SECRET} "),
                )
                .replace("\"code\":\"", &format!("\"code\":\"{SECRET} "))
                .replace("\"reason\":\"", &format!("\"reason\":\"{SECRET} "))
                .replace(
                    "\"finish_reason\":\"",
                    &format!("\"finish_reason\":\"{SECRET} "),
                )
                .replace(
                    "\"stop_reason\":\"",
                    &format!("\"stop_reason\":\"{SECRET} "),
                )
                .replace(
                    "\"finishReason\":\"",
                    &format!("\"finishReason\":\"{SECRET} "),
                )
                .replace(
                    "\"blockReason\":\"",
                    &format!("\"blockReason\":\"{SECRET} "),
                )
                .replace("{oops", &format!("{{oops {SECRET}"))
        } else {
            body.replace(
                "\"message\":\"",
                &format!("\"message\":\"Incorrect API key provided: {SECRET}. "),
            ) + SECRET
        };
        Response {
            pieces: vec![body.into_bytes()],
            ..response
        }
    };
    support::script(case).into_iter().map(echo).collect()
}

#[tokio::test]
async fn no_error_case_shows_the_key() {
    let mut seen = 0;
    for api in [
        "openai-completions",
        "anthropic-messages",
        "openai-responses",
        "google-generative-ai",
    ] {
        for (name, mut case) in support::cases(&data_dir().join("providers").join(api)) {
            if case["expected_message"]["stopReason"] != "error" {
                continue;
            }
            case["options"]["apiKey"] = SECRET.into();
            let server = Server::start(echoing(&case)).await.unwrap();
            let (_dir, registry) = support::registry();
            let events = support::play(&registry, &server, &case).await;
            let Some(StreamEvent::Error(message)) = events.last() else {
                panic!("{api}/{name}: no error");
            };
            let texts = format!("{:?} {:?}", message.error_message, message.raw_stop_reason);
            assert!(!texts.contains("SECRET123"), "{api}/{name}: {texts}");
            assert!(
                !serde_json::to_string(message)
                    .unwrap()
                    .contains("SECRET123"),
                "{api}/{name}"
            );
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} error cases");
}

#[tokio::test]
async fn a_malformed_key_is_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        "auth.json",
        &json!({"groq": {"type": "api_key", "key": format!("{SECRET}\nx")}}),
    );
    let server = Server::start(vec![]).await.unwrap();
    let registry = ModelRegistry::load(dir.path(), env(&[]));
    let why = sent_by(&registry, &server, model("groq", &server.url()))
        .await
        .unwrap_err();
    assert!(
        why.contains("authorization") && !why.contains("SECRET123"),
        "{why}"
    );
    write(
        dir.path(),
        "models.json",
        &json!({"providers": {"groq": {"apiKey": [SECRET]}}}),
    );
    registry.reload();
    assert!(!registry.problems().concat().contains("SECRET123"));
    std::fs::write(
        dir.path().join("models.json"),
        format!("{{\"providers\": {{\"groq\": {{\"apiKey\": \"{SECRET}\" oops"),
    )
    .unwrap();
    registry.reload();
    let problems = registry.problems().concat();
    assert!(
        problems.contains("models.json") && !problems.contains("SECRET123"),
        "{problems}"
    );
    assert!(!registry.models().is_empty());
}
