//! Edits of any file against what must hold for all of them.
//!
//! The laws are written naively, from the text of the specification and not from the code: what is not touched keeps its
//! bytes, what is replaced is what was asked for, and the patch that people and models read is what is written.

use std::ops::Range;

use super::Input;
use crate::review::hunks::{Replacement, apply, lines};
use crate::tools::edit::source::with_line_feeds;
use crate::tools::edit::{Edit, plan};
use crate::workspace::{FileState, Origin};

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Edits of any file.
pub fn edit(data: &[u8]) {
    let (base, edits) = taken_apart(data);
    let state = FileState {
        bytes: base.into(),
        origin: Origin::Disk,
    };
    let Ok(planned) = plan("f", &edits, &state) else {
        return;
    };
    let target = &*planned.target;
    assert_ne!(target, base);
    assert_eq!(planned.edit_lines.len(), edits.len());
    let had_mark = base.starts_with(BOM);
    assert!(!had_mark || target.starts_with(BOM));
    if !had_mark && target.starts_with(BOM) {
        // The first character written is one: from here on it is the file's mark.
        return;
    }
    let (Ok(old), Ok(_)) = (std::str::from_utf8(base), std::str::from_utf8(target)) else {
        assert!(
            std::str::from_utf8(base).is_err(),
            "what was UTF-8 is not any more"
        );
        return;
    };
    if let Some(details) = &planned.details {
        let shown = details(base, target);
        check_patch(base, target, shown.as_ref());
        // As after a formatter of the editor: not what was planned.
        let other = [target, b"more\n"].concat();
        check_patch(base, &other, details(base, &other).as_ref());
    }
    check_against_plain_replacement(old, target, &edits);
}

/// The edits of an input and the file they are for. An old text is given, or a part of the file, so that matches are
/// common.
fn taken_apart(data: &[u8]) -> (&[u8], Vec<Edit>) {
    let mut input = Input(data);
    let n_edits = usize::from(input.byte() % 3) + 1;
    let mut given = Vec::new();
    for _ in 0..n_edits {
        let is_part = input.byte() % 2 == 0;
        let (at, old, new) = (input.byte(), input.byte() % 24, input.byte() % 24);
        let old_text = match is_part {
            true => String::new(),
            false => input.text(usize::from(old)),
        };
        let new_text = input.text(usize::from(new));
        given.push((
            is_part,
            usize::from(at),
            usize::from(old),
            old_text,
            new_text,
        ));
    }
    let base = input.0;
    let text: Vec<char> = String::from_utf8_lossy(base).chars().collect();
    let edits = given
        .into_iter()
        .map(|(is_part, at, len, old_text, new_text)| Edit {
            old_text: match is_part {
                true => text.iter().skip(at).take(len).collect(),
                false => old_text,
            },
            new_text,
        });
    (base, edits.collect())
}

fn plain(bytes: &[u8]) -> String {
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    with_line_feeds(&String::from_utf8_lossy(bytes))
}

/// The patch turns the old text into the new one; both with `\n` line breaks and without their mark.
fn check_patch(old: &[u8], new: &[u8], shown: Option<&serde_json::Value>) {
    let (old, new) = (plain(old), plain(new));
    let Some(shown) = shown else {
        assert_eq!(old, new, "a change is not shown");
        return;
    };
    let patch = shown.get("patch").and_then(|patch| patch.as_str());
    let result = patched(old.as_bytes(), patch.unwrap_or_default());
    assert_eq!(String::from_utf8_lossy(&result), new);
}

/// When every old text stands in the file as given, the result is the plain replacement, and what lies before the first
/// and after the last keeps its bytes.
fn check_against_plain_replacement(old: &str, target: &[u8], edits: &[Edit]) {
    let raw = old.strip_prefix('\u{feff}').unwrap_or(old);
    let text = with_line_feeds(raw);
    let mut spans: Vec<(Range<usize>, String)> = Vec::new();
    for edit in edits {
        let wanted = with_line_feeds(&edit.old_text);
        let Some(at) = text.find(&wanted) else {
            return;
        };
        spans.push((at..at + wanted.len(), with_line_feeds(&edit.new_text)));
    }
    spans.sort_by_key(|(span, _)| span.start);
    let (Some((first, _)), Some((last, _))) = (spans.first(), spans.last()) else {
        return;
    };
    let (first, last) = (first.start, last.end);
    let (mut wanted, mut from) = (String::new(), 0);
    for (span, new) in spans {
        wanted.push_str(text.get(from..span.start).unwrap_or_default());
        wanted.push_str(&new);
        from = span.end;
    }
    wanted.push_str(text.get(from..).unwrap_or_default());
    assert_eq!(plain(target), wanted);
    let target = target.strip_prefix(BOM).unwrap_or(target);
    let before = raw.get(..in_raw(raw, first)).unwrap_or_default();
    let after = raw.get(in_raw(raw, last)..).unwrap_or_default();
    assert!(target.starts_with(before.as_bytes()));
    assert!(target.ends_with(after.as_bytes()));
}

/// Where an offset of the text with `\n` line breaks is in the text as it is.
fn in_raw(raw: &str, offset: usize) -> usize {
    let (mut at, mut plain) = (0, 0);
    while plain < offset {
        let rest = raw.get(at..).unwrap_or_default();
        at += match rest.starts_with("\r\n") {
            true => 2,
            false => 1,
        };
        plain += 1;
    }
    at
}

/// Applies a unified diff of texts with `\n` line breaks.
pub(in crate::tools) fn patched(old: &[u8], patch: &str) -> Vec<u8> {
    let old_lines = lines(old);
    let mut replaced: Vec<(Range<usize>, Vec<Vec<u8>>)> = Vec::new();
    let mut is_kept = false;
    for row in patch.split_terminator('\n').skip(2) {
        if let Some(header) = row.strip_prefix("@@ -") {
            replaced.push((old_range(header).unwrap_or_default(), Vec::new()));
        } else if let Some(text) = row.strip_prefix([' ', '+']) {
            let line = format!("{text}\n").into_bytes();
            if let Some((_, new)) = replaced.last_mut() {
                new.push(line);
            }
            is_kept = true;
        } else if row.starts_with('-') {
            is_kept = false;
        } else if let (true, Some((_, new))) = (is_kept, replaced.last_mut()) {
            // `\ No newline at end of file` speaks of the row before.
            if let Some(last) = new.last_mut() {
                last.pop();
            }
        }
    }
    let replacements: Vec<_> = replaced
        .iter()
        .map(|(old, new)| Replacement {
            old: old.clone(),
            new,
        })
        .collect();
    apply(&old_lines, &replacements)
}

/// The lines that a hunk's header `-start,count` means.
fn old_range(header: &str) -> Option<Range<usize>> {
    let (start, rest) = header.split_once(',')?;
    let (count, _) = rest.split_once(' ')?;
    let (start, count): (usize, usize) = (start.parse().ok()?, count.parse().ok()?);
    let start = if count == 0 {
        start
    } else {
        start.checked_sub(1)?
    };
    Some(start..start + count)
}
