//! Longer stories: undo across changes, people who type, save, reload and delete while something waits.

use pi_nvim::review::{ReviewAction, ReviewEvent};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::stage::Stage;

const TEXT: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";
const NEXT: &str = ":lua require('pi.review').next()<CR>";
const UNDO: &str = ":lua require('pi.review').undo()<CR>";

/// Notes for the model that came so far.
fn notes(events: &mut tokio::sync::mpsc::UnboundedReceiver<ReviewEvent>) -> Vec<String> {
    let mut found = Vec::new();
    while let Ok(event) = events.try_recv() {
        if let ReviewEvent::ModelNote { text, .. } = event {
            found.push(text);
        }
    }
    found
}

#[tokio::test]
async fn a_written_change_is_taken_back_while_the_next_one_waits() {
    let stage = Stage::start(&[("a.txt", TEXT)]).await;
    stage.nv.command("edit a.txt").await;
    let mut events = stage.gate.subscribe();
    let first = stage.edit("a.txt", &[("two\n", "2a\n2b\n")]);
    stage.wait_open(1).await;
    stage.nv.command("2").await;
    stage.nv.keys("g.a").await;
    first.text().await;
    let second = stage.edit("a.txt", &[("nine\n", "9\n")]);
    stage.nv.wait_lua("local p = require('pi.review.state').with_pending()[1] return p and p.hunks[1].row == 9").await;
    stage.nv.keys(UNDO).await;
    stage.nv.wait_lua("local p = require('pi.review.state').with_pending()[1] return p and p.hunks[1].row == 8").await;
    assert_eq!(stage.disk("a.txt"), TEXT);
    let told = notes(&mut events);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("Note: the user reverted hunk 1 of your edit to a.txt"),
        "{told:?}"
    );
    stage.nv.command("9").await;
    stage.nv.keys("g.a").await;
    second.text().await;
    assert_eq!(stage.disk("a.txt"), TEXT.replace("nine", "9"));
}

#[tokio::test]
async fn plain_undo_tells_the_model_once_when_it_is_saved() {
    let stage = Stage::start(&[("a.txt", TEXT)]).await;
    stage.nv.command("edit a.txt").await;
    let mut events = stage.gate.subscribe();
    let call = stage.edit("a.txt", &[("two\n", "2\n")]);
    stage.wait_open(1).await;
    stage.nv.command("2").await;
    stage.nv.keys("g.a").await;
    call.text().await;
    stage.wait_clear().await;
    stage.nv.keys("u").await;
    stage.nv.wait("getline(2) == 'two'").await;
    assert_eq!(notes(&mut events), Vec::<String>::new());
    stage.nv.command("write").await;
    stage.nv.command("write").await;
    // A change that goes through everything after the writes shows that their messages were heard.
    let after = stage.edit("a.txt", &[("ten\n", "10\n")]);
    stage.wait_open(1).await;
    stage.gate_accept_all();
    after.text().await;
    let told = notes(&mut events);
    assert_eq!(told.len(), 1, "{told:?}");
}

#[tokio::test]
async fn an_undo_right_behind_undo_and_redo_of_the_editor_finds_the_change() {
    let stage = Stage::start(&[("a.txt", TEXT)]).await;
    stage.nv.command("edit a.txt").await;
    for _ in 0..12 {
        let call = stage.edit("a.txt", &[("two\n", "2\n")]);
        stage.wait_open(1).await;
        stage.nv.command("2").await;
        stage.nv.keys("g.a").await;
        call.text().await;
        stage.wait_clear().await;
        // All in one go, so that nothing has time to follow.
        let keys = "silent normal! u\nsilent write\nsilent redo\nsilent write\nlua require('pi.review').undo()";
        stage.nv.lua("vim.cmd(...)", json!([keys])).await;
        stage.nv.wait("getline(2) == 'two' && !&modified").await;
        assert_eq!(stage.disk("a.txt"), TEXT);
    }
}

#[tokio::test]
async fn a_decision_made_elsewhere_waits_for_the_end_of_typing() {
    let stage = Stage::start(&[("a.txt", TEXT)]).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit("a.txt", &[("two\n", "2\n")]);
    stage.wait_open(1).await;
    stage.nv.command("9").await;
    stage.nv.keys("Atyped").await;
    stage.nv.wait("getline(9) == 'ninetyped'").await;
    stage.gate_accept_all();
    stage.nv.wait("exists('#pi.review.commit.1')").await;
    assert_eq!(stage.disk("a.txt"), TEXT);
    stage.nv.keys(" more<Esc>").await;
    call.text().await;
    let expected = TEXT.replace("two", "2").replace("nine", "ninetyped more");
    assert_eq!(stage.disk("a.txt"), expected);
    stage.nv.keys("u").await;
    stage
        .nv
        .wait("getline(2) == 'two' && getline(9) == 'ninetyped more'")
        .await;
}

