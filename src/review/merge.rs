//! Three-way merge by the hunks' own ranges: where each hunk of a change to a base stands in the text as it is now.
//!
//! Entry points: [`Moved::between`], [`Moved::locate`]. A hunk is in conflict when the current text changed one of its
//! old lines, inserted between them, or inserted at the very point of a pure insertion; a change that only touches its
//! border merges. The same merge serves files on disk and buffers, and places hunks on the screen.

use std::ops::Range;

use super::hunks::{Replacement, Span, apply, diff_lines, lines};

/// How a text moved away from its base.
pub struct Moved {
    spans: Vec<Span>,
    /// Lines gained (lost when negative) before each span, and after the last.
    shifts: Vec<isize>,
    current_len: usize,
    current_ends: bool,
}

/// Hunks that were written, in the text that came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Which hunks, by their place in the list.
    pub hunks: Range<usize>,
    /// Their lines.
    pub lines: Range<usize>,
    /// What stood there before them.
    pub old: Vec<Vec<u8>>,
}

/// The lines of a cluster with some of its hunks taken back.
fn without(
    cluster: &Cluster,
    chosen: Range<usize>,
    base: &[&[u8]],
    hunks: &[(Range<usize>, &[Vec<u8>])],
) -> Vec<u8> {
    let replacements: Vec<_> = hunks
        .get(chosen)
        .unwrap_or_default()
        .iter()
        .map(|(lines, old)| Replacement {
            old: lines.start - cluster.lines.start..lines.end - cluster.lines.start,
            new: old,
        })
        .collect();
    let base = base.get(cluster.lines.clone()).unwrap_or_default();
    apply(base, &replacements)
}

/// Spans and hunks that meet, and the lines they take up together.
struct Cluster {
    lines: Range<usize>,
    spans: Range<usize>,
    hunks: Range<usize>,
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

    /// Tells which hunks of a text were taken back in the current one: its lines there are the old lines again, and nothing
    /// else changed around them. `hunks` are in order, each with its lines in the base of this comparison and the lines
    /// that stood there before it.
    pub fn taken_back(
        &self,
        base: &[&[u8]],
        current: &[&[u8]],
        hunks: &[(Range<usize>, &[Vec<u8>])],
    ) -> Vec<bool> {
        let mut back = vec![false; hunks.len()];
        for cluster in self.clusters(hunks) {
            let from = self.shift(cluster.spans.start);
            let to = self.shift(cluster.spans.end);
            let (Some(start), Some(end)) = (
                cluster.lines.start.checked_add_signed(from),
                cluster.lines.end.checked_add_signed(to),
            ) else {
                continue;
            };
            let now = current.get(start..end).unwrap_or_default().concat();
            let members = cluster.hunks.clone();
            let each = members.clone().map(|index| index..index + 1);
            for chosen in std::iter::once(members).chain(each) {
                if without(&cluster, chosen.clone(), base, hunks) == now {
                    for flag in back.get_mut(chosen).unwrap_or_default() {
                        *flag = true;
                    }
                    break;
                }
            }
        }
        back
    }

    /// Tells where the hunks of a text stand in what was made of it, as when saving it ran a formatter over it: each by
    /// itself where its lines are as they were, else together with the changes, and the other hunks, that it meets. A hunk
    /// that cannot be set apart from its neighbours is left out. Arguments as for [`Self::taken_back`].
    pub fn standing(&self, base: &[&[u8]], hunks: &[(Range<usize>, &[Vec<u8>])]) -> Vec<Standing> {
        let alone = |index: usize| {
            let (lines, old) = hunks.get(index)?;
            let start = self.locate(lines, old)?;
            Some(Standing {
                hunks: index..index + 1,
                lines: start..start + lines.len(),
                old: old.to_vec(),
            })
        };
        let mut found = Vec::new();
        let mut next = 0;
        for cluster in self.clusters(hunks) {
            let members = cluster.hunks.clone();
            if members.clone().all(|index| alone(index).is_some()) {
                continue;
            }
            found.extend((next..members.start).filter_map(alone));
            next = members.end;
            let start = cluster
                .lines
                .start
                .checked_add_signed(self.shift(cluster.spans.start));
            let end = cluster
                .lines
                .end
                .checked_add_signed(self.shift(cluster.spans.end));
            if let (Some(start), Some(end)) = (start, end) {
                let old = without(&cluster, members.clone(), base, hunks);
                found.push(Standing {
                    hunks: members,
                    lines: start..end,
                    old: lines(&old).iter().map(|line| line.to_vec()).collect(),
                });
            }
        }
        found.extend((next..hunks.len()).filter_map(alone));
        found
    }

