//! The runtime as host of the loop: stores each message before it is told, builds requests from the projection.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::core::{Core, now_ms};
use super::state::State;
use super::{compact, drive, pictures};
use crate::agent::{
    BeforeCall, CallInfo, CallOutcome, CallSetting, FinishedTurn, HostError, PreparedRequest,
    Queue, RunEvent, RunHost, SessionFacts, Tool, TurnDecision,
};
use crate::ai::{Message, Request, RequestOptions, StopReason, SystemMessage};
use crate::extensions::Boundary;
use crate::files::moment;
use crate::session::protocol::Event;

/// The host of one run.
pub(super) struct Host {
    pub(super) core: Arc<Core>,
    pub(super) cancel: CancellationToken,
}

impl Host {
    /// Puts an event in line and waits while the line is long. Extensions hear it first.
    async fn tell(&self, event: Event) {
        self.observe(&event).await;
        self.core.tell(event);
        self.core.outbox.caught_up().await;
    }

    async fn observe(&self, event: &Event) {
        let hooks = &self.core.config.hooks;
        if hooks.observes()
            && let Some(record) = event.to_wire()
        {
            hooks.observe(&record).await;
        }
    }

    /// Tells the beginning of a message; one from a queue leaves the queue at this moment.
    async fn begin_message(&self, message: Arc<Message>) {
        let event = Event::MessageStart {
            message: Arc::clone(&message),
        };
        self.observe(&event).await;
        self.core.with(|state| {
            if state.queues.began(&message) {
                self.core.tell(state.queues.event());
            }
            self.core.tell(event);
        });
        self.core.outbox.caught_up().await;
    }
}

#[async_trait]
impl RunHost for Host {
    async fn emit(&self, event: RunEvent) {
        let event = match event {
            RunEvent::MessageStart(message) => return self.begin_message(message).await,
            RunEvent::AgentStart => Event::AgentStart,
            RunEvent::AgentEnd(messages) => Event::AgentEnd {
                will_retry: drive::will_retry(&self.core, &messages),
                messages,
            },
            RunEvent::TurnStart => Event::TurnStart,
            RunEvent::TurnEnd {
                message,
                tool_results,
            } => Event::TurnEnd {
                message,
                tool_results,
            },
            RunEvent::MessageUpdate { usage, event } => Event::MessageUpdate {
                usage: Box::new(usage),
                event,
            },
            RunEvent::ToolStart(call) => Event::ToolStart {
                call_id: call.id,
                name: call.name,
                args: call.args,
            },
            RunEvent::ToolUpdate(call, update) => Event::ToolUpdate {
                call_id: call.id,
                name: call.name,
                args: call.args,
                content: update.content,
                details: update.details,
            },
            RunEvent::ToolEnd { call, outcome } => Event::ToolEnd {
                call_id: call.id,
                name: call.name,
                is_error: outcome.output.is_error,
                duration_ms: outcome.duration_ms,
                result: Box::new(outcome.output),
            },
            RunEvent::ToolWaits(call) => Event::ToolWaits { call_id: call.id },
        };
        self.tell(event).await;
    }

    async fn end_message(&self, message: Message) -> Result<Arc<Message>, HostError> {
        let message = match self.core.config.hooks.message_end(&message).await {
            Some(changed) if changed.role() == message.role() => changed,
            _ => message,
        };
        if let Message::ToolResult(_) = &message {
            moment("result-made");
        }
        let (entry, message) = self
            .core
            .with(|state| {
                let (entry, message) = state.store_message(&self.core, message)?;
                state.note_entry(&message, &entry);
                moment(match &*message {
                    Message::Assistant(_) => "answer-stored",
                    Message::ToolResult(_) => "result-stored",
                    _ => "message-stored",
                });
                if let Message::ToolResult(result) = &*message {
                    let gate = &self.core.config.gate;
                    gate.drop_record(state.session.id(), &result.tool_call_id);
                    moment("record-dropped");
                }
                Ok((entry, message))
            })
            .map_err(HostError)?;
        let event = Event::MessageEnd {
            message: Arc::clone(&message),
            entry: Some(entry),
        };
        self.observe(&event).await;
        self.core.with(|state| {
            self.core.tell(event);
            note_success(&self.core, state, &message);
        });
        self.core.outbox.caught_up().await;
        Ok(message)
    }