#[tokio::test]
async fn a_formatter_that_sets_the_whole_buffer_moves_the_hunk() {
    let stage = Stage::start(&[("a.txt", TEXT)]).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit("a.txt", &[("eight\n", "8\n")]);
    stage.wait_open(1).await;
    let format = "local lines = vim.api.nvim_buf_get_lines(0, 0, -1, false)
        table.insert(lines, 1, 'header') table.insert(lines, 4, 'between')
        vim.api.nvim_buf_set_lines(0, 0, -1, false, lines)";
    stage.nv.lua(format, json!(null)).await;
    stage
        .nv
        .wait_lua("return require('pi.review.state').with_pending()[1].hunks[1].row == 9")
        .await;
    assert_eq!(stage.marks("a.txt").await, ["below 10: 8", "10 ~"]);
    stage.nv.command("10").await;
    stage.nv.keys("g.a").await;
    call.text().await;
    assert!(
        stage
            .disk("a.txt")
            .starts_with("header\none\ntwo\nbetween\nthree\n")
    );
    assert!(stage.disk("a.txt").contains("seven\n8\nnine\n"));
}

#[tokio::test]
async fn a_link_and_odd_spellings_are_the_same_buffer() {
    let stage = Stage::start(&[("real/a.txt", TEXT)]).await;
    std::os::unix::fs::symlink("real/a.txt", stage.path("link.txt")).unwrap();
    stage.nv.command("edit link.txt").await;
    let call = stage.edit("real/../real//a.txt", &[("two\n", "2\n")]);
    stage.wait_open(1).await;
    assert_eq!(stage.marks("link.txt").await, ["below 2: 2", "2 ~"]);
    stage.nv.command("2").await;
    stage.nv.keys("g.a").await;
    call.text().await;
    assert_eq!(stage.disk("real/a.txt"), TEXT.replace("two", "2"));
    assert!(stage.path("link.txt").is_symlink());
    assert_eq!(
        stage
            .nv
            .eval("[len(getbufinfo({'bufloaded': 1})), getline(2), &modified]")
            .await,
        json!([1, "2", 0])
    );
}

#[tokio::test]
async fn unsaved_lines_are_said_and_saved_with_the_accepted_ones() {
    let stage = Stage::start(&[("a.txt", TEXT)]).await;
    stage.nv.attach(120, 20).await;
    stage.nv.command("edit a.txt").await;
    stage.nv.command("call setline(1, 'ONE')").await;
    let call = stage.edit("a.txt", &[("five\n", "5\n")]);
    stage.wait_open(1).await;
    stage.nv.keys("]c").await;
    stage
        .nv
        .wait_screen("the warning", |screen| {
            screen.text().contains("unsaved changes")
        })
        .await;
    stage.nv.keys("g.a").await;
    call.text().await;
    assert_eq!(
        stage.disk("a.txt"),
        TEXT.replace("one", "ONE").replace("five", "5")
    );
    assert_eq!(stage.nv.eval("&modified").await, json!(0));
}

#[tokio::test]
async fn hidden_and_unopened_files_are_reviewed_and_written_all_the_same() {
    let stage = Stage::start(&[("a.txt", TEXT), ("b.txt", TEXT), ("c.txt", TEXT)]).await;
    stage
        .nv
        .command("set hidden | edit b.txt | edit a.txt")
        .await;
    let calls = ["a.txt", "b.txt", "c.txt"].map(|name| stage.edit(name, &[("two\n", "2\n")]));
    stage.wait_open(3).await;
    for name in ["a.txt", "b.txt", "c.txt"] {
        assert_eq!(stage.disk(name), TEXT);
    }
    stage.nv.keys("g.yg.y").await;
    for call in calls {
        call.text().await;
    }
    for name in ["a.txt", "b.txt", "c.txt"] {
        assert_eq!(stage.disk(name), TEXT.replace("two", "2"));
    }
    assert_eq!(stage.nv.eval("bufloaded('c.txt')").await, json!(0));
    assert_eq!(stage.nv.eval("getbufline('b.txt', 2)").await, json!(["2"]));
}

