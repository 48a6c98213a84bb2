//! What the model sees of a branch: the one place that decides it. Pure, no I/O of its own.
//!
//! [`Context::build`] takes a path (positions of entries, root first) and gives the context entries with the messages of
//! each; [`Context::push`] adds one entry at the leaf without looking at the branch again. Both give the same result, a
//! property test holds that. [`llm::convert`] turns the messages into what providers take, [`system::replay`] folds
//! system messages, [`estimate`] counts tokens.

pub mod estimate;
pub mod llm;
mod messages;
pub mod system;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::ai::{Content, Message, SystemMessage};
use crate::entry::{Body, Entry, EntryId, Facts, Kind, Role};
use estimate::Estimate;

/// Position of an entry in file order.
pub type Pos = u32;

/// Where the entries of a path come from.
pub trait Entries {
    /// Returns the id of an entry.
    fn id(&self, pos: Pos) -> Option<&EntryId>;
    /// Returns what the index keeps of an entry.
    fn facts(&self, pos: Pos) -> Option<&Facts>;
    /// Loads an entry; `None` when its text cannot be read (any more).
    fn entry(&self, pos: Pos) -> Option<Entry>;
}

impl Entries for [Entry] {
    fn id(&self, pos: Pos) -> Option<&EntryId> {
        self.get(pos as usize).map(Entry::id)
    }
    fn facts(&self, pos: Pos) -> Option<&Facts> {
        self.get(pos as usize).map(Entry::facts)
    }
    fn entry(&self, pos: Pos) -> Option<Entry> {
        self.get(pos as usize).cloned()
    }
}

/// A model as entries name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelRef {
    /// Provider id.
    pub provider: String,
    /// Model id.
    pub model_id: String,
}

/// One context entry and the messages the model sees of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Position in file order.
    pub pos: Pos,
    /// The entry's id.
    pub id: EntryId,
    /// What the index keeps of it.
    pub facts: Facts,
    /// Its messages after context edits; none for entries that the model does not see.
    pub messages: Vec<Arc<Message>>,
    /// The same in the roles that providers take. Made once, so that every request holds the same ones: providers keep
    /// what they made of a message as long as it is the same.
    sent: Vec<Arc<Message>>,
}

impl Item {
    fn new(pos: Pos, id: EntryId, facts: Facts, messages: Vec<Arc<Message>>) -> Self {
        Self {
            pos,
            id,
            facts,
            sent: messages.iter().filter_map(llm::shared).collect(),
            messages,
        }
    }

    fn replace(&mut self, messages: Vec<Arc<Message>>) {
        *self = Self::new(self.pos, self.id.clone(), self.facts, messages);
    }

    /// Returns the estimated tokens of the item's messages.
    pub fn tokens(&self) -> u64 {
        self.messages
            .iter()
            .map(|message| estimate::message_tokens(message))
            .sum()
    }
}

/// The context of one branch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    items: Vec<Item>,
    /// Where each item is, by entry id.
    places: HashMap<EntryId, usize>,
    /// The last edit of each target, also of targets that are not here.
    edits: HashMap<String, Option<Content>>,
    /// Items up to here are older than the newest compaction or context edit.
    boundary: usize,
    model: Option<ModelRef>,
    thinking_level: Option<String>,
    /// All system messages folded into one.
    system: Option<Arc<SystemMessage>>,
    /// How many messages all items have together.
    count: usize,
}

impl Context {
    /// Computes the context of a path.
    pub fn build<E: Entries + ?Sized>(entries: &E, path: &[Pos]) -> Self {
        let mut context = Self::default();
        let kind = |pos: &Pos| entries.facts(*pos).map(|facts| facts.kind);
        let compaction = path
            .iter()
            .rposition(|pos| kind(pos) == Some(Kind::Compaction));
        let mut after = path;
        if let Some(at) = compaction
            && let (Some((before, rest)), Some(pos)) = (path.split_at_checked(at), path.get(at))
        {
            after = rest.get(1..).unwrap_or_default();
            let entry = entries.entry(*pos);
            let first_kept = entry.as_ref().and_then(first_kept);
            context.add(entries, *pos, entry);
            let from = first_kept.and_then(|id| {
                let same = |pos: &Pos| entries.id(*pos).is_some_and(|own| **own == *id);
                before.iter().rposition(same)
            });
            for pos in from.and_then(|from| before.get(from..)).unwrap_or_default() {
                let is_system = |facts: &Facts| facts.is_message(Role::System);
                if !entries.facts(*pos).is_some_and(is_system) {
                    context.add(entries, *pos, None);
                }
            }
            context.boundary = context.items.len();
        }
        for pos in after {
            context.add(entries, *pos, None);
        }
        context.read_settings(entries, path);
        context.fold_system();
        context
    }

