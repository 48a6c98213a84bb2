//! JSON as JavaScript reads and writes it: tolerant reading, and text whose length equals `JSON.stringify`.

use std::fmt::Write as _;

use serde::Deserialize as _;
use serde_json::Value;

/// Containers nested deeper than this read as `null`. Files keep the text; only what is held in memory is cut, so that
/// no walk over a value can run out of stack.
const MAX_DEPTH: usize = 400;

/// Reads JSON that [`super::Entry`] accepted: lone surrogate escapes become U+FFFD, numbers beyond the range of a double
/// its greatest value, and what lies too deep `null`.
pub fn parse(text: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    let mended = mend(text);
    let mut reader = serde_json::Deserializer::from_str(&mended);
    reader.disable_recursion_limit();
    let value = Value::deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(value)
}

/// Rewrites what `serde_json` refuses and JavaScript accepts.
fn mend(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut depth = 0usize;
    while let Some(first) = rest.bytes().next() {
        let taken = match first {
            b'"' => {
                let len = string_len(rest);
                if depth <= MAX_DEPTH {
                    mend_string(rest.get(..len).unwrap_or(rest), &mut out);
                }
                len
            }
            b'{' | b'[' => {
                depth += 1;
                match depth {
                    _ if depth <= MAX_DEPTH => out.push(char::from(first)),
                    _ if depth == MAX_DEPTH + 1 => out.push_str("null"),
                    _ => {}
                }
                1
            }
            b'}' | b']' => {
                if depth <= MAX_DEPTH {
                    out.push(char::from(first));
                }
                depth = depth.saturating_sub(1);
                1
            }
            b'-' | b'0'..=b'9' => {
                let end =
                    |byte: u8| !matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let len = rest.bytes().position(end).unwrap_or(rest.len());
                if depth <= MAX_DEPTH {
                    mend_number(rest.get(..len).unwrap_or(rest), &mut out);
                }
                len
            }
            _ => {
                let len = rest.chars().next().map_or(1, char::len_utf8);
                if depth <= MAX_DEPTH {
                    out.push_str(rest.get(..len).unwrap_or_default());
                }
                len
            }
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    out
}

/// Length of the string literal at the start, with its quotes.
fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn mend_number(text: &str, out: &mut String) {
    match text.parse::<f64>() {
        Ok(number) if number.is_infinite() => {
            out.push_str(if number > 0.0 {
                "1.7976931348623157e308"
            } else {
                "-1.7976931348623157e308"
            });
        }
        _ => out.push_str(text),
    }
}

/// Copies a string literal; escapes of surrogates without their partner become U+FFFD.
fn mend_string(text: &str, out: &mut String) {
    let unit = |at: usize| -> Option<u16> {
        let hex = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(hex, 16).ok()
    };
    let mut at = 0;
    while let Some(next) = text.get(at..).and_then(|rest| rest.find('\\')) {
        out.push_str(text.get(at..at + next).unwrap_or_default());
        at += next;
        let len = match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => 12,
            Some(0xd800..=0xdfff) => {
                out.push('\u{fffd}');
                at += 6;
                continue;
            }
            Some(_) => 6,
            None => 2,
        };
        out.push_str(text.get(at..at + len).unwrap_or_default());
        at += len;
    }
    out.push_str(text.get(at..).unwrap_or_default());
}

/// Writes a value as `JSON.stringify` does: no spaces, raw non-ASCII, JavaScript's numbers.
pub fn stringify(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (at, (key, item)) in fields.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_string(key, out);
                out.push(':');
                write(item, out);
            }
            out.push('}');
        }
    }
}

/// Appends a string literal.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut done = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(text.get(done..at).unwrap_or_default());
        if escape.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.push_str(escape);
        }
        done = at + 1;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out.push('"');
}

/// Greatest integer up to which JavaScript is exact.
const SAFE: u64 = 1 << 53;

