//! Three-way merge by the hunks' own ranges: where each hunk of a change to a base stands in the text as it is now.
//!
//! Entry points: [`Moved::between`], [`Moved::locate`]. A hunk is in conflict when the current text changed one of its
//! old lines, inserted between them, or inserted at the very point of a pure insertion; a change that only touches its
//! border merges. The same merge serves files on disk and buffers, and places hunks on the screen.

use std::ops::Range;

use super::hunks::{Span, diff_lines};

/// How a text moved away from its base.
pub struct Moved {
    spans: Vec<Span>,
    /// Lines gained (lost when negative) before each span, and after the last.
    shifts: Vec<isize>,
    current_len: usize,
    current_ends: bool,
}

impl Moved {
    /// Compares a base with the current text.
    pub fn between(base: &[&[u8]], current: &[&[u8]]) -> Self {
        let spans = diff_lines(base, current);
        let mut shift = 0;
        let mut shifts = vec![0];
        for span in &spans {
            shift += span.new.len().cast_signed() - span.old.len().cast_signed();
            shifts.push(shift);
        }
        Self {
            spans,
            shifts,
            current_len: current.len(),
            current_ends: current.last().is_none_or(|line| line.ends_with(b"\n")),
        }
    }

    /// Whether nothing moved.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the line of the current text where the old lines of a hunk stand, `None` when it is in conflict.
    pub fn locate(&self, old: &Range<usize>, new: &[Vec<u8>]) -> Option<usize> {
        let (before, after) = self.around(old);
        if before != after {
            return None;
        }
        let start = old.start.checked_add_signed(self.shift(before))?;
        let end = start + old.len();
        // Lines must not run together: nothing follows a line without its newline.
        let at_end = end >= self.current_len;
        let new_ends = new.last().is_none_or(|line| line.ends_with(b"\n"));
        let after_unended = old.is_empty() && at_end && !self.current_ends && !new.is_empty();
        ((new_ends || at_end) && !after_unended).then_some(start)
    }

    /// Returns the line nearest to where a hunk in conflict was.
    pub fn estimate(&self, old: &Range<usize>) -> usize {
        let (before, _) = self.around(old);
        let at = old.start.saturating_add_signed(self.shift(before));
        at.min(self.current_len)
    }

    /// Counts the spans that end before a range, and those that do not begin after it.
    fn around(&self, old: &Range<usize>) -> (usize, usize) {
        let is_before = |span: &Span| {
            if old.is_empty() && span.old.is_empty() {
                span.old.start < old.start
            } else {
                span.old.end <= old.start
            }
        };
        let is_after = |span: &Span| {
            if old.is_empty() && span.old.is_empty() {
                span.old.start > old.start
            } else {
                span.old.start >= old.end
            }
        };
        let before = self.spans.partition_point(is_before);
        let after = self.spans.partition_point(|span| !is_after(span));
        (before, after.max(before))
    }

