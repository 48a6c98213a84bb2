//! Chat and prompt, end to end.

use std::fmt::Write as _;

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::harness::{Nv, Options};
use super::model::{Answer, Model, Piece, call, say};

const CHAT: &str = "return table.concat(vim.api.nvim_buf_get_lines(
    require('pi.chat').buffer(vim.t.pi_session), 0, -1, false), '\\n')";
const AUTO: &str = "vim.g.pi = { review = { mode = 'auto' } }";

async fn wait_chat(nv: &Nv, text: &str) {
    let code = format!(
        "return table.concat(vim.api.nvim_buf_get_lines(
            require('pi.chat').buffer(vim.t.pi_session), 0, -1, false), '\\n'):find({text:?}, 1, true)"
    );
    nv.wait_lua(&code).await;
}

async fn wait_idle(nv: &Nv) {
    nv.wait_lua("return require('pi.status').data().state == 'idle'")
        .await;
}

#[tokio::test]
async fn a_prompt_is_sent_and_the_answer_streams_in() {
    let model = Model::start(vec![Answer::Pieces(vec![
        Piece::Say("Hel".into()),
        Piece::Say("lo\n\nthere".into()),
        Piece::Wait,
        Piece::Say(" friend".into()),
    ])])
    .await;
    let nv = model.nvim(Options::default()).await;
    nv.attach(100, 30).await;
    nv.command("Pi").await;
    nv.wait("&filetype == 'pi-prompt'").await;
    nv.keys("ihello agent<C-s>").await;
    wait_chat(&nv, "there").await;
    // Taken by the backend: the prompt is empty again.
    assert_eq!(nv.lines(0).await, [""]);
    let status = nv
        .lua("return require('pi.status').data()", json!(null))
        .await;
    assert_eq!(
        (&status["running"], &status["model"]),
        (&json!(true), &json!("m1"))
    );
    model.go_on();
    wait_chat(&nv, "there friend").await;
    wait_idle(&nv).await;
    let chat = nv.lua(CHAT, json!(null)).await;
    let chat = chat.as_str().unwrap();
    let lines: Vec<&str> = chat.lines().collect();
    assert!(lines[0].starts_with("You"), "{chat}");
    assert_eq!(
        lines[1..],
        [
            "hello agent",
            "",
            "Assistant m1",
            "Hello",
            "",
            "there friend"
        ]
    );
    // No undo memory, and nobody can type into it.
    let options = nv.lua(
        "local b = vim.bo[require('pi.chat').buffer(vim.t.pi_session)]
         return { b.undolevels, b.modifiable, b.buflisted, b.modified }",
        json!(null),
    );
    assert_eq!(options.await, json!([-1, false, false, false]));
}

#[tokio::test]
async fn the_person_is_left_alone_while_things_arrive() {
    let model = Model::start(vec![
        call(
            "c1",
            "edit",
            json!({"path": "b.txt", "edits": [{"oldText": "x", "newText": "y"}]}),
        ),
        say("ok"),
    ])
    .await;
    let nv = model
        .nvim(Options {
            files: vec![("a.txt", "one\ntwo\n".into()), ("b.txt", "x\n".into())],
            ..Options::default()
        })
        .await;
    nv.command("edit a.txt").await;
    let window = nv.eval("win_getid()").await;
    nv.command("Pi ask go").await;
    nv.keys("itypi").await;
    nv.wait_lua("return (vim.g.pi_attention or 0) > 0").await;
    nv.keys("ng").await;
    nv.wait("getline(1) == 'typingone'").await;
    assert_eq!(nv.eval("mode()").await, json!("i"));
    assert_eq!(nv.eval("win_getid()").await, window);
    assert_eq!(nv.eval("expand('%')").await, json!("a.txt"));
}

