//! One answer, from the request to its complete message.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::host::{HostError, PreparedRequest, RunEvent, RunHost};
use crate::ai::provider::Partial;
use crate::ai::{AssistantMessage, Block, EventStream, Message, StopReason, StreamEvent, Usage};

/// How long a provider may take to give its own last event after an abort; then the loop ends the answer itself.
const ABORT_GRACE: Duration = Duration::from_millis(250);

/// Asks for one answer and tells its pieces. The returned message is final but neither stored nor announced as ended;
/// its start was told. Provider failures are messages; an error is the host's.
pub(super) async fn stream_answer(
    host: &dyn RunHost,
    cancel: &CancellationToken,
) -> Result<AssistantMessage, HostError> {
    let PreparedRequest { provider, request } = host.prepare_request().await?;
    let mut answer = Answer {
        host,
        partial: Partial {
            message: AssistantMessage {
                api: request.model.api.clone(),
                provider: request.model.provider.clone(),
                model: request.model.id.clone(),
                stop_reason: StopReason::Pending,
                timestamp: host.now_ms(),
                ..AssistantMessage::default()
            },
        },
        usage: Usage::default(),
        started: false,
        open: BTreeSet::new(),
    };
    let thinking = request.options.thinking;
    let began = Instant::now();
    if cancel.is_cancelled() {
        answer.end_aborted();
    } else {
        answer.follow(provider.stream(request), cancel).await;
    }
    let message = &mut answer.partial.message;
    message
        .thinking_level
        .get_or_insert_with(|| thinking.as_str().to_owned());
    let millis = began.elapsed().as_millis();
    message
        .duration_ms
        .get_or_insert(u64::try_from(millis).unwrap_or(u64::MAX));
    if answer.started {
        answer.tell_missing_ends().await;
    } else {
        answer.tell_start().await;
    }
    Ok(answer.partial.message)
}

struct Answer<'a> {
    host: &'a dyn RunHost,
    partial: Partial,
    /// Kept apart from the message: it is told with every piece.
    usage: Usage,
    /// Whether the message's start was told.
    started: bool,
    /// Text and thinking blocks whose end was not told yet.
    open: BTreeSet<usize>,
}

impl Answer<'_> {
    /// Takes in the stream until its terminal event; ends the answer itself when there is none.
    async fn follow(&mut self, mut stream: EventStream, cancel: &CancellationToken) {
        let mut deadline = None;
        loop {
            // A dropped `next` loses nothing: the stream keeps its place. After an abort the provider has a moment to
            // end the stream in its own words.
            let event = tokio::select! {
                biased;
                event = stream.next() => event,
                () = cancel.cancelled(), if deadline.is_none() => {
                    deadline = Some(Instant::now() + ABORT_GRACE);
                    continue;
                }
                () = sleep_until(deadline), if deadline.is_some() => None,
            };
            match event {
                Some(event) => {
                    if self.absorb(event).await {
                        return;
                    }
                }
                None if cancel.is_cancelled() => return self.end_aborted(),
                None => return self.end_torn(),
            }
        }
    }

    /// Takes in one event; true when it was the last.
    async fn absorb(&mut self, event: StreamEvent) -> bool {
        self.partial.apply(&event);
        match &event {
            StreamEvent::Start(_) => {
                self.partial.message.stop_reason = StopReason::Pending;
                self.tell_start().await;
            }
            StreamEvent::Usage(usage) => self.usage = usage.clone(),
            StreamEvent::Done(_) | StreamEvent::Error(_) => return true,
            _ => {
                if !self.started {
                    self.tell_start().await;
                }
                self.tell_piece(event).await;
            }
        }
        false
    }

    async fn tell_piece(&mut self, event: StreamEvent) {
        match &event {
            StreamEvent::TextStart { index, .. } | StreamEvent::ThinkingStart { index, .. } => {
                self.open.insert(*index);
            }
            StreamEvent::TextEnd { index, .. } | StreamEvent::ThinkingEnd { index, .. } => {
                self.open.remove(index);
            }
            _ => {}
        }
        let usage = self.usage.clone();
        self.host
            .emit(RunEvent::MessageUpdate { usage, event })
            .await;
    }

    /// An abort leaves blocks open: their ends are told with what arrived. (A failed answer is thrown away: nobody needs
    /// its ends, and the reference tells none.)
    async fn tell_missing_ends(&mut self) {
        if self.partial.message.stop_reason != StopReason::Aborted {
            return;
        }
        for index in std::mem::take(&mut self.open) {
            let event = match self.partial.message.content.get(index) {
                Some(Block::Text(block)) => StreamEvent::TextEnd {
                    index,
                    content: block.text.clone(),
                },
                Some(Block::Thinking(block)) => StreamEvent::ThinkingEnd {
                    index,
                    content: block.thinking.clone(),
                },
                _ => continue,
            };
            self.tell_piece(event).await;
        }
    }

    async fn tell_start(&mut self) {
        self.started = true;
        let message = Message::Assistant(self.partial.message.clone());
        self.host
            .emit(RunEvent::MessageStart(Arc::new(message)))
            .await;
    }

    fn end_aborted(&mut self) {
        let said = if self.started {
            "Request was aborted"
        } else {
            "This operation was aborted"
        };
        self.end(StopReason::Aborted, said);
    }

    fn end_torn(&mut self) {
        self.end(StopReason::Error, "the answer ended without a final event");
    }

    fn end(&mut self, stop_reason: StopReason, said: &str) {
        let message = &mut self.partial.message;
        message.stop_reason = stop_reason;
        message.error_message = Some(said.to_owned());
        message.usage = self.usage.clone();
        // A call whose arguments had not all arrived is no call.
        message.content.retain(|block| match block {
            Block::ToolCall(call) => !call.name.is_empty() && call.arguments.is_object(),
            _ => true,
        });
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        tokio::time::sleep_until(deadline).await;
    }
}
