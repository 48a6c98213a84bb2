//! What changes in a session, and the steps that change it. Everything here is synchronous; the caller holds the lock.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::core::{Core, now_ms};
use super::queues::Queues;
use super::settings::RuntimeSettings;
use crate::ai::message::ToolCall;
use crate::ai::{
    CustomMessage, Message, Model, StopReason, SystemMessage, ThinkingLevel, ToolResultMessage,
};
use crate::entry::EntryId;
use crate::extensions::{Draft, RunStart};
use crate::resources::Resources;
use crate::resources::system_prompt::{PromptTool, Sections};
use crate::session::projection::ModelRef;
use crate::session::protocol::{CommandError, Event, NoticeLevel};
use crate::session::store::{CompactionEntry, Session, StoreError};

/// Everything that changes.
pub(super) struct State {
    pub(super) session: Session,
    pub(super) cwd: PathBuf,
    pub(super) resources: Resources,
    pub(super) model: Option<Arc<Model>>,
    pub(super) thinking: ThinkingLevel,
    pub(super) queues: Queues,
    /// From the preparation of a run until it has settled.
    pub(super) run: Option<ActiveRun>,
    /// A manual compaction, or a branch summary.
    pub(super) summarizing: Option<CancellationToken>,
    /// An automatic compaction of the active run is in progress.
    pub(super) compacting: bool,
    /// Messages that must not land between a call and its result: stored when the run is over.
    pub(super) held: Vec<Message>,
    /// Messages to go with the next prompt or turn.
    pub(super) beside: VecDeque<CustomMessage>,
    /// Running shell commands of the person.
    pub(super) shells: Vec<CancellationToken>,
    /// Names of active tools; `None` = all.
    pub(super) active_tools: Option<Vec<String>>,
    /// Extensions hear that a run has settled: what they ask for then begins when all have heard.
    pub(super) settling: bool,
}

/// The run in progress.
pub(super) struct ActiveRun {
    pub(super) cancel: CancellationToken,
    pub(super) aborted: bool,
    /// Failed attempts in a row.
    pub(super) attempt: u32,
    /// Ends the wait before the next attempt.
    pub(super) retry_wait: Option<CancellationToken>,
    /// The one recovery from an overflow was used.
    pub(super) recovered: bool,
    /// Entries of the newest answer and of its results.
    pub(super) answer_entries: Vec<String>,
    /// What extensions put in the place of the system prompt, in the requests of this run.
    pub(super) forced_prompt: Option<String>,
}

impl ActiveRun {
    pub(super) fn new(cancel: CancellationToken) -> Self {
        Self {
            // At shutdown a prompt that was taken already is stored as an aborted turn.
            aborted: cancel.is_cancelled(),
            cancel,
            attempt: 0,
            retry_wait: None,
            recovered: false,
            answer_entries: Vec::new(),
            forced_prompt: None,
        }
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        Self(describe(&error))
    }
}

