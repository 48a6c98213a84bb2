//! Commit records and checkpoints: what lets a killed program tell the truth afterwards, and a person go back.
//!
//! Entry points: [`Records`], [`Checkpoints`]. A record is written and flushed before a reviewed write, marked done after
//! it with what is on disk, and dropped once the tool's result is in the session file. The mark is a line added to the
//! record and not flushed: a killed program leaves it, and after a power cut the file's own fingerprint says the same. A checkpoint keeps the text from
//! before the write, by content. Both live in the state directory, private to its owner; nothing here is shown to models.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::ToolOutput;
use crate::ai::Block;
use crate::files::replace::{Flush, sweep};
use crate::files::state::{StateDir, fingerprint};
use crate::workspace::{FileState, Origin};

/// The result of a call as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptResult {
    text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
    #[serde(default)]
    is_error: bool,
}

impl KeptResult {
    /// Keeps the text and details of a result.
    pub fn of(output: &ToolOutput) -> Self {
        let text = output
            .content
            .iter()
            .filter_map(|block| match block {
                Block::Text(block) => Some(block.text.as_str()),
                _ => None,
            })
            .collect();
        Self {
            text,
            details: output.details.clone(),
            is_error: output.is_error,
        }
    }

    fn output(self) -> ToolOutput {
        ToolOutput {
            details: self.details,
            is_error: self.is_error,
            ..ToolOutput::text(self.text)
        }
    }
}

/// A write that is about to happen, or has happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitRecord {
    /// Session.
    pub session: String,
    /// Tool call.
    pub call_id: String,
    /// Path as the model gave it.
    pub path_given: String,
    /// Real path.
    pub path: PathBuf,
    /// Fingerprint before; `None` when there was no file.
    pub before: Option<String>,
    /// Fingerprint of what is to be written.
    pub after: String,
    /// Fingerprint on disk after the write, once it is done.
    #[serde(default)]
    pub done: Option<String>,
    /// Decisions, as in `details.review`.
    #[serde(default)]
    pub decisions: Value,
    /// What the model is told if it happened.
    pub result: KeptResult,
}

/// The line that marks a record as done.
#[derive(Serialize, Deserialize)]
struct Mark {
    done: String,
}

/// Records of writes whose results may not be in a session file yet.
#[derive(Clone, Debug)]
pub struct Records {
    dir: StateDir,
}

impl Records {
    /// Keeps records in `commits` of the state directory.
    pub fn new(state: &Path) -> Self {
        Self {
            dir: StateDir::new(state.join("commits")),
        }
    }

    /// Stores a record, flushed.
    ///
    /// # Errors
    /// The record is then not stored.
    pub fn write(&self, record: &CommitRecord) -> io::Result<()> {
        let text = serde_json::to_vec(record).map_err(io::Error::other)?;
        self.dir
            .write(&name(&record.session, &record.call_id), &text)
    }

    /// Marks a stored record as done, with what is on disk now. Where the program wrote what it said it would, one line is
    /// added; otherwise the result is another one too and the whole record is stored anew, flushed.
    ///
    /// # Errors
    /// The record is then as it was.
    pub fn mark_done(&self, record: &CommitRecord) -> io::Result<()> {
        let Some(done) = record.done.as_ref().filter(|done| **done == record.after) else {
            return self.write(record);
        };
        let mark = serde_json::to_string(&Mark { done: done.clone() }).map_err(io::Error::other)?;
        let name = name(&record.session, &record.call_id);
        self.dir.add_to(&name, format!("\n{mark}\n").as_bytes())
    }

    /// Drops the record of a call; fine when there is none.
    ///
    /// # Errors
    /// Trouble with removing the file.
    pub fn drop_record(&self, session: &str, call_id: &str) -> io::Result<()> {
        self.dir.remove(&name(session, call_id))
    }

    /// Reads the record of a call.
    pub fn read(&self, session: &str, call_id: &str) -> Option<CommitRecord> {
        let text = self.dir.read(&name(session, call_id)).ok()??;
        let mut lines = text.split(|byte| *byte == b'\n');
        let mut record: CommitRecord = serde_json::from_slice(lines.next()?).ok()?;
        // A torn mark is no mark: then the disk says what happened.
        let mut marks = lines.filter_map(|line| serde_json::from_slice::<Mark>(line).ok());
        record.done = marks.next_back().map(|mark| mark.done).or(record.done);
        (record.session == session && record.call_id == call_id).then_some(record)
    }

    /// Returns the true result of a call that was not answered: as written, as not written, or as unknown. `None` when
    /// no write was about to happen.
    pub fn look_up(&self, session: &str, call_id: &str) -> Option<ToolOutput> {
        let record = self.read(session, call_id)?;
        let path = &record.path_given;
        if record.done.is_none() {
            // Killed in the middle: what was to become the file may still lie beside it.
            sweep(record.path.parent().unwrap_or(Path::new("/")));
        }
        let now = match std::fs::read(&record.path) {
            Ok(bytes) => Some(fingerprint(&bytes)),
            Err(_) => None,
        };
        let is_written = record.done.is_some() || now.as_ref() == Some(&record.after);
        if is_written {
            return Some(record.result.output());
        }
        let text = if now == record.before {
            format!(
                "The program ended before the change to {path} was written; nothing was written. Make the edit again if it is still wanted."
            )
        } else {
            format!(
                "The program ended while {path} was being changed, and the file is now neither as before nor as proposed. Read {path} again before editing it."
            )
        };
        Some(ToolOutput {
            is_error: true,
            ..ToolOutput::text(text)
        })
    }
}

