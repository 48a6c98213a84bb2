//! A proposal as Lua draws it: plain JSON with rows, texts and changed columns, every decision already made.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::json::at;
use super::words;
use crate::review::{ChangeTool, Hunk, HunkState, Proposal, ProposalState};
use crate::workspace::Origin;

/// Above one of these a text is shown as an extract, without word marks: the options `review.max_bytes` and
/// `review.max_lines`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes.
    pub bytes: usize,
    /// Most lines.
    pub lines: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 2_000_000,
            lines: 20_000,
        }
    }
}

impl Limits {
    /// Reads them from the plugin's options.
    pub fn of(config: &Value) -> Self {
        let number = |pointer: &str, default| {
            let value = at(config, pointer).as_u64();
            value
                .and_then(|it| usize::try_from(it).ok())
                .unwrap_or(default)
        };
        let default = Self::default();
        Self {
            bytes: number("/review/max_bytes", default.bytes),
            lines: number("/review/max_lines", default.lines),
        }
    }
}

const MAX_LINE_BYTES: usize = 10_000;

/// Which view suits a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Over the real buffer.
    Inline,
    /// The proposed text, editable.
    Proposal,
    /// An extract that cannot be edited.
    Digest,
}

impl View {
    fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Proposal => "proposal",
            Self::Digest => "digest",
        }
    }

    /// Returns the view of a proposal.
    pub(super) fn of(proposal: &Proposal, limits: Limits) -> Self {
        let texts = [base_bytes(proposal), target_bytes(proposal)];
        if texts
            .iter()
            .any(|text| is_binary(text) || is_huge(text, limits))
        {
            return Self::Digest;
        }
        match proposal.base.as_ref().map(|base| &base.origin) {
            Some(Origin::Missing) => Self::Proposal,
            _ => Self::Inline,
        }
    }
}

pub(super) fn base_bytes(proposal: &Proposal) -> &[u8] {
    proposal.base.as_ref().map_or(&[], |base| &base.bytes)
}

pub(super) fn target_bytes(proposal: &Proposal) -> &[u8] {
    proposal.target.as_deref().unwrap_or_default()
}

/// Whether a text cannot be shown as lines: not UTF-8, with NUL, or with bare carriage returns for endings.
pub(super) fn is_binary(text: &[u8]) -> bool {
    let bare = text.contains(&b'\r') && !text.contains(&b'\n');
    bare || text.contains(&0) || std::str::from_utf8(text).is_err()
}

fn is_huge(text: &[u8], limits: Limits) -> bool {
    text.len() > limits.bytes
        || text.iter().filter(|byte| **byte == b'\n').count() > limits.lines
        || text
            .split(|byte| *byte == b'\n')
            .any(|line| line.len() > MAX_LINE_BYTES)
}

/// Whether every line of a text ends with CRLF, so that the carriage returns are not shown.
pub(super) fn is_crlf(text: &[u8]) -> bool {
    let mut lines = text
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.ends_with(b"\n"))
        .peekable();
    lines.peek().is_some() && lines.all(|line| line.ends_with(b"\r\n"))
}

/// A line without its ending; a carriage return is part of the ending where all lines have one.
pub(super) fn shown(line: &[u8], crlf: bool) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = if crlf {
        line.strip_suffix(b"\r").unwrap_or(line)
    } else {
        line
    };
    String::from_utf8_lossy(line).into_owned()
}

/// What the view knows beside the proposal.
pub(super) struct Context<'a> {
    /// How large a text may be to be shown whole.
    pub(super) limits: Limits,
    /// Directory paths are shown relative to.
    pub(super) cwd: &'a Path,
    /// Running number of the change in its session.
    pub(super) number: usize,
    /// Number of the change it waits for.
    pub(super) after: Option<usize>,
    /// Name of the session, if it has one.
    pub(super) session_name: Option<&'a str>,
    /// Whether the person has looked at this hunk of a change that was written without asking.
    pub(super) looked_at: &'a dyn Fn(&Hunk) -> bool,
    /// Whether Lua has the lines of this hunk already.
    pub(super) known: &'a dyn Fn(&Hunk) -> bool,
}