fn write_number(number: &serde_json::Number, out: &mut String) {
    let exact = number.as_u64().is_some_and(|n| n <= SAFE)
        || number.as_i64().is_some_and(|n| n.unsigned_abs() <= SAFE);
    if exact {
        // Writing to a String cannot fail.
        let _ = write!(out, "{number}");
    } else {
        out.push_str(&number_text(number.as_f64().unwrap_or(0.0)));
    }
}

/// Returns the text of a number as JavaScript's `String(n)` gives it.
pub fn number_text(number: f64) -> String {
    if number == 0.0 {
        return "0".into();
    }
    if !number.is_finite() {
        return "null".into();
    }
    // Rust's `{:e}` gives the shortest digits that read back the same: d.ddde±x.
    let scientific = format!("{:e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let (count, point) = (i32::try_from(digits.len()).unwrap_or(0), exponent + 1);
    let zeros = |n: i32| "0".repeat(usize::try_from(n).unwrap_or(0));
    let body = if count <= point && point <= 21 {
        format!("{digits}{}", zeros(point - count))
    } else if 0 < point && point <= 21 {
        let (whole, part) = digits.split_at(usize::try_from(point).unwrap_or(0));
        format!("{whole}.{part}")
    } else if -6 < point && point <= 0 {
        format!("0.{}{digits}", zeros(-point))
    } else {
        let (head, tail) = digits.split_at(1);
        let dot = if tail.is_empty() { "" } else { "." };
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{head}{dot}{tail}e{sign}{}", exponent.abs())
    };
    if number < 0.0 {
        format!("-{body}")
    } else {
        body
    }
}

/// Returns the length in UTF-16 code units.
pub fn utf16_len(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    text.chars().map(char::len_utf16).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_read_as_in_javascript() {
        for (number, text) in [
            (1e21, "1e+21"),
            (1e-7, "1e-7"),
            (-0.0, "0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (12345678901234567000.0, "12345678901234567000"),
            (1.5e-6, "0.0000015"),
            (1.25e25, "1.25e+25"),
            (-123.456, "-123.456"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(number_text(number), text);
        }
        assert_eq!(
            stringify(&json!(12345678901234567890u64)),
            "12345678901234567000"
        );
        assert_eq!(stringify(&json!(-5)), "-5");
    }

    #[test]
    fn text_is_escaped_as_in_javascript() {
        let text = "a\"\\\n\t\u{1}\u{2028}é\u{7f}";
        assert_eq!(
            stringify(&json!(text)),
            "\"a\\\"\\\\\\n\\t\\u0001\u{2028}é\u{7f}\""
        );
    }

    #[test]
    fn lone_surrogates_deep_values_and_huge_numbers_are_read() {
        assert_eq!(
            parse(r#""a\ud83d b\ude00\ud83d\ude00\\ud83d""#),
            Some(json!("a\u{fffd} b\u{fffd}😀\\ud83d"))
        );
        assert_eq!(parse("[1e999,-1e999]"), Some(json!([f64::MAX, f64::MIN])));
        let deep = format!("{{\"k\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let mut value = parse(&deep).unwrap();
        let mut depth = 0;
        value = value["k"].take();
        while let Value::Array(mut items) = value {
            value = items.remove(0);
            depth += 1;
        }
        assert_eq!((depth, value), (MAX_DEPTH - 1, Value::Null));
    }

    #[test]
    fn values_deeper_than_128_keep_their_content() {
        let deep = format!("{}7{}", "[".repeat(200), "]".repeat(200));
        assert_eq!(parse(&deep).map(|value| stringify(&value)), Some(deep));
    }

    proptest::proptest! {
        #[test]
        fn mending_changes_nothing_that_reads_already(text in "[ -~é😀]{0,40}") {
            let json = serde_json::to_string(&text).unwrap();
            proptest::prop_assert_eq!(mend(&json), json);
        }
    }
}
