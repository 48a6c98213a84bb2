//! How the handlers of several extensions answer one event together.
//!
//! Entry point: [`dispatch`]. Handlers run strictly one after another in load order. What the next one sees, who stops
//! the chain and what an error means is decided by the kind of the event, in one place for every host (`Rule`). A
//! host only has to bring an event to a handler and its answer back.

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use crate::ai::Message;

/// One handler of one extension.
#[async_trait]
pub trait Handler: Send + Sync {
    /// Path of the extension, for error reports.
    fn extension(&self) -> &str;

    /// Lets the handler see the event. It may change it in place; `None` is no answer, which is not the same as `null`.
    ///
    /// # Errors
    /// What the handler threw.
    async fn call(&self, event: &mut Map<String, Value>) -> Result<Option<Value>, String>;
}

/// An error of a handler that did not stop the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerError {
    /// The extension.
    pub extension: String,
    /// What went wrong.
    pub error: String,
}

/// What the handlers came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Composed {
    /// The common answer; `null`: nothing was said. Its shape depends on the event.
    pub result: Value,
    /// The event as the handlers left it.
    pub event: Map<String, Value>,
    /// Set: what the event announces must not happen, and why. Only guarding events fail that way.
    pub blocked: Option<String>,
    /// Errors to report.
    pub errors: Vec<HandlerError>,
}

/// How answers compose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Answers do not count.
    Notify,
    /// Each transforms; `handled` ends it.
    Input,
    /// Each may replace the message by one of its role.
    Message,
    /// Arguments change in place, `block` ends it, an error blocks.
    ToolCall,
    /// Each may replace some fields.
    ToolResult,
    /// The first valid answer ends it; anything odd blocks.
    UserBash,
    /// Each may replace the messages, which it sees without system messages.
    Context,
    /// The same with system messages.
    FullContext,
    /// Each may replace the payload.
    Payload,
    /// Changed in place.
    Headers,
    /// The last `action` counts.
    LastAction,
    /// Lists are joined.
    Concat,
    /// `cancel` ends it, else the last object counts.
    Gate,
    /// The first yes or no ends it.
    Trust,
    /// Messages are collected, the last prompt counts, options change in place.
    RunStart,
}

impl Rule {
    fn of(event: &str) -> Self {
        match event {
            "input" => Self::Input,
            "message_end" => Self::Message,
            "tool_call" => Self::ToolCall,
            "tool_result" => Self::ToolResult,
            "user_bash" => Self::UserBash,
            "context" => Self::Context,
            "context_with_system" => Self::FullContext,
            "before_provider_request" => Self::Payload,
            "before_provider_headers" => Self::Headers,
            "cache_warming_decision" => Self::LastAction,
            "resources_discover" => Self::Concat,
            "before_agent_start" => Self::RunStart,
            "project_trust" => Self::Trust,
            name if name.starts_with("session_before_") => Self::Gate,
            _ => Self::Notify,
        }
    }

    /// The answer when no handler says anything.
    fn start(self, event: &Map<String, Value>) -> Value {
        match self {
            Self::Input => json!({"action": "continue"}),
            Self::Concat => json!({"skillPaths": [], "promptPaths": [], "themePaths": []}),
            Self::RunStart => json!({"messages": [], "systemPrompt": null}),
            Self::Context | Self::FullContext => value_of(event, "messages"),
            _ => Value::Null,
        }
    }
}

/// Whether the chain goes on.
#[derive(PartialEq, Eq)]
enum Step {
    Next,
    Stop,
}

/// Brings `event` to all handlers in order and returns what they came to. Handlers that are added or removed meanwhile
/// do not count: the list is the one given.
pub async fn dispatch(
    name: &str,
    event: Map<String, Value>,
    handlers: &[&dyn Handler],
) -> Composed {
    let rule = Rule::of(name);
    let mut composed = Composed {
        result: rule.start(&event),
        event,
        ..Composed::default()
    };
    for handler in handlers {
        let step = match rule {
            Rule::Context => context_step(&mut composed, *handler).await,
            Rule::FullContext => full_context_step(&mut composed, *handler).await,
            _ => match handler.call(&mut composed.event).await {
                Ok(answer) => composed.take(rule, handler.extension(), answer),
                Err(error) => composed.fail(rule, handler.extension(), error),
            },
        };
        if step == Step::Stop {
            break;
        }
    }
    match rule {
        Rule::Payload => composed.result = value_of(&composed.event, "payload"),
        Rule::Headers => composed.result = value_of(&composed.event, "headers"),
        _ => {}
    }
    composed
}

