//! The one `match` that carries commands out.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::core::{Answer, Core, Reply};
use super::prompt::Prompt;
use super::{bash, bind, compact, models, navigate, prompt, queries, sessions};
use crate::agent::Queue;
use crate::extensions::Reason;
use crate::resources::settings::Scope;
use crate::session::protocol::{Behavior, Command, CommandError, NoticeLevel, QueueMode};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

/// A command with the place its answer goes to.
pub(super) type Order = (Command, Reply);

/// Carries out commands side by side, each begun in the order of arrival: until it first has to wait, a command runs
/// before the next one is looked at. Ends when every handle is gone or the runtime is shut down.
pub(super) async fn serve(core: Arc<Core>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut open: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    let early = start(&core, &mut orders).await;
    for (command, reply) in early {
        begin(&core, command, reply, &mut open).await;
    }
    loop {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => break,
            order = orders.recv() => {
                let Some((command, reply)) = order else { break };
                begin(&core, command, reply, &mut open).await;
            }
            Some(()) = open.next() => {}
        }
    }
    orders.close();
    while let Ok((_, reply)) = orders.try_recv() {
        reply.send(
            &core,
            Err(CommandError::new("the session is shutting down")),
        );
    }
    while open.next().await.is_some() {}
}

/// Lets extensions hear that the session begins. Orders wait for that and are returned, but for answers to the dialogs
/// that extensions may open meanwhile.
async fn start(core: &Arc<Core>, orders: &mut mpsc::UnboundedReceiver<Order>) -> Vec<Order> {
    let mut early = Vec::new();
    let beginning = bind::begin(core, Reason::Startup, None);
    tokio::pin!(beginning);
    loop {
        tokio::select! {
            biased;
            () = &mut beginning => return early,
            () = core.stop.cancelled() => return early,
            Some((command, reply)) = orders.recv() => match command {
                command @ Command::UiAnswer { .. } => {
                    carry_out(Arc::clone(core), command, reply).await;
                }
                command => early.push((command, reply)),
            },
        }
    }
}

async fn begin(
    core: &Arc<Core>,
    command: Command,
    reply: Reply,
    open: &mut FuturesUnordered<BoxFuture<'static, ()>>,
) {
    let mut future: BoxFuture<'static, ()> = Box::pin(carry_out(Arc::clone(core), command, reply));
    if futures::poll!(&mut future).is_pending() {
        open.push(future);
    }
}

async fn carry_out(core: Arc<Core>, command: Command, reply: Reply) {
    match command {
        Command::Prompt {
            text,
            images,
            behavior,
        } => prompt::prompt(core, Prompt { text, images }, behavior, reply).await,
        command => {
            let answer = answer(&core, command).await;
            reply.send(&core, answer);
        }
    }
}

async fn answer(core: &Arc<Core>, command: Command) -> Answer {
    match command {
        Command::Prompt { .. } => Ok(Value::Null),
        Command::Steer { text, images } => {
            prompt::queue(core, Prompt { text, images }, Behavior::Steer).await
        }
        Command::FollowUp { text, images } => {
            prompt::queue(core, Prompt { text, images }, Behavior::FollowUp).await
        }
        Command::Abort => abort(core).await,
        Command::ClearQueue => Ok(clear_queue(core)),
        Command::AbortRetry => Ok(abort_retry(core)),
        Command::SetSteeringMode { mode } => set_queue_mode(core, Queue::Steering, mode).await,
        Command::SetFollowUpMode { mode } => set_queue_mode(core, Queue::FollowUp, mode).await,
        Command::SetAutoCompaction { enabled } => {
            save(core, &["compaction", "enabled"], enabled.into()).await
        }
        Command::SetAutoRetry { enabled } => {
            save(core, &["retry", "enabled"], enabled.into()).await
        }
        Command::SetModel { provider, id } => models::set(core, &provider, &id).await,
        Command::CycleModel => models::cycle(core).await,
        Command::SetThinkingLevel { level } => models::set_level(core, &level).await,
        Command::CycleThinkingLevel => models::cycle_level(core).await,
        Command::Compact { instructions } => compact::manual(core, instructions).await,
        Command::Bash {
            command,
            exclude_from_context,
            tag,
        } => bash::run(core, command, exclude_from_context, tag).await,
        Command::AbortBash => Ok(bash::abort(core)),
        Command::Review(action) => core
            .config
            .gate
            .act(action)
            .map(Value::from)
            .map_err(CommandError),
        Command::Approve { id, answer } => {
            core.config.gate.answer(id, answer);
            Ok(Value::Null)
        }
        Command::UiAnswer { record } => {
            core.config.hooks.ui_answer(&record);
            Ok(Value::Null)
        }
        Command::SetActiveTools { names } => Ok(set_active_tools(core, names)),
        Command::Reload => sessions::reload(core).await,
        Command::Navigate { .. } | Command::SetLabel { .. } | Command::EditContext { .. } => {
            navigate::answer(core, command).await
        }
        Command::NewSession { .. }
        | Command::SwitchSession { .. }
        | Command::Continue
        | Command::Fork { .. }
        | Command::Clone
        | Command::ImportSession { .. }
        | Command::DeleteSession { .. }
        | Command::SetSessionName { .. } => sessions::answer(core, command).await,
        query => queries::answer(core, query).await,
    }
}

async fn abort(core: &Core) -> Answer {
    core.abort();
    core.wait_idle().await;
    Ok(Value::Null)
}

fn clear_queue(core: &Core) -> Value {
    core.with(|state| {
        let (steering, follow_up) = state.queues.clear();
        core.tell(state.queues.event());
        json!({"steering": steering, "followUp": follow_up})
    })
}

fn abort_retry(core: &Core) -> Value {
    core.with(|state| {
        let wait = state.run.as_ref().and_then(|run| run.retry_wait.as_ref());
        if let Some(wait) = wait {
            wait.cancel();
        }
    });
    Value::Null
}

async fn set_queue_mode(core: &Core, queue: Queue, mode: QueueMode) -> Answer {
    core.with(|state| state.queues.set_mode(queue, mode));
    let key = match queue {
        Queue::Steering => "steeringMode",
        Queue::FollowUp => "followUpMode",
    };
    save(core, &[key], mode.as_str().into()).await
}

/// Saves a setting for all sessions. It holds at once; the file is written without the lock of the state, one write at a
/// time. A file that cannot be written is told, the value holds.
async fn save(core: &Core, key: &[&str], value: Value) -> Answer {
    core.with(|state| state.resources.settings.hold(Scope::Global, key, value));
    // Later writes carry what earlier ones could not write, so their order has to be that of the changes.
    let _turn = core.settings_turn.lock().await;
    let mut copy = core.with(|state| state.resources.settings.clone());
    let held = copy.held(Scope::Global).to_vec();
    let written = tokio::task::spawn_blocking(move || copy.write(Scope::Global)).await;
    let trouble = match written {
        Ok(Ok(())) => {
            core.with(|state| state.resources.settings.written(Scope::Global, &held));
            return Ok(Value::Null);
        }
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    core.notice(NoticeLevel::Warning, trouble);
    Ok(Value::Null)
}

fn set_active_tools(core: &Core, names: Vec<String>) -> Value {
    core.with(|state| state.active_tools = Some(names));
    Value::Null
}

/// Makes a reply that someone waits for.
pub(super) fn waiter() -> (Reply, oneshot::Receiver<Answer>) {
    let (answer, waits) = oneshot::channel();
    (Reply::Waiter(answer), waits)
}
