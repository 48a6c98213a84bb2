//! What a change looks like to readers: `diff`, `patch` and `firstChangedLine` of the result details.
//!
//! The change is compared in windows of a few lines around each replacement, so that the cost follows the size of the
//! change and not of the file.

use std::fmt::Write as _;
use std::ops::Range;

use serde_json::{Value, json};

use super::matching::{bytes_of, line_starts, lines_of};
use super::source::Splice;
use crate::review::hunks::{Span, diff_lines, lines};

/// Lines of a window around a replacement.
const WINDOW: usize = 32;
/// Lines of context around a change.
const CONTEXT: usize = 4;

/// A part of the two texts that holds changes. Lines are numbered from 0.
struct Window<'a> {
    old_start: usize,
    new_start: usize,
    old: Vec<&'a [u8]>,
    new: Vec<&'a [u8]>,
    spans: Vec<Span>,
}

/// Returns the details of a change made by replacements in `old`, which are in order.
pub(super) fn of_splices(path: &str, old: &str, new: &str, splices: &[Splice]) -> Option<Value> {
    let starts = line_starts(old);
    let mut windows: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    for (index, splice) in splices.iter().enumerate() {
        let touched = lines_of(&starts, &splice.range);
        let wide = touched.start.saturating_sub(WINDOW)..(touched.end + WINDOW).min(starts.len());
        match windows.last_mut() {
            Some((last, members)) if wide.start <= last.end => {
                last.end = last.end.max(wide.end);
                members.end = index + 1;
            }
            _ => windows.push((wide, index..index + 1)),
        }
    }
    let mut made = Vec::new();
    let mut shift = 0_isize;
    let mut line_shift = 0_isize;
    for (window, members) in windows {
        let span = bytes_of(&starts, old.len(), &window);
        let grown: isize = splices
            .get(members)
            .unwrap_or_default()
            .iter()
            .map(|splice| splice.text.len().cast_signed() - splice.range.len().cast_signed())
            .sum();
        let new_start = span.start.saturating_add_signed(shift);
        let new_end = span.end.saturating_add_signed(shift + grown);
        let old_lines = lines(old.get(span.clone()).unwrap_or_default().as_bytes());
        let new_lines = lines(new.get(new_start..new_end).unwrap_or_default().as_bytes());
        let gained = new_lines.len().cast_signed() - old_lines.len().cast_signed();
        made.push(Window {
            old_start: window.start,
            new_start: window.start.saturating_add_signed(line_shift),
            spans: diff_lines(&old_lines, &new_lines),
            old: old_lines,
            new: new_lines,
        });
        shift += grown;
        line_shift += gained;
    }
    shown(path, &made, width(old, new))
}

/// Returns the details of any change.
pub(super) fn of_texts(path: &str, old: &str, new: &str) -> Option<Value> {
    let (old_lines, new_lines) = (lines(old.as_bytes()), lines(new.as_bytes()));
    let mut windows: Vec<Window<'_>> = Vec::new();
    let mut shift = 0_isize;
    for span in diff_lines(&old_lines, &new_lines) {
        let start = span.old.start.saturating_sub(WINDOW);
        let end = (span.old.end + WINDOW).min(old_lines.len());
        let gained = span.new.len().cast_signed() - span.old.len().cast_signed();
        match windows.last_mut() {
            Some(last) if start <= last.old_start + last.old.len() => {
                last.old = part(&old_lines, last.old_start..end);
                last.new = part(
                    &new_lines,
                    last.new_start..end.saturating_add_signed(shift + gained),
                );
                last.spans
                    .push(within(&span, last.old_start, last.new_start));
            }
            _ => {
                let new_start = start.saturating_add_signed(shift);
                windows.push(Window {
                    old_start: start,
                    new_start,
                    old: part(&old_lines, start..end),
                    new: part(
                        &new_lines,
                        new_start..end.saturating_add_signed(shift + gained),
                    ),
                    spans: vec![within(&span, start, new_start)],
                });
            }
        }
        shift += gained;
    }
    shown(path, &windows, width(old, new))
}

fn part<'a>(lines: &[&'a [u8]], range: Range<usize>) -> Vec<&'a [u8]> {
    lines.get(range).unwrap_or_default().to_vec()
}

fn within(span: &Span, old_start: usize, new_start: usize) -> Span {
    Span {
        old: span.old.start - old_start..span.old.end - old_start,
        new: span.new.start - new_start..span.new.end - new_start,
    }
}

fn width(old: &str, new: &str) -> usize {
    let count = |text: &str| memchr::memchr_iter(b'\n', text.as_bytes()).count() + 1;
    count(old).max(count(new)).to_string().len()
}

