//! The prompt: what it mentions, what goes with it.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::harness::{Nv, Options};
use super::model::{Model, call, say};

/// The smallest picture there is.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn asked(request: &Value) -> Value {
    let messages = request["messages"].as_array().unwrap();
    let mine = messages.iter().rev().find(|it| it["role"] == "user");
    mine.unwrap()["content"].clone()
}

fn text(request: &Value) -> String {
    match asked(request) {
        Value::String(text) => text,
        blocks => blocks[0]["text"].as_str().unwrap_or_default().to_owned(),
    }
}

async fn answered(nv: &Nv, text: &str) {
    nv.wait_lua(&format!(
        "local buf = require('pi.chat').buffer(vim.t.pi_session)
         return table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n'):find('{text}')
           and require('pi.status').data().state == 'idle'"
    ))
    .await;
}

/// What is drawn below and over the prompt.
async fn virtual_lines(nv: &Nv) -> Value {
    nv.lua(
        "local buf = require('pi.prompt').buffer(vim.t.pi_session)
         local out = {}
         for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(buf, -1, 0, -1, { details = true })) do
           for _, line in ipairs(mark[4].virt_lines or {}) do out[#out + 1] = line[1][1] end
         end
         return out",
        json!(null),
    )
    .await
}

async fn with_pictures() -> (Model, Nv) {
    let model = Model::start(vec![say("seen"), say("seen again")]).await;
    let nv = Nv::start_with(Options::default()).await;
    let agent = nv.root.path().join("agent");
    model.install(&agent);
    let models = std::fs::read_to_string(agent.join("models.json")).unwrap();
    let sees = models.replace("\"input\":[\"text\"]", "\"input\":[\"text\",\"image\"]");
    std::fs::write(agent.join("models.json"), sees).unwrap();
    nv.lua(
        "for _, name in ipairs({ 'shot.png', 'with blank.png' }) do
           vim.fn.writefile(vim.base64.decode(...) , name, 'b')
         end
         local file = assert(io.open('shot.png', 'wb')) file:write(vim.base64.decode(...)) file:close()
         file = assert(io.open('with blank.png', 'wb')) file:write(vim.base64.decode(...)) file:close()",
        json!([PNG]),
    )
    .await;
    nv.command("Pi open").await;
    nv.wait_lua("return vim.t.pi_session and require('pi.session').info()")
        .await;
    nv.command("Pi focus prompt").await;
    nv.wait("&filetype == 'pi-prompt'").await;
    (model, nv)
}

async fn paste(nv: &Nv, text: &str) {
    nv.lua("vim.api.nvim_paste(..., true, -1)", json!([text]))
        .await;
}

#[tokio::test]
async fn a_pasted_path_of_a_picture_is_attached_and_taken_off() {
    let (model, nv) = with_pictures().await;
    nv.keys("<Esc>ilook at this").await;
    nv.wait("getline(1) == 'look at this'").await;
    let path = nv.cwd.join("with blank.png").display().to_string();
    paste(&nv, &path.replace(' ', "\\ ")).await;
    paste(&nv, "'shot.png'\n").await;
    let size = nv.eval("getfsize('shot.png')").await;
    let shown = json!([
        format!("[image 1: with blank.png {size} B]"),
        format!("[image 2: shot.png {size} B]")
    ]);
    assert_eq!(virtual_lines(&nv).await, shown);
    assert_eq!(nv.eval("getline(1, '$')").await, json!(["look at this"]));
    // Other text is pasted as ever, also when it only looks like a picture.
    paste(&nv, " missing.png").await;
    assert_eq!(nv.eval("getline(1)").await, "look at this missing.png");
    nv.command("Pi detach 1").await;
    assert_eq!(
        virtual_lines(&nv).await,
        json!([format!("[image 1: shot.png {size} B]")])
    );
    nv.keys("<Esc>").await;
    nv.keys("<CR>").await;
    answered(&nv, "seen").await;
    let content = asked(&model.requests()[0]);
    assert_eq!(content.as_array().map(Vec::len), Some(2), "{content}");
    assert!(
        content[1]["image_url"]["url"]
            .as_str()
            .unwrap()
            .starts_with("data:image/png;base64,"),
        "{content}"
    );
    // They went with the prompt.
    assert_eq!(virtual_lines(&nv).await, json!([]));
}

