//! Appends: one entry each, on its way to the disk before the call returns.

use std::io;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::disk::Look;
use super::{Disk, NONE, Place, Session, StoreError, StoreNotice};
use crate::ai::{Content, Message, SystemMessage, Usage};
use crate::entry::{Entry, EntryId, Kind, Role, iso_time, json};
use crate::session::projection::{Entries, Pos};
use crate::session::store::migrate::fresh_id;

/// What a compaction stores.
#[derive(Clone, Debug, Default)]
pub struct CompactionEntry {
    /// The summary.
    pub summary: String,
    /// First entry that stays; `None` keeps nothing.
    pub first_kept: Option<String>,
    /// Tokens of the context before.
    pub tokens_before: u64,
    /// `{readFiles, modifiedFiles}`, or what an extension gave.
    pub details: Option<Value>,
    /// Whether an extension made it; absent in very old files only.
    pub from_hook: Option<bool>,
    /// What the summary cost.
    pub usage: Option<Usage>,
}

/// What a branch summary stores.
#[derive(Clone, Debug, Default)]
pub struct SummaryEntry {
    /// The summary.
    pub summary: String,
    /// `{readFiles, modifiedFiles}`, or what an extension gave.
    pub details: Option<Value>,
    /// Whether an extension made it.
    pub from_hook: Option<bool>,
    /// What the summary cost.
    pub usage: Option<Usage>,
}

