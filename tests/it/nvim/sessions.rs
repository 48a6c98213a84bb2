//! The list of sessions.

use std::path::PathBuf;

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::harness::{Nv, Options};
use super::model::{Answer, Model, Piece, say};
use super::seed::Seed;

/// Answers of dialogs, and what they asked.
const DIALOGS: &str = "_G.asked, _G.notes = {}, {}
    vim.ui.select = function(items, opts, done)
      table.insert(_G.asked, opts.prompt)
      done(items[_G.pick or 1], _G.pick or 1)
    end
    vim.ui.input = function(opts, done) done(_G.text) end
    vim.notify = function(text) table.insert(_G.notes, text) end";

fn folder(nv: &Nv, cwd: &std::path::Path) -> PathBuf {
    let name = cwd
        .to_string_lossy()
        .trim_start_matches('/')
        .replace('/', "-");
    nv.root.path().join(format!("agent/sessions/--{name}--"))
}

/// Three stored sessions of this directory, one of another. The names do not follow the times.
fn seed(nv: &Nv) {
    let here = folder(nv, &nv.cwd);
    let other = nv.root.path().join("home");
    let stored = [
        ("0198-a", &nv.cwd, "zebra question", None, 3),
        ("0198-b", &nv.cwd, "middle question", Some("beta name"), 2),
        ("0198-c", &nv.cwd, "apple question", None, 1),
        ("0198-d", &other, "other question", None, 4),
    ];
    for (id, cwd, text, name, minute) in stored {
        let mut file = Seed::new(id, cwd);
        if let Some(name) = name {
            file = file.entry("session_info", "n1", None, json!({ "name": name }));
        }
        let parent = name.map(|_| "n1");
        let at = minute * 60_000 + 1_767_225_600_000_i64;
        let message = json!({"role": "user", "content": text, "timestamp": at});
        let content = json!([{"type": "text", "text": format!("answer to {text}")}]);
        file.entry("message", "u1", parent, json!({ "message": message }))
            .answer("a1", "u1", content, 1.25)
            .write(&if cwd == &nv.cwd {
                here.join(format!("{id}.jsonl"))
            } else {
                folder(nv, cwd).join(format!("{id}.jsonl"))
            });
    }
}

async fn list(nv: &Nv, command: &str, rows: usize) {
    nv.command(command).await;
    settled(nv, rows).await;
}

async fn settled(nv: &Nv, rows: usize) {
    nv.wait_lua(&format!(
        "local state = require('pi.sessions.list').state return not state.reading and #state.rows == {rows}"
    ))
    .await;
}

/// Ids in the order of the screen.
async fn ids(nv: &Nv) -> String {
    let code = "return table.concat(vim.tbl_map(function(row) return row.id end,
        require('pi.sessions.list').state.rows), ' ')";
    nv.lua(code, json!(null)).await.as_str().unwrap().to_owned()
}

async fn go(nv: &Nv, text: &str) {
    nv.wait(&format!(
        "&filetype == 'pi-sessions' && search('{text}', 'wc') > 0"
    ))
    .await;
    // Where the person is counts from the next round of the main loop on.
    nv.wait("line('.') > 1").await;
}

