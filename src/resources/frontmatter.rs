//! The YAML head that skills and prompt templates share.

use serde_json::{Map, Value};

/// A file split into head and body.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Document {
    /// Fields of the head; empty when there is none.
    pub(super) fields: Map<String, Value>,
    /// The rest: trimmed behind a head, untouched without one. Line ends are `\n`.
    pub(super) body: String,
}

impl Document {
    /// Splits `text` (without BOM).
    ///
    /// # Errors
    /// One line from the YAML parser.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let Some((yaml, body)) = split(&text) else {
            return Ok(Self {
                fields: Map::new(),
                body: text,
            });
        };
        let body = trim(body).to_owned();
        Ok(Self {
            fields: parse_fields(yaml)?,
            body,
        })
    }

    /// Returns a field that is a string.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str)
    }
}

/// Only the first three characters are looked at, so `----` opens a head as well; what the reference does.
fn split(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix("---")?;
    let end = rest.find("\n---")?;
    let yaml = rest.get(..end)?;
    let after_first = yaml.chars().next().map_or(0, char::len_utf8);
    Some((yaml.get(after_first..)?, rest.get(end + 4..)?))
}

fn parse_fields(yaml: &str) -> Result<Map<String, Value>, String> {
    if trim(yaml).is_empty() {
        return Ok(Map::new());
    }
    // Strict booleans: YAML 1.2, where `yes` is a word.
    let options = serde_saphyr::options! { strict_booleans: true };
    match serde_saphyr::from_str_with_options::<Value>(yaml, options) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Ok(Map::new()),
        Err(err) => Err(err
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()),
    }
}

/// White space as the reference's language counts it: Unicode's, without U+0085, with the BOM.
pub(super) fn is_space(c: char) -> bool {
    (c.is_whitespace() && c != '\u{85}') || c == '\u{feff}'
}

/// Cuts that white space off both ends.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_is_version_1_2() {
        let it = Document::parse("---\na: yes\nb: 12\nc: true\nd: ~\ne: {1: x}\n---\n").unwrap();
        assert_eq!(
            Value::Object(it.fields),
            serde_json::json!({"a": "yes", "b": 12, "c": true, "d": null, "e": {"1": "x"}})
        );
        assert!(Document::parse("---\na: 1\na: 2\n---\n").is_err());
        assert!(Document::parse("---\na: x: y\n---\n").is_err());
        assert!(Document::parse("---\na: [b\n---\n").is_err());
    }

    #[test]
    fn odd_heads_never_panic() {
        for text in [
            "---",
            "---\n---",
            "---é\n---",
            "---\n\n---x",
            "--",
            "---\u{1F600}\n---",
        ] {
            drop(Document::parse(text));
        }
        assert_eq!(Document::parse("---\n- list\n---\nx").unwrap().body, "x");
    }
}
