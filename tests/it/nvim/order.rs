//! The order of the calls of one answer.

use pretty_assertions::assert_eq;
use serde_json::json;

use super::harness::Options;
use super::model::{Answer, Model, Piece, say};

#[tokio::test]
async fn a_command_asks_only_after_the_edit_before_it_was_decided() {
    let model = Model::start(vec![
        Answer::Pieces(vec![
            Piece::Call(
                "c1",
                "edit",
                json!({"path": "a.txt", "edits": [{"oldText": "old", "newText": "new"}]}),
            ),
            Piece::Call("c2", "bash", json!({"command": "cp a.txt seen.txt"})),
            Piece::Call("c3", "read", json!({"path": "a.txt"})),
        ]),
        say("finished"),
    ])
    .await;
    let nv = model
        .nvim(Options {
            files: vec![("a.txt", "old\n".into())],
            ..Options::default()
        })
        .await;
    nv.command("edit a.txt").await;
    nv.command("Pi ask go").await;
    nv.wait_lua("return #require('pi.review.state').with_pending() == 1")
        .await;
    // One more round trip: a question that had come with the edit would be here by then.
    nv.lua(
        "require('pi.rpc').request('tree.rows', { session = vim.t.pi_session },
            function() _G.answered = true end)",
        json!(null),
    )
    .await;
    nv.wait_lua("return _G.answered").await;
    assert_eq!(nv.eval("g:pi_attention").await, json!(1));
    nv.command("Pi review accept all").await;
    nv.wait_lua(
        "return #require('pi.review.state').with_pending() == 0 and vim.g.pi_attention == 1",
    )
    .await;
    assert_eq!(
        std::fs::read_to_string(nv.cwd.join("a.txt")).unwrap(),
        "new\n"
    );
    assert!(!nv.cwd.join("seen.txt").exists());
    nv.command("Pi attention").await;
    nv.wait("&filetype == 'pi-question' && search('cp a.txt seen.txt', 'n') > 0")
        .await;
    nv.keys("y").await;
    nv.wait("filereadable('seen.txt')").await;
    nv.wait_lua("return not require('pi.status').data().running")
        .await;
    assert_eq!(
        std::fs::read_to_string(nv.cwd.join("seen.txt")).unwrap(),
        "new\n"
    );
    let requests = model.requests();
    let messages = requests.last().unwrap()["messages"].as_array().unwrap();
    let results: Vec<_> = messages.iter().filter(|it| it["role"] == "tool").collect();
    assert_eq!(results.len(), 3);
    let read = results[2]["content"].to_string();
    assert!(read.contains("new") && !read.contains("old"), "{read}");
}
