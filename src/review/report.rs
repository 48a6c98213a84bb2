//! What the model is told about a settled change.
//!
//! Entry point: [`Settlement::output`]. A change that was accepted as proposed reads exactly like one nobody reviewed; a
//! partly accepted one never reads as a plain success or a plain failure, because the model would then build on text that
//! is not there. `details` describe what was really written; `details.review` carries the decisions.

use std::fmt::Write as _;
use std::ops::Range;

use serde_json::{Map, Value, json};
use similar::TextDiff;

use super::hunks::lines;
use super::{DetailsFn, Hunk, HunkState, ReviewMode};
use crate::agent::ToolOutput;

/// Lines of a rejected hunk that are shown.
const MAX_MINI_DIFF: usize = 20;
/// Lines of the file shown around applied hunks, in all.
const MAX_CONTEXT: usize = 80;
/// Lines kept above and below an applied hunk.
const CONTEXT: usize = 3;
/// Lines of the difference a person made.
const MAX_USER_DIFF: usize = 200;
/// Lines of the difference that hooks made.
const MAX_HOOK_DIFF: usize = 60;

/// A hunk of a settled proposal, with its place in the text that was written.
pub struct Settled {
    /// The hunk; `row` counts in the text before the write.
    pub hunk: Hunk,
    /// Its lines in the text after the write.
    pub after: Range<usize>,
}

/// A settled proposal.
pub struct Settlement<'a> {
    /// Path as the model gave it.
    pub path: &'a str,
    /// Mode it was decided by.
    pub mode: ReviewMode,
    /// Whether a person reviews at all; without one there is no `details.review`.
    pub reviewed: bool,
    /// Hunks in order.
    pub hunks: &'a [Settled],
    /// Success text of the tool.
    pub success: &'a str,
    /// Makes the tool's own details.
    pub details: Option<&'a DetailsFn>,
    /// The text before the write.
    pub before: &'a [u8],
    /// The text that was to be written.
    pub after: &'a [u8],
    /// What stands on disk now.
    pub on_disk: &'a [u8],
    /// What the tool proposed.
    pub proposed: &'a [u8],
    /// Whether a person changed the proposed text.
    pub user_edited: bool,
    /// Whether a plain rejection ends the run.
    pub stop_on_reject: bool,
}

