//! Which words of a changed line changed.
//!
//! Entry point: [`mark`]. Lines are paired in order by how much they have in common; long lines and big hunks are left
//! alone, since marks all over say nothing.

use std::collections::HashMap;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Hunks with more lines than this get no word marks.
const MAX_LINES: usize = 50;
/// Nor do lines with more bytes than this.
const MAX_BYTES: usize = 500;
/// Lines with less in common are different lines.
const MIN_SIMILARITY: f64 = 0.4;

/// Byte columns of changed parts: start, end, start, end …
pub(super) type Columns = Vec<usize>;

/// Returns the changed parts of the old and of the new lines.
pub(super) fn mark(old: &[&str], new: &[&str]) -> (Vec<Columns>, Vec<Columns>) {
    let mut marks = (vec![Vec::new(); old.len()], vec![Vec::new(); new.len()]);
    let small = |lines: &[&str]| !lines.is_empty() && lines.len() <= MAX_LINES;
    if !small(old) || !small(new) {
        return marks;
    }
    let old_words: Vec<_> = old.iter().map(|line| words(line)).collect();
    let new_words: Vec<_> = new.iter().map(|line| words(line)).collect();
    for (i, j) in pairs(&old_words, &new_words) {
        let (Some(a), Some(b)) = (old_words.get(i), new_words.get(j)) else {
            continue;
        };
        let (in_old, in_new) = changed(a, b);
        if let Some(slot) = marks.0.get_mut(i) {
            *slot = in_old;
        }
        if let Some(slot) = marks.1.get_mut(j) {
            *slot = in_new;
        }
    }
    marks
}

/// Words, single signs and runs of blanks; a line too long has none.
fn words(line: &str) -> Vec<&str> {
    if line.len() > MAX_BYTES {
        return Vec::new();
    }
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 0,
        c if c.is_whitespace() => 1,
        _ => 2,
    };
    let mut found = Vec::new();
    let mut start = 0;
    let mut last = None;
    for (at, c) in line.char_indices() {
        let now = kind(c);
        if last.is_some_and(|last| last != now || now == 2) {
            found.extend(line.get(start..at));
            start = at;
        }
        last = Some(now);
    }
    found.extend(line.get(start..).filter(|rest| !rest.is_empty()));
    found
}

/// How much two lines have in common, by the bytes of their shared words.
fn similarity(a: &[&str], b: &[&str]) -> f64 {
    let solid = |words: &[&str]| words.iter().map(|word| weight(word)).sum::<usize>();
    let total = solid(a) + solid(b);
    if total == 0 {
        return 0.0;
    }
    let mut bag: HashMap<&str, usize> = HashMap::new();
    for word in a {
        *bag.entry(word).or_default() += 1;
    }
    let mut shared = 0;
    for word in b {
        if let Some(left) = bag.get_mut(word).filter(|left| **left > 0) {
            *left -= 1;
            shared += weight(word);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "lines have at most 500 bytes")]
    let ratio = 2.0 * shared as f64 / total as f64;
    ratio
}

fn weight(word: &str) -> usize {
    if word.trim().is_empty() {
        0
    } else {
        word.len()
    }
}

/// Pairs lines in order so that what they have in common is most.
fn pairs(old: &[Vec<&str>], new: &[Vec<&str>]) -> Vec<(usize, usize)> {
    let width = new.len() + 1;
    let at = |i: usize, j: usize| i * width + j;
    let mut best = vec![0.0_f64; (old.len() + 1) * width];
    let mut score = vec![0.0_f64; best.len()];
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            let common = similarity(a, b);
            let common = if common >= MIN_SIMILARITY {
                common
            } else {
                0.0
            };
            let get = |i, j| best.get(at(i, j)).copied().unwrap_or_default();
            let with = common + get(i + 1, j + 1);
            let value = with.max(get(i + 1, j)).max(get(i, j + 1));
            set(&mut score, at(i, j), common);
            set(&mut best, at(i, j), value);
        }
    }
    let get = |table: &[f64], i, j| table.get(at(i, j)).copied().unwrap_or_default();
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < old.len() && j < new.len() {
        let (here, common) = (get(&best, i, j), get(&score, i, j));
        if common > 0.0 && common + get(&best, i + 1, j + 1) >= here {
            found.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if get(&best, i + 1, j) >= here {
            i += 1;
        } else {
            j += 1;
        }
    }
    found
}

