//! Boundaries of a run (`turn_end`, `agent_before_settle`): what extensions see of the session there, and what becomes of
//! the entries they add.

use serde_json::{Map, Value, json};

use super::core::{Core, now_ms};
use crate::agent::FinishedTurn;
use crate::ai::Message;
use crate::entry::{Entry, EntryId, Facts, Kind, Role, iso_time};
use crate::extensions::{Boundary, BoundaryPoint, BoundaryView, Draft, put};
use crate::session::projection::{Context, Entries, Pos};
use crate::session::protocol::NoticeLevel;
use crate::session::store::Session;

/// Asks extensions at a boundary and appends what they add; true: one more request is wanted.
pub(super) async fn ask(
    core: &Core,
    at: Boundary,
    outcome: &'static str,
    turn: Option<(u32, &FinishedTurn)>,
) -> bool {
    let view = View { core, turn };
    let point = BoundaryPoint {
        at,
        outcome,
        view: &view,
    };
    let answer = core.config.hooks.boundary(&point).await;
    append(core, answer.drafts) && answer.go_on
}

/// Appends in order: all of it, or nothing when one part cannot stand; false then.
fn append(core: &Core, drafts: Vec<Draft>) -> bool {
    core.with(|state| {
        if let Err(error) = state.check_drafts(&drafts) {
            core.notice(NoticeLevel::Error, error);
            return false;
        }
        for draft in drafts {
            if let Err(error) = state.append_draft(core, draft) {
                core.notice(NoticeLevel::Error, error);
                return false;
            }
        }
        true
    })
}

struct View<'a> {
    core: &'a Core,
    /// Number of the turn in its run, and the turn.
    turn: Option<(u32, &'a FinishedTurn)>,
}

impl BoundaryView for View<'_> {
    fn facts(&self) -> Map<String, Value> {
        let Some((index, turn)) = self.turn else {
            return Map::new();
        };
        let results: Vec<Value> = turn.tool_results.iter().map(|it| it.to_value()).collect();
        let entries = self.core.with(|state| {
            let run = state.run.as_ref();
            run.map(|run| run.answer_entries.clone())
                .unwrap_or_default()
        });
        let (answer, rest) = match entries.split_first() {
            Some((answer, rest)) => (Some(answer), rest),
            None => (None, [].as_slice()),
        };
        let facts = json!({
            "turnIndex": index, "message": turn.message.to_value(), "toolResults": results,
            "messageEntryId": answer, "toolResultEntryIds": rest,
        });
        facts.as_object().cloned().unwrap_or_default()
    }

    fn preview(&self, drafts: &[Draft]) -> Result<Value, String> {
        self.core.with(|state| {
            let mut ahead = Ahead::new(&state.session);
            for draft in drafts {
                ahead.add(draft)?;
            }
            let beside = state.beside.iter().cloned().map(Message::Custom);
            let pending: Vec<Value> = beside.map(|message| message.to_value()).collect();
            let context = Context::build(&ahead, &ahead.path);
            let entries = context
                .items()
                .iter()
                .filter_map(|item| ahead.entry(item.pos));
            let entries: Vec<Value> = entries.map(|entry| entry.value()).collect();
            let values = |messages: &mut dyn Iterator<Item = Value>| messages.collect::<Vec<_>>();
            let messages = values(&mut context.messages().map(|it| it.to_value()));
            let llm = context.llm_messages();
            let last = llm
                .iter()
                .rev()
                .find(|it| !matches!(***it, Message::System(_)));
            let can_continue = last.is_some_and(|last| last.role() != "assistant");
            Ok(json!({
                "contextEntries": entries, "contextMessages": messages,
                "llmMessages": values(&mut llm.iter().map(|it| it.to_value())),
                "pendingMessages": pending, "canContinue": can_continue,
            }))
        })
    }
}

/// A session with entries that are not appended yet.
struct Ahead<'a> {
    session: &'a Session,
    extra: Vec<Entry>,
    path: Vec<Pos>,
}

