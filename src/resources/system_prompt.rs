//! The system prompt: named sections in one order, and the patches by which a later prompt differs from an earlier one.
//!
//! Entry points: [`PromptInput::sections`], [`Sections::patch_from`], [`Sections::replay`]. There is no date or time in
//! it, so that a provider's cache holds. All wording is ours; which section must mention what is held by tests.

use serde_json::{Map, Value};

use super::context_files::ContextFile;
use super::skills::{self, Reader, Skill};
use crate::ai::SystemMessage;

/// Tools that are active when nobody chose.
pub const DEFAULT_TOOLS: [&str; 4] = ["read", "bash", "edit", "write"];

/// Rule while `bash` is the only way to look at files.
pub const RULE_SHELL_BASH: &str = "Look at folders and search files with bash (ls, rg, find)";
/// The same for `powershell`.
pub const RULE_SHELL_POWERSHELL: &str =
    "Look at folders and search files with powershell (Get-ChildItem, Select-String)";
/// The same when both are there.
pub const RULE_SHELL_BOTH: &str =
    "Look at folders and search files with bash or powershell, whichever fits the system";
/// Always there.
pub const RULE_CONCISE: &str = "Answer briefly and to the point";
/// Always there.
pub const RULE_PATHS: &str = "Name files by their paths when you speak of them";

const PREAMBLE: &str = "You are Pi, a coding agent inside the user's editor. You read files, run commands and change code \
                        to do what the user asks. The user may review every change before it is written and accept, \
                        alter or reject parts of it: each tool result says what really happened, so go by that.";
const MORE_TOOLS: &str = "The project or an extension may give you more tools than these.";
const DOCS: &str = "Questions about Pi itself (commands, settings, skills, prompt templates, extensions, reviewing) are \
                    answered by the help file doc/pi.txt of the pi.nvim plugin, `:help pi` in Neovim. Read it only when \
                    the user asks about Pi.";
const CONTEXT_HEADER: &str =
    "Instructions for this project, from the general to the particular; the later one wins:";

/// What the prompt says about one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptTool {
    /// Name.
    pub name: String,
    /// One line; a tool without one is not listed.
    pub snippet: Option<String>,
    /// Rules while it is active.
    pub guidelines: Vec<String>,
    /// Active, but not declared to the model.
    pub hidden: bool,
}

/// All that a prompt is made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct PromptInput<'a> {
    /// Active tools in the order of their selection.
    pub tools: &'a [PromptTool],
    /// Replaces preamble, tools, rules and docs.
    pub custom: Option<&'a str>,
    /// Texts of the `addendum` section.
    pub addendum: &'a [String],
    /// Context files in order.
    pub context_files: &'a [ContextFile],
    /// Skills.
    pub skills: &'a [Skill],
    /// Further rules.
    pub guidelines: &'a [String],
    /// Working directory.
    pub cwd: &'a str,
    /// Sections of extensions: name and text.
    pub extra: &'a [(String, String)],
}

/// A section that an extension may not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{name}\" is no name for a prompt section: use a-z, 0-9, - and _, a letter first, not \"preamble\""
)]
pub struct SectionNameError {
    /// The name.
    pub name: String,
}

