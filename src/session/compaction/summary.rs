//! Asking a model for a summary.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::prepare::{Preparation, Sourced};
use super::{prompts, serialise};
use crate::ai::{
    AssistantMessage, Block, Content, Message, Model, Provider, Request, RequestOptions,
    StopReason, StreamEvent, SystemMessage, ThinkingLevel, Usage, UserMessage,
};

/// Who sends a request and gives the whole answer: the runtime retries and tells about it, [`Once`] does neither.
pub trait Asker: Send + Sync {
    /// Sends one request. A failure is an answer whose stop reason says so.
    fn ask(&self, request: Request) -> BoxFuture<'_, AssistantMessage>;
}

/// Sends a request once.
pub struct Once(pub Arc<dyn Provider>);

impl Asker for Once {
    fn ask(&self, request: Request) -> BoxFuture<'_, AssistantMessage> {
        let mut stream = self.0.stream(request);
        Box::pin(async move {
            while let Some(event) = stream.next().await {
                if let StreamEvent::Done(message) | StreamEvent::Error(message) = event {
                    return *message;
                }
            }
            AssistantMessage {
                stop_reason: StopReason::Error,
                error_message: Some("the model's answer ended without an end".into()),
                ..AssistantMessage::default()
            }
        })
    }
}

/// The model that summarises, as it stood when the work began.
#[derive(Clone, Debug)]
pub struct SummaryModel {
    /// The model.
    pub model: Arc<Model>,
    /// The session's thinking level.
    pub thinking: ThinkingLevel,
    /// Options that concern the way to the model (keys, headers); tools, cache and limits are set here.
    pub options: RequestOptions,
    /// Ends the work.
    pub cancel: CancellationToken,
}

/// Why there is no summary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SummaryError {
    /// The person stopped it.
    #[error("the summary was stopped")]
    Aborted,
    /// The provider failed.
    #[error("{0}")]
    Provider(String),
    /// The answer was cut; half a summary would lose the other half for good.
    #[error("the summary was cut at the model's output limit; nothing was changed")]
    Truncated,
    /// The model wanted to call a tool.
    #[error("the model called a tool instead of writing a summary; nothing was changed")]
    ToolCall,
    /// The model answered nothing.
    #[error("the model gave an empty summary; nothing was changed")]
    Empty,
}

/// A finished summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The text that is stored, with file lists.
    pub text: String,
    /// `{readFiles, modifiedFiles}`.
    pub details: Value,
    /// What it cost; nothing when no request was needed.
    pub usage: Option<Usage>,
}

/// Says that nothing came before the turn that is cut.
const NO_HISTORY: &str = "No prior history.";

/// Writes the summary of a prepared compaction. A split turn needs two requests, one after the other.
///
/// # Errors
/// [`SummaryError`]; nothing has been changed then.
pub async fn summarise(
    asker: &dyn Asker,
    model: &SummaryModel,
    preparation: &Preparation,
    focus: Option<&str>,
) -> Result<Summary, SummaryError> {
    let mut usage = None;
    let previous = preparation.previous_summary.as_deref();
    let mut text = if preparation.history.is_empty() && preparation.is_split_turn {
        previous.unwrap_or(NO_HISTORY).to_owned()
    } else {
        let conversation = conversation(&preparation.history);
        let prompt = prompts::history_request(&conversation, previous, focus);
        request(asker, model, prompt, &mut usage).await?
    };
    if preparation.is_split_turn && !preparation.turn_prefix.is_empty() {
        let prompt = prompts::turn_prefix_request(&conversation(&preparation.turn_prefix), focus);
        let prefix = request(asker, model, prompt, &mut usage).await?;
        text = format!("{text}\n\n---\n\n**Turn Context (split turn):**\n\n{prefix}");
    }
    let files = preparation.file_ops.lists();
    Ok(Summary {
        text: text + &files.suffix(),
        details: files.details(),
        usage,
    })
}

fn conversation(sources: &[Sourced]) -> String {
    serialise::conversation(sources.iter().map(|source| &*source.message))
}

/// Sends one summary request and checks the answer.
pub(crate) async fn request(
    asker: &dyn Asker,
    model: &SummaryModel,
    prompt: String,
    usage: &mut Option<Usage>,
) -> Result<String, SummaryError> {
    if model.cancel.is_cancelled() {
        return Err(SummaryError::Aborted);
    }
    let answer = asker.ask(build(model, prompt)).await;
    if model.cancel.is_cancelled() || answer.stop_reason == StopReason::Aborted {
        return Err(SummaryError::Aborted);
    }
    match answer.stop_reason {
        StopReason::Error => {
            let text = answer.error_message.filter(|text| !text.is_empty());
            return Err(SummaryError::Provider(
                text.unwrap_or_else(|| "the request failed".into()),
            ));
        }
        StopReason::Length => return Err(SummaryError::Truncated),
        _ => {}
    }
    if answer.tool_calls().next().is_some() {
        return Err(SummaryError::ToolCall);
    }
    let text = Content::Blocks(answer.content).text("\n");
    if text.trim().is_empty() {
        return Err(SummaryError::Empty);
    }
    add(usage, &answer.usage);
    Ok(text)
}

fn build(model: &SummaryModel, prompt: String) -> Request {
    let now = jiff::Timestamp::now().as_millisecond();
    let system = SystemMessage {
        content: Content::Text(prompts::SYSTEM.into()),
        timestamp: now,
        ..SystemMessage::default()
    };
    let user = UserMessage {
        content: Content::Blocks(vec![Block::text(prompt)]),
        timestamp: now,
        ..UserMessage::default()
    };
    Request {
        model: model.model.clone(),
        messages: vec![Message::System(system).into(), Message::User(user).into()],
        options: RequestOptions {
            thinking: if model.model.reasoning {
                model.thinking
            } else {
                ThinkingLevel::Off
            },
            max_tokens: None,
            session_id: Some(uuid::Uuid::now_v7().to_string()),
            cache_retention: Some("none".into()),
            tool_choice: None,
            ..model.options.clone()
        },
        cancel: model.cancel.clone(),
    }
}

fn add(sum: &mut Option<Usage>, more: &Usage) {
    let Some(sum) = sum else {
        *sum = Some(more.clone());
        return;
    };
    sum.input += more.input;
    sum.output += more.output;
    sum.cache_read += more.cache_read;
    sum.cache_write += more.cache_write;
    sum.total_tokens += more.total_tokens;
    let optional = |left: Option<u64>, right: Option<u64>| match (left, right) {
        (None, None) => None,
        (left, right) => Some(left.unwrap_or(0) + right.unwrap_or(0)),
    };
    sum.cache_write_1h = optional(sum.cache_write_1h, more.cache_write_1h);
    sum.reasoning = optional(sum.reasoning, more.reasoning);
    sum.cost.input += more.cost.input;
    sum.cost.output += more.cost.output;
    sum.cost.cache_read += more.cost.cache_read;
    sum.cost.cache_write += more.cost.cache_write;
    sum.cost.total += more.cost.total;
}
