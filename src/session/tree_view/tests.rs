use expect_test::{Expect, expect};

use super::*;
use crate::session::store::{Session, Start};

/// A session from lines `id parent text`; `*` before the text makes an answer, `#` a tool result of call `c`, `!` a name.
fn session(lines: &str) -> (tempfile::TempDir, Session) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let mut text = String::from(
        "{\"type\":\"session\",\"version\":3,\"id\":\"s\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n",
    );
    for (at, line) in lines
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .enumerate()
    {
        let [id, parent, rest] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let parent = if parent == "-" {
            serde_json::Value::Null
        } else {
            parent.into()
        };
        let mut entry = serde_json::json!({
            "type": "message", "id": id, "parentId": parent, "timestamp": format!("2026-01-01T00:{:02}:{:02}.000Z", at / 60, at % 60),
        });
        let message = match rest.split_at_checked(1) {
            Some(("*", text)) => {
                let calls = text.strip_prefix('+').map(|path| serde_json::json!([{"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": path, "offset": 3, "limit": 2}}]));
                serde_json::json!({"role": "assistant", "content": calls.unwrap_or(serde_json::json!([{"type": "text", "text": text}])), "stopReason": "stop"})
            }
            Some(("#", _)) => {
                serde_json::json!({"role": "toolResult", "toolCallId": "c", "toolName": "read", "content": []})
            }
            Some(("!", name)) => {
                entry["type"] = "session_info".into();
                entry["name"] = name.into();
                serde_json::Value::Null
            }
            _ => serde_json::json!({"role": "user", "content": rest}),
        };
        if !message.is_null() {
            entry["message"] = message;
        }
        text.push_str(&format!("{entry}\n"));
    }
    std::fs::write(&path, text).unwrap();
    let session = Session::open(&path, dir.path(), Start::default()).unwrap();
    (dir, session)
}

fn drawn(view: &TreeView, session: &Session) -> String {
    let rows = view.rows(session, 0..view.len());
    let line = |row: &TreeRow| {
        let mark = if row.on_path { "• " } else { "  " };
        let label = row
            .label
            .as_ref()
            .map(|label| format!("[{label}] "))
            .unwrap_or_default();
        let here = if row.is_leaf { "  <-" } else { "" };
        let hidden = if row.hidden > 0 {
            format!("  ({} hidden)", row.hidden)
        } else {
            String::new()
        };
        format!("{}{mark}{label}{}{hidden}{here}\n", row.prefix, row.text)
    };
    rows.iter().map(line).collect()
}

#[track_caller]
fn check(lines: &str, change: impl FnOnce(&mut TreeView, &mut Session), expect: Expect) {
    let (_dir, mut session) = session(lines);
    let mut view = TreeView::new(Filter::Default, Charset::Unicode);
    change(&mut view, &mut session);
    view.refresh(&session);
    expect.assert_eq(&drawn(&view, &session));
}

const BRANCHED: &str = "
    a - make the lexer return errors
    b a *I'll change lex()
    c b instead use thiserror
    d c *done with thiserror
    e b also update the docs
    f e *+src/lex.rs
    g f #
    h g *Done.
    n h !a name
    i b revert that
    j h last question
";