/// Brings a boundary (`turn_end`, `agent_before_settle`) to all handlers. Each sees what the ones before it propose and
/// the context with that applied; what it returns replaces only those fields. A list that cannot be appended is reported,
/// and when it is still wrong at the end nothing is appended and nothing goes on. The result is `{entries, continue}`.
pub async fn dispatch_boundary(
    event: Map<String, Value>,
    handlers: &[&dyn Handler],
    preview: impl Fn(&Value) -> Result<Value, String>,
) -> Composed {
    let mut composed = Composed {
        event,
        ..Composed::default()
    };
    let (mut entries, mut go_on, mut valid) = (json!([]), json!(false), true);
    for handler in handlers {
        composed.event.insert("entries".into(), entries.clone());
        composed.event.insert("continue".into(), go_on.clone());
        if valid && let Ok(context) = preview(&entries) {
            composed.event.insert("context".into(), context);
        }
        let answer = match handler.call(&mut composed.event).await {
            Ok(answer) => answer.unwrap_or_default(),
            Err(error) => {
                composed.report(handler.extension(), error);
                continue;
            }
        };
        if let Some(wanted) = answer.get("entries").filter(|it| it.is_array()) {
            entries = wanted.clone();
        }
        if let Some(wanted) = answer.get("continue").filter(|it| it.is_boolean()) {
            go_on = wanted.clone();
        }
        let checked = preview(&entries);
        valid = checked.is_ok();
        if let Err(error) = checked {
            composed.report(handler.extension(), error);
        }
    }
    composed.result = match valid {
        true => json!({"entries": entries, "continue": go_on}),
        false => json!({"entries": [], "continue": false}),
    };
    composed
}

impl Composed {
    fn report(&mut self, extension: &str, error: impl Into<String>) {
        self.errors.push(HandlerError {
            extension: extension.to_owned(),
            error: error.into(),
        });
    }

    fn fail(&mut self, rule: Rule, extension: &str, error: String) -> Step {
        match rule {
            // The error is the result of the call; it is not reported a second time.
            Rule::ToolCall => self.blocked = Some(error),
            Rule::UserBash => {
                self.report(extension, error.clone());
                self.blocked = Some(error);
            }
            _ => {
                self.report(extension, error);
                return Step::Next;
            }
        }
        self.result = Value::Null;
        Step::Stop
    }

    fn take(&mut self, rule: Rule, extension: &str, answer: Option<Value>) -> Step {
        let Some(answer) = answer else {
            return Step::Next;
        };
        match rule {
            Rule::Notify | Rule::Headers | Rule::Context | Rule::FullContext => Step::Next,
            Rule::Input => self.take_input(&answer),
            Rule::Message => self.take_message(extension, &answer),
            Rule::ToolCall => self.take_object(answer, "block"),
            Rule::Gate => self.take_object(answer, "cancel"),
            Rule::Trust => match text_at(&answer, "trusted") {
                Some("yes" | "no") => {
                    self.result = answer;
                    Step::Stop
                }
                _ => Step::Next,
            },
            Rule::ToolResult => self.take_tool_result(&answer),
            Rule::UserBash => self.take_bash(extension, answer),
            Rule::Payload => {
                self.event.insert("payload".into(), answer);
                Step::Next
            }
            Rule::LastAction => {
                if let Some(Value::String(action)) = answer.get("action") {
                    self.result = action.as_str().into();
                }
                Step::Next
            }
            Rule::Concat => self.take_paths(extension, &answer),
            Rule::RunStart => self.take_run_start(&answer),
        }
    }

    fn take_input(&mut self, answer: &Value) -> Step {
        match (text_at(answer, "action"), text_at(answer, "text")) {
            (Some("handled"), _) => {
                self.result = json!({"action": "handled"});
                Step::Stop
            }
            (Some("transform"), Some(text)) => {
                self.event.insert("text".into(), text.into());
                if let Some(images @ Value::Array(_)) = answer.get("images") {
                    self.event.insert("images".into(), images.clone());
                }
                self.result = match self.event.get("images") {
                    Some(images) => json!({"action": "transform", "text": text, "images": images}),
                    None => json!({"action": "transform", "text": text}),
                };
                Step::Next
            }
            _ => Step::Next,
        }
    }

    fn take_message(&mut self, extension: &str, answer: &Value) -> Step {
        let Some(message) = answer.get("message") else {
            return Step::Next;
        };
        let role = |message: Option<&Value>| message.and_then(|it| it.get("role")).cloned();
        if role(Some(message)) == role(self.event.get("message")) {
            self.event.insert("message".into(), message.clone());
            self.result = message.clone();
        } else {
            let what = "message_end cannot change the role of a message; the change is ignored";
            self.report(extension, what);
        }
        Step::Next
    }

    fn take_object(&mut self, answer: Value, stop: &str) -> Step {
        if !answer.is_object() {
            return Step::Next;
        }
        let step = match answer.get(stop) == Some(&Value::Bool(true)) {
            true => Step::Stop,
            false => Step::Next,
        };
        self.result = answer;
        step
    }