/// Returns a path as people read it.
pub(super) fn display(path: &Path, cwd: &Path) -> String {
    if let Ok(inside) = path.strip_prefix(cwd) {
        return inside.display().to_string();
    }
    let home = std::env::home_dir().filter(|home| home.as_os_str().len() > 1);
    match home
        .as_deref()
        .and_then(|home| path.strip_prefix(home).ok())
    {
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}

/// Builds what Lua draws.
pub(super) fn proposal(proposal: &Proposal, cx: &Context<'_>) -> Value {
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
    let (base, target) = (base_bytes(proposal), target_bytes(proposal));
    let view = View::of(proposal, cx.limits);
    let missing = proposal
        .base
        .as_ref()
        .is_some_and(|base| base.origin == Origin::Missing);
    put("id", proposal.id.0.into());
    put("version", proposal.version.into());
    put("session", proposal.session.as_str().into());
    put("path", proposal.path.display().to_string().into());
    put("real", proposal.real_path.display().to_string().into());
    put("display", display(&proposal.path, cx.cwd).into());
    put("outside", (!proposal.real_path.starts_with(cx.cwd)).into());
    put("tool", tool(proposal.tool).into());
    put("number", cx.number.into());
    put("state", state(proposal.state).into());
    put("view", view.name().into());
    put("unreviewed", proposal.unreviewed.into());
    put("unsaved", is_unsaved(proposal).into());
    let gone = |hunk: &Hunk| hunk.new.is_empty() && !hunk.old.is_empty();
    let removed = missing && !proposal.hunks.is_empty() && proposal.hunks.iter().all(gone);
    let kind = if removed {
        "D"
    } else if missing {
        "A"
    } else if target.is_empty() && !base.is_empty() {
        "D"
    } else {
        "M"
    };
    put("kind", kind.into());
    let sum = |side: fn(&Hunk) -> usize| proposal.hunks.iter().map(side).sum::<usize>();
    put("added", sum(|hunk| hunk.new.len()).into());
    put("removed", sum(|hunk| hunk.old.len()).into());
    if proposal.real_path != proposal.path {
        put("link", display(&proposal.real_path, cx.cwd).into());
    }
    let optional = [
        ("notice", proposal.notice.clone().map(Value::from)),
        ("after", cx.after.map(Value::from)),
        ("session_name", cx.session_name.map(Value::from)),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            put(key, value);
        }
    }
    put("hunks", hunks(proposal, view, cx));
    Value::Object(map)
}

fn hunks(proposal: &Proposal, view: View, cx: &Context<'_>) -> Value {
    let (base, target) = (base_bytes(proposal), target_bytes(proposal));
    let crlf = is_crlf(if base.is_empty() { target } else { base });
    let drawn = proposal.hunks.iter().map(|it| {
        let mut drawn = hunk(it, view, crlf, (cx.known)(it));
        let unseen = proposal.unreviewed && it.state == HunkState::Accepted;
        if unseen && !(cx.looked_at)(it) {
            super::put(&mut drawn, "state", "unreviewed");
        }
        drawn
    });
    drawn.collect()
}

fn is_unsaved(proposal: &Proposal) -> bool {
    let origin = proposal.base.as_ref().map(|base| &base.origin);
    matches!(origin, Some(Origin::Buffer(buffer)) if buffer.modified)
}

fn tool(tool: ChangeTool) -> &'static str {
    match tool {
        ChangeTool::Edit => "edit",
        ChangeTool::Write => "write",
        ChangeTool::Bash => "bash",
    }
}

/// Names a proposal's state.
pub(super) fn state(state: ProposalState) -> &'static str {
    match state {
        ProposalState::Waiting => "waiting",
        ProposalState::Open => "open",
        ProposalState::Applying => "applying",
        ProposalState::Done => "done",
        ProposalState::Failed => "failed",
        ProposalState::Cancelled => "cancelled",
    }
}

/// Names a hunk's state as events and drawing do.
pub(super) fn hunk_state(state: HunkState) -> &'static str {
    match state {
        HunkState::Pending => "pending",
        HunkState::Accepted => "accepted",
        HunkState::Rejected => "rejected",
        HunkState::Stale => "stale",
        HunkState::Reverted => "reverted",
    }
}