#[tokio::test]
async fn fifty_thousand_tokens_come_in_few_batches_and_do_not_move_a_reader() {
    let mut pieces = Vec::new();
    for i in 0..50_000 {
        let mut text = String::new();
        write!(text, "tok{i}").unwrap();
        text.push(if i % 12 == 11 { '\n' } else { ' ' });
        pieces.push(Piece::Say(text));
        if i == 2_000 {
            pieces.push(Piece::Wait);
        }
    }
    let model = Model::start(vec![Answer::Pieces(pieces)]).await;
    let nv = model.nvim(Options::default()).await;
    nv.attach(120, 40).await;
    nv.command("Pi ask count").await;
    wait_chat(&nv, "tok2000").await;
    // A reader goes up and reads; another window keeps following.
    nv.lua(
        "require('pi.window').focus('chat')
         vim.api.nvim_win_set_cursor(0, { 20, 0 })
         vim.cmd('normal! zt')
         _G.place = vim.fn.winsaveview()
         local rpc = require('pi.rpc')
         local batch = rpc.batch
         _G.batches, _G.longest, _G.start = 0, 0, vim.uv.hrtime()
         rpc.batch = function(ops)
           _G.batches = _G.batches + 1
           local before = vim.uv.hrtime()
           local result = batch(ops)
           _G.longest = math.max(_G.longest, (vim.uv.hrtime() - before) / 1e6)
           return result
         end",
        json!(null),
    )
    .await;
    model.go_on();
    wait_chat(&nv, "tok49999").await;
    wait_idle(&nv).await;
    let figures = nv
        .lua(
            "local view = vim.fn.winsaveview()
             return { _G.batches, (vim.uv.hrtime() - _G.start) / 1e9, _G.longest,
                view.lnum == _G.place.lnum and view.topline == _G.place.topline }",
            json!(null),
        )
        .await;
    let (batches, seconds) = (figures[0].as_f64().unwrap(), figures[1].as_f64().unwrap());
    assert!(batches / seconds <= 35.0, "{figures}");
    assert_eq!(figures[3], json!(true), "the reader was moved: {figures}");
    nv.keys("G").await;
    nv.wait_lua("return vim.fn.line('.') == vim.fn.line('$')")
        .await;
}

#[tokio::test]
async fn a_call_with_deep_arguments_is_drawn_and_the_channel_stays() {
    let deep = (0..60).fold(json!("core"), |inner, _| json!([inner]));
    let model = Model::start(vec![
        call("c1", "unknown_tool", json!({ "deep": deep })),
        say("fine"),
    ])
    .await;
    let nv = model.nvim(Options::default()).await;
    nv.command("Pi ask go").await;
    wait_chat(&nv, "fine").await;
    wait_chat(&nv, "unknown_tool").await;
    let details = nv.lua(
        "require('pi.rpc').request('chat.details', { session = vim.t.pi_session, block = 'call:c1' },
            function(err, result) _G.details = err or result.arguments end)",
        json!(null),
    );
    details.await;
    nv.wait_lua("return _G.details and _G.details:find('core')")
        .await;
}

#[tokio::test]
async fn steering_waits_visibly_and_an_abort_ends_the_run() {
    let model = Model::start(vec![
        Answer::Pieces(vec![Piece::Say("working".into()), Piece::Wait]),
        say("after"),
    ])
    .await;
    let nv = model.nvim(Options::default()).await;
    nv.attach(100, 30).await;
    nv.command("Pi ask start").await;
    wait_chat(&nv, "working").await;
    nv.command("Pi steer look here too").await;
    nv.wait_lua("return #require('pi.prompt').queue() == 1")
        .await;
    let screen = nv
        .wait_screen("the queue", |screen| {
            screen.find("steer: look here too").is_some()
        })
        .await;
    assert!(screen.find("steer:").is_some());
    nv.command("Pi! abort").await;
    nv.wait_lua("return #require('pi.prompt').queue() == 0")
        .await;
    wait_idle(&nv).await;
    wait_chat(&nv, "aborted").await;
}

#[tokio::test]
async fn without_a_model_the_text_stays_and_one_line_says_what_to_do() {
    let nv = Nv::start().await;
    nv.attach(100, 30).await;
    nv.lua(
        "_G.notes = {} vim.notify = function(text) table.insert(_G.notes, text) end",
        json!(null),
    )
    .await;
    nv.command("Pi").await;
    nv.wait("&filetype == 'pi-prompt'").await;
    wait_chat(&nv, "No model yet").await;
    nv.keys("ihello<C-s>").await;
    nv.wait_lua("return #_G.notes == 1").await;
    assert_eq!(nv.lines(0).await, ["hello"]);
    // A prompt from the command line that cannot be sent stands in the prompt too.
    nv.keys("<Esc>").await;
    nv.command("Pi ask and this too").await;
    nv.wait_lua("return #_G.notes == 2").await;
    assert_eq!(nv.lines(0).await, ["hello and this too"]);
}