#[tokio::test]
async fn a_deleted_buffer_is_opened_again() {
    let stage = Stage::start(&[("a.txt", TEXT), ("b.txt", TEXT)]).await;
    stage.nv.command("edit b.txt | edit a.txt").await;
    let call = stage.edit("a.txt", &[("nine\n", "9\n")]);
    stage.wait_open(1).await;
    stage.nv.command("bdelete").await;
    assert!(!call.is_finished());
    stage.nv.keys(NEXT).await;
    stage
        .nv
        .wait("expand('%') == 'a.txt' && line('.') == 9 && maparg('g.a', 'n') != ''")
        .await;
    assert_eq!(stage.marks("a.txt").await, ["below 9: 9", "9 ~"]);
    stage.nv.keys("g.a").await;
    call.text().await;
    assert_eq!(stage.disk("a.txt"), TEXT.replace("nine", "9"));
}

#[tokio::test]
async fn a_read_only_file_is_written_after_one_more_question() {
    let stage = Stage::start(&[("a.txt", TEXT)]).await;
    stage.nv.command("edit a.txt | setlocal readonly").await;
    stage.nv.lua("vim.ui.select = function(items, opts, done) vim.g.asked = opts.prompt done(items[1]) end", json!(null)).await;
    let call = stage.edit("a.txt", &[("two\n", "2\n")]);
    stage.wait_open(1).await;
    stage.nv.command("2").await;
    stage.nv.keys("g.a").await;
    stage.nv.wait_lua("local p = require('pi.review.state').with_pending()[1] return p and p.notice and p.notice:find('write anyway?', 1, true)").await;
    assert_eq!(stage.disk("a.txt"), TEXT);
    stage.nv.keys("g.a").await;
    call.text().await;
    assert_eq!(stage.disk("a.txt"), TEXT.replace("two", "2"));
    assert_eq!(
        stage.nv.eval("g:asked").await,
        json!("a.txt is read-only. Write it anyway?")
    );
}

#[tokio::test]
async fn when_core_is_gone_the_screen_is_clean_and_the_log_has_the_change() {
    let stage = Stage::start(&[("a.txt", TEXT)]).await;
    stage.nv.command("edit a.txt").await;
    let _call = stage.edit("a.txt", &[("two\n", "2\n")]);
    let _new = stage.write("new.txt", "x\n");
    stage.wait_open(2).await;
    stage.nv.keys("g.l").await;
    stage.nv.wait("bufname() == 'pi://review'").await;
    stage
        .nv
        .lua("require('pi.review').lost()", json!(null))
        .await;
    assert_eq!(stage.marks("a.txt").await, Vec::<String>::new());
    assert_eq!(
        stage
            .nv
            .eval("[winnr('$'), maparg('g.a', 'n'), g:pi_attention]")
            .await,
        json!([1, "", 0])
    );
    let log = stage
        .nv
        .lua(
            "return table.concat(require('pi.log').lines(), '\\n')",
            json!(null),
        )
        .await;
    let log = log.as_str().unwrap();
    for line in [
        "not applied: a.txt",
        "-two",
        "+2",
        "not applied: new.txt",
        "+x",
    ] {
        assert!(log.contains(line), "{log}");
    }
}

#[tokio::test]
async fn the_cursor_stays_where_it_is_when_a_hunk_is_rejected() {
    let text: String = (1..=80).map(|n| format!("line {n}\n")).collect();
    let before = "vim.g.pi = { review = { advance = false } }";
    let stage = Stage::start_with(
        &[("a.txt", text.as_str())],
        before,
        pi_nvim::review::ReviewMode::Ask,
    )
    .await;
    stage.nv.attach(60, 20).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit(
        "a.txt",
        &[
            ("line 40\n", "forty\nand more\n"),
            ("line 70\n", "seventy\n"),
        ],
    );
    stage.wait_open(1).await;
    stage.nv.command("normal! 40Gzz").await;
    let before = stage.nv.eval("[line('.'), line('w0')]").await;
    stage.nv.keys("g.r").await;
    stage
        .nv
        .wait_lua(
            "return require('pi.review.state').with_pending()[1].hunks[1].state == 'rejected'",
        )
        .await;
    assert_eq!(stage.nv.eval("[line('.'), line('w0')]").await, before);
    stage.nv.keys("g.R").await;
    call.refusal().await;
    stage.wait_clear().await;
    assert_eq!(stage.nv.eval("[line('.'), line('w0')]").await, before);
    assert_eq!(stage.disk("a.txt"), text);
}

