//! Brings events to handlers by name: the host that every language's extensions plug into.
//!
//! Entry points: [`Host::on`], [`Host::command`], [`Host::ui`]. A host of a language adds its [`Handler`]s and brings
//! events to them and answers back; what an event carries, how answers compose and what they do to the session is
//! settled here once. Handlers see the names and fields of Pi's documentation.

mod read;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::compose::{Composed, Handler, HandlerError, dispatch, dispatch_boundary};
use super::ui::Ui;
use super::{
    BashVerdict, BashWish, BoundaryAnswer, BoundaryPoint, CommandInfo, CompactPlan, CompactVerdict,
    Discovered, Hooks, Input, InputVerdict, Port, Reason, RunPlan, RunStart, Source, TreePlan,
    TreeVerdict, WarmingPlan,
};
use crate::agent::{BeforeCall, CallInfo, CallOutcome, Tool};
use crate::ai::Message;
use crate::resources::trust::HandlerAnswer;

/// Carries out a command of an extension, given its arguments.
type Run = Arc<dyn Fn(String) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

struct Listener {
    id: u64,
    event: String,
    handler: Arc<dyn Handler>,
}

#[derive(Default)]
struct Shared {
    listeners: Mutex<Vec<Listener>>,
    commands: Mutex<Vec<(CommandInfo, Run)>>,
    tools: Mutex<Vec<Arc<dyn Tool>>>,
    flags: Mutex<Vec<String>>,
    port: Mutex<Option<Arc<dyn Port>>>,
    ids: AtomicU64,
    ui: Ui,
}

/// The extensions of one session. Clones share them.
#[derive(Clone, Default)]
pub struct Host {
    shared: Arc<Shared>,
}

/// A handler that listens, until [`Registration::off`].
pub struct Registration {
    host: Host,
    id: u64,
}

impl Registration {
    /// Takes the handler away; an event that is on its way still reaches it.
    pub fn off(self) {
        let mut listeners = self.host.shared.listeners.lock();
        listeners.retain(|listener| listener.id != self.id);
    }
}

impl Host {
    /// A host without extensions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler behind those that are there.
    pub fn on(&self, event: &str, handler: Arc<dyn Handler>) -> Registration {
        let id = self.shared.ids.fetch_add(1, Ordering::Relaxed);
        self.shared.listeners.lock().push(Listener {
            id,
            event: event.to_owned(),
            handler,
        });
        Registration {
            host: self.clone(),
            id,
        }
    }

    /// Adds a command; the name is taken as it is.
    pub fn command(
        &self,
        info: CommandInfo,
        run: impl Fn(String) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    ) {
        self.shared.commands.lock().push((info, Arc::new(run)));
    }

    /// Adds a tool.
    pub fn tool(&self, tool: Arc<dyn Tool>) {
        self.shared.tools.lock().push(tool);
    }

    /// Claims a flag of the command line, by its name without dashes.
    pub fn flag(&self, name: &str) {
        self.shared.flags.lock().push(name.to_owned());
    }

    /// Dialogs and notes.
    pub fn ui(&self) -> &Ui {
        &self.shared.ui
    }

    /// Appends state of an extension to the session.
    ///
    /// # Errors
    /// Why the session did not take it.
    pub fn append_entry(&self, custom_type: &str, data: Option<Value>) -> Result<(), String> {
        let port = self.shared.port.lock().clone();
        let port = port.ok_or("extensions are not bound to a session yet")?;
        port.append_entry(custom_type, data)
    }

    fn handlers(&self, event: &str) -> Vec<Arc<dyn Handler>> {
        let listeners = self.shared.listeners.lock();
        let wanted = listeners.iter().filter(|it| it.event == event);
        wanted.map(|it| Arc::clone(&it.handler)).collect()
    }

    /// Brings an event to its handlers and reports what failed.
    async fn dispatch(&self, event: &str, fields: Value) -> Composed {
        self.bring(event, event_of(event, fields)).await
    }

