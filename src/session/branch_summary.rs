//! Leaving a branch: where the leaf goes, what is left behind, and a summary of it.

use std::collections::HashMap;
use std::sync::Arc;

use super::compaction::files::{FileLists, FileOps};
use super::compaction::{Asker, Summary, SummaryError, SummaryModel, prompts, serialise, summary};
use super::projection::{Entries, Pos, edited_messages, estimate};
use super::store::Session;
use crate::ai::{CompactionSummaryMessage, Content, Message};
use crate::entry::{Body, Entry, Kind};

/// Window of a model that does not state one.
const DEFAULT_WINDOW: u64 = 128_000;
/// Begins a stored branch summary.
pub const PREAMBLE: &str =
    "Another branch was explored from this point and left. What happened there:";
/// Stands for a branch without anything to summarise.
pub const NO_CONTENT: &str = "The branch that was left holds nothing to summarise.";

/// What lies on the branch that is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Its entries, oldest first.
    pub entries: Vec<Pos>,
    /// The last entry that both branches share.
    pub common_ancestor: Option<Pos>,
}

/// Where the leaf goes when an entry is selected in the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// The new leaf.
    pub leaf: Option<Pos>,
    /// Text for an empty editor.
    pub prefill: Option<String>,
}

impl Session {
    /// Returns what is left behind when the leaf moves from `old` to `target`.
    pub fn left_behind(&self, old: Option<Pos>, target: Pos) -> Left {
        let Some(old) = old else {
            return Left::default();
        };
        let old_path = self.path_to(Some(old));
        let target_path = self.path_to(Some(target));
        // Both walks end at a root: what they share is a common beginning.
        let shared = old_path
            .iter()
            .zip(&target_path)
            .take_while(|(left, right)| left == right)
            .count();
        Left {
            entries: old_path.get(shared..).unwrap_or_default().to_vec(),
            common_ancestor: shared
                .checked_sub(1)
                .and_then(|at| target_path.get(at).copied()),
        }
    }

    /// Returns where the leaf goes for a selected entry: before a user message, whose text goes to the editor, else onto
    /// the entry itself.
    pub fn destination(&self, target: Pos) -> Destination {
        let stay = Destination {
            leaf: Some(target),
            prefill: None,
        };
        let before = |content: Content| Destination {
            leaf: self.parent(target),
            prefill: Some(content.text("")),
        };
        match self.entry(target).map(|entry| entry.body()) {
            Some(Body::Message(Message::User(message))) => before(message.content),
            Some(Body::CustomMessage(message)) => before(message.content),
            _ => stay,
        }
    }
}

/// What of a branch is summarised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Messages, oldest first.
    pub messages: Vec<Arc<Message>>,
    /// Their estimated tokens.
    pub total_tokens: u64,
    /// Files that were read and changed.
    pub files: FileLists,
}

/// Returns how many tokens of a branch fit a summary request; 0 means no limit.
pub fn token_budget(context_window: u64, reserve_tokens: u64) -> u64 {
    let window = if context_window == 0 {
        DEFAULT_WINDOW
    } else {
        context_window
    };
    window.saturating_sub(reserve_tokens)
}

/// Selects what is summarised, newest first until the budget is used up.
pub fn select<E: Entries + ?Sized>(entries: &E, left: &[Pos], budget: u64) -> Selection {
    let edits = last_edits(entries, left);
    let mut files = FileOps::default();
    for entry in of_kind(entries, left, Kind::BranchSummary) {
        if let Body::BranchSummary(branch) = entry.body()
            && let Some(details) = branch.details.filter(|_| !branch.from_hook)
        {
            files.add_details(&details);
        }
    }
    let mut messages = Vec::new();
    let mut total = 0;
    'walk: for entry in left.iter().rev().filter_map(|pos| entries.entry(*pos)) {
        for message in messages_of(&entry, edits.get(&**entry.id())) {
            files.add_calls(&message);
            let tokens = estimate::message_tokens(&message);
            if budget > 0 && total + tokens > budget {
                let is_summary =
                    matches!(entry.facts().kind, Kind::Compaction | Kind::BranchSummary);
                // A summary stands for much: it may go over the limit once, while there is some room.
                if is_summary && u128::from(total) * 10 < u128::from(budget) * 9 {
                    messages.push(message);
                    total += tokens;
                }
                break 'walk;
            }
            messages.push(message);
            total += tokens;
        }
    }
    messages.reverse();
    Selection {
        messages,
        total_tokens: total,
        files: files.lists(),
    }
}

fn of_kind<'a, E: Entries + ?Sized>(
    entries: &'a E,
    left: &'a [Pos],
    kind: Kind,
) -> impl Iterator<Item = Entry> + 'a {
    let is_kind = move |pos: &&Pos| entries.facts(**pos).is_some_and(|facts| facts.kind == kind);
    left.iter()
        .filter(is_kind)
        .filter_map(|pos| entries.entry(*pos))
}

fn last_edits<E: Entries + ?Sized>(entries: &E, left: &[Pos]) -> HashMap<String, Option<Content>> {
    let edits = of_kind(entries, left, Kind::ContextEdit).filter_map(|entry| match entry.body() {
        Body::ContextEdit {
            target,
            replacement,
        } => Some((target, replacement)),
        _ => None,
    });
    edits.collect()
}

fn messages_of(entry: &Entry, edit: Option<&Option<Content>>) -> Vec<Arc<Message>> {
    match entry.body() {
        Body::Compaction(compaction) if edit != Some(&None) => {
            vec![Arc::new(Message::CompactionSummary(
                CompactionSummaryMessage {
                    summary: compaction.summary,
                    tokens_before: compaction.tokens_before,
                    timestamp: entry.facts().time_ms.unwrap_or(0),
                    ..CompactionSummaryMessage::default()
                },
            ))]
        }
        Body::Message(Message::ToolResult(_)) => Vec::new(),
        _ => edited_messages(entry, edit),
    }
}

/// Instructions of the person for a branch summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instructions<'a> {
    /// None.
    #[default]
    None,
    /// Added to ours.
    Focus(&'a str),
    /// Instead of ours.
    Replace(&'a str),
}

/// Writes the summary of a branch.
///
/// # Errors
/// [`SummaryError`]; nothing has been changed then.
pub async fn summarise(
    asker: &dyn Asker,
    model: &SummaryModel,
    selection: &Selection,
    instructions: Instructions<'_>,
) -> Result<Summary, SummaryError> {
    let mut usage = None;
    let text = if selection.messages.is_empty() {
        NO_CONTENT.to_owned()
    } else {
        let conversation =
            serialise::conversation(selection.messages.iter().map(|message| &**message));
        let (own, replace) = match instructions {
            Instructions::None => (None, false),
            Instructions::Focus(text) => (Some(text), false),
            Instructions::Replace(text) => (Some(text), true),
        };
        let prompt = prompts::branch_request(&conversation, own, replace);
        let reply = summary::request(asker, model, prompt, &mut usage).await?;
        format!("{PREAMBLE}\n\n{reply}{}", selection.files.suffix())
    };
    Ok(Summary {
        text,
        details: selection.files.details(),
        usage,
    })
}
