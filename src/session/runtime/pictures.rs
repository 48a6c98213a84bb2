//! Pictures in results of tools: brought down to what the model takes, before they are stored.

use super::core::Core;
use crate::agent::CallOutcome;
use crate::ai::Block;
use crate::tools::image::{Profile, prepare_blocks};

/// Scales the pictures of a result. `read` has done so itself.
pub(super) async fn fit(core: &Core, tool: &str, mut outcome: CallOutcome) -> CallOutcome {
    let content = &outcome.output.content;
    if tool == "read" || !content.iter().any(|block| matches!(block, Block::Image(_))) {
        return outcome;
    }
    let shell = core.config.shell.as_ref();
    let resize = shell.is_none_or(|env| env.options.get().auto_resize_images);
    let model = core.with(|state| state.model.clone());
    let profile = Profile::of(model.as_deref(), resize);
    let blocks = content.clone();
    match tokio::task::spawn_blocking(move || prepare_blocks(blocks, &profile)).await {
        Ok(content) => outcome.output.content = content,
        Err(error) => tracing::warn!(tool, %error, "a picture could not be scaled"),
    }
    outcome
}
