//! Counting a session: messages, tokens and cost over all branches, compacted parts too.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::projection::{Entries, Pos};
use super::store::Session;
use crate::ai::{Cost, Usage};
use crate::entry::{Entry, Kind, Role};

/// Key of usage that no answer of the conversation had.
pub const OTHER_USAGE: &str = "Tools/summaries";

/// Tokens and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Uncached prompt tokens.
    pub input: u64,
    /// Answer tokens.
    pub output: u64,
    /// Prompt tokens read from the cache.
    pub cache_read: u64,
    /// Prompt tokens written to the cache.
    pub cache_write: u64,
    /// USD.
    pub cost: f64,
}

impl Spent {
    /// Returns all tokens together.
    pub fn total(&self) -> u64 {
        self.input + self.output + self.cache_read + self.cache_write
    }

    fn add(&mut self, usage: &Usage) {
        self.input = self.input.saturating_add(usage.input);
        self.output = self.output.saturating_add(usage.output);
        self.cache_read = self.cache_read.saturating_add(usage.cache_read);
        self.cache_write = self.cache_write.saturating_add(usage.cache_write);
        self.cost += usage.cost.total;
    }
}

/// Counts of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Messages of the person.
    pub user_messages: usize,
    /// Answers.
    pub assistant_messages: usize,
    /// Results of tool calls.
    pub tool_results: usize,
    /// Tool calls.
    pub tool_calls: usize,
    /// Message entries of all roles.
    pub total_messages: usize,
    /// Everything that was spent.
    pub spent: Spent,
    /// The same by `provider/model`; summaries and tools under [`OTHER_USAGE`].
    pub by_model: BTreeMap<String, Spent>,
    /// Entries counted.
    entries: usize,
}

/// The few fields of an entry that count. What does not fit reads as absent.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Counted {
    message: Option<CountedMessage>,
    usage: Option<CountedUsage>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct CountedMessage {
    provider: Option<String>,
    model: Option<String>,
    response_model: Option<String>,
    usage: Option<CountedUsage>,
    content: Option<CountedContent>,
}

/// Only the numbers; anything odd counts as nothing.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct CountedUsage {
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
    cost: CountedCost,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CountedCost {
    total: f64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CountedContent {
    Blocks(Vec<CountedBlock>),
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CountedBlock {
    r#type: Option<String>,
}

impl CountedUsage {
    fn usage(&self) -> Usage {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float cast saturates, which is what a count wants"
        )]
        let whole = |number: f64| number as u64;
        Usage {
            input: whole(self.input),
            output: whole(self.output),
            cache_read: whole(self.cache_read),
            cache_write: whole(self.cache_write),
            cost: Cost {
                total: self.cost.total,
                ..Cost::default()
            },
            ..Usage::default()
        }
    }
}

impl Stats {
    /// Number of entries that were looked at.
    pub(super) fn counted(&self) -> usize {
        self.entries
    }

    /// Counts the entries that came since the last call.
    pub(super) fn catch_up(&mut self, session: &Session) {
        let from = Pos::try_from(self.entries).unwrap_or(Pos::MAX);
        for pos in session.positions().filter(|pos| *pos >= from) {
            self.entries += 1;
            let Some(facts) = session.facts(pos).copied() else {
                continue;
            };
            let counts = matches!(
                facts.kind,
                Kind::Message | Kind::Usage | Kind::Compaction | Kind::BranchSummary
            );
            if facts.kind == Kind::Message && facts.role != Role::None {
                self.total_messages += 1;
                match facts.role {
                    Role::User => self.user_messages += 1,
                    Role::Assistant => self.assistant_messages += 1,
                    Role::ToolResult => self.tool_results += 1,
                    _ => {}
                }
            }
            if counts && !facts.is_message(Role::User) && !facts.is_message(Role::System) {
                self.add(session.entry(pos), facts.is_message(Role::Assistant));
            }
        }
    }

    fn add(&mut self, entry: Option<Entry>, answer: bool) {
        let Some(entry) = entry else { return };
        let counted: Counted = serde_json::from_str(entry.text())
            .or_else(|_| Counted::deserialize(entry.value()))
            .unwrap_or_default();
        let message = counted.message.unwrap_or_default();
        if answer && let Some(CountedContent::Blocks(blocks)) = &message.content {
            let is_call = |block: &&CountedBlock| block.r#type.as_deref() == Some("toolCall");
            self.tool_calls += blocks.iter().filter(is_call).count();
        }
        let Some(usage) = message.usage.or(counted.usage) else {
            return;
        };
        let key = if answer {
            let model = message.response_model.or(message.model).unwrap_or_default();
            format!("{}/{model}", message.provider.unwrap_or_default())
        } else {
            OTHER_USAGE.to_owned()
        };
        let usage = usage.usage();
        self.spent.add(&usage);
        self.by_model.entry(key).or_default().add(&usage);
    }
}
