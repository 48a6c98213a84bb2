//! When the conversation is compacted, and what follows from it. What to do is decided by pure functions of
//! [`crate::session::compaction`]; here it is carried out and told.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::asking::{Patient, summary_model};
use super::core::{Answer, Core};
use super::state::{State, describe};
use crate::ai::Usage;
use crate::extensions::{CompactPlan, CompactVerdict, put};
use crate::session::compaction::decide::{self, Decision, Situation, When};
use crate::session::compaction::prepare::Sourced;
use crate::session::compaction::{
    CompactionSettings, Preparation, SummaryError, prepare, summarise,
};
use crate::session::projection::Entries;
use crate::session::protocol::{CommandError, Event, NoticeLevel};
use crate::session::store::CompactionEntry;

/// What follows a run after the look at its size.
pub(super) enum AfterRun {
    /// The failed turn is run again.
    Again,
    /// Nothing.
    Done,
}

/// Why a compaction begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Manual,
    Threshold,
    Overflow,
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Threshold => "threshold",
            Self::Overflow => "overflow",
        }
    }

    /// What a failure is called.
    fn failed(self) -> &'static str {
        match self {
            Self::Manual => "Compaction failed",
            Self::Threshold => "Auto-compaction failed",
            Self::Overflow => "Context overflow recovery failed",
        }
    }
}

/// Why there is no compaction.
enum Failure {
    Aborted,
    Error(String),
}

/// Checks before a new prompt: an aborted answer counts too, and nothing is asked again.
pub(super) async fn before_prompt(core: &Arc<Core>, cancel: &CancellationToken) {
    check(core, When::BeforePrompt, cancel).await;
}

/// Checks after a run.
pub(super) async fn after_run(core: &Arc<Core>, cancel: &CancellationToken) -> AfterRun {
    check(core, When::AfterRun, cancel).await
}

/// Checks between two turns of a run, whose results may have filled the context.
pub(super) async fn between_turns(core: &Arc<Core>, cancel: &CancellationToken) {
    let wanted = core.with(|state| {
        let (Some(model), Some(settings)) = (state.model.clone(), state.compaction(core)) else {
            return false;
        };
        decide::between_turns(&state.session.context(), &model, &settings)
    });
    if wanted && !cancel.is_cancelled() {
        automatic(core, Reason::Threshold, false, cancel).await;
    }
}

async fn check(core: &Arc<Core>, when: When, cancel: &CancellationToken) -> AfterRun {
    match core.with(|state| decision(core, state, when)) {
        Decision::Nothing => {}
        Decision::Threshold => {
            automatic(core, Reason::Threshold, false, cancel).await;
        }
        Decision::OverflowKept => {
            automatic(core, Reason::Overflow, false, cancel).await;
        }
        Decision::GiveUp { message } => core.tell(Event::CompactionEnd {
            reason: Reason::Overflow.as_str().to_owned(),
            result: None,
            aborted: false,
            will_retry: false,
            error: Some(message.to_owned()),
        }),
        Decision::OverflowRetry { omit } => {
            core.with(|state| {
                for entry in &omit {
                    state.append_edit(core, entry, Value::Null);
                }
                if let Some(run) = &mut state.run {
                    run.recovered = true;
                }
            });
            let retry = when == When::AfterRun;
            if automatic(core, Reason::Overflow, retry, cancel).await && retry {
                return AfterRun::Again;
            }
        }
    }
    AfterRun::Done
}

fn decision(core: &Core, state: &mut State, when: When) -> Decision {
    let (Some(model), Some(settings)) = (state.model.clone(), state.compaction(core)) else {
        return Decision::Nothing;
    };
    let situation = Situation {
        when,
        model: &model,
        settings: &settings,
        recovered_once: state.run.as_ref().is_some_and(|run| run.recovered),
    };
    let context = state.session.context();
    decide::after_answer(&state.session, &state.session.path(), &context, &situation)
}

/// Compacts for a run; true when the context is smaller now. Silent when there is nothing to compact.
async fn automatic(
    core: &Arc<Core>,
    reason: Reason,
    will_retry: bool,
    cancel: &CancellationToken,
) -> bool {
    let prepared = core.with(|state| {
        let settings = state.compaction(core)?;
        prepare(&state.session, &state.session.path(), &settings).ok()
    });
    let Some(preparation) = prepared else {
        return false;
    };
    core.with_activity(|state| state.compacting = true);
    core.tell(Event::CompactionStart {
        reason: reason.as_str().to_owned(),
    });
    let plan = Plan {
        reason,
        instructions: None,
        will_retry,
    };
    let done = compact(core, &plan, &preparation, cancel).await;
    core.with_activity(|state| state.compacting = false);
    let succeeded = done.is_ok();
    tell_end(core, reason, will_retry && succeeded, &done);
    hear_failure(core, &plan, &done).await;
    succeeded
}

