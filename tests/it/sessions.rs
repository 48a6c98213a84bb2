//! Tests of the area `sessions`.

#[path = "sessions/browser.rs"]
mod browser;
#[path = "sessions/cuts.rs"]
mod cuts;
#[path = "sessions/durability.rs"]
mod durability;
#[path = "sessions/export.rs"]
mod export;
#[path = "sessions/kills.rs"]
mod kills;
#[path = "sessions/listing.rs"]
mod listing;
#[path = "sessions/load_errors.rs"]
mod load_errors;
#[path = "sessions/ops.rs"]
mod ops;
#[path = "sessions/peer.rs"]
mod peer;
#[path = "sessions/projections.rs"]
mod projections;
#[path = "sessions/texts.rs"]
mod texts;
#[path = "sessions/trouble.rs"]
mod trouble;

use std::path::{Path, PathBuf};

use pi_nvim::session::store::{Session, Start};
use serde_json::{Map, Value};
use sha2::Digest as _;

use crate::conformance::data_dir;

/// A folder with copies of recorded session files, `{cwd}` filled in.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("cwd")).unwrap();
        Self { dir }
    }

    fn cwd(&self) -> PathBuf {
        self.dir.path().join("cwd")
    }

    fn copy(&self, recorded: &str) -> PathBuf {
        let bytes = std::fs::read(data_dir().join("sessions").join(recorded)).unwrap();
        let to = self
            .dir
            .path()
            .join(Path::new(recorded).file_name().unwrap());
        std::fs::write(
            &to,
            replace(&bytes, b"{cwd}", self.cwd().to_str().unwrap().as_bytes()),
        )
        .unwrap();
        to
    }

    fn open(&self, recorded: &str) -> Session {
        Session::open(&self.copy(recorded), &self.cwd(), Start::default()).unwrap()
    }

    /// Maps the real folder back to `{cwd}`.
    fn masked(&self, value: &Value) -> Value {
        let text = serde_json::to_string(value).unwrap();
        serde_json::from_str(&text.replace(self.cwd().to_str().unwrap(), "{cwd}")).unwrap()
    }
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(from) {
            out.extend_from_slice(to);
            at += from.len();
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    out
}

/// All cases of a folder by file name.
fn cases(folder: &str) -> Vec<(String, Value)> {
    let dir = data_dir().join("sessions").join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .collect();
    files.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        (
            path.file_stem().unwrap().to_str().unwrap().to_owned(),
            value,
        )
    };
    files.into_iter().map(read).collect()
}

/// Replaces long strings by their hash, as recordings do, and numbers by their JavaScript text.
fn comparable(value: &Value) -> Value {
    match value {
        Value::String(text) if text.encode_utf16().count() > 2600 => {
            let hash: String = sha2::Sha256::digest(text.as_bytes())
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect();
            serde_json::json!({"$sha256": hash, "$utf16": text.encode_utf16().count()})
        }
        Value::Number(number) => Value::String(format!(
            "#{}",
            pi_nvim::entry::json::number_text(number.as_f64().unwrap())
        )),
        Value::Array(items) => items.iter().map(comparable).collect(),
        Value::Object(fields) => {
            let fields: Map<String, Value> = fields
                .iter()
                .map(|(key, value)| (key.clone(), comparable(value)))
                .collect();
            // A recorded hash holds a number already.
            if fields.contains_key("$sha256") {
                value.clone()
            } else {
                Value::Object(fields)
            }
        }
        other => other.clone(),
    }
}

/// Lists where two values differ, one line each.
fn differences(path: &str, expected: &Value, actual: &Value, out: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(left), Value::Object(right)) => {
            for (key, value) in left {
                match right.get(key) {
                    Some(other) => differences(&format!("{path}.{key}"), value, other, out),
                    None => out.push(format!("{path}.{key}: missing, expected {value}")),
                }
            }
            for (key, value) in right.iter().filter(|(key, _)| !left.contains_key(*key)) {
                out.push(format!("{path}.{key}: unexpected {value}"));
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (at, (value, other)) in left.iter().zip(right).enumerate() {
                differences(&format!("{path}[{at}]"), value, other, out);
            }
        }
        _ if expected != actual => out.push(format!("{path}: expected {expected}, got {actual}")),
        _ => {}
    }
}

/// Compares as the rules of the recordings say; the text lists what differs.
fn compare(expected: &Value, actual: &Value) -> Result<(), String> {
    let mut out = Vec::new();
    differences("", &comparable(expected), &comparable(actual), &mut out);
    if out.is_empty() {
        Ok(())
    } else {
        Err(out.join("\n"))
    }
}

/// Replaces the intro line before `<summary>` by its class, so that our words compare with the recorded ones.
fn without_intros(value: &Value) -> Value {
    let text = serde_json::to_string(value).unwrap();
    let own = [
        (
            pi_nvim::session::projection::llm::COMPACTION_INTRO,
            "{compaction}",
        ),
        (pi_nvim::session::projection::llm::BRANCH_INTRO, "{branch}"),
    ];
    let recorded = [
        (
            "The conversation history before this point was compacted into the following summary:",
            "{compaction}",
        ),
        (
            "The following is a summary of a branch that this conversation came back from:",
            "{branch}",
        ),
    ];
    let mut text = text;
    for (from, to) in own.into_iter().chain(recorded) {
        text = text.replace(
            &format!("{from}\\n\\n<summary>"),
            &format!("{to}\\n\\n<summary>"),
        );
    }
    serde_json::from_str(&text).unwrap()
}
