//! What goes wrong with a model server, once through a real Neovim: one clear line and what to do about it, the session
//! goes on, and no text is lost.

use serde_json::{Value, json};

use super::harness::{Nv, Options};
use super::model::{Answer, Model, say};

const CHAT: &str = "
    local lines = {}
    local view = require('pi.chat').view(require('pi.chat').buffer(vim.t.pi_session))
    for _, block in ipairs(view.blocks) do
      if block.kind == 'error' then
        vim.list_extend(lines, vim.api.nvim_buf_get_lines(view.buf, block.first, block.first + block.count, false))
      end
    end
    return lines";
const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
const BEGUN: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"It begins\"},\"finish_reason\":null}]}\n\n";

async fn idle(nv: &Nv) {
    nv.wait_lua(
        "local it = require('pi.status').data() return it and not it.running and it.state ~= 'run'",
    )
    .await;
}

async fn errors(nv: &Nv) -> Vec<String> {
    let lines = nv.lua(CHAT, json!(null)).await;
    let lines = lines.as_array().cloned().unwrap_or_default();
    let text = |line: &Value| line.as_str().unwrap_or_default().to_owned();
    lines.iter().map(text).collect()
}

/// Sends a prompt that fails, reads what the chat says, and sends another one that succeeds in the same session.
async fn check(answer: Answer, settings: Value, line: &str, advice: &str) {
    let model = Model::start(vec![answer, say("it works again")]).await;
    let nv = Nv::start_with(Options::default()).await;
    let mut all = json!({"retry": {"enabled": false}, "compaction": {"enabled": false}});
    if let (Value::Object(all), Value::Object(more)) = (&mut all, settings) {
        all.extend(more);
    }
    model.install_with(&nv.root.path().join("agent"), all);
    nv.command("Pi ask the first text").await;
    nv.wait_lua(&format!(
        "{} ",
        CHAT.replace("return lines", "return #lines > 0")
    ))
    .await;
    idle(&nv).await;
    let found = errors(&nv).await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains(line), "{found:?}");
    assert!(found[1].contains(advice), "{found:?}");
    assert!(!found.join(" ").contains("SECRET123"), "{found:?}");
    // What was sent comes back with one key.
    nv.command("Pi focus prompt").await;
    nv.wait("&filetype == 'pi-prompt'").await;
    nv.keys("<Esc>i<Up>").await;
    nv.wait("getline(1) == 'the first text'").await;
    nv.keys("<C-s>").await;
    nv.wait_lua(
        "local buf = require('pi.chat').buffer(vim.t.pi_session)
         return table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n'):find('it works again')",
    )
    .await;
    // Nothing of the failed answer is asked twice, and both prompts are in the session.
    assert_eq!(model.requests().len(), 2);
    let stored = std::fs::read_to_string(
        nv.lua("return require('pi.session').info().file", json!(null))
            .await
            .as_str()
            .unwrap(),
    )
    .unwrap();
    assert_eq!(stored.matches("\"the first text\"").count(), 2, "{stored}");
}

