//! Making output safe to display: escape sequences and control characters removed, also when a sequence is split over
//! two pieces.

/// An unfinished sequence longer than this is taken for text.
const MAX_HELD: usize = 256;

/// Cleans text piece by piece.
#[derive(Debug, Default)]
pub struct Cleaner {
    /// Beginning of a sequence whose rest has not come yet.
    held: String,
}

impl Cleaner {
    /// Cleans the next piece into `out`.
    pub fn feed(&mut self, piece: &str, out: &mut String) {
        let joined;
        let mut rest = if self.held.is_empty() {
            piece
        } else {
            self.held.push_str(piece);
            joined = std::mem::take(&mut self.held);
            &joined
        };
        while let Some(at) = rest.find(is_special) {
            let (plain, special) = rest.split_at(at);
            out.push_str(plain);
            rest = match sequence(special) {
                Sequence::Of(length) => special.get(length..).unwrap_or_default(),
                Sequence::Unfinished if units(special) <= MAX_HELD => {
                    special.clone_into(&mut self.held);
                    return;
                }
                Sequence::Unfinished | Sequence::None => {
                    let mut chars = special.chars();
                    chars.next();
                    chars.as_str()
                }
            };
        }
        out.push_str(rest);
    }

    /// Ends the text: what is left of an unfinished sequence is shown without its control characters.
    pub fn finish(&mut self, out: &mut String) {
        let held = std::mem::take(&mut self.held);
        out.extend(held.chars().filter(|c| !is_special(*c)));
    }
}

/// Cleans a whole text.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut cleaner = Cleaner::default();
    cleaner.feed(text, &mut out);
    cleaner.finish(&mut out);
    out
}

fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// Characters that are never shown.
fn is_special(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{9b}' | '\u{fff9}'..='\u{fffb}')
}

enum Sequence {
    /// One of this many bytes.
    Of(usize),
    /// The text ends inside one.
    Unfinished,
    /// None begins here.
    None,
}

/// Looks at an escape sequence at the start of `text`.
fn sequence(text: &str) -> Sequence {
    let mut chars = text.char_indices();
    match chars.next() {
        Some((_, '\u{9b}')) => control_sequence(chars),
        Some((_, '\u{1b}')) => match chars.clone().next() {
            None => Sequence::Unfinished,
            Some((_, ']')) => operating_system_command(text),
            Some((_, '[')) => {
                chars.next();
                control_sequence(chars)
            }
            Some(_) => plain_escape(chars),
        },
        _ => Sequence::None,
    }
}

fn control_sequence(mut chars: std::str::CharIndices<'_>) -> Sequence {
    let last = chars.find(|(_, c)| !matches!(c, '0'..='?' | ' '..='/'));
    match last {
        Some((at, '@'..='~')) => Sequence::Of(at + 1),
        Some(_) => Sequence::None,
        None => Sequence::Unfinished,
    }
}

fn plain_escape(mut chars: std::str::CharIndices<'_>) -> Sequence {
    match chars.find(|(_, c)| !matches!(c, ' '..='/')) {
        Some((at, '0'..='~')) => Sequence::Of(at + 1),
        Some(_) => Sequence::None,
        None => Sequence::Unfinished,
    }
}

fn operating_system_command(text: &str) -> Sequence {
    let end = |mark: &str| text.find(mark).map(|at| at + mark.len());
    let ends = [end("\u{7}"), end("\u{1b}\\"), end("\u{9c}")];
    match ends.into_iter().flatten().min() {
        Some(length) => Sequence::Of(length),
        None => Sequence::Unfinished,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sequences_and_control_characters_go() {
        for (dirty, tidy) in [
            ("a\u{1b}[31mb\u{1b}[0m", "ab"),
            ("\u{1b}[?25l\u{1b}[38;2;1;2;3mx\u{1b}[>4;2m", "x"),
            ("\u{1b}]0;title\u{7}x\u{1b}]8;;http://x\u{1b}\\y", "xy"),
            ("\u{9b}1mx", "x"),
            ("\u{1b}(Bx\u{1b}=y\u{1b}7", "xy"),
            ("a\rb\r\nc\td\u{7}\u{0}", "ab\nc\td"),
            ("\u{fff9}x\u{fffb}", "x"),
            ("a\u{1b}", "a"),
            ("a\u{1b}[3", "a[3"),
        ] {
            assert_eq!(clean(dirty), tidy, "{dirty:?}");
        }
    }

    #[test]
    fn a_split_colour_leaves_nothing() {
        let (mut cleaner, mut out) = (Cleaner::default(), String::new());
        cleaner.feed("a\u{1b}[3", &mut out);
        cleaner.feed("1mb\n", &mut out);
        cleaner.finish(&mut out);
        assert_eq!(out, "ab\n");
    }

    #[test]
    fn an_endless_sequence_is_let_go() {
        let (mut cleaner, mut out) = (Cleaner::default(), String::new());
        cleaner.feed("\u{1b}]", &mut out);
        for _ in 0..1000 {
            cleaner.feed("x", &mut out);
        }
        assert!(out.len() > 700 && cleaner.held.len() <= MAX_HELD);
    }

    proptest! {
        #[test]
        fn pieces_clean_as_the_whole(
            parts in proptest::collection::vec(prop_oneof![
                Just("\u{1b}[31m"), Just("\u{1b}]0;t\u{7}"), Just("a"), Just("\r\n"), Just("\u{1b}(B"), Just("é"),
            ], 0..12),
            at in 0usize..60,
        ) {
            let text = parts.concat();
            let at = crate::tools::truncate::ceil_char_boundary(&text, at);
            let (mut cleaner, mut out) = (Cleaner::default(), String::new());
            cleaner.feed(&text[..at], &mut out);
            cleaner.feed(&text[at..], &mut out);
            cleaner.finish(&mut out);
            prop_assert_eq!(out, clean(&text));
        }
    }
}
