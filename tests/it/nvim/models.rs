//! Keys and models as a person sets them up: what is typed stays hidden, what cannot be used says why, servers of this
//! machine are asked only when wanted.

use pi_nvim::testing::http::{Response, Server};
use serde_json::{Value, json};

use super::harness::{Nv, Options};

const SECRET: &str = "sk-test-SECRET123";

/// Waits until a message on the screen holds these words.
async fn told(nv: &Nv, words: &str) {
    nv.wait_lua(&format!(
        "return vim.fn.execute('messages'):find({}, 1, true)",
        json!(words)
    ))
    .await;
}

fn auth_file(nv: &Nv) -> Value {
    let text = std::fs::read_to_string(nv.root.path().join("agent/auth.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn a_key_is_typed_unseen_stored_for_the_owner_and_removed_again() {
    let nv = Nv::start().await;
    nv.attach(100, 30).await;
    nv.command("Pi open").await;
    nv.wait("exists('t:pi_session')").await;
    nv.keys(":Pi login groq<CR>").await;
    let asked = nv
        .wait_screen("the question", |screen| {
            screen.text().contains("Key for groq:")
        })
        .await;
    assert!(!asked.text().contains("SECRET123"));
    nv.keys(SECRET).await;
    let typed = nv
        .wait_screen("stars", |screen| screen.text().contains("*****"))
        .await;
    assert!(!typed.text().contains("SECRET123"), "{}", typed.text());
    nv.keys("<CR>").await;
    told(&nv, "the key for groq is stored").await;
    assert_eq!(
        auth_file(&nv),
        json!({"groq": {"type": "api_key", "key": SECRET}})
    );
    use std::os::unix::fs::PermissionsExt;
    let path = nv.root.path().join("agent/auth.json");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The session had no model; now it has one of that provider.
    nv.wait_lua("local it = require('pi.status').data() return it and it.provider == 'groq'")
        .await;
    let kept = "
        local out = { vim.fn.execute('messages') }
        for _, name in ipairs({ ':', '/', '=', '@', '>' }) do out[#out + 1] = vim.fn.execute('history ' .. name) end
        for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
          vim.list_extend(out, vim.api.nvim_buf_get_lines(buffer, 0, -1, false))
        end
        return table.concat(out, '\\n')";
    let kept = nv.lua(kept, json!([])).await;
    assert!(!kept.as_str().unwrap().contains("SECRET123"), "{kept}");
    nv.command("Pi logout groq").await;
    told(&nv, "the key for groq is removed").await;
    assert_eq!(auth_file(&nv), json!({}));
    nv.command("Pi logout groq").await;
    told(&nv, "there was no key").await;
}

#[tokio::test]
async fn a_model_that_cannot_be_used_says_why() {
    let nv = Nv::start_with(Options {
        before: "vim.ui.select = function(items, opts, done)
            local choice = _G.choice
            _G.rows, _G.choice = vim.tbl_map(opts.format_item or tostring, items), nil
            done(items[choice], choice)
        end",
        env: vec![("GROQ_API_KEY", SECRET.to_owned())],
        ..Options::default()
    })
    .await;
    let agent = nv.root.path().join("agent");
    let models = json!({"providers": {"mine": {"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions", "apiKey": "$NOT_SET",
        "models": [{"id": "big"}]}}});
    std::fs::write(agent.join("models.json"), models.to_string()).unwrap();
    nv.command("Pi open").await;
    nv.wait("exists('t:pi_session')").await;
    nv.command("Pi model mine/big").await;
    told(
        &nv,
        "mine/big: apiKey in models.json names NOT_SET, which is not set",
    )
    .await;
    nv.command("Pi model claude").await;
    told(&nv, "set ANTHROPIC_API_KEY or run :Pi login anthropic").await;
    nv.command("Pi model no-such-thing").await;
    told(&nv, "no model matches no-such-thing").await;
    nv.command("Pi model").await;
    nv.wait_lua("return _G.rows").await;
    let rows = nv.lua("return _G.rows", json!([])).await;
    let rows: Vec<&str> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row.as_str().unwrap())
        .collect();
    let (last, usable) = rows.split_last().unwrap();
    assert!(
        last.ends_with("providers that cannot be used, and why"),
        "{rows:?}"
    );
    assert!(
        !usable.is_empty() && usable.iter().all(|row| row.starts_with("groq/")),
        "{rows:?}"
    );
    // The last row leads to the reasons.
    let choice = rows.len();
    nv.lua(&format!("_G.rows, _G.choice = nil, {choice}"), json!([]))
        .await;
    nv.command("Pi model").await;
    nv.wait_lua("return _G.rows and vim.tbl_contains(_G.rows, 'mine: apiKey in models.json names NOT_SET, which is not set')")
        .await;
    // The file is read again when the list is opened, and a mistake in it is told, once.
    std::fs::write(
        agent.join("models.json"),
        "{ \"providers\": { \"mine\": { \"baseUrl\": 7 } } }",
    )
    .unwrap();
    nv.command("Pi model no-such-thing").await;
    nv.command("Pi model no-such-thing").await;
    told(&nv, "baseUrl").await;
    let twice = "
        local _, count = vim.fn.execute('messages'):gsub('providers.mine.baseUrl', '')
        return count";
    assert_eq!(nv.lua(twice, json!([])).await, json!(1));
}

#[tokio::test]
async fn servers_of_this_machine_are_asked_when_wanted_and_used_at_once() {
    let script = [
        json!({"models": [{"model": "qwen3:8b"}]}),
        json!({"models": [{"model": "qwen3:8b", "context_length": 32768}]}),
        json!({"capabilities": ["completion", "tools"]}),
    ];
    let mut script: Vec<Response> = script
        .iter()
        .map(|answer| Response::status(200, answer.to_string()))
        .collect();
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "I run here."}, "finish_reason": "stop"}]});
    script.push(Response::ok(format!("data: {chunk}\n\ndata: [DONE]\n\n")));
    let server = Server::start(script).await.unwrap();
    let nv = Nv::start_with(Options {
        env: vec![("OLLAMA_HOST", format!("127.0.0.1:{}", server.port()))],
        before: "vim.ui.select = function(items, opts, done)
            _G.rows = vim.tbl_map(opts.format_item or tostring, items)
            done(items[#items], #items)
        end",
        ..Options::default()
    })
    .await;
    nv.command("Pi open").await;
    nv.wait("exists('t:pi_session')").await;
    nv.command("Pi model no-such-thing").await;
    told(&nv, "no model matches").await;
    assert_eq!(server.connections(), 0, "asked before anybody wanted it");
    nv.command("Pi model local").await;
    told(&nv, "model: ollama/qwen3:8b").await;
    let rows = nv.lua("return _G.rows", json!([])).await;
    let ours = "ollama/qwen3:8b  (context 32k)";
    assert!(
        rows.as_array().unwrap().iter().any(|row| row == ours),
        "{rows}"
    );
    nv.command("Pi ask hello").await;
    nv.wait_lua(
        "for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
           if table.concat(vim.api.nvim_buf_get_lines(buffer, 0, -1, false)):find('I run here.', 1, true) then return true end
         end",
    )
    .await;
    let asked = server.requests();
    let last = asked.last().unwrap();
    assert_eq!(last.path, "/v1/chat/completions");
    let body: Value = serde_json::from_slice(&last.body).unwrap();
    assert_eq!(body["model"], "qwen3:8b");
}
