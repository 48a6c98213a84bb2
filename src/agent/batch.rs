//! The calls of one answer: prepared in order, run together or one by one, results in call order.
//!
//! Invariants: every call gets exactly one result message, whatever happens; a call that began is never dropped, only
//! told to stop; [`Tool::start`] is called in call order (a call that has to wait for earlier changes starts later, and
//! takes no place in a queue that others wait for).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::arguments::ArgumentCheck;
use super::host::{BeforeCall, CallInfo, CallOutcome, HostError, RunEvent, RunHost};
use super::tool::{
    ExecutionMode, Sight, Tool, ToolContext, ToolError, ToolOutput, ToolUpdate, UpdateSink,
};
use crate::ai::message::ToolCall;
use crate::ai::{AssistantMessage, Message, StopReason, ToolResultMessage};

const ABORTED: &str = "Operation aborted";

/// What the calls of an answer gave.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Result messages as stored, in call order.
    pub(super) results: Vec<Arc<Message>>,
    /// Every result asks to end the run (never true without results).
    pub(super) terminate: bool,
}

/// Carries out the calls of an answer.
pub(super) async fn run_calls(
    host: &dyn RunHost,
    check: &ArgumentCheck,
    answer: &AssistantMessage,
    cancel: &CancellationToken,
) -> Result<Batch, HostError> {
    let calls: Vec<&ToolCall> = answer.tool_calls().collect();
    let cx = BatchContext {
        host,
        check,
        cancel,
        tools: host.tools(),
    };
    if calls.is_empty() {
        return Ok(Batch::default());
    }
    if answer.stop_reason == StopReason::Length {
        return cx.refuse_cut_off(&calls).await;
    }
    if host.sequential_tools() || calls.iter().any(|call| cx.is_sequential(call)) {
        cx.one_by_one(&calls).await
    } else {
        cx.together(&calls).await
    }
}

struct BatchContext<'a> {
    host: &'a dyn RunHost,
    check: &'a ArgumentCheck,
    cancel: &'a CancellationToken,
    tools: Vec<Arc<dyn Tool>>,
}

/// A call that may run.
struct Ready {
    tool: Arc<dyn Tool>,
    args: Value,
}

/// A call that runs.
struct Launched {
    args: Value,
    progress: Arc<Progress>,
    began: Instant,
    body: BoxFuture<'static, BodyResult>,
}

/// A call after its preparation.
enum Prepared {
    Ready(Ready),
    Settled(Box<CallOutcome>),
}