fn http(status: &str, headers: &str, body: &str) -> Answer {
    Answer::Raw(
        format!(
            "HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ),
        None,
    )
}

#[tokio::test]
async fn a_wrong_key() {
    let body = json!({"error": {"message": "Incorrect API key provided: sk-test-SECRET123"}});
    let answer = http("401 Unauthorized", "", &body.to_string());
    check(
        answer,
        json!({}),
        "401: Incorrect API key provided",
        "`:Pi login mock`",
    )
    .await;
}

#[tokio::test]
async fn a_page_of_a_proxy() {
    let page = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>";
    let answer = http("502 Bad Gateway", "content-type: text/html\r\n", page);
    check(
        answer,
        json!({}),
        "502 Bad Gateway",
        "send again in a while",
    )
    .await;
}

#[tokio::test]
async fn a_server_that_says_nothing() {
    let limit = json!({"httpIdleTimeoutMs": 300});
    let answer = Answer::Raw(String::new(), Some(String::new()));
    check(answer, limit, "request timed out", "`httpIdleTimeoutMs`").await;
}

#[tokio::test]
async fn a_server_that_falls_silent() {
    let limit = json!({"httpIdleTimeoutMs": 300});
    let answer = Answer::Raw(format!("{STREAM}{BEGUN}"), Some(String::new()));
    check(
        answer,
        limit,
        "the server sent nothing for",
        "`httpIdleTimeoutMs`",
    )
    .await;
}

#[tokio::test]
async fn a_malformed_stream() {
    let answer = Answer::Raw(format!("{STREAM}{BEGUN}data: {{\"choices\":[{{\n\n"), None);
    check(answer, json!({}), "no JSON", "what came is kept").await;
}

#[tokio::test]
async fn an_early_end() {
    let answer = Answer::Raw(format!("{STREAM}{BEGUN}"), None);
    check(answer, json!({}), "ended", "what came is kept").await;
}

#[tokio::test]
async fn too_much_text() {
    let body = json!({"error": {"code": "context_length_exceeded", "message":
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."}});
    let answer = http("400 Bad Request", "", &body.to_string());
    check(answer, json!({}), "maximum context length", "`:Pi compact`").await;
}

#[tokio::test]
async fn a_server_that_is_down() {
    let model = Model::start(vec![say("it works again")]).await;
    let nv = Nv::start_with(Options::default()).await;
    let agent = nv.root.path().join("agent");
    model.install_with(&agent, json!({"retry": {"enabled": false}}));
    // A port nobody listens on: bound and closed at once.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = free.local_addr().unwrap().to_string();
    drop(free);
    let file = agent.join("models.json");
    let models = std::fs::read_to_string(&file).unwrap();
    let address = models
        .split("http://")
        .nth(1)
        .unwrap()
        .split("/v1")
        .next()
        .unwrap();
    std::fs::write(&file, models.replace(address, &dead)).unwrap();
    nv.command("Pi ask the first text").await;
    nv.wait_lua(&CHAT.replace("return lines", "return #lines > 0"))
        .await;
    idle(&nv).await;
    let found = errors(&nv).await;
    assert_eq!(
        found[0],
        format!("connection error: Connection refused ({dead})")
    );
    assert!(found[1].starts_with("is the server running?"), "{found:?}");
    // The address is put right; the session goes on.
    std::fs::write(&file, &models).unwrap();
    nv.command("Pi restart").await;
    nv.wait_lua("return require('pi.backend').info().running and vim.t.pi_session")
        .await;
    nv.command("Pi ask again").await;
    nv.wait_lua(
        "local buf = require('pi.chat').buffer(vim.t.pi_session)
         local text = table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n')
         return text:find('it works again') and text:find('the first text')",
    )
    .await;
}

#[tokio::test]
async fn a_limit_counts_down_in_one_line_until_the_next_attempt() {
    let body = json!({"error": {"message": "Rate limit reached for requests"}});
    let limited = http(
        "429 Too Many Requests",
        "retry-after: 3\r\n",
        &body.to_string(),
    );
    let model = Model::start(vec![limited, say("it works again")]).await;
    let nv = Nv::start_with(Options::default()).await;
    let retry = json!({"retry": {"enabled": true, "baseDelayMs": 100}});
    model.install_with(&nv.root.path().join("agent"), retry);
    nv.attach(100, 30).await;
    nv.command("Pi ask the first text").await;
    let screen = nv
        .wait_screen("a countdown", |screen| {
            screen.text().contains("retry 1/3 in ")
        })
        .await;
    let shown = screen.text().matches("Rate limit reached").count();
    assert_eq!(shown, 1, "{}", screen.text());
    nv.wait_screen("the number going down", |screen| {
        screen.text().contains("in 1s")
    })
    .await;
    nv.wait_lua(
        "local buf = require('pi.chat').buffer(vim.t.pi_session)
         local text = table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n')
         return text:find('it works again') and not text:find('Rate limit')",
    )
    .await;
}
