//! `:Pi edit`: one line, file tools alone, hunks where the person is.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::harness::{Nv, Options};
use super::model::{Answer, Model, call, say};

const TEXT: &str = "one\ntwo\nthree\n";

fn change(id: &'static str) -> Answer {
    let edits = json!([{"oldText": "two", "newText": "TWO"}]);
    call(id, "edit", json!({"path": "a.txt", "edits": edits}))
}

async fn start(script: Vec<Answer>) -> (Model, Nv) {
    let model = Model::start(script).await;
    let nv = model
        .nvim(Options {
            files: vec![("a.txt", TEXT.into())],
            ..Options::default()
        })
        .await;
    nv.lua(
        "_G.notes = {} vim.notify = function(text) table.insert(_G.notes, text) end",
        json!(null),
    )
    .await;
    nv.command("edit a.txt").await;
    (model, nv)
}

fn tools(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| {
        tool["function"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let mut names: Vec<_> = tools.iter().map(name).collect();
    names.sort();
    names
}

/// The text of the last message of the person.
fn asked(request: &Value) -> String {
    let messages = request["messages"].as_array().unwrap();
    let mine = messages
        .iter()
        .rev()
        .find(|it| it["role"] == "user")
        .unwrap();
    match &mine["content"] {
        Value::String(text) => text.clone(),
        blocks => blocks[0]["text"].as_str().unwrap_or_default().to_owned(),
    }
}

async fn idle(nv: &Nv) {
    nv.wait_lua("return require('pi.status').data().state == 'idle'")
        .await;
}

/// Waits for an answer in the chat, and for the end of its run.
async fn answered(nv: &Nv, text: &str) {
    nv.wait_lua(&format!(
        "local buf = require('pi.chat').buffer(vim.t.pi_session)
         return table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n'):find('{text}')"
    ))
    .await;
    idle(nv).await;
}

async fn accept(nv: &Nv) {
    nv.wait("get(get(b:, 'pi_review', {}), 'pending') == 1")
        .await;
    assert_eq!(
        nv.eval("getline(1, '$')").await,
        json!(["one", "two", "three"])
    );
    nv.command("2").await;
    nv.command("Pi review accept").await;
    nv.wait("readfile('a.txt') == ['one', 'TWO', 'three']")
        .await;
}

#[tokio::test]
async fn lines_are_changed_in_place_with_file_tools_alone() {
    let (model, nv) = start(vec![change("c1"), say("Louder now."), say("fine")]).await;
    nv.command("2,3Pi edit make it louder").await;
    accept(&nv).await;
    nv.wait_lua("return vim.tbl_contains(_G.notes, 'pi: Louder now.')")
        .await;
    let first = &model.requests()[0];
    assert_eq!(
        tools(first),
        ["edit", "find", "grep", "ls", "read", "write"]
    );
    let text = asked(first);
    for part in [
        "make it louder\n\n@a.txt:2-3",
        "a.txt, lines 2 to 3:\ntwo\nthree",
        "with the edit tool",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    // The windows of the conversation were not opened for it.
    assert_eq!(nv.eval("winnr('$')").await, json!(1));
    idle(&nv).await;
    nv.command("Pi ask and now").await;
    answered(&nv, "fine").await;
    let last = model.requests().pop().unwrap();
    assert!(
        tools(&last).contains(&"bash".to_owned()),
        "{:?}",
        tools(&last)
    );
}

#[tokio::test]
async fn the_other_tools_are_back_also_after_a_restart_and_a_failure() {
    let failure = Answer::Error(
        400,
        json!({"error": {"message": "no such thing"}}).to_string(),
    );
    let (model, nv) = start(vec![say("hello"), failure, say("fine")]).await;
    nv.command("Pi ask hi").await;
    nv.wait_lua("return vim.t.pi_session").await;
    answered(&nv, "hello").await;
    nv.command("Pi close").await;
    nv.command("Pi edit make it louder").await;
    nv.wait_lua("return #_G.notes == 1 and _G.notes[1]:find('no such thing', 1, true)")
        .await;
    nv.command("Pi restart").await;
    nv.wait_lua("return require('pi.backend').info().running")
        .await;
    nv.command("Pi ask and now").await;
    answered(&nv, "fine").await;
    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    assert!(!tools(&requests[1]).contains(&"bash".to_owned()));
    assert!(tools(&requests[2]).contains(&"bash".to_owned()));
}

#[tokio::test]
async fn a_session_of_its_own_leaves_nothing_behind() {
    let (model, nv) = start(vec![change("c1"), say("Louder now.")]).await;
    nv.command("Pi open").await;
    nv.wait_lua("return vim.t.pi_session").await;
    let session = nv.eval("t:pi_session").await;
    nv.command("Pi edit! make it louder").await;
    accept(&nv).await;
    nv.wait_lua("return vim.tbl_contains(_G.notes, 'pi: Louder now.')")
        .await;
    assert_eq!(nv.eval("t:pi_session").await, session);
    assert_eq!(tools(&model.requests()[0]).len(), 6);
    // Neither a live session, nor a buffer, nor a file is left of it.
    nv.wait_lua("return vim.fn.bufnr('pi://chat/') and #vim.tbl_filter(function(buf) return vim.api.nvim_buf_get_name(buf):match('^pi://chat/') end, vim.api.nvim_list_bufs()) == 1").await;
    nv.lua("require('pi.rpc').request('session.list', { all = true }, function(_, result) _G.list = result.sessions end)", json!(null)).await;
    nv.wait_lua("return _G.list").await;
    let list = nv.lua("return _G.list", json!(null)).await;
    let ids: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["id"].clone())
        .collect();
    assert_eq!(ids, [session]);
    // The decision can be taken back after its session is gone.
    nv.command("Pi review undo").await;
    nv.wait("readfile('a.txt') == ['one', 'two', 'three']")
        .await;
}

#[tokio::test]
async fn what_cannot_be_edited_says_so_and_keeps_the_text() {
    let model = Model::start(vec![Answer::Pieces(vec![super::model::Piece::Wait])]).await;
    let nv = model.nvim(Options::default()).await;
    nv.lua(
        "_G.notes = {} vim.notify = function(text) table.insert(_G.notes, text) end",
        json!(null),
    )
    .await;
    nv.command("Pi edit anything").await;
    nv.wait_lua("return _G.notes[1] == '`:Pi edit` changes a file, and this buffer is none'")
        .await;
    nv.command("Pi ask wait").await;
    nv.wait_lua("return (require('pi.status').data() or {}).state == 'run'")
        .await;
    nv.command("wincmd t | edit b.txt").await;
    nv.command("Pi edit something").await;
    nv.wait_lua("return (_G.notes[2] or ''):find('the agent is at work', 1, true)")
        .await;
    nv.wait_lua(
        "local buf = require('pi.prompt').buffer(vim.t.pi_session)
         return vim.api.nvim_buf_get_lines(buf, 0, 1, false)[1] == 'something'",
    )
    .await;
}
