//! A change as plain lines: for binary and huge files, and for those who read text and not colours.

use serde_json::{Value, json};

use super::model::{base_bytes, is_binary, is_crlf, shown, target_bytes};
use crate::review::{Hunk, Proposal};

/// Equal lines shown around a hunk.
const CONTEXT: usize = 3;
/// Longest line and longest hunk shown.
const MAX_CHARS: usize = 2_000;
const MAX_LINES: usize = 400;
/// Bytes of a binary file shown.
const HEX_BYTES: usize = 128;

/// The lines and where each hunk stands in them.
pub(super) struct Digest {
    pub(super) lines: Vec<String>,
    pub(super) rows: Vec<Value>,
}

/// Lists the hunks of a proposal with some lines around each.
pub(super) fn digest(proposal: &Proposal) -> Digest {
    let (base, target) = (base_bytes(proposal), target_bytes(proposal));
    if is_binary(base) || is_binary(target) {
        return binary(proposal);
    }
    let crlf = is_crlf(if base.is_empty() { target } else { base });
    let base: Vec<&[u8]> = base.split_inclusive(|byte| *byte == b'\n').collect();
    let mut out = Digest {
        lines: Vec::new(),
        rows: Vec::new(),
    };
    for hunk in &proposal.hunks {
        let first = out.lines.len();
        out.lines.push(head(hunk, proposal.hunks.len()));
        let before = hunk.row.saturating_sub(CONTEXT)..hunk.row;
        let end = hunk.row + hunk.old.len();
        let after = end..(end + CONTEXT).min(base.len());
        out.around(&base, before, crlf);
        out.side('-', &hunk.old, crlf);
        out.side('+', &hunk.new, crlf);
        out.around(&base, after, crlf);
        out.place(hunk, first);
    }
    out
}

fn head(hunk: &Hunk, count: usize) -> String {
    let label = hunk.label.as_ref();
    let label = label.map_or_else(String::new, |label| format!(" {label}"));
    format!(
        "@@ hunk {} of {count}: line {}, -{} +{} @@{label}",
        hunk.index + 1,
        hunk.row + 1,
        hunk.old.len(),
        hunk.new.len()
    )
}

impl Digest {
    fn around(&mut self, base: &[&[u8]], range: std::ops::Range<usize>, crlf: bool) {
        for line in base.get(range).unwrap_or_default() {
            self.push(' ', line, crlf);
        }
    }

    fn side(&mut self, sign: char, lines: &[Vec<u8>], crlf: bool) {
        for line in lines.iter().take(MAX_LINES) {
            self.push(sign, line, crlf);
        }
        if lines.len() > MAX_LINES {
            let more = lines.len() - MAX_LINES;
            self.lines.push(format!("{sign}… {more} more lines"));
        }
    }

    fn push(&mut self, sign: char, line: &[u8], crlf: bool) {
        let mut text: String = shown(line, crlf).chars().take(MAX_CHARS).collect();
        text.insert(0, sign);
        self.lines.push(text);
    }

    fn place(&mut self, hunk: &Hunk, first: usize) {
        let last = self.lines.len().saturating_sub(1);
        self.rows
            .push(json!({"hunk": hunk.id.0, "first": first, "last": last}));
        self.lines.push(String::new());
    }
}

fn binary(proposal: &Proposal) -> Digest {
    let (base, target) = (base_bytes(proposal), target_bytes(proposal));
    let mut out = Digest {
        lines: vec![format!(
            "Not text: {} bytes now, {} bytes proposed. Accept or reject it whole.",
            base.len(),
            target.len()
        )],
        rows: Vec::new(),
    };
    out.lines.push(String::new());
    for (sign, bytes) in [('-', base), ('+', target)] {
        for (row, part) in bytes
            .get(..HEX_BYTES.min(bytes.len()))
            .unwrap_or_default()
            .chunks(16)
            .enumerate()
        {
            let hex: Vec<String> = part.iter().map(|byte| format!("{byte:02x}")).collect();
            out.lines
                .push(format!("{sign}{:06x}  {}", row * 16, hex.join(" ")));
        }
    }
    let last = out.lines.len() - 1;
    for hunk in &proposal.hunks {
        out.rows
            .push(json!({"hunk": hunk.id.0, "first": 0, "last": last}));
    }
    out
}
