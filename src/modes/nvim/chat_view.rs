//! What a chat shows: blocks of lines, kept as a model here and drawn by `lua/pi/chat.lua`.
//!
//! [`Chat`] takes in events ([`live`]) or stored entries ([`history`]) and, asked by the outbox, tells which lines of
//! which blocks changed. A block that streams sends only its tail. Invariant: applying the ops in order to an empty
//! buffer gives the lines of [`Chat::lines`].

use std::collections::{BTreeSet, HashMap};

use serde_json::{Value as Json, json};

use super::json::{at, put};

mod attached;
mod errors;
pub mod history;
pub mod live;
pub mod text;
pub mod tool;

pub(super) use errors::plain as plain_error;
use text::clip;
use tool::ToolBlock;

/// Part of a line with a highlight group; `end` `None` means the whole rest, to the window's edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Line inside the block.
    pub line: usize,
    /// First byte.
    pub start: usize,
    /// Byte after the last.
    pub end: Option<usize>,
    /// Highlight group.
    pub group: &'static str,
}

/// What a block is; decides its sign and colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Kind {
    User,
    Steer,
    Assistant,
    Thinking,
    Tool,
    Summary,
    Error,
    Note,
    Empty,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Steer => "steer",
            Self::Assistant => "assistant",
            Self::Thinking => "thinking",
            Self::Tool => "tool",
            Self::Summary => "summary",
            Self::Error => "error",
            Self::Note => "note",
            Self::Empty => "empty",
        }
    }
}

/// Id of the line about the directory.
const PLACE: &str = "place";

/// One block. Its first line is the header, by which it is folded.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) id: String,
    pub(super) kind: Kind,
    /// Entry of the session file, once stored.
    pub(super) entry: Option<String>,
    pub(super) lines: Vec<String>,
    pub(super) marks: Vec<Mark>,
    /// Whether its fold is closed when it is first drawn or when this changes.
    pub(super) closed: bool,
    /// Since when it runs (Unix ms): a spinner and the time are shown.
    pub(super) running: Option<i64>,
    /// Until when it waits (Unix ms): a countdown is shown.
    pub(super) until: Option<i64>,
    /// A file and line its header names.
    pub(super) target: Option<(String, usize)>,
    /// First line not drawn yet as it is now; `None`: nothing changed.
    changed: Option<usize>,
}

impl Block {
    pub(super) fn new(id: impl Into<String>, kind: Kind, lines: Vec<String>) -> Self {
        Self {
            id: id.into(),
            kind,
            entry: None,
            lines,
            marks: Vec::new(),
            closed: false,
            running: None,
            until: None,
            target: None,
            changed: Some(0),
        }
    }

    /// Notes that lines from `line` on differ from what was drawn.
    pub(super) fn touch(&mut self, line: usize) {
        self.changed = Some(self.changed.map_or(line, |old| old.min(line)));
    }

    /// Replaces all lines; what is the same at the beginning is not sent again.
    pub(super) fn replace(&mut self, lines: Vec<String>, marks: Vec<Mark>) {
        let same = self
            .lines
            .iter()
            .zip(&lines)
            .take_while(|(a, b)| a == b)
            .count();
        let same = if self.marks == marks { same } else { 0 };
        self.lines = lines;
        self.marks = marks;
        self.touch(same);
    }

    fn op(&self, from: usize) -> Json {
        let from = from.min(self.lines.len());
        let lines: Vec<_> = self.lines.iter().skip(from).map(|it| clip(it)).collect();
        let marks: Vec<_> = self
            .marks
            .iter()
            .filter(|mark| mark.line >= from)
            .map(|mark| json!([mark.line, mark.start, mark.end, mark.group]))
            .collect();
        let mut op = json!({
            "id": self.id,
            "kind": self.kind.name(),
            "from": from,
            "lines": lines,
            "marks": marks,
            "closed": self.closed,
        });
        let target = self.target.as_ref();
        let optional = [
            ("entry", self.entry.clone().into()),
            ("running", self.running.into()),
            ("until_ms", self.until.into()),
            (
                "target",
                target.map(|(path, line)| json!([path, line])).into(),
            ),
        ];
        for (key, value) in optional {
            if !Json::is_null(&value) {
                put(&mut op, key, value);
            }
        }
        op
    }
}

