//! The HTML page of a session: one file, no network, every text escaped.
//!
//! All entries of all branches are in the page, the active branch is shown; a small script (allowed by its hash, nothing
//! else runs) switches branches, searches and folds. Without scripts the active branch reads from top to bottom.

use std::io::{self, Write};

use base64::Engine as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::escape;
use crate::ai::{AssistantMessage, Block, Content, Message, SystemMessage, ToolResultMessage};
use crate::entry::{Body, Entry, iso_ms, iso_time, json};
use crate::session::projection::{Entries, Pos, system};
use crate::session::store::Session;
use crate::session::tree_view::{Charset, Filter, TreeView};

const PAGE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");

/// Rows of the tree made at once.
const ROWS: usize = 256;

/// Writes the page.
pub(super) fn write(session: &Session, out: &mut dyn Write) -> io::Result<()> {
    let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(SCRIPT));
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        let (slot, tail) = after.split_once("}}").unwrap_or((after, ""));
        out.write_all(before.as_bytes())?;
        match slot {
            "title" => out.write_all(escape::text(&title(session)).as_bytes())?,
            "script-hash" => out.write_all(hash.as_bytes())?,
            "script" => out.write_all(SCRIPT.as_bytes())?,
            "facts" => out.write_all(facts(session).as_bytes())?,
            "setup" => out.write_all(setup(session).as_bytes())?,
            "tree" => tree(session, out)?,
            "entries" => entries(session, out)?,
            _ => {}
        }
        rest = tail;
    }
    out.write_all(rest.as_bytes())
}

fn title(session: &Session) -> String {
    let name = session.name().map(str::to_owned);
    let first = || {
        session
            .fork_candidates_iter()
            .next()
            .map(|(_, text)| one_line(&text, 80))
    };
    name.or_else(first)
        .unwrap_or_else(|| format!("Session {}", session.header().id()))
}

fn one_line(text: &str, limit: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let flat = words.join(" ");
    let cut: String = flat.chars().take(limit).collect();
    if cut.len() < flat.len() {
        cut + "…"
    } else {
        cut
    }
}

