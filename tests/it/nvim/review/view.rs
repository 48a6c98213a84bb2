//! What a person sees and presses: hunks in every awkward place, keys beside other people's keys, list, questions.

use expect_test::expect;
use pi_nvim::review::{ApprovalRequest, ReviewMode};
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::stage::Stage;

const NEXT: &str = ":lua require('pi.review').next()<CR>";

fn numbered(count: usize) -> String {
    (1..=count).map(|n| format!("line {n}\n")).collect()
}

/// Opens a file in a small editor, lets the model change it, jumps to the hunk, and expects a text on the screen.
async fn check_visible(setup: &str, before: &str, after: &str, seen: &[&str]) {
    let stage = Stage::start(&[("a.txt", before)]).await;
    stage.nv.attach(60, 16).await;
    stage.nv.command("edit a.txt").await;
    stage.nv.command("normal! G").await;
    stage.nv.command(setup).await;
    let _call = stage.write("a.txt", after);
    stage.wait_open(1).await;
    stage.press("]c").await;
    stage
        .nv
        .wait_screen(&format!("{seen:?}"), |screen| {
            seen.iter().all(|text| screen.text().contains(text))
        })
        .await;
}

#[tokio::test]
async fn an_insertion_before_the_first_line_is_seen() {
    let text = numbered(40);
    check_visible(
        "",
        &text,
        &format!("new one\nnew two\n{text}"),
        &["new one", "new two", "line 1"],
    )
    .await;
}

#[tokio::test]
async fn an_insertion_after_the_last_line_is_seen() {
    let text = numbered(40);
    let more = "new one\nnew two\nnew three\nnew four\n";
    check_visible(
        "normal! gg",
        &text,
        &format!("{text}{more}"),
        &["new one", "new four"],
    )
    .await;
}

#[tokio::test]
async fn an_insertion_into_an_empty_file_is_seen() {
    check_visible("", "", "new one\nnew two\n", &["new one", "new two"]).await;
}

#[tokio::test]
async fn a_hunk_in_a_closed_fold_is_opened() {
    let text = numbered(40);
    let setup = "set foldmethod=manual | 10,20fold | normal! G";
    check_visible(
        setup,
        &text,
        &text.replace("line 15\n", "changed\n"),
        &["line 15", "changed"],
    )
    .await;
}

#[tokio::test]
async fn a_long_line_is_broken_where_lines_wrap() {
    let long = format!("{}END\n", "word ".repeat(40));
    let text = numbered(40);
    check_visible(
        "set wrap",
        &text,
        &text.replace("line 5\n", &long),
        &["END"],
    )
    .await;
}

#[tokio::test]
async fn a_block_taller_than_the_window_opens_as_real_text() {
    let text = numbered(10);
    let many: String = (1..=40).map(|n| format!("new {n}\n")).collect();
    let stage = Stage::start(&[("a.txt", text.as_str())]).await;
    stage.nv.attach(60, 16).await;
    stage.nv.command("edit a.txt").await;
    let _call = stage.write("a.txt", format!("{many}{text}"));
    stage.wait_open(1).await;
    stage.press("]c").await;
    stage.nv.wait("expand('%') =~ '^pi://proposal/'").await;
    stage.nv.keys("G").await;
    stage
        .nv
        .wait_screen("the last lines", |screen| screen.text().contains("line 10"))
        .await;
}

#[tokio::test]
async fn a_closed_fold_says_that_it_hides_hunks() {
    let text = numbered(40);
    let stage = Stage::start(&[("a.txt", text.as_str())]).await;
    stage.nv.attach(60, 16).await;
    stage.nv.command("edit a.txt").await;
    stage
        .nv
        .command("set foldmethod=manual foldlevel=0 | 5,12fold")
        .await;
    let _call = stage.write(
        "a.txt",
        text.replace("line 8\n", "changed\n")
            .replace("line 20\n", "x\n"),
    );
    stage.wait_open(1).await;
    stage.nv.keys("j").await;
    stage
        .nv
        .wait_screen("the sign of the fold", |screen| screen.text().contains('±'))
        .await;
}

