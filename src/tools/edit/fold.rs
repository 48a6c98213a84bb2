//! The tolerant view of a text: what is hard to see or to type counts as its plain form.
//!
//! Compatibility forms (NFKC), trailing white space of each line, curly quotes, dashes and odd spaces. Inner and leading
//! white space, case and tabs are kept: they carry meaning. The number of lines never changes.

use std::borrow::Cow;

use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfkc_quick};

/// Returns the tolerant view.
pub(super) fn fold(text: &str) -> Cow<'_, str> {
    if !needs_folding(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (body, end) = match line.strip_suffix('\n') {
            Some(body) => (body, "\n"),
            None => (line, ""),
        };
        fold_line(body, &mut out);
        out.push_str(end);
    }
    Cow::Owned(out)
}

fn needs_folding(text: &str) -> bool {
    !text.is_ascii()
        || text
            .split('\n')
            .any(|line| line.ends_with(is_trailing_space))
}

fn fold_line(line: &str, out: &mut String) {
    if line.is_ascii() {
        out.push_str(line.trim_end_matches(is_trailing_space));
        return;
    }
    let line = match is_nfkc_quick(line.chars()) {
        IsNormalized::Yes => Cow::Borrowed(line),
        _ => Cow::Owned(line.nfkc().collect::<String>()),
    };
    let line = line.trim_end_matches(is_trailing_space);
    out.extend(line.chars().map(plain));
}

/// White space as JavaScript trims it: with U+FEFF, without U+0085.
fn is_trailing_space(c: char) -> bool {
    matches!(
        c,
        '\t' | '\u{b}' | '\u{c}' | '\r' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'
            ..='\u{200a}'
                | '\u{2028}'
                | '\u{2029}'
                | '\u{202f}'
                | '\u{205f}'
                | '\u{3000}'
                | '\u{feff}'
    )
}

fn plain(c: char) -> char {
    match c {
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_hard_to_see_becomes_plain() {
        assert_eq!(fold("a  \n\tb\t\n c"), "a\n\tb\n c");
        assert_eq!(fold("“q” ‘s’ – — −"), "\"q\" 's' - - -");
        assert_eq!(fold("a\u{a0}= 1\u{2003}"), "a = 1");
        assert_eq!(fold("ﬁ … ２ ²"), "fi ... 2 2");
        assert_eq!(fold("e\u{301}"), "é");
        assert_eq!(fold("a\u{feff}\na\u{85}"), "a\na\u{85}");
        assert_eq!(fold("a\u{200b}b  c"), "a\u{200b}b  c");
        assert!(matches!(fold("plain\ntext\n"), Cow::Borrowed(_)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::testing::cases()))]

        #[test]
        fn lines_stay_lines_and_folding_twice_is_folding_once(text in "(?s)[ a\\t\\n\\r“‘—\u{a0}\u{3000}\u{feff}é\u{301}ﬁ２가\u{1161}]{0,30}") {
            let folded = fold(&text).into_owned();
            prop_assert_eq!(folded.matches('\n').count(), text.matches('\n').count());
            prop_assert_eq!(fold(&folded).into_owned(), folded);
        }
    }
}