    /// Groups spans and hunks that meet.
    fn clusters(&self, hunks: &[(Range<usize>, &[Vec<u8>])]) -> Vec<Cluster> {
        let mut clusters: Vec<Cluster> = Vec::new();
        let (mut spans, mut hunks) = (
            (0..)
                .zip(self.spans.iter().map(|span| &span.old))
                .peekable(),
            (0..).zip(hunks.iter().map(|(lines, _)| lines)).peekable(),
        );
        loop {
            let is_span = match (spans.peek(), hunks.peek()) {
                (Some((_, span)), Some((_, hunk))) => span.start <= hunk.start,
                (span, None) if span.is_some() => true,
                (None, Some(_)) => false,
                _ => break,
            };
            let next = if is_span { spans.next() } else { hunks.next() };
            let Some((index, lines)) = next else { break };
            match clusters.last_mut() {
                Some(last) if lines.start <= last.lines.end => {
                    last.lines.end = last.lines.end.max(lines.end);
                }
                last => {
                    let (spans, hunks) =
                        last.map_or((0, 0), |last| (last.spans.end, last.hunks.end));
                    clusters.push(Cluster {
                        lines: lines.clone(),
                        spans: spans..spans,
                        hunks: hunks..hunks,
                    });
                }
            }
            if let Some(last) = clusters.last_mut() {
                let of = if is_span {
                    &mut last.spans
                } else {
                    &mut last.hunks
                };
                of.end = index + 1;
            }
        }
        clusters.retain(|cluster| !cluster.spans.is_empty() && !cluster.hunks.is_empty());
        clusters
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

/// Makes the change from a base to an edited text in what became of the base. `None` when they are in conflict.
pub fn carry_over(base: &[u8], edited: &[u8], current: &[u8]) -> Option<Vec<u8>> {
    let (base, edited, current) = (lines(base), lines(edited), lines(current));
    let moved = Moved::between(&base, &current);
    let changes: Vec<(Span, Vec<Vec<u8>>)> = diff_lines(&base, &edited)
        .into_iter()
        .map(|span| {
            let part = edited.get(span.new.clone()).unwrap_or_default();
            let new = part.iter().map(|line| line.to_vec()).collect();
            (span, new)
        })
        .collect();
    let replacements: Option<Vec<Replacement<'_>>> = changes
        .iter()
        .map(|(span, new)| {
            let start = moved.locate(&span.old, new)?;
            let old = start..start + span.old.len();
            Some(Replacement { old, new })
        })
        .collect();
    Some(apply(&current, &replacements?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::hunks;
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
    fn an_edit_is_carried_over_or_refused() {
        let check = |current: &str, expected: Option<&str>| {
            let text = carry_over(b"a\nb\nc\n", b"a\nB\nc\n", current.as_bytes());
            assert_eq!(text.as_deref(), expected.map(str::as_bytes));
        };
        check("a\nb\nc\n", Some("a\nB\nc\n"));
        check("0\na\nb\nc\n", Some("0\na\nB\nc\n"));
        check("a\nx\nc\n", None);
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

    #[test]
    fn what_was_taken_back_is_told_from_what_was_changed() {
        let check = |after: &str, now: &str, hunks: &[(Range<usize>, &str)], expected: &[bool]| {
            let (after, now) = (lines(after.as_bytes()), lines(now.as_bytes()));
            let olds: Vec<_> = hunks
                .iter()
                .map(|(_, old)| owned(&lines(old.as_bytes())))
                .collect();
            let hunks: Vec<_> = hunks
                .iter()
                .zip(&olds)
                .map(|((range, _), old)| (range.clone(), old.as_slice()))
                .collect();
            let moved = Moved::between(&after, &now);
            assert_eq!(moved.taken_back(&after, &now, &hunks), expected, "{now:?}");
        };
        let two = [(0..1, "a\n"), (3..4, "")];
        check("A\nb\nc\nnew\n", "a\nb\nc\nnew\n", &two, &[true, false]);
        check("A\nb\nc\nnew\n", "a\nb\nc\n", &two, &[true, true]);
        check("A\nb\nc\nnew\n", "0\nA\nb\nc\n", &two, &[false, true]);
        check("A\nb\nc\nnew\n", "A\nb\nc\nother\n", &two, &[false, false]);
        check("A\nb\nc\nnew\n", "A\nb\nc\nnew\n", &two, &[false, false]);
        // A repeated line slides: which of the two is gone cannot be seen.
        check("}\n}\n", "}\n", &[(1..2, "")], &[true]);
        // Hunks that touch.
        let touching = [(0..1, "a\n"), (1..2, "b\n")];
        check("A\nB\n", "A\nb\n", &touching, &[false, true]);
    }

    #[test]
    fn hunks_stand_in_what_a_formatter_made_of_them() {
        let check = |after: &str, now: &str, hunks: &[(Range<usize>, &str)], expected: &str| {
            let (after, now) = (lines(after.as_bytes()), lines(now.as_bytes()));
            let olds: Vec<_> = hunks
                .iter()
                .map(|(_, old)| owned(&lines(old.as_bytes())))
                .collect();
            let hunks: Vec<_> = hunks
                .iter()
                .zip(&olds)
                .map(|((range, _), old)| (range.clone(), old.as_slice()))
                .collect();
            let standing = Moved::between(&after, &now).standing(&after, &hunks);
            let replacements: Vec<_> = standing
                .iter()
                .map(|it| Replacement {
                    old: it.lines.clone(),
                    new: &it.old,
                })
                .collect();
            let back = apply(&now, &replacements);
            assert_eq!(String::from_utf8(back).unwrap(), expected, "{standing:?}");
        };
        let two = [(0..1, "a\n"), (3..4, "")];
        // Untouched; changed in one hunk; changed elsewhere, which stays; changed over both.
        check("A\nb\nc\nnew\n", "A\nb\nc\nnew\n", &two, "a\nb\nc\n");
        check("A\nb\nc\nnew\n", " A\nb\nc\nnew\n", &two, "a\nb\nc\n");
        check("A\nb\nc\nnew\n", "A\n b\nc\nnew\n", &two, "a\n b\nc\n");
        check("A\nb\nc\nnew\n", "X\nY\n", &two, "a\nb\nc\n");
        check("A\nb\nc\nnew\n", "", &two, "a\nb\nc\n");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::testing::cases()))]

        #[test]
        fn what_stands_is_apart_and_in_order(before in hunks::tests::text(), after in hunks::tests::text(), now in hunks::tests::text()) {
            let (before, after, now) = (lines(&before), lines(&after), lines(&now));
            let spans = hunks::spans(&before, &after, 1);
            let olds: Vec<_> = spans.iter().map(|span| owned(&before[span.old.clone()])).collect();
            let list: Vec<_> = spans.iter().zip(&olds).map(|(span, old)| (span.new.clone(), old.as_slice())).collect();
            let (mut line, mut hunk) = (0, 0);
            for it in Moved::between(&after, &now).standing(&after, &list) {
                prop_assert!(it.lines.start >= line && it.lines.end <= now.len() && it.lines.start <= it.lines.end);
                prop_assert!(it.hunks.start >= hunk && it.hunks.end <= list.len());
                (line, hunk) = (it.lines.end, it.hunks.end);
            }
            let still = Moved::between(&after, &after).standing(&after, &list);
            prop_assert_eq!(still.len(), list.len());
            let replacements: Vec<_> = still.iter().map(|it| Replacement { old: it.lines.clone(), new: &it.old }).collect();
            prop_assert_eq!(apply(&after, &replacements), before.concat());
        }

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