#[tokio::test]
async fn diff_windows_of_others_keep_their_own_motions() {
    let stage = Stage::start(&[("a.txt", TEXT), ("b.txt", &TEXT.replace("nine", "NINE"))]).await;
    stage
        .nv
        .command("edit a.txt | diffthis | vsplit b.txt | diffthis | wincmd p")
        .await;
    stage.nv.command("1").await;
    let call = stage.edit("a.txt", &[("four\n", "4\n")]);
    stage.wait_open(1).await;
    assert_eq!(stage.marks("a.txt").await, Vec::<String>::new());
    stage.nv.keys("]c").await;
    stage.nv.wait("line('.') == 9").await;
    stage.gate_accept_all();
    call.text().await;
    stage.wait_clear().await;
    assert_eq!(
        stage
            .nv
            .eval("[winnr('$'), &diff, getwinvar(2, '&diff')]")
            .await,
        json!([2, 1, 1])
    );
}

#[tokio::test]
async fn an_answer_instead_of_decisions_rejects_everything() {
    let stage = Stage::start(&[("a.txt", TEXT), ("b.txt", TEXT)]).await;
    stage.nv.command("edit a.txt").await;
    let first = stage.edit("a.txt", &[("two\n", "2\n")]);
    let waiting = stage.edit("a.txt", &[("three\n", "3\n")]);
    let other = stage.edit("b.txt", &[("two\n", "2\n")]);
    stage.wait_open(2).await;
    let action = ReviewAction::RejectAll {
        session: None,
        note: Some("use numerals everywhere".into()),
    };
    stage.gate.act(action).unwrap();
    for call in [first, waiting, other] {
        let text = call.refusal().await;
        assert!(text.contains("use numerals everywhere"), "{text}");
    }
    stage.wait_clear().await;
    assert_eq!(stage.disk("a.txt"), TEXT);
    assert_eq!(stage.marks("a.txt").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_locked_text_is_changed_when_it_is_free_again() {
    let stage = Stage::start(&[("a.txt", TEXT)]).await;
    stage.nv.command("edit a.txt").await;
    stage.nv.lua("vim.keymap.set('n', 'x', function() vim.g.held = 1 vim.fn.getcharstr() return '' end, { expr = true })", json!(null)).await;
    let call = stage.edit("a.txt", &[("two\n", "2\n")]);
    stage.wait_open(1).await;
    stage.nv.keys("x").await;
    stage.nv.wait("get(g:, 'held', 0)").await;
    stage.gate_accept_all();
    stage
        .nv
        .wait_lua(
            "local p = require('pi.review.state').all()[1] return p and p.state == 'applying'",
        )
        .await;
    assert_eq!(stage.disk("a.txt"), TEXT);
    stage.nv.keys("y").await;
    call.text().await;
    assert_eq!(stage.disk("a.txt"), TEXT.replace("two", "2"));
}

#[tokio::test]
async fn scratch_buffers_are_nobody_elses() {
    let stage = Stage::start(&[]).await;
    let watch = "vim.g.lua = 0 vim.g.written = 0
        vim.api.nvim_create_autocmd('FileType', { pattern = 'lua', callback = function() vim.g.lua = vim.g.lua + 1 end })
        vim.api.nvim_create_autocmd('BufWritePre', { callback = function() vim.g.written = vim.g.written + 1 end })";
    stage.nv.lua(watch, json!(null)).await;
    let call = stage.write("new.lua", "return 1\n");
    stage.wait_open(1).await;
    stage.nv.keys(NEXT).await;
    stage.nv.wait("expand('%') =~ '^pi://proposal/'").await;
    stage.nv.keys("Gonote<Esc>").await;
    stage.nv.wait("&modified").await;
    stage.nv.command("silent wall").await;
    assert_eq!(
        stage
            .nv
            .eval("[g:lua, g:written, &swapfile, &buflisted]")
            .await,
        json!([0, 0, 0, 0])
    );
    assert!(!stage.path("new.lua").exists());
    assert!(!call.is_finished());
}

#[tokio::test]
async fn unsaved_lines_and_files_that_others_hold_are_asked_about_once() {
    let before = "vim.g.pi = { review = { unsaved = 'ask' } }";
    let files = [("a.txt", TEXT), ("b.txt", TEXT)];
    let stage = Stage::start_with(&files, before, pi_nvim::review::ReviewMode::Ask).await;
    stage
        .nv
        .lua(
            "_G.asked, _G.answer = {}, 'no'
             vim.ui.select = function(_, opts, done) table.insert(_G.asked, opts.prompt) done(_G.answer) end",
            json!(null),
        )
        .await;
    stage.nv.command("edit a.txt").await;
    stage.nv.command("call setline(1, 'ONE')").await;
    let call = stage.edit("a.txt", &[("five\n", "5\n"), ("nine\n", "9\n")]);
    stage.wait_open(1).await;
    stage.nv.keys("]c").await;
    stage.nv.keys("g.a").await;
    stage.nv.wait_lua("return #_G.asked == 1").await;
    stage.nv.lua("_G.answer = 'yes'", json!(null)).await;
    assert!(!call.is_finished());
    stage.nv.keys("g.ag.a").await;
    call.text().await;
    let expected = TEXT.replace("one", "ONE");
    assert_eq!(
        stage.disk("a.txt"),
        expected.replace("five", "5").replace("nine", "9")
    );
    stage.wait_clear().await;
    stage.nv.command("edit b.txt").await;
    stage.nv.command("let b:pi_swap = v:true").await;
    let held = stage.edit("b.txt", &[("two\n", "2\n")]);
    stage.wait_open(1).await;
    stage.nv.keys(NEXT).await;
    stage.nv.wait("expand('%') =~ '^pi://proposal/'").await;
    stage.nv.keys("g.a").await;
    held.text().await;
    assert_eq!(stage.disk("b.txt"), TEXT.replace("two", "2"));
    assert_eq!(
        stage.nv.lua("return _G.asked", json!(null)).await,
        json!([
            "a.txt has unsaved changes. Save them with the accepted ones?",
            "a.txt has unsaved changes. Save them with the accepted ones?",
            "b.txt is open in another Neovim. Write the file all the same?",
        ])
    );
}

#[tokio::test]
async fn unsaved_lines_are_asked_about_on_every_way_to_accept() {
    let before = "vim.g.pi = { review = { unsaved = 'ask' } }";
    let ways = [
        "normal g.a",
        "normal g.A",
        "normal g.y",
        "normal Vjg.a",
        "Pi review accept",
        "1,9Pi review accept",
        "Pi review accept file",
        "Pi review accept all",
    ];
    let stage =
        Stage::start_with(&[("a.txt", TEXT)], before, pi_nvim::review::ReviewMode::Ask).await;
    stage
        .nv
        .lua(
            "_G.asked, _G.answer = {}, 'no'
             vim.ui.select = function(_, opts, done) table.insert(_G.asked, opts.prompt) done(_G.answer) end",
            json!(null),
        )
        .await;
    stage.nv.command("edit a.txt").await;
    for (i, way) in ways.iter().enumerate() {
        let unsaved = format!("unsaved {i}");
        stage
            .nv
            .command(&format!("call setline(1, '{unsaved}')"))
            .await;
        let call = stage.edit("a.txt", &[("five\n", "5\n")]);
        stage.wait_open(1).await;
        for (answer, asked) in [("no", 1), ("yes", 2)] {
            stage.nv.lua("_G.answer = ...", json!([answer])).await;
            stage.nv.command("5").await;
            stage.nv.command(way).await;
            stage
                .nv
                .wait_lua(&format!("return #_G.asked == {asked}"))
                .await;
            if answer == "no" {
                // A message that comes after everything sent before: nothing was decided.
                stage.nv.command("Pi review note").await;
                assert!(!call.is_finished(), "{way}");
                assert!(!stage.disk("a.txt").contains(&unsaved), "{way}");
                stage.nv.keys("<Esc><Esc>").await;
                stage
                    .nv
                    .wait("mode() == 'n' && bufname() =~ 'a.txt$'")
                    .await;
            }
        }
        call.text().await;
        let disk = stage.disk("a.txt");
        assert!(
            disk.starts_with(&unsaved) && disk.contains("\n5\n"),
            "{way}: {disk}"
        );
        stage.wait_clear().await;
        stage.nv.lua("_G.asked = {}", json!(null)).await;
        stage
            .nv
            .command("5 | call setline(5, 'five') | silent write")
            .await;
    }
}
