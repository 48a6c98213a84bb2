//! Recorded cases of `edit`, and the deliberate differences among them.

use pi_nvim::review::hunks::{Replacement, apply, lines};
use serde_json::Value;

use super::harness::{self, Case, Ran, Setup};
use super::{compare, null_is_refused};
use crate::conformance::Outcome;

#[test]
fn edit() {
    harness::suite("edit.json", |case, ran, setup| {
        invalid_bytes_are_kept(case, ran, setup)
            .or_else(|| another_shortest_difference(case, ran, setup))
            .or_else(|| null_is_refused(case, ran, setup))
    });
}

/// The recorded program writes U+FFFD for bytes that are no UTF-8; here they stay.
fn invalid_bytes_are_kept(case: &Case, ran: &[Ran], setup: &Setup) -> Option<Outcome> {
    let kept: &[u8] = match case.name() {
        "invalid UTF-8 bytes are replaced on write" => b"\x61\xFF\xFE\x0A\x42\x0A",
        "latin-1 file is lossy" => b"\x63\x61\x66\xE9\x0A\x79\x0A",
        _ => return None,
    };
    if let Err(why) = compare::result(case, &ran[0], &case.0["result"], setup) {
        return Some(Outcome::Fail(why));
    }
    let on_disk = std::fs::read(setup.cwd.join("a.txt")).unwrap();
    Some(if on_disk == kept {
        Outcome::Differs
    } else {
        Outcome::Fail(format!("{on_disk:?} on disk"))
    })
}

/// Where several differences are shortest ours may be another one: as many lines added and removed, and the patch gives
/// the recorded text.
fn another_shortest_difference(case: &Case, ran: &[Ran], setup: &Setup) -> Option<Outcome> {
    let recorded = &case.0["result"];
    let is_same = compare::result(case, &ran[0], recorded, setup).is_ok();
    if is_same || !is_tie(case.name()) {
        return None;
    }
    if let Err(why) = setup.check_files(case) {
        return Some(Outcome::Fail(why));
    }
    let ours = &ran[0].result["details"];
    let theirs = &recorded["details"];
    for field in ["diff", "patch"] {
        let (ours, theirs) = (signs(&ours[field]), signs(&theirs[field]));
        if ours != theirs {
            return Some(Outcome::Fail(format!(
                "{field}: {ours:?}, recorded {theirs:?}"
            )));
        }
    }
    let before = setup.bytes_before("a.txt");
    let after = std::fs::read(setup.cwd.join("a.txt")).unwrap();
    let patched = patched(&before, ours["patch"].as_str().unwrap());
    if patched != after {
        return Some(Outcome::Fail(format!(
            "the patch gives {}",
            String::from_utf8_lossy(&patched)
        )));
    }
    let first = first_changed(&before, &after);
    Some(if ours["firstChangedLine"] == first {
        Outcome::Differs
    } else {
        Outcome::Fail(format!(
            "firstChangedLine {}, not {first}",
            ours["firstChangedLine"]
        ))
    })
}

fn is_tie(name: &str) -> bool {
    let seeded = |prefix: &str, numbers: &[u32]| {
        name.strip_prefix(prefix)
            .and_then(|number| number.parse().ok())
            .is_some_and(|number| numbers.contains(&number))
    };
    const NAMES: [&str; 5] = [
        "swap two lines in one call",
        "repeated lines: insert a duplicate block",
        "repeated blank lines removed",
        "reordered lines",
        "all lines equal, add one",
    ];
    NAMES.contains(&name)
        || seeded(
            "seeded alignment ",
            &[1, 2, 3, 4, 7, 9, 10, 11, 17, 19, 20, 21, 23, 25, 28, 29],
        )
        || seeded("seeded multi edit ", &[5, 6, 10])
}

/// How many lines are added and removed.
fn signs(text: &Value) -> (usize, usize) {
    let rows = text.as_str().unwrap().lines();
    let rows = rows.filter(|row| !row.starts_with("---") && !row.starts_with("+++"));
    let count = |sign| rows.clone().filter(|row| row.starts_with(sign)).count();
    (count('+'), count('-'))
}

/// The first line that differs from the line with the same number: never after the first changed line of a difference.
fn first_changed(before: &[u8], after: &[u8]) -> usize {
    let (before, after) = (lines(before), lines(after));
    before
        .iter()
        .zip(&after)
        .take_while(|(a, b)| a == b)
        .count()
        + 1
}

fn patched(old: &[u8], patch: &str) -> Vec<u8> {
    let old_lines = lines(old);
    let mut replaced: Vec<(std::ops::Range<usize>, Vec<Vec<u8>>)> = Vec::new();
    for row in patch.lines().skip(2) {
        if let Some(header) = row.strip_prefix("@@ -") {
            let (start, rest) = header.split_once(',').unwrap();
            let (len, _) = rest.split_once(' ').unwrap();
            let (start, len): (usize, usize) = (start.parse().unwrap(), len.parse().unwrap());
            let start = start - usize::from(len > 0);
            replaced.push((start..start + len, Vec::new()));
        } else if let Some(text) = row.strip_prefix([' ', '+']) {
            let line = format!("{text}\n").into_bytes();
            replaced.last_mut().unwrap().1.push(line);
        } else if row.starts_with('\\') {
            // Counts for the new side unless the last row was a removed line.
            let lines = &mut replaced.last_mut().unwrap().1;
            if let Some(last) = lines.last_mut() {
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
