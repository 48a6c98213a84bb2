//! Life of the backend: started at first use, gone with Neovim, missed once when it dies.

use std::process::Stdio;
use std::time::Duration;

use pretty_assertions::assert_eq;
use serde_json::json;

use super::harness::{Nv, Options, alive, wait_gone};
use super::model::{Model, Piece, call, say};

/// Long enough for a busy machine, short enough to tell an end from a lingering.
const SOON: Duration = Duration::from_millis(1_500);

const PID: &str = "return require('pi.backend').info().pid";
const NOTES: &str = "
    _G.notes = {}
    vim.notify = function(text) table.insert(_G.notes, text) end";

async fn started(nv: &Nv) -> i64 {
    nv.wait_lua("return require('pi.backend').info().running")
        .await;
    nv.lua(PID, json!(null)).await.as_i64().unwrap()
}

#[tokio::test]
async fn nothing_is_loaded_before_it_is_used_and_quitting_leaves_no_process() {
    let nv = Nv::start().await;
    let loaded = nv.lua(
        "return vim.tbl_filter(function(name) return name:match('^pi') end, vim.tbl_keys(package.loaded))",
        json!(null),
    );
    assert_eq!(loaded.await, json!([]));
    nv.command("Pi open").await;
    let pid = started(&nv).await;
    assert!(alive(pid));
    nv.wait_lua("return vim.t.pi_session").await;
    let took = nv.quit().await;
    assert!(took < SOON, "quitting took {took:?}");
    let lingered = wait_gone(pid).await;
    assert!(lingered < SOON, "the backend lingered {lingered:?}");
}

#[tokio::test]
async fn the_backend_ends_when_neovim_is_killed_also_during_a_command() {
    let model = Model::start(vec![call(
        "c1",
        "bash",
        json!({"command": "echo $$ > pid; sleep 300"}),
    )])
    .await;
    let nv = model
        .nvim(Options {
            before: "vim.g.pi = { review = { mode = 'auto' } }",
            ..Options::default()
        })
        .await;
    nv.command("Pi ask run it").await;
    let pid = started(&nv).await;
    nv.wait_lua("return (vim.uv.fs_stat('pid') or {}).size or 0 > 0")
        .await;
    nv.wait("filereadable('pid') && len(readfile('pid')) > 0")
        .await;
    let shell: i64 = nv
        .eval("str2nr(readfile('pid')[0])")
        .await
        .as_i64()
        .unwrap();
    assert!(alive(shell));
    nv.kill().await;
    assert!(wait_gone(pid).await < SOON);
    assert!(wait_gone(shell).await < SOON);
}

