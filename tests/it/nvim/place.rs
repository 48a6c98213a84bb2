//! Which directory a session works in, and which session the command line opens.

use std::path::{Path, PathBuf};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::harness::{Nv, Options};
use super::model::{Model, say};
use super::seed::Seed;

/// Answers `vim.ui.select` with the choice that begins with `_G.answer`, or leaves it; keeps what was asked.
const SELECT: &str = "_G.asked = {}
    vim.ui.select = function(items, opts, done)
      table.insert(_G.asked, { prompt = opts.prompt, kind = opts.kind, items = items })
      for i, it in ipairs(items) do
        if _G.answer and vim.startswith(it, _G.answer) then return done(it, i) end
      end
      done(nil, nil)
    end";

const CHAT: &str = "local buf = require('pi.chat').buffer(vim.t.pi_session)
    local text = table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n')";

async fn wait_chat(nv: &Nv, text: &str) {
    nv.wait_lua(&format!("{CHAT} return text:find({text:?}, 1, true)"))
        .await;
}

async fn wait_cwd(nv: &Nv, cwd: &Path) {
    nv.wait_lua(&format!(
        "return require('pi.status').data().cwd == {cwd:?}"
    ))
    .await;
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap()
}

#[tokio::test]
async fn home_and_root_are_said_before_the_first_run_and_nowhere_else() {
    let model = Model::start(vec![say("done")]).await;
    let nv = model.nvim(Options::default()).await;
    let line = "This is your home directory, not a project";
    nv.command("Pi open").await;
    wait_chat(&nv, "Directory").await;
    assert_eq!(
        nv.lua(
            &format!("{CHAT} return text:find('not a project')"),
            json!(null)
        )
        .await,
        Value::Null
    );
    nv.command("tcd $HOME").await;
    nv.command("Pi new").await;
    wait_chat(&nv, line).await;
    // It stands there when the run begins, below nothing that hides it.
    nv.command("Pi ask hello").await;
    wait_chat(&nv, "done").await;
    wait_chat(&nv, line).await;
    nv.command("tcd /").await;
    nv.command("Pi new").await;
    wait_chat(&nv, "This is the root of this machine, not a project").await;
    wait_cwd(&nv, Path::new("/")).await;
}

#[tokio::test]
async fn the_directory_stays_the_sessions_own() {
    let model = Model::start(vec![say("one"), say("two")]).await;
    let nv = model
        .nvim(Options {
            files: vec![("other/x.txt", "x\n".into())],
            ..Options::default()
        })
        .await;
    nv.attach(150, 30).await;
    nv.command("Pi ask hello").await;
    wait_chat(&nv, "one").await;
    let first = nv.eval("t:pi_session").await;
    nv.command("tcd other").await;
    nv.command("Pi new elsewhere").await;
    wait_cwd(&nv, &nv.cwd.join("other")).await;
    nv.command(&format!("Pi resume {}", first.as_str().unwrap()))
        .await;
    nv.wait_lua(&format!("return vim.t.pi_session == {first}"))
        .await;
    wait_cwd(&nv, &nv.cwd).await;
    // Opened anew it goes on where it was made, whatever the tab page's directory is now.
    let path = nv
        .lua("return require('pi.session').info().file", json!(null))
        .await;
    nv.command("Pi restart").await;
    nv.wait_lua(&format!(
        "return vim.t.pi_session == {first} and require('pi.backend').info().running"
    ))
    .await;
    wait_cwd(&nv, &nv.cwd).await;
    assert!(Path::new(path.as_str().unwrap()).exists());
    assert_eq!(nv.eval("getcwd(-1, 0)").await, json!(nv.cwd.join("other")));
    // A named session shows its directory as well.
    nv.command("Pi name my name").await;
    nv.wait_lua("return require('pi.status').data().name == 'my name'")
        .await;
    let bar = "vim.g.statusline_winid = (require('pi.window').windows()) return require('pi.status').winbar()";
    let bar = nv.lua(bar, json!(null)).await;
    assert!(bar.as_str().unwrap().contains("my name"), "{bar}");
    assert!(bar.as_str().unwrap().contains("work"), "{bar}");
}

