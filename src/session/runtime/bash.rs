//! Shell commands of the person: `!` in the editor, `bash` over RPC.

use std::sync::Arc;

use serde_json::Value;

use super::core::{Answer, Core};
use crate::session::protocol::CommandError;

/// Runs a command beside whatever else goes on.
pub(super) async fn run(
    _core: &Arc<Core>,
    _command: String,
    _exclude: bool,
    _tag: Option<Value>,
) -> Answer {
    Err(CommandError::new("not built yet"))
}

/// Stops all of them.
pub(super) fn abort(core: &Core) -> Value {
    core.with(|state| {
        for shell in &state.shells {
            shell.cancel();
        }
    });
    Value::Null
}
