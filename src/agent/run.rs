//! The loop: one run from its starting messages to its last answer.
//!
//! Entry points: [`run`] and [`resume`]. Invariants: every call of an answer gets exactly one result, in call order;
//! nothing is told of a message before the host has stored it; a run ends with exactly one [`RunEvent::AgentEnd`],
//! whatever happens in between.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::arguments::ArgumentCheck;
use super::batch::{Batch, run_calls};
use super::declare::{Known, declare_tools};
use super::host::{FinishedTurn, HostError, Queue, RunEvent, RunHost, TurnDecision};
use super::stream::stream_answer;
use crate::ai::{AssistantMessage, Block, Message, StopReason};

/// What a run left behind.
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    /// All messages the run added, in order.
    pub messages: Vec<Arc<Message>>,
}

impl RunReport {
    /// Returns the last answer of the run.
    pub fn last_answer(&self) -> Option<&AssistantMessage> {
        self.messages
            .iter()
            .rev()
            .find_map(|message| match &**message {
                Message::Assistant(answer) => Some(answer),
                _ => None,
            })
    }
}

/// Runs until there is nothing left to do, starting with `messages` (none: the conversation ends with something to
/// answer already).
pub async fn run(
    host: &dyn RunHost,
    check: &ArgumentCheck,
    messages: Vec<Message>,
    cancel: &CancellationToken,
) -> RunReport {
    start(host, check, messages, Poll::First, cancel).await
}

/// Goes on without new input from the outside. `last` is the last message that is not a system message: after an answer
/// the queues give the start.
///
/// # Errors
/// When there is nothing to go on from.
pub async fn resume(
    host: &dyn RunHost,
    check: &ArgumentCheck,
    last: Option<&Message>,
    cancel: &CancellationToken,
) -> Result<RunReport, HostError> {
    let Some(last) = last else {
        return Err(HostError("No messages to continue from".to_owned()));
    };
    if last.role() != "assistant" {
        return Ok(start(host, check, Vec::new(), Poll::First, cancel).await);
    }
    let steering = host.poll(Queue::Steering).await;
    if !steering.is_empty() {
        return Ok(start(host, check, steering, Poll::Skip, cancel).await);
    }
    let follow_ups = host.poll(Queue::FollowUp).await;
    if follow_ups.is_empty() {
        return Err(HostError(
            "Cannot continue from message role: assistant".to_owned(),
        ));
    }
    Ok(start(host, check, follow_ups, Poll::First, cancel).await)
}

/// Whether the run begins with a poll of the steering queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Poll {
    First,
    Skip,
}

async fn start(
    host: &dyn RunHost,
    check: &ArgumentCheck,
    messages: Vec<Message>,
    poll: Poll,
    cancel: &CancellationToken,
) -> RunReport {
    let mut run = Run {
        host,
        check,
        cancel,
        added: Vec::new(),
        turn_done: false,
        known: Known::default(),
    };
    if let Err(error) = run.go(messages, poll).await {
        run.fail(&error).await;
    }
    let report = RunReport {
        messages: run.added,
    };
    host.emit(RunEvent::AgentEnd(report.messages.clone())).await;
    report
}

struct Run<'a> {
    host: &'a dyn RunHost,
    check: &'a ArgumentCheck,
    cancel: &'a CancellationToken,
    /// Messages added by this run.
    added: Vec<Arc<Message>>,
    /// Whether a turn of this run is complete: the next one is prepared first.
    turn_done: bool,
    /// Declarations that were compared with the tools.
    known: Known,
}

/// How a turn ended.
enum TurnEnd {
    /// The answer failed or was aborted, or the host said so.
    Final,
    /// The run goes on by its rules. `wanted`: results want an answer; `asked`: the host wants one.
    Open { wanted: bool, asked: bool },
}

