//! Entry types of a session file: one JSON line each.
//!
//! An [`Entry`] keeps its line as it came; a scan reads the few fields an index needs ([`Facts`]) and checks the grammar,
//! everything else is parsed on demand ([`Entry::body`]). So unknown types and unknown fields survive, and a session of a
//! hundred thousand entries opens at the speed of reading it. Nothing here does I/O.

mod body;
pub mod json;
mod scan;
mod time;

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::ai::Message;

pub use self::body::{Body, BranchSummary, Compaction, CustomEntry};
pub(crate) use self::time::parse_time;
pub use self::time::{iso_ms, iso_time};

/// Id of an entry: eight hex digits, or whatever another program wrote.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct EntryId(Arc<str>);

impl EntryId {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::ops::Deref for EntryId {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for EntryId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for EntryId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for EntryId {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The `type` of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A message of the conversation.
    Message,
    /// Another model was chosen.
    ModelChange,
    /// Another thinking level was chosen.
    ThinkingLevelChange,
    /// A summary stands for older history.
    Compaction,
    /// A summary of a branch that was left.
    BranchSummary,
    /// An earlier entry is omitted or replaced for the model.
    ContextEdit,
    /// State of an extension, never for the model.
    Custom,
    /// A message of an extension, for the model too.
    CustomMessage,
    /// A label on an entry.
    Label,
    /// The session's name.
    SessionInfo,
    /// Tokens spent outside of answers.
    Usage,
    /// A type this version does not know.
    Unknown,
}

impl Kind {
    const WORDS: [(Self, &str); 11] = [
        (Self::Message, "message"),
        (Self::ModelChange, "model_change"),
        (Self::ThinkingLevelChange, "thinking_level_change"),
        (Self::Compaction, "compaction"),
        (Self::BranchSummary, "branch_summary"),
        (Self::ContextEdit, "context_edit"),
        (Self::Custom, "custom"),
        (Self::CustomMessage, "custom_message"),
        (Self::Label, "label"),
        (Self::SessionInfo, "session_info"),
        (Self::Usage, "usage"),
    ];

    /// Returns the word in the file; empty for [`Kind::Unknown`].
    pub fn as_str(self) -> &'static str {
        let row = Self::WORDS.iter().find(|(kind, _)| *kind == self);
        row.map_or("", |(_, word)| word)
    }
}

/// The role of a `message` entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// No message at all.
    None,
    /// Prompt sections and tools.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// Result of a tool call.
    ToolResult,
    /// The person's own shell command.
    BashExecution,
    /// An extension.
    Custom,
    /// Any other word.
    Other,
}

impl Role {
    fn of(word: &str) -> Self {
        match word {
            "system" => Self::System,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "toolResult" => Self::ToolResult,
            "bashExecution" => Self::BashExecution,
            "custom" => Self::Custom,
            _ => Self::Other,
        }
    }
}

/// How an answer ended, as far as a tree shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// By itself, or the entry is no answer.
    Normally,
    /// With an error.
    Error,
    /// Stopped by the person.
    Aborted,
    /// At the output limit.
    Length,
}

/// What the index keeps of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The type.
    pub kind: Kind,
    /// The role of a message entry.
    pub role: Role,
    /// How an answer ended.
    pub ended: Ended,
    /// Whether the message's content holds text that is not blank.
    pub has_text: bool,
    /// The entry's own time in Unix milliseconds; `None` when it cannot be read.
    pub time_ms: Option<i64>,
}

impl Facts {
    /// Whether the entry is a message of this role.
    pub fn is_message(&self, role: Role) -> bool {
        self.kind == Kind::Message && self.role == role
    }
}

/// One entry: its line and what the scan saw.
#[derive(Clone, Debug)]
pub struct Entry {
    id: EntryId,
    parent: Option<EntryId>,
    facts: Facts,
    text: Arc<str>,
}

