//! Print and JSON modes: some prompts, each run to its end, then out.
//!
//! Entry points: [`print()`] (the text of the last answer) and [`json`] (every event as a line).

use std::io;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::notice;
use super::rpc::Sink;
use crate::ai::{Block, Message, StopReason};
use crate::session::{Command, CommandError, Event, Runtime};

/// One prompt with its pictures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// The text.
    pub text: String,
    /// Pictures.
    pub images: Vec<Block>,
}

/// What print mode gives: what goes to stdout and to stderr, and whether the process succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// For stdout.
    pub out: String,
    /// For stderr, without line end.
    pub err: Option<String>,
    /// False: exit code 1.
    pub success: bool,
}

/// Runs the prompts and returns the last answer as text. `warn` gets notices.
///
/// # Errors
/// Why a prompt was not taken.
pub async fn print(
    runtime: &Runtime,
    prompts: Vec<Prompt>,
    warn: impl Fn(&str),
) -> Result<Printed, CommandError> {
    let mut events = runtime.subscribe(64);
    let asked = !prompts.is_empty();
    for (tag, command) in commands(prompts) {
        run(runtime, &mut events, tag, command, async |event| {
            notice(&event, &warn);
            Ok(())
        })
        .await?;
    }
    let last = runtime.with_session(|session| {
        let context = session.context();
        context.messages().last().map(Arc::clone)
    });
    Ok(match last.as_deref() {
        Some(Message::Assistant(answer)) if asked => printed(answer),
        _ => Printed {
            success: true,
            ..Printed::default()
        },
    })
}

fn printed(answer: &crate::ai::AssistantMessage) -> Printed {
    let reason = match answer.stop_reason {
        StopReason::Error => Some("error"),
        StopReason::Aborted => Some("aborted"),
        _ => None,
    };
    if let Some(reason) = reason {
        let said = answer.error_message.clone();
        return Printed {
            err: Some(said.unwrap_or_else(|| format!("Request {reason}"))),
            ..Printed::default()
        };
    }
    let mut out = String::new();
    for text in answer.content.iter().filter_map(Block::as_text) {
        out.push_str(text);
        out.push('\n');
    }
    let cut = answer.stop_reason == StopReason::Length;
    Printed {
        out,
        err: cut.then(|| {
            "Response was truncated: the model reached its output token limit.".to_owned()
        }),
        success: !cut,
    }
}

/// Runs the prompts and writes the session header and every event as a line. `warn` gets notices.
///
/// # Errors
/// Why a prompt was not taken, or that nothing can be written.
pub async fn json(
    runtime: &Runtime,
    prompts: Vec<Prompt>,
    sink: Sink,
    warn: impl Fn(&str),
) -> Result<(), CommandError> {
    let mut events = runtime.subscribe(64);
    let unwritable = |error: io::Error| CommandError(format!("write to stdout: {error}"));
    let header = runtime.header().to_string();
    sink.write(header).await.map_err(unwritable)?;
    for (tag, command) in commands(prompts) {
        run(runtime, &mut events, tag, command, async |event| {
            notice(&event, &warn);
            match event.to_line() {
                Some(line) => sink.write(line).await.map_err(unwritable),
                None => Ok(()),
            }
        })
        .await?;
    }
    sink.finish().await.map_err(unwritable)
}

/// The prompts as commands with their tags. A question comes before them: by its answer everything the beginning of the
/// session had to say was handed on, whether or not there is a prompt.
fn commands(prompts: Vec<Prompt>) -> impl Iterator<Item = (u64, Command)> {
    let prompts = prompts.into_iter().map(|prompt| Command::Prompt {
        text: prompt.text,
        images: prompt.images,
        behavior: None,
    });
    (1..).zip(std::iter::once(Command::GetState).chain(prompts))
}

/// Submits one command and hands on events until a run that it starts has settled.
async fn run(
    runtime: &Runtime,
    events: &mut mpsc::Receiver<Arc<Event>>,
    tag: u64,
    command: Command,
    mut each: impl AsyncFnMut(Arc<Event>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    runtime.submit(command, tag);
    while let Some(event) = events.recv().await {
        if let Event::Response { tag: other, answer } = &*event {
            let mine = *other == tag;
            match answer {
                Err(error) if mine => return Err(error.clone()),
                Ok(data) if mine && data["disposition"] != "started" => return Ok(()),
                _ => continue,
            }
        }
        let settled = matches!(*event, Event::AgentSettled { .. });
        each(event).await?;
        if settled {
            break;
        }
    }
    Ok(())
}