impl Run<'_> {
    async fn go(&mut self, messages: Vec<Message>, poll: Poll) -> Result<(), HostError> {
        self.host.emit(RunEvent::AgentStart).await;
        self.host.emit(RunEvent::TurnStart).await;
        self.deliver(messages).await?;
        let mut pending = match poll {
            Poll::First => self.host.poll(Queue::Steering).await,
            Poll::Skip => Vec::new(),
        };
        loop {
            let mut more = true;
            let mut explicit = false;
            while more || !pending.is_empty() {
                match self.turn(std::mem::take(&mut pending)).await? {
                    TurnEnd::Final => return Ok(()),
                    TurnEnd::Open { wanted, asked } => (more, explicit) = (wanted, asked),
                }
                pending = self.host.poll(Queue::Steering).await;
                explicit &= !more && pending.is_empty();
            }
            if self.cancel.is_cancelled() {
                return Ok(());
            }
            pending = self.host.poll(Queue::FollowUp).await;
            if pending.is_empty() && !explicit {
                return Ok(());
            }
        }
    }

    /// One request with what comes before and after it.
    async fn turn(&mut self, mut pending: Vec<Message>) -> Result<TurnEnd, HostError> {
        if self.turn_done {
            let prepared = self.host.prepare_next_turn().await?;
            if pending.is_empty() {
                pending = self.host.poll(Queue::Steering).await;
            }
            self.host.emit(RunEvent::TurnStart).await;
            self.deliver(prepared.into_iter().chain(pending).collect())
                .await?;
        } else {
            self.deliver(pending).await?;
        }
        let answer = self.answer().await?;
        let Message::Assistant(body) = &*answer else {
            return Err(HostError("the stored answer is no answer".to_owned()));
        };
        self.turn_done = true;
        if matches!(body.stop_reason, StopReason::Error | StopReason::Aborted) {
            self.finish_turn(&answer, Vec::new()).await;
            return Ok(TurnEnd::Final);
        }
        let batch = self.calls(body).await?;
        let wanted = !batch.results.is_empty() && !batch.terminate;
        Ok(match self.finish_turn(&answer, batch.results).await {
            TurnDecision::End => TurnEnd::Final,
            decision => TurnEnd::Open {
                wanted,
                asked: decision == TurnDecision::Continue,
            },
        })
    }

    /// Adds messages in front of a request, with the change of tools they bring along.
    async fn deliver(&mut self, mut messages: Vec<Message>) -> Result<(), HostError> {
        declare_tools(self.host, &mut messages, &mut self.known);
        for message in messages {
            self.host
                .emit(RunEvent::MessageStart(Arc::new(message.clone())))
                .await;
            self.store(message).await?;
        }
        Ok(())
    }

    async fn store(&mut self, message: Message) -> Result<Arc<Message>, HostError> {
        let stored = self.host.end_message(message).await?;
        self.added.push(Arc::clone(&stored));
        Ok(stored)
    }

    async fn answer(&mut self) -> Result<Arc<Message>, HostError> {
        let answer = stream_answer(self.host, self.cancel).await?;
        self.store(Message::Assistant(answer)).await
    }

    async fn calls(&mut self, answer: &AssistantMessage) -> Result<Batch, HostError> {
        let batch = run_calls(self.host, self.check, answer, self.cancel).await?;
        self.added.extend(batch.results.iter().cloned());
        Ok(batch)
    }

    async fn finish_turn(
        &self,
        message: &Arc<Message>,
        tool_results: Vec<Arc<Message>>,
    ) -> TurnDecision {
        let turn = FinishedTurn {
            message: Arc::clone(message),
            tool_results,
        };
        let decision = self.host.finish_turn(&turn).await;
        self.host
            .emit(RunEvent::TurnEnd {
                message: turn.message,
                tool_results: turn.tool_results,
            })
            .await;
        decision
    }

    /// Ends the run with a message that says what went wrong outside of any answer.
    async fn fail(&mut self, error: &HostError) {
        let stop_reason = if self.cancel.is_cancelled() {
            StopReason::Aborted
        } else {
            StopReason::Error
        };
        let message = Message::Assistant(AssistantMessage {
            content: vec![Block::text("")],
            stop_reason,
            error_message: Some(error.0.clone()),
            timestamp: self.host.now_ms(),
            ..AssistantMessage::default()
        });
        self.host
            .emit(RunEvent::MessageStart(Arc::new(message.clone())))
            .await;
        let message = match self.host.end_message(message.clone()).await {
            Ok(stored) => stored,
            Err(_) => {
                let message = Arc::new(message);
                self.host.announce_unstored(Arc::clone(&message)).await;
                message
            }
        };
        self.added.push(Arc::clone(&message));
        self.host
            .emit(RunEvent::TurnEnd {
                message,
                tool_results: Vec::new(),
            })
            .await;
    }
}