#[tokio::test]
async fn a_server_error_is_one_line_and_the_session_goes_on() {
    let model = Model::start(vec![
        Answer::Error(
            401,
            json!({"error": {"message": "Incorrect API key provided: sk-test-SECRET123"}})
                .to_string(),
        ),
        say("better"),
    ])
    .await;
    let nv = model.nvim(Options::default()).await;
    nv.command("Pi ask hello").await;
    nv.wait_lua(
        "for _, block in ipairs(require('pi.chat').view(require('pi.chat').buffer(vim.t.pi_session)).blocks) do
           if block.kind == 'error' then return true end
         end",
    )
    .await;
    let chat = nv.lua(CHAT, json!(null)).await;
    assert!(!chat.as_str().unwrap().contains("SECRET123"), "{chat}");
    wait_idle_or_error(&nv).await;
    nv.command("Pi ask again").await;
    wait_chat(&nv, "better").await;
}

async fn wait_idle_or_error(nv: &Nv) {
    nv.wait_lua("return not require('pi.status').data().running")
        .await;
}

#[tokio::test]
async fn a_command_of_the_person_is_run_and_shown() {
    let model = Model::start(vec![]).await;
    let nv = model
        .nvim(Options {
            before: AUTO,
            ..Options::default()
        })
        .await;
    nv.command("Pi open").await;
    nv.wait_lua("return vim.t.pi_session").await;
    nv.command("Pi bash printf 'a\\033[31mb\\n'").await;
    wait_chat(&nv, "ab").await;
}

