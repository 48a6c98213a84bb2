//! The order of names: as the root collation of Unicode has it for ASCII, accented letters beside their base.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Printable ASCII in collation order; letters are compared in lower case.
const ORDER: &str = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz";

/// First the base characters, then what tells equal bases apart.
pub(super) type Key = (Vec<u32>, String);

/// Returns the sort key of a name.
pub(super) fn key(name: &str) -> Key {
    let lower: String = name.to_lowercase().nfd().collect();
    let bases = lower
        .chars()
        .filter(|c| !is_combining_mark(*c))
        .map(weight)
        .collect();
    (bases, lower)
}

fn weight(c: char) -> u32 {
    const ORDERED: u32 = 0x100;
    const OTHERS: u32 = 0x200;
    match ORDER.find(c) {
        Some(at) => ORDERED + u32::try_from(at).unwrap_or_default(),
        None if c.is_ascii_control() => u32::from(c),
        None => OTHERS + u32::from(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_people() {
        let mut names = vec![
            "z", "é", "f", "e", "10", "1", "2", "a_b", "ab", "a.b", "a-b", ".a", "_a", "B", "-a",
            "a", "你",
        ];
        names.sort_by_key(|name| key(name));
        assert_eq!(
            names,
            [
                "_a", "-a", ".a", "1", "10", "2", "a", "a_b", "a-b", "a.b", "ab", "B", "e", "é",
                "f", "z", "你"
            ]
        );
    }
}
