//! What the review gate tells, passed on to faces and, as notes, to the model.

use std::sync::Arc;

use super::core::Core;
use crate::ai::{Content, CustomMessage};
use crate::review::ReviewEvent;
use crate::session::protocol::Event;

/// Type of the messages that tell the model what became of a change after its result.
pub(super) const NOTE_TYPE: &str = "pi-nvim.review-note";

/// Starts the task that follows the gate; it ends at shutdown.
pub(super) fn follow(core: &Arc<Core>) {
    let mut events = core.config.gate.subscribe();
    let core = Arc::clone(core);
    core.tasks.clone().spawn(async move {
        loop {
            let event = tokio::select! {
                biased;
                event = events.recv() => event,
                () = core.stop.cancelled() => return,
            };
            let Some(event) = event else { return };
            pass_on(&core, event);
        }
    });
}

fn pass_on(core: &Core, event: ReviewEvent) {
    core.with(|state| {
        if let ReviewEvent::ModelNote { session, text } = &event
            && session == state.session.id()
        {
            state.beside.push_back(CustomMessage {
                custom_type: NOTE_TYPE.to_owned(),
                content: Content::Text(text.clone()),
                display: true,
                timestamp: super::core::now_ms(),
                ..CustomMessage::default()
            });
        }
        core.tell(Event::Review(event));
    });
}