fn facts(session: &Session) -> String {
    let stats = session.stats();
    let header = session.header();
    let began = header.timestamp().and_then(iso_ms).map(minute);
    let mut parts = vec![
        began.map(|time| format!("{time} UTC")).unwrap_or_default(),
        escape::text(&session.cwd().to_string_lossy()),
        format!("{} messages", stats.total_messages),
        format!("{} tool calls", stats.tool_calls),
        format!("{} tokens", stats.spent.total()),
    ];
    if stats.spent.cost > 0.0 {
        parts.push(format!("${:.4}", stats.spent.cost));
    }
    let models: Vec<String> = stats
        .by_model
        .keys()
        .filter(|key| *key != crate::session::stats::OTHER_USAGE && *key != "/")
        .map(|key| escape::text(key))
        .collect();
    if !models.is_empty() {
        parts.push(models.join(", "));
    }
    parts.push(format!("session {}", escape::text(header.id())));
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// The system prompt and the tools as they stand at the leaf.
fn setup(session: &Session) -> String {
    let is_system = |pos: &Pos| {
        session
            .facts(*pos)
            .is_some_and(|facts| facts.is_message(crate::entry::Role::System))
    };
    let messages: Vec<Message> = session
        .path()
        .into_iter()
        .filter(is_system)
        .filter_map(|pos| session.entry(pos)?.message())
        .collect();
    let Some(current) = system::replay(&messages) else {
        return String::new();
    };
    let mut out = folded(
        "setup",
        "System prompt",
        &format!("<pre>{}</pre>", escape::text(&system::rendered(&current))),
    );
    out.push_str(&tools(&current));
    out
}

fn tools(message: &SystemMessage) -> String {
    let tools = message.tools_added.as_deref().unwrap_or_default();
    if tools.is_empty() {
        return String::new();
    }
    let item = |tool: &crate::ai::ToolDeclaration| {
        let body = format!(
            "<p>{}</p><pre>{}</pre>",
            escape::text(&tool.description),
            escape::text(&pretty(&tool.parameters))
        );
        folded(
            "setup",
            &format!("<code>{}</code>", escape::text(&tool.name)),
            &body,
        )
    };
    let items: String = tools.iter().map(item).collect();
    folded("setup", &format!("Tools ({})", tools.len()), &items)
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// A folded part; `summary` is HTML already.
fn folded(class: &str, summary: &str, body: &str) -> String {
    format!("<details class=\"{class}\"><summary>{summary}</summary>{body}</details>\n")
}

fn tree(session: &Session, out: &mut dyn Write) -> io::Result<()> {
    let mut view = TreeView::new(Filter::Default, Charset::Unicode);
    view.refresh(session);
    for from in (0..view.len()).step_by(ROWS) {
        for row in view.rows(session, from..from + ROWS) {
            let Some(pos) = session.find(&row.id) else {
                continue;
            };
            let class = match (row.on_path, row.is_leaf) {
                (_, true) => " class=\"on here\"",
                (true, false) => " class=\"on\"",
                (false, false) => "",
            };
            let label = row
                .label
                .map(|label| format!("<span class=\"tag\">[{}]</span> ", escape::text(&label)));
            // Folding belongs to the editor's tree; here the connectors alone are drawn.
            let prefix = row.prefix.replace(['⊟', '⊞'], "─");
            writeln!(
                out,
                "<a href=\"#e{pos}\"{class}><span class=\"pre\">{}</span>{}{}</a>",
                escape::text(&prefix),
                label.unwrap_or_default(),
                escape::text(&row.text)
            )?;
        }
    }
    Ok(())
}

fn entries(session: &Session, out: &mut dyn Write) -> io::Result<()> {
    let path: std::collections::HashSet<Pos> = session.path().into_iter().collect();
    for pos in session.positions().filter(|pos| session.is_current(*pos)) {
        let Some(entry) = session.entry(pos) else {
            continue;
        };
        let parent = session
            .parent(pos)
            .map(|parent| format!(" data-parent=\"e{parent}\""))
            .unwrap_or_default();
        let hidden = if path.contains(&pos) { "" } else { " hidden" };
        let Shown { class, who, body } = shown(session, &entry);
        let label = session
            .label(entry.id())
            .map(|label| format!("<span class=\"label\">{}</span>", escape::text(&label.text)));
        let time = entry.facts().time_ms.map(minute);
        writeln!(
            out,
            "<article id=\"e{pos}\" class=\"{class}\"{parent}{hidden}><header><span class=\"who\">{who}</span>{}<a href=\"#e{pos}\">{}</a></header>\n{body}</article>",
            label.unwrap_or_default(),
            time.unwrap_or_default()
        )?;
    }
    Ok(())
}

/// A time to the minute.
fn minute(ms: i64) -> String {
    iso_time(ms).get(..16).unwrap_or_default().replace('T', " ")
}

/// A link to an entry, `what` being text; only the text when there is no such entry.
fn link(session: &Session, id: &str, what: &str) -> String {
    let what = escape::text(what);
    match session.find(id) {
        Some(pos) => format!("<a href=\"#e{pos}\">{what}</a>"),
        None => what,
    }
}

/// How an entry looks. `class` and `who` are our own words or escaped; `body` is HTML.
struct Shown {
    class: &'static str,
    who: String,
    body: String,
}

fn shown(session: &Session, entry: &Entry) -> Shown {
    let note = |who: &str, body: String| Shown {
        class: "note",
        who: who.to_owned(),
        body,
    };
    let line = |text: String| format!("<div>{}</div>\n", escape::text(&text));
    match entry.body() {
        Body::Message(message) => shown_message(message),
        Body::CustomMessage(custom) => Shown {
            class: "custom",
            who: escape::text(&custom.custom_type),
            body: content(&custom.content),
        },
        Body::Compaction(compaction) => {
            let head = format!("{} tokens were summarised", compaction.tokens_before);
            note(
                "compaction",
                folded("summary", &head, &escape::markdown(&compaction.summary)),
            )
        }
        Body::BranchSummary(branch) => note(
            "branch summary",
            folded(
                "summary",
                "Another branch, summarised",
                &escape::markdown(&branch.summary),
            ),
        ),
        Body::ModelChange { provider, model_id } => {
            note("model", line(format!("{provider}/{model_id}")))
        }
        Body::ThinkingLevelChange { level } => note("thinking", line(level)),
        Body::ContextEdit {
            target,
            replacement,
        } => match replacement {
            None => note(
                "context edit",
                format!(
                    "<div>the model no longer sees {}</div>\n",
                    link(session, &target, "this entry")
                ),
            ),
            Some(own) => note(
                "context edit",
                format!(
                    "<div>for the model {} reads:</div>\n{}",
                    link(session, &target, "this entry"),
                    content(&own)
                ),
            ),
        },
        Body::Label { target, label } => note(
            "label",
            format!(
                "<div>{}</div>\n",
                link(session, &target, label.as_deref().unwrap_or("(cleared)"))
            ),
        ),
        Body::SessionInfo { name } => {
            note("name", line(name.unwrap_or_else(|| "(cleared)".into())))
        }
        Body::Custom { custom_type, data } => note(
            "state",
            folded(
                "tool",
                &escape::text(&custom_type),
                &format!(
                    "<pre>{}</pre>",
                    escape::text(&pretty(&data.unwrap_or_default()))
                ),
            ),
        ),
        Body::Usage { kind, usage, .. } => note(
            "usage",
            line(format!(
                "{kind}: {} tokens",
                usage.input + usage.output + usage.cache_read + usage.cache_write
            )),
        ),
        Body::Unknown(value) => {
            let kind = value
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or("unknown");
            note(
                "other",
                folded(
                    "tool",
                    &escape::text(kind),
                    &format!("<pre>{}</pre>", escape::text(&pretty(&value))),
                ),
            )
        }
    }
}

fn shown_message(message: Message) -> Shown {
    let (class, who, body) = match message {
        Message::User(message) => ("user", "you", content(&message.content)),
        Message::Assistant(message) => ("assistant", "", answer(&message)),
        Message::ToolResult(message) => ("toolResult", "result", result(&message)),
        Message::System(message) => ("note", "system", system_patch(&message)),
        Message::BashExecution(bash) => {
            let head = format!("<code>$ {}</code>", escape::text(&bash.command));
            (
                "note",
                "shell",
                folded(
                    "tool",
                    &head,
                    &format!("<pre>{}</pre>", escape::text(&bash.output)),
                ),
            )
        }
        Message::Custom(custom) => ("custom", "extension", content(&custom.content)),
        Message::BranchSummary(message) => ("note", "summary", escape::markdown(&message.summary)),
        Message::CompactionSummary(message) => {
            ("note", "summary", escape::markdown(&message.summary))
        }
        Message::Unknown(value) => (
            "note",
            "other",
            format!("<pre>{}</pre>", escape::text(&pretty(&value))),
        ),
    };
    Shown {
        class,
        who: if who.is_empty() {
            "model".to_owned()
        } else {
            who.to_owned()
        },
        body,
    }
}

fn system_patch(message: &SystemMessage) -> String {
    let sections = message.sections.iter().flatten();
    let names: Vec<String> = sections.map(|(name, _)| escape::text(name)).collect();
    let text = escape::text(&system::rendered(message));
    let mut out = folded(
        "tool",
        &format!("Prompt {}", names.join(", ")),
        &format!("<pre>{text}</pre>"),
    );
    out.push_str(&tools(message));
    out
}

fn content(content: &Content) -> String {
    match content {
        Content::Text(text) => escape::markdown(text),
        Content::Blocks(blocks) => blocks.iter().map(block).collect(),
    }
}

fn block(block: &Block) -> String {
    match block {
        Block::Text(block) => escape::markdown(&block.text),
        Block::Image(image) => picture(&image.mime_type, &image.data),
        Block::Thinking(thinking) => {
            let text = if thinking.redacted == Some(true) {
                "(hidden by the provider)"
            } else {
                thinking.thinking.trim()
            };
            if text.is_empty() {
                return String::new();
            }
            folded(
                "thinking",
                "Thinking",
                &format!("<pre>{}</pre>", escape::text(text)),
            )
        }
        Block::ToolCall(call) => {
            let head = format!(
                "<code>{}</code> {}",
                escape::text(&call.name),
                escape::text(&call_hint(&call.arguments))
            );
            folded("tool", &head, &arguments(&call.arguments))
        }
        Block::Unknown(value) => folded(
            "tool",
            "Block of an unknown kind",
            &format!("<pre>{}</pre>", escape::text(&pretty(value))),
        ),
    }
}

fn picture(mime: &str, data: &str) -> String {
    match escape::picture(mime, data) {
        Some(src) => format!("<p><img alt=\"picture\" loading=\"lazy\" src=\"{src}\"></p>\n"),
        None => format!(
            "<p>(a picture of type {} that cannot be shown)</p>\n",
            escape::text(mime)
        ),
    }
}

/// The argument that says most about a call.
fn call_hint(arguments: &Value) -> String {
    let keys = ["command", "path", "pattern", "query", "url"];
    let hint = keys.iter().find_map(|key| arguments.get(key)?.as_str());
    one_line(hint.unwrap_or_default(), 100)
}

/// Long texts of a call read better as text than as JSON strings.
fn arguments(arguments: &Value) -> String {
    let Some(fields) = arguments.as_object() else {
        return format!("<pre>{}</pre>", escape::text(&pretty(arguments)));
    };
    let field = |(key, value): (&String, &Value)| match value {
        Value::String(text) if text.contains('\n') => format!(
            "<div><code>{}</code></div><pre>{}</pre>",
            escape::text(key),
            escape::text(text)
        ),
        value => format!(
            "<div><code>{}</code> {}</div>",
            escape::text(key),
            escape::text(&json::stringify(value))
        ),
    };
    fields.iter().map(field).collect()
}

fn answer(message: &AssistantMessage) -> String {
    let mut out: String = message.content.iter().map(block).collect();
    if let Some(error) = &message.error_message {
        out.push_str(&format!(
            "<div class=\"error\">{}</div>\n",
            escape::text(error)
        ));
    }
    out
}

fn result(message: &ToolResultMessage) -> String {
    let text: Vec<&str> = message.content.iter().filter_map(Block::as_text).collect();
    let text = text.join("\n");
    let failed = if message.is_error {
        " <span class=\"error\">failed</span>"
    } else {
        ""
    };
    let head = format!(
        "<code>{}</code>{failed} {}",
        escape::text(&message.tool_name),
        escape::text(&one_line(&text, 90))
    );
    let mut body = format!("<pre>{}</pre>", escape::text(&text));
    for item in &message.content {
        if let Block::Image(image) = item {
            body.push_str(&picture(&image.mime_type, &image.data));
        }
    }
    let diff = message
        .details
        .as_ref()
        .and_then(|details| details.get("patch").or(details.get("diff")));
    if let Some(diff) = diff.and_then(Value::as_str) {
        body.push_str(&format!("<pre>{}</pre>", coloured_diff(diff)));
    }
    folded("tool", &head, &body)
}

fn coloured_diff(diff: &str) -> String {
    let line = |line: &str| {
        let text = escape::text(line);
        match line.as_bytes().first() {
            Some(b'+') => format!("<span class=\"add\">{text}</span>"),
            Some(b'-') => format!("<span class=\"del\">{text}</span>"),
            _ => text,
        }
    };
    let lines: Vec<String> = diff.lines().map(line).collect();
    lines.join("\n")
}
