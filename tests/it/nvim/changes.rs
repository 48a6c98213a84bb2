//! `:Pi changes` and `:Pi restore`.

use serde_json::{Value, json};

use super::harness::{Nv, Options};
use super::model::{Model, call, say};

/// A run in mode `auto` that wrote `name`, with the file shown in a window.
async fn wrote(name: &'static str, files: Vec<(&'static str, String)>, text: &str) -> (Model, Nv) {
    let arguments: Value = json!({"path": name, "content": text});
    let model = Model::start(vec![call("c1", "write", arguments), say("done")]).await;
    let nv = model
        .nvim(Options {
            files,
            before: "vim.g.pi = { review = { mode = 'auto' } }",
            ..Options::default()
        })
        .await;
    nv.attach(100, 30).await;
    nv.command("Pi ask change it").await;
    nv.wait(&format!(
        "filereadable('{name}') && readfile('{name}', 'b') == split(\"{}\", '\\n', 1)",
        text.replace('\n', "\\n")
    ))
    .await;
    nv.wait_lua("local it = require('pi.status').data() return it and it.state == 'idle'")
        .await;
    (model, nv)
}

async fn shown(nv: &Nv, line: &str) {
    nv.wait_screen(line, |screen| screen.find(line).is_some())
        .await;
}

#[tokio::test]
async fn what_a_run_wrote_is_shown_and_put_back_by_a_review() {
    let files = vec![("a.txt", "one\n".to_owned())];
    let (_model, nv) = wrote("a.txt", files, "one\nnew\n").await;
    nv.command("Pi changes").await;
    nv.wait("bufexists('pi://entry/changes') && search('^+new$', 'n') > 0")
        .await;
    nv.command("Pi restore").await;
    // What was written unasked is part of this review, and not a second thing under the same key.
    nv.wait_lua(
        "local all = require('pi.review.state').all() return #all == 1 and all[1].state == 'open'",
    )
    .await;
    nv.command("Pi review next").await;
    nv.wait("bufname() =~ 'a.txt$' && get(get(b:, 'pi_review', {}), 'pending') == 1")
        .await;
    nv.command("Pi review accept").await;
    nv.wait("readfile('a.txt') == ['one'] && getline(1, '$') == ['one'] && !&modified")
        .await;
    shown(&nv, "pi: restored a.txt").await;
    nv.wait_lua("return #require('pi.review.state').all() == 0")
        .await;

    // Neovim's own undo brings the text again, and a redo takes it away.
    nv.keys("u").await;
    nv.wait("getline(1, '$') == ['one', 'new'] && &modified")
        .await;
    nv.keys("<C-r>").await;
    nv.wait("getline(1, '$') == ['one'] && !&modified").await;
    // Undoing the decision writes the text again, as one more step of Neovim's own undo.
    nv.command("Pi review undo").await;
    nv.wait("readfile('a.txt') == ['one', 'new'] && getline(1, '$') == ['one', 'new']")
        .await;
    nv.keys("u").await;
    nv.wait("getline(1, '$') == ['one'] && &modified").await;
    nv.keys("u").await;
    nv.wait("getline(1, '$') == ['one', 'new']").await;
}

#[tokio::test]
async fn a_file_that_a_run_made_is_gone_when_that_is_put_back() {
    let (_model, nv) = wrote("made.txt", Vec::new(), "one\ntwo\n").await;
    nv.command("edit made.txt").await;
    nv.command("Pi restore").await;
    nv.wait("get(get(b:, 'pi_review', {}), 'pending') == 1 && line('$') == 2")
        .await;
    nv.wait_lua(
        "local all = require('pi.review.state').all() return #all == 1 and all[1].state == 'open'",
    )
    .await;
    nv.command("Pi review accept").await;
    nv.wait("!filereadable('made.txt') && getline(1, '$') == ['']")
        .await;
    shown(&nv, "pi: restored made.txt").await;
}

#[tokio::test]
async fn a_key_that_does_nothing_says_why() {
    let files = vec![("a.txt", "one\n".to_owned())];
    let (_model, nv) = wrote("a.txt", files, "ONE\n").await;
    nv.command("edit a.txt").await;
    nv.wait("get(get(b:, 'pi_review', {}), 'pending') == 1")
        .await;
    nv.command("Pi review accept").await;
    shown(&nv, "1 hunk(s) looked at").await;
    nv.command("Pi restore").await;
    nv.wait("get(get(b:, 'pi_review', {}), 'pending') == 1")
        .await;
    nv.command("Pi review accept").await;
    shown(&nv, "pi: restored a.txt").await;
    // The line in question says something else now.
    nv.lua(
        "vim.fn.writefile({ 'other' }, 'a.txt') vim.cmd('checktime')",
        json!([]),
    )
    .await;
    nv.command("Pi review undo").await;
    shown(&nv, "not reverted: ").await;
    nv.command("Pi review undo").await;
    shown(&nv, "nothing to undo").await;
    nv.command("Pi review drop").await;
    shown(&nv, "nothing to review here").await;
}
