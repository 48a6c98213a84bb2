//! `:Pi changes` and `:Pi restore`.

use serde_json::json;

use super::harness::Options;
use super::model::{Model, call, say};

#[tokio::test]
async fn what_a_run_wrote_is_shown_and_its_way_back_is_a_review() {
    let model = Model::start(vec![
        call(
            "c1",
            "write",
            json!({"path": "a.txt", "content": "one\nnew\n"}),
        ),
        say("done"),
    ])
    .await;
    let nv = model
        .nvim(Options {
            files: vec![("a.txt", "one\n".to_owned())],
            before: "vim.g.pi = { review = { mode = 'auto' } }",
            ..Options::default()
        })
        .await;
    nv.command("Pi ask change it").await;
    nv.wait("readfile('a.txt') == ['one', 'new']").await;
    nv.wait_lua("local it = require('pi.status').data() return it and it.state == 'idle'")
        .await;
    nv.command("Pi changes").await;
    nv.wait("bufexists('pi://entry/changes') && search('^+new$', 'n') > 0")
        .await;
    nv.command("Pi restore").await;
    nv.wait_lua("return require('pi.review').pending() > 0")
        .await;
    nv.command("Pi review next").await;
    nv.wait("bufname() =~ 'a.txt$' && get(get(b:, 'pi_review', {}), 'pending') == 1")
        .await;
}
