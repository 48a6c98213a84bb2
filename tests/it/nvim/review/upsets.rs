//! Edited proposals, renamed buffers, files that change at a bad moment: with the real gate.

use pretty_assertions::assert_eq;
use serde_json::json;

use super::stage::Stage;

const FIVE: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";

/// Opens the proposal of `a.txt` and types into its second line.
async fn edit_proposal(stage: &Stage) {
    stage.nv.command("edit a.txt").await;
    stage.wait_open(1).await;
    stage.nv.command("2").await;
    stage.press("g.e").await;
    stage
        .nv
        .wait("expand('%') =~ '^pi://proposal/' && line('.') == 2")
        .await;
    stage.press("A mine<Esc>").await;
    stage.nv.wait("&modified").await;
}

/// Puts a line on top of the file, as a formatter of another program would, and waits until core has taken it in.
async fn put_on_top(stage: &Stage) {
    let lua = "
        local buf = vim.fn.bufnr('a.txt')
        vim.api.nvim_buf_set_lines(buf, 0, 0, false, { 'zero' })";
    stage.nv.lua(lua, json!(null)).await;
    stage
        .nv
        .wait_lua("return require('pi.review.state').with_pending()[1].hunks[1].row == 2")
        .await;
}

#[tokio::test]
async fn an_edited_proposal_keeps_what_came_to_the_file_meanwhile() {
    let stage = Stage::start(&[("a.txt", FIVE)]).await;
    let call = stage.edit("a.txt", &[("two", "2")]);
    edit_proposal(&stage).await;
    put_on_top(&stage).await;
    stage.press("g.A").await;
    call.text().await;
    assert_eq!(
        stage.disk("a.txt"),
        format!("zero\n{}", FIVE.replace("two", "2 mine"))
    );
}

#[tokio::test]
async fn an_edit_where_the_file_changed_is_kept_in_its_buffer() {
    let stage = Stage::start(&[("a.txt", FIVE)]).await;
    let call = stage.edit("a.txt", &[("two", "2")]);
    edit_proposal(&stage).await;
    let buf = stage.nv.eval("bufnr()").await;
    let lua = "vim.api.nvim_buf_set_lines(vim.fn.bufnr('a.txt'), 1, 2, false, { 'changed' })";
    stage.nv.lua(lua, json!(null)).await;
    stage
        .nv
        .wait_lua("return require('pi.review.state').with_pending()[1].hunks[1].state == 'stale'")
        .await;
    stage.press(":w<CR>").await;
    stage
        .expect_error("changed where you edited its proposal")
        .await;
    let kept = format!(
        "return vim.bo[{buf}].modified and vim.api.nvim_buf_get_lines({buf}, 1, 2, false)[1] == '2 mine'"
    );
    stage.nv.wait_lua(&kept).await;
    call.cancel.cancel();
}

#[tokio::test]
async fn accepting_everything_takes_edited_proposals_as_they_stand() {
    for keys in ["g.y", "g.l"] {
        let stage = Stage::start(&[("a.txt", FIVE)]).await;
        let call = stage.edit("a.txt", &[("two", "2")]);
        edit_proposal(&stage).await;
        stage.press(keys).await;
        if keys == "g.l" {
            stage.nv.wait("expand('%') =~ '^pi://review'").await;
            stage.press("A").await;
        }
        call.text().await;
        assert_eq!(stage.disk("a.txt"), FIVE.replace("two", "2 mine"));
    }
}

#[tokio::test]
async fn a_buffer_with_another_name_shows_no_hunks_any_more() {
    for rename in ["file other.txt", "saveas other.txt"] {
        let stage = Stage::start(&[("a.txt", FIVE)]).await;
        stage.nv.command("edit a.txt").await;
        let call = stage.edit("a.txt", &[("two", "2")]);
        stage.wait_open(1).await;
        assert!(!stage.marks("a.txt").await.is_empty());
        stage.nv.command(rename).await;
        assert_eq!(stage.marks("other.txt").await, Vec::<String>::new());
        assert_eq!(stage.nv.eval("maparg('g.a', 'n')").await, json!(""));
        // The change is still there to be decided, on the file it is about.
        stage.gate_accept_all();
        call.text().await;
        assert_eq!(stage.disk("a.txt"), FIVE.replace("two", "2"));
    }
}