    async fn bring(&self, event: &str, fields: Map<String, Value>) -> Composed {
        let handlers = self.handlers(event);
        let refs: Vec<&dyn Handler> = handlers.iter().map(|it| &**it).collect();
        let composed = dispatch(event, fields, &refs).await;
        self.report(event, &composed.errors);
        composed
    }

    fn report(&self, event: &str, errors: &[HandlerError]) {
        let port = self.shared.port.lock().clone();
        for HandlerError { extension, error } in errors {
            match &port {
                Some(port) => port.report(extension, event, error),
                None => tracing::warn!(extension, event, error, "an extension failed"),
            }
        }
    }

    /// Whether a gate said no.
    async fn cancels(&self, event: &str, fields: Value) -> bool {
        let composed = self.dispatch(event, fields).await;
        composed.result.get("cancel") == Some(&Value::Bool(true))
    }
}

/// An event as handlers see it; `null` fields are left out.
fn event_of(event: &str, fields: Value) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("type".to_owned(), event.into());
    if let Value::Object(fields) = fields {
        out.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
    }
    out
}

fn path_value(path: Option<&PathBuf>) -> Value {
    path.map_or(Value::Null, |path| json!(path))
}

#[async_trait]
impl Hooks for Host {
    fn attach(&self, port: Arc<dyn Port>) {
        *self.shared.port.lock() = Some(Arc::clone(&port));
        // Unbounded: there are two records a dialog. They are told in order, and nobody waits for it.
        let (records, mut waiting) = mpsc::unbounded_channel::<Value>();
        let host = Arc::downgrade(&self.shared);
        tokio::spawn(async move {
            while let Some(record) = waiting.recv().await {
                let Some(shared) = host.upgrade() else { return };
                Self { shared }.observe(&record).await;
            }
        });
        let on_prompt = move |record| drop(records.send(record));
        self.shared.ui.attach(port, Box::new(on_prompt));
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.shared.tools.lock().clone()
    }

    fn commands(&self) -> Vec<CommandInfo> {
        let commands = self.shared.commands.lock();
        commands.iter().map(|(info, _)| info.clone()).collect()
    }

    fn claims_flag(&self, name: &str, _value: Option<&str>) -> bool {
        self.shared.flags.lock().iter().any(|flag| flag == name)
    }

    async fn command(&self, name: &str, args: &str) -> Option<Result<(), String>> {
        let run = {
            let commands = self.shared.commands.lock();
            let found = commands.iter().find(|(info, _)| info.name == name);
            found.map(|(_, run)| Arc::clone(run))?
        };
        Some(run(args.to_owned()).await)
    }

    fn wants(&self, event: &str) -> bool {
        let listeners = self.shared.listeners.lock();
        listeners.iter().any(|listener| listener.event == event)
    }

    async fn observe(&self, record: &Value) {
        if let Value::Object(fields) = record
            && let Some(event) = record.get("type").and_then(Value::as_str)
        {
            self.bring(event, fields.clone()).await;
        }
    }

    async fn project_trust(&self, cwd: &Path) -> HandlerAnswer {
        let composed = self.dispatch("project_trust", json!({"cwd": cwd})).await;
        match composed.result.get("trusted").and_then(Value::as_str) {
            Some(word @ ("yes" | "no")) => HandlerAnswer::Decided {
                trusted: word == "yes",
                remember: composed.result.get("remember") == Some(&Value::Bool(true)),
            },
            _ => HandlerAnswer::Undecided,
        }
    }

    async fn resources_discover(&self, cwd: &Path, reason: Reason) -> Discovered {
        let fields = json!({"cwd": cwd, "reason": reason.as_str()});
        let composed = self.dispatch("resources_discover", fields).await;
        read::discovered(&composed.result)
    }

    async fn session_start(&self, reason: Reason, previous: Option<&PathBuf>) {
        let fields =
            json!({"reason": reason.as_str(), "previousSessionFile": path_value(previous)});
        self.dispatch("session_start", fields).await;
    }

