//! JSON with line comments and trailing commas.

/// Blanks out a byte-order mark, `//` comments and commas before a closing bracket; everything else keeps its place, so
/// that positions in error texts stay true.
pub(super) fn strip(text: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut out = String::with_capacity(text.len());
    let mut comma: Option<usize> = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                comma = None;
                out.push(c);
                while let Some(inner) = chars.next() {
                    out.push(inner);
                    match inner {
                        '\\' => out.extend(chars.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '/' if chars.peek() == Some(&'/') => {
                while chars.next_if(|next| *next != '\n').is_some() {}
            }
            ',' => {
                comma = Some(out.len());
                out.push(c);
            }
            ']' | '}' => {
                if let Some(at) = comma.take() {
                    out.replace_range(at..=at, " ");
                }
                out.push(c);
            }
            c => {
                if !c.is_whitespace() {
                    comma = None;
                }
                out.push(c);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn comments_and_trailing_commas_go_strings_stay() {
        let text = "\u{feff}{ // note, with \"quotes\"\n \"a\": [1, 2, // last\n ], \"b\": \"x, // ]\\\",}\", }";
        let value: serde_json::Value = serde_json::from_str(&super::strip(text)).unwrap();
        assert_eq!(value, serde_json::json!({"a": [1, 2], "b": "x, // ]\",}"}));
    }
}