impl BatchContext<'_> {
    fn find(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools
            .iter()
            .find(|tool| tool.declaration().name == name)
    }

    fn is_sequential(&self, call: &ToolCall) -> bool {
        self.find(&call.name)
            .is_some_and(|tool| tool.execution_mode() == ExecutionMode::Sequential)
    }

    /// An answer that hit the output limit: its arguments may be cut off, so nothing runs.
    async fn refuse_cut_off(&self, calls: &[&ToolCall]) -> Result<Batch, HostError> {
        let mut batch = Collected::default();
        for call in calls {
            let info = info_of(call);
            self.host.emit(RunEvent::ToolStart(info.clone())).await;
            let outcome = CallOutcome::refused(format!(
                "Tool call \"{}\" was not executed: the response hit the output token limit, so its arguments may be \
                 truncated. Issue the call again with complete arguments, in smaller pieces if it is large.",
                call.name
            ));
            self.tell_end(&info, &outcome).await;
            batch.add(self.store_result(call, outcome).await?);
        }
        Ok(batch.into_batch())
    }

    async fn one_by_one(&self, calls: &[&ToolCall]) -> Result<Batch, HostError> {
        let mut batch = Collected::default();
        for call in calls {
            let info = info_of(call);
            let outcome = match self.begin(call, &info).await {
                Prepared::Settled(outcome) => *outcome,
                Prepared::Ready(ready) => {
                    let launched = self.launch(&info, ready);
                    self.finish(&info, launched).await
                }
            };
            batch.add(self.store_result(call, outcome).await?);
        }
        Ok(batch.into_batch())
    }

    async fn together(&self, calls: &[&ToolCall]) -> Result<Batch, HostError> {
        let mut prepared = Vec::with_capacity(calls.len());
        for call in calls {
            let info = info_of(call);
            let state = self.begin(call, &info).await;
            prepared.push((info, state));
        }
        let outcomes = self.run_together(prepared).await;
        let mut batch = Collected::default();
        for (call, outcome) in calls.iter().zip(outcomes) {
            batch.add(self.store_result(call, outcome).await?);
        }
        Ok(batch.into_batch())
    }

    /// Runs the prepared calls at the same time; outcomes in call order.
    async fn run_together(&self, prepared: Vec<(CallInfo, Prepared)>) -> Vec<CallOutcome> {
        let person = self.host.person_reviews();
        let mut changes: Vec<watch::Receiver<()>> = Vec::new();
        let mut running = FuturesOrdered::new();
        for (info, state) in prepared {
            let ready = match state {
                Prepared::Ready(ready) => ready,
                Prepared::Settled(outcome) => {
                    running.push_back(std::future::ready(*outcome).boxed());
                    continue;
                }
            };
            let sight = ready.tool.sight();
            if person && sight == Sight::Sees && !changes.is_empty() {
                running.push_back(self.run_after(info, ready, changes.clone()).boxed());
                continue;
            }
            // The sender lives as long as the call runs: dropping it says "settled".
            let (running_mark, on_settled) = watch::channel(());
            if sight == Sight::Changes {
                changes.push(on_settled);
            }
            let launched = self.launch(&info, ready);
            let ended = async move {
                let outcome = self.finish(&info, launched).await;
                drop(running_mark);
                outcome
            };
            running.push_back(ended.boxed());
        }
        running.collect().await
    }

    /// Tells the start and prepares; a call that may not run is told to have ended.
    async fn begin(&self, call: &ToolCall, info: &CallInfo) -> Prepared {
        self.host.emit(RunEvent::ToolStart(info.clone())).await;
        match self.prepare(call, info).await {
            Ok(ready) => Prepared::Ready(ready),
            Err(outcome) => {
                self.tell_end(info, &outcome).await;
                Prepared::Settled(outcome)
            }
        }
    }

    async fn prepare(&self, call: &ToolCall, info: &CallInfo) -> Result<Ready, Box<CallOutcome>> {
        let refuse = |text: &str| Box::new(CallOutcome::refused(text));
        if self.cancel.is_cancelled() {
            return Err(refuse(ABORTED));
        }
        let Some(tool) = self.find(&call.name) else {
            return Err(refuse(&format!("Tool {} not found", call.name)));
        };
        let args = self
            .check
            .prepare(&**tool, call)
            .map_err(|error| refuse(&error.message))?;
        // An abort gives up what a hook waits for (a person, often); nothing has begun yet that could be half done.
        let verdict = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(refuse(ABORTED)),
            verdict = self.host.before_call(info, args) => verdict,
        };
        if self.cancel.is_cancelled() {
            return Err(refuse(ABORTED));
        }
        match verdict {
            Ok(BeforeCall::Run(args)) => Ok(Ready {
                tool: Arc::clone(tool),
                args,
            }),
            Ok(BeforeCall::Block { reason, terminate }) => {
                let reason = reason.as_deref().unwrap_or("Tool execution was blocked");
                let mut outcome = refuse(reason);
                outcome.output.terminate = terminate;
                Err(outcome)
            }
            Err(error) => Err(refuse(&error.0)),
        }
    }

    /// Waits until the earlier changes have settled, then runs the call; an abort ends the wait.
    async fn run_after(
        &self,
        info: CallInfo,
        ready: Ready,
        earlier: Vec<watch::Receiver<()>>,
    ) -> CallOutcome {
        self.host.emit(RunEvent::ToolWaits(info.clone())).await;
        for mut change in earlier {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => break,
                // Only ends when the change is done and drops its sender; no value is ever sent.
                _ = change.changed() => {}
            }
        }
        let launched = self.launch(&info, ready);
        self.finish(&info, launched).await
    }

    /// Starts a call: after this it has its place in whatever queue it needs. `None` when the run was aborted before.
    fn launch(&self, info: &CallInfo, ready: Ready) -> Option<Launched> {
        if self.cancel.is_cancelled() {
            return None;
        }
        let progress = Arc::new(Progress::default());
        let setting = self.host.call_setting();
        let context = ToolContext {
            call_id: info.id.clone(),
            cwd: setting.cwd,
            cancel: self.cancel.child_token(),
            updates: progress.sink(),
            session: setting.session,
        };
        let args = ready.args.clone();
        let started = catch_unwind(AssertUnwindSafe(|| ready.tool.start(ready.args, context)));
        let body = match started {
            Ok(body) => AssertUnwindSafe(body).catch_unwind().boxed(),
            Err(panic) => std::future::ready(Err(panic)).boxed(),
        };
        Some(Launched {
            args,
            progress,
            began: Instant::now(),
            body,
        })
    }

    /// Follows a started call to its end and tells it.
    async fn finish(&self, info: &CallInfo, launched: Option<Launched>) -> CallOutcome {
        let outcome = match launched {
            None => CallOutcome::refused(ABORTED),
            Some(call) => {
                let result = self.follow(info, call.body, &call.progress).await;
                let millis = call.began.elapsed().as_millis();
                let outcome = CallOutcome {
                    output: output_of(result),
                    duration_ms: Some(u64::try_from(millis).unwrap_or(u64::MAX)),
                };
                self.host.after_call(info, &call.args, outcome).await
            }
        };
        self.tell_end(info, &outcome).await;
        outcome
    }

    /// Polls a call and tells its progress. What was shown before the end is told before the end.
    async fn follow(
        &self,
        info: &CallInfo,
        mut body: BoxFuture<'static, BodyResult>,
        progress: &Progress,
    ) -> BodyResult {
        loop {
            let result = tokio::select! {
                biased;
                () = progress.changed.notified() => None,
                result = &mut body => Some(result),
            };
            if result.is_some() {
                progress.close();
            }
            if let Some(update) = progress.take() {
                self.host
                    .emit(RunEvent::ToolUpdate(info.clone(), update))
                    .await;
            }
            if let Some(result) = result {
                return result;
            }
        }
    }

    async fn tell_end(&self, info: &CallInfo, outcome: &CallOutcome) {
        self.host
            .emit(RunEvent::ToolEnd {
                call: info.clone(),
                outcome: outcome.clone(),
            })
            .await;
    }

    async fn store_result(
        &self,
        call: &ToolCall,
        outcome: CallOutcome,
    ) -> Result<(Arc<Message>, bool), HostError> {
        let terminate = outcome.output.terminate;
        let message = Message::ToolResult(ToolResultMessage {
            tool_call_id: call.id.clone(),
            tool_name: call.name.clone(),
            content: outcome.output.content,
            details: outcome.output.details,
            usage: outcome.output.usage,
            nested_calls: outcome.output.nested_calls,
            is_error: outcome.output.is_error,
            duration_ms: outcome.duration_ms,
            timestamp: self.host.now_ms(),
            extra: Map::new(),
        });
        self.host
            .emit(RunEvent::MessageStart(Arc::new(message.clone())))
            .await;
        Ok((self.host.end_message(message).await?, terminate))
    }
}