    fn shift(&self, spans: usize) -> isize {
        self.shifts.get(spans).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::hunks::{self, Replacement, apply, lines};
    use proptest::prelude::*;

    fn owned(lines: &[&[u8]]) -> Vec<Vec<u8>> {
        lines.iter().map(|line| line.to_vec()).collect()
    }

    /// Merges base → target into current; gives the text and how many hunks are in conflict.
    fn merge(base: &[u8], target: &[u8], current: &[u8]) -> (Vec<u8>, usize) {
        let (base, target_lines, current) = (lines(base), lines(target), lines(current));
        let target = owned(&target_lines);
        let moved = Moved::between(&base, &current);
        let mut stale = 0;
        let mut placed = Vec::new();
        for span in hunks::spans(&base, &target_lines, 1) {
            let new = &target[span.new.clone()];
            match moved.locate(&span.old, new) {
                Some(start) => placed.push(Replacement {
                    old: start..start + span.old.len(),
                    new,
                }),
                None => stale += 1,
            }
        }
        (apply(&current, &placed), stale)
    }

    #[track_caller]
    fn check(base: &str, target: &str, current: &str, expected: &str, stale: usize) {
        let (text, conflicts) = merge(base.as_bytes(), target.as_bytes(), current.as_bytes());
        assert_eq!(
            (String::from_utf8_lossy(&text).as_ref(), conflicts),
            (expected, stale)
        );
    }

    #[test]
    fn changes_elsewhere_and_at_the_border_merge() {
        check("a\nb\nc\n", "a\nB\nc\n", "x\na\nb\nc\n", "x\na\nB\nc\n", 0);
        check("a\nb\nc\n", "a\nB\nc\n", "A\nb\nC\n", "A\nB\nC\n", 0);
        check(
            "a\nb\nc\n",
            "a\nB\nc\n",
            "a\nx\nb\ny\nc\n",
            "a\nx\nB\ny\nc\n",
            0,
        );
        check("a\nb\n", "a\nnew\nb\n", "A\nb\n", "A\nnew\nb\n", 0);
        check("a\nb\n", "a\nnew\nb\n", "a\nB\n", "a\nnew\nB\n", 0);
    }

    #[test]
    fn changed_lines_and_rival_insertions_are_conflicts() {
        check("a\nb\nc\n", "a\nB\nc\n", "a\nbb\nc\n", "a\nbb\nc\n", 1);
        check("a\nb\nc\n", "a\nB\nc\n", "a\nc\n", "a\nc\n", 1);
        check("a\nb\n", "a\nnew\nb\n", "a\nmine\nb\n", "a\nmine\nb\n", 1);
        check("a\nb\nc\n", "C\n", "a\nx\nb\nc\n", "a\nx\nb\nc\n", 1);
        check("", "new\n", "mine\n", "mine\n", 1);
    }

    #[test]
    fn lines_never_run_together() {
        // The insertion at the end would land on the unended line; the unended line would be followed by another.
        check("a\nb\n", "a\nb\nc\n", "a\nb", "a\nb", 1);
        check("a\nb\n", "a\nB", "a\nb\nc\n", "a\nb\nc\n", 1);
    }

    #[test]
    fn an_outside_function_on_top_moves_the_hunk_with_its_own() {
        let function = |n: usize, body: &str| format!("fn f{n}() {{\n    {body}\n}}\n\n");
        let file = |from: usize, changed: usize| -> String {
            (from..7)
                .map(|n| function(n, if n == changed { "new" } else { "body" }))
                .collect()
        };
        check(&file(1, 9), &file(1, 4), &file(0, 9), &file(0, 4), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::testing::cases()))]

        #[test]
        fn onto_an_unchanged_base_a_merge_changes_nothing(base in hunks::tests::text(), target in hunks::tests::text()) {
            prop_assert_eq!(merge(&base, &target, &base), (target, 0));
        }

        #[test]
        fn an_empty_change_leaves_the_current_text(base in hunks::tests::text(), current in hunks::tests::text()) {
            prop_assert_eq!(merge(&base, &base, &current), (current, 0));
        }

        #[test]
        fn old_lines_stand_where_they_are_said_to(base in hunks::tests::text(), target in hunks::tests::text(), current in hunks::tests::text()) {
            let (base, target, current) = (lines(&base), lines(&target), lines(&current));
            let moved = Moved::between(&base, &current);
            let mut at = 0;
            for span in hunks::spans(&base, &target, 1) {
                let new = owned(&target[span.new.clone()]);
                let Some(start) = moved.locate(&span.old, &new) else {
                    prop_assert!(moved.estimate(&span.old) <= current.len());
                    continue;
                };
                prop_assert_eq!(&base[span.old.clone()], &current[start..start + span.old.len()]);
                // Never two hunks on one line, never out of order.
                prop_assert!(start >= at);
                at = start + span.old.len();
            }
        }

        #[test]
        fn every_line_of_a_merge_is_a_line_of_a_side(base in hunks::tests::text(), target in hunks::tests::text(), current in hunks::tests::text()) {
            let (merged, _) = merge(&base, &target, &current);
            for line in lines(&merged) {
                prop_assert!([&base, &target, &current].into_iter().any(|side| lines(side).contains(&line)));
            }
        }

        #[test]
        fn changes_of_distant_parts_merge_to_both(top in hunks::tests::text(), new_top in hunks::tests::text(), end in hunks::tests::text(), new_end in hunks::tests::text()) {
            // Unique lines between, as in real files, keep the two parts apart.
            let file = |top: &[u8], end: &[u8]| [top, b"\n--1--\n--2--\n--3--\n", end].concat();
            let (merged, stale) = merge(&file(&top, &end), &file(&new_top, &end), &file(&top, &new_end));
            prop_assert_eq!(stale, 0);
            prop_assert_eq!(merged, file(&new_top, &new_end));
        }
    }
}
