//! One prompt to its end: low-level runs, retries, recoveries, queued messages, and exactly one settling.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::compact::{self, AfterRun};
use super::core::Core;
use super::host::Host;
use super::state::State;
use crate::agent::{self, RunReport};
use crate::ai::retry::is_retryable;
use crate::ai::{AssistantMessage, Message};
use crate::extensions::{Boundary, Draft};
use crate::session::protocol::{Event, NoticeLevel};

const CANCELLED: &str = "Retry cancelled";

/// Starts the run whose token is in the state already.
pub(super) fn start(core: &Arc<Core>, messages: Vec<Message>, cancel: CancellationToken) {
    let host = Host {
        core: Arc::clone(core),
        cancel,
    };
    core.tasks.spawn(async move {
        let mut report = agent::run(&host, &host.core.check, messages, &host.cancel).await;
        while go_on(&host.core, &report, &host.cancel).await {
            let last = host.core.with(|state| state.last_message());
            match agent::resume(&host, &host.core.check, last.as_deref(), &host.cancel).await {
                Ok(next) => report = next,
                Err(error) => {
                    host.core.notice(NoticeLevel::Error, error.0);
                    break;
                }
            }
        }
        settle(&host.core);
    });
}

/// Whether the end of a run will be followed by another attempt.
pub(super) fn will_retry(core: &Core, messages: &[Arc<Message>]) -> bool {
    let answer = messages.iter().rev().find_map(|message| match &**message {
        Message::Assistant(answer) => Some(answer),
        _ => None,
    });
    core.with(|state| answer.is_some_and(|answer| may_retry(state, answer)))
}

fn may_retry(state: &State, answer: &AssistantMessage) -> bool {
    let window = state.model.as_ref().map_or(0, |model| model.context_window);
    let Some(run) = &state.run else { return false };
    let retry = state.settings().retry;
    !run.aborted && retry.enabled && run.attempt < retry.max_retries && is_retryable(answer, window)
}

/// Decides after a run; true: run again from what is there.
async fn go_on(core: &Arc<Core>, report: &RunReport, cancel: &CancellationToken) -> bool {
    if is_aborted(core) {
        end_retry(core, Some(CANCELLED));
        return false;
    }
    let Some(answer) = report.last_answer() else {
        return core.with(|state| state.queues.any_waiting());
    };
    if core.with(|state| may_retry(state, answer)) {
        return retry(core, answer, cancel).await;
    }
    if answer.stop_reason == crate::ai::StopReason::Error {
        end_retry(core, answer.error_message.as_deref());
    }
    match compact::after_run(core, cancel).await {
        AfterRun::Again => !is_aborted(core),
        AfterRun::Done if is_aborted(core) => false,
        AfterRun::Done if core.with(|state| state.queues.any_waiting()) => true,
        AfterRun::Done => before_settle(core).await,
    }
}

fn is_aborted(core: &Core) -> bool {
    core.with(|state| state.run.as_ref().is_none_or(|run| run.aborted))
}

/// Ends a series of attempts that did not succeed; nothing to end without one.
fn end_retry(core: &Core, error: Option<&str>) {
    core.with(|state| {
        let Some(run) = &mut state.run else { return };
        if run.attempt == 0 {
            return;
        }
        core.tell(Event::RetryEnd {
            success: false,
            attempt: run.attempt,
            error: error.map(ToOwned::to_owned),
        });
        run.attempt = 0;
    });
}

/// Takes the failed answer out of the context and waits; true when the wait was not cut short.
async fn retry(core: &Arc<Core>, answer: &AssistantMessage, cancel: &CancellationToken) -> bool {
    let error = answer.error_message.clone().unwrap_or_default();
    let Some((wait, delay)) = core.with(|state| {
        let retry = state.settings().retry;
        let run = state.run.as_mut()?;
        run.attempt += 1;
        let attempt = run.attempt;
        let wait = cancel.child_token();
        run.retry_wait = Some(wait.clone());
        let delay = crate::ai::retry::delay(retry.policy, attempt, answer.retry_after_ms);
        core.tell(Event::RetryStart {
            attempt,
            max_attempts: retry.max_retries,
            delay_ms: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
            error,
        });
        state.omit_answer(core);
        Some((wait, delay))
    }) else {
        return false;
    };
    let slept = sleep(delay, &wait).await;
    core.with(|state| {
        if let Some(run) = &mut state.run {
            run.retry_wait = None;
        }
    });
    if !slept {
        end_retry(core, Some(CANCELLED));
    }
    slept
}

async fn sleep(time: Duration, cut: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = cut.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}

/// Asks extensions whether there is more to do; true: one more request.
async fn before_settle(core: &Core) -> bool {
    let answer = core
        .config
        .hooks
        .boundary(Boundary::BeforeSettle, "completed")
        .await;
    append_drafts(core, answer.drafts)
        && !is_aborted(core)
        && (answer.go_on || core.with(|state| state.queues.any_waiting()))
}

/// Appends what extensions added at a boundary: all of it, or nothing when one part cannot stand; false then.
pub(super) fn append_drafts(core: &Core, drafts: Vec<Draft>) -> bool {
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

/// Ends the busy time: what was held is stored, then the end is told.
fn settle(core: &Arc<Core>) {
    core.with_activity(|state| {
        state.flush_held(core);
        let aborted = state.run.take().is_some_and(|run| run.aborted);
        core.config.gate.run_ended(state.session.id());
        core.tell(Event::AgentSettled { aborted });
    });
}