/// One line with the cause behind it.
pub(super) fn describe(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl State {
    /// Returns the settings in force.
    pub(super) fn settings(&self) -> RuntimeSettings {
        RuntimeSettings::of(self.resources.settings.effective())
    }

    /// Appends a message to the session: what it is stored as follows from its role.
    pub(super) fn store_message(
        &mut self,
        core: &Core,
        message: Message,
    ) -> Result<(String, Arc<Message>), String> {
        let stored = match &message {
            Message::Custom(custom) => self.session.append_custom_message(
                &custom.custom_type,
                &custom.content,
                custom.display,
                custom.details.clone(),
            ),
            _ => self.session.append_message(&message),
        };
        self.tell_notices(core);
        let id = stored.map_err(|error| describe(&error))?;
        Ok((id.to_string(), Arc::new(message)))
    }

    /// Passes on what the store wants the person to know.
    pub(super) fn tell_notices(&mut self, core: &Core) {
        for notice in self.session.take_notices() {
            core.notice(NoticeLevel::Warning, notice.to_string());
        }
    }

    /// Answers the calls at the end of the branch that a killed process left open, as far as commit records tell what
    /// became of them. The others are answered in requests only.
    pub(super) fn answer_dangling(&mut self, core: &Core) {
        let session = self.session.id().to_owned();
        for (call, answered) in self.last_calls() {
            if answered {
                // Killed between the result and this step, or there is no record.
                core.config.gate.drop_record(&session, &call.id);
                continue;
            }
            let Some(output) = core.config.gate.recall(&session, &call.id) else {
                continue;
            };
            let message = Message::ToolResult(ToolResultMessage {
                tool_call_id: call.id.clone(),
                tool_name: call.name,
                content: output.content,
                details: output.details,
                is_error: output.is_error,
                timestamp: now_ms(),
                ..ToolResultMessage::default()
            });
            match self.store_message(core, message) {
                Ok((entry, message)) => {
                    crate::files::moment("recalled-stored");
                    core.config.gate.drop_record(&session, &call.id);
                    core.tell(Event::MessageStart {
                        message: Arc::clone(&message),
                    });
                    core.tell(Event::MessageEnd {
                        message,
                        entry: Some(entry),
                    });
                }
                Err(error) => core.notice(NoticeLevel::Error, error),
            }
        }
    }

    /// Calls of the last answer when nothing but results comes after it, and whether each has one.
    fn last_calls(&self) -> Vec<(ToolCall, bool)> {
        let context = self.session.context();
        let messages: Vec<&Arc<Message>> = context.messages().collect();
        let mut answered: Vec<&str> = Vec::new();
        for message in messages.into_iter().rev() {
            match &**message {
                Message::ToolResult(result) => answered.push(&result.tool_call_id),
                Message::Assistant(answer) => {
                    if matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted) {
                        break;
                    }
                    let calls = answer.tool_calls().cloned();
                    return calls
                        .map(|call| {
                            let is_answered = answered.contains(&call.id.as_str());
                            (call, is_answered)
                        })
                        .collect();
                }
                _ => break,
            }
        }
        Vec::new()
    }

    /// Stores a message that came from outside of a run: now when idle, else when the run is over.
    pub(super) fn store_or_hold(&mut self, core: &Core, message: Message) {
        if self.run.is_some() {
            self.held.push(message);
        } else if let Err(error) = self.store_message(core, message) {
            core.notice(NoticeLevel::Error, error);
        }
    }

    /// Stores what was held back.
    pub(super) fn flush_held(&mut self, core: &Core) {
        for message in std::mem::take(&mut self.held) {
            if let Err(error) = self.store_message(core, message) {
                core.notice(NoticeLevel::Error, error);
            }
        }
    }

    /// Takes the messages that go with the next turn.
    pub(super) fn take_beside(&mut self) -> Vec<Message> {
        self.beside.drain(..).map(Message::Custom).collect()
    }

    /// Returns the last message of the context that is no system message.
    pub(super) fn last_message(&self) -> Option<Arc<Message>> {
        let context = self.session.context();
        let messages: Vec<&Arc<Message>> = context.messages().collect();
        messages
            .into_iter()
            .rev()
            .find(|message| !matches!(***message, Message::System(_)))
            .cloned()
    }

    /// Writes down the live selection when the branch implies another one.
    pub(super) fn record_selection(&mut self, core: &Core) {
        let context = self.session.context();
        let model = self.model.as_ref().map(|model| ModelRef {
            provider: model.provider.clone(),
            model_id: model.id.clone(),
        });
        if let Some(model) = model.filter(|model| context.model() != Some(model)) {
            let stored = self
                .session
                .append_model_change(&model.provider, &model.model_id);
            self.report(core, stored.map(drop));
        }
        if context.chosen_thinking_level() != Some(self.thinking.as_str()) {
            let stored = self.session.append_thinking_level(self.thinking.as_str());
            self.report(core, stored.map(drop));
        }
    }

    /// Tells an error of the store that nobody waits for.
    pub(super) fn report(&mut self, core: &Core, stored: Result<(), StoreError>) {
        if let Err(error) = stored {
            core.notice(NoticeLevel::Error, describe(&error));
        }
        self.tell_notices(core);
    }

    /// Brings the selection of tools in line with what the branch declares; a branch without declarations keeps it.
    pub(super) fn restore_tools(&mut self) {
        let context = self.session.context();
        if let Some(tools) = context
            .system()
            .and_then(|system| system.tools_added.as_ref())
        {
            self.active_tools = Some(tools.iter().map(|tool| tool.name.clone()).collect());
        }
    }

    /// Returns what has changed of the prompt since the branch's system messages.
    pub(super) fn section_patch(&self, wanted: &Sections) -> Option<Map<String, Value>> {
        let context = self.session.context();
        let systems: Vec<&SystemMessage> = context
            .messages()
            .filter_map(|message| match &**message {
                Message::System(system) => Some(system),
                _ => None,
            })
            .collect();
        wanted.patch_from(&Sections::replay(systems))
    }

    /// Takes the last answer of the run and the results of its calls out of the context.
    pub(super) fn omit_answer(&mut self, core: &Core) {
        let entries = match &mut self.run {
            Some(run) => std::mem::take(&mut run.answer_entries),
            None => return,
        };
        for entry in entries {
            self.append_edit(core, &entry, Value::Null);
        }
    }

    /// Remembers which entries belong to the newest answer.
    pub(super) fn note_entry(&mut self, message: &Message, entry: &str) {
        let Some(run) = &mut self.run else { return };
        match message {
            Message::Assistant(_) => run.answer_entries = vec![entry.to_owned()],
            Message::ToolResult(_) => run.answer_entries.push(entry.to_owned()),
            _ => {}
        }
    }

    /// Appends a context edit and tells it.
    pub(super) fn append_edit(&mut self, core: &Core, target: &str, replacement: Value) -> bool {
        match self.session.append_context_edit(target, replacement) {
            Ok(id) => {
                self.tell_entry(core, &id);
                true
            }
            Err(error) => {
                core.notice(NoticeLevel::Error, describe(&error));
                false
            }
        }
    }

    /// Tells an entry that was appended.
    pub(super) fn tell_entry(&self, core: &Core, id: &EntryId) {
        if let Some(entry) = self.session.get(id) {
            core.tell(Event::EntryAppended {
                entry: entry.value(),
            });
        }
    }

    /// Appends something an extension adds.
    pub(super) fn append_draft(&mut self, core: &Core, draft: Draft) -> Result<(), String> {
        let stored = match draft {
            Draft::Custom { custom_type, data } => self.session.append_custom(&custom_type, data),
            Draft::Edit {
                target,
                replacement,
            } => self.session.append_context_edit(&target, replacement),
            Draft::Message(message) => self.session.append_custom_message(
                &message.custom_type,
                &message.content,
                message.display,
                message.details,
            ),
            Draft::Compaction {
                summary,
                first_kept,
                details,
                usage,
            } => {
                let tokens_before = self.session.context().estimate().tokens;
                self.session.append_compaction(CompactionEntry {
                    summary,
                    first_kept,
                    tokens_before,
                    details,
                    from_hook: Some(true),
                    usage: usage.map(|usage| *usage),
                })
            }
        };
        self.tell_notices(core);
        let id = stored.map_err(|error| describe(&error))?;
        self.tell_entry(core, &id);
        Ok(())
    }

    /// Looks whether all of these can be appended in their order. None of them names another, so each is looked at as
    /// the branch stands.
    pub(super) fn check_drafts(&self, drafts: &[Draft]) -> Result<(), String> {
        for draft in drafts {
            let checked = match draft {
                Draft::Custom { .. } | Draft::Message(_) => Ok(()),
                Draft::Edit {
                    target,
                    replacement,
                } => self.session.editable(target, replacement).map(drop),
                Draft::Compaction { first_kept, .. } => match first_kept {
                    Some(id) => self.session.on_path(id).map(drop),
                    None => Ok(()),
                },
            };
            checked.map_err(|error| format!("nothing of an extension was added: {error}"))?;
        }
        Ok(())
    }

    /// Returns the prompt sections for these tools.
    pub(super) fn sections(&self, core: &Core, tools: &[PromptTool], start: &RunStart) -> Sections {
        let (extra, rules) = (&start.sections, &start.guidelines);
        match self.resources.sections(tools, extra, rules) {
            Ok(sections) => sections,
            Err(error) => {
                core.notice(NoticeLevel::Warning, error.to_string());
                self.resources
                    .sections(tools, &[], rules)
                    .unwrap_or_default()
            }
        }
    }
}