    async fn session_shutdown(&self, reason: Reason, target: Option<&PathBuf>) {
        let fields = json!({"reason": reason.as_str(), "targetSessionFile": path_value(target)});
        self.dispatch("session_shutdown", fields).await;
        self.shared.ui.close_all();
    }

    async fn before_switch(&self, reason: Reason, target: Option<&PathBuf>) -> bool {
        let fields = json!({"reason": reason.as_str(), "targetSessionFile": path_value(target)});
        self.cancels("session_before_switch", fields).await
    }

    async fn before_fork(&self, entry: &str, at: bool) -> bool {
        let position = if at { "at" } else { "before" };
        let fields = json!({"entryId": entry, "position": position});
        self.cancels("session_before_fork", fields).await
    }

    async fn input(&self, input: Input) -> InputVerdict {
        let source = match input.source {
            Source::Interactive => "interactive",
            Source::Rpc => "rpc",
            Source::Extension => "extension",
        };
        let images = (!input.images.is_empty()).then(|| json!(input.images));
        let fields = json!({
            "text": input.text, "images": images, "source": source,
            "streamingBehavior": input.behavior,
        });
        let composed = self.dispatch("input", fields).await;
        read::input(&composed.result, input)
    }

    async fn before_run(&self, plan: RunPlan) -> RunStart {
        let mut fields = read::run_fields(&plan);
        fields.insert("systemPrompt".to_owned(), plan.system_prompt.into());
        fields.insert(
            "systemPromptOptions".to_owned(),
            plan.options.clone().into(),
        );
        let composed = self.dispatch("before_agent_start", fields.into()).await;
        let (start, errors) = read::run_start(&composed, &plan.options);
        self.report("before_agent_start", &errors);
        start
    }

    async fn message_end(&self, message: &Message) -> Option<Message> {
        if !self.wants("message_end") {
            return None;
        }
        let fields = json!({"message": message.to_value()});
        let composed = self.dispatch("message_end", fields).await;
        (!composed.result.is_null()).then(|| Message::from_value(composed.result))
    }

    async fn boundary(&self, point: &BoundaryPoint<'_>) -> BoundaryAnswer {
        let event = point.at.event();
        let handlers = self.handlers(event);
        if handlers.is_empty() {
            return BoundaryAnswer::default();
        }
        let mut fields = event_of(event, point.view.facts().into());
        fields.insert("outcome".to_owned(), point.outcome.into());
        let refs: Vec<&dyn Handler> = handlers.iter().map(|it| &**it).collect();
        let preview = |entries: &Value| point.view.preview(&read::drafts(entries)?);
        let composed = dispatch_boundary(fields, &refs, preview).await;
        self.report(event, &composed.errors);
        let entries = composed.result.get("entries").unwrap_or(&Value::Null);
        BoundaryAnswer {
            drafts: read::drafts(entries).unwrap_or_default(),
            go_on: composed.result.get("continue") == Some(&Value::Bool(true)),
        }
    }

    async fn tool_call(&self, call: &CallInfo, args: Value) -> Result<BeforeCall, String> {
        let fields = json!({"toolName": call.name, "toolCallId": call.id, "input": args});
        let composed = self.dispatch("tool_call", fields).await;
        if let Some(error) = composed.blocked {
            return Err(error);
        }
        let flag = |key: &str| composed.result.get(key) == Some(&Value::Bool(true));
        if flag("block") {
            let reason = composed.result.get("reason").and_then(Value::as_str);
            return Ok(BeforeCall::Block {
                reason: reason.map(str::to_owned),
                terminate: flag("terminate"),
            });
        }
        let input = composed.event.get("input").cloned();
        Ok(BeforeCall::Run(input.unwrap_or(args)))
    }