fn hunk(hunk: &Hunk, view: View, crlf: bool, known: bool) -> Value {
    let edits: Vec<usize> = hunk.edits.iter().map(|edit| edit + 1).collect();
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
    put("id", hunk.id.0.into());
    put("index", (hunk.index + 1).into());
    put("row", hunk.row.into());
    put("count", hunk.old.len().into());
    put("new_row", hunk.new_start.into());
    put("state", hunk_state(hunk.state).into());
    put("edited", hunk.edited.into());
    put("edits", edits.into());
    if let Some(note) = &hunk.note {
        put("note", note.as_str().into());
    }
    if let Some(label) = &hunk.label {
        put("label", label.as_str().into());
    }
    if known {
        put("same", true.into());
        return Value::Object(map);
    }
    let (old, new) = lines(hunk, view, crlf);
    put("old", old);
    put("new", new);
    Value::Object(map)
}

/// Lines of an extract are shown by its own text; Lua only needs the first ones for titles.
const DIGEST_LINES: usize = 3;

fn lines(hunk: &Hunk, view: View, crlf: bool) -> (Value, Value) {
    let limit = match view {
        View::Digest => DIGEST_LINES,
        View::Inline | View::Proposal => usize::MAX,
    };
    let texts = |lines: &[Vec<u8>]| -> Vec<String> {
        let lines = lines.iter().take(limit);
        lines.map(|line| cut(shown(line, crlf))).collect()
    };
    let (old, new) = (texts(&hunk.old), texts(&hunk.new));
    let marks = match view {
        View::Digest => (Vec::new(), Vec::new()),
        View::Inline | View::Proposal => {
            let (a, b): (Vec<&str>, Vec<&str>) = (
                old.iter().map(String::as_str).collect(),
                new.iter().map(String::as_str).collect(),
            );
            words::mark(&a, &b)
        }
    };
    (with_marks(old, marks.0), with_marks(new, marks.1))
}

/// No line that is only looked at is longer than this.
fn cut(mut line: String) -> String {
    if line.len() > MAX_LINE_BYTES {
        let mut end = MAX_LINE_BYTES;
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        line.truncate(end);
        line.push('…');
    }
    line
}

fn with_marks(texts: Vec<String>, marks: Vec<words::Columns>) -> Value {
    let mut marks = marks.into_iter();
    let line = |text: String| match marks.next().filter(|columns| !columns.is_empty()) {
        Some(columns) => json!({"t": text, "w": columns}),
        None => json!({"t": text}),
    };
    texts.into_iter().map(line).collect()
}

/// The lines of a text as a buffer shows them.
pub(super) fn text_lines(text: &[u8]) -> Vec<String> {
    let crlf = is_crlf(text);
    text.split_inclusive(|byte| *byte == b'\n')
        .map(|line| shown(line, crlf))
        .collect()
}