#[tokio::test]
async fn a_mentioned_picture_is_listed_and_its_mention_goes_with_it() {
    let (_model, nv) = with_pictures().await;
    nv.keys("<Esc>ilook at @shot.png now").await;
    nv.wait("getline(1) == 'look at @shot.png now'").await;
    nv.wait_lua("return #require('pi.attach').lines(vim.fn.getline(1), vim.t.pi_session) == 1")
        .await;
    assert_eq!(virtual_lines(&nv).await.as_array().map(Vec::len), Some(1));
    nv.command("Pi detach").await;
    nv.wait("getline(1) == 'look at now'").await;
    assert_eq!(virtual_lines(&nv).await, json!([]));
}

#[tokio::test]
async fn a_picture_that_is_none_keeps_the_text_and_the_attachment() {
    let (model, nv) = with_pictures().await;
    nv.lua(
        "_G.notes = {} vim.notify = function(text) table.insert(_G.notes, text) end
         vim.fn.writefile({ 'text' }, 'fake.png')",
        json!(null),
    )
    .await;
    nv.keys("<Esc>isee @fake.png<Esc>").await;
    nv.wait("getline(1) == 'see @fake.png'").await;
    nv.keys("<CR>").await;
    nv.wait_lua("return (_G.notes[1] or ''):find('fake.png: it is no PNG', 1, true)")
        .await;
    assert_eq!(nv.eval("getline(1)").await, "see @fake.png");
    assert_eq!(virtual_lines(&nv).await.as_array().map(Vec::len), Some(1));
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn the_difference_from_the_last_commit_and_the_last_changes_are_sent_along() {
    let write = call("c1", "write", json!({"path": "a.txt", "content": "two\n"}));
    let model = Model::start(vec![write, say("put down"), say("seen")]).await;
    let nv = model
        .nvim(Options {
            files: vec![("a.txt", "one\n".into())],
            before: "vim.g.pi = { review = { mode = 'auto' } }",
            ..Options::default()
        })
        .await;
    nv.lua(
        "for _, args in ipairs({ { 'init', '-q' }, { 'add', '.' },
             { '-c', 'user.name=n', '-c', 'user.email=e', 'commit', '-qm', 'first' } }) do
           vim.fn.system(vim.list_extend({ 'git' }, args))
           assert(vim.v.shell_error == 0)
         end",
        json!(null),
    )
    .await;
    nv.command("Pi ask write it").await;
    nv.wait_lua("return vim.t.pi_session").await;
    answered(&nv, "put down").await;
    nv.command("Pi focus prompt").await;
    nv.wait("&filetype == 'pi-prompt'").await;
    nv.keys("<Esc>ilook at @diff, @changes and @nothing").await;
    nv.wait("getline(1) =~ 'nothing$'").await;
    // Struck through: only what is not found.
    let groups = nv
        .lua(
            "local out = {}
             for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, -1, 0, -1, { details = true })) do
               if (mark[4].hl_group or ''):match('^PiMention') then out[#out + 1] = mark[4].hl_group end
             end
             return out",
            json!(null),
        )
        .await;
    assert_eq!(groups, json!(["PiMention", "PiMention", "PiMentionBad"]));
    nv.keys("<C-s>").await;
    answered(&nv, "seen").await;
    let sent = text(model.requests().last().unwrap());
    assert!(
        sent.contains("<diff>\ndiff --git a/a.txt b/a.txt"),
        "{sent}"
    );
    assert!(sent.contains("<changes>\n--- a.txt"), "{sent}");
    assert_eq!(sent.matches("-one\n+two").count(), 2, "{sent}");
    // The chat names them instead of showing them.
    let chat = nv
        .lua(
            "return table.concat(vim.api.nvim_buf_get_lines(require('pi.chat').buffer(vim.t.pi_session), 0, -1, false), '\\n')",
            json!(null),
        )
        .await;
    let chat = chat.as_str().unwrap();
    assert!(
        chat.contains("+ diff, ") && !chat.contains("<diff>"),
        "{chat}"
    );
}

#[tokio::test]
async fn mentions_are_completed_with_what_they_mean() {
    let nv = Nv::start().await;
    let found = nv
        .lua(
            "vim.cmd('runtime plugin/pi.lua')
             local items = require('pi.complete').omni(0, '@di')
             return vim.tbl_map(function(it) return it.word .. ': ' .. it.menu end, items)",
            json!(null),
        )
        .await;
    let found = found.to_string();
    assert!(
        found.contains("@diff: what differs from the last git commit"),
        "{found}"
    );
    assert!(
        found.contains("@diagnostics: errors and warnings"),
        "{found}"
    );
}