#[tokio::test]
async fn history_and_drafts_come_back() {
    let model = Model::start(vec![say("one"), say("two")]).await;
    let nv = model.nvim(Options::default()).await;
    nv.command("Pi ask first prompt").await;
    wait_chat(&nv, "one").await;
    wait_idle(&nv).await;
    nv.command("Pi focus prompt").await;
    nv.wait("&filetype == 'pi-prompt'").await;
    nv.lua("vim.cmd.stopinsert()", json!(null)).await;
    nv.keys("ihalf a thought").await;
    nv.wait("getline(1) == 'half a thought'").await;
    nv.keys("<Up>").await;
    nv.wait("getline(1) == 'first prompt'").await;
    nv.keys("<Down>").await;
    nv.wait("getline(1) == 'half a thought'").await;
    let state = nv.root.path().join("state/pi-nvim/drafts");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while std::fs::read_dir(&state).map_or(0, Iterator::count) == 0 {
        assert!(
            std::time::Instant::now() < end,
            "no draft in {}",
            state.display()
        );
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn talking_back_rejects_what_is_pending_with_the_text_as_reason() {
    let edit = |id, path: &str| {
        Piece::Call(
            id,
            "edit",
            json!({"path": path, "edits": [{"oldText": "x", "newText": "y"}]}),
        )
    };
    let model = Model::start(vec![
        Answer::Pieces(vec![edit("c1", "a.txt"), edit("c2", "b.txt")]),
        say("understood"),
    ])
    .await;
    let nv = model
        .nvim(Options {
            files: vec![("a.txt", "x\n".into()), ("b.txt", "x\n".into())],
            ..Options::default()
        })
        .await;
    nv.attach(100, 30).await;
    nv.command("Pi ask go").await;
    nv.wait_lua("return #require('pi.review.state').with_pending() == 2")
        .await;
    nv.command("Pi focus prompt").await;
    nv.wait("&filetype == 'pi-prompt'").await;
    nv.lua("vim.cmd.stopinsert()", json!(null)).await;
    nv.keys("iuse rstest instead<C-s>").await;
    nv.wait_screen("the choice", |screen| {
        screen.find("the same key again").is_some()
    })
    .await;
    assert_eq!(nv.lines(0).await, ["use rstest instead"]);
    nv.keys("<C-s>").await;
    wait_chat(&nv, "understood").await;
    assert_eq!(nv.lines(0).await, [""]);
    for name in ["a.txt", "b.txt"] {
        assert_eq!(std::fs::read_to_string(nv.cwd.join(name)).unwrap(), "x\n");
    }
    let requests = model.requests();
    let last = &requests.last().unwrap()["messages"];
    let told = last.as_array().unwrap().iter();
    let told: Vec<_> = told.filter(|it| it["role"] == "tool").collect();
    assert_eq!(told.len(), 2);
    assert!(
        told.iter()
            .all(|it| it["content"].to_string().contains("use rstest instead"))
    );
    // The reason stands in the results, not in a message as well.
    assert_eq!(last.as_array().unwrap().last().unwrap()["role"], "tool");
}

#[tokio::test]
async fn a_new_session_takes_the_windows_and_the_old_one_can_be_resumed() {
    let model = Model::start(vec![say("one"), say("two")]).await;
    let nv = model.nvim(Options::default()).await;
    nv.command("Pi ask first").await;
    wait_chat(&nv, "one").await;
    wait_idle(&nv).await;
    let old = nv.eval("t:pi_session").await;
    nv.command("Pi name the first").await;
    nv.command("Pi new").await;
    nv.wait_lua(&format!("return vim.t.pi_session ~= {old}"))
        .await;
    wait_chat(&nv, "Type below").await;
    nv.wait_lua(
        "local chat = require('pi.window').windows()
         return vim.api.nvim_win_get_buf(chat) == require('pi.chat').buffer(vim.t.pi_session)",
    )
    .await;
    nv.command("Pi ask second").await;
    wait_chat(&nv, "two").await;
    let short: String = old.as_str().unwrap().to_owned();
    nv.command(&format!("Pi resume {short}")).await;
    nv.wait_lua(&format!("return vim.t.pi_session == {old}"))
        .await;
    wait_chat(&nv, "one").await;
    nv.wait_lua("return require('pi.status').data().name == 'the first'")
        .await;
}

#[tokio::test]
async fn jumping_in_the_tree_keeps_files_and_the_old_branch() {
    let model = Model::start(vec![
        say("answer one"),
        say("answer two"),
        say("answer three"),
    ])
    .await;
    let nv = model
        .nvim(Options {
            files: vec![("a.txt", "unchanged\n".into())],
            ..Options::default()
        })
        .await;
    for (prompt, answer) in [
        ("first question", "answer one"),
        ("second question", "answer two"),
    ] {
        nv.command(&format!("Pi ask {prompt}")).await;
        wait_chat(&nv, answer).await;
        wait_idle(&nv).await;
    }
    nv.lua(
        "vim.ui.select = function(items, _, done) done(items[1]) end",
        json!(null),
    )
    .await;
    nv.command("Pi tree").await;
    nv.wait("&filetype == 'pi-tree'").await;
    nv.wait("search('second question', 'wc') > 0").await;
    nv.keys("<CR>").await;
    // Its text is in the prompt again, and the chat ends before it.
    nv.wait_lua(
        "local buf = require('pi.prompt').buffer(vim.t.pi_session)
         return vim.api.nvim_buf_get_lines(buf, 0, -1, false)[1] == 'second question'",
    )
    .await;
    nv.wait_lua(
        "local buf = require('pi.chat').buffer(vim.t.pi_session)
         local text = table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n')
         return text:find('answer one') and not text:find('answer two')",
    )
    .await;
    nv.command("Pi ask another way").await;
    wait_chat(&nv, "answer three").await;
    wait_idle(&nv).await;
    nv.wait_lua(
        "local buf = vim.fn.bufnr('pi://tree/')
         local text = table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n')
         return text:find('answer two') and text:find('another way')",
    )
    .await;
    assert_eq!(
        std::fs::read_to_string(nv.cwd.join("a.txt")).unwrap(),
        "unchanged\n"
    );
    let requests: Vec<Value> = model.requests();
    let last = requests.last().unwrap()["messages"].to_string();
    assert!(
        last.contains("another way") && !last.contains("second question"),
        "{last}"
    );
}

#[tokio::test]
async fn windows_of_the_person_keep_their_sizes() {
    let nv = Nv::start().await;
    nv.attach(160, 50).await;
    nv.command("vsplit | split").await;
    let sizes = "map(range(1, winnr('$')), {_, w -> [winwidth(w), winheight(w)]})";
    let before = nv.eval(sizes).await;
    nv.command("Pi open").await;
    nv.wait_lua("return #vim.api.nvim_tabpage_list_wins(0) == 5")
        .await;
    nv.command("Pi close").await;
    nv.wait_lua("return #vim.api.nvim_tabpage_list_wins(0) == 3")
        .await;
    assert_eq!(nv.eval(sizes).await, before);
    let leaked = nv.lua(
        "local out = {}
         for _, win in ipairs(vim.api.nvim_list_wins()) do
           if vim.wo[win].winfixbuf or vim.wo[win].winbar ~= '' or vim.wo[win].conceallevel ~= 0 then
             out[#out + 1] = win
           end
         end
         return out",
        json!(null),
    );
    assert_eq!(leaked.await, json!([]));
}
