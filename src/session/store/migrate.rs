//! Files of versions 1 and 2 brought to version 3. They come from a time of small files, so this works in memory.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::header::Header;
use super::stamps::Stamps;
use crate::entry::json;

/// Migrates the text of a file; returns the header and all lines behind it.
pub(super) fn migrate(
    header: &Header,
    bytes: &[u8],
    stamps: &mut dyn Stamps,
) -> (Header, Vec<String>) {
    let mut objects = objects(bytes);
    let mut header = header.clone();
    if header.version() < 2 {
        add_ids(&mut objects, stamps);
    }
    for object in &mut objects {
        rename_hook_role(object);
    }
    header.set_version(Header::VERSION);
    let lines = objects.into_iter().map(Value::Object);
    (header, lines.map(|line| json::stringify(&line)).collect())
}

/// All objects behind the header, as they stand.
fn objects(bytes: &[u8]) -> Vec<Map<String, Value>> {
    let lines = bytes.split(|byte| *byte == b'\n');
    let objects = lines.filter_map(|line| match json::parse(&String::from_utf8_lossy(line)) {
        Some(Value::Object(object)) => Some(object),
        _ => None,
    });
    let objects = objects.skip_while(|object| !is_header(object)).skip(1);
    objects.collect()
}

fn is_header(object: &Map<String, Value>) -> bool {
    object.get("type").and_then(Value::as_str) == Some("session")
}

/// Version 1 had neither ids nor parents: the order of lines is the chain.
fn add_ids(objects: &mut [Map<String, Value>], stamps: &mut dyn Stamps) {
    let mut used = HashSet::new();
    let mut ids: Vec<String> = Vec::with_capacity(objects.len());
    for object in objects.iter_mut().filter(|object| !is_header(object)) {
        let id = fresh_id(stamps, |id| used.contains(id));
        let parent = ids.last().map_or(Value::Null, |id| id.as_str().into());
        object.insert("id".into(), id.as_str().into());
        object.insert("parentId".into(), parent);
        used.insert(id.clone());
        ids.push(id);
    }
    for object in objects.iter_mut() {
        if object.get("type").and_then(Value::as_str) != Some("compaction") {
            continue;
        }
        let Some(index) = object.shift_remove("firstKeptEntryIndex") else {
            continue;
        };
        // Index 0 is the header.
        let kept = index.as_u64().and_then(|index| index.checked_sub(1));
        let kept = kept.and_then(|index| ids.get(usize::try_from(index).ok()?));
        if let Some(id) = kept {
            object.insert("firstKeptEntryId".into(), id.as_str().into());
        }
    }
}

fn rename_hook_role(object: &mut Map<String, Value>) {
    let is_message = object.get("type").and_then(Value::as_str) == Some("message");
    let role = object
        .get_mut("message")
        .filter(|_| is_message)
        .and_then(|message| message.get_mut("role"));
    if let Some(role) = role.filter(|role| *role == "hookMessage") {
        *role = "custom".into();
    }
}

/// Draws an entry id that is not taken.
pub(super) fn fresh_id(stamps: &mut dyn Stamps, taken: impl Fn(&str) -> bool) -> String {
    for _ in 0..100 {
        let id = stamps.entry_id();
        if !taken(&id) {
            return id;
        }
    }
    stamps.long_entry_id()
}
