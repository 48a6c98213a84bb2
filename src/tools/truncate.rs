//! Cutting text to what a model should get: by lines and bytes from the start or the end, and long lines.
//!
//! Lines are counted at `\n`; a final `\n` makes no further line and empty text has none. Entry points: [`head`],
//! [`tail`], [`cut_line`], [`size_text`].

use serde_json::{Value, json};

/// Most lines a result shows.
pub const MAX_LINES: usize = 2000;
/// Most bytes a result shows.
pub const MAX_BYTES: usize = 50 * 1024;
/// Most UTF-16 units of one line that `grep` shows.
pub const MAX_LINE_UNITS: usize = 500;
/// JavaScript's largest safe integer: the recorded value for "no line limit".
pub const NO_LINE_LIMIT: usize = 9_007_199_254_740_991;

const CUT_MARK: &str = "... [truncated]";

/// What a limit was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncatedBy {
    /// The number of lines.
    Lines,
    /// The number of bytes.
    Bytes,
}

/// Text cut to limits, and how it was cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truncation {
    /// What is shown.
    pub content: String,
    /// Which limit cut it; `None` when nothing was cut.
    pub by: Option<TruncatedBy>,
    /// Lines of the whole text.
    pub total_lines: usize,
    /// Bytes of the whole text.
    pub total_bytes: usize,
    /// Lines shown.
    pub output_lines: usize,
    /// Bytes shown.
    pub output_bytes: usize,
    /// The one shown line lacks its beginning (only from the end).
    pub last_line_partial: bool,
    /// The first line alone is too long, nothing is shown (only from the start).
    pub first_line_exceeds_limit: bool,
    /// The line limit.
    pub max_lines: usize,
    /// The byte limit.
    pub max_bytes: usize,
}

impl Truncation {
    /// Whether anything was cut.
    pub fn truncated(&self) -> bool {
        self.by.is_some()
    }

    /// Returns the object that results carry in `details.truncation`.
    pub fn to_value(&self) -> Value {
        json!({
            "content": self.content,
            "truncated": self.truncated(),
            "truncatedBy": self.by.map(|by| match by {
                TruncatedBy::Lines => "lines",
                TruncatedBy::Bytes => "bytes",
            }),
            "totalLines": self.total_lines,
            "totalBytes": self.total_bytes,
            "outputLines": self.output_lines,
            "outputBytes": self.output_bytes,
            "lastLinePartial": self.last_line_partial,
            "firstLineExceedsLimit": self.first_line_exceeds_limit,
            "maxLines": self.max_lines,
            "maxBytes": self.max_bytes,
        })
    }
}

/// Counts lines.
pub fn count_lines(text: &str) -> usize {
    let breaks = text.bytes().filter(|byte| *byte == b'\n').count();
    breaks + usize::from(!text.is_empty() && !text.ends_with('\n'))
}

/// Keeps whole lines from the start.
pub fn head(text: &str, max_lines: usize, max_bytes: usize) -> Truncation {
    let totals = Totals {
        lines: count_lines(text),
        bytes: text.len(),
    };
    head_of(text, totals, max_lines, max_bytes)
}

/// Size of a text of which only the beginning may be at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Its lines.
    pub lines: usize,
    /// Its bytes.
    pub bytes: usize,
}

/// As [`head`] for a text whose beginning is `start`; `start` must reach past the limits if the text does.
pub fn head_of(start: &str, totals: Totals, max_lines: usize, max_bytes: usize) -> Truncation {
    let mut out = Truncation {
        total_lines: totals.lines,
        total_bytes: totals.bytes,
        max_lines,
        max_bytes,
        ..Truncation::default()
    };
    if totals.lines <= max_lines && totals.bytes <= max_bytes {
        out.content = start.to_owned();
        out.output_lines = totals.lines;
        out.output_bytes = totals.bytes;
        return out;
    }
    let first = start.split('\n').next().unwrap_or_default();
    if first.len() > max_bytes {
        out.by = Some(TruncatedBy::Bytes);
        out.first_line_exceeds_limit = true;
        return out;
    }
    let mut end = 0;
    let mut refused = false;
    for line in lines(start).take(max_lines) {
        let next = end + line.len() + usize::from(out.output_lines > 0);
        if next > max_bytes {
            refused = true;
            break;
        }
        end = next;
        out.output_lines += 1;
    }
    out.by = Some(if refused {
        TruncatedBy::Bytes
    } else {
        TruncatedBy::Lines
    });
    out.content = start.get(..end).unwrap_or_default().to_owned();
    out.output_bytes = end;
    out
}