#[tokio::test]
async fn every_key_of_the_list_does_what_it_says() {
    let nv = Nv::start().await;
    nv.attach(120, 40).await;
    seed(&nv);
    nv.lua(DIALOGS, json!(null)).await;
    list(&nv, "Pi sessions", 3).await;
    // Looking at the list opens no session.
    assert_eq!(nv.eval("get(t:, 'pi_session', 0)").await, json!(0));
    assert_eq!(ids(&nv).await, "0198-a 0198-b 0198-c");
    assert_eq!(nv.eval("line('.')").await, json!(2));
    let lines = nv.lines(0).await;
    assert!(
        lines[1].contains("zebra question") && lines[1].contains("2 msg"),
        "{lines:?}"
    );
    assert!(lines[1].contains("$1.25"), "{lines:?}");
    assert!(
        lines[2].contains("beta name") && !lines[2].contains("middle"),
        "{lines:?}"
    );

    // S: by creation, by name, by last use again; the cursor stays on its session.
    go(&nv, "apple").await;
    nv.keys("S").await;
    nv.wait_lua("return require('pi.sessions.list').state.sort == 'created'")
        .await;
    settled(&nv, 3).await;
    nv.keys("S").await;
    nv.wait_lua("return not require('pi.sessions.list').state.reading and require('pi.sessions.list').state.sort == 'name'")
        .await;
    assert_eq!(ids(&nv).await, "0198-c 0198-b 0198-a");
    nv.wait("getline('.') =~ 'apple'").await;
    nv.keys("S").await;
    nv.wait_lua("return not require('pi.sessions.list').state.reading and require('pi.sessions.list').state.sort == 'recent'")
        .await;
    nv.wait("getline('.') =~ 'apple'").await;

    // w, N, /
    nv.keys("w").await;
    settled(&nv, 4).await;
    nv.wait("search('other question', 'n') > 0").await;
    nv.keys("w").await;
    settled(&nv, 3).await;
    nv.keys("N").await;
    settled(&nv, 1).await;
    assert_eq!(ids(&nv).await, "0198-b");
    nv.keys("N").await;
    settled(&nv, 3).await;
    nv.lua("_G.text = 'zebra'", json!(null)).await;
    nv.keys("/").await;
    settled(&nv, 1).await;
    assert_eq!(ids(&nv).await, "0198-a");
    nv.lua("_G.text = ''", json!(null)).await;
    nv.keys("/").await;
    settled(&nv, 3).await;

    // v: how it ended, beside the list; the list stays the current window.
    go(&nv, "beta").await;
    nv.keys("v").await;
    let preview = "bufwinid('pi://sessions-preview') > 0 && &filetype == 'pi-sessions'";
    nv.wait(preview).await;
    let shows =
        |text: &str| format!("match(getbufline('pi://sessions-preview', 1, '$'), '{text}') >= 0");
    nv.wait(&shows("answer to middle question")).await;
    go(&nv, "apple").await;
    nv.lua(
        "vim.api.nvim_exec_autocmds('CursorMoved', { buffer = 0 })",
        json!(null),
    )
    .await;
    nv.wait(&shows("answer to apple question")).await;
    nv.keys("v").await;
    nv.wait("bufwinid('pi://sessions-preview') < 0").await;

    // r: names one that does not run, by one more line in its file.
    go(&nv, "apple").await;
    nv.lua("_G.text = 'apple pie'", json!(null)).await;
    nv.keys("r").await;
    nv.wait("search('apple pie', 'n') > 0").await;
    let file = folder(&nv, &nv.cwd).join("0198-c.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 4);
    assert!(text.ends_with('\n') && text.contains("apple pie"), "{text}");

    // d: asks; the first answer keeps it.
    go(&nv, "zebra").await;
    nv.keys("d").await;
    nv.wait_lua("return #_G.asked == 1").await;
    let asked = nv.lua("return _G.asked[1]", json!(null)).await;
    assert_eq!(asked, json!("Delete the session \"zebra question\"?"));
    assert!(folder(&nv, &nv.cwd).join("0198-a.jsonl").exists());
    nv.lua("_G.pick = 2", json!(null)).await;
    nv.keys("d").await;
    settled(&nv, 2).await;
    assert!(!folder(&nv, &nv.cwd).join("0198-a.jsonl").exists());

    // x: nothing runs there.
    nv.keys("x").await;
    nv.wait_lua("return table.concat(_G.notes, ' '):find('does not run', 1, true)")
        .await;
    // R, ?, q
    nv.keys("R").await;
    settled(&nv, 2).await;
    nv.keys("?").await;
    nv.wait("getline(1) =~ 'open here'").await;
    nv.keys("q").await;
    nv.wait("&filetype == 'pi-sessions'").await;
    nv.keys("q").await;
    nv.wait("bufwinid('pi://sessions') < 0").await;

    // <CR> opens it here.
    list(&nv, "Pi sessions", 2).await;
    go(&nv, "beta").await;
    nv.keys("<CR>").await;
    nv.wait_lua("return vim.t.pi_session == '0198-b' and require('pi.window').is_open()")
        .await;
    nv.wait("bufwinid('pi://sessions') < 0").await;
}

#[tokio::test]
async fn what_runs_stands_first_with_its_state_and_is_gone_to() {
    let model = Model::start(vec![
        Answer::Pieces(vec![Piece::Say("working".into()), Piece::Wait]),
        say("later"),
    ])
    .await;
    let nv = model.nvim(Options::default()).await;
    nv.attach(140, 40).await;
    seed(&nv);
    nv.lua(DIALOGS, json!(null)).await;
    nv.command("Pi ask long work").await;
    nv.wait_lua(
        "return require('pi.status').data() and require('pi.status').data().state == 'run'",
    )
    .await;
    let busy = nv.eval("t:pi_session").await;
    let busy = busy.as_str().unwrap();
    // A second one, in a tab page of its own.
    nv.command("tabnew").await;
    list(&nv, "Pi sessions", 4).await;
    assert!(ids(&nv).await.starts_with(busy), "{}", ids(&nv).await);
    nv.wait("getline(2) =~ '^ run '").await;
    go(&nv, "zebra").await;
    nv.keys("<C-t>").await;
    nv.wait_lua("return vim.t.pi_session == '0198-a' and require('pi.window').is_open()")
        .await;
    assert_eq!(nv.eval("tabpagenr('$')").await, json!(3));
    // By name it stands first all the same.
    list(&nv, "Pi sessions", 4).await;
    nv.keys("SS").await;
    nv.wait_lua("return not require('pi.sessions.list').state.reading and require('pi.sessions.list').state.sort == 'name'")
        .await;
    let order = ids(&nv).await;
    assert_eq!(
        order
            .split(' ')
            .take(2)
            .filter(|id| [busy, "0198-a"].contains(id))
            .count(),
        2
    );
    assert!(order.ends_with("0198-c 0198-b"), "{order}");
    // Opening one that another tab page shows goes there.
    nv.lua("vim.fn.search('^ run ', 'wc')", json!(null)).await;
    nv.keys("<CR>").await;
    nv.wait_lua(&format!(
        "return vim.t.pi_session == {busy:?} and vim.api.nvim_tabpage_get_number(0) == 1"
    ))
    .await;
    nv.command("Pi resume 0198-a").await;
    nv.wait_lua("return vim.t.pi_session == '0198-a' and vim.api.nvim_tabpage_get_number(0) == 3")
        .await;
    // One at work is stopped only after a question; it cannot be deleted before.
    list(&nv, "Pi sessions", 4).await;
    nv.wait("search('^ run ', 'wc') > 0").await;
    nv.keys("d").await;
    nv.wait_lua("return table.concat(_G.notes, ' '):find('x stops it', 1, true)")
        .await;
    nv.lua("_G.pick = 2", json!(null)).await;
    nv.keys("x").await;
    nv.wait_lua(&format!(
        "for _, row in ipairs(require('pi.sessions.list').state.rows) do
           if row.id == {busy:?} then return row.live == nil end
         end"
    ))
    .await;
    assert_eq!(
        nv.lua("return _G.asked[#_G.asked]", json!(null)).await,
        json!("The agent is at work there")
    );
}

#[tokio::test]
async fn a_long_list_is_told_in_parts_and_does_not_block() {
    let nv = Nv::start().await;
    nv.attach(120, 40).await;
    let here = folder(&nv, &nv.cwd);
    for at in 0..400 {
        Seed::new(&format!("0198-{at:04}"), &nv.cwd)
            .user("u1", None, &format!("question {at}"))
            .says("a1", "u1", &"long answer ".repeat(200))
            .write(&here.join(format!("{at:04}.jsonl")));
    }
    nv.lua(
        "_G.parts = {}
         local sessions = require('pi.sessions')
         local part = sessions.ops.part
         sessions.ops.part = function(op)
           local unread = vim.tbl_filter(function(row) return row.messages == nil end, op.sessions)
           table.insert(_G.parts, { #op.sessions, #unread })
           return part(op)
         end",
        json!(null),
    )
    .await;
    list(&nv, "Pi sessions", 400).await;
    let parts = nv.lua("return _G.parts", json!(null)).await;
    // Rows were there before the answer was.
    let first: &Value = &parts[0];
    assert!(first[0].as_u64().unwrap() > 0, "{parts}");
}