    /// Adds the entry that was appended at the leaf. A compaction changes the whole list: for it this returns false and
    /// changes nothing, and the caller builds anew.
    pub fn push<E: Entries + ?Sized>(&mut self, entries: &E, pos: Pos, entry: &Entry) -> bool {
        if entry.facts().kind == Kind::Compaction {
            return false;
        }
        self.note_settings(entry);
        self.add(entries, pos, Some(entry.clone()));
        if entry.facts().is_message(Role::System) || entry.facts().kind == Kind::ContextEdit {
            self.fold_system();
        }
        true
    }

    fn fold_system(&mut self) {
        let system = system::replay(self.messages().map(|message| &**message));
        self.system = system.map(Arc::new);
    }

    fn add<E: Entries + ?Sized>(&mut self, entries: &E, pos: Pos, entry: Option<Entry>) {
        let (Some(id), Some(facts)) = (entries.id(pos).cloned(), entries.facts(pos).copied())
        else {
            return;
        };
        let at = self.items.len();
        let silent = matches!(
            facts.kind,
            Kind::ModelChange
                | Kind::ThinkingLevelChange
                | Kind::Custom
                | Kind::Label
                | Kind::SessionInfo
                | Kind::Usage
                | Kind::Unknown
        );
        let entry = if silent {
            None
        } else {
            entry.or_else(|| entries.entry(pos))
        };
        let edit = self.edits.get(id.as_str());
        let messages = match &entry {
            Some(entry) => messages::of_entry(entry, at == 0, edit),
            None => Vec::new(),
        };
        self.places.insert(id.clone(), at);
        self.count += messages.len();
        self.items.push(Item::new(pos, id, facts, messages));
        if facts.kind == Kind::ContextEdit
            && let Some(entry) = entry
        {
            self.boundary = self.items.len();
            self.apply_edit(entries, &entry);
        }
    }

    fn apply_edit<E: Entries + ?Sized>(&mut self, entries: &E, edit: &Entry) {
        let Body::ContextEdit {
            target,
            replacement,
        } = edit.body()
        else {
            return;
        };
        let at = self.places.get(target.as_str()).copied();
        if let Some((at, item)) = at.and_then(|at| Some((at, self.items.get_mut(at)?)))
            && let Some(entry) = entries.entry(item.pos)
        {
            self.count -= item.messages.len();
            item.replace(messages::of_entry(&entry, at == 0, Some(&replacement)));
            self.count += item.messages.len();
        }
        self.edits.insert(target, replacement);
    }

    fn read_settings<E: Entries + ?Sized>(&mut self, entries: &E, path: &[Pos]) {
        for pos in path.iter().rev() {
            let Some(facts) = entries.facts(*pos) else {
                continue;
            };
            let level = facts.kind == Kind::ThinkingLevelChange && self.thinking_level.is_none();
            let model = (facts.kind == Kind::ModelChange || facts.is_message(Role::Assistant))
                && self.model.is_none();
            if !level && !model {
                continue;
            }
            let Some(entry) = entries.entry(*pos) else {
                continue;
            };
            if level {
                self.thinking_level = level_of(&entry);
            } else {
                self.model = model_of(&entry);
            }
            if self.model.is_some() && self.thinking_level.is_some() {
                return;
            }
        }
    }

    fn note_settings(&mut self, entry: &Entry) {
        let facts = entry.facts();
        if facts.kind == Kind::ThinkingLevelChange {
            self.thinking_level = level_of(entry).or(self.thinking_level.take());
        } else if facts.kind == Kind::ModelChange || facts.is_message(Role::Assistant) {
            self.model = model_of(entry).or(self.model.take());
        }
    }

    /// Returns the context entries in order: the newest compaction first, if there is one.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Returns the context entry with this id.
    pub fn item(&self, id: &str) -> Option<&Item> {
        self.items.get(*self.places.get(id)?)
    }

    /// Returns the messages in order.
    pub fn messages(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.items.iter().flat_map(|item| &item.messages)
    }