fn name(session: &str, call_id: &str) -> String {
    let mut name = fingerprint(format!("{session}\0{call_id}").as_bytes());
    name.truncate(40);
    name + ".json"
}

/// Names the content of a file: its fingerprint, `None` when there is none.
pub fn content_name(state: &FileState) -> Option<String> {
    (state.origin != Origin::Missing).then(|| fingerprint(&state.bytes))
}

/// Texts from before writes.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    dir: StateDir,
}

impl Checkpoints {
    /// Keeps texts in `checkpoints` of the state directory.
    pub fn new(state: &Path) -> Self {
        Self {
            dir: StateDir::new(state.join("checkpoints")),
        }
    }

    /// Keeps a text, flushed; returns its name.
    ///
    /// # Errors
    /// The text is then not kept.
    pub fn keep(&self, bytes: &[u8]) -> io::Result<String> {
        self.dir.keep(bytes, Flush::Data)
    }

    /// Returns a kept text.
    pub fn kept(&self, name: &str) -> Option<Vec<u8>> {
        self.dir.kept(name)
    }

    /// Notes a change of a session and keeps its new text; the old one is kept already.
    ///
    /// # Errors
    /// The change is then not noted; it can still be undone while the program runs.
    pub fn note(&self, session: &str, change: &KeptChange, after: &[u8]) -> io::Result<()> {
        self.dir.keep(after, Flush::Never)?;
        let mut line = serde_json::to_vec(change).map_err(io::Error::other)?;
        line.push(b'\n');
        self.dir.append(&log_name(session), &line)
    }

    /// Returns the noted changes of a session, oldest first. A torn last line is left out.
    pub fn changes(&self, session: &str) -> Vec<KeptChange> {
        let text = self.dir.read(&log_name(session)).ok().flatten();
        text.unwrap_or_default()
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }
}

/// A change that was written: enough to put it back later, also after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptChange {
    /// Tool call.
    pub call_id: String,
    /// Path as the model gave it.
    pub path_given: String,
    /// Real path.
    pub path: PathBuf,
    /// Name of the text before; `None` when there was no file.
    pub before: Option<String>,
    /// Name of the text after.
    pub after: String,
}

fn log_name(session: &str) -> String {
    format!("changes/{}.jsonl", fingerprint(session.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(path: &Path) -> CommitRecord {
        CommitRecord {
            session: "s".to_owned(),
            call_id: "c".to_owned(),
            path_given: "f".to_owned(),
            path: path.to_owned(),
            before: Some(fingerprint(b"old")),
            after: fingerprint(b"new"),
            done: None,
            decisions: Value::Null,
            result: KeptResult::of(&ToolOutput::text("done")),
        }
    }

    #[track_caller]
    fn check(on_disk: Option<&str>, done: bool, expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        if let Some(text) = on_disk {
            std::fs::write(&path, text).unwrap();
        }
        let records = Records::new(dir.path());
        let mut record = record(&path);
        records.write(&record).unwrap();
        for on_disk in [&b"formatted"[..], b"new"].into_iter().filter(|_| done) {
            record.done = Some(fingerprint(on_disk));
            records.mark_done(&record).unwrap();
            assert_eq!(records.read("s", "c").unwrap(), record);
        }
        let output = records.look_up("s", "c").unwrap();
        let text = KeptResult::of(&output).text;
        assert!(text.contains(expected), "{text}");
        assert_eq!(output.is_error, expected != "done");
        records.drop_record("s", "c").unwrap();
        records.drop_record("s", "c").unwrap();
        assert_eq!(records.look_up("s", "c"), None);
    }

    #[test]
    fn an_unanswered_call_gets_what_is_true() {
        check(Some("new"), false, "done");
        check(Some("formatted"), true, "done");
        check(Some("changed later"), true, "done");
        check(Some("old"), false, "nothing was written");
        check(Some("something else"), false, "Read f again");
        check(None, false, "Read f again");
    }

    #[test]
    fn changes_are_noted_by_session_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(dir.path());
        let change = |call_id: &str| KeptChange {
            call_id: call_id.to_owned(),
            path_given: "f".to_owned(),
            path: "/f".into(),
            before: None,
            after: fingerprint(b""),
        };
        checkpoints.note("s", &change("1"), b"").unwrap();
        checkpoints.note("s", &change("2"), b"").unwrap();
        assert_eq!(checkpoints.changes("s"), [change("1"), change("2")]);
        assert!(checkpoints.changes("t").is_empty());
    }

    #[test]
    fn a_torn_mark_is_no_mark_and_a_dropped_record_does_not_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path());
        let mut record = record(&dir.path().join("f"));
        records.write(&record).unwrap();
        record.done = Some(record.after.clone());
        records.mark_done(&record).unwrap();
        let file = records.dir.root().join(name("s", "c"));
        let text = std::fs::read(&file).unwrap();
        std::fs::write(&file, &text[..text.len() - 3]).unwrap();
        assert_eq!(records.read("s", "c").unwrap().done, None);
        records.drop_record("s", "c").unwrap();
        records.mark_done(&record).unwrap();
        assert!(!file.exists());
    }

    #[test]
    fn a_torn_or_foreign_record_is_no_record() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path());
        records.write(&record(&dir.path().join("f"))).unwrap();
        assert_eq!(records.look_up("s", "other"), None);
        let file = records.dir.root().join(name("s", "c"));
        std::fs::write(file, "{\"session\":").unwrap();
        assert_eq!(records.look_up("s", "c"), None);
    }
}
