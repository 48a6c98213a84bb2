//! Hints for errors: where a text that was not found might have been meant, where one that is not unique stands.
//!
//! Only ever words in an error message: nothing is placed by them.

use memchr::memmem;

/// Lines that are compared; a hint is not worth more.
const MAX_LINES: usize = 20_000;
/// Characters of a line that are compared and shown.
const MAX_LINE: usize = 120;
/// Places that are named.
const MAX_PLACES: usize = 5;

/// Describes the line that is nearest to the first line of a text that was not found.
pub(super) fn nearest(text: &str, wanted: &str) -> Option<String> {
    let line = wanted.lines().find(|line| !line.trim().is_empty())?;
    let words = words(line);
    let mut best = (0.0, 0, "");
    for (number, candidate) in (1..).zip(text.lines().take(MAX_LINES)) {
        if candidate.trim().is_empty() {
            continue;
        }
        if candidate == line {
            return Some(continues_otherwise(text, wanted, number));
        }
        if candidate.trim() == line.trim() {
            return Some(format!("line {number} is the same but for its white space"));
        }
        let score = likeness(&words, candidate);
        if score > best.0 {
            best = (score, number, candidate);
        }
    }
    let (score, number, candidate) = best;
    (score >= 0.6).then(|| format!("nearest is line {number}: `{}`", shown(candidate)))
}

/// The first line is there; says where the text stops being the same.
fn continues_otherwise(text: &str, wanted: &str, number: usize) -> String {
    let there = text.lines().skip(number);
    let skipped = wanted
        .lines()
        .position(|line| !line.trim().is_empty())
        .unwrap_or(0);
    let rest = wanted.lines().skip(skipped + 1);
    let same = there.zip(rest).take_while(|(a, b)| a == b).count();
    format!(
        "its first line is line {number}, but the file differs at line {}",
        number + same + 1
    )
}

/// The beginning of a line that is worth a look.
fn beginning(line: &str) -> &str {
    match line.char_indices().nth(MAX_LINE) {
        Some((cut, _)) => line.get(..cut).unwrap_or_default(),
        None => line,
    }
}

fn words(line: &str) -> Vec<&str> {
    let line = beginning(line);
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .collect()
}

/// How many of the words the two lines share, from 0 to 1.
fn likeness(wanted: &[&str], candidate: &str) -> f64 {
    let mut theirs = words(candidate);
    let total = wanted.len().max(theirs.len());
    let mut shared = 0;
    for word in wanted {
        if let Some(at) = theirs.iter().position(|other| other == word) {
            theirs.swap_remove(at);
            shared += 1;
        }
    }
    if total == 0 {
        return 0.0;
    }
    f64::from(shared) / total as f64
}

fn shown(line: &str) -> String {
    let line = line.trim();
    let start = beginning(line);
    if start.len() < line.len() {
        format!("{start}…")
    } else {
        line.to_owned()
    }
}

/// Names the lines where a text stands, the first few.
pub(super) fn lines_of_matches(text: &str, part: &str) -> Option<String> {
    if part.is_empty() {
        return None;
    }
    let mut found = memmem::find_iter(text.as_bytes(), part.as_bytes());
    let mut numbers = Vec::new();
    let (mut number, mut at) = (1, 0);
    for start in found.by_ref().take(MAX_PLACES) {
        let between = text.as_bytes().get(at..start).unwrap_or_default();
        number += memchr::memchr_iter(b'\n', between).count();
        at = start;
        numbers.push(number.to_string());
    }
    let more = if found.next().is_some() { " ..." } else { "" };
    Some(numbers.join(", ") + more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_lines() {
        let text = "fn main() {\n    let total = sum(list);\n    done();\n}\n";
        let hint = |wanted: &str| nearest(text, wanted).unwrap_or_default();
        assert_eq!(
            hint("let total = sum(list);"),
            "line 2 is the same but for its white space"
        );
        assert_eq!(
            hint("let total = sum(lists);"),
            "nearest is line 2: `let total = sum(list);`"
        );
        assert_eq!(
            hint("fn main() {\n    let total = sum(list);\n    stop();\n"),
            "its first line is line 1, but the file differs at line 3"
        );
        assert_eq!(hint("something else entirely"), "");
        assert_eq!(lines_of_matches("a\nb\na\na\n", "a").unwrap(), "1, 3, 4");
    }
}
