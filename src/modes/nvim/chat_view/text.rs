//! Text on its way to a buffer line: no control codes, no endless lines.

use std::fmt::Write as _;

/// Longest line that is shown, in characters.
const LINE_LIMIT: usize = 2_000;

/// Splits text into lines; the ending may be any of the three. A text without a line gives one empty line.
pub fn lines(text: &str) -> Vec<String> {
    text.replace("\r\n", "\n")
        .split('\n')
        .map(|line| line.replace('\r', ""))
        .collect()
}

/// Cuts a line that is too long to show.
pub fn clip(line: &str) -> String {
    clip_to(line, LINE_LIMIT)
}

/// Cuts a text after `limit` characters, at the border of a character.
pub fn clip_to(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Returns the first line, cut to `limit` characters.
pub fn first_line(text: &str, limit: usize) -> String {
    let mut lines = text.trim().lines();
    let first = clip_to(lines.next().unwrap_or_default(), limit);
    match lines.next() {
        Some(_) if !first.ends_with('…') => format!("{first} …"),
        _ => first,
    }
}

/// Lines of a program's output as a terminal would leave them: escape sequences gone, a lone carriage return starts the
/// line again, other control characters shown as `^X`.
pub fn terminal_lines(text: &str) -> Vec<String> {
    let plain = strip_escapes(text);
    let mut out: Vec<String> = plain
        .split('\n')
        .map(|line| {
            let line = line.strip_suffix('\r').unwrap_or(line);
            let kept = line.rsplit('\r').next().unwrap_or(line);
            visible(kept)
        })
        .collect();
    while out.last().is_some_and(String::is_empty) {
        out.pop();
    }
    out
}

fn visible(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '\t' => out.push(c),
            '\0'..='\x1f' => {
                let letter = char::from(u8::try_from(u32::from(c)).unwrap_or(0) + b'@');
                out.push('^');
                out.push(letter);
            }
            '\x7f' => out.push_str("^?"),
            _ => out.push(c),
        }
    }
    out
}

/// Removes ANSI escape sequences (CSI, OSC and two-character ones).
pub fn strip_escapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\x1b' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('[') => while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
            Some(']') => {
                while let Some(c) = chars.next() {
                    if c == '\x07' || (c == '\x1b' && chars.next_if_eq(&'\\').is_some()) {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    out
}

/// Puts lines into a code fence that no line inside can close.
pub fn fenced(lines: Vec<String>, language: &str) -> Vec<String> {
    let longest = lines
        .iter()
        .flat_map(|line| line.split(|c| c != '`').map(str::len))
        .max()
        .unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    let mut out = vec![format!("{fence}{language}")];
    out.extend(lines);
    out.push(fence);
    out
}

/// `12s`, `3m05s`, `840ms`.
pub fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{:.1}s", ms as f64 / 1000.0),
        _ => format!("{}m{:02}s", ms / 60_000, ms / 1000 % 60),
    }
}

/// `840`, `84k`, `1.2M`.
pub fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..10_000 => format!("{:.1}k", count as f64 / 1e3),
        10_000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{:.1}M", count as f64 / 1e6),
    }
}

/// Local time of day, `14:02`.
pub fn clock(unix_ms: i64) -> String {
    let Ok(time) = jiff::Timestamp::from_millisecond(unix_ms) else {
        return String::new();
    };
    let local = time.to_zoned_datetime(jiff::tz::TimeZone::system());
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(out, "{:02}:{:02}", local.hour(), local.minute());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn escapes_go_and_progress_lines_keep_their_last_state() {
        assert_eq!(terminal_lines("a\x1b[31mb\x1b[0m\r\nx\ry\n"), ["ab", "y"]);
        assert_eq!(terminal_lines("\x1b]0;title\x07t\x01\tz\0"), ["t^A\tz^@"]);
        assert_eq!(
            terminal_lines("\x1b]8;;u\x1b\\link\x1b]8;;\x1b\\"),
            ["link"]
        );
        assert_eq!(terminal_lines(""), Vec::<String>::new());
    }

    #[test]
    fn a_fence_is_longer_than_any_inside() {
        let out = fenced(vec!["a ```` b".into()], "sh");
        assert_eq!(out, ["`````sh", "a ```` b", "`````"]);
    }

    #[test]
    fn long_lines_are_cut_at_a_character() {
        assert_eq!(clip_to("äöü", 2), "äö…");
        assert_eq!(clip_to("äö", 2), "äö");
        assert_eq!(first_line("  one\ntwo", 20), "one …");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            (tokens(84_300), tokens(1_250), tokens(999)),
            ("84k".into(), "1.2k".into(), "999".into())
        );
        assert_eq!(
            (duration(840), duration(12_340), duration(185_000)),
            ("840ms".into(), "12.3s".into(), "3m05s".into())
        );
    }
}
