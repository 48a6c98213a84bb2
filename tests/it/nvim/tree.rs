//! The window of the session tree.

use pretty_assertions::assert_eq;
use serde_json::json;

use super::harness::{Nv, Options};
use super::model::{Model, call, say};

/// What `vim.ui.select` was asked, answered with the first choice.
const SELECT: &str = "_G.asked, _G.notes = {}, {}
    vim.ui.select = function(items, opts, done) table.insert(_G.asked, opts.prompt) done(items[1]) end
    vim.notify = function(text) table.insert(_G.notes, text) end";

async fn ask(nv: &Nv, prompt: &str, answer: &str) {
    nv.command(&format!("Pi ask {prompt}")).await;
    nv.wait_lua(&format!(
        "local buf = require('pi.chat').buffer(vim.t.pi_session)
         local text = table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n')
         return text:find({answer:?}, 1, true) and require('pi.status').data().state == 'idle'"
    ))
    .await;
}

/// A session whose second question was asked in two ways; the first of them wrote two files.
async fn forked() -> (Model, Nv) {
    let write = |id, path: &str| call(id, "write", json!({"path": path, "content": "x\n"}));
    let model = Model::start(vec![
        say("answer one"),
        write("c1", "a.txt"),
        write("c2", "b.txt"),
        write("c3", "b.txt"),
        say("answer two"),
        say("answer three"),
    ])
    .await;
    let nv = model
        .nvim(Options {
            before: "vim.g.pi = { review = { mode = 'auto' } }",
            ..Options::default()
        })
        .await;
    nv.attach(120, 40).await;
    nv.lua(SELECT, json!(null)).await;
    ask(&nv, "first question", "answer one").await;
    ask(&nv, "second question", "answer two").await;
    nv.command("Pi tree").await;
    nv.wait("&filetype == 'pi-tree' && search('answer one', 'wc') > 0")
        .await;
    (model, nv)
}

#[tokio::test]
async fn a_jump_tells_which_files_stay_and_the_branches_are_found() {
    let (_model, nv) = forked().await;
    nv.keys("<CR>").await;
    nv.wait_lua("return #_G.asked == 1").await;
    assert_eq!(
        nv.lua("return _G.asked[1]", json!(null)).await,
        json!(
            "Leave this branch (2 files were written after this point; a jump does not touch files, :Pi restore does)"
        )
    );
    nv.wait("search('answer one.*', 'wc') > 0").await;
    ask(&nv, "another way", "answer three").await;
    nv.command("Pi tree").await;
    nv.wait("&filetype == 'pi-tree' && search('answer three', 'wc') > 0")
        .await;
    nv.keys("l").await;
    nv.wait("getline('.') =~ 'answer two'").await;
    nv.keys("h").await;
    nv.wait("getline('.') =~ 'answer one'").await;
    nv.keys("l").await;
    nv.wait("getline('.') =~ 'answer three'").await;
    // Labels and when they were set.
    nv.lua(
        "vim.ui.input = function(_, done) done('goal') end",
        json!(null),
    )
    .await;
    nv.keys("L").await;
    nv.wait("getline('.') =~ '\\[goal\\]'").await;
    nv.keys("T").await;
    nv.wait("getline('.') =~ '\\[goal \\d\\d \\a\\+ \\d\\d:\\d\\d\\]'")
        .await;
}

#[tokio::test]
async fn a_person_who_wants_no_question_gets_none() {
    let (_model, nv) = forked().await;
    let settings = nv.root.path().join("agent/settings.json");
    let text = std::fs::read_to_string(&settings).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["branchSummary"] = json!({"skipPrompt": true});
    std::fs::write(&settings, value.to_string()).unwrap();
    nv.command("Pi reload").await;
    nv.wait_lua("return table.concat(_G.notes, ' '):find('read again', 1, true)")
        .await;
    nv.command("Pi tree").await;
    nv.wait("&filetype == 'pi-tree' && search('answer one', 'wc') > 0")
        .await;
    nv.keys("<CR>").await;
    nv.wait_lua("return table.concat(_G.notes, ' '):find('2 files were written', 1, true)")
        .await;
    assert_eq!(nv.lua("return #_G.asked", json!(null)).await, json!(0));
}
