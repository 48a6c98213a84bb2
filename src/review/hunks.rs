//! Hunks: the difference of two texts in pieces that a person can take or leave.
//!
//! Entry points: [`spans`], [`apply`], [`split`]. Tokens are byte lines with their endings, so a changed ending or a
//! missing last newline is a change like any other. Laws, each a property test: all pieces applied give the new text
//! byte for byte, none gives the old one, any subset and then the rest gives the new one, and the order of decisions
//! does not matter. The same two texts always give the same pieces: there is a bound on steps, never on time.

use std::collections::HashMap;
use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Above this many lines, counted after equal ends are cut off, the changed middle is one hunk.
const MAX_TOKENS: usize = 200_000;

/// Hunks with at most this many equal lines between them are one (`review.join`).
pub const DEFAULT_JOIN: usize = 1;

/// Some lines of an old text and the lines of a new text that stand for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Lines of the old text; empty for an insertion before its start.
    pub old: Range<usize>,
    /// Lines of the new text.
    pub new: Range<usize>,
}

/// Splits a text into lines, each with its `\n`; the last may lack it.
pub fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Returns what differs between two lists of lines, in order; neighbours have equal lines between them.
pub fn diff_lines(old: &[&[u8]], new: &[&[u8]]) -> Vec<Span> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (tail(old, head), tail(new, head));
    let end = old_rest
        .iter()
        .rev()
        .zip(new_rest.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let old_middle = old_rest.get(..old_rest.len() - end).unwrap_or_default();
    let new_middle = new_rest.get(..new_rest.len() - end).unwrap_or_default();
    let found = if old_middle.len() + new_middle.len() > MAX_TOKENS {
        vec![Span {
            old: 0..old_middle.len(),
            new: 0..new_middle.len(),
        }]
    } else {
        diff_middle(old_middle, new_middle)
    };
    found
        .into_iter()
        .map(|span| Span {
            old: span.old.start + head..span.old.end + head,
            new: span.new.start + head..span.new.end + head,
        })
        .collect()
}

fn tail<'a, 'b>(lines: &'a [&'b [u8]], from: usize) -> &'a [&'b [u8]] {
    lines.get(from..).unwrap_or_default()
}

fn diff_middle(old: &[&[u8]], new: &[&[u8]]) -> Vec<Span> {
    // Small numbers compare faster than lines, and no two lines can be taken for each other.
    let mut numbers: HashMap<&[u8], u32> = HashMap::new();
    let mut number = |line| {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(line).or_insert(next)
    };
    let old: Vec<u32> = old.iter().map(|line| number(*line)).collect();
    let new: Vec<u32> = new.iter().map(|line| number(*line)).collect();
    let mut found: Vec<Span> = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, &old, &new) {
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        let (old, new) = (op.old_range(), op.new_range());
        match found.last_mut() {
            Some(last) if last.old.end == old.start && last.new.end == new.start => {
                last.old.end = old.end;
                last.new.end = new.end;
            }
            _ => found.push(Span { old, new }),
        }
    }
    found
}

/// Returns the pieces of a change for review: lines that differ in nothing but their ending are pieces of their own,
/// pieces of one kind at most `join` equal lines apart are one.
pub fn spans(old: &[&[u8]], new: &[&[u8]], join: usize) -> Vec<Span> {
    let mut joined: Vec<(Kind, Span)> = Vec::new();
    for (kind, span) in diff_lines(old, new)
        .into_iter()
        .flat_map(|span| by_kind(old, new, span))
    {
        match joined.last_mut() {
            Some((last_kind, last))
                if *last_kind == kind && span.old.start - last.old.end <= join =>
            {
                last.old.end = span.old.end;
                last.new.end = span.new.end;
            }
            _ => joined.push((kind, span)),
        }
    }
    joined.into_iter().map(|(_, span)| span).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Ending,
}

/// Splits off the lines of a span that differ only in their ending. Only a span with as many old as new lines is
/// looked at: there each line has a partner, and any subset of the parts still ends its lines properly.
fn by_kind(old: &[&[u8]], new: &[&[u8]], span: Span) -> Vec<(Kind, Span)> {
    if span.old.len() != span.new.len() {
        return vec![(Kind::Text, span)];
    }
    let mut parts: Vec<(Kind, Span)> = Vec::new();
    for (old_line, new_line) in span.old.zip(span.new) {
        let same = match (old.get(old_line), new.get(new_line)) {
            (Some(a), Some(b)) => strip_ending(a) == strip_ending(b),
            _ => false,
        };
        let kind = if same { Kind::Ending } else { Kind::Text };
        match parts.last_mut() {
            Some((last, part)) if *last == kind => {
                part.old.end = old_line + 1;
                part.new.end = new_line + 1;
            }
            _ => parts.push((
                kind,
                Span {
                    old: old_line..old_line + 1,
                    new: new_line..new_line + 1,
                },
            )),
        }
    }
    parts
}