/// Puts lines of a proposal buffer back together, with the endings and the final newline its text had.
pub(super) fn from_buffer(lines: &[u8], like: &Arc<[u8]>) -> Vec<u8> {
    let crlf = is_crlf(like);
    let mut out = Vec::with_capacity(lines.len());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\n") {
            Some(body) if crlf => {
                out.extend_from_slice(body.strip_suffix(b"\r").unwrap_or(body));
                out.extend_from_slice(b"\r\n");
            }
            _ => out.extend_from_slice(line),
        }
    }
    if !like.is_empty() && !like.ends_with(b"\n") {
        let ending: &[u8] = if crlf { b"\r\n" } else { b"\n" };
        if out.ends_with(ending) {
            out.truncate(out.len() - ending.len());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::{HunkId, ProposalId};
    use crate::workspace::{BufferOrigin, FileState};
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn lines(text: &str) -> Vec<Vec<u8>> {
        text.split_inclusive('\n')
            .map(|line| line.as_bytes().to_vec())
            .collect()
    }

    fn change(base: &str, target: &str, origin: Origin, hunk: Hunk) -> Proposal {
        Proposal {
            id: ProposalId(7),
            version: 3,
            session: "s".into(),
            call_id: "c".into(),
            tool: ChangeTool::Edit,
            path_given: "src/a.rs".into(),
            path: "/p/src/a.rs".into(),
            real_path: "/p/src/a.rs".into(),
            state: ProposalState::Open,
            base: Some(FileState {
                bytes: base.as_bytes().into(),
                origin,
            }),
            target: Some(target.as_bytes().into()),
            hunks: vec![hunk],
            notice: None,
            unreviewed: false,
        }
    }

    fn hunk(old: &str, new: &str) -> Hunk {
        Hunk {
            id: HunkId(1),
            index: 0,
            base_start: 1,
            new_start: 1,
            row: 1,
            old: lines(old),
            new: lines(new),
            edits: vec![0],
            state: HunkState::Pending,
            note: None,
            edited: false,
            label: None,
        }
    }

    fn check(change: &Proposal, known: bool, expect: Expect) {
        let cx = Context {
            limits: Limits::default(),
            cwd: Path::new("/p"),
            number: 2,
            after: None,
            session_name: None,
            looked_at: &|_| false,
            known: &|_| known,
        };
        expect.assert_eq(&proposal(change, &cx).to_string());
    }

    #[test]
    fn lua_gets_rows_texts_and_changed_columns() {
        let origin = Origin::Buffer(BufferOrigin {
            buffer: 1,
            changedtick: 5,
            modified: true,
        });
        let it = change(
            "a\r\nlet b;\r\n",
            "a\r\nlet c;\r\n",
            origin,
            hunk("let b;\r\n", "let c;\r\n"),
        );
        check(
            &it,
            false,
            expect![[
                r#"{"id":7,"version":3,"session":"s","path":"/p/src/a.rs","real":"/p/src/a.rs","display":"src/a.rs","outside":false,"tool":"edit","number":2,"state":"open","view":"inline","unreviewed":false,"unsaved":true,"kind":"M","added":1,"removed":1,"hunks":[{"id":1,"index":1,"row":1,"count":1,"new_row":1,"state":"pending","edited":false,"edits":[1],"old":[{"t":"let b;","w":[4,5]}],"new":[{"t":"let c;","w":[4,5]}]}]}"#
            ]],
        );
        check(
            &it,
            true,
            expect![[
                r#"{"id":7,"version":3,"session":"s","path":"/p/src/a.rs","real":"/p/src/a.rs","display":"src/a.rs","outside":false,"tool":"edit","number":2,"state":"open","view":"inline","unreviewed":false,"unsaved":true,"kind":"M","added":1,"removed":1,"hunks":[{"id":1,"index":1,"row":1,"count":1,"new_row":1,"state":"pending","edited":false,"edits":[1],"same":true}]}"#
            ]],
        );
    }

    #[test]
    fn new_and_unreadable_files_have_views_of_their_own() {
        let new = change("", "x\n", Origin::Missing, hunk("", "x\n"));
        assert_eq!(View::of(&new, Limits::default()), View::Proposal);
        let binary = change("a\0", "b\0", Origin::Disk, hunk("a\0", "b\0"));
        assert_eq!(View::of(&binary, Limits::default()), View::Digest);
        let mac = change("a\rb\r", "a\rc\r", Origin::Disk, hunk("a\rb\r", "a\rc\r"));
        assert_eq!(View::of(&mac, Limits::default()), View::Digest);
        let long = "x".repeat(MAX_LINE_BYTES + 1);
        let huge = change("a\n", &long, Origin::Disk, hunk("a\n", &long));
        assert_eq!(View::of(&huge, Limits::default()), View::Digest);
        let plain = change("a\n", "b\n", Origin::Disk, hunk("a\n", "b\n"));
        assert_eq!(View::of(&plain, Limits::default()), View::Inline);
    }

    #[test]
    fn a_carriage_return_is_seen_only_where_it_is_not_the_rule() {
        assert_eq!(text_lines(b"a\r\nb\r\n"), ["a", "b"]);
        assert_eq!(text_lines(b"a\r\nb\n"), ["a\r", "b"]);
        assert_eq!(text_lines(b"a"), ["a"]);
    }

    proptest! {
        #[test]
        fn a_text_that_was_not_edited_comes_back_as_it_was(
            text in "([ab]{0,3}\n){0,4}[ab]{0,2}",
            crlf in proptest::bool::ANY,
        ) {
            let text = if crlf { text.replace('\n', "\r\n") } else { text };
            // What the proposal buffer holds, as it would be written: unix lines and a final newline.
            let mut buffer = text_lines(text.as_bytes()).join("\n");
            if !text.is_empty() {
                buffer.push('\n');
            }
            let like: Arc<[u8]> = text.as_bytes().into();
            prop_assert_eq!(from_buffer(buffer.as_bytes(), &like), text.into_bytes());
        }
    }
}
