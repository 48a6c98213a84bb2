//! The beginning of a connection: both sides name their protocol, and core makes sure it is on Neovim's machine.

use std::path::{Path, PathBuf};

use rmpv::Value;
use serde_json::{Value as Json, json};

use super::editor::value::{from_json, to_json};
use super::editor::{Editor, EditorError};
use super::json::at;

/// Version of the language between core and the Lua side; both must name the same. It grows when an op or a request
/// changes its meaning.
pub const PROTOCOL: u64 = 1;

/// What Neovim said of itself.
#[derive(Clone, Debug)]
pub struct Hello {
    /// Its working directory, or what it stands for (`neovim-ux.md` §9).
    pub cwd: PathBuf,
    /// Options of the plugin, as a person set them.
    pub config: Json,
}

/// Introduces core to the Lua side. `begin` says what to show unasked: `open`, `pick` or nothing.
///
/// # Errors
/// One line that says why these two do not work together.
pub async fn greet(editor: &Editor, begin: Option<&str>) -> Result<Hello, String> {
    let facts = json!({
        "protocol": PROTOCOL,
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "channel": channel(editor).await?,
        "begin": begin,
    });
    let answer = editor
        .change_fn("pi.backend", "hello", vec![from_json(&facts)])
        .await
        .map_err(|error| match error {
            EditorError::Neovim { text, .. } if text.contains("module 'pi.backend' not found") => {
                "the plugin pi.nvim is not on that Neovim's runtimepath".to_owned()
            }
            other => other.to_string(),
        })?;
    let answer = to_json(&answer);
    if let Some(refused) = at(&answer, "/refused").as_str() {
        return Err(refused.to_owned());
    }
    let Some(cwd) = at(&answer, "/cwd").as_str() else {
        return Err("the plugin's answer to the greeting names no directory".into());
    };
    Ok(Hello {
        cwd: cwd.into(),
        config: at(&answer, "/config").clone(),
    })
}

/// Names this client and returns its channel number.
async fn channel(editor: &Editor) -> Result<i64, String> {
    let info = vec![
        Value::from("pi-nvim"),
        from_json(&json!({"major": 0, "minor": 1})),
        Value::from("plugin"),
        Value::Map(Vec::new()),
        Value::Map(Vec::new()),
    ];
    let named = editor.call("nvim_set_client_info", info).await;
    named.map_err(|error| error.to_string())?;
    // Zero is the caller's own channel.
    let answer = editor
        .call("nvim_get_chan_info", vec![0.into()])
        .await
        .map_err(|error| error.to_string())?;
    at(&to_json(&answer), "/id")
        .as_i64()
        .ok_or_else(|| "Neovim names no channel".into())
}

/// Lets Neovim write a random file and looks whether it is here too.
///
/// # Errors
/// When it is not: paths would mean different files on the two sides.
pub async fn same_machine(editor: &Editor) -> Result<(), String> {
    let token = uuid::Uuid::new_v4().to_string();
    let code = "
        local token = ...
        local path = vim.fn.tempname()
        vim.fn.writefile({ token }, path)
        return path";
    let answer = editor.change(code, vec![token.as_str().into()]).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let path = Path::new(answer.as_str().unwrap_or_default());
    let found = std::fs::read_to_string(path).is_ok_and(|text| text.trim_end() == token);
    if !found {
        return Err(
            "that Neovim runs on another machine; start pi-nvim there, where its files are".into(),
        );
    }
    // A leftover in Neovim's own temporary folder goes away with it.
    std::fs::remove_file(path).ok();
    Ok(())
}