#[tokio::test]
async fn with_autochdir_the_root_of_the_file_counts() {
    let nv = Nv::start_with(Options {
        files: vec![
            ("repo/.git/HEAD", "ref: refs/heads/main\n".into()),
            ("repo/src/deep/a.rs", "\n".into()),
            // A linked worktree has a file in that place.
            (
                "linked/.git",
                "gitdir: ../repo/.git/worktrees/linked\n".into(),
            ),
            ("linked/src/b.rs", "\n".into()),
            ("agents/AGENTS.md", "\n".into()),
            ("agents/sub/c.rs", "\n".into()),
            ("plain/sub/d.rs", "\n".into()),
        ],
        ..Options::default()
    })
    .await;
    nv.command("set autochdir hidden").await;
    // Without a marker above, the file's own directory; the test's own folder has none.
    for (file, root) in [
        ("repo/src/deep/a.rs", "repo"),
        ("linked/src/b.rs", "linked"),
        ("agents/sub/c.rs", "agents"),
        ("plain/sub/d.rs", "plain/sub"),
    ] {
        nv.command(&format!("edit {}", nv.cwd.join(file).display()))
            .await;
        let cwd = nv.lua("return require('pi.backend').cwd()", json!(null));
        assert_eq!(cwd.await, json!(nv.cwd.join(root)), "{file}");
    }
    // In a window that shows no file it is the root of where Neovim stands.
    nv.command(&format!(
        "edit {}",
        nv.cwd.join("repo/src/deep/a.rs").display()
    ))
    .await;
    nv.command("new | setlocal buftype=nofile").await;
    let cwd = nv.lua("return require('pi.backend').cwd()", json!(null));
    assert_eq!(cwd.await, json!(nv.cwd.join("repo")));
    nv.command("Pi open").await;
    wait_cwd(&nv, &nv.cwd.join("repo")).await;
}

/// A session of a directory that is gone, in the folder of its sessions.
fn orphan(nv: &Nv) -> PathBuf {
    let gone = nv.root.path().join("gone");
    Seed::new("0198aaaa-gone", &gone)
        .user("u1", None, "old question")
        .says("a1", "u1", "old answer")
        .write(&nv.root.path().join("agent/sessions/--gone--/s.jsonl"))
}

#[tokio::test]
async fn a_session_whose_directory_is_gone_is_asked_about() {
    let model = Model::start(vec![say("new answer")]).await;
    let nv = model.nvim(Options::default()).await;
    let path = orphan(&nv);
    let before = std::fs::read(&path).unwrap();
    nv.lua(SELECT, json!(null)).await;
    nv.command("Pi open").await;
    nv.wait_lua("return vim.t.pi_session").await;
    let session = nv.eval("t:pi_session").await;

    // Leaving the question changes nothing.
    nv.command("Pi resume 0198aaaa").await;
    nv.wait_lua("return #_G.asked == 1").await;
    let asked = nv.lua("return _G.asked[1]", json!(null)).await;
    assert_eq!(asked["kind"], json!("pi.confirm"));
    let prompt = asked["prompt"].as_str().unwrap();
    assert!(prompt.contains("gone"), "{prompt}");
    assert_eq!(asked["items"].as_array().unwrap().len(), 3);
    nv.lua("_G.answer = 'cancel'", json!(null)).await;
    nv.command("Pi resume 0198aaaa").await;
    nv.wait_lua("return #_G.asked == 2").await;
    assert_eq!(nv.eval("t:pi_session").await, session);
    assert_eq!(std::fs::read(&path).unwrap(), before);

    // Here: the same file goes on, and keeps saying where it was made.
    nv.lua("_G.answer = 'continue'", json!(null)).await;
    nv.command("Pi resume 0198aaaa").await;
    nv.wait_lua("return vim.t.pi_session == '0198aaaa-gone'")
        .await;
    wait_chat(&nv, "old answer").await;
    wait_cwd(&nv, &nv.cwd).await;
    nv.command("Pi ask go on").await;
    wait_chat(&nv, "new answer").await;
    let after = std::fs::read_to_string(&path).unwrap();
    let head = after.lines().next().unwrap();
    assert!(after.as_bytes().starts_with(&before));
    assert!(
        head.contains(&nv.root.path().join("gone").display().to_string()),
        "{head}"
    );
    assert!(after.contains("go on"), "it goes on in the same file");
    nv.wait_lua("return require('pi.status').data().state == 'idle'")
        .await;

    // It is asked again the next time, also after a restart of the backend.
    nv.lua("_G.answer = 'fork'", json!(null)).await;
    nv.command("Pi restart").await;
    nv.wait_lua("return #_G.asked == 4").await;
    nv.wait_lua("return vim.t.pi_session ~= '0198aaaa-gone'")
        .await;
    wait_chat(&nv, "old answer").await;
    wait_cwd(&nv, &nv.cwd).await;
    let file = nv.lua("return require('pi.session').info().file", json!(null));
    let copy = std::fs::read_to_string(file.await.as_str().unwrap()).unwrap();
    let head: Value = serde_json::from_str(copy.lines().next().unwrap()).unwrap();
    assert_eq!(head["cwd"], json!(nv.cwd));
    assert_eq!(head["parentSession"], json!(real(&path)));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
}

