//! One prompt to its end: low-level runs, retries, recoveries, queued messages, and exactly one settling.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::boundary;
use super::compact::{self, AfterRun};
use super::core::Core;
use super::host::Host;
use super::state::State;
use crate::agent::{self, RunReport};
use crate::ai::retry::is_retryable;
use crate::ai::{AssistantMessage, Message, StopReason};
use crate::extensions::Boundary;
use crate::session::protocol::{Event, NoticeLevel};

const CANCELLED: &str = "Retry cancelled";

/// Starts the run whose token is in the state already.
pub(super) fn start(core: &Arc<Core>, messages: Vec<Message>, cancel: CancellationToken) {
    let host = Host::new(core, cancel);
    core.tasks.spawn(async move {
        let core = host.core();
        let check = &core.check;
        let mut report = agent::run(&host, check, messages, &host.cancel).await;
        loop {
            match go_on(core, &report, &host.cancel).await {
                Next::Settle => break,
                // An extension wants one more request: there need not be anything new to answer.
                Next::Ask => report = agent::run(&host, check, Vec::new(), &host.cancel).await,
                Next::Resume => {
                    let last = core.with(|state| state.last_message());
                    match agent::resume(&host, check, last.as_deref(), &host.cancel).await {
                        Ok(next) => report = next,
                        Err(error) => {
                            core.notice(NoticeLevel::Error, error.0);
                            break;
                        }
                    }
                }
            }
        }
        settle(core).await;
    });
}

/// What follows a run.
enum Next {
    /// Nothing.
    Settle,
    /// Another run from what is there, or from the queues.
    Resume,
    /// Another request with the context as it is.
    Ask,
}

impl Next {
    fn resume_if(yes: bool) -> Self {
        if yes { Self::Resume } else { Self::Settle }
    }
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

/// Decides after a run.
async fn go_on(core: &Arc<Core>, report: &RunReport, cancel: &CancellationToken) -> Next {
    if is_aborted(core) {
        end_retry(core, Some(CANCELLED));
        return Next::Settle;
    }
    let any_waiting = || core.with(|state| state.queues.any_waiting());
    let Some(answer) = report.last_answer() else {
        return Next::resume_if(any_waiting());
    };
    if core.with(|state| may_retry(state, answer)) {
        return Next::resume_if(retry(core, answer, cancel).await);
    }
    if answer.stop_reason == StopReason::Error {
        end_retry(core, answer.error_message.as_deref());
    }
    match compact::after_run(core, cancel).await {
        AfterRun::Again => Next::resume_if(!is_aborted(core)),
        AfterRun::Done if is_aborted(core) => Next::Settle,
        AfterRun::Done if any_waiting() => Next::Resume,
        AfterRun::Done => before_settle(core, &answer.stop_reason).await,
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

/// Asks extensions whether there is more to do.
async fn before_settle(core: &Core, stop: &StopReason) -> Next {
    let outcome = outcome_of(stop);
    let wanted = boundary::ask(core, Boundary::BeforeSettle, outcome, None).await;
    if is_aborted(core) {
        return Next::Settle;
    }
    // What extensions queued, and what they want, is one request.
    if core.with(|state| state.queues.any_waiting()) {
        return Next::Resume;
    }
    match wanted && outcome == "completed" {
        true => Next::Ask,
        false => Next::Settle,
    }
}

/// How a turn ended, as extensions hear it.
pub(super) fn outcome_of(stop: &StopReason) -> &'static str {
    match stop {
        StopReason::Aborted => "aborted",
        StopReason::Error => "error",
        _ => "completed",
    }
}

/// Ends the busy time: what was held is stored, then the end is told. Extensions hear of it at rest; what they ask for
/// begins when all of them have heard.
async fn settle(core: &Arc<Core>) {
    let aborted = core.with_activity(|state| {
        state.flush_held(core);
        let aborted = state.run.take().is_some_and(|run| run.aborted);
        core.config.gate.run_ended(state.session.id());
        state.settling = core.config.hooks.wants("agent_settled");
        core.tell(Event::AgentSettled { aborted });
        aborted
    });
    core.hear("agent_settled", || json!({"aborted": aborted}))
        .await;
    core.with_activity(|state| state.settling = false);
}
