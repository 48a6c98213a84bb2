//! Expected values with placeholders, matched against real ones.

use std::collections::HashMap;

use regex::Regex;
use serde_json::Value;

/// Names bound so far, and what may differ in this case.
pub(super) struct Matcher {
    bound: HashMap<String, String>,
    /// Messages of the run's `message_end` records, for `$Mk`.
    pub(super) messages: Vec<Value>,
    /// Texts of results and errors are our own here: only their presence counts.
    pub(super) own_wording: bool,
    /// Commands were sent without waiting for their answers.
    pub(super) pipelined: bool,
}

impl Matcher {
    pub(super) fn new(messages: Vec<Value>, own_wording: bool) -> Self {
        Self {
            bound: HashMap::new(),
            messages,
            own_wording,
            pipelined: false,
        }
    }

    /// Compares; the error says where and how.
    pub(super) fn value(
        &mut self,
        expected: &Value,
        actual: &Value,
        at: &str,
    ) -> Result<(), String> {
        let differs = || {
            Err(format!(
                "{at}:\n  expected {}\n  actual   {}",
                short(expected),
                short(actual)
            ))
        };
        match (expected, actual) {
            (Value::String(pattern), actual) if is_mask(pattern, actual) => Ok(()),
            (Value::String(name), actual) if name.starts_with("$M") => {
                let index: usize = name[2..].parse().unwrap();
                match self.messages.get(index - 1) {
                    Some(message) if same_message(message, actual) => Ok(()),
                    Some(message) => Err(format!(
                        "{at} is not message {name}: {} against {}",
                        short(actual),
                        short(message)
                    )),
                    None => Err(format!("{at}: there is no message {name}")),
                }
            }
            (Value::Object(fields), Value::String(text)) if fields.contains_key("__sections") => {
                let names: Vec<Value> = sections(text).into_iter().map(Value::from).collect();
                self.value(
                    &fields["__sections"],
                    &Value::Array(names),
                    &format!("{at}.__sections"),
                )
            }
            (Value::Object(fields), Value::Array(blocks)) if fields.contains_key("__shape") => {
                let text = blocks
                    .iter()
                    .filter_map(|block| block["text"].as_str())
                    .collect::<Vec<_>>();
                self.value(
                    &fields["text"],
                    &Value::from(text.join("")),
                    &format!("{at}.text"),
                )
            }
            (Value::String(pattern), Value::String(text)) => {
                if self.text(pattern, text) || self.free_text(pattern, text, at) {
                    return Ok(());
                }
                differs()
            }
            (Value::Number(a), Value::Number(b)) => {
                if free_number(at) || close(a.as_f64().unwrap(), b.as_f64().unwrap()) {
                    return Ok(());
                }
                differs()
            }
            (Value::Array(a), Value::Array(b)) => {
                if a.len() != b.len() {
                    return differs();
                }
                for (index, (expected, actual)) in a.iter().zip(b).enumerate() {
                    let at = format!("{at}[{index}]");
                    // Declarations may be shortened to names.
                    let name = actual
                        .get("name")
                        .or_else(|| actual.get("function").and_then(|it| it.get("name")));
                    match (expected, name) {
                        (Value::String(_), Some(name))
                            if !expected.as_str().unwrap().starts_with('$') =>
                        {
                            self.value(expected, name, &at)?;
                        }
                        _ => self.value(expected, actual, &at)?,
                    }
                }
                Ok(())
            }
            (Value::Object(a), Value::Object(b)) => {
                for (key, expected) in a {
                    let at = format!("{at}.{key}");
                    match b.get(key) {
                        Some(actual) => self.value(expected, actual, &at)?,
                        None => {
                            return Err(format!("{at} is missing, expected {}", short(expected)));
                        }
                    }
                }
                match b.keys().find(|key| !a.contains_key(*key)) {
                    Some(key) => Err(format!("{at}.{key} is too much: {}", short(&b[key]))),
                    None => Ok(()),
                }
            }
            _ if expected == actual => Ok(()),
            _ => differs(),
        }
    }

