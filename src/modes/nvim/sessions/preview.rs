//! What a stored session ended with, read from the end of its file: it may be hundreds of megabytes long.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use serde_json::Value as Json;

use crate::modes::nvim::chat_view::Chat;
use crate::modes::nvim::json::at;

/// Bytes that are read: first a little, and more only when that holds no whole message.
const PIECES: [u64; 2] = [64 << 10, 4 << 20];
/// Entries that are shown.
const ENTRIES: usize = 30;

/// Returns the last entries as the chat would draw them.
pub(super) fn tail(path: &Path) -> std::io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    for piece in PIECES {
        let entries = entries(&mut file, length.saturating_sub(piece))?;
        if !entries.is_empty() {
            return Ok(drawn(&entries));
        }
        if piece >= length {
            break;
        }
    }
    Ok(vec!["no messages to show at its end".to_owned()])
}

/// The last messages that stand whole behind an offset.
fn entries(file: &mut File, from: u64) -> std::io::Result<Vec<Json>> {
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(PIECES.iter().sum()).read_to_end(&mut bytes)?;
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    if from > 0 && !lines.is_empty() {
        // The first line may have begun before.
        lines.remove(0);
    }
    let mut entries: Vec<Json> = lines
        .into_iter()
        .rev()
        .filter_map(|line| crate::entry::json::parse(&String::from_utf8_lossy(line)))
        .filter(|entry| {
            matches!(
                at(entry, "/type").as_str(),
                Some("message" | "compaction" | "branch_summary")
            ) && at(entry, "/message/role") != "system"
        })
        .take(ENTRIES)
        .collect();
    entries.reverse();
    Ok(entries)
}

fn drawn(entries: &[Json]) -> Vec<String> {
    let mut chat = Chat::new("", "");
    chat.load(entries, 0);
    chat.lines()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn user(at: usize, text: &str) -> String {
        let entry = json!({"type": "message", "id": format!("u{at}"), "parentId": null,
            "timestamp": "2026-01-01T00:00:01.000Z",
            "message": {"role": "user", "content": text, "timestamp": 1}});
        format!("{entry}\n")
    }

    fn shown(lines: &[String]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        std::fs::write(&path, lines.concat()).unwrap();
        tail(&path).unwrap().join("\n")
    }

    #[test]
    fn the_end_of_a_long_file_is_shown() {
        let long: Vec<String> = (0..5_000)
            .map(|at| user(at, &format!("question {at}")))
            .collect();
        let text = shown(&long);
        assert!(
            text.contains("question 4999") && !text.contains("question 10\n"),
            "{text}"
        );
    }

    #[test]
    fn a_huge_last_message_is_read_all_the_same() {
        let text = shown(&[user(1, "small"), user(2, &"long line ".repeat(20_000))]);
        assert!(text.contains("long line"), "{}", text.len());
    }

    #[test]
    fn a_file_without_messages_says_so() {
        assert!(shown(&["{\"type\":\"session\"}\n".to_owned()]).contains("no messages"));
    }
}
