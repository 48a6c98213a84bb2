//! Prompt templates: `/name args` becomes the text of a file with its arguments put in.
//!
//! Entry points: [`Template::read`], [`expand`]. Substitution is one pass from left to right; what it puts in is never
//! looked at again.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::frontmatter::{Document, is_space};
use super::ignore_rules::{IgnoreRules, sorted_entries};
use super::{Diagnostic, DiagnosticCode, Source};

/// How many characters of a first line serve as the description of a template that has none.
const DESCRIPTION_CHARS: usize = 60;

/// A prompt template.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// File name without `.md`; what is typed after the slash.
    pub name: String,
    /// For completion.
    pub description: String,
    /// Shown behind the name in completion.
    pub argument_hint: Option<String>,
    /// Text with `$1`, `$@`, `${1:-default}` and so on.
    pub content: String,
    /// The file.
    pub path: PathBuf,
    /// Where it comes from.
    pub source: Source,
}

impl Template {
    /// Reads a file.
    ///
    /// # Errors
    /// A diagnostic when the file cannot be read or its head is no YAML.
    pub fn read(path: &Path, source: &Source) -> Result<Self, Diagnostic> {
        let text = crate::files::read_text(path).map_err(|err| {
            Diagnostic::new(DiagnosticCode::Io, path, &format!("cannot be read: {err}"))
        })?;
        let doc = Document::parse(&text).map_err(|err| {
            let what = format!("skipped, its head is not valid YAML: {err}");
            Diagnostic::new(DiagnosticCode::Yaml, path, &what)
        })?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let description = doc.text("description").filter(|text| !text.is_empty());
        Ok(Self {
            name: name.strip_suffix(".md").unwrap_or(&name).to_owned(),
            description: description.map_or_else(|| first_line(&doc.body), str::to_owned),
            argument_hint: doc.text("argument-hint").map(str::to_owned),
            content: doc.body,
            path: path.to_owned(),
            source: source.clone(),
        })
    }
}

fn first_line(body: &str) -> String {
    let line = body
        .split('\n')
        .find(|line| !line.chars().all(is_space))
        .unwrap_or_default();
    match line.char_indices().nth(DESCRIPTION_CHARS) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or(line)),
        None => line.to_owned(),
    }
}

/// Which files of a folder are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Direct children only, dot files included: what a person names by hand.
    Named,
    /// Direct children, without dot files and what ignore files name.
    Flat,
    /// The whole tree, else as `Flat`.
    Recursive,
}

/// Returns the template files of a folder, sorted by name.
pub(super) fn files_in(root: &Path, depth: Depth) -> Vec<PathBuf> {
    fn walk(dir: &Path, depth: Depth, rules: &mut IgnoreRules, out: &mut Vec<PathBuf>) {
        let by_rules = depth != Depth::Named;
        if by_rules {
            rules.enter(dir);
        }
        for entry in sorted_entries(dir) {
            let hidden = entry.name.starts_with('.') || entry.name == "node_modules";
            if by_rules && (hidden || rules.ignores(&entry.path, entry.is_dir)) {
                continue;
            }
            if entry.is_dir && depth == Depth::Recursive {
                walk(&entry.path, depth, rules, out);
            } else if entry.is_file && entry.name.ends_with(".md") {
                out.push(entry.path);
            }
        }
    }
    let mut out = Vec::new();
    walk(root, depth, &mut IgnoreRules::new(root), &mut out);
    out
}

/// Returns what `text` expands to, `None` when it is no call of one of the templates.
pub fn expand(text: &str, templates: &[Template]) -> Option<String> {
    let call = text.strip_prefix('/')?;
    let end = call.find(is_space).unwrap_or(call.len());
    let (name, arguments) = call.split_at(end);
    let template = templates.iter().find(|template| template.name == name)?;
    Some(substitute(&template.content, &split_arguments(arguments)))
}

/// Splits arguments at white space. A quote opens only at the start of an argument; inside it a backslash makes that
/// quote literal; behind the closing quote everything is literal up to the next white space; a quote that never closes
/// is literal itself.
pub fn split_arguments(text: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while let Some(first) = rest.chars().next() {
        let quoted = match first {
            '"' | '\'' => rest.get(1..).and_then(|inner| quoted(inner, first)),
            _ => None,
        };
        let (mut argument, behind) = quoted.unwrap_or((String::new(), rest));
        let end = behind.find(is_space).unwrap_or(behind.len());
        let (literal, behind) = behind.split_at(end);
        argument.push_str(literal);
        arguments.push(argument);
        rest = behind.trim_start_matches(is_space);
    }
    arguments
}

/// Reads up to the closing quote; `None` when there is none.
fn quoted(inner: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c == quote {
            return Some((value, chars.as_str()));
        }
        if c == '\\' && chars.as_str().starts_with(quote) {
            chars.next();
            value.push(quote);
        } else {
            value.push(c);
        }
    }
    None
}

#[expect(
    clippy::unwrap_used,
    reason = "a constant pattern, compiled by every test of this module"
)]
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"\$\{([0-9]+|ARGUMENTS|@):-([^}]*)\}",
        r"|\$\{@:([0-9]+)(?::([0-9]+))?\}",
        r"|\$(ARGUMENTS|@|[0-9]+)",
    ))
    .unwrap()
});

/// Puts arguments into a template.
pub fn substitute(template: &str, arguments: &[String]) -> String {
    let value = |name: &str| match name {
        "@" | "ARGUMENTS" => arguments.join(" "),
        digits => number(digits)
            .checked_sub(1)
            .and_then(|idx| arguments.get(idx))
            .cloned()
            .unwrap_or_default(),
    };
    let replace = |found: &Captures<'_>| {
        let group = |n| found.get(n).map(|it| it.as_str());
        if let (Some(name), Some(default)) = (group(1), group(2)) {
            let value = value(name);
            if value.is_empty() {
                default.to_owned()
            } else {
                value
            }
        } else if let Some(first) = group(3) {
            let skip = number(first).saturating_sub(1);
            let take = group(4).map_or(usize::MAX, number);
            let slice: Vec<&str> = arguments
                .iter()
                .skip(skip)
                .take(take)
                .map(String::as_str)
                .collect();
            slice.join(" ")
        } else {
            value(group(5).unwrap_or_default())
        }
    };
    PLACEHOLDER.replace_all(template, replace).into_owned()
}

/// Reads digits; too many of them are past every argument.
fn number(digits: &str) -> usize {
    digits.parse().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn huge_numbers_are_past_the_end() {
        let args = ["a".to_owned()];
        assert_eq!(substitute("[$99999999999999999999999]", &args), "[]");
        assert_eq!(substitute("[${@:1:99999999999999999999999}]", &args), "[a]");
    }

    proptest! {
        #[test]
        fn plain_words_come_back(words in prop::collection::vec("[a-z]{1,8}", 0..6)) {
            prop_assert_eq!(split_arguments(&words.join("  ")), words);
        }

        #[test]
        fn quoted_words_come_back(words in prop::collection::vec("[a-z \"\n]{0,8}", 0..6)) {
            let text: Vec<String> = words.iter().map(|w| format!("\"{}\"", w.replace('"', "\\\""))).collect();
            prop_assert_eq!(split_arguments(&text.join(" ")), words);
        }

        #[test]
        fn nothing_panics(template in ".*", text in ".*") {
            substitute(&template, &split_arguments(&text));
        }
    }
}
