//! Finding the cut: what is summarised, what stays word for word. Pure.
//!
//! A cut never parts a tool result from its call: only messages that can open a context are candidates. When the cut
//! falls inside a turn, the head of that turn is summarised apart from the older history.

use std::collections::HashSet;
use std::sync::Arc;

use super::CompactionSettings;
use super::files::FileOps;
use crate::ai::Message;
use crate::entry::{Body, EntryId, Kind};
use crate::session::projection::{Context, Entries, Item, Pos, unedited_messages};

/// A message and the entry it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced {
    /// The entry.
    pub id: EntryId,
    /// The message, after edits.
    pub message: Arc<Message>,
}

/// What a compaction is going to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Preparation {
    /// First entry that stays.
    pub first_kept: EntryId,
    /// Whether the cut falls inside a turn.
    pub is_split_turn: bool,
    /// What is summarised as history.
    pub history: Vec<Sourced>,
    /// The head of the turn that is cut, summarised apart.
    pub turn_prefix: Vec<Sourced>,
    /// Estimated tokens of the context as it is.
    pub tokens_before: u64,
    /// The summary that stands at the beginning now.
    pub previous_summary: Option<String>,
    /// What the summarised part did to files.
    pub file_ops: FileOps,
}

/// Why there is nothing to compact; the text is for a person who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nothing {
    /// The last entry is a compaction.
    #[error("Already compacted")]
    AlreadyCompacted,
    /// Everything recent enough to stay.
    #[error("Nothing to compact (session too small)")]
    TooSmall,
}

/// Prepares a compaction of the branch that ends with `path`.
///
/// # Errors
/// [`Nothing`] says why there is nothing to do.
pub fn prepare<E: Entries + ?Sized>(
    entries: &E,
    path: &[Pos],
    settings: &CompactionSettings,
) -> Result<Preparation, Nothing> {
    let kind = |pos: &Pos| entries.facts(*pos).map(|facts| facts.kind);
    if path.last().and_then(kind) == Some(Kind::Compaction) {
        return Err(Nothing::AlreadyCompacted);
    }
    let context = Context::build(entries, path);
    prepare_context(entries, &context, settings).ok_or(Nothing::TooSmall)
}

/// As [`prepare`], for a context that is at hand; the last entry is known to be no compaction.
fn prepare_context<E: Entries + ?Sized>(
    entries: &E,
    context: &Context,
    settings: &CompactionSettings,
) -> Option<Preparation> {
    let items = context.items();
    let previous = items.first().filter(|_| context.is_compacted());
    let previous = previous.and_then(|item| match entries.entry(item.pos)?.body() {
        Body::Compaction(compaction) => Some(compaction),
        _ => None,
    });
    let start = usize::from(context.is_compacted());
    let cut = find_cut(entries, items, start, settings.keep_recent_tokens);
    let first_kept = items.get(cut.at)?.id.clone();
    let history_end = cut.turn_start.unwrap_or(cut.at);
    let history = sourced(items.get(start..history_end)?);
    let turn_prefix = sourced(items.get(history_end..cut.at)?);
    if history.is_empty() && turn_prefix.is_empty() {
        return None;
    }
    let mut file_ops = FileOps::default();
    if let Some(details) = previous
        .as_ref()
        .filter(|it| !it.from_hook)
        .and_then(|it| it.details.as_ref())
    {
        file_ops.add_details(details);
    }
    for source in history.iter().chain(&turn_prefix) {
        file_ops.add_calls(&source.message);
        file_ops.add_nested_calls(&source.message);
    }
    Some(Preparation {
        first_kept,
        is_split_turn: cut.turn_start.is_some(),
        history,
        turn_prefix,
        tokens_before: context.estimate().tokens,
        previous_summary: previous.map(|compaction| compaction.summary),
        file_ops,
    })
}

/// Messages to summarise; system messages and older summaries give none.
fn sourced(items: &[Item]) -> Vec<Sourced> {
    let items = items
        .iter()
        .filter(|item| item.facts.kind != Kind::Compaction);
    let messages = items.flat_map(|item| {
        item.messages
            .iter()
            .map(|message| (item.id.clone(), message))
    });
    let messages = messages.filter(|(_, message)| !matches!(***message, Message::System(_)));
    let sourced = messages.map(|(id, message)| Sourced {
        id,
        message: message.clone(),
    });
    sourced.collect()
}

struct Cut {
    /// First item that stays.
    at: usize,
    /// Where the turn begins that the cut splits.
    turn_start: Option<usize>,
}