#[test]
fn the_branch_of_the_leaf_comes_first_and_single_chains_stay_flat() {
    check(
        BRANCHED,
        |_, _| {},
        expect![[r#"
        • user: make the lexer return errors
        • assistant: I'll change lex()
        ├⊟ • user: also update the docs
        │     • [read: src/lex.rs:3-4]
        │     • assistant: Done.
        │     • user: last question  <-
        ├⊟   user: instead use thiserror
        │       assistant: done with thiserror
        └─   user: revert that
    "#]],
    );
}

#[test]
fn hidden_rows_hand_their_children_to_the_nearest_visible_ancestor() {
    check(
        BRANCHED,
        |view, _| view.set_filter(Filter::UserOnly),
        expect![[r#"
        • user: make the lexer return errors
        ├⊟ • user: also update the docs
        │     • user: last question  <-
        ├─   user: instead use thiserror
        └─   user: revert that
    "#]],
    );
    check(
        BRANCHED,
        |view, _| view.set_filter(Filter::NoTools),
        expect![[r#"
        • user: make the lexer return errors
        • assistant: I'll change lex()
        ├⊟ • user: also update the docs
        │     • assistant: Done.
        │     • user: last question  <-
        ├⊟   user: instead use thiserror
        │       assistant: done with thiserror
        └─   user: revert that
    "#]],
    );
}

#[test]
fn all_shows_bookkeeping_and_labels_show_where_they_are_set() {
    let change = |view: &mut TreeView, session: &mut Session| {
        session.branch("d").unwrap();
        session.append_label("a", Some("base")).unwrap();
        view.set_filter(Filter::All);
    };
    check(
        BRANCHED,
        change,
        expect![[r#"
            • [base] user: make the lexer return errors
            • assistant: I'll change lex()
            ├⊟ • user: instead use thiserror
            │     • assistant: done with thiserror
            │     • [label: base]  <-
            ├⊟   user: also update the docs
            │       [read: src/lex.rs:3-4]
            │       assistant: Done.
            │     ├─   [title: a name]
            │     └─   user: last question
            └─   user: revert that
        "#]],
    );
    check(
        BRANCHED,
        |view, session| {
            session.append_label("a", Some("y")).unwrap();
            session.append_label("d", Some("x")).unwrap();
            view.set_filter(Filter::LabeledOnly);
        },
        expect![[r#"
            • [y] user: make the lexer return errors
              [x] assistant: done with thiserror
        "#]],
    );
}

#[test]
fn folds_hide_what_is_below_and_a_search_opens_them() {
    let fold = |view: &mut TreeView, _: &mut Session| view.set_folded(&"e".into(), true);
    check(
        BRANCHED,
        fold,
        expect![[r#"
        • user: make the lexer return errors
        • assistant: I'll change lex()
        ├⊞ • user: also update the docs  (3 hidden)
        ├⊟   user: instead use thiserror
        │       assistant: done with thiserror
        └─   user: revert that
    "#]],
    );
    let search = |view: &mut TreeView, session: &mut Session| {
        fold(view, session);
        view.set_query("LAST user");
    };
    check(
        BRANCHED,
        search,
        expect![[r#"
        • user: last question  <-
    "#]],
    );
}

#[test]
fn several_roots_stand_side_by_side_and_the_cursor_finds_the_nearest_row() {
    let (_dir, session) = session("a - one\nb a *two\nc - three\nd c *+x");
    let mut view = TreeView::new(Filter::UserOnly, Charset::Ascii);
    view.refresh(&session);
    expect![[r#"
        • user: three
          user: one
    "#]]
    .assert_eq(&drawn(&view, &session));
    assert_eq!(
        (
            view.row_of(&session, "d"),
            view.row_of(&session, "b"),
            view.total()
        ),
        (Some(0), Some(1), 4)
    );
}

#[test]
fn ascii_connectors_can_be_asked_for() {
    let (_dir, session) = session(BRANCHED);
    let mut view = TreeView::new(Filter::UserOnly, Charset::Ascii);
    view.refresh(&session);
    let prefixes: Vec<String> = view
        .rows(&session, 0..9)
        .into_iter()
        .map(|row| row.prefix)
        .collect();
    assert_eq!(prefixes, ["", "|[-]", "|     ", "|- ", "'- "]);
}

#[test]
fn branches_beside_are_found_from_anywhere() {
    let (_dir, session) = session(
        "a - start
         b a *one
         c b left
         d c *left end
         e b middle
         f e *middle end
         g b right
         h g *right end",
    );
    let mut view = TreeView::new(Filter::Default, Charset::Ascii);
    view.refresh(&session);
    let go = |id: &str, next| {
        let row = view.beside(&session, id, next)?;
        Some(view.rows(&session, row..row + 1).first()?.id.to_string())
    };
    // The active branch (right) comes first.
    let ways = ["h", "d", "f", "e", "c", "g", "b"].map(|id| {
        let name = |way: Option<String>| way.unwrap_or_else(|| "-".into());
        format!("{id}: {} {}", name(go(id, false)), name(go(id, true)))
    });
    assert_eq!(
        ways,
        [
            "h: b d", "d: b f", "f: b -", "e: d f", "c: h f", "g: - d", "b: - h"
        ]
    );
}

#[test]
fn a_search_reads_each_entry_once_in_pieces_and_finds_what_came_later() {
    let lines: String = (0..50)
        .map(|at| {
            let parent = at.max(1) - 1;
            match at {
                0 => "e0 - word0\n".to_owned(),
                _ => format!("e{at} e{parent} word{at}\n"),
            }
        })
        .collect();
    let (_dir, mut session) = session(&lines);
    let mut view = TreeView::new(Filter::Default, Charset::Ascii);
    view.refresh(&session);
    assert_eq!(view.read_texts(&session, 20), 0, "nothing is searched");
    view.set_query("word7");
    let mut pieces = Vec::new();
    loop {
        match view.read_texts(&session, 20) {
            0 => break,
            count => pieces.push(count),
        }
    }
    assert_eq!(pieces, [20, 20, 10]);
    view.refresh(&session);
    assert_eq!((view.len(), view.total()), (1, 50));
    for query in ["", "word8", "word49"] {
        view.set_query(query);
        assert_eq!(view.read_texts(&session, 20), 0, "all texts are known");
    }
    let later = crate::ai::Message::from_value(
        serde_json::json!({"role": "user", "content": "word7 again"}),
    );
    session.append_message(&later).unwrap();
    view.set_query("word7");
    assert_eq!(view.read_texts(&session, 20), 1);
    view.refresh(&session);
    assert_eq!(view.len(), 2);
}

#[test]
fn texts_of_one_session_are_not_those_of_another() {
    let (_one, one) = session("a - first");
    let (_two, two) = session("a - second");
    let mut view = TreeView::new(Filter::Default, Charset::Ascii);
    view.set_query("first");
    view.refresh(&one);
    assert_eq!(view.len(), 1);
    view.refresh(&two);
    assert_eq!(view.len(), 0, "another session has other texts");
}

#[test]
fn rows_say_what_the_model_no_longer_reads_or_reads_otherwise() {
    check(
        "a - question
         b a *answer
         c b more",
        |_, session| {
            session
                .append_context_edit("a", serde_json::Value::Null)
                .unwrap();
            session
                .append_context_edit("b", serde_json::json!({"content": "short"}))
                .unwrap();
            session
                .append_context_edit("c", serde_json::Value::Null)
                .unwrap();
            session
                .append_context_edit("c", serde_json::json!({"original": true}))
                .unwrap();
        },
        expect![[r#"
            • (left out) user: question
            • (replaced) assistant: answer
            • user: more
        "#]],
    );
}