fn shown(path: &str, windows: &[Window<'_>], width: usize) -> Option<Value> {
    let first = windows
        .iter()
        .find_map(|window| Some(window.new_start + window.spans.first()?.new.start + 1))?;
    Some(json!({
        "diff": display(windows, width),
        "patch": patch(path, windows),
        "firstChangedLine": first,
    }))
}

/// The numbered listing of the change.
fn display(windows: &[Window<'_>], width: usize) -> String {
    let marker = format!(" {:width$} ...", "");
    let mut rows: Vec<String> = Vec::new();
    for window in windows.iter().filter(|window| !window.spans.is_empty()) {
        let mut at = 0;
        for (index, span) in window.spans.iter().enumerate() {
            let gap = at..span.old.start;
            let is_first = index == 0;
            let show_all = !is_first && gap.len() <= 2 * CONTEXT;
            if show_all {
                context(window, gap, width, &mut rows);
            } else {
                if !is_first {
                    context(window, gap.start..gap.start + CONTEXT, width, &mut rows);
                }
                if !is_first || gap.len() > CONTEXT {
                    mark(&marker, &mut rows);
                }
                let from = gap.end.saturating_sub(CONTEXT).max(gap.start);
                context(window, from..gap.end, width, &mut rows);
            }
            numbered(
                '-',
                &window.old,
                &span.old,
                window.old_start,
                width,
                &mut rows,
            );
            numbered(
                '+',
                &window.new,
                &span.new,
                window.new_start,
                width,
                &mut rows,
            );
            at = span.old.end;
        }
        let left = window.old.len() - at;
        context(window, at..at + left.min(CONTEXT), width, &mut rows);
        if left > CONTEXT {
            mark(&marker, &mut rows);
        }
    }
    rows.join("\n")
}

fn mark(marker: &str, rows: &mut Vec<String>) {
    if rows.last().map(String::as_str) != Some(marker) {
        rows.push(marker.to_owned());
    }
}

fn context(window: &Window<'_>, range: Range<usize>, width: usize, rows: &mut Vec<String>) {
    numbered(' ', &window.old, &range, window.old_start, width, rows);
}

fn numbered(
    sign: char,
    lines: &[&[u8]],
    range: &Range<usize>,
    offset: usize,
    width: usize,
    rows: &mut Vec<String>,
) {
    let part = lines.get(range.clone()).unwrap_or_default();
    for (number, line) in (offset + range.start + 1..).zip(part) {
        rows.push(format!("{sign}{number:>width$} {}", text_of(line)));
    }
}

fn text_of(line: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line))
}

/// The change as a unified diff.
fn patch(path: &str, windows: &[Window<'_>]) -> String {
    let mut out = format!("--- {path}\n+++ {path}\n");
    for window in windows {
        let mut rest = window.spans.as_slice();
        while let Some(first) = rest.first() {
            let mut count = 1;
            let mut last = first;
            for next in rest.iter().skip(1) {
                if next.old.start - last.old.end > 2 * CONTEXT {
                    break;
                }
                last = next;
                count += 1;
            }
            let (group, left) = rest.split_at(count);
            hunk(window, group, &mut out);
            rest = left;
        }
    }
    out
}

fn hunk(window: &Window<'_>, group: &[Span], out: &mut String) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else {
        return;
    };
    let lead = first.old.start.min(CONTEXT);
    let trail = (window.old.len() - last.old.end).min(CONTEXT);
    let old = first.old.start - lead..last.old.end + trail;
    let new = first.new.start - lead..last.new.end + trail;
    let number = |start: usize, len: usize| if len == 0 { start } else { start + 1 };
    let _ = writeln!(
        out,
        "@@ -{},{} +{},{} @@",
        number(window.old_start + old.start, old.len()),
        old.len(),
        number(window.new_start + new.start, new.len()),
        new.len()
    );
    let mut at = old.start;
    for span in group {
        signed(' ', &window.old, at..span.old.start, out);
        signed('-', &window.old, span.old.clone(), out);
        signed('+', &window.new, span.new.clone(), out);
        at = span.old.end;
    }
    signed(' ', &window.old, at..old.end, out);
}

fn signed(sign: char, lines: &[&[u8]], range: Range<usize>, out: &mut String) {
    for line in lines.get(range).unwrap_or_default() {
        let _ = writeln!(out, "{sign}{}", text_of(line));
        if !line.ends_with(b"\n") {
            out.push_str("\\ No newline at end of file\n");
        }
    }
}