fn strip_ending(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn ending(line: &[u8]) -> &'static str {
    match line {
        [.., b'\r', b'\n'] => "CRLF",
        [.., b'\n'] => "LF",
        [.., b'\r'] => "CR",
        _ => "none",
    }
}

/// Names a change that is hard to see: of line endings, of the final newline, of white space.
pub fn label<T: AsRef<[u8]>>(old: &[T], new: &[T]) -> Option<String> {
    let pairs = || {
        old.iter()
            .zip(new)
            .map(|(a, b)| (a.as_ref(), b.as_ref()))
            .filter(|(a, b)| a != b)
    };
    let only_endings =
        old.len() == new.len() && pairs().all(|(a, b)| strip_ending(a) == strip_ending(b));
    if only_endings {
        let mut kinds: Vec<_> = pairs().map(|(a, b)| (ending(a), ending(b))).collect();
        kinds.sort_unstable();
        kinds.dedup();
        return match kinds.as_slice() {
            [] => None,
            [("none", _)] => Some("adds final newline".to_owned()),
            [(_, "none")] => Some("removes final newline".to_owned()),
            [(from, to)] => Some(format!("{from} → {to}")),
            _ => Some("line endings".to_owned()),
        };
    }
    let visible = |lines: &[T]| -> Vec<u8> {
        lines
            .iter()
            .flat_map(|line| line.as_ref().iter().copied())
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect()
    };
    (visible(old) == visible(new)).then(|| "whitespace".to_owned())
}

/// Returns which edits of a call a piece comes from: those whose lines of the new text it meets.
pub fn edits_of(new: &Range<usize>, edit_lines: &[Range<usize>]) -> Vec<usize> {
    let meets = |lines: &Range<usize>| {
        if lines.is_empty() || new.is_empty() {
            // A deletion has no lines of its own: it is where its edit is.
            lines.start <= new.end && new.start <= lines.end
        } else {
            lines.start < new.end && new.start < lines.end
        }
    };
    (0..)
        .zip(edit_lines)
        .filter(|(_, lines)| meets(lines))
        .map(|(index, _)| index)
        .collect()
}

/// A replacement of lines: which, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement<'a> {
    /// Replaced lines.
    pub old: Range<usize>,
    /// Lines instead.
    pub new: &'a [Vec<u8>],
}

