//! Masking: a key that was resolved for a request never leaves this module's users in a text.

use secrecy::{ExposeSecret, SecretString};

/// What stands where a secret was.
pub const MASK: &str = "[secret]";

/// Words people put where a local server wants some key; they hide nothing.
const PLACEHOLDERS: [&str; 12] = [
    "none",
    "dummy",
    "local",
    "ollama",
    "lmstudio",
    "lm-studio",
    "vllm",
    "llama.cpp",
    "empty",
    "no-key",
    "test",
    "fake",
];

/// The secrets of one request.
#[derive(Clone, Debug, Default)]
pub struct Mask {
    secrets: Vec<SecretString>,
}

impl Mask {
    /// Adds a secret; very short ones and the usual placeholders are no secrets.
    pub fn add(&mut self, secret: &str) {
        let secret = secret.trim();
        let known = PLACEHOLDERS
            .iter()
            .any(|word| secret.eq_ignore_ascii_case(word));
        if secret.len() >= 4 && !known {
            self.secrets.push(SecretString::from(secret.to_owned()));
            self.secrets
                .sort_by_key(|have| std::cmp::Reverse(have.expose_secret().len()));
        }
    }

    /// Returns the text with every secret replaced, also where it stands escaped in JSON or percent-encoded in a URL.
    pub fn apply(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for secret in &self.secrets {
            let secret = secret.expose_secret();
            for form in forms(secret) {
                out = if form.len() >= 8 {
                    out.replace(&form, MASK)
                } else {
                    replace_word(&out, &form)
                };
            }
        }
        out
    }
}

/// The ways in which a server may write a secret back.
fn forms(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned()];
    let escaped = serde_json::Value::from(secret).to_string();
    let escaped = escaped.trim_matches('"').to_owned();
    let encoded = percent_encoding::utf8_percent_encode(secret, percent_encoding::NON_ALPHANUMERIC);
    for form in [escaped, encoded.to_string()] {
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms
}

/// Replaces a short secret only where it stands alone, so that it does not eat parts of words.
fn replace_word(text: &str, word: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(word) {
        let joined = |c: char| c.is_alphanumeric();
        let inside = before.chars().next_back().is_some_and(joined)
            || after.chars().next().is_some_and(joined);
        out.push_str(before);
        out.push_str(if inside { word } else { MASK });
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_masked() {
        let mut mask = Mask::default();
        mask.add("sk-\"SECRET/123");
        mask.add("abcd");
        mask.add("ollama");
        let text =
            r#"key sk-"SECRET/123, {"k":"sk-\"SECRET/123"} sk%2D%22SECRET%2F123 abcd abcde ollama"#;
        assert_eq!(
            mask.apply(text),
            r#"key [secret], {"k":"[secret]"} [secret] [secret] abcde ollama"#
        );
        assert!(!format!("{mask:?}").contains("SECRET"));
    }
}
