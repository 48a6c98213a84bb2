//! From a submitted text to a run or a place in a queue.
//!
//! The order is that of Pi: extension command, input handlers, skill, template; then either the queue of the active run
//! or the preparation of a new one. Between the last look at the state and the mark that the session is busy there is
//! no await, so two prompts can never both start a run.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::core::{Answer, Core, Reply, now_ms};
use super::state::{ActiveRun, State};
use super::{compact, drive};
use crate::agent::Queue;
use crate::ai::{Block, Content, CustomMessage, Message, SystemMessage, UserMessage};
use crate::extensions::{Input, InputVerdict, RunPlan, RunStart, put};
use crate::resources::system_prompt::{PromptTool, Sections};
use crate::session::protocol::{Behavior, CommandError, Event, NoticeLevel};
use crate::tools::image::{Profile, prepare_blocks};

const SUMMARIZING: &str = "Cannot submit a prompt while compaction is in progress. Wait for compaction to finish and retry.";
const BUSY: &str = "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message.";

/// A text with its pictures.
pub(super) struct Prompt {
    pub(super) text: String,
    pub(super) images: Vec<Block>,
}

/// Carries out `prompt`. The answer comes when it is clear what becomes of the text, before the run begins.
pub(super) async fn prompt(
    core: Arc<Core>,
    prompt: Prompt,
    behavior: Option<Behavior>,
    reply: Reply,
) {
    match submit(&core, prompt, behavior).await {
        Ok(Submitted::Done(disposition)) => reply.send(&core, Ok(disposed(disposition))),
        Ok(Submitted::Run(prompt, cancel)) => begin(core, prompt, cancel, reply).await,
        Err(error) => reply.send(&core, Err(error)),
    }
}

/// Carries out `steer` and `follow_up`: the text waits, whether or not a run is active.
pub(super) async fn queue(core: &Core, prompt: Prompt, behavior: Behavior) -> Answer {
    if let Some(name) = command_name(core, &prompt.text) {
        return Err(CommandError(format!(
            "Extension command \"/{name}\" cannot be queued. Use prompt() or execute the command when not streaming."
        )));
    }
    let Some(prompt) = receive(core, prompt, Some(behavior)).await else {
        return Ok(disposed("handled"));
    };
    let message = user_message(prompt);
    core.with(|state| enqueue(core, state, behavior, message));
    Ok(disposed("queued"))
}