    /// Matches a text with placeholders in it and binds ids.
    fn text(&mut self, pattern: &str, text: &str) -> bool {
        if pattern == text {
            return true;
        }
        let token = Regex::new(
            r#"<(UUID\d+|E\d+|ISO|FILE_TS|RAND|HEADER|S|MS|TEXT [^>]*|SECTION [a-z_]+|SUMMARIZATION_SYSTEM_PROMPT|SUMMARIZATION_INSTRUCTIONS|SPLIT_TURN_INSTRUCTIONS|DESC|HTML)>"#,
        )
        .unwrap();
        let mut regex = String::from("(?s)^");
        let mut names = Vec::new();
        let mut last = 0;
        for found in token.find_iter(pattern) {
            regex.push_str(&regex::escape(&pattern[last..found.start()]));
            let name = &pattern[found.start() + 1..found.end() - 1];
            regex.push_str(match name {
                _ if name.starts_with("UUID") => "([0-9A-Za-z._-]+)",
                _ if name.starts_with('E') => "([0-9a-f]{8})",
                "ISO" => r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)",
                "FILE_TS" => r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z)",
                "RAND" => "([0-9a-f]+)",
                "HEADER" => "([^\n]*)",
                _ => "(.*)",
            });
            names.push(name.to_owned());
            last = found.end();
        }
        if names.is_empty() {
            return false;
        }
        regex.push_str(&regex::escape(&pattern[last..]));
        regex.push('$');
        let Some(captured) = Regex::new(&regex).unwrap().captures(text) else {
            return false;
        };
        names.into_iter().enumerate().all(|(index, name)| {
            let value = captured[index + 1].to_owned();
            if name.starts_with("UUID") || name.starts_with('E') {
                return *self.bound.entry(name).or_insert_with(|| value.clone()) == value;
            }
            true
        })
    }

    /// Texts that may be worded otherwise.
    fn free_text(&self, expected: &str, actual: &str, at: &str) -> bool {
        let after = |text: &str| {
            text.split_once("<summary>")
                .map(|(_, rest)| rest.to_owned())
        };
        if let (Some(a), Some(b)) = (after(expected), after(actual)) {
            // The intro line before a summary is our own.
            return a == b || token_summary(&a, &b);
        }
        let free = [
            "Failed to parse command: ",
            "terminated",
            "Cannot read properties",
            "ENOENT",
        ];
        if free.iter().any(|head| expected.contains(head)) {
            return !actual.is_empty();
        }
        if at.ends_with("errorMessage") && (expected.contains("aborted") || self.own_wording) {
            return !actual.is_empty();
        }
        let is_text = at.contains("content[")
            || [".content", ".error", "argumentsError"]
                .iter()
                .any(|end| at.ends_with(end));
        self.own_wording && is_text && !actual.is_empty()
    }
}

fn token_summary(expected: &str, actual: &str) -> bool {
    expected.trim() == actual.trim()
}

fn is_mask(pattern: &str, actual: &Value) -> bool {
    match pattern {
        "<MS>" | "<S>" => actual.is_number(),
        "<USAGE>" => actual.is_object(),
        "<DESC>" => actual.is_string(),
        _ => false,
    }
}

fn free_number(at: &str) -> bool {
    [
        "estimatedTokensAfter",
        "tokensBefore",
        "durationMs",
        "wall_time_seconds",
    ]
    .iter()
    .any(|name| at.ends_with(name))
        || at.ends_with("contextUsage.tokens")
        || at.ends_with("contextUsage.percent")
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// A message told twice: the times of a start may be those of the end.
fn same_message(a: &Value, b: &Value) -> bool {
    let strip = |value: &Value| {
        let mut value = value.clone();
        if let Some(fields) = value.as_object_mut() {
            fields.remove("timestamp");
            fields.remove("durationMs");
        }
        value
    };
    strip(a) == strip(b)
}

/// Names of the sections of a rendered prompt: `preamble` and every tagged part.
fn sections(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let tag = rest
            .strip_prefix('<')
            .and_then(|after| after.split_once(">\n"))
            .map(|(name, _)| name.to_owned())
            .filter(|name| {
                name.chars()
                    .all(|c| c.is_ascii_lowercase() || c == '_' || c == '-')
            });
        match tag {
            Some(name) => {
                let close = format!("\n</{name}>");
                let Some(end) = rest.find(&close) else { break };
                // The recording counts every tagged line, also the list inside the skills.
                let inner = rest[..end].contains("\n<available_skills>\n");
                rest = rest[end + close.len()..].trim_start_matches('\n');
                names.push(name);
                names.extend(inner.then(|| "available_skills".to_owned()));
            }
            None => {
                names.push("preamble".to_owned());
                match rest.find("\n\n<") {
                    Some(end) => rest = &rest[end + 2..],
                    None => break,
                }
            }
        }
    }
    names
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(400) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