/// What options say about the drawing of chats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Lines of a running command that are shown: `chat.tool_output_lines`.
    pub output_lines: usize,
    /// Whether times are shown: `chat.timestamps`.
    pub times: bool,
}

impl Default for Look {
    fn default() -> Self {
        Self {
            output_lines: 5,
            times: true,
        }
    }
}

impl Look {
    /// Reads it from the plugin's options.
    pub fn of(config: &Json) -> Self {
        let default = Self::default();
        let lines = at(config, "/chat/tool_output_lines").as_u64();
        Self {
            output_lines: lines
                .and_then(|it| usize::try_from(it).ok())
                .unwrap_or(default.output_lines),
            times: at(config, "/chat/timestamps") != false,
        }
    }
}

/// The chat of one session.
#[derive(Default)]
pub struct Chat {
    pub(super) session: String,
    pub(super) blocks: Vec<Block>,
    pub(super) index: HashMap<String, usize>,
    pub(super) tools: HashMap<String, ToolBlock>,
    dirty: BTreeSet<usize>,
    /// Everything is to be drawn from scratch.
    fresh: bool,
    /// Blocks that were removed since the last draw.
    gone: Vec<String>,
    /// How many entries of the path stand above the first block.
    pub(super) earlier: usize,
    pub(super) stream: live::Stream,
    pub(super) cwd: String,
    pub(super) look: Look,
}

impl Chat {
    /// Makes the chat of a session that has nothing to show yet.
    pub fn new(session: impl Into<String>, cwd: impl Into<String>) -> Self {
        Self {
            session: session.into(),
            cwd: cwd.into(),
            fresh: true,
            ..Self::default()
        }
    }

    /// Sets how it is drawn.
    #[must_use]
    pub fn with_look(mut self, look: Look) -> Self {
        self.look = look;
        self
    }

    /// Whether nothing was said yet.
    pub fn is_empty(&self) -> bool {
        let said = |block: &Block| block.kind != Kind::Empty && block.id != PLACE;
        !self.blocks.iter().any(said)
    }

