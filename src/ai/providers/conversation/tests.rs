use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Call, Kept};
use crate::ai::message::Message;
use crate::ai::model::Model;
use crate::ai::provider::{Request, RequestOptions};
use crate::ai::providers::{APIS, api};

/// Models whose bodies depend on the conversation in different ways.
fn models() -> Vec<Arc<Model>> {
    let compat = json!({
        "requiresAssistantAfterToolResult": true, "requiresToolResultName": true, "cacheControlFormat": "anthropic",
        "supportsOpenAIGrammarTools": true,
    });
    let mut models = Vec::new();
    for api in APIS {
        for (input, compat) in [
            (json!(["text", "image"]), json!({})),
            (json!(["text"]), compat.clone()),
        ] {
            let model = json!({
                "id": "m", "name": "m", "api": api, "provider": "p", "baseUrl": "http://localhost", "reasoning": true,
                "input": input, "contextWindow": 100_000, "maxTokens": 1000, "compat": compat,
            });
            models.push(Arc::new(serde_json::from_value(model).unwrap()));
        }
    }
    models
}

fn call(model: &Arc<Model>, messages: &[Arc<Message>], kept: &Arc<Mutex<Kept>>) -> Call {
    let request = Request {
        model: Arc::clone(model),
        messages: messages.to_vec(),
        options: RequestOptions::default(),
        cancel: CancellationToken::new(),
    };
    let mut call = Call::new(&request, false);
    call.kept = Arc::clone(kept);
    call
}

/// The body as text, and how many messages were converted for it.
fn body(model: &Arc<Model>, messages: &[Arc<Message>], kept: &Arc<Mutex<Kept>>) -> (String, usize) {
    let built = api(&model.api)
        .unwrap()
        .build(&call(model, messages, kept))
        .unwrap();
    (
        String::from_utf8(built.bytes().unwrap()).unwrap(),
        built.conversation.converted,
    )
}

fn message(value: Value) -> Arc<Message> {
    Arc::new(Message::from_value(value))
}

fn system() -> Arc<Message> {
    message(json!({
        "role": "system", "content": "Be brief.",
        "toolsAdded": [{"name": "read", "description": "Reads.", "parameters": {"type": "object", "properties": {}}}],
    }))
}

fn answer(api: &str, id: &str, text: &str, reason: &str) -> Arc<Message> {
    let mut content = vec![
        json!({"type": "thinking", "thinking": "hm"}),
        json!({"type": "text", "text": text}),
    ];
    if !id.is_empty() {
        content.push(
            json!({"type": "toolCall", "id": id, "name": "read", "arguments": {"path": "f"}}),
        );
    }
    message(json!({
        "role": "assistant", "content": content, "api": api, "provider": "p", "model": "m", "stopReason": reason,
        "timestamp": 2,
    }))
}

fn result(id: &str, with_image: bool) -> Arc<Message> {
    let mut content = vec![json!({"type": "text", "text": format!("said {id}")})];
    if with_image {
        content.push(json!({"type": "image", "data": "AAAA", "mimeType": "image/png"}));
    }
    message(
        json!({"role": "toolResult", "toolCallId": id, "toolName": "read", "content": content, "isError": false}),
    )
}

fn user(text: &str) -> Arc<Message> {
    message(json!({"role": "user", "content": text}))
}

fn any_message() -> impl Strategy<Value = Arc<Message>> {
    let ids = prop_oneof![Just("a"), Just("b|fc_b"), Just("c")];
    let reason = prop_oneof![4 => Just("stop"), 1 => Just("error"), 1 => Just("aborted")];
    let text = prop_oneof![3 => Just("words"), 1 => Just(""), 1 => Just(" \n")];
    let api = prop_oneof![4 => (0..4usize).prop_map(|at| APIS[at].to_owned()), 1 => Just("other".to_owned())];
    let called = prop_oneof![2 => ids.clone(), 1 => Just("")];
    prop_oneof![
        2 => text.clone().prop_map(user),
        3 => (api, called, text, reason).prop_map(|(api, id, text, reason)| answer(&api, id, text, reason)),
        3 => (ids, any::<bool>()).prop_map(|(id, image)| result(id, image)),
        1 => Just(system()),
    ]
}

proptest! {
    /// Whatever was sent before, and wherever the conversation is cut, the bytes are those of one fresh conversion.
    #[test]
    fn what_was_kept_never_changes_a_body(
        messages in proptest::collection::vec(any_message(), 1..16),
        lengths in proptest::collection::vec(1usize..16, 1..5),
        replaced in 0usize..16,
    ) {
        for model in models() {
            let kept = Arc::default();
            let mut now = messages.clone();
            for (round, len) in lengths.iter().enumerate() {
                if round == 1 && let Some(slot) = now.get_mut(replaced) {
                    *slot = user("edited");
                }
                let prefix = &now[..(*len).min(now.len())];
                let whole = Arc::new(Mutex::new(Kept { is_uncut: true, ..Kept::default() }));
                prop_assert_eq!(body(&model, prefix, &kept).0, body(&model, prefix, &whole).0, "{}", model.api);
            }
        }
    }
}

#[test]
fn a_turn_converts_as_much_at_the_end_of_a_long_conversation_as_at_its_beginning() {
    for model in models() {
        let kept = Arc::default();
        let mut messages = vec![system()];
        let mut converted = Vec::new();
        for turn in 0..40 {
            let id = format!("c{turn}");
            messages.push(user("go on"));
            converted.push(body(&model, &messages, &kept).1);
            messages.extend([answer(&model.api, &id, "", "toolUse"), result(&id, false)]);
            converted.push(body(&model, &messages, &kept).1);
            messages.push(answer(&model.api, "", "done", "stop"));
        }
        let (first, later) = converted.split_at(4);
        assert!(
            later.iter().all(|count| first.contains(count)),
            "{}: {converted:?}",
            model.api
        );
        assert!(
            later.iter().all(|count| *count <= 4),
            "{}: {converted:?}",
            model.api
        );
    }
}

#[test]
fn another_model_gets_the_conversation_anew() {
    let models = models();
    let messages = [
        user("hi"),
        answer(APIS[0], "a", "words", "toolUse"),
        result("a", true),
    ];
    let kept = Arc::default();
    for model in models.iter().chain(&models) {
        let (sent, converted) = body(model, &messages, &kept);
        assert_eq!(sent, body(model, &messages, &Arc::default()).0);
        assert_eq!(converted, 3);
    }
}
