//! Finding what edits replace: exactly, or in the tolerant view, and never twice.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;

use super::fold::fold;
use super::source::{Source, Splice, with_line_feeds};
use super::{Edit, hint};
use crate::agent::{ErrorClass, ToolError};

/// What a call replaces, in order of position.
pub(super) struct Matched {
    pub(super) splices: Vec<Splice>,
    /// For each edit of the call, which of the splices holds it.
    pub(super) splice_of_edit: Vec<usize>,
}

/// An edit with `\n` line breaks, and its tolerant view.
struct Wanted {
    old: String,
    new: String,
    folded: String,
}

/// Finds all edits of a call in a file. Each is matched against the file as it is, never against the result of another.
pub(super) fn find(path: &str, source: &Source<'_>, edits: &[Edit]) -> Result<Matched, ToolError> {
    let naming = Naming {
        path,
        n_edits: edits.len(),
    };
    let wanted: Vec<Wanted> = edits
        .iter()
        .map(|edit| {
            let old = with_line_feeds(&edit.old_text);
            Wanted {
                folded: fold(&old).into_owned(),
                new: with_line_feeds(&edit.new_text),
                old,
            }
        })
        .collect();
    if let Some(empty) = wanted.iter().position(|it| it.old.is_empty()) {
        return Err(naming.error(ErrorClass::EmptyOldText, empty, "is empty; give the text to replace. To make a new file or rewrite a whole one, use write"));
    }
    let folded = fold(&source.text);
    let exact: Vec<_> = wanted
        .iter()
        .map(|it| position(&source.text, &it.old))
        .collect();
    let tolerant = (0..)
        .zip(&exact)
        .zip(&wanted)
        .any(|((_, exact), it): ((usize, _), _)| {
            exact.is_none() && position(&folded, &it.folded).is_some()
        });
    let base: Cow<'_, str> = if tolerant {
        Cow::Borrowed(&folded)
    } else {
        Cow::Borrowed(&source.text)
    };
    let mut ranges = Vec::with_capacity(wanted.len());
    for (index, it) in wanted.iter().enumerate() {
        let found = match exact.get(index) {
            Some(Some(start)) if !tolerant => Some(*start..*start + it.old.len()),
            _ => range_in(&base, &it.old).or_else(|| range_in(&folded, &it.folded)),
        };
        let Some(range) = found else {
            return Err(not_found(&naming, index, it, source));
        };
        let count = occurrences(&folded, &it.folded);
        if count > 1 {
            return Err(not_unique(&naming, index, it, &folded, count));
        }
        if range.is_empty() {
            // Blanks that are not there: their tolerant view is empty and would fit anywhere.
            return Err(not_found(&naming, index, it, source));
        }
        ranges.push(range);
    }
    let order = in_order(&naming, &ranges)?;
    if !tolerant {
        return exact_splices(&naming, source, &ranges, &order, wanted);
    }
    if !source.is_utf8() {
        return Err(not_utf8(path));
    }
    Ok(line_splices(source, &base, &ranges, &order, &wanted))
}

fn position(text: &str, part: &str) -> Option<usize> {
    memmem::find(text.as_bytes(), part.as_bytes())
}

fn range_in(text: &str, part: &str) -> Option<Range<usize>> {
    position(text, part).map(|start| start..start + part.len())
}

/// Counts how often an edit would fit, always in the tolerant view: what looks the same is not told apart.
fn occurrences(folded: &str, part: &str) -> usize {
    if part.is_empty() {
        // Blanks only. The recorded program counts the gaps between UTF-16 units here; it comes to a refusal.
        return folded.encode_utf16().count().saturating_sub(1);
    }
    memmem::find_iter(folded.as_bytes(), part.as_bytes()).count()
}

/// Sorts edits by position and refuses those that overlap.
fn in_order(naming: &Naming<'_>, ranges: &[Range<usize>]) -> Result<Vec<usize>, ToolError> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|index| ranges.get(*index).map(|range| range.start));
    for pair in order.windows(2) {
        let &[first, second] = pair else { continue };
        let (Some(a), Some(b)) = (ranges.get(first), ranges.get(second)) else {
            continue;
        };
        if a.end > b.start {
            return Err(ToolError::new(
                ErrorClass::Overlap,
                format!(
                    "edits[{first}] and edits[{second}] overlap in {}; merge them into one edit or make them smaller",
                    naming.path
                ),
            ));
        }
    }
    Ok(order)
}

fn exact_splices(
    naming: &Naming<'_>,
    source: &Source<'_>,
    ranges: &[Range<usize>],
    order: &[usize],
    mut wanted: Vec<Wanted>,
) -> Result<Matched, ToolError> {
    let mut splice_of_edit = vec![0; order.len()];
    let mut splices = Vec::with_capacity(order.len());
    for index in order {
        let (Some(range), Some(it)) = (ranges.get(*index), wanted.get_mut(*index)) else {
            continue;
        };
        if source.is_damaged(range) {
            return Err(not_utf8(naming.path));
        }
        if let Some(place) = splice_of_edit.get_mut(*index) {
            *place = splices.len();
        }
        splices.push(Splice {
            range: range.clone(),
            text: std::mem::take(&mut it.new),
        });
    }
    Ok(Matched {
        splices,
        splice_of_edit,
    })
}