fn find_cut<E: Entries + ?Sized>(entries: &E, items: &[Item], start: usize, keep: u64) -> Cut {
    let end = items.len();
    let candidates: Vec<usize> = (start..end)
        .filter(|at| items.get(*at).is_some_and(can_open))
        .collect();
    let (mut cut, exceeded) = walk_back(items, start, keep, &candidates);
    if exceeded && is_recovery_suffix(entries, items.get(cut + 1..).unwrap_or_default()) {
        cut += 1;
    }
    let starts_turn = |at: usize| items.get(at).is_some_and(opens_turn);
    let before = cut;
    let is_silent = |at: usize| {
        let silent = |item: &Item| item.facts.kind != Kind::Compaction && item.messages.is_empty();
        items.get(at).is_some_and(silent)
    };
    while cut > start && is_silent(cut - 1) {
        cut -= 1;
    }
    // Metadata that was pulled in makes no split: the turn before it is history as a whole. Omitted messages that were
    // pulled in do: their turn goes on in what stays.
    let is_message = |item: &Item| {
        matches!(
            item.facts.kind,
            Kind::Message | Kind::CustomMessage | Kind::BranchSummary
        )
    };
    let pulled = items.get(cut..before).unwrap_or_default();
    let turn_start = if starts_turn(before) && !pulled.iter().any(is_message) {
        None
    } else {
        (start..=cut).rev().find(|at| starts_turn(*at))
    };
    Cut {
        at: cut,
        turn_start,
    }
}

/// Adds up tokens from the end until enough stays. Returns the cut, and whether the limit was reached at all.
fn walk_back(items: &[Item], start: usize, keep: u64, candidates: &[usize]) -> (usize, bool) {
    let Some(first) = candidates.first() else {
        return (start, false);
    };
    let mut sum = 0;
    for at in (start..items.len()).rev() {
        let tokens = items.get(at).map_or(0, Item::tokens);
        if tokens == 0 {
            continue;
        }
        sum += tokens;
        if sum >= keep {
            let next = candidates.iter().find(|candidate| **candidate >= at);
            let cut = next.or(candidates.last()).unwrap_or(first);
            return (*cut, true);
        }
    }
    (*first, false)
}

/// Whether a context can begin with this entry.
fn can_open(item: &Item) -> bool {
    let opens = |message: &Arc<Message>| {
        !matches!(
            **message,
            Message::System(_) | Message::ToolResult(_) | Message::Unknown(_)
        )
    };
    item.facts.kind != Kind::Compaction && item.messages.iter().any(opens)
}

/// Whether a turn begins with this entry.
fn opens_turn(item: &Item) -> bool {
    let opens = |message: &Arc<Message>| {
        matches!(
            **message,
            Message::User(_)
                | Message::BashExecution(_)
                | Message::Custom(_)
                | Message::BranchSummary(_)
                | Message::CompactionSummary(_)
        )
    };
    item.facts.kind != Kind::Compaction && item.messages.iter().any(opens)
}

/// Whether everything behind the cut was omitted to recover from an overflow: then the message at the cut is what made
/// the context too big, and it has to go as well.
fn is_recovery_suffix<E: Entries + ?Sized>(entries: &E, suffix: &[Item]) -> bool {
    let is_visible = |item: &Item| {
        item.facts.kind != Kind::ContextEdit
            && (!item.messages.is_empty()
                || entries
                    .entry(item.pos)
                    .is_some_and(|entry| !unedited_messages(&entry).is_empty()))
    };
    let is_omitted = |item: &Item| item.messages.is_empty() && is_visible(item);
    let omitted: HashSet<&str> = suffix
        .iter()
        .filter(|item| is_omitted(item))
        .map(|item| &*item.id)
        .collect();
    let failed_answer = |item: &Item| {
        item.facts.is_message(crate::entry::Role::Assistant) && omitted.contains(&*item.id)
    };
    let is_quiet = |item: &Item| {
        item.facts.kind != Kind::Compaction && (!is_visible(item) || omitted.contains(&*item.id))
    };
    let replaces_elsewhere = |item: &Item| {
        let edit = entries
            .entry(item.pos)
            .filter(|_| item.facts.kind == Kind::ContextEdit);
        match edit.map(|entry| entry.body()) {
            Some(Body::ContextEdit {
                target,
                replacement: Some(_),
            }) => !omitted.contains(&*target),
            _ => false,
        }
    };
    suffix.iter().any(failed_answer)
        && suffix.iter().all(is_quiet)
        && !suffix.iter().any(replaces_elsewhere)
}
