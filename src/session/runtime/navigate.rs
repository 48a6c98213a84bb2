//! Moving in the tree, labels and context edits.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::core::{Answer, Core};
use super::state::State;
use crate::ai::Message;
use crate::entry::Body;
use crate::session::protocol::{Command, CommandError, Event, SummaryWish};

pub(super) async fn answer(core: &Arc<Core>, command: Command) -> Answer {
    match command {
        Command::SetLabel { entry, label } => core.with(|state| {
            let id = state.session.append_label(&entry, label.as_deref())?;
            state.tell_entry(core, &id);
            tell_tree(core, state);
            Ok(Value::Null)
        }),
        Command::EditContext {
            target,
            replacement,
        } => core.with(|state| {
            if state.run.is_some() {
                return Err(CommandError::new(
                    "the context cannot be edited while a response runs: wait for it or abort it",
                ));
            }
            let id = state.session.append_context_edit(&target, replacement)?;
            state.tell_entry(core, &id);
            tell_tree(core, state);
            Ok(Value::Null)
        }),
        Command::Navigate {
            target,
            summary,
            label,
        } => navigate(core, target, summary, label).await,
        other => Err(CommandError(format!("not about the tree: {other:?}"))),
    }
}

fn tell_tree(core: &Core, state: &State) {
    core.tell(Event::TreeChanged {
        leaf: state.session.leaf_id().map(ToString::to_string),
    });
}

async fn navigate(
    core: &Arc<Core>,
    target: Option<String>,
    _summary: SummaryWish,
    label: Option<String>,
) -> Answer {
    core.with(|state| {
        refuse_while_busy(state)?;
        if state.session.leaf_id().map(|id| id.as_str()) == target.as_deref() {
            return Ok(moved(None, false));
        }
        let (leaf, prefill) = landing(state, target.as_deref())?;
        match &leaf {
            Some(id) => state.session.branch(id)?,
            None => state.session.reset_leaf(),
        }
        if let (Some(label), Some(target)) = (&label, &target) {
            let id = state.session.append_label(target, Some(label))?;
            state.tell_entry(core, &id);
        }
        tell_tree(core, state);
        Ok(moved(prefill, false))
    })
}

fn refuse_while_busy(state: &State) -> Result<(), CommandError> {
    if state.run.is_some() {
        return Err(CommandError::new(
            "the session tree cannot be navigated while a response runs: wait for it or abort it",
        ));
    }
    if state.summarizing.is_some() {
        return Err(CommandError::new(
            "the session tree cannot be navigated while a compaction or a branch summary runs: wait for it or abort it",
        ));
    }
    Ok(())
}

/// Where the leaf goes and what the person may write again: before a message of theirs, on anything else.
fn landing(
    state: &State,
    target: Option<&str>,
) -> Result<(Option<String>, Option<String>), CommandError> {
    let Some(target) = target else {
        return Ok((None, None));
    };
    let Some(entry) = state.session.get(target) else {
        return Err(CommandError(format!("Entry {target} not found")));
    };
    let text = match entry.body() {
        Body::Message(message) => match &message {
            Message::User(user) => Some(user.content.text("")),
            _ => None,
        },
        Body::CustomMessage(custom) => Some(custom.content.text("")),
        _ => None,
    };
    Ok(match text {
        Some(text) => (entry.parent_id().map(ToString::to_string), Some(text)),
        None => (Some(target.to_owned()), None),
    })
}

fn moved(prefill: Option<String>, cancelled: bool) -> Value {
    let mut out = Map::new();
    if let Some(prefill) = prefill {
        out.insert("prefill".to_owned(), prefill.into());
    }
    out.insert("cancelled".to_owned(), cancelled.into());
    Value::Object(out)
}