impl Settlement<'_> {
    /// Returns the result of the call.
    pub fn output(&self) -> ToolOutput {
        let accepted = self.count(HunkState::Accepted);
        if accepted == 0 && (self.user_edited || !self.hunks.is_empty()) {
            return self.nothing_applied();
        }
        // Edited and then edited back is as proposed.
        let mut text = if self.user_edited && self.after != self.proposed {
            self.user_edits()
        } else if accepted < self.hunks.len() {
            self.partly(accepted)
        } else {
            self.success.to_owned()
        };
        self.add_notes(&mut text);
        self.add_hook_changes(&mut text);
        ToolOutput {
            details: self.details(),
            ..ToolOutput::text(text)
        }
    }

    fn count(&self, state: HunkState) -> usize {
        self.hunks
            .iter()
            .filter(|it| it.hunk.state == state)
            .count()
    }

    fn nothing_applied(&self) -> ToolOutput {
        let path = self.path;
        let all_stale = !self.hunks.is_empty()
            && self
                .hunks
                .iter()
                .all(|it| it.hunk.state == HunkState::Stale);
        let reasons: Vec<Option<&str>> = self
            .hunks
            .iter()
            .filter(|it| it.hunk.state != HunkState::Stale)
            .map(|it| it.hunk.note.as_deref())
            .collect();
        let silent = reasons.iter().all(Option::is_none);
        let same = reasons.windows(2).all(|pair| pair.first() == pair.last());
        let start = format!("The user rejected this change to {path}; the file is unchanged.");
        let text = if all_stale {
            stale_text(path)
        } else if silent {
            format!("{start} Do not retry the same change; ask or propose something different.")
        } else if same && reasons.len() == self.hunks.len() {
            let reason = reasons.first().copied().flatten().unwrap_or_default();
            format!("{start} Reason: {reason}")
        } else {
            let mut text = format!("{start} Reasons:\n");
            for it in self.hunks {
                let _ = writeln!(
                    text,
                    "- {}: {}",
                    old_lines(&it.hunk),
                    reason(&it.hunk).unwrap_or("no reason given")
                );
            }
            text.trim_end().to_owned()
        };
        ToolOutput {
            is_error: true,
            details: self.details(),
            terminate: self.stop_on_reject && silent && !all_stale,
            ..ToolOutput::text(text)
        }
    }

    fn partly(&self, accepted: usize) -> String {
        let path = self.path;
        let n_hunks = self.hunks.len();
        let mut text = format!(
            "Applied {accepted} of {n_hunks} hunks to {path}. Rejected hunks were NOT applied:\n"
        );
        self.list_rejected(&mut text);
        self.show_applied(&mut text);
        text.trim_end().to_owned()
    }

    fn list_rejected(&self, text: &mut String) {
        for it in self.hunks.iter().filter(|it| !is_applied(&it.hunk)) {
            let _ = write!(text, "\n{}", capital(&old_lines(&it.hunk)));
            match reason(&it.hunk) {
                Some(reason) => {
                    let _ = writeln!(text, " - reason: {reason}");
                }
                None => text.push('\n'),
            }
            mini_diff(&it.hunk, text);
        }
    }

    /// Shows the file around what was applied, as it is now.
    fn show_applied(&self, text: &mut String) {
        let now = lines(self.on_disk);
        let mut shown: Vec<Range<usize>> = Vec::new();
        for it in self.hunks.iter().filter(|it| is_applied(&it.hunk)) {
            let start = it.after.start.saturating_sub(CONTEXT);
            let end = (it.after.end + CONTEXT).min(now.len());
            match shown.last_mut() {
                Some(last) if start <= last.end => last.end = end.max(last.end),
                _ => shown.push(start..end),
            }
        }
        let total: usize = shown.iter().map(ExactSizeIterator::len).sum();
        if total > MAX_CONTEXT || self.on_disk != self.after {
            let _ = write!(text, "\nRead the file again to see it as it is now.");
            return;
        }
        for range in shown.iter().filter(|range| !range.is_empty()) {
            let _ = writeln!(text, "\nLines {}-{} now read:", range.start + 1, range.end);
            for line in now.get(range.clone()).unwrap_or_default() {
                let _ = writeln!(text, "{}", shown_line(line));
            }
        }
    }

    fn user_edits(&self) -> String {
        let mut text = "Applied with changes made by the user.".to_owned();
        let proposed = String::from_utf8_lossy(self.proposed);
        let applied = String::from_utf8_lossy(self.after);
        match limited_diff(&proposed, &applied, ("proposed", "applied"), MAX_USER_DIFF) {
            Some(diff) if diff.is_empty() => {}
            Some(diff) => {
                let _ = write!(text, "\n\n{diff}");
            }
            None => text.push_str(" The difference is long: read the file again."),
        }
        if self.hunks.iter().any(|it| !is_applied(&it.hunk)) {
            text.push_str("\n\nRejected hunks were NOT applied:\n");
            self.list_rejected(&mut text);
        }
        text.trim_end().to_owned()
    }

    fn add_notes(&self, text: &mut String) {
        let mut heading = "\n\nReviewer notes:";
        for it in self.hunks.iter().filter(|it| is_applied(&it.hunk)) {
            if let Some(note) = &it.hunk.note {
                let _ = write!(text, "{heading}\n- {}: {note}", range_text(&it.after));
                heading = "";
            }
        }
    }

    fn add_hook_changes(&self, text: &mut String) {
        if self.on_disk == self.after {
            return;
        }
        text.push_str("\n\nOn-save hooks changed the file after the write:\n");
        let written = String::from_utf8_lossy(self.after);
        let now = String::from_utf8_lossy(self.on_disk);
        match limited_diff(&written, &now, ("written", "on disk"), MAX_HOOK_DIFF) {
            Some(diff) => text.push_str(diff.trim_end()),
            None => text.push_str("(the difference is long: read the file again)"),
        }
    }

    fn details(&self) -> Option<Value> {
        let wrote = self.count(HunkState::Accepted) > 0 || self.hunks.is_empty();
        let own = self
            .details
            .filter(|_| wrote)
            .and_then(|make| make(self.before, self.on_disk));
        if !self.reviewed {
            return own;
        }
        let mut map = match own {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        map.insert("review".to_owned(), self.review());
        Some(Value::Object(map))
    }

    /// Returns `details.review`.
    pub fn review(&self) -> Value {
        let hunks: Vec<Value> = self
            .hunks
            .iter()
            .map(|it| {
                let mut row = json!({
                    "index": it.hunk.index,
                    "state": it.hunk.state,
                    "edited": it.hunk.edited,
                });
                if let (Some(note), Some(map)) = (&it.hunk.note, row.as_object_mut()) {
                    map.insert("note".to_owned(), json!(note));
                }
                row
            })
            .collect();
        json!({ "mode": self.mode, "hunks": hunks, "user_edited": self.user_edited })
    }
}