#[tokio::test]
async fn a_dead_backend_is_told_once_and_the_session_goes_on_after_a_restart() {
    let model = Model::start(vec![
        say("first answer"),
        call(
            "c1",
            "edit",
            json!({"path": "a.txt", "edits": [{"oldText": "one", "newText": "ONE"}]}),
        ),
        say("third answer"),
    ])
    .await;
    let nv = model
        .nvim(Options {
            files: vec![("a.txt", "one\ntwo\n".into())],
            ..Options::default()
        })
        .await;
    nv.lua(NOTES, json!(null)).await;
    nv.command("edit a.txt").await;
    nv.command("Pi ask hello").await;
    let pid = started(&nv).await;
    nv.wait_lua("return require('pi.status').data().state == 'idle' and #require('pi.chat').view(require('pi.chat').buffer(vim.t.pi_session)).blocks >= 2").await;
    let session = nv.eval("get(t:, 'pi_session', '')").await;
    // A draft in the prompt, and an edit that waits.
    nv.command("Pi ask change it").await;
    nv.wait_lua("return #require('pi.review.state').with_pending() > 0")
        .await;
    nv.lua("require('pi.prompt').insert('my draft')", json!(null))
        .await;
    let killed = std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status();
    assert!(killed.unwrap().success());
    nv.wait_lua("return not require('pi.backend').info().running")
        .await;
    nv.wait_lua("return #vim.tbl_filter(function(it) return it:match('the backend ended.*1 hunk not applied: `:Pi log`') end, _G.notes) == 1").await;
    // Off the screen, and in the log with its lines.
    let left = "[get(b:, 'pi_review', {}), g:pi_attention, maparg(']c', 'n')]";
    assert_eq!(nv.eval(left).await, json!([{}, 0, ""]));
    let log = nv
        .lua(
            "return table.concat(require('pi.log').lines(), '\\n')",
            json!(null),
        )
        .await;
    let log = log.as_str().unwrap();
    assert_eq!(log.matches("not applied: a.txt").count(), 1, "{log}");
    assert!(log.contains("-one") && log.contains("+ONE"), "{log}");
    assert_eq!(
        std::fs::read_to_string(nv.cwd.join("a.txt")).unwrap(),
        "one\ntwo\n"
    );
    nv.command("Pi restart").await;
    let again = started(&nv).await;
    assert_ne!(again, pid);
    nv.wait_lua("return vim.t.pi_session").await;
    assert_eq!(nv.eval("t:pi_session").await, session);
    nv.wait_lua(
        "local buf = require('pi.chat').buffer(vim.t.pi_session)
         local text = table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n')
         return text:find('first answer') and text:find('change it')",
    )
    .await;
    let draft = "return vim.api.nvim_buf_get_lines(require('pi.prompt').buffer(vim.t.pi_session), 0, -1, false)";
    assert_eq!(nv.lua(draft, json!(null)).await, json!(["my draft"]));
    nv.command("Pi ask go on").await;
    nv.wait_lua(
        "local buf = require('pi.chat').buffer(vim.t.pi_session)
         return table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n'):find('third answer')",
    )
    .await;
    // The call that was open has an answer: nothing was written.
    let last = model.requests().pop().unwrap();
    let results: Vec<_> = last["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .collect();
    assert_eq!(results.len(), 1, "{:#}", last["messages"]);
}

#[tokio::test]
async fn a_binary_that_cannot_be_started_is_one_clear_line() {
    let nv = Nv::start_with(Options {
        before: "vim.g.pi = { bin = '/nonexistent/pi-nvim' }",
        ..Options::default()
    })
    .await;
    nv.lua(NOTES, json!(null)).await;
    nv.command("Pi ask a text that must not be lost").await;
    nv.wait_lua("return #_G.notes == 1").await;
    let notes = nv.lua("return _G.notes", json!(null)).await;
    assert_eq!(
        notes,
        json!(["cannot start /nonexistent/pi-nvim: is it an executable for this machine?"])
    );
    // The right one is named: the text stands in the prompt.
    let binary = env!("CARGO_BIN_EXE_pi-nvim");
    nv.lua("require('pi').setup({ bin = ... })", json!([binary]))
        .await;
    nv.command("Pi open").await;
    nv.wait_lua(
        "local buf = require('pi.prompt').buffer(vim.t.pi_session)
         return vim.api.nvim_buf_get_lines(buf, 0, -1, false)[1] == 'a text that must not be lost'",
    )
    .await;
}

#[tokio::test]
async fn a_program_that_never_greets_is_given_up_with_one_line() {
    let nv = Nv::start().await;
    nv.lua(NOTES, json!(null)).await;
    // Says nothing.
    let silent = nv.cwd.join("silent");
    std::fs::write(&silent, "#!/bin/sh\nexec sleep 600\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&silent, executable).unwrap();
    nv.lua(
        "require('pi').setup({ bin = ... }) require('pi.backend').GREETING_MS = 100",
        json!([silent]),
    )
    .await;
    nv.command("Pi ask a text that must not be lost").await;
    nv.wait_lua("return #_G.notes == 1 and not require('pi.backend').info().running")
        .await;
    let notes = nv.lua("return _G.notes[1]", json!(null)).await;
    let notes = notes.as_str().unwrap();
    assert!(notes.contains("silent does not answer"), "{notes}");
    // The right one is named: it starts, and the text stands in the prompt.
    let binary = env!("CARGO_BIN_EXE_pi-nvim");
    nv.lua(
        "require('pi').setup({ bin = ... }) require('pi.backend').GREETING_MS = 10000",
        json!([binary]),
    )
    .await;
    nv.command("Pi open").await;
    nv.wait_lua(
        "local buf = require('pi.prompt').buffer(vim.t.pi_session)
         return vim.api.nvim_buf_get_lines(buf, 0, -1, false)[1] == 'a text that must not be lost'",
    )
    .await;
}

#[tokio::test]
async fn another_protocol_is_refused_with_what_to_do() {
    let nv = Nv::start().await;
    nv.lua(NOTES, json!(null)).await;
    nv.lua("require('pi.backend').PROTOCOL = 99", json!(null))
        .await;
    nv.command("Pi open").await;
    nv.wait_lua("return #_G.notes > 0 and not require('pi.backend').info().running")
        .await;
    // Told once, also when the process is gone.
    nv.command("Pi log").await;
    nv.wait_lua("return #_G.notes == 1").await;
    let notes = nv
        .lua("return table.concat(_G.notes, ' ')", json!(null))
        .await;
    let notes = notes.as_str().unwrap();
    assert!(
        notes.contains("protocol 1") && notes.contains("this plugin 99"),
        "{notes}"
    );
    assert!(notes.contains(":Pi install source"), "{notes}");
}

#[tokio::test]
async fn attaching_works_once() {
    let nv = Nv::start().await;
    nv.lua("vim.cmd('runtime plugin/pi.lua')", json!(null))
        .await;
    let attach = || {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pi-nvim"));
        command
            .arg("--attach")
            .arg(&nv.socket)
            .env("HOME", nv.root.path().join("home"))
            .env("PI_CODING_AGENT_DIR", nv.root.path().join("agent"))
            .env("XDG_STATE_HOME", nv.root.path().join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command.spawn().unwrap()
    };
    let mut first = attach();
    let pid = started(&nv).await;
    assert_eq!(pid, i64::from(first.id().unwrap()));
    let second = attach().wait_with_output().await.unwrap();
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success());
    assert!(
        text.contains(&format!("a backend already, process {pid}")),
        "{text}"
    );
    nv.command("Pi open").await;
    nv.wait_lua("return vim.t.pi_session").await;
    nv.quit().await;
    let ended = tokio::time::timeout(Duration::from_secs(10), first.wait()).await;
    assert!(ended.unwrap().unwrap().success());
}

#[tokio::test]
async fn attaching_where_nobody_listens_says_so() {
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_pi-nvim"))
        .args(["--attach", "/nonexistent/socket"])
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.starts_with("Error: no Neovim listens on /nonexistent/socket"),
        "{text}"
    );
}

#[tokio::test]
async fn pending_requests_fail_when_the_backend_dies() {
    let model = Model::start(vec![super::model::Answer::Pieces(vec![Piece::Wait])]).await;
    let nv = model.nvim(Options::default()).await;
    nv.command("Pi ask hello").await;
    let pid = started(&nv).await;
    nv.wait_lua("return vim.t.pi_session").await;
    // The run never ends, so this compaction waits for it.
    nv.lua(
        "require('pi.rpc').request('run.bash', { session = vim.t.pi_session, command = 'sleep 300' },
            function(err) _G.answer = err end)",
        json!(null),
    )
    .await;
    std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .unwrap();
    nv.wait_lua("return _G.answer and _G.answer:match('the backend ended')")
        .await;
}