/// What became of a prompt.
enum Submitted {
    Done(&'static str),
    /// The session is marked busy with this run now.
    Run(Prompt, CancellationToken),
}

async fn submit(
    core: &Core,
    prompt: Prompt,
    behavior: Option<Behavior>,
) -> Result<Submitted, CommandError> {
    if run_command(core, &prompt.text).await {
        return Ok(Submitted::Done("handled"));
    }
    // Commands that arrived together are looked at before the first of them changes anything.
    tokio::task::yield_now().await;
    let busy = core.with(|state| {
        if state.summarizing.is_some() {
            return Err(CommandError::new(SUMMARIZING));
        }
        Ok(state.run.is_some())
    })?;
    let Some(prompt) = receive(core, prompt, behavior.filter(|_| busy)).await else {
        return Ok(Submitted::Done("handled"));
    };
    core.wait_until(|state| !state.settling).await;
    core.with_activity(|state| {
        if state.run.is_some() {
            let behavior = behavior.ok_or_else(|| CommandError::new(BUSY))?;
            enqueue(core, state, behavior, user_message(prompt));
            return Ok(Submitted::Done("queued"));
        }
        if state.summarizing.is_some() {
            return Err(CommandError::new(SUMMARIZING));
        }
        check_model(core, state)?;
        let cancel = core.stop.child_token();
        state.run = Some(ActiveRun::new(cancel.clone()));
        Ok(Submitted::Run(prompt, cancel))
    })
}

/// A run needs a model that can be asked.
fn check_model(core: &Core, state: &State) -> Result<(), CommandError> {
    let Some(model) = &state.model else {
        return Err(CommandError::new(
            "No model selected: choose one, or log in to a provider first",
        ));
    };
    core.config
        .models
        .check_credentials(model)
        .map_err(CommandError)
}

/// Prepares the run and starts it.
async fn begin(core: Arc<Core>, prompt: Prompt, cancel: CancellationToken, reply: Reply) {
    compact::before_prompt(&core, &cancel).await;
    let message = user_message(prompt);
    let mut start = before_run(&core, &message).await;
    if let Some(names) = start.tools.take() {
        core.with(|state| state.active_tools = Some(names));
    }
    let tools = core.prompt_tools();
    let messages = core.with(|state| {
        state.flush_held(&core);
        state.answer_dangling(&core);
        if let Some(run) = &mut state.run {
            run.forced_prompt = start.forced_prompt.take();
        }
        let wanted = state.sections(&core, &tools, &start);
        let messages = starting_messages(state, &wanted, message, start);
        state.record_selection(&core);
        messages
    });
    reply.send(&core, Ok(disposed("started")));
    drive::start(&core, messages, cancel);
}

/// Asks extensions before a run.
async fn before_run(core: &Core, message: &Message) -> RunStart {
    let hooks = &core.config.hooks;
    let mut plan = RunPlan {
        message: message.clone(),
        system_prompt: String::new(),
        options: Map::new(),
    };
    if hooks.wants("before_agent_start") {
        let tools = core.prompt_tools();
        core.with(|state| {
            let sections = state.sections(core, &tools, &RunStart::default());
            plan.system_prompt = sections.render();
            plan.options = prompt_options(state, &tools);
        });
    }
    hooks.before_run(plan).await
}

/// What the system prompt is made of, as extensions may change it.
fn prompt_options(state: &State, tools: &[PromptTool]) -> Map<String, Value> {
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let snippets = tools.iter();
    let snippets =
        snippets.filter_map(|tool| Some((tool.name.clone(), json!(tool.snippet.as_ref()?))));
    let guidelines = tools
        .iter()
        .map(|tool| (tool.name.clone(), json!(tool.guidelines)));
    let resources = &state.resources;
    let files = resources.context_files.iter();
    let files = files.map(|file| json!({"path": file.path, "content": file.content}));
    let skills = resources.skills.iter();
    let skills = skills.map(|skill| json!({"name": skill.name, "description": skill.description}));
    let mut options = json!({
        "selectedTools": names, "hiddenTools": [],
        "toolSnippets": snippets.collect::<Map<String, Value>>(),
        "toolGuidelines": guidelines.collect::<Map<String, Value>>(),
        "promptGuidelines": [], "sections": {},
        "appendSystemPrompt": resources.addendum.join("\n\n"), "cwd": resources.cwd,
        "contextFiles": files.collect::<Vec<_>>(), "skills": skills.collect::<Vec<_>>(),
    });
    if let Some(custom) = &resources.custom_prompt {
        put(&mut options, "customPrompt", custom.as_str());
    }
    options.as_object().cloned().unwrap_or_default()
}

/// The messages a run begins with: what changed of the prompt, the person's message, what goes beside it.
fn starting_messages(
    state: &mut State,
    wanted: &Sections,
    message: Message,
    start: RunStart,
) -> Vec<Message> {
    let mut messages = Vec::new();
    if let Some(patch) = state.section_patch(wanted) {
        messages.push(Message::System(SystemMessage {
            content: Content::Text(String::new()),
            sections: Some(patch),
            timestamp: now_ms(),
            ..SystemMessage::default()
        }));
    }
    messages.push(message);
    messages.extend(state.take_beside());
    messages.extend(start.messages.into_iter().map(stamped));
    messages
}

fn stamped(mut message: CustomMessage) -> Message {
    if message.timestamp == 0 {
        message.timestamp = now_ms();
    }
    Message::Custom(message)
}

fn enqueue(core: &Core, state: &mut State, behavior: Behavior, message: Message) {
    let queue = match behavior {
        Behavior::Steer => Queue::Steering,
        Behavior::FollowUp => Queue::FollowUp,
    };
    state.queues.push(queue, message);
    core.tell(state.queues.event());
}

/// Runs the extension command a text names; true when there was one.
async fn run_command(core: &Core, text: &str) -> bool {
    let Some(rest) = text.strip_prefix('/') else {
        return false;
    };
    let (name, args) = rest.split_once(' ').unwrap_or((rest, ""));
    match core.config.hooks.command(name, args).await {
        None => false,
        Some(Ok(())) => true,
        Some(Err(error)) => {
            core.tell(Event::ExtensionError {
                path: format!("command:{name}"),
                event: "command".to_owned(),
                error,
            });
            true
        }
    }
}

/// The name of the extension command that a text calls.
fn command_name(core: &Core, text: &str) -> Option<String> {
    let rest = text.strip_prefix('/')?;
    let name = rest.split_once(' ').map_or(rest, |(name, _)| name);
    let commands = core.config.hooks.commands();
    commands
        .iter()
        .any(|command| command.name == name)
        .then(|| name.to_owned())
}

/// Lets extensions see the text, then expands skills and templates. `None`: an extension took care of it.
async fn receive(core: &Core, prompt: Prompt, behavior: Option<Behavior>) -> Option<Prompt> {
    let input = Input {
        text: prompt.text,
        images: prompt.images,
        source: core.config.source,
        behavior: behavior.map(|behavior| match behavior {
            Behavior::Steer => "steer",
            Behavior::FollowUp => "followUp",
        }),
    };
    match core.config.hooks.input(input).await {
        InputVerdict::Handled => None,
        InputVerdict::Go { text, images } => {
            let prompt = Prompt {
                text: expand(core, &text),
                images,
            };
            Some(fit_images(core, prompt).await)
        }
    }
}

/// Scales pictures to what the model takes; hints about them follow the text.
async fn fit_images(core: &Core, mut prompt: Prompt) -> Prompt {
    if prompt.images.is_empty() {
        return prompt;
    }
    let profile = core.with(|state| {
        let images = state.resources.settings.effective().get("images");
        let resize = images.and_then(|images| images.get("autoResize"));
        let resize = resize.and_then(Value::as_bool).unwrap_or(true);
        Profile::of(state.model.as_deref(), resize)
    });
    let images = prompt.images.clone();
    let fitted = tokio::task::spawn_blocking(move || prepare_blocks(images, &profile)).await;
    // A picture that cannot be worked on is sent as it is.
    let Ok(fitted) = fitted else { return prompt };
    let (images, hints): (Vec<Block>, Vec<Block>) = fitted
        .into_iter()
        .partition(|block| matches!(block, Block::Image(_)));
    for hint in hints.iter().filter_map(Block::as_text) {
        prompt.text.push_str("\n\n");
        prompt.text.push_str(hint);
    }
    prompt.images = images;
    prompt
}

/// Puts in the skill or template that a text calls.
fn expand(core: &Core, text: &str) -> String {
    let expansion = core.with(|state| state.resources.expand(text));
    if let Some(error) = expansion.error {
        core.notice(NoticeLevel::Warning, error);
    }
    expansion.text
}

fn user_message(prompt: Prompt) -> Message {
    let mut content = vec![Block::text(prompt.text)];
    content.extend(prompt.images);
    Message::User(UserMessage {
        content: Content::Blocks(content),
        timestamp: now_ms(),
        ..UserMessage::default()
    })
}

fn disposed(disposition: &str) -> Value {
    json!({ "disposition": disposition })
}
