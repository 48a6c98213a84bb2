//! The window of the session tree.

use pretty_assertions::assert_eq;
use serde_json::json;

use super::harness::{Nv, Options};
use super::model::{Answer, Model, Piece, call, say};
use super::seed::Seed;

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
            "Leave this branch (2 files were written after this point and stay as they are; r puts them back)"
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
    value["treeFilterMode"] = json!("user-only");
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
    // The filter they want holds for sessions opened from now on.
    let before = nv.eval("t:pi_session").await;
    nv.command("Pi new").await;
    nv.wait_lua(&format!("return vim.t.pi_session ~= {before}"))
        .await;
    nv.command("Pi tree").await;
    nv.wait("&filetype == 'pi-tree' && getline(1) =~ 'user-only'")
        .await;
}

/// A session with two branches below a labelled answer, opened with its tree in the current window.
async fn seeded(script: Vec<Answer>) -> (Model, Nv) {
    let model = Model::start(script).await;
    let nv = model.nvim(Options::default()).await;
    nv.attach(120, 40).await;
    let path = nv.root.path().join("agent/sessions/--x--/s.jsonl");
    let calls = json!([{"type": "text", "text": "let me look"},
        {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls"}}]);
    let result = json!({"role": "toolResult", "toolCallId": "c1", "toolName": "bash", "isError": false,
        "content": [{"type": "text", "text": "listing"}], "timestamp": 1});
    Seed::new("0198eeee-tree", &nv.cwd)
        .user("u1", None, "first question")
        .says("a1", "u1", "answer one")
        .entry(
            "label",
            "l1",
            Some("a1"),
            json!({"targetId": "a1", "label": "base"}),
        )
        .user("u2", Some("l1"), "second question")
        .answer("a2", "u2", calls, 0.0)
        .entry("message", "r2", Some("a2"), json!({ "message": result }))
        .says("a3", "r2", "answer two")
        .user("u3", Some("l1"), "another way")
        .says("a4", "u3", "answer three")
        .write(&path);
    nv.lua(
        "_G.asked, _G.notes = {}, {}
         vim.ui.select = function(items, opts, done)
           table.insert(_G.asked, opts.prompt)
           if _G.pick then done(items[_G.pick], _G.pick) else done(nil, nil) end
         end
         vim.ui.input = function(opts, done) table.insert(_G.asked, opts.prompt) done(_G.text) end
         vim.notify = function(text) table.insert(_G.notes, text) end",
        json!(null),
    )
    .await;
    nv.command(&format!("Pi resume {}", path.display())).await;
    nv.wait_lua("return vim.t.pi_session == '0198eeee-tree'")
        .await;
    nv.command("Pi tree").await;
    nv.wait("&filetype == 'pi-tree' && search('answer three', 'n') > 0")
        .await;
    (model, nv)
}

/// Whether the tree shows a row; `!` before a text means that it does not.
async fn rows(nv: &Nv, wanted: &[&str]) {
    let texts = "join(getbufline(bufnr('pi://tree/'), 2, '$'), '\n')";
    for text in wanted {
        match text.strip_prefix('!') {
            Some(text) => nv.wait(&format!("stridx({texts}, '{text}') < 0")).await,
            None => nv.wait(&format!("stridx({texts}, '{text}') >= 0")).await,
        }
    }
}

async fn on(nv: &Nv, text: &str) {
    nv.wait(&format!(
        "&filetype == 'pi-tree' && search('{text}', 'wc') > 0"
    ))
    .await;
}

async fn said(nv: &Nv, text: &str) {
    nv.wait_lua(&format!(
        "return table.concat(_G.notes, '\\n'):find({text:?}, 1, true)"
    ))
    .await;
}

/// Keys that move, fold, filter and show, from a row on: keys, row, what is true then.
const LOOKS: &[(&str, &str, &str)] = &[
    ("J", "first question", "getline('.') =~ 'answer one'"),
    ("K", "answer one", "getline('.') =~ 'first question'"),
    ("l", "answer three", "getline('.') =~ 'answer two'"),
    ("h", "answer two", "getline('.') =~ 'answer one'"),
    (".", "first question", "getline('.') =~ 'answer three'"),
    ("za", "another way", "search('answer three', 'n') == 0"),
    ("za", "another way", "search('answer three', 'n') > 0"),
    (
        "<Left>",
        "second question",
        "search('let me look', 'n') == 0",
    ),
    (
        "<Right>",
        "second question",
        "search('let me look', 'n') > 0",
    ),
    ("zM", "first question", "search('answer one', 'n') == 0"),
    ("zR", "first question", "search('answer two', 'n') > 0"),
    (
        "/bash: ls<CR>",
        "first question",
        "getline('.') =~ 'bash: ls'",
    ),
    ("2", "first question", "search('bash: ls', 'n') == 0"),
    ("3", "first question", "search('answer one', 'n') == 0"),
    (
        "4",
        "first question",
        "line('$') == 2 && search('base', 'n') > 0",
    ),
    ("5", "answer one", "search('label', 'n') > 0"),
    ("1", "answer one", "getline(1) =~ ' default '"),
    ("F", "answer one", "search('bash: ls', 'n') == 0"),
    ("<C-o>", "answer one", "search('answer one', 'n') == 0"),
    ("1", "first question", "search('bash: ls', 'n') > 0"),
    (
        "v",
        "answer one",
        "bufwinid('pi://tree-preview/0198eeee') < 0",
    ),
    (
        "v",
        "answer one",
        "bufwinid('pi://tree-preview/0198eeee') > 0",
    ),
    ("R", "answer one", "getline('.') =~ 'answer one'"),
    ("y", "answer two", "getreg('\"') =~ 'answer two'"),
    ("?", "answer one", "getline(1) =~ 'go on from here'"),
    ("q", "", "&filetype == 'pi-tree'"),
    (
        "o",
        "answer two",
        "bufname() =~ 'pi://entry/a3' && search('answer two', 'n') > 0",
    ),
    ("q", "", "&filetype == 'pi-tree'"),
];

#[tokio::test]
async fn every_key_of_the_tree_does_what_it_says() {
    let (model, nv) = seeded(vec![say("what was left"), say("with a view")]).await;
    // Order and shape: the branch one is on comes first.
    let lines = nv.lines(0).await;
    let places: Vec<_> = [
        "first question",
        "[base] assistant: answer one",
        "another way",
        "answer three",
        "second question",
        "let me look",
        "[bash: ls]",
        "answer two",
    ]
    .iter()
    .map(|text| lines.iter().position(|line| line.contains(text)))
    .collect();
    assert_eq!(places, (1..9).map(Some).collect::<Vec<_>>(), "{lines:#?}");
    for (keys, row, holds) in LOOKS {
        if !row.is_empty() {
            on(&nv, row).await;
        }
        nv.keys(keys).await;
        nv.wait(holds).await;
    }

    // The selection survives a filter that hides it, and comes back with it.
    on(&nv, "answer two").await;
    nv.keys("3").await;
    nv.wait("search('answer two', 'n') == 0 && getline('.') =~ 'second question'")
        .await;
    nv.keys("1").await;
    nv.wait("getline('.') =~ 'answer two'").await;

    // gs: while it is typed; kept by <CR>, left by <Esc>.
    nv.keys("gs").await;
    nv.wait("&filetype == 'pi-tree-search' && mode() == 'i'")
        .await;
    nv.keys("three").await;
    rows(&nv, &["answer three", "!answer two"]).await;
    nv.keys("<CR>").await;
    nv.wait("&filetype == 'pi-tree' && mode() == 'n'").await;
    nv.keys("gs").await;
    nv.wait("&filetype == 'pi-tree-search' && mode() == 'i'")
        .await;
    nv.keys("<C-u>two").await;
    rows(&nv, &["answer two", "!answer three"]).await;
    nv.keys("<Esc>").await;
    nv.wait("&filetype == 'pi-tree' && mode() == 'n'").await;
    rows(&nv, &["answer three", "!answer two"]).await;
    nv.keys("gs").await;
    nv.wait("&filetype == 'pi-tree-search' && mode() == 'i'")
        .await;
    nv.keys("<C-u><CR>").await;
    rows(&nv, &["answer three", "answer two"]).await;

    // L and T; an empty label takes it away.
    for (text, holds) in [
        ("goal", "getline('.') =~ '\\[goal\\]'"),
        ("", "getline('.') !~ 'goal'"),
    ] {
        on(&nv, "answer two").await;
        nv.lua("_G.text = ...", json!([text])).await;
        nv.keys("L").await;
        nv.wait(holds).await;
    }
    nv.keys("T").await;
    rows(&nv, &["[base 01 Jan"]).await;
    nv.keys("T").await;
    rows(&nv, &["[base] "]).await;

    // n, and keys that have nothing to do here.
    nv.lua("_G.text = 'a name'", json!(null)).await;
    nv.keys("n").await;
    nv.wait("getline(1) =~ 'a name'").await;
    on(&nv, "answer one").await;
    nv.keys("D").await;
    said(&nv, "no file was written after this point").await;
    nv.keys("r").await;
    said(&nv, "nothing to put back").await;
    nv.keys("za").await;
    said(&nv, "only branches fold").await;

    // s: a summary of what is left, without a question.
    nv.lua("_G.asked = {}", json!(null)).await;
    on(&nv, "answer two").await;
    nv.keys("s").await;
    rows(&nv, &["what was left"]).await;
    assert_eq!(nv.lua("return #_G.asked", json!(null)).await, json!(0));
    assert!(model.requests()[0].to_string().contains("answer three"));
    // S: after instructions.
    nv.lua("_G.text = 'mind the gap'", json!(null)).await;
    on(&nv, "answer three").await;
    nv.keys("S").await;
    rows(&nv, &["with a view"]).await;
    assert!(model.requests()[1].to_string().contains("mind the gap"));

    // <CR>: asked, and left.
    on(&nv, "first question").await;
    nv.keys("<CR>").await;
    nv.wait_lua("return vim.startswith(_G.asked[#_G.asked], 'Leave this branch')")
        .await;
    rows(&nv, &["with a view"]).await;
    // The first answer goes there: the text of a question is in the prompt.
    nv.lua("_G.pick = 1", json!(null)).await;
    nv.keys("<CR>").await;
    nv.wait_lua(
        "local buf = require('pi.prompt').buffer(vim.t.pi_session)
         return vim.api.nvim_buf_get_lines(buf, 0, -1, false)[1] == 'first question'",
    )
    .await;

    // f: the tree shows the new session; c: a copy of the branch.
    on(&nv, "second question").await;
    nv.keys("f").await;
    nv.wait_lua("return vim.t.pi_session ~= '0198eeee-tree'")
        .await;
    let forked = nv.eval("t:pi_session").await;
    nv.wait_lua(
        "local buf = require('pi.prompt').buffer(vim.t.pi_session)
         return vim.api.nvim_buf_get_lines(buf, 0, -1, false)[1] == 'second question'",
    )
    .await;
    nv.wait(
        "&filetype == 'pi-tree' && search('answer one', 'n') > 0 && search('answer two', 'n') == 0",
    )
    .await;
    nv.keys("c").await;
    nv.wait_lua(&format!("return vim.t.pi_session ~= {forked}"))
        .await;
    nv.wait("&filetype == 'pi-tree' && search('answer one', 'n') > 0")
        .await;
    nv.keys("q").await;
    nv.wait("&filetype != 'pi-tree'").await;

    // Nothing of the table was left out.
    let typed: String = LOOKS.iter().map(|(keys, ..)| *keys).collect();
    let known = nv
        .lua(
            "return vim.tbl_map(function(key) return key[1] end, require('pi.tree.keys').keys)",
            json!(null),
        )
        .await;
    // `x` and `e` change what a model reads: the test below asks one.
    let others = [
        "gs", "L", "T", "n", "D", "r", "s", "S", "<CR>", "f", "c", "x", "e",
    ];
    for key in known.as_array().unwrap() {
        let key = key.as_str().unwrap();
        assert!(
            typed.contains(key) || others.contains(&key),
            "{key} is not tested"
        );
    }
}

/// The text of the chat, joined.
const CHAT: &str = "table.concat(vim.api.nvim_buf_get_lines(require('pi.chat').buffer(vim.t.pi_session), 0, -1, false), '\\n')";

#[tokio::test]
async fn a_label_during_a_run_leaves_the_chat_as_it_is_and_new_rows_come_by_themselves() {
    let (_model, nv) = seeded(vec![call("c9", "bash", json!({"command": "true"}))]).await;
    nv.command("Pi ask run something").await;
    nv.wait_lua(&format!(
        "return {CHAT}:find('waits for your answer', 1, true)"
    ))
    .await;
    // The tree shows the question that runs without being asked to look again.
    nv.command("Pi focus tree").await;
    nv.wait("search('run something', 'wc') > 0").await;
    on(&nv, "answer one").await;
    nv.command("Pi label kept").await;
    nv.wait("search('\\[kept\\]', 'wc') > 0").await;
    // Whatever the label set off has been drawn when the answer to a later request is there.
    nv.lua(
        "require('pi.rpc').request('session.tools_shown', { session = vim.t.pi_session }, function() _G.later = true end)",
        json!(null),
    )
    .await;
    nv.wait_lua("return _G.later").await;
    let chat = nv.lua(&format!("return {CHAT}"), json!(null)).await;
    let chat = chat.as_str().unwrap();
    assert!(
        chat.contains("waits for your answer") && !chat.contains("aborted"),
        "{chat}"
    );
}

#[tokio::test]
async fn a_jump_during_a_run_asks_first() {
    let (_model, nv) = seeded(vec![
        Answer::Pieces(vec![Piece::Say("working on it".into()), Piece::Wait]),
        say("later"),
    ])
    .await;
    nv.command("Pi ask long work").await;
    nv.wait_lua("return require('pi.status').data().state == 'run'")
        .await;
    on(&nv, "answer one").await;
    nv.keys("<CR>").await;
    nv.wait_lua("return _G.asked[#_G.asked] == 'The agent is running'")
        .await;
    // Left: it goes on.
    assert_eq!(
        nv.lua("return require('pi.status').data().state", json!(null))
            .await,
        json!("run")
    );
    // The first choice stays, too; the second stops the run and asks how to leave.
    nv.lua("_G.asked, _G.pick = {}, 2", json!(null)).await;
    nv.keys("<CR>").await;
    nv.wait_lua("return #_G.asked == 2 and vim.startswith(_G.asked[2], 'Leave this branch')")
        .await;
    nv.wait_lua("return require('pi.status').data().state ~= 'run'")
        .await;
}

/// A run in mode `auto` that wrote two files, one of which the person changed since; the tree stands on `answer one`.
async fn wrote_two() -> (Model, Nv) {
    let write =
        |id, path: &str, text: &str| call(id, "write", json!({"path": path, "content": text}));
    let model = Model::start(vec![
        say("answer one"),
        write("c1", "a.txt", "one\nnew\n"),
        write("c2", "b.txt", "B\n"),
        say("answer two"),
    ])
    .await;
    let nv = model
        .nvim(Options {
            files: vec![("a.txt", "one\n".into()), ("b.txt", "b\n".into())],
            before: "vim.g.pi = { review = { mode = 'auto' } }",
            ..Options::default()
        })
        .await;
    nv.attach(120, 40).await;
    nv.lua(SELECT, json!(null)).await;
    nv.command("edit a.txt").await;
    ask(&nv, "first question", "answer one").await;
    ask(&nv, "second question", "answer two").await;
    std::fs::write(nv.cwd.join("b.txt"), "mine\n").unwrap();
    nv.command("Pi tree").await;
    on(&nv, "answer one").await;
    (model, nv)
}

#[tokio::test]
async fn files_are_put_back_from_the_tree_as_a_review_that_can_be_undone() {
    let (_model, nv) = wrote_two().await;
    // The preview says how many files were written since.
    nv.wait_lua(
        "local buf = vim.api.nvim_win_get_buf(vim.fn.win_getid(vim.fn.winnr('j')))
         return vim.api.nvim_buf_get_lines(buf, 0, 1, false)[1]:find('2 files written after this point', 1, true)",
    )
    .await;
    nv.keys("r").await;
    said(
        &nv,
        "1 file to restore, shown as a review; changed since and left alone: 1 place in b.txt",
    )
    .await;
    nv.wait_lua("local all = require('pi.review.state').all() return vim.iter(all):any(function(it) return it.state == 'open' end)")
        .await;
    // Nothing is written before a decision.
    assert_eq!(
        std::fs::read_to_string(nv.cwd.join("a.txt")).unwrap(),
        "one\nnew\n"
    );
    nv.lua("require('pi.window').edit('a.txt')", json!(null))
        .await;
    nv.wait("bufname() =~ 'a.txt$' && get(get(b:, 'pi_review', {}), 'pending') == 1")
        .await;
    nv.command("Pi review accept").await;
    nv.wait("readfile('a.txt') == ['one']").await;
    assert_eq!(
        std::fs::read_to_string(nv.cwd.join("b.txt")).unwrap(),
        "mine\n"
    );
    nv.command("Pi review undo").await;
    nv.wait("readfile('a.txt') == ['one', 'new']").await;
    // A point behind the writes has nothing to put back.
    nv.command("Pi tree").await;
    on(&nv, "answer two").await;
    nv.keys("r").await;
    said(&nv, "nothing to put back").await;
}

#[tokio::test]
async fn files_of_then_and_now_are_compared_in_a_tab_page_of_their_own() {
    let (_model, nv) = wrote_two().await;
    let layout = nv.eval("[winlayout(), getbufinfo('a.txt')[0].bufnr]").await;
    nv.keys("D").await;
    nv.wait("tabpagenr('$') == 2 && winnr('$') == 2").await;
    let sides = "map([1, 2], {_, it -> getbufline(winbufnr(it), 1, '$')})";
    nv.wait(&format!("{sides} == [['one'], ['one', 'new']] && &diff"))
        .await;
    // The next file: what the person wrote since counts as now.
    nv.keys("]f").await;
    nv.wait(&format!("{sides} == [['b'], ['mine']]")).await;
    nv.keys("]f").await;
    said(&nv, "this is the last file").await;
    nv.keys("[f").await;
    nv.wait(&format!("{sides} == [['one'], ['one', 'new']]"))
        .await;
    nv.keys("q").await;
    nv.wait("tabpagenr('$') == 1 && &filetype == 'pi-tree'")
        .await;
    assert_eq!(
        nv.eval("[winlayout(), getbufinfo('a.txt')[0].bufnr]").await,
        layout
    );
    assert_eq!(
        nv.eval("len(filter(getwininfo(), {_, it -> getwinvar(it.winnr, '&diff')}))")
            .await,
        json!(0)
    );
    // Again, closed by the person's own means.
    nv.keys("D").await;
    nv.wait("tabpagenr('$') == 2 && &diff").await;
    nv.command("tabclose").await;
    nv.keys("D").await;
    nv.wait(&format!(
        "tabpagenr('$') == 2 && {sides} == [['one'], ['one', 'new']]"
    ))
    .await;
}

#[tokio::test]
async fn a_very_long_session_is_one_page_at_a_time() {
    let nv = Nv::start().await;
    nv.attach(120, 40).await;
    // One chain: nothing may recurse over it, and no request may carry it.
    let mut seed = Seed::new("0198ffff-long", &nv.cwd).user("e0", None, "question 0");
    for at in 1..10_000 {
        let (id, parent) = (format!("e{at}"), format!("e{}", at - 1));
        seed = match at % 2 {
            0 => seed.user(&id, Some(&parent), &format!("question {at}")),
            _ => seed.says(&id, &parent, &format!("answer {at}")),
        };
    }
    let path = seed.write(&nv.root.path().join("agent/sessions/--x--/s.jsonl"));
    nv.command(&format!("Pi resume {}", path.display())).await;
    nv.wait_lua("return vim.t.pi_session == '0198ffff-long'")
        .await;
    nv.lua(
        "_G.pages = {}
         local draw = require('pi.tree.draw')
         local rows = draw.rows
         draw.rows = function(view, first, list)
           table.insert(_G.pages, #list)
           return rows(view, first, list)
         end",
        json!(null),
    )
    .await;
    nv.command("Pi tree").await;
    nv.wait("&filetype == 'pi-tree' && getline('.') =~ 'answer 9999' && line('$') == 10001")
        .await;
    let pages = nv.lua("return _G.pages", json!(null)).await;
    assert_eq!(pages, json!([251]), "only what is shown was sent");
    nv.keys("3").await;
    nv.wait("line('$') == 5001 && getline('.') =~ 'question 9998'")
        .await;
    nv.keys("gg").await;
    nv.wait("getline(2) =~ 'question 0'").await;
    let pages = nv.lua("return _G.pages", json!(null)).await;
    let sent: u64 = pages
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it.as_u64())
        .sum();
    assert!(sent <= 2_000, "{pages}");
}

#[tokio::test]
async fn an_entry_is_left_out_replaced_and_taken_back_for_the_model() {
    let model = Model::start(vec![
        say("answer one"),
        say("answer two"),
        say("answer three"),
        say("answer four"),
    ])
    .await;
    let nv = model.nvim(Options::default()).await;
    nv.attach(120, 40).await;
    nv.lua(SELECT, json!(null)).await;
    ask(&nv, "first question", "answer one").await;
    let read = |number: usize| model.requests()[number]["messages"].to_string();
    nv.command("Pi tree").await;
    nv.wait("&filetype == 'pi-tree' && search('answer one', 'wc') > 0")
        .await;
    nv.keys("x").await;
    nv.wait("search('(left out) assistant: answer one', 'wc') > 0")
        .await;
    ask(&nv, "second question", "answer two").await;
    assert!(!read(1).contains("answer one") && read(1).contains("first question"));
    nv.command("Pi tree").await;
    nv.wait("&filetype == 'pi-tree' && search('(left out) assistant: answer one', 'wc') > 0")
        .await;
    nv.keys("e").await;
    nv.wait("bufname() =~ 'pi://reads/' && getline(1) == 'answer one'")
        .await;
    nv.keys("ccsomething else<Esc>").await;
    nv.command("write").await;
    nv.wait("!&modified").await;
    nv.command("close").await;
    ask(&nv, "third question", "answer three").await;
    assert!(read(2).contains("something else") && !read(2).contains("answer one"));
    nv.command("Pi tree").await;
    nv.wait("&filetype == 'pi-tree' && search('(replaced) assistant: answer one', 'wc') > 0")
        .await;
    nv.keys("x").await;
    nv.wait("search('^[^(]*assistant: answer one', 'wc') > 0")
        .await;
    ask(&nv, "fourth question", "answer four").await;
    assert!(read(3).contains("answer one") && !read(3).contains("something else"));
}