#[tokio::test]
async fn to_continue_asks_as_well() {
    let nv = Nv::start().await;
    nv.lua(SELECT, json!(null)).await;
    // The folder of a project may hold a session that says something else: the project was moved.
    let folder = nv
        .cwd
        .to_string_lossy()
        .trim_start_matches('/')
        .replace('/', "-");
    let gone = nv.root.path().join("gone");
    Seed::new("0198bbbb-moved", &gone)
        .user("u1", None, "old question")
        .says("a1", "u1", "old answer")
        .write(
            &nv.root
                .path()
                .join(format!("agent/sessions/--{folder}--/s.jsonl")),
        );
    nv.lua("_G.answer = 'continue'", json!(null)).await;
    nv.command("Pi continue").await;
    nv.wait_lua("return #_G.asked == 1 and vim.t.pi_session == '0198bbbb-moved'")
        .await;
    wait_cwd(&nv, &nv.cwd).await;
}

/// A script in the place of the binary, which starts it with more arguments: what a person would write.
fn with_arguments(nv: &Nv, arguments: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let script = nv.root.path().join("pi-nvim");
    let binary = env!("CARGO_BIN_EXE_pi-nvim");
    std::fs::write(
        &script,
        format!("#!/bin/sh\nexec {binary} \"$@\" {arguments}\n"),
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}

async fn started_with(arguments: &str) -> Nv {
    let nv = Nv::start().await;
    let folder = nv
        .cwd
        .to_string_lossy()
        .trim_start_matches('/')
        .replace('/', "-");
    let sessions = nv.root.path().join(format!("agent/sessions/--{folder}--"));
    for (id, text) in [
        ("0198cccc-one", "first text"),
        ("0198dddd-two", "second text"),
    ] {
        Seed::new(id, &nv.cwd)
            .user("u1", None, text)
            .says("a1", "u1", "an answer")
            .write(&sessions.join(format!("{id}.jsonl")));
    }
    let old = sessions.join("0198cccc-one.jsonl");
    let hour = std::time::Duration::from_secs(3_600);
    let file = std::fs::File::options().append(true).open(old).unwrap();
    file.set_modified(std::time::SystemTime::now() - hour)
        .unwrap();
    let script = with_arguments(&nv, arguments);
    nv.lua("vim.env.PI_NVIM_BIN = ...", json!([script])).await;
    nv.lua(
        "_G.notes = {} vim.notify = function(text) table.insert(_G.notes, text) end",
        json!(null),
    )
    .await;
    nv.lua(
        "require('pi.backend').start(function(err) table.insert(_G.notes, err) end)",
        json!(null),
    )
    .await;
    nv
}

#[tokio::test]
async fn the_command_line_names_the_session_to_begin_with() {
    for (arguments, id) in [
        ("--continue", "0198dddd-two"),
        ("--session 0198cccc", "0198cccc-one"),
        ("--session-id 0198cccc-one", "0198cccc-one"),
        ("--session-id a-new-one", "a-new-one"),
    ] {
        let nv = started_with(arguments).await;
        nv.wait_lua(&format!(
            "return vim.t.pi_session == {id:?} and require('pi.window').is_open()"
        ))
        .await;
        // It was for the first session only.
        nv.command("Pi new").await;
        nv.wait_lua(&format!("return vim.t.pi_session ~= {id:?}"))
            .await;
    }
}

#[tokio::test]
async fn the_other_flags_about_sessions_hold_too() {
    let nv = started_with("--fork 0198cccc --name 'a copy'").await;
    nv.wait_lua("return require('pi.status').data().name == 'a copy'")
        .await;
    wait_chat(&nv, "first text").await;
    assert_ne!(nv.eval("t:pi_session").await, json!("0198cccc-one"));

    let nv = started_with("--no-session").await;
    nv.wait_lua("return vim.t.pi_session").await;
    let file = "return require('pi.session').info().file";
    assert_eq!(nv.lua(file, json!(null)).await, Value::Null);
    let first = nv.eval("t:pi_session").await;
    nv.command("Pi new").await;
    nv.wait_lua(&format!("return vim.t.pi_session ~= {first}"))
        .await;
    assert_eq!(nv.lua(file, json!(null)).await, Value::Null);

    let nv = started_with("--session-dir ./kept").await;
    nv.command("Pi open").await;
    nv.wait_lua("return vim.t.pi_session").await;
    let file = nv.lua(file, json!(null)).await;
    assert!(file.as_str().unwrap().contains("/kept/"), "{file}");

    let nv = started_with("--resume").await;
    nv.wait("&filetype == 'pi-sessions' && search('second text', 'n') > 0")
        .await;
    assert_eq!(nv.eval("get(t:, 'pi_session', 0)").await, json!(0));
}

#[tokio::test]
async fn what_makes_no_sense_here_is_refused_with_one_line() {
    for (arguments, line) in [
        (
            "--session nothing-like-it",
            "No session found matching 'nothing-like-it'",
        ),
        ("hello", "with Neovim a message is written there"),
        ("--review reject", "the option `review.mode` decides"),
    ] {
        let nv = started_with(arguments).await;
        nv.wait_lua(&format!(
            "return table.concat(_G.notes, ' '):find({line:?}, 1, true)"
        ))
        .await;
        assert_eq!(nv.eval("get(t:, 'pi_session', 0)").await, json!(0));
    }
}
