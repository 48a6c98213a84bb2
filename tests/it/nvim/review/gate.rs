//! From a model's change over hunks and keys to bytes, with the real gate.

use expect_test::expect;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::stage::Stage;

const FIVE: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n\
                    eleven\ntwelve\nthirteen\nfourteen\n";

#[tokio::test]
async fn nothing_is_written_before_the_decision_whatever_saves() {
    let stage = Stage::start(&[("a.txt", FIVE)]).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit("a.txt", &[("two", "2")]);
    stage.wait_open(1).await;
    expect![[r#"
        below 2: 2
        2 ~"#]]
    .assert_eq(&stage.marks("a.txt").await.join("\n"));
    assert_eq!(stage.nv.lines(0).await[1], "two");
    let setup = "
        vim.api.nvim_create_autocmd('BufWritePre', { callback = function() vim.fn.setline(14, '14') end })
        vim.api.nvim_create_autocmd('TextChanged', { command = 'silent! wall' })";
    stage.nv.lua(setup, json!(null)).await;
    stage.nv.command("write").await;
    stage.nv.command("silent! wall").await;
    assert_eq!(stage.disk("a.txt"), FIVE.replace("fourteen", "14"));
    assert!(!call.is_finished());
    stage.nv.command("2").await;
    stage.press("g.a").await;
    assert_eq!(call.text().await, "Successfully changed a.txt");
    assert_eq!(
        stage.disk("a.txt"),
        FIVE.replace("two", "2").replace("fourteen", "14")
    );
    stage.wait_clear().await;
    assert_eq!(stage.marks("a.txt").await, Vec::<String>::new());
    stage.nv.command("undo").await;
    assert_eq!(stage.nv.lines(0).await[1], "two");
}

#[tokio::test]
async fn hunks_are_taken_and_left_one_by_one_with_reasons() {
    let stage = Stage::start(&[("a.txt", FIVE)]).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit(
        "a.txt",
        &[
            ("one\n", "1\n"),
            ("four\n", "4a\n4b\n"),
            ("seven\n", ""),
            ("ten\n", "10\n"),
            ("thirteen\n", "13\n"),
        ],
    );
    stage.wait_open(1).await;
    stage.nv.command("1").await;
    stage.press("g.a").await;
    stage.nv.wait("line('.') == 4").await;
    stage.press("1g.r").await;
    stage.nv.wait("mode() == 'i'").await;
    stage.press("keep it on one line<C-s>").await;
    stage.nv.wait("line('.') == 7").await;
    stage.press("g.a").await;
    stage.nv.wait("line('.') == 10").await;
    stage.press("g.a").await;
    stage.nv.wait("line('.') == 13").await;
    assert!(!call.is_finished());
    assert_eq!(stage.disk("a.txt"), FIVE);
    stage.press("g.r").await;
    let text = call.text().await;
    assert!(text.starts_with("Applied 3 of 5 hunks to a.txt."), "{text}");
    assert!(text.contains("keep it on one line"), "{text}");
    let expected = FIVE
        .replace("one\n", "1\n")
        .replace("seven\n", "")
        .replace("ten\n", "10\n");
    assert_eq!(stage.disk("a.txt"), expected);
    assert_eq!(stage.nv.lines(0).await.join("\n") + "\n", expected);
    stage.nv.command("undo").await;
    assert_eq!(stage.nv.lines(0).await.join("\n") + "\n", FIVE);
}

#[tokio::test]
async fn the_proposed_text_can_be_edited() {
    let stage = Stage::start(&[("a.txt", FIVE)]).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit("a.txt", &[("two\n", "2\n"), ("nine\n", "9\n")]);
    stage.wait_open(1).await;
    stage.nv.command("9").await;
    stage.press("g.e").await;
    stage
        .nv
        .wait("expand('%') =~ '^pi://proposal/' && line('.') == 9")
        .await;
    stage.press("A and a half<Esc>").await;
    stage.press(":w<CR>").await;
    stage
        .nv
        .wait_lua("return require('pi.review.state').with_pending()[1].hunks[2].edited")
        .await;
    assert_eq!(stage.disk("a.txt"), FIVE);
    stage.press("g.A").await;
    let text = call.text().await;
    assert!(
        text.starts_with("Applied with changes made by the user."),
        "{text}"
    );
    assert_eq!(
        stage.disk("a.txt"),
        FIVE.replace("two", "2").replace("nine", "9 and a half")
    );
    stage.nv.wait("expand('%') == 'a.txt'").await;
}

#[tokio::test]
async fn accepting_an_edited_proposal_takes_it_over_first() {
    let stage = Stage::start(&[("a.txt", FIVE)]).await;
    let call = stage.edit("a.txt", &[("two\n", "2\n")]);
    stage.wait_open(1).await;
    stage.press(":lua require('pi.review').next()<CR>").await;
    stage
        .nv
        .wait("expand('%') == 'a.txt' && line('.') == 2")
        .await;
    stage.press("g.e").await;
    stage.nv.wait("expand('%') =~ '^pi://proposal/'").await;
    stage.press("A!<Esc>g.a").await;
    call.text().await;
    assert_eq!(stage.disk("a.txt"), FIVE.replace("two", "2!"));
}

#[tokio::test]
async fn a_new_file_is_shown_whole_and_leaves_nothing_when_rejected() {
    let stage = Stage::start(&[]).await;
    let call = stage.write("deep/er/new.lua", "local x = 1\nreturn x\n");
    stage.wait_open(1).await;
    stage.press(":lua require('pi.review').next()<CR>").await;
    stage
        .nv
        .wait("expand('%') =~ 'pi://proposal/.*new.lua'")
        .await;
    assert_eq!(
        stage
            .nv
            .eval("[&buftype, &filetype, &swapfile, &buflisted]")
            .await,
        json!(["acwrite", "pi-proposal", 0, 0])
    );
    assert!(!stage.path("deep").exists());
    stage.press("g.R").await;
    let text = call.refusal().await;
    assert!(text.starts_with("The user rejected this change"), "{text}");
    assert!(!stage.path("deep").exists());
    stage.wait_clear().await;
    let call = stage.write("deep/er/new.lua", "local x = 2\nreturn x\n");
    stage.wait_open(1).await;
    stage.press(":lua require('pi.review').next()<CR>").await;
    stage.nv.wait("getline(1) == 'local x = 2'").await;
    stage.press("g.A").await;
    call.text().await;
    assert_eq!(stage.disk("deep/er/new.lua"), "local x = 2\nreturn x\n");
    stage
        .nv
        .wait("expand('%') == 'deep/er/new.lua' && &filetype == 'lua' && &buftype == ''")
        .await;
}

#[tokio::test]
async fn edits_of_one_file_queue_and_others_do_not() {
    let stage = Stage::start(&[("a.txt", FIVE), ("b.txt", FIVE)]).await;
    let first = stage.edit("a.txt", &[("two\n", "2\n")]);
    let second = stage.edit("a.txt", &[("three\n", "3\n")]);
    let third = stage.edit("b.txt", &[("four\n", "4\n")]);
    stage.wait_open(2).await;
    stage
        .press(":lua require('pi.review').command({'open'})<CR>")
        .await;
    stage.nv.wait("bufname() == 'pi://review'").await;
    let list = stage.nv.lines(0).await.join("\n");
    assert!(list.contains("waits for #1"), "{list}");
    stage.press("gaga").await;
    first.text().await;
    third.text().await;
    stage.wait_open(1).await;
    assert_eq!(stage.disk("a.txt"), FIVE.replace("two", "2"));
    assert_eq!(stage.disk("b.txt"), FIVE.replace("four\n", "4\n"));
    assert!(!second.is_finished());
    stage.gate_accept_all();
    second.text().await;
    assert_eq!(
        stage.disk("a.txt"),
        FIVE.replace("two", "2").replace("three", "3")
    );
}

#[tokio::test]
async fn typing_elsewhere_merges_and_typing_inside_is_a_conflict() {
    let stage = Stage::start(&[("a.txt", FIVE)]).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit("a.txt", &[("five\n", "5\n"), ("ten\n", "10\n")]);
    stage.wait_open(1).await;
    stage.press("ggOzero<Esc>").await;
    stage
        .nv
        .wait_lua("return require('pi.review.state').with_pending()[1].hunks[1].row == 5")
        .await;
    expect![[r#"
        below 6: 5
        6 ~
        below 11: 10
        11 ~"#]]
    .assert_eq(&stage.marks("a.txt").await.join("\n"));
    stage.press("/^ten<CR>Ax<Esc>").await;
    stage
        .nv
        .wait_lua("return require('pi.review.state').with_pending()[1].hunks[2].state == 'stale'")
        .await;
    stage.nv.command("6").await;
    stage.press("g.a").await;
    stage
        .nv
        .wait_lua(
            "return require('pi.review.state').with_pending()[1].hunks[1].state == 'accepted'",
        )
        .await;
    stage.nv.command("11").await;
    stage.press("g.r").await;
    let text = call.text().await;
    assert!(text.starts_with("Applied 1 of 2 hunks"), "{text}");
    assert!(
        text.contains("the file changed while the edit waited"),
        "{text}"
    );
    assert_eq!(
        stage.disk("a.txt"),
        format!(
            "zero\n{}",
            FIVE.replace("five", "5").replace("ten\n", "tenx\n")
        )
    );
}

#[tokio::test]
async fn a_reload_that_moves_lines_moves_the_hunk() {
    let body = |name: &str| format!("fn {name}() {{\n    body\n}}\n");
    let text: String = (1..=6).map(|n| body(&format!("f{n}"))).collect();
    let stage = Stage::start(&[("f.rs", text.as_str())]).await;
    stage.nv.command("edit f.rs").await;
    let call = stage.edit(
        "f.rs",
        &[(&body("f4"), &body("f4").replace("body", "changed"))],
    );
    stage.wait_open(1).await;
    let on_top = body("f0") + &text;
    std::fs::write(stage.path("f.rs"), &on_top).unwrap();
    let newer = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    let file = std::fs::File::options()
        .write(true)
        .open(stage.path("f.rs"))
        .unwrap();
    file.set_modified(newer).unwrap();
    stage.nv.command("checktime").await;
    stage
        .nv
        .wait_lua("return require('pi.review.state').with_pending()[1].hunks[1].row == 13")
        .await;
    expect![[r#"
        below 14:     changed
        14 ~"#]]
    .assert_eq(&stage.marks("f.rs").await.join("\n"));
    stage.nv.command("14").await;
    stage.press("g.a").await;
    call.text().await;
    let f4 = body("f4");
    assert_eq!(
        stage.disk("f.rs"),
        on_top.replace(&f4, &f4.replace("body", "changed"))
    );
}

#[tokio::test]
async fn decisions_are_taken_back_before_and_after_the_write() {
    let stage = Stage::start(&[("a.txt", FIVE)]).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit("a.txt", &[("two\n", "2\n"), ("nine\n", "9\n")]);
    stage.wait_open(1).await;
    let states = "local out = {}
        for _, h in ipairs(require('pi.review.state').with_pending()[1].hunks) do out[#out + 1] = h.state end
        return table.concat(out, ' ')";
    stage.nv.command("2").await;
    stage.press("g.a").await;
    stage.nv.wait("line('.') == 9").await;
    stage
        .nv
        .wait_lua(&format!(
            "return (function() {states} end)() == 'accepted pending'"
        ))
        .await;
    stage.press("g.u").await;
    stage
        .nv
        .wait_lua(&format!(
            "return (function() {states} end)() == 'pending pending'"
        ))
        .await;
    stage.press("g.A").await;
    call.text().await;
    stage.wait_clear().await;
    assert_eq!(
        stage.disk("a.txt"),
        FIVE.replace("two", "2").replace("nine", "9")
    );
    stage.press(":lua require('pi.review').undo()<CR>").await;
    stage
        .nv
        .wait("getline(2) == 'two' && getline(9) == 'nine' && !&modified")
        .await;
    assert_eq!(stage.disk("a.txt"), FIVE);
}

#[tokio::test]
async fn a_write_that_fails_leaves_the_hunks_pending() {
    let stage = Stage::start(&[("a.txt", FIVE)]).await;
    stage.nv.command("edit a.txt").await;
    stage
        .nv
        .command("autocmd BufWritePre * call setline(14, 'hook') | throw 'not today'")
        .await;
    let call = stage.edit("a.txt", &[("two\n", "2\n")]);
    stage.wait_open(1).await;
    stage.nv.command("2").await;
    stage.press("g.a").await;
    stage
        .nv
        .wait_lua("local p = require('pi.review.state').with_pending()[1] return p.notice and p.notice:find('not today') and p.hunks[1].state == 'pending'")
        .await;
    assert_eq!(stage.nv.lines(0).await.join("\n") + "\n", FIVE);
    assert_eq!(stage.nv.eval("&modified").await, json!(0));
    assert!(!call.is_finished());
    stage.nv.command("autocmd! BufWritePre").await;
    stage.press("g.a").await;
    call.text().await;
    assert_eq!(stage.disk("a.txt"), FIVE.replace("two", "2"));
}

#[tokio::test]
async fn an_abort_takes_everything_off_the_screen() {
    let stage = Stage::start(&[("a.txt", FIVE)]).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit("a.txt", &[("two\n", "2\n")]);
    stage.wait_open(1).await;
    assert_ne!(stage.marks("a.txt").await, Vec::<String>::new());
    call.cancel.cancel();
    assert_eq!(call.refusal().await, "Operation aborted");
    stage.wait_clear().await;
    assert_eq!(stage.marks("a.txt").await, Vec::<String>::new());
    assert_eq!(stage.nv.eval("maparg('g.a', 'n')").await, json!(""));
    assert_eq!(stage.disk("a.txt"), FIVE);
}

#[tokio::test]
async fn closing_never_decides() {
    for close in ["quit", "bwipeout!", "tabclose"] {
        let stage = Stage::start(&[]).await;
        stage.nv.command("tabnew").await;
        stage.nv.command("split").await;
        let call = stage.write("n.txt", "x\n");
        stage.wait_open(1).await;
        stage.press(":lua require('pi.review').next()<CR>").await;
        stage.nv.wait("expand('%') =~ 'pi://proposal'").await;
        stage.nv.command(close).await;
        stage.wait_open(1).await;
        assert!(!call.is_finished());
        stage.press(":lua require('pi.review').next()<CR>").await;
        stage
            .nv
            .wait("expand('%') =~ 'pi://proposal' && getline(1) == 'x'")
            .await;
    }
}

#[tokio::test]
async fn a_change_without_asking_is_listed_until_looked_at() {
    let stage = Stage::start_with(&[("a.txt", FIVE)], "", pi_nvim::review::ReviewMode::Auto).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit("a.txt", &[("two\n", "2\n"), ("nine\n", "")]);
    call.text().await;
    assert_eq!(
        stage.disk("a.txt"),
        FIVE.replace("two", "2").replace("nine\n", "")
    );
    stage
        .nv
        .wait_lua("return #require('pi.review.state').with_pending() == 1")
        .await;
    stage
        .nv
        .wait("getline(2) == '2' && maparg('g.r', 'n') != ''")
        .await;
    stage.nv.command("2").await;
    stage.press("g.r").await;
    stage.nv.wait("getline(2) == 'two'").await;
    assert_eq!(stage.disk("a.txt"), FIVE.replace("nine\n", ""));
}
