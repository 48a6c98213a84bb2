//! Exports of the active session.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use super::core::{Answer, Core};
use crate::ai::{Block, Message};
use crate::session::protocol::CommandError;
use crate::session::store::Session;

/// Writes the session as a page. The path is given back as it was given; without one the page lands in the directory.
pub(super) async fn html(core: &Arc<Core>, path: Option<PathBuf>) -> Answer {
    let (file, cwd) = core.with(|state| {
        let Some(file) = state.session.file().map(ToOwned::to_owned) else {
            return Err(CommandError::new("Cannot export in-memory session to HTML"));
        };
        if !state.session.is_saved() {
            return Err(CommandError::new(
                "Nothing to export yet - start a conversation first",
            ));
        }
        Ok((file, state.cwd.clone()))
    })?;
    let shown = path.unwrap_or_else(|| {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        PathBuf::from(format!("pi-session-{stem}.html"))
    });
    let target = cwd.join(&shown);
    let page = core.with(|state| page(&state.session));
    let written = write(&target, page.as_bytes());
    written.map_err(|error| CommandError(format!("write {}: {error}", target.display())))?;
    Ok(json!({ "path": shown }))
}

/// Writes the active branch as a session file.
pub(super) fn jsonl(core: &Core, path: Option<PathBuf>) -> Answer {
    core.with(|state| {
        let shown = path.unwrap_or_else(|| {
            let time = crate::entry::iso_time(super::core::now_ms()).replace([':', '.'], "-");
            PathBuf::from(format!("session-{time}.jsonl"))
        });
        state.session.export_jsonl_to(&state.cwd.join(&shown))?;
        Ok(json!({ "path": shown }))
    })
}

fn write(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, bytes)
}

/// The session as one page without scripts: every entry in file order, texts escaped, nothing loaded from anywhere.
fn page(session: &Session) -> String {
    let title = session.name().unwrap_or(session.id());
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n<style>{STYLE}</style></head>\n<body><h1>{}</h1>\n",
        escape(title),
        escape(title)
    );
    for entry in session.entries() {
        let (class, text) = match entry.message() {
            Some(message) => (message.role().to_owned(), message_text(&message)),
            None => {
                let mut value = entry.value();
                if let Some(fields) = value.as_object_mut() {
                    fields.remove("parentId");
                }
                (entry.facts().kind.as_str().to_owned(), value.to_string())
            }
        };
        out.push_str(&format!(
            "<section class=\"{}\" id=\"{}\"><h2>{}</h2><pre>{}</pre></section>\n",
            escape(&class),
            escape(entry.id()),
            escape(&class),
            escape(&text)
        ));
    }
    out.push_str("</body></html>\n");
    out
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
h2{font-size:.8rem;color:#666;margin:1.5rem 0 .2rem}pre{white-space:pre-wrap;margin:0}.user pre{font-weight:600}\
.toolResult pre,.system pre{color:#555;max-height:20rem;overflow:auto}";

fn message_text(message: &Message) -> String {
    let blocks = |blocks: &[Block]| {
        let parts: Vec<String> = blocks
            .iter()
            .map(|block| match block {
                Block::Text(text) => text.text.clone(),
                Block::Thinking(thinking) => thinking.thinking.clone(),
                Block::ToolCall(call) => format!("[{} {}]", call.name, call.arguments),
                Block::Image(image) => format!("[{}]", image.mime_type),
                Block::Unknown(value) => value.to_string(),
            })
            .collect();
        parts.join("\n")
    };
    match message {
        Message::User(user) => blocks(&user.content.clone().into_blocks()),
        Message::Assistant(answer) => blocks(&answer.content),
        Message::ToolResult(result) => blocks(&result.content),
        Message::BashExecution(bash) => format!("$ {}\n{}", bash.command, bash.output),
        Message::System(system) => {
            let sections = system.sections.iter().flatten();
            let texts: Vec<&str> = sections.filter_map(|(_, text)| text.as_str()).collect();
            texts.join("\n\n")
        }
        other => other.to_value().to_string(),
    }
}

/// Escapes for text and attributes; control characters go.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}
