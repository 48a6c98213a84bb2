//! The session tree: rows for the window, previews, jumps and labels.
//!
//! The layout is kept between requests, so that folding and paging cost only what is shown. Rows are sent in pages: the
//! Lua side asks for those it is about to show.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::chat_view::Chat;
use super::face::{Answer, Answering, Request};
use super::json::at;
use super::requests::done;
use super::slot::Slot;
use crate::ai::{Block, Message};
use crate::entry::{EntryId, parse_time};
use crate::session::Command;
use crate::session::projection::{Entries as _, unedited_messages};
use crate::session::protocol::SummaryWish;
use crate::session::store::Session;
use crate::session::tree_view::{self, Charset, Edited, Filter, TreeRow, TreeView};

/// Rows of one page.
const PAGE: usize = 500;
/// Entries read for a search while the session stands still: a few milliseconds.
const SEARCHED_AT_ONCE: usize = 256;
/// Lines of a preview.
const PREVIEW: usize = 200;

pub(super) fn start(slot: &Arc<Slot>, request: &Request) -> Answering {
    let text = |key: &str| request.text(key).map(str::to_owned);
    match request.name.as_str() {
        "tree.rows" | "tree.preview" | "tree.beside" | "tree.leaves" | "tree.content" => {
            let (slot, request) = (slot.clone(), request.clone());
            // Texts of rows may come from the disk.
            let work = tokio::task::spawn_blocking(move || match request.name.as_str() {
                "tree.rows" => rows(&slot, &request),
                "tree.beside" => Ok(beside(&slot, &request)),
                "tree.leaves" => Ok(leaves(&slot, &request)),
                "tree.content" => content(&slot, &request),
                _ => preview(&slot, &request),
            });
            Box::pin(async move { work.await.map_err(|error| format!("tree: {error}"))? })
        }
        "tree.jump" => slot.command(Command::Navigate {
            target: text("entry"),
            summary: match (request.flag("summary"), text("instructions")) {
                (true, Some(instructions)) => SummaryWish::With(instructions),
                (true, None) => SummaryWish::Plain,
                (false, _) => SummaryWish::None,
            },
            label: None,
        }),
        "tree.label" => match text("entry") {
            Some(entry) => slot.command(Command::SetLabel {
                entry,
                label: text("label").filter(|label| !label.trim().is_empty()),
            }),
            None => done(Err("no entry named".into())),
        },
        "tree.edit" => match (text("entry"), replacement(request)) {
            (Some(target), Some(replacement)) => slot.command(Command::EditContext {
                target,
                replacement,
            }),
            _ => done(Err("nothing to edit named".into())),
        },
        name => done(Err(format!("the backend knows no request {name}"))),
    }
}

/// What the model is to read of an entry: nothing, its own content again, or a text.
fn replacement(request: &Request) -> Option<Json> {
    match (request.text("what")?, request.text("text")) {
        ("omit", _) => Some(Json::Null),
        ("original", _) => Some(json!({"original": true})),
        ("replace", Some(text)) => Some(json!({ "content": text })),
        _ => None,
    }
}

/// Answers what the model reads of an entry: `{text, edited}`; `edited` is `left_out`, `replaced` or null.
fn content(slot: &Slot, request: &Request) -> Answer {
    let id = request.text("entry").unwrap_or_default();
    slot.runtime.look(|session| {
        let entry = session
            .get(id)
            .ok_or_else(|| format!("there is no entry {id}"))?;
        let edited = tree_view::edited(session, &entry);
        let context = session.context();
        let own = unedited_messages(&entry);
        // What is left out is shown as it stands in the session.
        let read = context.item(id).filter(|item| !item.messages.is_empty());
        let texts: Vec<String> = match read {
            Some(item) => item.messages.iter().filter_map(|it| readable(it)).collect(),
            None => own.iter().filter_map(readable).collect(),
        };
        if texts.is_empty() {
            return Err("the model reads no text of this entry".to_owned());
        }
        Ok(json!({
            "text": texts.join("\n\n"),
            "edited": edited.map(|edited| match edited {
                Edited::LeftOut => "left_out",
                Edited::Replaced => "replaced",
            }),
        }))
    })
}

/// The text of a message that can be edited.
fn readable(message: &Message) -> Option<String> {
    let blocks = |blocks: &[Block]| {
        let texts: Vec<&str> = blocks.iter().filter_map(Block::as_text).collect();
        texts.join("\n")
    };
    match message {
        Message::User(user) => Some(user.content.text("\n")),
        Message::Custom(custom) => Some(custom.content.text("\n")),
        Message::Assistant(answer) => Some(blocks(&answer.content)),
        Message::ToolResult(result) => Some(blocks(&result.content)),
        _ => None,
    }
}

