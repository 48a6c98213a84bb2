//! What commands of the model do to files that are known.

use pretty_assertions::assert_eq;
use serde_json::json;

use super::harness::{Nv, Options};
use super::model::{Model, call, say};

/// Runs one command behind a read of `read.txt`, with `open.txt` and `gone.txt` open.
async fn ran(command: &str) -> (Model, Nv) {
    let model = Model::start(vec![
        call("c1", "read", json!({"path": "read.txt"})),
        call("c2", "bash", json!({ "command": command })),
        say("all done"),
        say("and again"),
    ])
    .await;
    let text = || "one\ntwo\n".to_owned();
    let nv = model
        .nvim(Options {
            files: ["read.txt", "open.txt", "gone.txt", "unknown.txt"]
                .map(|name| (name, text()))
                .into(),
            before: "vim.g.pi = { review = { mode = 'auto' } }",
            ..Options::default()
        })
        .await;
    nv.command("set hidden | edit gone.txt | edit open.txt")
        .await;
    nv.command("Pi ask run it").await;
    nv.wait_lua(
        "local buf = require('pi.chat').buffer(vim.t.pi_session)
         return table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n'):find('all done')
           and require('pi.status').data().state == 'idle'",
    )
    .await;
    (model, nv)
}

const LISTED: &str = "
    local out = {}
    for _, it in ipairs(require('pi.review.state').all()) do
      out[#out + 1] = { it.kind, it.display, it.tool, #it.hunks }
    end
    table.sort(out, function(a, b) return a[2] < b[2] end)
    return out";

#[tokio::test]
async fn changed_and_removed_files_are_listed_and_taken_back() {
    let (model, nv) =
        ran("echo three >> read.txt; sed -i s/one/ONE/ open.txt; rm gone.txt; echo x > unknown.txt; touch fresh.txt").await;
    nv.wait_lua("return #require('pi.review.state').all() == 3")
        .await;
    assert_eq!(
        nv.lua(LISTED, json!(null)).await,
        json!([
            ["D", "gone.txt", "bash", 1],
            ["M", "open.txt", "bash", 1],
            ["M", "read.txt", "bash", 1]
        ])
    );
    // The buffer shows what is on disk, with its hunk.
    nv.command("wincmd t | buffer open.txt").await;
    nv.wait("getline(1, '$') == ['ONE', 'two'] && get(get(b:, 'pi_review', {}), 'pending') == 1")
        .await;
    nv.command("1 | Pi review reject").await;
    nv.wait("readfile('open.txt') == ['one', 'two'] && getline(1) == 'one'")
        .await;
    // Seen is seen.
    nv.command("edit read.txt").await;
    nv.wait("get(get(b:, 'pi_review', {}), 'pending') == 1")
        .await;
    nv.command("3 | Pi review accept").await;
    nv.wait_lua("return #require('pi.review.state').all() == 1")
        .await;
    assert_eq!(
        nv.eval("readfile('read.txt')").await,
        json!(["one", "two", "three"])
    );
    // A removed file comes back.
    nv.lua(
        "local it = require('pi.review.state').all()[1]
         require('pi.review.port').send({ action = 'reject', hunks = { it.hunks[1].id } })",
        json!(null),
    )
    .await;
    nv.wait("filereadable('gone.txt') && readfile('gone.txt') == ['one', 'two']")
        .await;
    nv.wait_lua("return #require('pi.review.state').all() == 0")
        .await;
    // The model hears what was taken back.
    nv.command("Pi ask and now").await;
    nv.wait_lua(
        "local buf = require('pi.chat').buffer(vim.t.pi_session)
         return table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n'):find('and again')",
    )
    .await;
    let last = model.requests().pop().unwrap().to_string();
    assert!(
        last.contains("the user reverted hunk 1 of your edit to open.txt"),
        "{last}"
    );
    assert!(
        last.contains("the user reverted hunk 1 of your edit to gone.txt"),
        "{last}"
    );
    nv.command("Pi changes session").await;
    nv.wait("bufexists('pi://entry/changes') && search('^+three$', 'n') > 0")
        .await;
}

#[tokio::test]
async fn a_command_that_changes_nothing_known_lists_nothing() {
    let (_model, nv) = ran("cat read.txt; touch open.txt; echo x > unknown.txt").await;
    assert_eq!(
        nv.lua("return #require('pi.review.state').all()", json!(null))
            .await,
        json!(0)
    );
    assert_eq!(nv.eval("&modified").await, json!(0));
}