type Fields = Vec<(&'static str, Option<Value>)>;

fn usage_value(usage: Option<Usage>) -> Option<Value> {
    serde_json::to_value(usage?).ok()
}

impl Session {
    /// Appends a message at the leaf.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when the session's file is made with this entry and something lies there already. Any other
    /// trouble with the file is a notice, and the entry waits in memory.
    pub fn append_message(&mut self, message: &Message) -> Result<EntryId, StoreError> {
        self.append(Kind::Message, vec![("message", Some(message.to_value()))])
    }

    /// Appends the choice of a model. Errors: [`Session::append_message`].
    ///
    /// # Errors
    /// As [`Session::append_message`].
    pub fn append_model_change(
        &mut self,
        provider: &str,
        model_id: &str,
    ) -> Result<EntryId, StoreError> {
        self.append(
            Kind::ModelChange,
            vec![
                ("provider", Some(provider.into())),
                ("modelId", Some(model_id.into())),
            ],
        )
    }

    /// Appends the choice of a thinking level.
    ///
    /// # Errors
    /// As [`Session::append_message`].
    pub fn append_thinking_level(&mut self, level: &str) -> Result<EntryId, StoreError> {
        self.append(
            Kind::ThinkingLevelChange,
            vec![("thinkingLevel", Some(level.into()))],
        )
    }

    /// Appends a compaction. The system message of the context as it stands now goes with it.
    ///
    /// # Errors
    /// As [`Session::append_message`].
    pub fn append_compaction(
        &mut self,
        compaction: CompactionEntry,
    ) -> Result<EntryId, StoreError> {
        let now = self.stamps.now_ms();
        let system = self.context().system().map(|message| {
            let mut message = SystemMessage::clone(message);
            message.timestamp = now;
            Message::System(message).to_value()
        });
        let id = self.new_entry_id();
        let first_kept = compaction.first_kept.unwrap_or_else(|| id.to_string());
        let fields = vec![
            ("summary", Some(compaction.summary.into())),
            ("firstKeptEntryId", Some(first_kept.into())),
            ("tokensBefore", Some(compaction.tokens_before.into())),
            ("details", compaction.details),
            ("usage", usage_value(compaction.usage)),
            ("fromHook", compaction.from_hook.map(Value::Bool)),
            ("systemMessage", system),
        ];
        self.append_with(id, now, Kind::Compaction, fields)
    }

    /// Appends a context edit: `null` omits the target for the model, `{content}` replaces what the model reads of it, and
    /// `{"original": true}` takes earlier edits back (stored as the content that the target itself has).
    ///
    /// # Errors
    /// [`StoreError::BadReplacement`], [`StoreError::NotFound`], [`StoreError::NotOnBranch`], [`StoreError::NotEditable`]
    /// in this order; then as [`Session::append_message`].
    pub fn append_context_edit(
        &mut self,
        target: &str,
        replacement: Value,
    ) -> Result<EntryId, StoreError> {
        let (pos, role) = self.editable(target, &replacement)?;
        let back = takes_back(&replacement);
        let replacement = if back {
            self.original(pos)
                .ok_or_else(|| StoreError::NotEditable(target.to_owned()))?
        } else {
            as_blocks_for(role, replacement)
        };
        self.append(
            Kind::ContextEdit,
            vec![
                ("targetId", Some(target.into())),
                ("replacement", Some(replacement)),
            ],
        )
    }

    /// Finds what a context edit is about, and its role.
    ///
    /// # Errors
    /// As [`Session::append_context_edit`].
    pub(crate) fn editable(
        &self,
        target: &str,
        replacement: &Value,
    ) -> Result<(Pos, Role), StoreError> {
        let valid = match replacement {
            Value::Null => true,
            Value::Object(_) if takes_back(replacement) => true,
            Value::Object(fields) => matches!(
                fields.get("content"),
                Some(Value::String(_) | Value::Array(_))
            ),
            _ => false,
        };
        if !valid {
            return Err(StoreError::BadReplacement);
        }
        let pos = self.on_path(target)?;
        match Entries::facts(self, pos).map(|facts| (facts.kind, facts.role)) {
            Some((Kind::CustomMessage, _)) => Ok((pos, Role::Custom)),
            Some((Kind::Message, role @ (Role::User | Role::Assistant | Role::ToolResult))) => {
                Ok((pos, role))
            }
            _ => Err(StoreError::NotEditable(target.to_owned())),
        }
    }

    /// Finds an entry of the active branch.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::NotOnBranch`].
    pub(crate) fn on_path(&self, id: &str) -> Result<Pos, StoreError> {
        let pos = self
            .find(id)
            .ok_or_else(|| StoreError::NotFound(id.to_owned()))?;
        match self.is_on_path(pos) {
            true => Ok(pos),
            false => Err(StoreError::NotOnBranch(id.to_owned())),
        }
    }

    /// The content of an entry as it stands in its line, as a replacement.
    fn original(&self, pos: Pos) -> Option<Value> {
        let mut value = Entries::entry(self, pos)?.value();
        let holder = match Entries::facts(self, pos)?.kind {
            Kind::Message => value.get_mut("message")?,
            _ => &mut value,
        };
        let content = holder
            .get_mut("content")
            .map(Value::take)
            .filter(|content| !content.is_null());
        let content = content.unwrap_or_else(|| Value::Array(Vec::new()));
        Some(as_blocks_for(
            Entries::facts(self, pos)?.role,
            serde_json::json!({"content": content}),
        ))
    }

    /// Appends state of an extension, never shown to the model.
    ///
    /// # Errors
    /// As [`Session::append_message`].
    pub fn append_custom(
        &mut self,
        custom_type: &str,
        data: Option<Value>,
    ) -> Result<EntryId, StoreError> {
        self.append(
            Kind::Custom,
            vec![("customType", Some(custom_type.into())), ("data", data)],
        )
    }

    /// Appends a message of an extension, shown to the model.
    ///
    /// # Errors
    /// As [`Session::append_message`].
    pub fn append_custom_message(
        &mut self,
        custom_type: &str,
        content: &Content,
        display: bool,
        details: Option<Value>,
    ) -> Result<EntryId, StoreError> {
        let fields = vec![
            ("customType", Some(custom_type.into())),
            ("content", serde_json::to_value(content).ok()),
            ("display", Some(display.into())),
            ("details", details),
        ];
        self.append(Kind::CustomMessage, fields)
    }

    /// Appends a label on an entry; `None` or an empty one clears it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for an unknown target; then as [`Session::append_message`].
    pub fn append_label(
        &mut self,
        target: &str,
        label: Option<&str>,
    ) -> Result<EntryId, StoreError> {
        if self.find(target).is_none() {
            return Err(StoreError::NotFound(target.to_owned()));
        }
        let label = label.filter(|label| !label.is_empty()).map(Value::from);
        self.append(
            Kind::Label,
            vec![("targetId", Some(target.into())), ("label", label)],
        )
    }

    /// Appends the session's name: line breaks become spaces; a blank one clears it.
    ///
    /// # Errors
    /// As [`Session::append_message`].
    pub fn append_session_info(&mut self, name: &str) -> Result<EntryId, StoreError> {
        self.append(
            Kind::SessionInfo,
            vec![("name", Some(one_line(name).into()))],
        )
    }

    /// Appends tokens that were spent outside of answers.
    ///
    /// # Errors
    /// As [`Session::append_message`].
    pub fn append_usage(
        &mut self,
        kind: &str,
        model: (&str, &str),
        usage: Usage,
        note: Option<&str>,
    ) -> Result<EntryId, StoreError> {
        let fields = vec![
            ("kind", Some(kind.into())),
            ("provider", Some(model.0.into())),
            ("model", Some(model.1.into())),
            ("usage", usage_value(Some(usage))),
            ("note", note.map(Value::from)),
        ];
        self.append(Kind::Usage, fields)
    }

    /// Moves the leaf and appends a summary of the branch that is left. `target` is `None` for before the first entry.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for an unknown target; then as [`Session::append_message`].
    pub fn branch_with_summary(
        &mut self,
        target: Option<&str>,
        summary: SummaryEntry,
    ) -> Result<EntryId, StoreError> {
        let leaf = match target {
            Some(id) => Some(
                self.find(id)
                    .ok_or_else(|| StoreError::NotFound(id.to_owned()))?,
            ),
            None => None,
        };
        let left = self.leaf();
        let from = self
            .leaf_id()
            .map_or_else(|| "root".to_owned(), ToString::to_string);
        self.move_leaf(leaf);
        let fields = vec![
            ("fromId", Some(from.into())),
            ("summary", Some(summary.summary.into())),
            ("details", summary.details),
            ("usage", usage_value(summary.usage)),
            ("fromHook", summary.from_hook.map(Value::Bool)),
        ];
        let appended = self.append(Kind::BranchSummary, fields);
        if appended.is_err() {
            self.move_leaf(left);
        }
        appended
    }

    pub(crate) fn new_entry_id(&mut self) -> EntryId {
        let index = &self.index;
        fresh_id(&mut *self.stamps, |id| index.contains_key(id)).into()
    }

    fn append(&mut self, kind: Kind, fields: Fields) -> Result<EntryId, StoreError> {
        let id = self.new_entry_id();
        let now = self.stamps.now_ms();
        self.append_with(id, now, kind, fields)
    }

    fn append_with(
        &mut self,
        id: EntryId,
        now: i64,
        kind: Kind,
        fields: Fields,
    ) -> Result<EntryId, StoreError> {
        let mut object = Map::new();
        let parent = self.leaf_id().map_or(Value::Null, |id| id.as_str().into());
        object.insert("type".into(), kind.as_str().into());
        object.insert("id".into(), id.as_str().into());
        object.insert("parentId".into(), parent);
        object.insert("timestamp".into(), iso_time(now).into());
        let fields = fields
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)));
        object.extend(fields);
        self.append_line(&json::stringify(&Value::Object(object)))?;
        Ok(id)
    }

    /// Appends a finished line; its parent must be the leaf.
    pub(crate) fn append_line(&mut self, line: &str) -> Result<(), StoreError> {
        let Some(entry) = Entry::parse(line) else {
            debug_assert!(false, "an own line reads back: {line}");
            return Ok(());
        };
        let place = self.store(&entry)?;
        let waits = matches!(place, Place::Memory(_)) && self.disk.is_some();
        let parent = self.leaf.unwrap_or(NONE);
        let pos = self.add_slot(entry.id().clone(), parent, *entry.facts(), place);
        if waits {
            self.pending.push(pos);
        }
        if let Some(note) = super::Note::of(&entry) {
            self.note(note);
        }
        self.leaf = Some(pos);
        self.carry_on(pos, &entry);
        Ok(())
    }

    /// Appends finished lines in a chain, the first at the leaf, with one write call for all.
    pub(crate) fn append_batch(&mut self, lines: &[String]) -> Result<(), StoreError> {
        for entry in lines.iter().filter_map(|line| Entry::parse(line)) {
            let pos = self.push_in_memory(&entry);
            if self.disk.is_some() {
                self.pending.push(pos);
            }
            self.leaf = Some(pos);
        }
        *self.cache.get_mut() = None;
        if self.has_conversation() && !self.pending.is_empty() {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what waits in memory.
    ///
    /// # Errors
    /// [`StoreError::Exists`]; other trouble is a notice.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let Some(mut disk) = self.disk.take() else {
            return Ok(());
        };
        let outcome = self.write(&mut disk, None);
        self.settle(disk, outcome.map(|_| ()))
    }

    /// Takes the disk back after a write, and tells a person about trouble.
    fn settle(&mut self, disk: Disk, outcome: io::Result<()>) -> Result<(), StoreError> {
        let (path, unborn) = (disk.path.clone(), disk.is_unborn());
        self.disk = Some(disk);
        match outcome {
            Ok(()) if std::mem::take(&mut self.away) => {
                self.notices.push(StoreNotice::SavedAgain(path));
            }
            Ok(()) => {}
            Err(error) if unborn && error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(StoreError::Exists(path));
            }
            Err(error) => self.notice_away(&path, &error),
        }
        Ok(())
    }

    /// Takes the new leaf into the cached path and context.
    fn carry_on(&mut self, pos: Pos, entry: &Entry) {
        let Some(mut cache) = self.cache.get_mut().take() else {
            return;
        };
        cache.path.push(pos);
        if !Arc::make_mut(&mut cache.context).push(self, pos, entry) {
            cache.context = Arc::new(crate::session::projection::Context::build(
                self,
                &cache.path,
            ));
        }
        *self.cache.get_mut() = Some(cache);
    }

    /// Writes an entry with all that waits before it, or lets it wait.
    fn store(&mut self, entry: &Entry) -> Result<Place, StoreError> {
        let in_memory = Place::Memory(entry.shared_text());
        let Some(mut disk) = self.disk.take() else {
            return Ok(in_memory);
        };
        let facts = entry.facts();
        let begins = facts.is_message(Role::User) || facts.is_message(Role::Assistant);
        if disk.is_unborn() && !begins && !(self.away && self.has_conversation()) {
            self.disk = Some(disk);
            return Ok(in_memory);
        }
        let (place, outcome) = match self.write(&mut disk, Some(entry)) {
            Ok(place) => (place, Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.settle(disk, outcome)?;
        Ok(place.unwrap_or(in_memory))
    }

    /// Whether there is a user or assistant message: what makes a session worth a file.
    fn has_conversation(&self) -> bool {
        let speaks = |slot: &super::Slot| {
            slot.facts.is_message(Role::User) || slot.facts.is_message(Role::Assistant)
        };
        self.slots.iter().any(speaks)
    }

    /// Writes all that waits, and this entry behind it; returns where the entry stands.
    fn write(&mut self, disk: &mut Disk, entry: Option<&Entry>) -> io::Result<Option<Place>> {
        let look = disk.look()?;
        if let Look::Replaced = look {
            self.reload(disk)?;
        }
        let waiting: Vec<Arc<str>> = self
            .pending
            .iter()
            .filter_map(|pos| self.memory_text(*pos))
            .collect();
        let header = self.header.line();
        let mut lines: Vec<&str> = waiting.iter().map(|text| &**text).collect();
        lines.extend(entry.map(Entry::text));
        let offsets = match look {
            Look::Unborn => {
                lines.insert(0, &header);
                let mut offsets = disk.create(&lines)?;
                offsets.remove(0);
                lines.remove(0);
                offsets
            }
            Look::Gone => {
                let offsets = disk.restore(&lines)?;
                self.notices.push(StoreNotice::Restored(disk.path.clone()));
                offsets
            }
            Look::Grown(loaded) => {
                self.take_foreign(disk, loaded);
                self.append_lines(disk, &lines)?
            }
            Look::Same | Look::Replaced => self.append_lines(disk, &lines)?,
        };
        let places = offsets
            .iter()
            .zip(&lines)
            .map(|(offset, line)| Place::File {
                offset: *offset,
                len: u32::try_from(line.len()).unwrap_or(u32::MAX),
            });
        let mut places: Vec<Place> = places.collect();
        let last = if entry.is_some() { places.pop() } else { None };
        for (pos, place) in std::mem::take(&mut self.pending).into_iter().zip(places) {
            if let Some(slot) = self.slots.get_mut(pos as usize) {
                slot.place = place;
            }
        }
        Ok(last)
    }

    fn append_lines(&mut self, disk: &mut Disk, lines: &[&str]) -> io::Result<Vec<u64>> {
        let (offsets, slipped_in) = disk.append(lines)?;
        if let Some(loaded) = slipped_in {
            self.take_foreign(disk, loaded);
        }
        Ok(offsets)
    }

    fn memory_text(&self, pos: Pos) -> Option<Arc<str>> {
        match &self.slots.get(pos as usize)?.place {
            Place::Memory(text) => Some(text.clone()),
            Place::File { .. } => None,
        }
    }

    /// Takes in what another program appended; the leaf stays ours.
    fn take_foreign(&mut self, disk: &Disk, loaded: super::load::Loaded) {
        let count = loaded.found.len();
        if count == 0 {
            return;
        }
        self.take_loaded(loaded);
        if self.foreign == 0 {
            self.notices.push(StoreNotice::ForeignEntries {
                path: disk.path.clone(),
                count,
            });
        }
        self.foreign += count;
    }

    /// Reads a file that took the place of ours; entries it lacks wait to be appended to it.
    fn reload(&mut self, disk: &mut Disk) -> io::Result<()> {
        let mut fresh = Disk::open(disk.path.clone())?;
        let loaded = fresh.load()?;
        let Some(header) = loaded
            .header
            .clone()
            .filter(|header| header.version() >= super::Header::VERSION)
        else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "another file lies there that is no session",
            ));
        };
        let known: std::collections::HashSet<&EntryId> =
            loaded.found.iter().map(|found| &found.id).collect();
        // The old handle still reads the old text; a file cut in place has lost it, then only what waits is left.
        let old: Vec<Entry> = {
            let missing = |pos: &Pos| self.id_at(*pos).is_some_and(|id| !known.contains(id));
            let text = |pos: Pos| match &self.slots.get(pos as usize)?.place {
                Place::Memory(text) => Entry::parse(text),
                Place::File { offset, len } => {
                    Entry::parse(&String::from_utf8_lossy(&disk.read(*offset, *len)?))
                }
            };
            self.positions().filter(missing).filter_map(text).collect()
        };
        let leaf = self.leaf_id().cloned();
        drop(known);
        fresh.lock();
        *disk = fresh;
        self.header = header;
        self.slots.clear();
        self.index.clear();
        self.labels.clear();
        self.name = None;
        self.take_loaded(loaded);
        self.pending.clear();
        for entry in old {
            let pos = self.push_in_memory(&entry);
            self.pending.push(pos);
        }
        self.leaf = leaf
            .and_then(|id| self.find(&id))
            .or(self.positions().next_back());
        *self.cache.get_mut() = None;
        self.stats = Arc::default();
        self.load = super::Load::next();
        self.notices.push(StoreNotice::Replaced(disk.path.clone()));
        Ok(())
    }
}

/// Whether a context edit asks for what the entry itself holds.
fn takes_back(replacement: &Value) -> bool {
    matches!(replacement.get("original"), Some(Value::Bool(true)))
}

/// An answer or a result holds blocks, whatever its line says.
fn as_blocks_for(role: Role, replacement: Value) -> Value {
    match role {
        Role::Assistant | Role::ToolResult => as_blocks(replacement),
        _ => replacement,
    }
}

fn as_blocks(mut replacement: Value) -> Value {
    if let Some(content) = replacement.get_mut("content")
        && let Value::String(text) = content
    {
        *content = serde_json::json!([{"type": "text", "text": text}]);
    }
    replacement
}

/// Returns a name as it is stored: runs of line breaks are one space, no blanks at the ends.
pub(crate) fn one_line(name: &str) -> String {
    let parts: Vec<&str> = name.split(['\r', '\n']).collect();
    let mut out = String::with_capacity(name.len());
    for (at, part) in parts.iter().enumerate() {
        if at > 0 && !(part.is_empty() && at + 1 < parts.len()) {
            out.push(' ');
        }
        out.push_str(part);
    }
    out.trim().to_owned()
}