    /// Returns the messages as JSON, read again from their entries: fields that this version does not know, or knows
    /// differently, stand as in the file.
    pub fn values<E: Entries + ?Sized>(&self, entries: &E) -> Vec<Value> {
        let values = self
            .items
            .iter()
            .enumerate()
            .filter(|(_, item)| !item.messages.is_empty());
        let values = values.filter_map(|(at, item)| {
            let entry = entries.entry(item.pos)?;
            Some(messages::values_of(
                &entry,
                at == 0,
                self.edits.get(item.id.as_str()),
            ))
        });
        values.flatten().collect()
    }

    /// Returns the messages as a model gets them: the same ones with every call.
    pub fn llm_messages(&self) -> Vec<Arc<Message>> {
        self.items
            .iter()
            .flat_map(|item| &item.sent)
            .cloned()
            .collect()
    }

    /// Returns the model that the branch implies.
    pub fn model(&self) -> Option<&ModelRef> {
        self.model.as_ref()
    }

    /// Returns the thinking level of the branch, `off` when it never chose one.
    pub fn thinking_level(&self) -> &str {
        self.thinking_level.as_deref().unwrap_or("off")
    }

    /// Returns the thinking level that the branch chose.
    pub fn chosen_thinking_level(&self) -> Option<&str> {
        self.thinking_level.as_deref()
    }

    /// Returns the system message that results from all system messages of the context.
    pub fn system(&self) -> Option<&Arc<SystemMessage>> {
        self.system.as_ref()
    }

    /// What an edit makes of an entry for the model: `None` without one, `Some(None)` when it is left out. An edit that
    /// gives the entry its own content back counts as one.
    pub fn edit_of(&self, id: &str) -> Option<Option<&Content>> {
        self.edits.get(id).map(Option::as_ref)
    }

    /// Whether the context holds an edit, valid or not.
    pub fn has_edits(&self) -> bool {
        self.items
            .iter()
            .any(|item| item.facts.kind == Kind::ContextEdit)
    }

    /// Whether the context begins with a compaction.
    pub fn is_compacted(&self) -> bool {
        self.items
            .first()
            .is_some_and(|item| item.facts.kind == Kind::Compaction)
    }

    /// Estimates the tokens of the context: usage that the model reported after the newest compaction and edit, plus
    /// what came later; without such usage everything is estimated.
    pub fn estimate(&self) -> Estimate {
        let later = self.items.get(self.boundary..).unwrap_or_default();
        let (mut index, mut trailing) = (self.count, 0);
        for message in later
            .iter()
            .rev()
            .flat_map(|item| item.messages.iter().rev())
        {
            index -= 1;
            if let Some(tokens) = estimate::usage_tokens(message) {
                return Estimate::from_usage(index, tokens, trailing);
            }
            trailing += estimate::message_tokens(message);
        }
        self.estimate_all()
    }

    fn estimate_all(&self) -> Estimate {
        let system = self
            .system()
            .map_or(0, |message| estimate::system_tokens(message));
        let others = self
            .messages()
            .filter(|message| !matches!(***message, Message::System(_)));
        let others: u64 = others
            .map(|message| estimate::message_tokens(message))
            .sum();
        Estimate::without_usage(system + others)
    }

    /// Returns the tokens to show to a person: nothing right after a compaction, until a model reported usage again.
    pub fn shown_tokens(&self) -> Option<u64> {
        let estimate = self.estimate();
        let known = !self.is_compacted() || estimate.last_usage_index.is_some();
        known.then_some(estimate.tokens)
    }
}

/// Returns the messages of an entry as if nothing had been edited; of a compaction none.
pub(crate) fn unedited_messages(entry: &Entry) -> Vec<Message> {
    messages::unedited(entry, false)
}

/// Returns the messages of an entry that does not open a context, after an edit.
pub(crate) fn edited_messages(entry: &Entry, edit: Option<&Option<Content>>) -> Vec<Arc<Message>> {
    messages::of_entry(entry, false, edit)
}

fn first_kept(entry: &Entry) -> Option<String> {
    match entry.body() {
        Body::Compaction(compaction) => compaction.first_kept.filter(|id| **id != **entry.id()),
        _ => None,
    }
}

fn level_of(entry: &Entry) -> Option<String> {
    match entry.body() {
        Body::ThinkingLevelChange { level } => Some(level),
        _ => None,
    }
}

fn model_of(entry: &Entry) -> Option<ModelRef> {
    match entry.body() {
        Body::ModelChange { provider, model_id } => Some(ModelRef { provider, model_id }),
        Body::Message(Message::Assistant(message)) => Some(ModelRef {
            provider: message.provider,
            model_id: message.model,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