/// Carries out `compact`: the running turn is aborted first and never continued.
pub(super) async fn manual(core: &Arc<Core>, instructions: Option<String>) -> Answer {
    core.abort();
    core.wait_idle().await;
    let cancel = core.stop.child_token();
    let begun = core.with_activity(|state| {
        if state.run.is_some() || state.summarizing.is_some() {
            return Err(CommandError::new(
                "something else began meanwhile: wait for it and compact again",
            ));
        }
        state.summarizing = Some(cancel.clone());
        core.tell(Event::CompactionStart {
            reason: Reason::Manual.as_str().to_owned(),
        });
        let settings = state.compaction_settings().map_err(CommandError);
        Ok(settings.and_then(|settings| {
            prepare(&state.session, &state.session.path(), &settings)
                .map_err(|nothing| CommandError(nothing.to_string()))
        }))
    })?;
    let plan = Plan {
        reason: Reason::Manual,
        instructions,
        will_retry: false,
    };
    let done = match begun {
        Ok(preparation) => compact(core, &plan, &preparation, &cancel).await,
        Err(error) => Err(Failure::Error(error.0)),
    };
    // Idle before anyone hears of the end.
    core.with_activity(|state| {
        state.summarizing = None;
        state.flush_held(core);
    });
    tell_end(core, Reason::Manual, false, &done);
    hear_failure(core, &plan, &done).await;
    done.map_err(|failure| match failure {
        Failure::Aborted => CommandError::new("Compaction cancelled"),
        Failure::Error(error) => CommandError(error),
    })
}

fn tell_end(core: &Core, reason: Reason, will_retry: bool, done: &Result<Value, Failure>) {
    let error = match done {
        Err(Failure::Error(error)) => Some(format!("{}: {error}", reason.failed())),
        _ => None,
    };
    core.tell(Event::CompactionEnd {
        reason: reason.as_str().to_owned(),
        result: done.as_ref().ok().cloned(),
        aborted: matches!(done, Err(Failure::Aborted)),
        will_retry,
        error,
    });
}

/// What a compaction is for.
struct Plan {
    reason: Reason,
    instructions: Option<String>,
    will_retry: bool,
}

/// Lets extensions hear of a compaction that came to nothing.
async fn hear_failure(core: &Core, plan: &Plan, done: &Result<Value, Failure>) {
    let Err(failure) = done else { return };
    core.hear("session_compact_failed", || {
        let aborted = matches!(failure, Failure::Aborted);
        let mut fields = json!({
            "reason": plan.reason.as_str(), "aborted": aborted, "willRetry": false,
            "fromExtension": false,
        });
        if let Failure::Error(error) = failure {
            put(&mut fields, "errorMessage", error.as_str());
        }
        fields
    })
    .await;
}

/// What extensions see of a compaction before it is made.
fn compact_plan(core: &Core, plan: &Plan, preparation: &Preparation) -> CompactPlan {
    let mut out = CompactPlan {
        reason: plan.reason.as_str(),
        instructions: plan.instructions.clone(),
        will_retry: plan.will_retry,
        ..CompactPlan::default()
    };
    if !core.config.hooks.wants("session_before_compact") {
        return out;
    }
    let messages =
        |list: &[Sourced]| -> Vec<Value> { list.iter().map(|it| it.message.to_value()).collect() };
    core.with(|state| {
        let settings = state.compaction_settings().unwrap_or_default();
        out.preparation = json!({
            "firstKeptEntryId": preparation.first_kept.as_str(),
            "messagesToSummarize": messages(&preparation.history),
            "turnPrefixMessages": messages(&preparation.turn_prefix),
            "isSplitTurn": preparation.is_split_turn,
            "tokensBefore": preparation.tokens_before,
            "previousSummary": preparation.previous_summary,
            "settings": {
                "enabled": settings.enabled, "reserveTokens": settings.reserve_tokens,
                "keepRecentTokens": settings.keep_recent_tokens,
            },
        });
        let path = state.session.path();
        let entries = path
            .iter()
            .filter_map(|pos| Entries::entry(&state.session, *pos));
        out.branch = entries.map(|entry| entry.value()).collect();
    });
    out
}

