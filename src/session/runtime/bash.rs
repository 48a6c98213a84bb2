//! Shell commands of the person: `!` in the editor, `bash` over RPC. They run beside the agent and beside each other.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::core::{Answer, Core, now_ms};
use crate::ai::{BashExecutionMessage, Message};
use crate::extensions::{BashVerdict, BashWish};
use crate::session::protocol::{CommandError, Event};
use crate::tools::bash::{UserOutput, user_command};

/// Runs a command and writes it down for the model, unless it is excluded.
pub(super) async fn run(
    core: &Arc<Core>,
    command: String,
    exclude: bool,
    tag: Option<Value>,
) -> Answer {
    let wish = BashWish {
        command: command.clone(),
        exclude,
        cwd: core.with(|state| state.cwd.clone()),
    };
    let output = match core.config.hooks.user_bash(&wish).await {
        BashVerdict::Run => execute(core, &command, tag).await?,
        BashVerdict::Block(reason) => return Err(CommandError(reason)),
        BashVerdict::Result(value) => read(&value),
    };
    let mut data = Map::new();
    data.insert("output".to_owned(), output.output.as_str().into());
    if let Some(code) = output.exit_code {
        data.insert("exitCode".to_owned(), code.into());
    }
    data.insert("cancelled".to_owned(), output.cancelled.into());
    data.insert("truncated".to_owned(), output.truncated.into());
    if let Some(path) = &output.full_output_path {
        data.insert("fullOutputPath".to_owned(), json!(path));
    }
    let message = Message::BashExecution(BashExecutionMessage {
        command,
        output: output.output,
        exit_code: output.exit_code.map(i64::from),
        cancelled: output.cancelled,
        truncated: output.truncated,
        full_output_path: output.full_output_path,
        exclude_from_context: exclude.then_some(true),
        timestamp: now_ms(),
        ..BashExecutionMessage::default()
    });
    core.with(|state| state.store_or_hold(core, message));
    Ok(Value::Object(data))
}

/// A result of an extension that ran the command elsewhere.
fn read(value: &Value) -> UserOutput {
    let flag = |key: &str| value.get(key).and_then(Value::as_bool).unwrap_or(false);
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    UserOutput {
        output: text("output").unwrap_or_default(),
        exit_code: value
            .get("exitCode")
            .and_then(Value::as_i64)
            .and_then(|code| i32::try_from(code).ok()),
        cancelled: flag("cancelled"),
        truncated: flag("truncated"),
        full_output_path: text("fullOutputPath"),
    }
}

async fn execute(
    core: &Arc<Core>,
    command: &str,
    tag: Option<Value>,
) -> Result<UserOutput, CommandError> {
    let Some(env) = &core.config.shell else {
        return Err(CommandError::new("this session runs no shell commands"));
    };
    let cancel = core.stop.child_token();
    let cwd = core.with(|state| {
        state.shells.retain(|shell| !shell.is_cancelled());
        state.shells.push(cancel.clone());
        state.cwd.clone()
    });
    // Bounded: a slow face slows the command, so that endless output cannot pile up here.
    let (show, mut pieces) = mpsc::channel::<String>(16);
    let running = user_command(env, command, &cwd, cancel.clone(), show);
    let telling = async {
        while let Some(delta) = pieces.recv().await {
            core.tell(Event::BashUpdate {
                tag: tag.clone(),
                delta,
            });
            core.outbox.caught_up().await;
        }
    };
    let (output, ()) = tokio::join!(running, telling);
    forget(core, &cancel);
    output.map_err(|error| CommandError(error.message))
}

/// A command is over: its token is dropped from the list.
fn forget(core: &Core, cancel: &CancellationToken) {
    cancel.cancel();
    core.with(|state| state.shells.retain(|shell| !shell.is_cancelled()));
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