/// What a line of a file turned out to be.
#[derive(Clone, Debug)]
pub enum Line {
    /// An entry.
    Entry(Entry),
    /// An object of type `session`.
    Header(Map<String, Value>),
    /// Blank, not JSON, or a JSON value that counts as nothing.
    Nothing,
    /// JSON, but no entry: no object, or no id.
    Stray,
}

impl Line {
    /// Reads one line without its line feed. Invalid UTF-8 becomes U+FFFD.
    pub fn read(bytes: &[u8]) -> Self {
        let scan = match scan::line(bytes) {
            scan::Line::Object(scan) => scan,
            scan::Line::Falsy | scan::Line::None => return Self::Nothing,
            scan::Line::Other => return Self::Stray,
        };
        if scan.kind.is_some_and(|kind| kind.is("session")) {
            let text = String::from_utf8_lossy(bytes);
            return match json::parse(&text) {
                Some(Value::Object(fields)) => Self::Header(fields),
                _ => Self::Stray,
            };
        }
        match Entry::from_scan(&scan, || String::from_utf8_lossy(bytes).into()) {
            Some(entry) => Self::Entry(entry),
            None => Self::Stray,
        }
    }
}

/// The index's view of a line: everything but the text.
#[derive(Clone, Debug)]
pub struct Indexed {
    /// The entry's id.
    pub id: EntryId,
    /// The parent's id, when the line names one.
    pub parent: Option<EntryId>,
    /// What the scan saw.
    pub facts: Facts,
}

/// Scans a line for an index; `None` when it is no entry (also for a header).
pub fn index(bytes: &[u8]) -> Option<Indexed> {
    let scan::Line::Object(scan) = scan::line(bytes) else {
        return None;
    };
    if scan.kind.is_some_and(|kind| kind.is("session")) {
        return None;
    }
    indexed(&scan)
}

/// Scans a line that need not have an id (files of version 1 have none); `None` when it is no object.
pub fn facts_of(bytes: &[u8]) -> Option<Facts> {
    match scan::line(bytes) {
        scan::Line::Object(scan) => Some(facts(&scan)),
        _ => None,
    }
}

/// Returns where the first line feed is: what ends a line in a session file, and nothing else does.
pub fn find_line_feed(bytes: &[u8]) -> Option<usize> {
    scan::find_line_feed(bytes)
}

fn indexed(scan: &scan::Scan<'_>) -> Option<Indexed> {
    let text = |text: scan::Text<'_>| EntryId::from(&*text.decode());
    Some(Indexed {
        id: text(scan.id?),
        parent: scan.parent.map(text),
        facts: facts(scan),
    })
}

fn facts(scan: &scan::Scan<'_>) -> Facts {
    let kind = scan.kind.map_or(Kind::Unknown, |word| {
        let row = Kind::WORDS.iter().find(|(_, name)| word.is(name));
        row.map_or(Kind::Unknown, |(kind, _)| *kind)
    });
    let message = scan.message.filter(|_| kind == Kind::Message);
    let role = message.map_or(Role::None, |message| {
        message
            .role
            .map_or(Role::Other, |role| Role::of(&role.decode()))
    });
    let ended = match message.and_then(|message| message.stop_reason) {
        Some(word) if word.is("error") => Ended::Error,
        Some(word) if word.is("aborted") => Ended::Aborted,
        Some(word) if word.is("length") => Ended::Length,
        _ => Ended::Normally,
    };
    Facts {
        kind,
        role,
        ended,
        has_text: message.is_some_and(|message| message.has_text),
        time_ms: scan.timestamp.and_then(|text| parse_time(&text.decode())),
    }
}

impl Entry {
    fn from_scan(scan: &scan::Scan<'_>, text: impl FnOnce() -> Arc<str>) -> Option<Self> {
        let Indexed { id, parent, facts } = indexed(scan)?;
        Some(Self {
            id,
            parent,
            facts,
            text: text(),
        })
    }

