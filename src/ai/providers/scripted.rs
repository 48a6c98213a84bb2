//! A model whose answers are written beforehand or decided by a function: for tests and for the demo without a network.
//!
//! Entry points: [`Scripted`], [`Answer`]. It keeps the rules of a stream like every provider and holds the requests it
//! was given.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::ai::message::ToolCall;
use crate::ai::provider::Partial;
use crate::ai::{
    AssistantMessage, Block, EventStream, Model, Provider, Request, StopReason, StreamEvent, Usage,
};

pub mod demo;

/// One piece of a scripted answer.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Thinking(String),
    Text(String),
    Call {
        id: String,
        name: String,
        arguments: Value,
    },
    Pause(Duration),
    /// Nothing more comes; only an abort ends it.
    Hang,
}

/// An answer, built piece by piece: `Answer::new().text("Hel").text("lo").call("c1", "read", json!({"path": "a"}))`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    steps: Vec<Step>,
    stop: Option<StopReason>,
    error: Option<String>,
    usage: Option<Usage>,
}

impl Answer {
    /// An answer without content.
    pub fn new() -> Self {
        Self::default()
    }

    /// A plain text answer.
    pub fn say(text: impl Into<String>) -> Self {
        Self::new().text(text)
    }

    /// An answer that fails before anything arrives.
    pub fn fail(error: impl Into<String>) -> Self {
        Self::new().error(error)
    }

    /// Adds a piece of text; pieces in a row form one block.
    #[must_use]
    pub fn text(mut self, piece: impl Into<String>) -> Self {
        self.steps.push(Step::Text(piece.into()));
        self
    }

    /// Adds a piece of thinking; pieces in a row form one block.
    #[must_use]
    pub fn thinking(mut self, piece: impl Into<String>) -> Self {
        self.steps.push(Step::Thinking(piece.into()));
        self
    }

    /// Adds a tool call.
    #[must_use]
    pub fn call(
        mut self,
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: Value,
    ) -> Self {
        self.steps.push(Step::Call {
            id: id.into(),
            name: name.into(),
            arguments,
        });
        self
    }

    /// Waits before the next piece.
    #[must_use]
    pub fn pause(mut self, time: Duration) -> Self {
        self.steps.push(Step::Pause(time));
        self
    }

    /// Sends nothing more and stays open until it is aborted.
    #[must_use]
    pub fn hang(mut self) -> Self {
        self.steps.push(Step::Hang);
        self
    }

    /// Ends with an error after the pieces given so far.
    #[must_use]
    pub fn error(mut self, error: impl Into<String>) -> Self {
        self.error = Some(error.into());
        self
    }

    /// Ends with this reason instead of the natural one.
    #[must_use]
    pub fn stop(mut self, reason: StopReason) -> Self {
        self.stop = Some(reason);
        self
    }

    /// Reports this usage instead of a small fixed one.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }
}

type Decide = Box<dyn FnMut(&Request) -> Answer + Send>;