    async fn announce_unstored(&self, message: Arc<Message>) {
        self.tell(Event::MessageEnd {
            message,
            entry: None,
        })
        .await;
    }

    async fn poll(&self, queue: Queue) -> Vec<Message> {
        self.core.with(|state| state.queues.poll(queue))
    }

    async fn prepare_next_turn(&self) -> Result<Vec<Message>, HostError> {
        compact::between_turns(&self.core, &self.cancel).await;
        Ok(self.core.with(State::take_beside))
    }

    async fn prepare_request(&self) -> Result<PreparedRequest, HostError> {
        let (model, thinking, messages, session_id) = self.core.with(|state| {
            let context = state.session.context();
            (
                state.model.clone(),
                state.thinking,
                context.llm_messages(),
                state.session.id().to_owned(),
            )
        });
        let Some(model) = model else {
            return Err(HostError("No model selected".to_owned()));
        };
        let messages = match self.core.config.hooks.context(&messages).await {
            Some(changed) => changed.into_iter().map(Arc::new).collect(),
            None => messages,
        };
        Ok(PreparedRequest {
            provider: Arc::clone(&self.core.config.provider),
            request: Request {
                model,
                messages,
                options: RequestOptions {
                    thinking,
                    session_id: Some(session_id),
                    ..self.core.config.options.clone()
                },
                cancel: self.cancel.clone(),
            },
        })
    }

    async fn finish_turn(&self, turn: &FinishedTurn) -> TurnDecision {
        let outcome = match &*turn.message {
            Message::Assistant(answer) => match answer.stop_reason {
                StopReason::Aborted => "aborted",
                StopReason::Error => "error",
                _ => "completed",
            },
            _ => "completed",
        };
        let answer = self
            .core
            .config
            .hooks
            .boundary(Boundary::TurnEnd, outcome)
            .await;
        if drive::append_drafts(&self.core, answer.drafts) && answer.go_on {
            TurnDecision::Continue
        } else {
            TurnDecision::None
        }
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.core.active_tools()
    }

    fn declared(&self) -> Option<Arc<SystemMessage>> {
        self.core
            .with(|state| state.session.context().system().cloned())
    }

    fn person_reviews(&self) -> bool {
        self.core.config.gate.asks()
    }

    fn call_setting(&self) -> CallSetting {
        self.core.with(|state| CallSetting {
            cwd: state.cwd.clone(),
            session: SessionFacts {
                session_id: state.session.id().to_owned(),
                session_file: state.session.file().map(ToOwned::to_owned),
                model: state.model.clone(),
                thinking_level: Some(state.thinking.as_str().to_owned()),
                ..SessionFacts::default()
            },
        })
    }

    async fn before_call(&self, call: &CallInfo, args: Value) -> Result<BeforeCall, HostError> {
        let verdict = self.core.config.hooks.tool_call(call, args).await;
        verdict.map_err(HostError)
    }

    async fn after_call(&self, call: &CallInfo, args: &Value, outcome: CallOutcome) -> CallOutcome {
        let hooks = &self.core.config.hooks;
        let outcome = hooks.tool_result(call, args, outcome).await;
        pictures::fit(&self.core, &call.name, outcome).await
    }

    fn now_ms(&self) -> i64 {
        now_ms()
    }
}

/// A good answer ends a series of attempts and gives the next overflow its recovery back.
fn note_success(core: &Core, state: &mut State, message: &Message) {
    let Some(run) = &mut state.run else { return };
    match message {
        Message::User(_) => run.recovered = false,
        Message::Assistant(answer) => {
            let good = !matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted);
            if good && answer.stop_reason != StopReason::Length {
                run.recovered = false;
            }
            if good && run.attempt > 0 {
                core.tell(Event::RetryEnd {
                    success: true,
                    attempt: run.attempt,
                    error: None,
                });
                run.attempt = 0;
            }
        }
        _ => {}
    }
}
