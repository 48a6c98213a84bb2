//! Questions of every kind wait in one queue: shown when nobody is disturbed, answered by plain keys, given up in time.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::harness::{Nv, Options};
use super::model::Model;

/// Keeps what would go to the backend as an answer.
const START: &str = "
    vim.cmd('runtime plugin/pi.lua')
    _G.answers, _G.notes = {}, {}
    require('pi.rpc').request = function(name, params) table.insert(_G.answers, { name, params.id, params.answer }) end
    vim.notify = function(text) table.insert(_G.notes, text) end";

async fn start() -> Nv {
    let nv = Nv::start().await;
    nv.attach(80, 24).await;
    nv.lua(START, json!(null)).await;
    nv
}

async fn dialog(nv: &Nv, op: Value) {
    nv.lua("require('pi.attention').ops.dialog(...)", json!([op]))
        .await;
}

async fn answers(nv: &Nv) -> Value {
    nv.lua(
        "local all = _G.answers _G.answers = {} return all",
        json!(null),
    )
    .await
}

async fn open(nv: &Nv) {
    nv.command("Pi attention").await;
    nv.wait("&filetype == 'pi-question'").await;
}

#[tokio::test]
async fn each_kind_of_dialog_is_answered_by_its_keys() {
    let nv = start().await;
    let options = json!(["red", "green"]);
    for (kind, keys, answer) in [
        ("select", "2", json!({"value": "green"})),
        ("select", "j<CR>", json!({"value": "green"})),
        ("select", "<CR>", json!({"value": "red"})),
        ("select", "c", json!({"cancelled": true})),
        ("confirm", "y", json!({"confirmed": true})),
        ("confirm", "n", json!({"confirmed": false})),
        ("input", "some words<CR>", json!({"value": "some words"})),
        ("input", "x<C-c>", json!({"cancelled": true})),
        (
            "editor",
            " more<CR>lines<C-s>",
            json!({"value": "before more\nlines"}),
        ),
    ] {
        let mut op = json!({"id": "u1", "kind": kind, "session": "s", "title": "Which colour?"});
        match kind {
            "select" => op["options"] = options.clone(),
            "confirm" => op["message"] = "It will be painted.".into(),
            "editor" => op["prefill"] = "before".into(),
            _ => op["placeholder"] = "a colour".into(),
        }
        dialog(&nv, op).await;
        assert_eq!(answers(&nv).await, json!([]), "{kind}");
        open(&nv).await;
        nv.wait_screen("its title", |screen| {
            screen.text().contains("Which colour?")
        })
        .await;
        nv.keys(keys).await;
        nv.wait("g:pi_attention == 0 && &filetype != 'pi-question'")
            .await;
        assert_eq!(
            answers(&nv).await,
            json!([["dialog.answer", "u1", answer]]),
            "{kind} {keys}"
        );
        nv.keys("<Esc>").await;
        nv.wait("mode() == 'n'").await;
    }
}

#[tokio::test]
async fn escape_is_later_and_keeps_what_was_typed() {
    let nv = start().await;
    dialog(
        &nv,
        json!({"id": "u1", "kind": "input", "session": "s", "title": "Name?"}),
    )
    .await;
    dialog(
        &nv,
        json!({"id": "u2", "kind": "confirm", "session": "s", "title": "Sure?"}),
    )
    .await;
    open(&nv).await;
    nv.wait_screen("the place in the queue", |screen| {
        screen.text().contains("1 of 2")
    })
    .await;
    nv.keys("half").await;
    nv.wait("getline(1) == 'half'").await;
    nv.keys("<Esc><Esc>").await;
    nv.wait("&filetype != 'pi-question'").await;
    assert_eq!(answers(&nv).await, json!([]));
    assert_eq!(nv.eval("g:pi_attention").await, json!(2));
    open(&nv).await;
    assert_eq!(nv.eval("getline(1)").await, json!("half"));
    nv.keys("<CR>").await;
    // The next one follows.
    nv.wait_screen("the next question", |screen| {
        screen.text().contains("Sure?")
    })
    .await;
    nv.keys("y").await;
    nv.wait("g:pi_attention == 0").await;
    assert_eq!(answers(&nv).await.as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn a_limit_counts_down_and_ends_the_question() {
    let nv = start().await;
    let freeze = "local start = vim.uv.hrtime() _G.ahead = 0 vim.uv.hrtime = function() return start + _G.ahead * 1e9 end";
    nv.lua(freeze, json!(null)).await;
    dialog(
        &nv,
        json!({"id": "u1", "kind": "confirm", "session": "s", "title": "Sure?", "timeout": 30_000}),
    )
    .await;
    open(&nv).await;
    nv.wait_screen("the time left", |screen| screen.text().contains("30s left"))
        .await;
    nv.lua("_G.ahead = 12.5", json!(null)).await;
    nv.wait_screen("less time", |screen| screen.text().contains("18s left"))
        .await;
    let printed = nv
        .lua(
            "return vim.api.nvim_exec2('Pi attention print', { output = true }).output",
            json!(null),
        )
        .await;
    assert!(
        printed
            .as_str()
            .unwrap()
            .starts_with("Sure? (asked 12s ago, 18s left)"),
        "{printed}"
    );
    nv.lua("_G.ahead = 31", json!(null)).await;
    nv.wait("g:pi_attention == 0 && &filetype != 'pi-question'")
        .await;
    assert_eq!(
        answers(&nv).await,
        json!([["dialog.answer", "u1", {"cancelled": true}]])
    );
}

#[tokio::test]
async fn somebody_at_work_is_only_told_and_the_dialogs_of_a_stopped_session_go() {
    let nv = start().await;
    nv.keys("itext").await;
    nv.wait("getline(1) == 'text'").await;
    dialog(
        &nv,
        json!({"id": "u1", "kind": "confirm", "session": "s", "title": "Sure?"}),
    )
    .await;
    nv.wait_lua("return _G.notes[1] == 'pi: asks: Sure? (:Pi attention)'")
        .await;
    assert_eq!(
        nv.eval("[mode(), &filetype, getline(1)]").await,
        json!(["i", "", "text"])
    );
    nv.lua(
        "require('pi.session').ops.stopped({ session = 's' })",
        json!(null),
    )
    .await;
    nv.wait("g:pi_attention == 0").await;
}

#[tokio::test]
async fn without_a_key_the_way_to_one_waits_in_the_queue() {
    let model = Model::start(vec![]).await;
    let nv = Nv::start_with(Options::default()).await;
    let agent = nv.root.path().join("agent");
    model.install(&agent);
    let models = std::fs::read_to_string(agent.join("models.json")).unwrap();
    std::fs::write(
        agent.join("models.json"),
        models.replace("sk-test-SECRET123", "$PI_TEST_KEY_THAT_IS_NOT_SET"),
    )
    .unwrap();
    nv.attach(100, 30).await;
    nv.lua(
        "_G.notes = {} vim.notify = function(text) table.insert(_G.notes, text) end",
        json!(null),
    )
    .await;
    nv.command("Pi ask hello").await;
    nv.wait("get(g:, 'pi_attention', 0) == 1").await;
    assert_eq!(nv.lua("return #_G.notes", json!(null)).await, json!(1));
    open(&nv).await;
    nv.wait_screen("what can be done", |screen| {
        screen.text().contains("give a provider its key")
    })
    .await;
    nv.keys("3").await;
    nv.wait("expand('%:t') == 'models.json'").await;
    assert_eq!(nv.eval("g:pi_attention").await, json!(0));
}
