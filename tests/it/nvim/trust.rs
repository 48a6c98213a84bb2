//! A project's own resources are used only after a person said so, and then at once.

use serde_json::json;

use super::harness::{Nv, Options};

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

async fn open() -> Nv {
    let nv = Nv::start_with(Options {
        files: vec![(".pi/prompts/mine.md", "hello".to_owned())],
        ..Options::default()
    })
    .await;
    nv.attach(100, 30).await;
    nv.command("Pi open").await;
    nv.wait_lua("return vim.t.pi_session").await;
    nv.wait("get(g:, 'pi_attention', 0) == 1").await;
    // Nothing is asked in the middle of something else: the question waits.
    assert_eq!(nv.eval("&filetype").await, json!(""));
    nv.command("Pi attention").await;
    nv.wait("&filetype == 'pi-question'").await;
    nv
}

#[tokio::test]
async fn a_new_project_is_asked_about_once_and_used_after_yes() {
    let nv = open().await;
    nv.wait_screen("what would be loaded", |screen| {
        let text = screen.text();
        text.contains("Trust this project?") && text.contains("It brings .pi/prompts.")
    })
    .await;
    nv.keys("1").await;
    nv.wait("g:pi_attention == 0 && &filetype != 'pi-question'")
        .await;
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
    assert_eq!(nv.eval("g:pi_attention").await, json!(0));
}

#[tokio::test]
async fn no_and_later_use_nothing() {
    for (key, waiting) in [("4", 0), ("<Esc>", 1)] {
        let nv = open().await;
        nv.keys(key).await;
        nv.wait(&format!(
            "g:pi_attention == {waiting} && &filetype != 'pi-question'"
        ))
        .await;
        assert_eq!(commands(&nv).await, json!([]));
        // Put off, it can still be answered.
        nv.command("Pi trust").await;
        nv.wait("&filetype == 'pi-question'").await;
        nv.keys("1").await;
        nv.wait_lua(&format!("{COMMANDS} return _G.seen and #_G.seen > 0"))
            .await;
    }
}