/// The text for a change that came too late.
pub fn stale_text(path: &str) -> String {
    format!(
        "{path} changed while the edit was waiting for review; nothing was written. Read it again before editing."
    )
}

/// The note a model gets when a person takes back what was applied. `lines` are those of the hunk, from 0.
pub fn reverted_note(path: &str, index: usize, lines: &Range<usize>) -> String {
    format!(
        "Note: the user reverted hunk {} of your edit to {path} ({}).",
        index + 1,
        range_text(lines)
    )
}

fn is_applied(hunk: &Hunk) -> bool {
    hunk.state == HunkState::Accepted
}

fn reason(hunk: &Hunk) -> Option<&str> {
    match hunk.state {
        HunkState::Stale => Some("the file changed while the edit was waiting for review"),
        _ => hunk.note.as_deref(),
    }
}

/// `lines 3-5` or `line 3`; `after line 3` for an empty range.
fn range_text(lines: &Range<usize>) -> String {
    match lines.len() {
        0 if lines.start == 0 => "at the top".to_owned(),
        0 => format!("after line {}", lines.start),
        1 => format!("line {}", lines.start + 1),
        _ => format!("lines {}-{}", lines.start + 1, lines.end),
    }
}

fn old_lines(hunk: &Hunk) -> String {
    range_text(&(hunk.row..hunk.row + hunk.old.len()))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

fn mini_diff(hunk: &Hunk, text: &mut String) {
    let signed = hunk
        .old
        .iter()
        .map(|line| ('-', line))
        .chain(hunk.new.iter().map(|line| ('+', line)));
    for (sign, line) in signed.clone().take(MAX_MINI_DIFF) {
        let _ = writeln!(text, "{sign}{}", shown_line(line));
    }
    let left = signed.skip(MAX_MINI_DIFF).count();
    if left > 0 {
        let _ = writeln!(text, "... {left} more lines");
    }
}

/// A line without its ending; what is no UTF-8 is replaced, what is very long is cut.
fn shown_line(line: &[u8]) -> String {
    const MAX: usize = 500;
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = String::from_utf8_lossy(line);
    match text.char_indices().nth(MAX) {
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
        None => text.into_owned(),
    }
}

/// A unified difference, `None` when it has more lines than allowed.
fn limited_diff(old: &str, new: &str, names: (&str, &str), max_lines: usize) -> Option<String> {
    let diff = TextDiff::from_lines(old, new);
    let text = diff
        .unified_diff()
        .context_radius(CONTEXT)
        .header(names.0, names.1)
        .to_string();
    (text.lines().count() <= max_lines).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::HunkId;
    use expect_test::{Expect, expect};
    use std::sync::Arc;

    struct Case {
        hunks: Vec<Settled>,
        before: &'static str,
        after: String,
        on_disk: Option<&'static str>,
        proposed: &'static str,
        user_edited: bool,
    }

    /// Hunks of `before` → `proposed`, decided by one letter each: a, r, s, with notes after a colon.
    fn case(before: &'static str, proposed: &'static str, decisions: &[&str]) -> Case {
        let (old, new) = (lines(before.as_bytes()), lines(proposed.as_bytes()));
        let owned = |part: &[&[u8]]| part.iter().map(|line| line.to_vec()).collect::<Vec<_>>();
        let found = crate::review::hunks::spans(&old, &new, 1);
        assert_eq!(found.len(), decisions.len());
        let mut hunks = Vec::new();
        let (mut after, mut at, mut row) = (Vec::new(), 0, 0);
        for (index, (span, decision)) in found.iter().zip(decisions).enumerate() {
            let (letter, note) = decision
                .split_once(':')
                .map_or((*decision, None), |(a, b)| (a, Some(b)));
            let state = match letter {
                "a" => HunkState::Accepted,
                "r" => HunkState::Rejected,
                _ => HunkState::Stale,
            };
            after.extend(old[at..span.old.start].concat());
            row += span.old.start - at;
            at = span.old.end;
            let part = if state == HunkState::Accepted {
                &new[span.new.clone()]
            } else {
                &old[span.old.clone()]
            };
            after.extend(part.concat());
            hunks.push(Settled {
                after: row..row + part.len(),
                hunk: Hunk {
                    id: HunkId(index as u64),
                    index,
                    base_start: span.old.start,
                    new_start: span.new.start,
                    row: span.old.start,
                    old: owned(&old[span.old.clone()]),
                    new: owned(&new[span.new.clone()]),
                    edits: Vec::new(),
                    state,
                    note: note.map(str::to_owned),
                    edited: false,
                    label: None,
                },
            });
            row += part.len();
        }
        after.extend(old[at..].concat());
        Case {
            hunks,
            before,
            after: String::from_utf8(after).unwrap(),
            on_disk: None,
            proposed,
            user_edited: false,
        }
    }

    #[track_caller]
    fn check(case: &Case, expect: &Expect) {
        let details: DetailsFn = Arc::new(|_, _| Some(json!({"diff": "d"})));
        let output = Settlement {
            path: "f.txt",
            mode: ReviewMode::Ask,
            reviewed: true,
            hunks: &case.hunks,
            success: "Successfully replaced 1 block(s) in f.txt.",
            details: Some(&details),
            before: case.before.as_bytes(),
            after: case.after.as_bytes(),
            on_disk: case.on_disk.unwrap_or(&case.after).as_bytes(),
            proposed: case.proposed.as_bytes(),
            user_edited: case.user_edited,
            stop_on_reject: true,
        }
        .output();
        let text = crate::review::records::KeptResult::of(&output);
        let text = serde_json::to_value(text).unwrap()["text"]
            .as_str()
            .unwrap()
            .to_owned();
        expect.assert_eq(&format!(
            "{text}\n== error {} stop {} {}\n",
            output.is_error,
            output.terminate,
            output.details.unwrap()
        ));
    }

    const BEFORE: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
    const PROPOSED: &str = "1\n2!\n3\n4\n5\n6\n7\n8!\n8!!\n9\n";

    #[test]
    fn accepted_as_proposed_reads_like_unreviewed() {
        check(
            &case(BEFORE, PROPOSED, &["a", "a"]),
            &expect![[r#"
            Successfully replaced 1 block(s) in f.txt.
            == error false stop false {"diff":"d","review":{"mode":"ask","hunks":[{"index":0,"state":"accepted","edited":false},{"index":1,"state":"accepted","edited":false}],"user_edited":false}}
        "#]],
        );
    }

    #[test]
    fn notes_follow_the_success_text() {
        check(
            &case(BEFORE, PROPOSED, &["a", "a:use rstest"]),
            &expect![[r#"
                Successfully replaced 1 block(s) in f.txt.

                Reviewer notes:
                - lines 8-9: use rstest
                == error false stop false {"diff":"d","review":{"mode":"ask","hunks":[{"index":0,"state":"accepted","edited":false},{"index":1,"state":"accepted","edited":false,"note":"use rstest"}],"user_edited":false}}
            "#]],
        );
    }

    #[test]
    fn a_partly_accepted_change_shows_both_parts() {
        check(
            &case(BEFORE, PROPOSED, &["r:too loud", "a"]),
            &expect![[r#"
                Applied 1 of 2 hunks to f.txt. Rejected hunks were NOT applied:

                Line 2 - reason: too loud
                -2
                +2!

                Lines 5-10 now read:
                5
                6
                7
                8!
                8!!
                9
                == error false stop false {"diff":"d","review":{"mode":"ask","hunks":[{"index":0,"state":"rejected","edited":false,"note":"too loud"},{"index":1,"state":"accepted","edited":false}],"user_edited":false}}
            "#]],
        );
        check(
            &case(BEFORE, PROPOSED, &["s", "a"]),
            &expect![[r#"
            Applied 1 of 2 hunks to f.txt. Rejected hunks were NOT applied:

            Line 2 - reason: the file changed while the edit was waiting for review
            -2
            +2!

            Lines 5-10 now read:
            5
            6
            7
            8!
            8!!
            9
            == error false stop false {"diff":"d","review":{"mode":"ask","hunks":[{"index":0,"state":"stale","edited":false},{"index":1,"state":"accepted","edited":false}],"user_edited":false}}
        "#]],
        );
    }

    #[test]
    fn rejections_say_why_or_not_to_retry() {
        check(
            &case(BEFORE, PROPOSED, &["r", "r"]),
            &expect![[r#"
            The user rejected this change to f.txt; the file is unchanged. Do not retry the same change; ask or propose something different.
            == error true stop true {"review":{"mode":"ask","hunks":[{"index":0,"state":"rejected","edited":false},{"index":1,"state":"rejected","edited":false}],"user_edited":false}}
        "#]],
        );
        check(
            &case(BEFORE, PROPOSED, &["r:no", "r:no"]),
            &expect![[r#"
                The user rejected this change to f.txt; the file is unchanged. Reason: no
                == error true stop false {"review":{"mode":"ask","hunks":[{"index":0,"state":"rejected","edited":false,"note":"no"},{"index":1,"state":"rejected","edited":false,"note":"no"}],"user_edited":false}}
            "#]],
        );
        check(
            &case(BEFORE, PROPOSED, &["r:no", "r:tabs"]),
            &expect![[r#"
                The user rejected this change to f.txt; the file is unchanged. Reasons:
                - line 2: no
                - line 8: tabs
                == error true stop false {"review":{"mode":"ask","hunks":[{"index":0,"state":"rejected","edited":false,"note":"no"},{"index":1,"state":"rejected","edited":false,"note":"tabs"}],"user_edited":false}}
            "#]],
        );
        check(
            &case(BEFORE, PROPOSED, &["s", "s"]),
            &expect![[r#"
            f.txt changed while the edit was waiting for review; nothing was written. Read it again before editing.
            == error true stop false {"review":{"mode":"ask","hunks":[{"index":0,"state":"stale","edited":false},{"index":1,"state":"stale","edited":false}],"user_edited":false}}
        "#]],
        );
    }

    #[test]
    fn a_persons_edits_and_hooks_are_shown() {
        let mut case = case(BEFORE, PROPOSED, &["a", "a"]);
        case.after = PROPOSED.replace("2!", "two");
        case.user_edited = true;
        check(
            &case,
            &expect![[r#"
            Applied with changes made by the user.

            --- proposed
            +++ applied
            @@ -1,5 +1,5 @@
             1
            -2!
            +two
             3
             4
             5
            == error false stop false {"diff":"d","review":{"mode":"ask","hunks":[{"index":0,"state":"accepted","edited":false},{"index":1,"state":"accepted","edited":false}],"user_edited":true}}
        "#]],
        );
        case.after = PROPOSED.to_owned();
        check(
            &case,
            &expect![[r#"
            Successfully replaced 1 block(s) in f.txt.
            == error false stop false {"diff":"d","review":{"mode":"ask","hunks":[{"index":0,"state":"accepted","edited":false},{"index":1,"state":"accepted","edited":false}],"user_edited":true}}
        "#]],
        );
        case.user_edited = false;
        case.on_disk = Some("1\n2!\n3\n4\n5\n6\n7\n8!\n8!!\n9\nend\n");
        check(
            &case,
            &expect![[r#"
            Successfully replaced 1 block(s) in f.txt.

            On-save hooks changed the file after the write:
            --- written
            +++ on disk
            @@ -8,3 +8,4 @@
             8!
             8!!
             9
            +end
            == error false stop false {"diff":"d","review":{"mode":"ask","hunks":[{"index":0,"state":"accepted","edited":false},{"index":1,"state":"accepted","edited":false}],"user_edited":false}}
        "#]],
        );
    }

    #[test]
    fn long_things_are_cut() {
        let long: &'static str = Box::leak("x\n".repeat(30).into_boxed_str());
        let new: &'static str = Box::leak(format!("{long}tail\n1\n2\nend!\n").into_boxed_str());
        let old: &'static str = "tail\n1\n2\nend\n";
        check(
            &case(old, new, &["r", "a"]),
            &expect![[r#"
            Applied 1 of 2 hunks to f.txt. Rejected hunks were NOT applied:

            At the top
            +x
            +x
            +x
            +x
            +x
            +x
            +x
            +x
            +x
            +x
            +x
            +x
            +x
            +x
            +x
            +x
            +x
            +x
            +x
            +x
            ... 10 more lines

            Lines 1-4 now read:
            tail
            1
            2
            end!
            == error false stop false {"diff":"d","review":{"mode":"ask","hunks":[{"index":0,"state":"rejected","edited":false},{"index":1,"state":"accepted","edited":false}],"user_edited":false}}
        "#]],
        );
    }
}