#[tokio::test]
async fn without_colour_signs_and_brackets_say_it() {
    let options = "vim.env.NO_COLOR = '1'";
    let stage =
        Stage::start_with(&[("a.txt", "let t = lex(s);\n")], options, ReviewMode::Ask).await;
    stage.nv.attach(60, 12).await;
    stage.nv.command("edit a.txt").await;
    let _call = stage.edit("a.txt", &[("lex(s)", "parse(s)")]);
    stage.wait_open(1).await;
    let screen = stage
        .nv
        .wait_screen("the new line", |screen| screen.text().contains("{+parse+}"))
        .await;
    expect![[r#"
        ~ - let t = [-lex-](s);          accept g.a  reject g.r
          + let t = {+parse+}(s);"#]]
    .assert_eq(
        screen.rows()[..2]
            .join("\n")
            .split("  1/1")
            .collect::<Vec<_>>()
            .join("")
            .as_str(),
    );
}

#[tokio::test]
async fn maps_of_other_plugins_come_back() {
    let stage = Stage::start(&[("a.txt", "one\n")]).await;
    stage.nv.command("edit a.txt").await;
    stage
        .nv
        .command("nnoremap <buffer> ]c :let g:theirs = 1<CR>")
        .await;
    stage.nv.command("split | wincmd w | vsplit").await;
    let sizes = stage.nv.eval("winrestcmd()").await;
    let call = stage.edit("a.txt", &[("one", "1")]);
    stage.wait_open(1).await;
    stage.nv.wait("maparg(']c', 'n') =~ 'pi-review-next'").await;
    stage.gate_accept_all();
    call.text().await;
    stage.wait_clear().await;
    assert_eq!(
        stage.nv.eval("maparg(']c', 'n')").await,
        json!(":let g:theirs = 1<CR>")
    );
    for lhs in ["g.a", "g.r", "[c", "]C"] {
        assert_eq!(
            stage.nv.eval(&format!("maparg('{lhs}', 'n')")).await,
            json!(""),
            "{lhs}"
        );
    }
    assert_eq!(stage.nv.eval("winrestcmd()").await, sizes);
}

#[tokio::test]
async fn a_prefix_that_others_use_is_left_to_them() {
    let before = "vim.g.mapleader = ' ' vim.g.maplocalleader = ' '
        vim.keymap.set('n', '<leader>rn', ':let g:renamed = 1<CR>')
        vim.keymap.set('n', '<leader>a', ':let g:mine = 1<CR>')";
    let stage = Stage::start_with(&[("a.txt", "one\n")], before, ReviewMode::Ask).await;
    stage.nv.attach(80, 12).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit("a.txt", &[("one", "1")]);
    stage.wait_open(1).await;
    stage
        .nv
        .wait_screen("the keys", |screen| screen.text().contains("accept g.a"))
        .await;
    for key in ["<Space>", "r", "n"] {
        stage.nv.keys(key).await;
    }
    stage.nv.wait("get(g:, 'renamed', 0)").await;
    stage
        .nv
        .command("let g:renamed = 0 | let @q = ' rn' | normal @q")
        .await;
    stage.nv.wait("g:renamed == 1").await;
    assert!(!call.is_finished());
    stage.nv.keys("g.a").await;
    call.text().await;
}

#[tokio::test]
async fn the_local_leader_is_used_when_it_is_free() {
    let before = "vim.g.mapleader = ' ' vim.g.maplocalleader = ','
        vim.keymap.set('n', ',,', ':let g:theirs = 1<CR>')";
    let stage = Stage::start_with(&[("a.txt", "one\n")], before, ReviewMode::Ask).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit("a.txt", &[("one", "1")]);
    stage.wait_open(1).await;
    stage.nv.keys(",,").await;
    stage.nv.wait("get(g:, 'theirs', 0)").await;
    stage.nv.keys(",a").await;
    call.text().await;
}

#[tokio::test]
async fn without_keys_every_action_is_a_command() {
    let before = "vim.g.pi = { keys = false }";
    let stage = Stage::start_with(
        &[("a.txt", "one\ntwo\nthree\nfour\nfive\n")],
        before,
        ReviewMode::Ask,
    )
    .await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit("a.txt", &[("one", "1"), ("five", "5")]);
    stage.wait_open(1).await;
    assert_eq!(stage.nv.eval("maparg(']c', 'n')").await, json!(""));
    stage
        .nv
        .lua("require('pi.review').command({ 'next' })", json!(null))
        .await;
    stage.nv.wait("line('.') == 5").await;
    stage
        .nv
        .lua("require('pi.review').command({ 'accept' })", json!(null))
        .await;
    stage
        .nv
        .lua(
            "require('pi.review').command({ 'reject' }, { range = { 1, 2 } })",
            json!(null),
        )
        .await;
    let text = call.text().await;
    assert!(text.starts_with("Applied 1 of 2 hunks"), "{text}");
    assert_eq!(stage.disk("a.txt"), "one\ntwo\nthree\nfour\n5\n");
}

#[tokio::test]
async fn somebody_who_types_is_left_alone() {
    let stage = Stage::start(&[("a.txt", "one\n"), ("b.txt", "two\n")]).await;
    let heard = "vim.g.heard = 0
        vim.api.nvim_create_autocmd('User', { pattern = 'PiAttention', callback = function() vim.g.heard = vim.g.heard + 1 end })";
    stage.nv.lua(heard, json!(null)).await;
    stage.nv.command("edit a.txt").await;
    stage.nv.keys("ihello").await;
    stage.nv.wait("mode() == 'i'").await;
    let _other = stage.edit("b.txt", &[("two", "2")]);
    stage.nv.wait("g:heard == 1").await;
    let asked = ask(&stage, "cargo test");
    stage.nv.wait("g:heard == 2").await;
    assert_eq!(
        stage
            .nv
            .eval("[mode(), expand('%'), winnr('$'), getline(1)]")
            .await,
        json!(["i", "a.txt", 1, "helloone"])
    );
    assert!(!asked.is_finished());
    stage.nv.wait("g:pi_attention == 2").await;
}

type Asked = tokio::task::JoinHandle<Result<(), pi_nvim::agent::ToolError>>;

fn ask(stage: &Stage, command: &str) -> Asked {
    let request = ApprovalRequest {
        session: "5e551017".into(),
        call_id: command.into(),
        tool: "bash".into(),
        command: command.into(),
    };
    tokio::spawn(stage.gate.approve(request, CancellationToken::new()))
}

async fn open_question(stage: &Stage) {
    stage.nv.wait("get(g:, 'pi_attention', 0) > 0").await;
    stage
        .nv
        .lua("require('pi.attention').open()", json!(null))
        .await;
    stage.nv.wait("&filetype == 'pi-question'").await;
}

#[tokio::test]
async fn a_command_runs_only_when_the_person_says_yes() {
    let stage = Stage::start(&[]).await;
    stage.nv.attach(80, 24).await;
    let asked = ask(&stage, "cargo test --all");
    open_question(&stage).await;
    stage
        .nv
        .wait_screen("the question", |screen| {
            screen.text().contains("always in this session: cargo test")
        })
        .await;
    stage.nv.keys("<Esc>").await;
    stage.nv.wait("&filetype != 'pi-question'").await;
    assert!(!asked.is_finished());
    open_question(&stage).await;
    stage.nv.keys("y").await;
    asked.await.unwrap().unwrap();
    stage.nv.wait("g:pi_attention == 0").await;
}

#[tokio::test]
async fn a_refusal_carries_its_reason() {
    let stage = Stage::start(&[]).await;
    let asked = ask(&stage, "rm -rf build && make");
    open_question(&stage).await;
    let text = stage.nv.lines(0).await.join("\n");
    assert!(!text.contains("always"), "{text}");
    stage.nv.keys("N").await;
    stage.nv.wait("mode() == 'i'").await;
    stage.nv.keys("use make clean<C-s>").await;
    let error = asked.await.unwrap().unwrap_err();
    assert!(
        error.message.contains("use make clean"),
        "{}",
        error.message
    );
}

#[tokio::test]
async fn a_prefix_is_allowed_for_the_session() {
    let stage = Stage::start(&[]).await;
    let asked = ask(&stage, "git status -s");
    open_question(&stage).await;
    stage.nv.keys("p").await;
    stage.nv.wait("mode() == 'c'").await;
    stage.nv.keys("<CR>").await;
    asked.await.unwrap().unwrap();
    ask(&stage, "git status").await.unwrap().unwrap();
    let other = ask(&stage, "git push");
    open_question(&stage).await;
    stage.nv.keys("n").await;
    other.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn keys_of_somebody_typing_do_not_answer_a_question_that_pops_up() {
    let stage = Stage::start(&[]).await;
    let prompt = "vim.bo.filetype = 'pi-prompt' vim.bo.buftype = 'nofile'
        vim.b.pi = { kind = 'prompt', session = '5e551017' }";
    stage.nv.lua(prompt, json!(null)).await;
    let freeze = "local now = vim.uv.hrtime() vim.uv.hrtime = function() return now end";
    stage.nv.lua(freeze, json!(null)).await;
    let asked = ask(&stage, "make");
    stage.nv.wait("&filetype == 'pi-question'").await;
    stage.nv.keys("y").await;
    stage.nv.command("let g:read = 1").await;
    assert!(!asked.is_finished());
    stage.nv.wait("&filetype == 'pi-question'").await;
    stage
        .nv
        .lua(
            "local now = vim.uv.hrtime() vim.uv.hrtime = function() return now + 1e9 end",
            json!(null),
        )
        .await;
    stage.nv.keys("y").await;
    asked.await.unwrap().unwrap();
}

#[tokio::test]
async fn nothing_modified_is_lost_without_hidden() {
    let stage = Stage::start(&[("a.txt", "one\n"), ("b.txt", "two\n")]).await;
    stage.nv.command("set nohidden").await;
    stage.nv.command("edit b.txt").await;
    stage.nv.command("call setline(1, 'unsaved')").await;
    let call = stage.edit("a.txt", &[("one", "1")]);
    stage.wait_open(1).await;
    stage.nv.keys(NEXT).await;
    stage.nv.wait("expand('%') == 'a.txt'").await;
    stage.nv.keys("g.e").await;
    stage.nv.wait("expand('%') =~ '^pi://proposal/'").await;
    stage.nv.keys("A!<Esc>").await;
    stage.nv.wait("&modified").await;
    stage.nv.keys(NEXT).await;
    stage.nv.wait("expand('%') == 'a.txt'").await;
    stage.nv.keys("g.eg.a").await;
    call.text().await;
    assert_eq!(stage.disk("a.txt"), "1!\n");
    stage.wait_clear().await;
    stage.nv.command("buffer b.txt").await;
    assert_eq!(stage.nv.lines(0).await, ["unsaved"]);
    let messages = stage.nv.eval("execute('messages')").await;
    assert!(!messages.as_str().unwrap().contains("E37"), "{messages}");
}

#[tokio::test]
async fn the_list_shows_and_decides_everything() {
    let stage = Stage::start(&[(
        "src/a.lua",
        "local a = 1\nlocal b = 2\nlocal c = 3\nlocal d = 4\n",
    )])
    .await;
    stage.nv.attach(100, 30).await;
    let first = stage.edit(
        "src/a.lua",
        &[("a = 1", "a = 10"), ("d = 4\n", "d = 40\nlocal e = 5\n")],
    );
    let second = stage.write("docs/new.md", "# New\n");
    let third = stage.edit("src/a.lua", &[("b = 2", "b = 20")]);
    stage.wait_open(2).await;
    stage
        .nv
        .lua("require('pi.review').command({ 'open' })", json!(null))
        .await;
    stage
        .nv
        .wait("bufname() == 'pi://review' && line('$') >= 7")
        .await;
    stage
        .nv
        .wait_lua("return #require('pi.review.state').all() == 3")
        .await;
    let list: Vec<String> = stage.nv.lines(0).await;
    let list: Vec<&str> = list.iter().map(|line| &line[1..]).collect();
    expect![[r#"
        Review   3 files  3 hunks   0 accepted  0 rejected  3 pending   mode: ask
        v M src/a.lua                                                 +3 -2    edit #1    0/2
            ?      1  local a = 10                                    +1 -1
            ?      4  local d = 40                                    +2 -1
        v A docs/new.md                                               +1       write #2   0/1
            ?      1  # New                                           +1
        > M src/a.lua                                                          edit #3    waits for #1"#]]
    .assert_eq(&list.join("\n"));
    stage.nv.keys("jan").await;
    stage.nv.wait("mode() == 'i'").await;
    stage.nv.keys("why this?<C-s>").await;
    stage
        .nv
        .wait("getline(6) =~ 'why this' && getline(4) =~ ' ok '")
        .await;
    stage.nv.keys(":2<CR>A").await;
    first.text().await;
    stage.nv.wait("getline(2) =~ 'docs/new.md'").await;
    stage.nv.keys(":3<CR>r").await;
    let refused = second.refusal().await;
    assert!(refused.contains("why this?"), "{refused}");
    stage.wait_open(1).await;
    stage.gate_accept_all();
    third.text().await;
    stage.wait_clear().await;
    stage.nv.wait("bufname() != 'pi://review'").await;
}

#[tokio::test]
async fn the_split_view_opens_in_a_tab_and_goes_back() {
    let stage = Stage::start(&[("a.txt", "one\ntwo\nthree\n")]).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit("a.txt", &[("two", "2")]);
    stage.wait_open(1).await;
    stage.nv.keys("jg.d").await;
    stage
        .nv
        .wait("tabpagenr('$') == 2 && &diff && winnr('$') == 2 && line('.') == 2")
        .await;
    stage.nv.wait("getline('.') == '2'").await;
    stage.nv.keys("g.d").await;
    stage
        .nv
        .wait("tabpagenr('$') == 1 && expand('%') == 'a.txt' && !&diff")
        .await;
    stage.nv.keys("g.d").await;
    stage.nv.wait("tabpagenr('$') == 2 && &diff").await;
    stage.nv.keys("g.a").await;
    call.text().await;
    stage
        .nv
        .wait("tabpagenr('$') == 1 && expand('%') == 'a.txt' && !&diff")
        .await;
    assert_eq!(stage.disk("a.txt"), "one\n2\nthree\n");
}

#[tokio::test]
async fn lines_of_a_hunk_can_be_taken_alone() {
    let stage = Stage::start(&[]).await;
    let call = stage.write("new.txt", "1\n2\n3\n4\n");
    stage.wait_open(1).await;
    stage.nv.keys(NEXT).await;
    stage.nv.wait("expand('%') =~ '^pi://proposal/'").await;
    stage.nv.keys("jVjg.a").await;
    stage
        .nv
        .wait_lua("return #require('pi.review.state').with_pending()[1].hunks == 3")
        .await;
    stage.nv.keys("g.R").await;
    call.text().await;
    assert_eq!(stage.disk("new.txt"), "2\n3\n");
}

#[tokio::test]
async fn the_text_object_selects_the_hunk() {
    let stage = Stage::start(&[("a.txt", "one\ntwo\nthree\nfour\n")]).await;
    stage.nv.command("edit a.txt").await;
    let _call = stage.edit("a.txt", &[("two\nthree\n", "2\n3\n4\n")]);
    stage.wait_open(1).await;
    stage.nv.keys("jyih").await;
    stage.nv.wait("getreg('\"') == \"two\\nthree\\n\"").await;
}

#[tokio::test]
async fn a_quickfix_list_of_its_own_is_kept_current() {
    let stage = Stage::start(&[("a.txt", "one\ntwo\nthree\nfour\nfive\n")]).await;
    stage.nv.command("edit a.txt").await;
    stage
        .nv
        .command("call setqflist([{'text': 'theirs'}])")
        .await;
    let _call = stage.edit("a.txt", &[("one", "1"), ("five", "5")]);
    stage.wait_open(1).await;
    stage
        .nv
        .lua("require('pi.review').command({ 'qf' })", json!(null))
        .await;
    stage
        .nv
        .wait("len(getqflist()) == 2 && getqflist({'title': 1}).title =~ '^Pi review'")
        .await;
    stage.nv.command("wincmd p | 1").await;
    stage.nv.keys("g.a").await;
    stage.nv.wait("len(getqflist()) == 1").await;
    stage.nv.command("colder").await;
    assert_eq!(stage.nv.eval("getqflist()[0].text").await, json!("theirs"));
}

#[tokio::test]
async fn a_file_that_is_not_text_is_shown_as_an_extract() {
    let stage = Stage::start(&[]).await;
    std::fs::write(stage.path("x.bin"), b"a\0b").unwrap();
    let call = stage.write("x.bin", b"a\0c");
    stage.wait_open(1).await;
    stage.nv.keys(NEXT).await;
    stage
        .nv
        .wait("getline(1) =~ '^Not text: 3 bytes now, 3 bytes proposed'")
        .await;
    assert_eq!(stage.nv.eval("&modifiable").await, json!(0));
    stage.nv.keys("g.A").await;
    call.text().await;
    assert_eq!(std::fs::read(stage.path("x.bin")).unwrap(), b"a\0c");
}

#[tokio::test]
async fn plain_text_says_the_same() {
    let before = "vim.g.pi = { review = { plain = true, view = 'proposal' } }";
    let stage = Stage::start_with(&[("a.txt", "one\ntwo\nthree\n")], before, ReviewMode::Ask).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.edit("a.txt", &[("two", "2")]);
    stage.wait_open(1).await;
    stage.nv.keys(NEXT).await;
    stage.nv.wait("expand('%') =~ '^pi://proposal/'").await;
    expect![[r#"
        @@ hunk 1 of 1: line 2, -1 +1 @@
         one
        -two
        +2
         three
    "#]]
    .assert_eq(&stage.nv.lines(0).await.join("\n"));
    stage.nv.keys("g.a").await;
    call.text().await;
    assert_eq!(stage.disk("a.txt"), "one\n2\nthree\n");
}

#[tokio::test]
async fn many_changes_in_a_big_file_open_quickly() {
    let text = numbered(18_000);
    let changed: String = (1..=18_000)
        .map(|n| {
            if n % 3 == 0 {
                format!("changed {n}\n")
            } else {
                format!("line {n}\n")
            }
        })
        .collect();
    let stage = Stage::start(&[("a.txt", text.as_str())]).await;
    stage.nv.attach(100, 30).await;
    stage.nv.command("edit a.txt").await;
    let call = stage.write("a.txt", &changed);
    stage.wait_open(1).await;
    stage.nv.keys("]c").await;
    stage
        .nv
        .wait_screen("a changed line", |screen| {
            screen.text().contains("changed 6")
        })
        .await;
    let count = "return #vim.api.nvim_buf_get_extmarks(0, vim.api.nvim_get_namespaces()['pi.review'], 0, -1, {})";
    let drawn = stage.nv.lua(count, json!(null)).await.as_u64().unwrap();
    assert!(drawn < 2_000, "{drawn} marks");
    stage.nv.keys("9000G").await;
    stage
        .nv
        .wait_screen("hunks further down", |screen| {
            screen.text().contains("changed 9000")
        })
        .await;
    stage.gate_accept_all();
    call.text().await;
    assert_eq!(stage.disk("a.txt"), changed);
}

/// Draws one line as virtual text and compares text and groups.
async fn check_virtual(
    stage: &Stage,
    line: serde_json::Value,
    paint: serde_json::Value,
    expected: serde_json::Value,
) {
    let code = "
        local line, paint = ...
        paint = vim.tbl_extend('force', require('pi.review.text').paint('add', 0), paint)
        local out = {}
        for _, chunks in ipairs(require('pi.review.text').virtual(line, paint)) do
          local parts = {}
          for _, chunk in ipairs(chunks) do
            parts[#parts + 1] = chunk[1] .. (#chunk[2] > 1 and '<' .. chunk[2][#chunk[2]] .. '>' or '')
          end
          out[#out + 1] = table.concat(parts, '|')
        end
        return out";
    let drawn = stage.nv.lua(code, json!([line, paint])).await;
    assert_eq!(drawn, expected, "{line}");
}

#[tokio::test]
async fn lines_are_drawn_cell_by_cell() {
    let stage = Stage::start(&[]).await;
    stage.nv.command("set tabstop=4").await;
    let some = json!({ "x": 1 });
    check_virtual(&stage, json!({"t": "a\tb"}), some.clone(), json!(["a   b"])).await;
    check_virtual(
        &stage,
        json!({"t": "a\u{1}\u{7f}"}),
        some.clone(),
        json!(["a^A^?"]),
    )
    .await;
    check_virtual(&stage, json!({"t": ""}), some.clone(), json!([" "])).await;
    check_virtual(
        &stage,
        json!({"t": "let x", "w": [4, 5]}),
        some.clone(),
        json!(["let |x<PiReviewAddWord>"]),
    )
    .await;
    check_virtual(
        &stage,
        json!({"t": "abc"}),
        json!({"width": 6}),
        json!(["abc|   "]),
    )
    .await;
    check_virtual(
        &stage,
        json!({"t": "日本語日本語"}),
        json!({"wrap": 11}),
        json!(["日本語日本| ", "語|         "]),
    )
    .await;
    check_virtual(
        &stage,
        json!({"t": "\u{65}\u{301}".repeat(12)}),
        json!({"wrap": 10}),
        json!([
            "\u{65}\u{301}".repeat(10),
            format!("{}|        ", "\u{65}\u{301}".repeat(2))
        ]),
    )
    .await;
    let long = "x".repeat(5000);
    let cut = format!("{}…", "x".repeat(2000));
    check_virtual(&stage, json!({ "t": long }), some, json!([cut])).await;
}

#[tokio::test]
async fn somebody_idle_in_the_prompt_sees_the_first_change_and_the_list() {
    let stage = Stage::start(&[("a.txt", "one\n"), ("b.txt", "two\n"), ("c.txt", "three\n")]).await;
    stage.nv.attach(120, 40).await;
    let prompt = "vim.cmd('botright vnew') vim.bo.filetype = 'pi-prompt' vim.bo.buftype = 'nofile'
        vim.b.pi = { kind = 'prompt', session = '5e551017' } vim.cmd.startinsert()";
    stage.nv.lua(prompt, json!(null)).await;
    stage.nv.wait("mode() == 'i'").await;
    let _first = stage.edit("a.txt", &[("one", "1")]);
    stage.wait_open(1).await;
    stage
        .nv
        .wait_screen("the hunk", |screen| screen.text().contains("~ one"))
        .await;
    let _second = stage.edit("b.txt", &[("two", "2")]);
    stage.wait_open(2).await;
    stage
        .nv
        .wait_screen("the list", |screen| {
            screen.text().contains("2 files  2 hunks")
        })
        .await;
    assert_eq!(
        stage.nv.eval("[mode(), &filetype]").await,
        json!(["i", "pi-prompt"])
    );
    let screen = stage.nv.screen().await;
    assert!(screen.text().contains("~ one"), "{}", screen.text());
}

#[tokio::test]
async fn the_list_takes_its_room_from_the_code_alone() {
    let stage = Stage::start(&[("a.txt", "one\n")]).await;
    stage.nv.attach(120, 40).await;
    stage
        .nv
        .command("edit a.txt | botright 9split | topleft 30vsplit | 2wincmd w")
        .await;
    let sizes = stage
        .nv
        .eval("map(getwininfo(), '[v:val.winid, v:val.width, v:val.height]')")
        .await;
    let _call = stage.edit("a.txt", &[("one", "1")]);
    stage.wait_open(1).await;
    stage
        .nv
        .lua("require('pi.review').command({ 'open' })", json!(null))
        .await;
    stage
        .nv
        .wait("bufname() == 'pi://review' && winheight(0) == 10")
        .await;
    let others = "map(filter(getwininfo(), 'v:val.bufnr != bufnr()'), '[v:val.winid, v:val.width, v:val.height]')";
    let now = stage.nv.eval(others).await;
    let rows = |value: &serde_json::Value| value.as_array().unwrap().clone();
    let changed = rows(&sizes)
        .iter()
        .zip(rows(&now))
        .filter(|(a, b)| **a != *b)
        .count();
    assert_eq!(changed, 1, "{sizes} {now}");
    stage.nv.keys("q").await;
    stage.nv.wait("bufname() != 'pi://review'").await;
    assert_eq!(
        stage
            .nv
            .eval("map(getwininfo(), '[v:val.winid, v:val.width, v:val.height]')")
            .await,
        sizes
    );
}