    /// Reads a line that is known to be an entry; `None` when it is not.
    pub fn parse(text: &str) -> Option<Self> {
        match Line::read(text.as_bytes()) {
            Line::Entry(entry) => Some(entry),
            _ => None,
        }
    }

    /// Returns the id.
    pub fn id(&self) -> &EntryId {
        &self.id
    }

    /// Returns the parent's id as the line names it.
    pub fn parent_id(&self) -> Option<&EntryId> {
        self.parent.as_ref()
    }

    /// Returns what the scan saw.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the line.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the line as a shared text.
    pub fn shared_text(&self) -> Arc<str> {
        self.text.clone()
    }

    /// Returns the whole entry as JSON, unknown fields included.
    pub fn value(&self) -> Value {
        json::parse(&self.text).unwrap_or_default()
    }

    /// Returns the entry's `timestamp` as it stands in the line.
    pub fn timestamp(&self) -> Option<String> {
        Some(self.value().get("timestamp")?.as_str()?.to_owned())
    }

    /// Returns the typed content. Fields of a wrong type read as absent: an odd entry is never lost.
    pub fn body(&self) -> Body {
        Body::read(self.facts.kind, self.value())
    }

    /// Returns the message of a `message` entry.
    pub fn message(&self) -> Option<Message> {
        match self.body() {
            Body::Message(message) => Some(message),
            _ => None,
        }
    }

    /// Returns the line with another parent, every other byte as it was.
    pub fn with_parent(&self, parent: Option<&str>) -> String {
        self.with_field("parentId", parent)
    }

    /// Returns the line with a top-level field set to text or null, every other byte as it was.
    pub fn with_field(&self, key: &str, value: Option<&str>) -> String {
        let mut json = String::new();
        match value {
            Some(text) => json::write_string(text, &mut json),
            None => json.push_str("null"),
        }
        let text = &*self.text;
        let splice = |start: usize, end: usize, middle: &str| {
            let (head, tail) = (text.get(..start), text.get(end..));
            format!(
                "{}{middle}{}",
                head.unwrap_or_default(),
                tail.unwrap_or_default()
            )
        };
        match scan::top_level(text.as_bytes(), key) {
            Some((_, Some(range))) => splice(range.start, range.end, &json),
            Some((inside, None)) => splice(inside, inside, &format!("\"{key}\":{json},")),
            None => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn entry(text: &str) -> Entry {
        Entry::parse(text).unwrap()
    }

    #[test]
    fn a_parent_is_replaced_without_touching_another_byte() {
        let odd =
            r#"{"type":"x" , "parentId": "p" ,"n":12345678901234567890123,"s":"\ud83d","id":"a"}"#;
        assert_eq!(
            entry(odd).with_parent(None),
            r#"{"type":"x" , "parentId": null ,"n":12345678901234567890123,"s":"\ud83d","id":"a"}"#
        );
        assert_eq!(
            entry(r#"{"type":"x","id":"a"}"#).with_parent(Some("q\"")),
            r#"{"parentId":"q\"","type":"x","id":"a"}"#
        );
    }

    #[test]
    fn a_message_entry_without_a_message_is_kept() {
        let entry = entry(r#"{"type":"message","id":"a","message":null}"#);
        assert_eq!(entry.facts().role, Role::None);
        assert!(matches!(entry.body(), Body::Unknown(_)));
    }

    #[test]
    fn lines_that_are_no_entries_say_so() {
        assert!(matches!(
            Line::read(b"{\"type\":\"message\",\"id\":5}"),
            Line::Stray
        ));
        assert!(matches!(Line::read(b"17"), Line::Stray));
        assert!(matches!(
            Line::read(b"{\"type\":\"message\",\"id\":\"a\""),
            Line::Nothing
        ));
        assert!(matches!(
            Line::read(b"{\"type\":\"session\"}"),
            Line::Header(_)
        ));
    }
}