/// Keeps whole lines from the end, or the end of the last line when that alone is too long.
pub fn tail(text: &str, max_lines: usize, max_bytes: usize) -> Truncation {
    let totals = Totals {
        lines: count_lines(text),
        bytes: text.len(),
    };
    tail_of(text, totals, max_lines, max_bytes)
}

/// As [`tail`] for a text that ends in `end`; `end` must reach back past the limits if the text does.
pub fn tail_of(end: &str, totals: Totals, max_lines: usize, max_bytes: usize) -> Truncation {
    let mut out = Truncation {
        total_lines: totals.lines,
        total_bytes: totals.bytes,
        max_lines,
        max_bytes,
        ..Truncation::default()
    };
    if totals.lines <= max_lines && totals.bytes <= max_bytes {
        out.content = end.to_owned();
        out.output_lines = totals.lines;
        out.output_bytes = totals.bytes;
        return out;
    }
    let body = end.strip_suffix('\n').unwrap_or(end);
    let mut start = body.len();
    let mut refused = false;
    for line in body.rsplit('\n').take(max_lines) {
        let taken = body.len() - start + line.len() + usize::from(out.output_lines > 0);
        if taken > max_bytes {
            refused = true;
            break;
        }
        start = body.len() - taken;
        out.output_lines += 1;
    }
    out.by = Some(if refused {
        TruncatedBy::Bytes
    } else {
        TruncatedBy::Lines
    });
    if refused && out.output_lines == 0 {
        start = ceil_char_boundary(body, body.len().saturating_sub(max_bytes));
        out.last_line_partial = true;
        out.output_lines = 1;
    }
    out.content = body.get(start..).unwrap_or_default().to_owned();
    out.output_bytes = out.content.len();
    out
}

/// Cuts a line that is longer than [`MAX_LINE_UNITS`]; returns it and whether it was cut.
pub fn cut_line(line: &str) -> (String, bool) {
    let mut units = 0;
    for (at, c) in line.char_indices() {
        units += c.len_utf16();
        if units > MAX_LINE_UNITS {
            let kept = line.get(..at).unwrap_or_default();
            return (format!("{kept}{CUT_MARK}"), true);
        }
    }
    (line.to_owned(), false)
}

/// Writes a size for people: `512B`, `50.0KB`, `1.5MB`.
pub fn size_text(bytes: usize) -> String {
    const KIB: usize = 1024;
    const MIB: usize = 1024 * 1024;
    if bytes < KIB {
        format!("{bytes}B")
    } else if bytes < MIB {
        format!("{}KB", one_decimal(bytes as f64 / KIB as f64))
    } else {
        format!("{}MB", one_decimal(bytes as f64 / MIB as f64))
    }
}

/// Rounds half up as JavaScript's `toFixed(1)`; Rust's formatter rounds an exact half to even.
pub fn one_decimal(value: f64) -> String {
    format!("{:.1}", (value * 10.0 + 0.5).floor() / 10.0)
}

