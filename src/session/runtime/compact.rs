//! When the conversation is compacted, and what follows from it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::core::{Answer, Core};
use crate::ai::AssistantMessage;
use crate::session::protocol::CommandError;

/// What follows a run after the look at its size.
pub(super) enum AfterRun {
    /// The failed turn is run again.
    Again,
    /// Nothing.
    Done,
}

/// Checks before a new prompt.
pub(super) async fn before_prompt(_core: &Arc<Core>, _cancel: &CancellationToken) {}

/// Checks between two turns of a run.
pub(super) async fn between_turns(_core: &Arc<Core>, _cancel: &CancellationToken) {}

/// Checks after a run.
pub(super) async fn after_run(
    _core: &Arc<Core>,
    _answer: &AssistantMessage,
    _cancel: &CancellationToken,
) -> AfterRun {
    AfterRun::Done
}

/// Carries out `compact`.
pub(super) async fn manual(_core: &Arc<Core>, _instructions: Option<String>) -> Answer {
    Err(CommandError::new("not built yet"))
}
