//! Recorded texts: estimates, serialised conversations, thresholds, overflow detection.

use pi_nvim::ai::overflow;
use pi_nvim::ai::{AssistantMessage, Message};
use pi_nvim::session::compaction::{CompactionSettings, serialise};
use pi_nvim::session::projection::estimate;
use serde_json::{Value, json};

use super::{compare, without_intros};
use crate::conformance::{Outcome, Tally, data_dir};

fn recorded(file: &str) -> Value {
    let text = std::fs::read_to_string(data_dir().join("sessions/text").join(file)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn outcome(expected: &Value, actual: &Value) -> Outcome {
    compare(&without_intros(expected), &without_intros(actual))
        .map_or_else(Outcome::Fail, |()| Outcome::Pass)
}

#[test]
fn recorded_messages() {
    let mut tally = Tally::new("sessions/text/messages.json");
    for case in recorded("messages.json").as_array().unwrap() {
        let message = Message::from_value(case["message"].clone());
        let actual = json!({
            "estimatedTokens": estimate::message_tokens(&message),
            "serialized": serialise::conversation([&message]),
        });
        tally.case(
            case["name"].as_str().unwrap(),
            outcome(&case["expected"], &actual),
        );
    }
    tally.finish();
}

#[test]
fn recorded_conversation() {
    let mut tally = Tally::new("sessions/text/conversation.json");
    let case = recorded("conversation.json");
    let messages: Vec<Message> = case["messages"]
        .as_array()
        .unwrap()
        .iter()
        .cloned()
        .map(Message::from_value)
        .collect();
    let actual = json!({"serialized": serialise::conversation(&messages)});
    tally.case("conversation", outcome(&case["expected"], &actual));
    tally.finish();
}

#[test]
fn recorded_thresholds() {
    let mut tally = Tally::new("sessions/text/should-compact.json");
    for (at, case) in recorded("should-compact.json")
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
    {
        let settings = CompactionSettings::read(&case["settings"], "p", "m").unwrap();
        let window = case["contextWindow"].as_u64().unwrap();
        let actual = settings.is_over(case["tokens"].as_u64().unwrap(), window);
        tally.case(&at.to_string(), outcome(&case["expected"], &actual.into()));
    }
    tally.finish();
}

#[test]
fn recorded_overflows() {
    let mut tally = Tally::new("sessions/text/overflow.json");
    for case in recorded("overflow.json").as_array().unwrap() {
        let message: AssistantMessage = serde_json::from_value(case["message"].clone()).unwrap();
        let actual = json!({
            "isContextOverflow": overflow::is_overflow(&message, case["contextWindow"].as_u64().unwrap_or(0)),
            "isRecoverableLength": overflow::is_recoverable_length(&message, case["desiredMaxOutput"].as_u64().unwrap()),
        });
        tally.case(
            case["name"].as_str().unwrap(),
            outcome(&case["expected"], &actual),
        );
    }
    tally.finish();
}