/// Returns the first character start at or after `at`.
pub fn ceil_char_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// Returns the last character start at or before `at`.
pub fn floor_char_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.strip_suffix('\n').unwrap_or(text).split('\n')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_read_as_in_the_reference() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.0KB"),
            (51_200, "50.0KB"),
            (51_201, "50.0KB"),
            (1_048_576, "1.0MB"),
            (1_600_000, "1.5MB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }

    #[test]
    fn head_names_the_limit_that_cut() {
        let by = |text: &str, lines, bytes| {
            let cut = head(text, lines, bytes);
            (cut.content.clone(), cut.by, cut.output_lines)
        };
        let lines = Some(TruncatedBy::Lines);
        let bytes = Some(TruncatedBy::Bytes);
        assert_eq!(by("a\nb\n", 2, 4), ("a\nb\n".into(), None, 2));
        assert_eq!(by("a\nb\nc", 2, 9), ("a\nb".into(), lines, 2));
        assert_eq!(by("aa\nbb\n", 9, 5), ("aa\nbb".into(), lines, 2));
        assert_eq!(by("aa\nbb\n", 9, 4), ("aa".into(), bytes, 1));
        assert_eq!(by("aaaaa\nb", 9, 4), (String::new(), bytes, 0));
        assert!(head("aaaaa\nb", 9, 4).first_line_exceeds_limit);
        assert_eq!(by("", 0, 0), (String::new(), None, 0));
    }

    #[test]
    fn tail_keeps_the_end_of_a_long_line() {
        let cut = tail("x\naaé", 9, 3);
        assert_eq!((cut.content.as_str(), cut.last_line_partial), ("aé", true));
        let cut = tail("é", 9, 1);
        assert_eq!((cut.content.as_str(), cut.output_bytes), ("", 0));
        let cut = tail("a\nb\nc\n", 2, 9);
        assert_eq!(
            (cut.content.as_str(), cut.by),
            ("b\nc", Some(TruncatedBy::Lines))
        );
    }

    #[test]
    fn a_cut_never_splits_an_emoji() {
        let line = format!("{}\u{1f600}x", "a".repeat(499));
        assert_eq!(
            cut_line(&line),
            (format!("{}{CUT_MARK}", "a".repeat(499)), true)
        );
        assert_eq!(cut_line(&"a".repeat(500)), ("a".repeat(500), false));
    }

    fn naive_lines(text: &str) -> Vec<&str> {
        let mut lines: Vec<&str> = text.split('\n').collect();
        if lines.last() == Some(&"") {
            lines.pop();
        }
        lines
    }

    proptest! {
        #[test]
        fn head_is_the_longest_allowed_prefix(text in "[aé\n]{0,40}", max_lines in 1usize..6, max_bytes in 1usize..12) {
            let cut = head(&text, max_lines, max_bytes);
            let all = naive_lines(&text);
            prop_assert_eq!(cut.total_lines, all.len());
            if !cut.truncated() {
                prop_assert_eq!(&cut.content, &text);
                return Ok(());
            }
            prop_assert!(text.starts_with(&cut.content));
            prop_assert!(cut.content.len() <= max_bytes && cut.output_lines <= max_lines);
            prop_assert_eq!(cut.content.len(), cut.output_bytes);
            prop_assert_eq!(&cut.content, &all[..cut.output_lines].join("\n"));
            if let Some(next) = all.get(cut.output_lines).filter(|_| cut.output_lines < max_lines) {
                prop_assert!(cut.content.len() + usize::from(cut.output_lines > 0) + next.len() > max_bytes);
                prop_assert_eq!(cut.by, Some(TruncatedBy::Bytes));
            }
        }

        #[test]
        fn tail_is_the_longest_allowed_suffix(text in "[aé\n]{0,40}", max_lines in 1usize..6, max_bytes in 1usize..12) {
            let cut = tail(&text, max_lines, max_bytes);
            let all = naive_lines(&text);
            if !cut.truncated() {
                prop_assert_eq!(&cut.content, &text);
                return Ok(());
            }
            prop_assert!(text.strip_suffix('\n').unwrap_or(&text).ends_with(&cut.content));
            prop_assert!(cut.content.len() <= max_bytes && cut.output_lines <= max_lines);
            prop_assert_eq!(cut.content.len(), cut.output_bytes);
            if !cut.last_line_partial {
                prop_assert_eq!(&cut.content, &all[all.len() - cut.output_lines..].join("\n"));
            }
        }
    }
}
