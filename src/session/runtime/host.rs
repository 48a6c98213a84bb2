//! The runtime as host of the loop: stores each message before it is told, builds requests from the projection.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::core::{Core, now_ms};
use super::state::State;
use super::{bind, boundary, compact, drive, pictures};
use crate::agent::{
    BeforeCall, CallInfo, CallOutcome, CallSetting, FinishedTurn, HostError, PreparedRequest,
    Queue, RunEvent, RunHost, SessionFacts, Tool, TurnDecision,
};
use crate::ai::provider::Partial;
use crate::ai::{Content, Message, Request, RequestOptions, StopReason, SystemMessage};
use crate::extensions::Boundary;
use crate::files::moment;
use crate::session::projection::{Context, llm, system};
use crate::session::protocol::Event;

/// The host of one run.
pub(super) struct Host {
    core: Arc<Core>,
    pub(super) cancel: CancellationToken,
    heard: Mutex<Heard>,
}

/// What extensions hear of a run besides its events.
#[derive(Default)]
struct Heard {
    /// Turns that have begun in this run.
    turns: u32,
    /// The answer that streams, as far as it is there; kept when someone listens to its pieces.
    partial: Partial,
}

/// The name of the event that extensions hear; `None` for those that they are asked about elsewhere, or that are not
/// theirs.
fn heard_as(event: &Event) -> Option<&'static str> {
    Some(match event {
        Event::AgentStart => "agent_start",
        Event::AgentEnd { .. } => "agent_end",
        Event::TurnStart => "turn_start",
        Event::MessageStart { .. } => "message_start",
        Event::MessageUpdate { .. } => "message_update",
        Event::ToolStart { .. } => "tool_execution_start",
        Event::ToolUpdate { .. } => "tool_execution_update",
        Event::ToolEnd { .. } => "tool_execution_end",
        _ => return None,
    })
}

impl Host {
    pub(super) fn new(core: &Arc<Core>, cancel: CancellationToken) -> Self {
        Self {
            core: Arc::clone(core),
            cancel,
            heard: Mutex::default(),
        }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Puts an event in line and waits while the line is long. Extensions hear it first.
    async fn tell(&self, event: Event) {
        self.observe(&event).await;
        self.core.tell(event);
        self.core.outbox.caught_up().await;
    }

    async fn observe(&self, event: &Event) {
        let turn = self.count(event);
        let hooks = &self.core.config.hooks;
        if !heard_as(event).is_some_and(|name| hooks.wants(name)) {
            return;
        }
        let Some(Value::Object(mut record)) = event.to_wire() else {
            return;
        };
        match event {
            Event::AgentEnd { .. } => drop(record.shift_remove("willRetry")),
            Event::TurnStart => {
                record.insert("turnIndex".to_owned(), turn.into());
                record.insert("timestamp".to_owned(), now_ms().into());
            }
            Event::MessageUpdate { event, .. } => {
                let message = {
                    let mut heard = self.heard.lock();
                    heard.partial.apply(event);
                    Message::Assistant(heard.partial.message.clone()).to_value()
                };
                record.shift_remove("usage");
                record.insert("message".to_owned(), message);
            }
            Event::MessageStart { message } => {
                if let Message::Assistant(answer) = &**message {
                    self.heard.lock().partial.message = answer.clone();
                }
            }
            _ => {}
        }
        hooks.observe(&Value::Object(record)).await;
    }

    /// Counts the turns of a run; returns the number of the present one, from 0.
    fn count(&self, event: &Event) -> u32 {
        let mut heard = self.heard.lock();
        match event {
            Event::AgentStart => heard.turns = 0,
            Event::TurnStart => heard.turns += 1,
            _ => {}
        }
        heard.turns.saturating_sub(1)
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
        let (model, thinking, context, session_id, forced) = self.core.with(|state| {
            let run = state.run.as_ref();
            (
                state.model.clone(),
                state.thinking,
                state.session.context(),
                state.session.id().to_owned(),
                run.and_then(|run| run.forced_prompt.clone()),
            )
        });
        let Some(model) = model else {
            return Err(HostError("No model selected".to_owned()));
        };
        let mut messages = self.messages(&context).await;
        if let Some(prompt) = forced {
            force_prompt(&mut messages, prompt);
        }
        Ok(PreparedRequest {
            provider: Arc::clone(&self.core.config.provider),
            request: Request {
                model,
                messages,
                options: RequestOptions {
                    thinking,
                    session_id: Some(session_id),
                    tap: bind::tap(&self.core.config.hooks),
                    ..self.core.request_options()
                },
                cancel: self.cancel.clone(),
            },
        })
    }

    async fn finish_turn(&self, turn: &FinishedTurn) -> TurnDecision {
        let outcome = match &*turn.message {
            Message::Assistant(answer) => drive::outcome_of(&answer.stop_reason),
            _ => "completed",
        };
        let index = self.heard.lock().turns.saturating_sub(1);
        let turn = Some((index, turn));
        match boundary::ask(&self.core, Boundary::TurnEnd, outcome, turn).await {
            true => TurnDecision::Continue,
            false => TurnDecision::None,
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

impl Host {
    /// The messages of a request. Extensions see the branch's own messages, before they become those of a model.
    async fn messages(&self, context: &Context) -> Vec<Arc<Message>> {
        let hooks = &self.core.config.hooks;
        if hooks.wants("context") || hooks.wants("context_with_system") {
            let messages: Vec<Arc<Message>> = context.messages().cloned().collect();
            if let Some(changed) = hooks.context(&messages).await {
                let sent = llm::convert(changed.iter()).into_iter();
                return sent.map(Arc::new).collect();
            }
        }
        context.llm_messages()
    }
}

/// Puts one prompt in the place of all system messages; the tools that are declared stay so.
fn force_prompt(messages: &mut Vec<Arc<Message>>, prompt: String) {
    let now = system::replay(messages.iter().map(|message| &**message));
    messages.retain(|message| !matches!(**message, Message::System(_)));
    let system = SystemMessage {
        content: Content::Text(prompt),
        tools_added: now.and_then(|system| system.tools_added),
        timestamp: now_ms(),
        ..SystemMessage::default()
    };
    messages.insert(0, Arc::new(Message::System(system)));
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