/// The scripted model. Clones share the script and the requests.
#[derive(Clone)]
pub struct Scripted {
    decide: Arc<Mutex<Decide>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Scripted {
    /// Asks `decide` for each answer. It is called when the request starts and must not block.
    pub fn new(decide: impl FnMut(&Request) -> Answer + Send + 'static) -> Self {
        Self {
            decide: Arc::new(Mutex::new(Box::new(decide))),
            requests: Arc::default(),
        }
    }

    /// Gives these answers in turn; later requests fail with `script exhausted`.
    pub fn replay(answers: impl IntoIterator<Item = Answer>) -> Self {
        let mut answers: VecDeque<Answer> = answers.into_iter().collect();
        Self::new(move |_| {
            answers
                .pop_front()
                .unwrap_or_else(|| Answer::fail("script exhausted"))
        })
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }

    /// The record of a model that this provider can answer for.
    pub fn model() -> Model {
        Model {
            id: "scripted".to_owned(),
            name: "Scripted model".to_owned(),
            api: "scripted".to_owned(),
            provider: "scripted".to_owned(),
            input: vec!["text".to_owned(), "image".to_owned()],
            context_window: 200_000,
            max_tokens: 8192,
            ..Model::default()
        }
    }
}

impl Provider for Scripted {
    fn stream(&self, request: Request) -> EventStream {
        let answer = (self.decide.lock())(&request);
        let cancel = request.cancel.clone();
        let empty = AssistantMessage {
            api: request.model.api.clone(),
            provider: request.model.provider.clone(),
            model: request.model.id.clone(),
            stop_reason: StopReason::Pending,
            timestamp: now_ms(),
            ..AssistantMessage::default()
        };
        self.requests.lock().push(request);
        let teller = Teller {
            cancel,
            todo: plan(answer, &empty),
            partial: Partial { message: empty },
            over: false,
        };
        stream::unfold(teller, |mut teller| async move {
            let event = teller.next().await?;
            Some((event, teller))
        })
        .boxed()
    }
}

/// What the stream does next.
enum Todo {
    Tell(StreamEvent),
    Pause(Duration),
    Hang,
    /// The last event, made from what was told.
    End {
        stop: StopReason,
        error: Option<String>,
        usage: Usage,
    },
}

struct Teller {
    cancel: CancellationToken,
    partial: Partial,
    todo: VecDeque<Todo>,
    over: bool,
}

impl Teller {
    async fn next(&mut self) -> Option<StreamEvent> {
        if self.over {
            return None;
        }
        loop {
            if self.cancel.is_cancelled() {
                return Some(self.end(
                    StopReason::Aborted,
                    Some("Request was aborted".to_owned()),
                    None,
                ));
            }
            match self.todo.pop_front()? {
                Todo::Tell(event) => {
                    self.partial.apply(&event);
                    return Some(event);
                }
                Todo::Pause(time) => {
                    tokio::select! {
                        () = tokio::time::sleep(time) => {}
                        () = self.cancel.cancelled() => {}
                    }
                }
                Todo::Hang => {
                    self.todo.clear();
                    self.todo.push_back(Todo::Hang);
                    self.cancel.cancelled().await;
                }
                Todo::End { stop, error, usage } => {
                    return Some(self.end(stop, error, Some(usage)));
                }
            }
        }
    }