/// In the tolerant view whole lines are replaced: touched lines take their tolerant form, all others keep their bytes.
fn line_splices(
    source: &Source<'_>,
    base: &str,
    ranges: &[Range<usize>],
    order: &[usize],
    wanted: &[Wanted],
) -> Matched {
    let base_lines = line_starts(base);
    let text_lines = line_starts(&source.text);
    let mut splice_of_edit = vec![0; order.len()];
    let mut groups: Vec<(Range<usize>, Vec<usize>)> = Vec::new();
    for index in order {
        let Some(range) = ranges.get(*index) else {
            continue;
        };
        let lines = lines_of(&base_lines, range);
        match groups.last_mut() {
            Some((group, members)) if lines.start < group.end => {
                group.end = group.end.max(lines.end);
                members.push(*index);
            }
            _ => groups.push((lines, vec![*index])),
        }
    }
    let splices = groups
        .into_iter()
        .enumerate()
        .map(|(place, (lines, members))| {
            let span = bytes_of(&base_lines, base.len(), &lines);
            let mut text = String::new();
            let mut at = span.start;
            for index in members {
                let (Some(range), Some(it)) = (ranges.get(index), wanted.get(index)) else {
                    continue;
                };
                if let Some(of) = splice_of_edit.get_mut(index) {
                    *of = place;
                }
                text.push_str(base.get(at..range.start).unwrap_or_default());
                text.push_str(&it.new);
                at = range.end;
            }
            text.push_str(base.get(at..span.end).unwrap_or_default());
            Splice {
                range: bytes_of(&text_lines, source.text.len(), &lines),
                text,
            }
        })
        .collect();
    Matched {
        splices,
        splice_of_edit,
    }
}

/// Offsets at which lines start. An empty text has one line.
pub(super) fn line_starts(text: &str) -> Vec<usize> {
    let mut starts = vec![0];
    starts.extend(memchr::memchr_iter(b'\n', text.as_bytes()).map(|feed| feed + 1));
    if starts.len() > 1 && starts.last() == Some(&text.len()) {
        starts.pop();
    }
    starts
}

/// Lines that a range touches.
pub(super) fn lines_of(starts: &[usize], range: &Range<usize>) -> Range<usize> {
    let line = |offset: usize| {
        starts
            .partition_point(|start| *start <= offset)
            .saturating_sub(1)
    };
    let last = range.end.saturating_sub(1).max(range.start);
    line(range.start)..line(last) + 1
}

/// Offsets of whole lines.
pub(super) fn bytes_of(starts: &[usize], len: usize, lines: &Range<usize>) -> Range<usize> {
    let at = |line: usize| starts.get(line).copied().unwrap_or(len);
    at(lines.start)..at(lines.end)
}

/// How messages name an edit: by its place in the call when there are several.
struct Naming<'a> {
    path: &'a str,
    n_edits: usize,
}

impl Naming<'_> {
    fn old_text(&self, index: usize) -> String {
        match self.n_edits {
            1 => "oldText".to_owned(),
            _ => format!("edits[{index}].oldText"),
        }
    }

    fn error(&self, class: ErrorClass, index: usize, what: &str) -> ToolError {
        let nothing = match self.n_edits {
            1 => "",
            _ => " Nothing was changed: all edits of a call apply or none.",
        };
        ToolError::new(
            class,
            format!(
                "{} for {} {what}.{nothing}",
                self.old_text(index),
                self.path
            ),
        )
    }
}

fn not_found(naming: &Naming<'_>, index: usize, it: &Wanted, source: &Source<'_>) -> ToolError {
    let hint = hint::nearest(&source.text, &it.old)
        .map(|hint| format!(" ({hint})"))
        .unwrap_or_default();
    naming.error(
        ErrorClass::NotFoundText,
        index,
        &format!(
            "was not found{hint}. It must be the text of the file as it is now, with its exact white space and line breaks; read the file again and copy it from there"
        ),
    )
}

fn not_unique(
    naming: &Naming<'_>,
    index: usize,
    it: &Wanted,
    folded: &str,
    count: usize,
) -> ToolError {
    let lines = hint::lines_of_matches(folded, &it.folded)
        .map(|lines| format!(", at lines {lines}"))
        .unwrap_or_default();
    naming.error(
        ErrorClass::NotUnique,
        index,
        &format!(
            "occurs {count} times{lines}; it must occur once. Add neighbouring lines to it until it is unique"
        ),
    )
}

fn not_utf8(path: &str) -> ToolError {
    ToolError::new(
        ErrorClass::NotUtf8,
        format!(
            "{path} is not UTF-8 where this edit would change it, so its bytes cannot be kept; nothing was changed. Use a shorter oldText made of plain ASCII text that is in the file exactly, or change the file with bash"
        ),
    )
}
