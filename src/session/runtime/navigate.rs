//! Moving in the tree, labels and context edits.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::asking::{Patient, summary_model};
use super::core::{Answer, Core};
use super::state::State;
use crate::entry::Kind;
use crate::extensions::{TreePlan, put};
use crate::session::branch_summary::{Instructions, select, summarise, token_budget};
use crate::session::compaction::{RESERVE_TOKENS, SummaryError};
use crate::session::projection::{Entries, Pos};
use crate::session::protocol::{Command, CommandError, Event, SummaryWish};
use crate::session::store::SummaryEntry;

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
            if state.summarizing.is_some() {
                return Err(CommandError::new(
                    "the context cannot be edited while a summary of it is written: wait for it or abort it",
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

/// A move that was looked at and may be made.
struct Move {
    target: Option<String>,
    leaf: Option<String>,
    prefill: Option<String>,
    left: Vec<Pos>,
    old_leaf: Option<String>,
    /// The newest entry that both branches have.
    common: Option<String>,
}

async fn navigate(
    core: &Arc<Core>,
    target: Option<String>,
    mut wish: SummaryWish,
    mut label: Option<String>,
) -> Answer {
    let cancel = core.stop.child_token();
    let begun = core.with_activity(|state| -> Result<_, CommandError> {
        let planned = plan(state, target)?;
        if planned.is_some() {
            state.summarizing = Some(cancel.clone());
        }
        Ok(planned)
    })?;
    let Some(planned) = begun else {
        return Ok(moved(None, false));
    };
    let hooks = &core.config.hooks;
    let wants = wish != SummaryWish::None && !planned.left.is_empty();
    let plan = tree_plan(core, &planned, wants, &wish, label.as_deref());
    let verdict = hooks.before_tree(&plan).await;
    label = verdict.label.or(label);
    if let Some(instructions) = verdict.instructions {
        wish = SummaryWish::With(instructions);
    }
    let replace = verdict.replace_instructions;
    let summary = match (verdict.cancel, wants, verdict.summary) {
        (true, ..) => Err(SummaryError::Aborted),
        (_, false, _) => Ok(None),
        (_, true, Some(own)) => Ok(Some(SummaryEntry {
            summary: own.summary,
            details: own.details,
            usage: own.usage,
            from_hook: Some(true),
        })),
        (_, true, None) => summarised(core, &planned.left, &wish, replace, &cancel)
            .await
            .map(Some),
    };
    let from_hook = summary.as_ref().is_ok_and(|it| {
        let own = it.as_ref().and_then(|summary| summary.from_hook);
        own == Some(true)
    });
    let has_summary = matches!(summary, Ok(Some(_)));
    let (answer, has_moved) = core.with_activity(|state| {
        state.summarizing = None;
        let answer = match summary {
            Ok(summary) => carry_out(core, state, &planned, summary, label.as_deref())
                .map(|answer| (answer, true)),
            Err(SummaryError::Aborted) => Ok((moved(None, true), false)),
            Err(error) => Err(CommandError(format!("Branch summary failed: {error}"))),
        };
        state.flush_held(core);
        answer
    })?;
    if has_moved {
        core.hear("session_tree", || {
            core.with(|state| tree_record(state, &planned, has_summary, from_hook))
        })
        .await;
    }
    Ok(answer)
}

/// What extensions hear of a move that was made.
fn tree_record(state: &State, planned: &Move, has_summary: bool, from_hook: bool) -> Value {
    let leaf = state.session.leaf_id().map(ToString::to_string);
    let mut record = json!({"newLeafId": leaf, "oldLeafId": planned.old_leaf});
    if has_summary {
        let is_summary = |entry: &crate::entry::Entry| entry.facts().kind == Kind::BranchSummary;
        let path = state.session.path();
        let mut newest = path
            .iter()
            .rev()
            .filter_map(|pos| Entries::entry(&state.session, *pos));
        if let Some(entry) = newest.find(is_summary) {
            put(&mut record, "summaryEntry", entry.value());
            put(&mut record, "fromExtension", from_hook);
        }
    }
    record
}

/// What extensions see of a move before it is made.
fn tree_plan(
    core: &Core,
    planned: &Move,
    wants_summary: bool,
    wish: &SummaryWish,
    label: Option<&str>,
) -> TreePlan {
    let listens = core.config.hooks.wants("session_before_tree");
    let left = core.with(|state| {
        let entries = planned.left.iter().filter(|_| listens);
        let entries = entries.filter_map(|pos| Entries::entry(&state.session, *pos));
        entries.map(|entry| entry.value()).collect()
    });
    TreePlan {
        target: planned.target.clone(),
        old_leaf: planned.old_leaf.clone(),
        common: planned.common.clone(),
        left,
        wants_summary,
        instructions: match wish {
            SummaryWish::With(text) => Some(text.clone()),
            _ => None,
        },
        label: label.map(str::to_owned),
    }
}

/// Looks where a move would lead; `None` when the leaf is there already.
fn plan(state: &State, target: Option<String>) -> Result<Option<Move>, CommandError> {
    refuse_while_busy(state)?;
    let session = &state.session;
    let old_leaf = session.leaf_id().map(ToString::to_string);
    if old_leaf == target {
        return Ok(None);
    }
    let Some(id) = &target else {
        return Ok(Some(Move {
            target,
            leaf: None,
            prefill: None,
            left: session.path(),
            old_leaf,
            common: None,
        }));
    };
    let pos = session
        .find(id)
        .ok_or_else(|| CommandError(format!("Entry {id} not found")))?;
    let destination = session.destination(pos);
    let leaf = destination
        .leaf
        .and_then(|pos| Entries::id(session, pos))
        .map(ToString::to_string);
    let left = session.left_behind(session.leaf(), pos);
    let common = left
        .common_ancestor
        .and_then(|pos| Entries::id(session, pos));
    Ok(Some(Move {
        leaf,
        prefill: destination.prefill,
        common: common.map(ToString::to_string),
        left: left.entries,
        target,
        old_leaf,
    }))
}

async fn summarised(
    core: &Arc<Core>,
    left: &[Pos],
    wish: &SummaryWish,
    replace: bool,
    cancel: &CancellationToken,
) -> Result<SummaryEntry, SummaryError> {
    let model = summary_model(core, cancel)
        .ok_or_else(|| SummaryError::Provider("No model selected".to_owned()))?;
    let selection = core.with(|state| {
        let settings = state.resources.settings.effective();
        let reserve = settings
            .get("branchSummary")
            .and_then(|group| group.get("reserveTokens"))
            .and_then(Value::as_u64)
            .unwrap_or(RESERVE_TOKENS);
        let budget = token_budget(model.model.context_window, reserve);
        select(&state.session, left, budget)
    });
    let asker = Patient {
        core,
        reason: None,
        cancel: cancel.clone(),
    };
    let instructions = match wish {
        SummaryWish::With(text) if replace => Instructions::Replace(text),
        SummaryWish::With(text) => Instructions::Focus(text),
        _ => Instructions::None,
    };
    let summary = summarise(&asker, &model, &selection, instructions).await?;
    Ok(SummaryEntry {
        summary: summary.text,
        details: Some(summary.details),
        from_hook: Some(false),
        usage: summary.usage,
    })
}

/// Moves the leaf, with a summary of what is left or without.
fn carry_out(
    core: &Core,
    state: &mut State,
    planned: &Move,
    summary: Option<SummaryEntry>,
    label: Option<&str>,
) -> Answer {
    let labelled = match summary {
        Some(summary) => {
            let leaf = planned.leaf.as_deref();
            let id = state.session.branch_with_summary(leaf, summary)?;
            state.tell_entry(core, &id);
            Some(id.to_string())
        }
        None => {
            match &planned.leaf {
                Some(id) => state.session.branch(id)?,
                None => state.session.reset_leaf(),
            }
            planned.target.clone()
        }
    };
    if let (Some(label), Some(target)) = (label, labelled) {
        let id = state.session.append_label(&target, Some(label))?;
        state.tell_entry(core, &id);
    }
    state.restore_tools();
    tell_tree(core, state);
    Ok(moved(planned.prefill.clone(), false))
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

fn moved(prefill: Option<String>, cancelled: bool) -> Value {
    let mut out = Map::new();
    if let Some(prefill) = prefill {
        out.insert("prefill".to_owned(), prefill.into());
    }
    out.insert("cancelled".to_owned(), cancelled.into());
    Value::Object(out)
}