    fn take_tool_result(&mut self, answer: &Value) -> Step {
        const FIELDS: [&str; 5] = [
            "content",
            "details",
            "structuredContent",
            "isError",
            "usage",
        ];
        let patch: Vec<(&str, &Value)> = FIELDS
            .iter()
            .filter_map(|name| Some((*name, answer.get(*name)?)))
            .collect();
        if patch.is_empty() {
            return Step::Next;
        }
        let event = &mut self.event;
        if answer.get("content").is_some() {
            // It described the old content.
            event.shift_remove("structuredContent");
        }
        event.extend(
            patch
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.clone())),
        );
        let now = FIELDS
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), event.get(*name)?.clone())));
        self.result = Value::Object(now.collect());
        Step::Next
    }

    fn take_bash(&mut self, extension: &str, answer: Value) -> Step {
        if is_bash_answer(&answer) {
            self.result = answer;
        } else {
            let what = "a user_bash handler answers with exactly one of operations{exec} and \
                        result{output, exitCode, cancelled, truncated}";
            self.report(extension, what);
            self.blocked = Some(what.to_owned());
        }
        Step::Stop
    }

    fn take_paths(&mut self, extension: &str, answer: &Value) -> Step {
        for key in ["skillPaths", "promptPaths", "themePaths"] {
            let paths = answer
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let paths = paths.map(|path| json!({"path": path, "extensionPath": extension}));
            if let Some(Value::Array(all)) = self.result.get_mut(key) {
                all.extend(paths);
            }
        }
        Step::Next
    }

    fn take_run_start(&mut self, answer: &Value) -> Step {
        if let (Some(message), Some(Value::Array(all))) =
            (answer.get("message"), self.result.get_mut("messages"))
        {
            all.push(message.clone());
        }
        if let (Some(prompt), Some(result)) =
            (text_at(answer, "systemPrompt"), self.result.as_object_mut())
        {
            result.insert("systemPrompt".into(), prompt.into());
            self.event.insert("systemPrompt".into(), prompt.into());
        }
        Step::Next
    }
}

fn value_of(event: &Map<String, Value>, key: &str) -> Value {
    event.get(key).cloned().unwrap_or_default()
}

fn text_at<'a>(answer: &'a Value, key: &str) -> Option<&'a str> {
    answer.get(key).and_then(Value::as_str)
}

fn is_bash_answer(answer: &Value) -> bool {
    match (answer.get("operations"), answer.get("result")) {
        (Some(operations), None) => operations.get("exec").is_some(),
        (None, Some(result)) => {
            let is_flag = |key| result.get(key).is_some_and(Value::is_boolean);
            let exit = result
                .get("exitCode")
                .is_none_or(|code| code.is_null() || code.is_i64());
            exit && text_at(result, "output").is_some()
                && is_flag("cancelled")
                && is_flag("truncated")
        }
        _ => false,
    }
}

/// The handler sees the messages without system messages. When it leaves them as they are everything stays in place, so
/// that the provider's cache holds; else one system message with the state of all goes first.
async fn context_step(composed: &mut Composed, handler: &dyn Handler) -> Step {
    let current = composed.result.as_array().cloned().unwrap_or_default();
    let visible: Vec<Value> = current
        .iter()
        .filter(|it| !is_system(it))
        .cloned()
        .collect();
    let Some(returned) = messages_from(composed, visible.clone(), handler).await else {
        return Step::Next;
    };
    if returned != visible {
        let head = fold_system(&current).into_iter();
        composed.result = head.chain(returned).collect();
    }
    Step::Next
}

async fn full_context_step(composed: &mut Composed, handler: &dyn Handler) -> Step {
    let current = composed.result.as_array().cloned().unwrap_or_default();
    let had_system = current.first().is_some_and(is_system);
    let Some(returned) = messages_from(composed, current, handler).await else {
        return Step::Next;
    };
    if had_system && !returned.first().is_some_and(is_system) {
        let what =
            "context_with_system dropped the leading system message; the request goes without it";
        composed.report(handler.extension(), what);
    }
    composed.result = returned.into();
    Step::Next
}

/// Lets a handler see `messages` and returns what it made of them, by its answer or in place; `None` after an error.
async fn messages_from(
    composed: &mut Composed,
    messages: Vec<Value>,
    handler: &dyn Handler,
) -> Option<Vec<Value>> {
    composed.event.insert("messages".into(), messages.into());
    match handler.call(&mut composed.event).await {
        Ok(answer) => {
            let answered = answer.as_ref().and_then(|answer| answer.get("messages"));
            let messages = answered.or_else(|| composed.event.get("messages"));
            messages.and_then(Value::as_array).cloned()
        }
        Err(error) => {
            composed.report(handler.extension(), error);
            None
        }
    }
}

fn is_system(message: &Value) -> bool {
    text_at(message, "role") == Some("system")
}

/// Returns one system message with the state that all of them lead to.
fn fold_system(messages: &[Value]) -> Option<Value> {
    let messages: Vec<Message> = messages.iter().cloned().map(Message::from_value).collect();
    let folded = crate::ai::transcript::system::replay(&messages)?;
    Some(Message::System(folded).to_value())
}