fn set(table: &mut [f64], at: usize, value: f64) {
    if let Some(slot) = table.get_mut(at) {
        *slot = value;
    }
}

fn changed(a: &[&str], b: &[&str]) -> (Columns, Columns) {
    let (mut in_old, mut in_new) = (Vec::new(), Vec::new());
    for op in capture_diff_slices(Algorithm::Myers, a, b) {
        if !matches!(op, DiffOp::Equal { .. }) {
            add(&mut in_old, a, op.old_range());
            add(&mut in_new, b, op.new_range());
        }
    }
    (in_old, in_new)
}

/// Adds the columns of some words; parts with only blanks between them are one.
fn add(columns: &mut Columns, words: &[&str], range: std::ops::Range<usize>) {
    if range.is_empty() {
        return;
    }
    let column = |upto: usize| -> usize { words.iter().take(upto).map(|word| word.len()).sum() };
    let (start, end) = (column(range.start), column(range.end));
    let blank_before = range.start > 0
        && words
            .get(range.start - 1)
            .is_some_and(|word| word.trim().is_empty());
    match columns.last_mut() {
        Some(last) if *last == start => *last = end,
        Some(last) if blank_before && *last == column(range.start - 1) => *last = end,
        _ => columns.extend([start, end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn shown(lines: &[&str], marks: &[Columns]) -> String {
        let mut out = String::new();
        for (line, columns) in lines.iter().zip(marks) {
            let mut line = (*line).to_owned();
            for pair in columns.chunks(2).rev() {
                line.insert(pair[1], ']');
                line.insert(pair[0], '[');
            }
            out.push_str(&line);
            out.push('\n');
        }
        out
    }

    fn check(old: &[&str], new: &[&str], expect: Expect) {
        let (a, b) = mark(old, new);
        expect.assert_eq(&format!("{}--\n{}", shown(old, &a), shown(new, &b)));
    }

    #[test]
    fn a_changed_word_is_marked_on_both_sides() {
        check(
            &["let t = lex(s);"],
            &["let t = lex(s)?;"],
            expect![[r#"
                let t = lex(s);
                --
                let t = lex(s)[?];
            "#]],
        );
        check(
            &["for word in line:gmatch('%S+') do"],
            &["for each in line:gmatch('%w+') do"],
            expect![[r#"
                for [word] in line:gmatch('%[S]+') do
                --
                for [each] in line:gmatch('%[w]+') do
            "#]],
        );
    }

    #[test]
    fn lines_are_paired_with_what_became_of_them() {
        check(
            &["return n"],
            &["-- how many words there are", "return n + 1"],
            expect![[r#"
                return n
                --
                -- how many words there are
                return n[ + 1]
            "#]],
        );
    }

    #[test]
    fn different_lines_have_no_marks() {
        check(
            &["alpha beta"],
            &["gamma delta"],
            expect![[r#"
                alpha beta
                --
                gamma delta
            "#]],
        );
    }

    proptest! {
        #[test]
        fn columns_are_in_order_and_on_characters(
            old in proptest::collection::vec("[aé _(.]{0,12}", 0..5),
            new in proptest::collection::vec("[aé _(.]{0,12}", 0..5),
        ) {
            let old: Vec<&str> = old.iter().map(String::as_str).collect();
            let new: Vec<&str> = new.iter().map(String::as_str).collect();
            let (a, b) = mark(&old, &new);
            for (line, columns) in old.iter().zip(&a).chain(new.iter().zip(&b)) {
                prop_assert!(columns.is_sorted());
                prop_assert!(columns.iter().all(|at| line.is_char_boundary(*at)));
            }
        }
    }
}
