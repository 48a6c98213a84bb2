//! The process as a client sees it, where no transcript looks: odd lines, the end of input, signals, a clean stdout.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::case;

fn rpc(script: Value, answers: Value) -> Value {
    json!({"name": "own", "mode": "rpc", "argv": ["--mode", "rpc"], "files_before": {}, "mock_responses": answers,
        "settings": {"defaultProvider": "mock", "defaultModel": "mock-1"}, "stdin_records": script})
}

fn response<'a>(records: &'a [Value], id: &str) -> &'a Value {
    let is = |record: &&Value| record["type"] == "response" && record["id"] == id;
    records.iter().find(is).unwrap()
}

#[tokio::test]
async fn lines_that_make_no_sense_get_an_error_and_the_process_lives_on() {
    let script = json!([
        {"send_raw": "null\n"},
        {"send_raw": "[1]\n"},
        {"send": {"id": "m", "type": "set_steering_mode", "mode": "sometimes"}},
        {"send": {"id": "t", "type": "set_thinking_level", "level": "huge"}},
        {"send": {"id": "p", "type": "prompt"}},
        {"send": {"id": "i", "type": "prompt", "message": "x", "images": [{"type": "image"}]}},
        {"send": {"id": "f", "type": "fork", "entryId": 7}},
        {"send": {"id": {"any": ["id"]}, "type": "get_state"}},
        {"send": {"id": "end", "type": "get_state"}},
        {"wait_response": "end"}
    ]);
    let run = case::play(&rpc(script, json!([]))).await;
    let first = &run.records[0];
    assert_eq!(
        *first,
        json!({"type": "response", "success": false, "error": "Unknown command: undefined"})
    );
    for (id, word) in [
        ("m", "mode"),
        ("t", "level"),
        ("p", "message"),
        ("i", "image"),
        ("f", "entryId"),
    ] {
        let answer = response(&run.records, id);
        assert_eq!(answer["success"], false, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(word), "{answer}");
    }
    assert!(
        run.records
            .iter()
            .any(|record| record["id"] == json!({"any": ["id"]}))
    );
    assert_eq!(response(&run.records, "end")["success"], true);
    assert_eq!(run.exit["code"], 0);
}

#[tokio::test]
async fn the_end_of_input_ends_a_hanging_run_and_its_command_soon() {
    let script = json!([
        {"send": {"id": "p", "type": "prompt", "message": "go"}},
        {"send": {"id": "b", "type": "bash", "command": "sleep 60"}},
        {"wait_for": {"type": "message_update"}},
        {"close_stdin": true}
    ]);
    let began = Instant::now();
    let run = case::play(&rpc(
        script,
        json!([{"text": "part", "hang_after_text": true}]),
    ))
    .await;
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(run.exit["code"], 0);
    let last = run.sessions[0]
        .1
        .iter()
        .rev()
        .find(|entry| entry["message"]["role"] == "assistant")
        .unwrap();
    assert_eq!(last["message"]["stopReason"], "aborted");
    assert!(
        run.records
            .iter()
            .all(|record| record["type"] != "NOT JSON")
    );
}

#[tokio::test]
async fn an_interrupt_stores_the_aborted_turn_like_any_other_end() {
    for (signal, code) in [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)] {
        let script = json!([
            {"send": {"id": "p", "type": "prompt", "message": "go"}},
            {"wait_for": {"type": "message_update"}},
            {"signal": signal}
        ]);
        let answers = json!([{"text": "part", "hang_after_text": true}]);
        let run = case::play(&rpc(script, answers)).await;
        assert_eq!(run.exit["code"], code, "{signal}");
        let entries = &run.sessions[0].1;
        let last = &entries.last().unwrap()["message"];
        assert_eq!(last["stopReason"], "aborted", "{signal}");
    }
}

#[tokio::test]
async fn a_command_that_prints_odd_things_leaves_stdout_clean() {
    let script = json!([
        {"send": {"id": "b", "type": "bash", "command": "printf 'a\\033[3'; sleep 0.1; printf '1mb\\n'; printf 'x\\342\\200\\250y'; echo noise >&2"}},
        {"wait_response": "b"}
    ]);
    let run = case::play(&rpc(script, json!([]))).await;
    let data = &response(&run.records, "b")["data"];
    assert_eq!(data["exitCode"], 0);
    let output = data["output"].as_str().unwrap();
    assert!(
        output.starts_with("ab\n") && output.contains("x\u{2028}y") && output.contains("noise"),
        "{output:?}"
    );
    assert!(
        run.records
            .iter()
            .all(|record| record["type"] != "NOT JSON")
    );
}

#[tokio::test]
async fn labels_and_context_edits_are_made_and_taken_back() {
    let script = json!([
        {"send": {"id": "p", "type": "prompt", "message": "question"}},
        {"wait_for": {"type": "agent_settled"}},
        {"send": {"id": "bad", "type": "edit_context", "targetId": "nowhere", "replacement": null}},
        {"send": {"id": "shape", "type": "edit_context", "targetId": "nowhere"}},
        {"send": {"id": "label", "type": "set_label", "entryId": "nowhere", "label": "x"}},
        {"wait_response": "label"}
    ]);
    let run = case::play(&rpc(script, json!([{"text": "answer"}]))).await;
    for (id, said) in [
        ("bad", "Entry nowhere not found"),
        ("shape", "edit_context: `replacement` is missing"),
        ("label", "Entry nowhere not found"),
    ] {
        assert_eq!(response(&run.records, id)["error"], said);
    }
}