impl<'a> Ahead<'a> {
    fn new(session: &'a Session) -> Self {
        Self {
            session,
            extra: Vec::new(),
            path: session.path(),
        }
    }

    fn add(&mut self, draft: &Draft) -> Result<(), String> {
        self.check(draft)?;
        let at = self.session.len() + self.extra.len();
        let mut fields = fields_of(draft);
        // Only to be looked at: the ids of entries that are stored are made by the store.
        let id = format!("draft-{}", self.extra.len());
        let parent = self.path.last().and_then(|pos| Entries::id(self, *pos));
        put(&mut fields, "id", id);
        put(&mut fields, "parentId", json!(parent.map(EntryId::as_str)));
        put(&mut fields, "timestamp", iso_time(now_ms()));
        let entry = Entry::parse(&fields.to_string()).ok_or("an entry that cannot be stored")?;
        self.extra.push(entry);
        self.path.push(Pos::try_from(at).unwrap_or(Pos::MAX));
        Ok(())
    }

    /// The rules by which the store takes such an entry.
    fn check(&self, draft: &Draft) -> Result<(), String> {
        let on_path = |id: &str| {
            let mut path = self.path.iter();
            path.find(|pos| Entries::id(self, **pos).is_some_and(|own| own.as_str() == id))
        };
        match draft {
            Draft::Custom { .. } | Draft::Message(_) => Ok(()),
            Draft::Compaction { first_kept, .. } => match first_kept {
                Some(id) if on_path(id).is_none() => {
                    Err(format!("compaction: {id} is not on this branch"))
                }
                _ => Ok(()),
            },
            Draft::Edit {
                target,
                replacement,
            } => {
                let pos = on_path(target)
                    .ok_or_else(|| format!("context_edit: {target} is not on this branch"))?;
                let editable = Entries::facts(self, *pos).is_some_and(|facts| {
                    let role = [Role::User, Role::Assistant, Role::ToolResult];
                    facts.kind == Kind::CustomMessage
                        || role.into_iter().any(|role| facts.is_message(role))
                });
                let content = replacement.get("content");
                let valid = replacement.is_null()
                    || content.is_some_and(|it| it.is_string() || it.is_array());
                match (editable, valid) {
                    (false, _) => Err(format!("context_edit: {target} holds no message to edit")),
                    (_, false) => Err(format!(
                        "context_edit of {target}: replacement is null or has a content"
                    )),
                    _ => Ok(()),
                }
            }
        }
    }
}

fn fields_of(draft: &Draft) -> Value {
    match draft {
        Draft::Custom { custom_type, data } => {
            json!({"type": "custom", "customType": custom_type, "data": data})
        }
        Draft::Message(message) => json!({
            "type": "custom_message", "customType": message.custom_type,
            "content": message.content, "display": message.display, "details": message.details,
        }),
        Draft::Edit {
            target,
            replacement,
        } => json!({"type": "context_edit", "targetId": target, "replacement": replacement}),
        Draft::Compaction {
            summary,
            first_kept,
            ..
        } => json!({
            "type": "compaction", "summary": summary, "tokensBefore": 0,
            "firstKeptEntryId": first_kept, "fromHook": true,
        }),
    }
}

impl Entries for Ahead<'_> {
    fn id(&self, pos: Pos) -> Option<&EntryId> {
        match self.extra_at(pos) {
            Some(entry) => Some(entry.id()),
            None => Entries::id(self.session, pos),
        }
    }

    fn facts(&self, pos: Pos) -> Option<&Facts> {
        match self.extra_at(pos) {
            Some(entry) => Some(entry.facts()),
            None => Entries::facts(self.session, pos),
        }
    }

    fn entry(&self, pos: Pos) -> Option<Entry> {
        match self.extra_at(pos) {
            Some(entry) => Some(entry.clone()),
            None => Entries::entry(self.session, pos),
        }
    }
}

impl Ahead<'_> {
    fn extra_at(&self, pos: Pos) -> Option<&Entry> {
        let at = usize::try_from(pos).ok()?.checked_sub(self.session.len())?;
        self.extra.get(at)
    }
}
