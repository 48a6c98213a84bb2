//! A project's own resources are used only after a person said so, and then at once.

use serde_json::json;

use super::harness::{Nv, Options};

/// Answers every question with this choice and keeps what was asked.
const ANSWER: &str = "
    _G.asked = {}
    vim.ui.select = function(items, opts, done)
      table.insert(_G.asked, opts.prompt)
      local item = items[_G.choice]
      done(item, item and _G.choice)
    end";

const COMMANDS: &str = "
    _G.seen, _G.names = _G.names, nil
    require('pi.session').request('session.commands', {}, function(_, result)
      _G.names = vim.tbl_map(function(it) return it.name end, result.commands)
    end)";

async fn commands(nv: &Nv) -> serde_json::Value {
    nv.lua(COMMANDS, json!([])).await;
    nv.wait_lua("return _G.names").await;
    nv.lua("return _G.names", json!([])).await
}

async fn open_with(choice: u32) -> Nv {
    let nv = Nv::start_with(Options {
        files: vec![(".pi/prompts/mine.md", "hello".to_owned())],
        ..Options::default()
    })
    .await;
    nv.lua(&format!("_G.choice = {choice} {ANSWER}"), json!([]))
        .await;
    nv.command("Pi open").await;
    nv.wait_lua("return vim.t.pi_session and #_G.asked > 0")
        .await;
    nv
}

#[tokio::test]
async fn a_new_project_is_asked_about_once_and_used_after_yes() {
    let nv = open_with(1).await;
    let asked = nv.lua("return _G.asked", json!([])).await;
    assert_eq!(asked, json!(["This project brings .pi/prompts"]));
    nv.wait_lua(&format!("{COMMANDS} return _G.seen and #_G.seen > 0"))
        .await;
    assert_eq!(commands(&nv).await, json!(["mine"]));
    let agent = nv.root.path().join("agent/trust.json");
    let stored = std::fs::read_to_string(agent).unwrap();
    assert_eq!(
        stored,
        format!("{{\n  \"{}\": true\n}}\n", nv.cwd.display())
    );
    nv.command("Pi new").await;
    assert_eq!(commands(&nv).await, json!(["mine"]));
    assert_eq!(nv.lua("return #_G.asked", json!([])).await, json!(1));
}

#[tokio::test]
async fn no_and_later_use_nothing() {
    for choice in [4, 99] {
        let nv = open_with(choice).await;
        assert_eq!(commands(&nv).await, json!([]));
    }
}