    fn end(
        &mut self,
        stop: StopReason,
        error: Option<String>,
        usage: Option<Usage>,
    ) -> StreamEvent {
        self.over = true;
        let mut message = std::mem::take(&mut self.partial.message);
        let failed = matches!(stop, StopReason::Error | StopReason::Aborted);
        message.stop_reason = stop;
        message.error_message = error;
        message.usage = usage.unwrap_or_default();
        if failed {
            StreamEvent::Error(Box::new(message))
        } else {
            StreamEvent::Done(Box::new(message))
        }
    }
}

/// Lays out the events of an answer: blocks begin at their first piece and end before the next block.
fn plan(answer: Answer, empty: &AssistantMessage) -> VecDeque<Todo> {
    let mut todo = VecDeque::new();
    let something_arrives = !answer.steps.is_empty() || answer.error.is_none();
    if something_arrives {
        todo.push_back(Todo::Tell(StreamEvent::Start(Box::new(empty.clone()))));
    }
    let mut open: Option<OpenBlock> = None;
    let mut index = 0;
    let mut calls = false;
    for step in answer.steps {
        if !open.as_ref().is_some_and(|block| block.takes(&step)) {
            close(&mut open, &mut todo, &mut index);
        }
        match step {
            Step::Text(piece) | Step::Thinking(piece) if piece.is_empty() => {}
            Step::Text(piece) => extend(&mut open, &mut todo, index, OpenBlock::Text, piece),
            Step::Thinking(piece) => {
                extend(&mut open, &mut todo, index, OpenBlock::Thinking, piece);
            }
            Step::Call {
                id,
                name,
                arguments,
            } => {
                calls = true;
                push_call(&mut todo, index, id, name, arguments);
                index += 1;
            }
            Step::Pause(time) => todo.push_back(Todo::Pause(time)),
            Step::Hang => todo.push_back(Todo::Hang),
        }
    }
    close(&mut open, &mut todo, &mut index);
    let natural = match (&answer.error, calls) {
        (Some(_), _) => StopReason::Error,
        (None, true) => StopReason::ToolUse,
        (None, false) => StopReason::Stop,
    };
    todo.push_back(Todo::End {
        stop: answer.stop.unwrap_or(natural),
        error: answer.error,
        usage: answer.usage.unwrap_or_else(small_usage),
    });
    todo
}

/// A block that later pieces may extend.
enum OpenBlock {
    Text(String),
    Thinking(String),
}

impl OpenBlock {
    fn takes(&self, step: &Step) -> bool {
        matches!(
            (self, step),
            (_, Step::Pause(_) | Step::Hang)
                | (Self::Text(_), Step::Text(_))
                | (Self::Thinking(_), Step::Thinking(_))
        )
    }
}

fn extend(
    open: &mut Option<OpenBlock>,
    todo: &mut VecDeque<Todo>,
    index: usize,
    new: fn(String) -> OpenBlock,
    piece: String,
) {
    let block = open.get_or_insert_with(|| {
        let block = new(String::new());
        todo.push_back(Todo::Tell(match &block {
            OpenBlock::Text(_) => StreamEvent::TextStart {
                index,
                text: String::new(),
            },
            OpenBlock::Thinking(_) => StreamEvent::ThinkingStart {
                index,
                block: crate::ai::message::ThinkingBlock::default(),
            },
        }));
        block
    });
    let delta = piece.clone();
    match block {
        OpenBlock::Text(text) => {
            text.push_str(&piece);
            todo.push_back(Todo::Tell(StreamEvent::TextDelta { index, delta }));
        }
        OpenBlock::Thinking(text) => {
            text.push_str(&piece);
            todo.push_back(Todo::Tell(StreamEvent::ThinkingDelta { index, delta }));
        }
    }
}

fn close(open: &mut Option<OpenBlock>, todo: &mut VecDeque<Todo>, index: &mut usize) {
    let Some(block) = open.take() else { return };
    let at = *index;
    *index += 1;
    todo.push_back(Todo::Tell(match block {
        OpenBlock::Text(content) => StreamEvent::TextEnd { index: at, content },
        OpenBlock::Thinking(content) => StreamEvent::ThinkingEnd { index: at, content },
    }));
}

fn push_call(todo: &mut VecDeque<Todo>, index: usize, id: String, name: String, arguments: Value) {
    let delta = arguments.to_string();
    let call = ToolCall {
        id: id.clone(),
        name: name.clone(),
        arguments,
        ..ToolCall::default()
    };
    for event in [
        StreamEvent::ToolCallStart { index, id, name },
        StreamEvent::ToolCallDelta { index, delta },
        StreamEvent::ToolCallEnd { index, call },
    ] {
        todo.push_back(Todo::Tell(event));
    }
}

fn small_usage() -> Usage {
    Usage {
        input: 100,
        output: 10,
        total_tokens: 110,
        ..Usage::default()
    }
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Finds the results of the last batch in a request, for functions that decide by what happened: `(name, text, failed)`.
pub fn last_results(request: &Request) -> Vec<(String, String, bool)> {
    let mut results: Vec<(String, String, bool)> = request
        .messages
        .iter()
        .rev()
        .map_while(|message| match &**message {
            crate::ai::Message::ToolResult(result) => Some((
                result.tool_name.clone(),
                result
                    .content
                    .iter()
                    .filter_map(Block::as_text)
                    .collect::<Vec<_>>()
                    .join("\n"),
                result.is_error,
            )),
            _ => None,
        })
        .collect();
    results.reverse();
    results
}

/// The shape of a request for assertions: roles and texts, without ids and times.
pub fn outline(request: &Request) -> Value {
    let rows: Vec<Value> = request
        .messages
        .iter()
        .map(|message| {
            let text = match &**message {
                crate::ai::Message::User(user) => user.content.text("\n"),
                crate::ai::Message::Assistant(answer) => answer
                    .content
                    .iter()
                    .filter_map(Block::as_text)
                    .collect::<Vec<_>>()
                    .join("\n"),
                crate::ai::Message::ToolResult(result) => result
                    .content
                    .iter()
                    .filter_map(Block::as_text)
                    .collect::<Vec<_>>()
                    .join("\n"),
                _ => String::new(),
            };
            json!([message.role(), text])
        })
        .collect();
    Value::Array(rows)
}