/// Answers a page of rows: `{rows, first, len, total, leaf, here, filter}`; `here` is the row of the entry `at`.
fn rows(slot: &Slot, request: &Request) -> Answer {
    let mut view = slot.tree.lock();
    if let Some(query) = request.text("query") {
        view.set_query(query);
    }
    // The session goes on between two pieces of a search through all its texts.
    while slot
        .runtime
        .look(|session| view.read_texts(session, SEARCHED_AT_ONCE))
        > 0
    {}
    slot.runtime.look(|session| {
        change(&mut view, session, request);
        let row_of = |id: Option<&str>| id.and_then(|id| view.row_of(session, id));
        let leaf_id = session.leaf_id().map(ToString::to_string);
        let leaf = row_of(leaf_id.as_deref());
        let here = row_of(request.text("at")).or(leaf);
        let number = |key: &str| {
            let value = request.params.get(key).and_then(Json::as_u64);
            value.and_then(|it| usize::try_from(it).ok())
        };
        let around = here.unwrap_or(0).saturating_sub(PAGE / 2);
        let first = number("first").unwrap_or(around);
        let page = view.rows(session, first..first.saturating_add(PAGE));
        Ok(json!({
            "rows": page.iter().map(row).collect::<Vec<_>>(),
            "first": first,
            "len": view.len(),
            "total": view.total(),
            "leaf": leaf,
            "leaf_id": leaf_id,
            "here": here,
            "filter": view.filter().as_str(),
        }))
    })
}

/// Takes in what the request changes about the view.
fn change(view: &mut TreeView, session: &Session, request: &Request) {
    if let Some(filter) = request.text("filter").and_then(Filter::parse) {
        view.set_filter(filter);
    }
    if let (Some(id), Some(folded)) = (
        request.text("fold"),
        at(&request.params, "/folded").as_bool(),
    ) {
        view.set_folded(&EntryId::from(id), folded);
    }
    if let Some(folded) = at(&request.params, "/fold_all").as_bool() {
        view.fold_all(session, folded);
    }
    if at(&request.params, "/first").is_null() {
        view.refresh(session);
    }
}

fn row(row: &TreeRow) -> Json {
    json!([
        row.id.as_str(),
        row.prefix,
        row.kind,
        row.label,
        row.text,
        row.on_path,
        row.is_leaf,
        row.folded,
        row.foldable,
        row.hidden,
        row.time_ms,
        row.label_time.as_deref().and_then(parse_time),
    ])
}

/// Answers the row where the branch beside an entry ends: `{row}`, null when there is none.
fn beside(slot: &Slot, request: &Request) -> Json {
    let view = slot.tree.lock();
    let id = request.text("entry").unwrap_or_default();
    let row = slot
        .runtime
        .look(|session| view.beside(session, id, request.flag("next")));
    json!({ "row": row })
}

/// Answers what going to an entry leaves behind: `{content, files, skip}`. `content`: whether a summary could say
/// something; `files`: how many were written after the point where both branches part; `skip`: whether the person does not
/// want to be asked.
fn leaves(slot: &Slot, request: &Request) -> Json {
    let id = request.text("entry").unwrap_or_default();
    let left: Vec<Json> = slot.runtime.look(|session| {
        let Some(target) = session.find(id) else {
            return Vec::new();
        };
        let left = session.left_behind(session.leaf(), target).entries;
        let entries = left.iter().filter_map(|pos| session.entry(*pos));
        entries.map(|entry| entry.value()).collect()
    });
    let content = |entry: &Json| {
        let kind = at(entry, "/type").as_str().unwrap_or_default();
        matches!(
            kind,
            "message" | "custom_message" | "compaction" | "branch_summary"
        )
    };
    json!({
        "content": left.iter().any(content),
        "files": written(&left).len(),
        "skip": slot.runtime.skips_summary_question(),
    })
}

/// Files that calls among these entries wrote, as the model named them.
fn written(entries: &[Json]) -> BTreeSet<&str> {
    let messages = || entries.iter().map(|entry| at(entry, "/message"));
    let done: HashSet<&str> = messages()
        .filter(|it| at(it, "/role") == "toolResult" && at(it, "/isError") != true)
        .filter_map(|it| at(it, "/toolCallId").as_str())
        .collect();
    let blocks = messages().filter_map(|it| at(it, "/content").as_array());
    blocks
        .flatten()
        .filter(|block| at(block, "/name") == "edit" || at(block, "/name") == "write")
        .filter(|block| {
            at(block, "/id")
                .as_str()
                .is_some_and(|id| done.contains(id))
        })
        .filter_map(|block| at(block, "/arguments/path").as_str())
        .collect()
}

/// Answers what an entry holds, as the chat would draw it, and how many files were written after it.
fn preview(slot: &Slot, request: &Request) -> Answer {
    let id = request.text("entry").unwrap_or_default();
    let entry = slot.runtime.look(|session| session.get(id));
    let Some(entry) = entry.map(|entry| entry.value()) else {
        return Err(format!("there is no entry {id}"));
    };
    let mut chat = Chat::new("", "");
    chat.preview(&entry);
    let mut lines = chat.lines();
    if lines.is_empty() {
        let pretty = serde_json::to_string_pretty(&entry).unwrap_or_default();
        lines = pretty.lines().map(str::to_owned).collect();
    }
    if !request.flag("whole") {
        lines.truncate(PREVIEW);
    }
    let files = super::changes::files_after(slot.runtime.gate(), slot, id);
    Ok(json!({"lines": lines, "type": at(&entry, "/type"), "files": files}))
}

/// Makes the view of a slot.
pub(super) fn view(ascii: bool, filter: &str) -> TreeView {
    let charset = if ascii {
        Charset::Ascii
    } else {
        Charset::Unicode
    };
    let filter = Filter::parse(filter).unwrap_or_default();
    TreeView::new(filter, charset)
}