    async fn tool_result(
        &self,
        call: &CallInfo,
        args: &Value,
        outcome: CallOutcome,
    ) -> CallOutcome {
        if !self.wants("tool_result") {
            return outcome;
        }
        let output = &outcome.output;
        let fields = json!({
            "toolName": call.name, "toolCallId": call.id, "input": args, "content": output.content,
            "details": output.details, "structuredContent": output.structured_content,
            "isError": output.is_error, "usage": output.usage,
        });
        let composed = self.dispatch("tool_result", fields).await;
        read::tool_result(&composed.result, outcome)
    }

    async fn context(&self, messages: &[Arc<Message>]) -> Option<Vec<Message>> {
        let before: Vec<Value> = messages.iter().map(|it| it.to_value()).collect();
        let mut now = Value::Array(before.clone());
        for event in ["context", "context_with_system"] {
            if self.wants(event) {
                now = self.dispatch(event, json!({"messages": now})).await.result;
            }
        }
        let Value::Array(now) = now else { return None };
        (now != before).then(|| now.into_iter().map(Message::from_value).collect())
    }

    async fn provider_headers(&self, headers: Map<String, Value>) -> Map<String, Value> {
        let fields = json!({"headers": headers});
        match self
            .dispatch("before_provider_headers", fields)
            .await
            .result
        {
            Value::Object(headers) => headers,
            _ => headers,
        }
    }

    async fn provider_request(&self, payload: Value) -> Value {
        let fields = json!({"payload": payload});
        self.dispatch("before_provider_request", fields)
            .await
            .result
    }

    async fn cache_warming(&self, plan: &WarmingPlan) -> Option<bool> {
        let fields = json!({
            "warmCost": plan.warm_cost, "missCost": plan.miss_cost,
            "continuationProbability": plan.continuation,
            "action": if plan.warm { "warm" } else { "stop" },
        });
        let composed = self.dispatch("cache_warming_decision", fields).await;
        match composed.result.as_str() {
            Some("warm") => Some(true),
            Some("stop") => Some(false),
            _ => None,
        }
    }

    async fn before_compact(&self, plan: &CompactPlan) -> CompactVerdict {
        let fields = json!({
            "preparation": plan.preparation, "branchEntries": plan.branch,
            "customInstructions": plan.instructions, "reason": plan.reason,
            "willRetry": plan.will_retry,
        });
        let composed = self.dispatch("session_before_compact", fields).await;
        read::compact_verdict(&composed.result, &plan.preparation)
    }

    async fn before_tree(&self, plan: &TreePlan) -> TreeVerdict {
        let preparation = json!({
            "targetId": plan.target, "oldLeafId": plan.old_leaf, "commonAncestorId": plan.common,
            "entriesToSummarize": plan.left, "userWantsSummary": plan.wants_summary,
            "customInstructions": plan.instructions, "label": plan.label,
        });
        let preparation = event_of("", preparation)
            .into_iter()
            .skip(1)
            .collect::<Map<_, _>>();
        let fields = json!({"preparation": preparation});
        let composed = self.dispatch("session_before_tree", fields).await;
        read::tree_verdict(&composed.result)
    }

    async fn user_bash(&self, wish: &BashWish) -> BashVerdict {
        let fields = json!({
            "command": wish.command, "excludeFromContext": wish.exclude, "cwd": wish.cwd,
        });
        let composed = self.dispatch("user_bash", fields).await;
        match (composed.blocked, composed.result.get("result")) {
            (Some(reason), _) => BashVerdict::Block(reason),
            (None, Some(result)) => BashVerdict::Result(result.clone()),
            // Never here instead: the extension wants the command somewhere else, maybe for good reason.
            (None, None) if composed.result.get("operations").is_some() => BashVerdict::Block(
                "an extension wants to run this command elsewhere, which is not supported: it was not run".to_owned(),
            ),
            (None, None) => BashVerdict::Run,
        }
    }

    fn ui_answer(&self, record: &Value) {
        self.shared.ui.answer(record);
    }

    fn ui_gone(&self) {
        self.shared.ui.gone();
    }
}