/// Applies replacements, given in order of position, to a text.
pub fn apply(base: &[&[u8]], replacements: &[Replacement<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    for replacement in replacements {
        for line in base.get(at..replacement.old.start).unwrap_or_default() {
            out.extend_from_slice(line);
        }
        for line in replacement.new {
            out.extend_from_slice(line);
        }
        at = replacement.old.end.max(at);
    }
    for line in base.get(at..).unwrap_or_default() {
        out.extend_from_slice(line);
    }
    out
}

/// Splits a piece so that the new lines `from..to` (counted within the piece) stand alone: gives the lengths
/// `(old, new)` of two or three parts, in order. `None` when there is nothing to split off.
pub fn split(
    old: &[Vec<u8>],
    new: &[Vec<u8>],
    from: usize,
    to: usize,
) -> Option<Vec<(usize, usize)>> {
    let to = to.min(new.len());
    if from >= to || (from == 0 && to == new.len()) {
        return None;
    }
    // An old last line without its newline goes with the last part: nothing may ever follow it on its line.
    let unended = usize::from(old.last().is_some_and(|line| !line.ends_with(b"\n")));
    let free = old.len() - unended;
    let inner = diff_lines(&slices(old), &slices(new));
    let mut cuts = vec![(0, 0)];
    if from > 0 {
        cuts.push((old_at(&inner, from).min(free), from));
    }
    if to < new.len() {
        cuts.push((old_at(&inner, to).min(free), to));
    }
    cuts.push((old.len(), new.len()));
    let parts = cuts
        .iter()
        .zip(cuts.iter().skip(1))
        .map(|(start, end)| (end.0 - start.0, end.1 - start.1));
    Some(parts.collect())
}

fn slices(lines: &[Vec<u8>]) -> Vec<&[u8]> {
    lines.iter().map(Vec::as_slice).collect()
}

/// Where a cut before a new line falls in the old lines: lines that are equal stay together, changed ones go in pairs.
fn old_at(inner: &[Span], cut: usize) -> usize {
    let after = inner.partition_point(|span| {
        span.new.start < cut || span.new.is_empty() && span.new.start <= cut
    });
    match after.checked_sub(1).and_then(|last| inner.get(last)) {
        Some(span) if cut <= span.new.end => {
            let paired = span.old.start + (cut - span.new.start);
            if cut == span.new.end {
                span.old.end
            } else {
                paired.min(span.old.end)
            }
        }
        Some(span) => span.old.end + (cut - span.new.end),
        None => cut,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn owned(lines: &[&[u8]]) -> Vec<Vec<u8>> {
        lines.iter().map(|line| line.to_vec()).collect()
    }

    #[track_caller]
    fn check(old: &str, new: &str, expect: &expect_test::Expect) {
        let (old, new) = (lines(old.as_bytes()), lines(new.as_bytes()));
        let mut out = String::new();
        for span in spans(&old, &new, DEFAULT_JOIN) {
            let (old, new) = (&old[span.old.clone()], &new[span.new.clone()]);
            let show = |lines: &[&[u8]]| {
                lines
                    .iter()
                    .map(|line| String::from_utf8_lossy(line).escape_debug().to_string())
                    .collect::<Vec<_>>()
                    .join("|")
            };
            let label = label(old, new).map_or(String::new(), |label| format!(" ({label})"));
            out += &format!(
                "{}: {} => {}{label}\n",
                span.old.start,
                show(old),
                show(new)
            );
        }
        expect.assert_eq(&out);
    }

    #[test]
    fn hunks_a_person_would_expect() {
        use expect_test::expect;
        check(
            "a\nb\nc\n",
            "a\nB\nc\n",
            &expect![[r#"
            1: b\n => B\n
        "#]],
        );
        // One equal line between: one hunk. Two: two hunks.
        check(
            "a\nb\nc\nd\n",
            "A\nb\nC\nd\n",
            &expect![[r#"
            0: a\n|b\n|c\n => A\n|b\n|C\n
        "#]],
        );
        check(
            "a\nb\nc\nd\n",
            "A\nb\nc\nD\n",
            &expect![[r#"
            0: a\n => A\n
            3: d\n => D\n
        "#]],
        );
        check(
            "a\r\nb\r\nc\n",
            "a\nB\nc\n",
            &expect![[r#"
            0: a\r\n => a\n (CRLF → LF)
            1: b\r\n => B\n
        "#]],
        );
        check(
            "a\nb",
            "a\nb\n",
            &expect![[r#"
            1: b => b\n (adds final newline)
        "#]],
        );
        check(
            "a\nb\n",
            "a\nb",
            &expect![[r#"
            1: b\n => b (removes final newline)
        "#]],
        );
        check(
            "a\n  b\n",
            "a\n\tb\n",
            &expect![[r#"
            1:   b\n => \tb\n (whitespace)
        "#]],
        );
        check(
            "1\n2\n3",
            "1\n2\n2.2\n3\n",
            &expect![[r#"
            2: 3 => 2.2\n|3\n
        "#]],
        );
        check(
            "",
            "a\n",
            &expect![[r#"
            0:  => a\n
        "#]],
        );
        check(
            "a\n",
            "",
            &expect![[r#"
            0: a\n => 
        "#]],
        );
        check("same\n", "same\n", &expect![""]);
    }

    #[test]
    fn a_huge_change_is_one_hunk() {
        let old: String = (0..120_000).map(|n| format!("{n}\n")).collect();
        let new: String = (0..120_000).map(|n| format!("{}\n", n * 2 + 1)).collect();
        let old = format!("head\n{old}tail\n");
        let new = format!("head\n{new}tail\n");
        let found = spans(&lines(old.as_bytes()), &lines(new.as_bytes()), 1);
        assert_eq!(
            found,
            [Span {
                old: 1..120_001,
                new: 1..120_001
            }]
        );
    }

    #[test]
    fn edits_are_found_by_the_lines_they_made() {
        let edits = [1..3, 5..5, 8..9];
        assert_eq!(edits_of(&(0..2), &edits), [0]);
        assert_eq!(edits_of(&(3..5), &edits), [1]);
        assert_eq!(edits_of(&(5..5), &edits), [1]);
        assert_eq!(edits_of(&(2..9), &edits), [0, 1, 2]);
        assert!(edits_of(&(6..7), &edits).is_empty());
    }

    #[test]
    fn splitting_keeps_an_unended_last_line_at_the_end() {
        let (old, new) = (owned(&[b"a"]), owned(&[b"b\n", b"c"]));
        assert_eq!(split(&old, &new, 0, 1), Some(vec![(0, 1), (1, 1)]));
        assert_eq!(split(&old, &new, 0, 2), None);
        assert_eq!(split(&old, &new, 2, 2), None);
        let (old, new) = (owned(&[b"a\n", b"b\n"]), owned(&[b"x\n", b"y\n", b"z\n"]));
        assert_eq!(split(&old, &new, 1, 2), Some(vec![(1, 1), (1, 1), (0, 1)]));
        // A line that stays is nobody's change: the new line before it is a part of its own.
        let (old, new) = (owned(&[b"a\n", b"b\n"]), owned(&[b"x\n", b"a\n", b"y\n"]));
        assert_eq!(split(&old, &new, 0, 1), Some(vec![(0, 1), (2, 2)]));
        assert_eq!(split(&old, &new, 2, 3), Some(vec![(1, 2), (1, 1)]));
    }

    /// Texts with many repeated lines, all kinds of endings, with or without a last newline.
    pub(crate) fn text() -> impl Strategy<Value = Vec<u8>> {
        let line = prop::sample::select(vec![
            "a", "b", "c", "", " a", "}", "return", "\u{fffd}", "a\r",
        ]);
        let ending = prop::sample::select(vec!["\n", "\n", "\n", "\r\n"]);
        let body = prop::collection::vec((line, ending), 0..24).prop_map(|lines| {
            lines
                .into_iter()
                .map(|(line, ending)| format!("{line}{ending}"))
                .collect::<String>()
        });
        let last = prop::sample::select(vec!["", "", "end", "a"]);
        (body, last).prop_map(|(body, last)| format!("{body}{last}").into_bytes())
    }

    /// Pieces as replacements, with those of `taken` only.
    fn chosen<'a>(
        found: &[Span],
        new: &'a [Vec<u8>],
        taken: impl Fn(usize) -> bool,
    ) -> Vec<Replacement<'a>> {
        (0..)
            .zip(found)
            .filter(|(index, _)| taken(*index))
            .map(|(_, span)| Replacement {
                old: span.old.clone(),
                new: &new[span.new.clone()],
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::testing::cases()))]

        #[test]
        fn all_give_the_new_text_and_none_the_old(old in text(), new in text(), join in 0_usize..3) {
            let (old_lines, new_lines) = (lines(&old), owned(&lines(&new)));
            let found = spans(&old_lines, &lines(&new), join);
            prop_assert_eq!(apply(&old_lines, &chosen(&found, &new_lines, |_| true)), new.as_slice());
            prop_assert_eq!(apply(&old_lines, &chosen(&found, &new_lines, |_| false)), old.as_slice());
        }

        #[test]
        fn a_subset_and_then_the_rest_give_the_new_text(old in text(), new in text(), mask in any::<u32>()) {
            let (old_lines, new_lines) = (lines(&old), owned(&lines(&new)));
            let found = spans(&old_lines, &lines(&new), 1);
            let taken = |index: usize| mask & (1 << (index % 32)) != 0;
            let half = apply(&old_lines, &chosen(&found, &new_lines, taken));
            // Where the rest stands in the half-way text.
            let mut shift = 0_isize;
            let mut rest = Vec::new();
            for (index, span) in found.iter().enumerate() {
                let (old_len, new_len) = (span.old.len(), span.new.len());
                let start = span.old.start.checked_add_signed(shift).unwrap();
                if taken(index) {
                    shift += new_len as isize - old_len as isize;
                } else {
                    rest.push(Replacement { old: start..start + old_len, new: &new_lines[span.new.clone()] });
                }
            }
            prop_assert_eq!(apply(&lines(&half), &rest), new);
        }

        #[test]
        fn every_line_of_a_subset_is_a_line_of_old_or_new(old in text(), new in text(), mask in any::<u32>()) {
            let (old_lines, new_lines) = (lines(&old), owned(&lines(&new)));
            let found = spans(&old_lines, &lines(&new), 1);
            let half = apply(&old_lines, &chosen(&found, &new_lines, |index| mask & (1 << (index % 32)) != 0));
            for line in lines(&half) {
                prop_assert!(old_lines.contains(&line) || new_lines.iter().any(|new| new == line));
            }
        }

        #[test]
        fn split_parts_together_are_the_whole(old in text(), new in text(), from in 0_usize..6, len in 1_usize..6, mask in any::<u8>()) {
            let (old, new) = (owned(&lines(&old)), owned(&lines(&new)));
            let Some(parts) = split(&old, &new, from, from + len) else { return Ok(()); };
            prop_assert_eq!(parts.iter().map(|part| part.0).sum::<usize>(), old.len());
            prop_assert_eq!(parts.iter().map(|part| part.1).sum::<usize>(), new.len());
            // Whatever is taken, no two lines run together.
            let (mut old_at, mut new_at, mut out) = (0, 0, Vec::new());
            for (index, (old_len, new_len)) in parts.iter().enumerate() {
                let part = if mask & (1 << index) != 0 { &new[new_at..new_at + new_len] } else { &old[old_at..old_at + old_len] };
                out.extend(part.concat());
                old_at += old_len;
                new_at += new_len;
            }
            for line in lines(&out) {
                prop_assert!(old.iter().chain(&new).any(|known| known == line));
            }
        }
    }
}