    /// All lines as they are drawn, blocks separated by an empty line.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for block in &self.blocks {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.extend(block.lines.iter().map(|it| clip(it)));
        }
        lines
    }

    /// Returns the ops that draw what changed, and takes it as drawn.
    pub fn take_ops(&mut self) -> Vec<Json> {
        let dirty = std::mem::take(&mut self.dirty);
        let gone = std::mem::take(&mut self.gone);
        if std::mem::take(&mut self.fresh) {
            for block in &mut self.blocks {
                block.changed = None;
            }
            let blocks: Vec<_> = self.blocks.iter().map(|block| block.op(0)).collect();
            return vec![json!({
                "op": "chat.reset", "session": self.session, "blocks": blocks,
                "earlier": self.earlier,
            })];
        }
        let mut ops: Vec<_> = gone
            .into_iter()
            .map(|id| json!({"op": "chat.remove", "session": self.session, "id": id}))
            .collect();
        for at in dirty {
            let Some(block) = self.blocks.get_mut(at) else {
                continue;
            };
            let Some(from) = block.changed.take() else {
                continue;
            };
            let mut op = block.op(from);
            put(&mut op, "op", "chat.block".into());
            put(&mut op, "session", self.session.as_str().into());
            ops.push(op);
        }
        ops
    }

    /// How many entries of the path are not drawn.
    pub fn earlier(&self) -> usize {
        self.earlier
    }

    /// Says something about the directory, before anything is run there.
    pub fn place(&mut self, text: &str) {
        self.put(Block::new(PLACE, Kind::Note, text::lines(text)));
    }

    /// Says what to do, while nothing was said yet.
    pub fn greet(&mut self, text: &str) {
        if self.is_empty() && self.earlier == 0 {
            self.put(Block::new("empty", Kind::Empty, text::lines(text)));
        }
    }

    /// Draws everything anew next time.
    pub fn redraw(&mut self) {
        self.fresh = true;
    }

    /// The whole output of the call behind a block, or its lines: what a buffer of its own shows.
    pub fn details(&self, block: &str) -> Option<Json> {
        if let Some(tool) = block
            .strip_prefix("call:")
            .and_then(|id| self.tools.get(id))
        {
            return Some(json!({
                "title": tool.name,
                "arguments": serde_json::to_string_pretty(&tool.args).unwrap_or_default(),
                "text": text::terminal_lines(&tool.output),
            }));
        }
        let block = self.blocks.get(*self.index.get(block)?)?;
        Some(json!({"title": block.kind.name(), "entry": block.entry, "text": block.lines}))
    }

    /// Puts a block at the end, or in the place of the one with its id.
    pub(super) fn put(&mut self, block: Block) {
        if block.kind != Kind::Empty && block.id != PLACE {
            self.remove("empty");
        }
        match self.index.get(&block.id) {
            Some(&at) => {
                if let Some(old) = self.blocks.get_mut(at) {
                    *old = block;
                    old.touch(0);
                    self.dirty.insert(at);
                }
            }
            None => {
                let at = self.blocks.len();
                self.index.insert(block.id.clone(), at);
                self.blocks.push(block);
                self.dirty.insert(at);
            }
        }
    }

    /// Changes a block, if it is there.
    pub(super) fn edit(&mut self, id: &str, change: impl FnOnce(&mut Block)) {
        let Some(&at) = self.index.get(id) else {
            return;
        };
        if let Some(block) = self.blocks.get_mut(at) {
            change(block);
            if block.changed.is_some() {
                self.dirty.insert(at);
            }
        }
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.index.contains_key(id)
    }

    /// Takes a block out. Rare: the empty text, a retry that is over.
    pub(super) fn remove(&mut self, id: &str) {
        let Some(at) = self.index.remove(id) else {
            return;
        };
        self.blocks.remove(at);
        for place in self.index.values_mut().filter(|place| **place > at) {
            *place -= 1;
        }
        let moved = std::mem::take(&mut self.dirty);
        self.dirty = moved
            .into_iter()
            .filter(|it| *it != at)
            .map(|it| if it > at { it - 1 } else { it })
            .collect();
        self.gone.push(id.to_owned());
    }

    /// Makes way for a new call. Some servers number their calls from the start in every answer: a finished call with
    /// the same id stays above under a name of its own.
    pub(super) fn begin_call(&mut self, call_id: &str) {
        if !self
            .tools
            .get(call_id)
            .is_some_and(|tool| tool.state.is_final())
        {
            return;
        }
        let mut name = call_id.to_owned();
        while self.tools.contains_key(&name) {
            name.push('\'');
        }
        if let Some(tool) = self.tools.remove(call_id) {
            self.tools.insert(name.clone(), tool);
        }
        let (old, new) = (format!("call:{call_id}"), format!("call:{name}"));
        if let Some(at) = self.index.remove(&old) {
            if let Some(block) = self.blocks.get_mut(at) {
                block.id.clone_from(&new);
            }
            self.index.insert(new, at);
        }
        // The other side knows the block by its old name.
        self.fresh = true;
    }

    /// Forgets all blocks.
    pub(super) fn clear(&mut self) {
        let (session, cwd) = (
            std::mem::take(&mut self.session),
            std::mem::take(&mut self.cwd),
        );
        *self = Self::new(session, cwd).with_look(self.look);
    }
}

#[cfg(test)]
mod tests;