/// Asks for the summary (an extension may give it) and appends it.
async fn compact(
    core: &Arc<Core>,
    plan: &Plan,
    preparation: &Preparation,
    cancel: &CancellationToken,
) -> Result<Value, Failure> {
    let hooks = &core.config.hooks;
    let asked = compact_plan(core, plan, preparation);
    let verdict = hooks.before_compact(&asked).await;
    let from_extension = matches!(verdict, CompactVerdict::Use(_));
    let entry = match verdict {
        CompactVerdict::Cancel => return Err(Failure::Aborted),
        CompactVerdict::Use(own) => CompactionEntry {
            summary: own.summary,
            first_kept: own.first_kept,
            tokens_before: own.tokens_before,
            details: own.details,
            from_hook: Some(true),
            usage: own.usage,
        },
        CompactVerdict::Go => summarised(core, plan, preparation, cancel).await?,
    };
    if cancel.is_cancelled() {
        return Err(Failure::Aborted);
    }
    let (result, stored) = core.with(|state| append(core, state, entry))?;
    core.hear("session_compact", || {
        json!({
            "compactionEntry": stored, "fromExtension": from_extension,
            "reason": plan.reason.as_str(), "willRetry": plan.will_retry,
        })
    })
    .await;
    Ok(result)
}

async fn summarised(
    core: &Arc<Core>,
    plan: &Plan,
    preparation: &Preparation,
    cancel: &CancellationToken,
) -> Result<CompactionEntry, Failure> {
    let Some(model) = summary_model(core, cancel) else {
        return Err(Failure::Error("No model selected".to_owned()));
    };
    let asker = Patient {
        core,
        reason: Some(plan.reason.as_str()),
        cancel: cancel.clone(),
    };
    let summary = summarise(&asker, &model, preparation, plan.instructions.as_deref())
        .await
        .map_err(|error| match error {
            SummaryError::Aborted => Failure::Aborted,
            other => Failure::Error(other.to_string()),
        })?;
    Ok(CompactionEntry {
        summary: summary.text,
        first_kept: Some(preparation.first_kept.to_string()),
        tokens_before: preparation.tokens_before,
        details: Some(summary.details),
        from_hook: Some(false),
        usage: summary.usage,
    })
}

fn append(
    core: &Core,
    state: &mut State,
    entry: CompactionEntry,
) -> Result<(Value, Option<Value>), Failure> {
    let mut result = Map::new();
    let mut put = |key: &str, value: Value| drop(result.insert(key.to_owned(), value));
    put("summary", entry.summary.as_str().into());
    let id = state
        .session
        .append_compaction(entry.clone())
        .map_err(|error| Failure::Error(describe(&error)))?;
    state.tell_notices(core);
    let first_kept = entry.first_kept.unwrap_or_else(|| id.to_string());
    put("firstKeptEntryId", first_kept.into());
    put("tokensBefore", entry.tokens_before.into());
    let context = state.session.context();
    let after: u64 = context.items().iter().map(|item| item.tokens()).sum();
    put("estimatedTokensAfter", after.into());
    if let Some(usage) = entry.usage.as_ref() {
        put("usage", usage_value(usage));
    }
    if let Some(details) = entry.details {
        put("details", details);
    }
    let stored = state.session.get(&id).map(|entry| entry.value());
    Ok((Value::Object(result), stored))
}

fn usage_value(usage: &Usage) -> Value {
    json!(usage)
}

impl State {
    /// Returns the settings of compaction for the selected model.
    pub(super) fn compaction_settings(&self) -> Result<CompactionSettings, String> {
        let settings = self.resources.settings.effective();
        let none = Value::Null;
        let compaction = settings.get("compaction").unwrap_or(&none);
        let (provider, id) = match &self.model {
            Some(model) => (model.provider.as_str(), model.id.as_str()),
            None => ("", ""),
        };
        CompactionSettings::read(compaction, provider, id)
    }

    /// As [`State::compaction_settings`]; a setting that cannot be read is told and stops automatic compaction.
    fn compaction(&self, core: &Core) -> Option<CompactionSettings> {
        self.compaction_settings()
            .inspect_err(|error| core.notice(NoticeLevel::Warning, error.clone()))
            .ok()
    }
}