impl PromptInput<'_> {
    /// Returns the sections, ready to be sent and stored.
    ///
    /// # Errors
    /// A section of an extension with a name that cannot be used.
    pub fn sections(&self) -> Result<Sections, SectionNameError> {
        if let Some((name, _)) = self.extra.iter().find(|(name, _)| !is_section_name(name)) {
            return Err(SectionNameError { name: name.clone() });
        }
        let standard = |text: String| match self.custom {
            None => text,
            Some(_) => String::new(),
        };
        let built_in = [
            ("tools", standard(self.tools_text())),
            ("rules", standard(self.rules_text())),
            ("docs", standard(DOCS.to_owned())),
            ("addendum", self.addendum.join("\n\n")),
            ("project_context", self.context_text()),
            ("skills", self.skills_text()),
            ("cwd", self.cwd.replace('\\', "/")),
        ];
        let mut sections = Sections::default();
        sections.set("preamble", self.custom.unwrap_or(PREAMBLE));
        for (name, text) in built_in {
            let text = self
                .extra
                .iter()
                .find(|(other, _)| other == name)
                .map_or(text, |(_, text)| text.clone());
            sections.set_tagged(name, &text);
        }
        for (name, text) in self
            .extra
            .iter()
            .filter(|(name, _)| !BUILT_IN.contains(&name.as_str()))
        {
            sections.set_tagged(name, text);
        }
        Ok(sections)
    }

    fn declared(&self) -> impl Iterator<Item = &PromptTool> {
        self.tools.iter().filter(|tool| !tool.hidden)
    }

    fn tools_text(&self) -> String {
        let mut lines: Vec<String> = self
            .declared()
            .filter_map(|tool| Some(format!("- {}: {}", tool.name, tool.snippet.as_deref()?)))
            .collect();
        if lines.is_empty() {
            lines.push("(none)".to_owned());
        }
        format!("{}\n\n{MORE_TOOLS}", lines.join("\n"))
    }

    fn rules_text(&self) -> String {
        let has = |name: &str| self.declared().any(|tool| tool.name == name);
        let shell = match (has("bash"), has("powershell")) {
            _ if has("grep") || has("find") || has("ls") => None,
            (true, true) => Some(RULE_SHELL_BOTH),
            (true, false) => Some(RULE_SHELL_BASH),
            (false, true) => Some(RULE_SHELL_POWERSHELL),
            (false, false) => None,
        };
        let of_tools = self.declared().flat_map(|tool| tool.guidelines.iter());
        let all = shell
            .into_iter()
            .chain(of_tools.chain(self.guidelines).map(String::as_str))
            .chain([RULE_CONCISE, RULE_PATHS]);
        let mut rules: Vec<&str> = Vec::new();
        for rule in all.map(str::trim) {
            if !rule.is_empty() && !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        let lines: Vec<String> = rules.iter().map(|rule| format!("- {rule}")).collect();
        lines.join("\n")
    }

    fn context_text(&self) -> String {
        if self.context_files.is_empty() {
            return String::new();
        }
        let mut parts = vec![CONTEXT_HEADER.to_owned()];
        parts.extend(self.context_files.iter().map(|file| {
            format!(
                "<project_instructions path=\"{}\">\n{}\n</project_instructions>",
                file.path.display(),
                file.content
            )
        }));
        parts.join("\n\n")
    }

    fn skills_text(&self) -> String {
        const READERS: [&str; 2] = ["read", "bash"];
        let selected = self
            .tools
            .iter()
            .any(|tool| READERS.contains(&tool.name.as_str()));
        if !selected {
            return String::new();
        }
        let declared = READERS
            .into_iter()
            .find(|name| self.declared().any(|tool| tool.name == *name));
        let reader = declared.map_or(Reader::Unnamed, Reader::Tool);
        skills::listing(self.skills, reader).unwrap_or_default()
    }
}

const BUILT_IN: [&str; 7] = [
    "tools",
    "rules",
    "docs",
    "addendum",
    "project_context",
    "skills",
    "cwd",
];

fn is_section_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_lowercase())
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-')
        && name != "preamble"
}

/// Sections by name, in their order; each text is complete with its tags.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sections(Map<String, Value>);

impl Sections {
    /// Applies system messages one after the other, as they stand on a branch: a text sets or replaces a section in its
    /// place, `null` removes it, one that comes back goes to the end.
    pub fn replay<'a>(messages: impl IntoIterator<Item = &'a SystemMessage>) -> Self {
        let mut out = Self::default();
        for patch in messages
            .into_iter()
            .filter_map(|message| message.sections.as_ref())
        {
            for (name, text) in patch {
                match text {
                    Value::Null => drop(out.0.shift_remove(name)),
                    text => drop(out.0.insert(name.clone(), text.clone())),
                }
            }
        }
        out
    }

    /// Returns what has to be stored so that a replay that stands at `previous` gives these sections; `None`: nothing.
    pub fn patch_from(&self, previous: &Self) -> Option<Map<String, Value>> {
        let changed = self
            .0
            .iter()
            .filter(|(name, text)| previous.0.get(*name) != Some(*text));
        let mut patch: Map<String, Value> = changed
            .map(|(name, text)| (name.clone(), text.clone()))
            .collect();
        let removed = previous.0.keys().filter(|name| !self.0.contains_key(*name));
        patch.extend(removed.map(|name| (name.clone(), Value::Null)));
        (!patch.is_empty()).then_some(patch)
    }

    /// Returns the names in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns one section with its tags.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// Returns the whole prompt.
    pub fn render(&self) -> String {
        let texts: Vec<&str> = self
            .0
            .values()
            .filter_map(Value::as_str)
            .filter(|text| !text.is_empty())
            .collect();
        texts.join("\n\n")
    }

    /// Returns the map that a system message stores.
    pub fn into_map(self) -> Map<String, Value> {
        self.0
    }

    fn set(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.0.insert(name.to_owned(), text.into());
        }
    }

    fn set_tagged(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.set(name, &format!("<{name}>\n{text}\n</{name}>"));
        }
    }
}

impl From<Map<String, Value>> for Sections {
    fn from(map: Map<String, Value>) -> Self {
        Self(map)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_patch_leads_from_any_state_to_any_other(
            before in prop::collection::btree_map("[a-e]", "[a-z]{1,3}", 0..5),
            after in prop::collection::btree_map("[a-e]", "[a-z]{1,3}", 0..5),
        ) {
            let sections = |map: &BTreeMap<String, String>| {
                Sections(map.iter().map(|(name, text)| (name.clone(), text.as_str().into())).collect())
            };
            let (before, after) = (sections(&before), sections(&after));
            let patch = after.patch_from(&before);
            prop_assert_eq!(patch.is_none(), before == after);
            let messages = [Some(before.into_map()), patch].map(|sections| SystemMessage {
                sections,
                ..SystemMessage::default()
            });
            prop_assert_eq!(Sections::replay(&messages), after);
        }
    }
}