/// What a tool's body gave, or what it panicked with.
type BodyResult = Result<Result<ToolOutput, ToolError>, Box<dyn std::any::Any + Send>>;

fn output_of(result: BodyResult) -> ToolOutput {
    match result {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => CallOutcome::refused(error.message).output,
        Err(panic) => {
            let said = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no reason given".to_owned());
            tracing::error!(said, "a tool panicked");
            CallOutcome::refused(format!("The tool failed unexpectedly: {said}")).output
        }
    }
}

fn info_of(call: &ToolCall) -> CallInfo {
    CallInfo {
        id: call.id.clone(),
        name: call.name.clone(),
        args: call.arguments.clone(),
    }
}

#[derive(Default)]
struct Collected {
    results: Vec<Arc<Message>>,
    terminating: usize,
}

impl Collected {
    fn add(&mut self, (message, terminate): (Arc<Message>, bool)) {
        self.results.push(message);
        self.terminating += usize::from(terminate);
    }

    fn into_batch(self) -> Batch {
        Batch {
            terminate: !self.results.is_empty() && self.terminating == self.results.len(),
            results: self.results,
        }
    }
}

/// The latest partial result of a call. Partial results are cumulative, so a newer one replaces one not yet told: a slow
/// face costs no memory.
#[derive(Default)]
struct Progress {
    latest: Mutex<Slot>,
    changed: Notify,
}

#[derive(Default)]
struct Slot {
    update: Option<ToolUpdate>,
    closed: bool,
}

impl Progress {
    fn sink(self: &Arc<Self>) -> UpdateSink {
        let progress = Arc::clone(self);
        Arc::new(move |update| {
            let mut slot = progress.latest.lock();
            if !slot.closed {
                slot.update = Some(update);
                progress.changed.notify_one();
            }
        })
    }

    fn take(&self) -> Option<ToolUpdate> {
        self.latest.lock().update.take()
    }

    fn close(&self) {
        self.latest.lock().closed = true;
    }
}
