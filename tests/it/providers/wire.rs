//! The recorded wire cases of all four APIs, over real HTTP on loopback.

use pi_nvim::ai::{AssistantMessage, StreamEvent, overflow, retry};
use pi_nvim::testing::http::Server;
use serde_json::Value;

use super::compare;
use super::support;
use crate::conformance::{Outcome, Tally, data_dir};

async fn run_api(api: &str) {
    let mut tally = Tally::new(&format!("providers/{api}/*.json"));
    let mut bodies = String::new();
    for (name, case) in support::cases(&data_dir().join("providers").join(api)) {
        let outcome = match run_case(&name, &case, &mut bodies).await {
            Ok(()) => Outcome::Pass,
            Err(Verdict::Differs) => Outcome::Differs,
            Err(Verdict::Fails(why)) => Outcome::Fail(why),
        };
        tally.case(&name, outcome);
    }
    // For `scripts/vendor_types.py`, which validates them against the vendors' own types.
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/provider-bodies");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{api}.jsonl")), bodies).unwrap();
    tally.finish();
}

enum Verdict {
    Fails(String),
    Differs,
}

impl From<String> for Verdict {
    fn from(why: String) -> Self {
        Self::Fails(why)
    }
}

async fn run_case(name: &str, case: &Value, bodies: &mut String) -> Result<(), Verdict> {
    let (_dir, registry) = support::registry();
    let server = Server::start(support::script(case)).await.unwrap();
    let events = support::play(&registry, &server, case).await;
    let requests = server.requests();
    for request in &requests {
        let vendors = ["openai", "anthropic", "google", "custom-openai"];
        let known = vendors
            .iter()
            .any(|vendor| case["model"]["provider"] == *vendor);
        let plain = known
            && case["model"].get("compat").is_none()
            && case["model"].get("samplingParams").is_none();
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let line = serde_json::json!({"name": name, "plain": plain, "body": body});
        bodies.push_str(&format!("{line}\n"));
    }
    let expected = case["expected_requests"].as_array().unwrap();
    let at_once = case["abort"]["immediately"] == true;
    if requests.len() != expected.len() && !(at_once && requests.len() <= 1) {
        return Err(format!(
            "{} requests expected, {} sent",
            expected.len(),
            requests.len()
        )
        .into());
    }
    for (want, have) in expected.iter().zip(&requests) {
        compare::request(case, want, have)?;
    }
    let last = match events.last() {
        Some(StreamEvent::Done(message) | StreamEvent::Error(message)) => message,
        other => return Err(format!("the last event is {other:?}").into()),
    };
    if case.get("expected_throw").is_some() {
        return refused_at_once(&events, last).map_err(Into::into);
    }
    compare::events(case["expected_events"].as_array().unwrap(), &events)?;
    compare::message(&case["expected_message"], last)?;
    error(case, last)
}

/// Without credentials there is nothing but an error that names the provider.
fn refused_at_once(events: &[StreamEvent], last: &AssistantMessage) -> Result<(), String> {
    let text = last.error_message.as_deref().unwrap_or_default();
    if events.len() == 1 && text.contains(&last.provider) {
        Ok(())
    } else {
        Err(format!(
            "expected one error that names the provider, got {events:?}"
        ))
    }
}

fn error(case: &Value, last: &AssistantMessage) -> Result<(), Verdict> {
    let text = last.error_message.as_deref().unwrap_or_default();
    let window = case["model"]["contextWindow"].as_u64().unwrap();
    let retryable = retry::is_retryable(last, window);
    let better = match (
        case["api"].as_str().unwrap(),
        case["name"].as_str().unwrap(),
    ) {
        // A chunk that is no JSON is a fault of the line, worth another attempt.
        ("openai-completions", "invalid-json-chunk") => {
            retryable && text.contains("stream was interrupted")
        }
        // The block reason is named, and asking again does not help.
        ("google-generative-ai", "prompt-blocked") => {
            !retryable && text.contains("PROHIBITED_CONTENT")
        }
        _ => false,
    };
    if better {
        return Err(Verdict::Differs);
    }
    for part in case["error_match"].as_array().into_iter().flatten() {
        let part = part.as_str().unwrap();
        if !text.contains(part) {
            return Err(format!("error text lacks {part:?}: {text:?}").into());
        }
    }
    if let Some(class) = case.get("expected_classification") {
        let overflow = overflow::is_overflow(last, window);
        if class["retryable"] != retryable || class["overflow"] != overflow {
            return Err(format!(
                "expected {class}, got retryable {retryable}, overflow {overflow}: {text:?}"
            )
            .into());
        }
    }
    Ok(())
}

#[tokio::test]
async fn openai_completions() {
    run_api("openai-completions").await;
}

#[tokio::test]
async fn anthropic_messages() {
    run_api("anthropic-messages").await;
}

#[tokio::test]
async fn openai_responses() {
    run_api("openai-responses").await;
}

#[tokio::test]
async fn google_generative_ai() {
    run_api("google-generative-ai").await;
}
