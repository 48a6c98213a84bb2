//! Events of a running session, taken into the chat.

use serde_json::Value as Json;

use super::text::{clip_to, clock, first_line, lines, tokens};
use super::tool::{Header, State, ToolBlock};
use super::{Block, Chat, Kind, Mark};
use super::{attached, errors};
use crate::ai::{AssistantMessage, Block as Content, Message, StopReason, StreamEvent};
use crate::modes::nvim::json::at;
use crate::session::Event;

/// What is known of the answer that streams.
#[derive(Default)]
pub(in crate::modes::nvim) struct Stream {
    /// Makes block ids unique.
    count: u64,
    /// Prefix of the block ids of the answer that streams.
    key: String,
    /// Model that answers.
    model: String,
    /// Block of the last failed request.
    failed: Option<String>,
    /// Tool blocks that fold when the next block starts.
    fold_next: Vec<String>,
    /// Ids of thinking blocks and when they began.
    thinking: Option<(String, i64)>,
    /// Call ids by index of the content, while arguments arrive.
    calls: Vec<(usize, String)>,
}

impl Chat {
    /// Takes in one event; `now` is Unix milliseconds.
    pub fn apply(&mut self, event: &Event, now: i64) {
        match event {
            Event::MessageStart { message } => self.message_start(message),
            Event::MessageUpdate { event, .. } => self.update(event, now),
            Event::MessageEnd { message, entry } => {
                self.message_end(message, entry.as_deref(), now);
            }
            Event::ToolStart {
                call_id,
                name,
                args,
            } => self.tool(call_id, |tool| {
                tool.name.clone_from(name);
                tool.args = args.clone();
                tool.state = State::Running;
                tool.started = Some(now);
                tool.hint = None;
            }),
            Event::ToolUpdate {
                call_id,
                content,
                details,
                ..
            } => self.tool(call_id, |tool| {
                tool.output = texts(content);
                tool.details.clone_from(details);
            }),
            Event::ToolEnd {
                call_id,
                name,
                result,
                is_error,
                duration_ms,
            } => {
                self.tool(call_id, |tool| {
                    tool.name.clone_from(name);
                    tool.took_ms = *duration_ms;
                    tool.finish(texts(&result.content), result.details.clone(), *is_error);
                });
                self.fold_later(call_id);
            }
            Event::ToolWaits { call_id } => self.tool(call_id, |tool| tool.state = State::Waits),
            Event::CompactionStart { .. } => {
                let mut block = Block::new("compaction", Kind::Summary, vec!["compacting".into()]);
                block.running = Some(now);
                self.put(block);
            }
            Event::CompactionEnd { aborted, error, .. } => {
                self.compacted(*aborted, error.as_deref());
            }
            Event::RetryStart {
                attempt,
                max_attempts,
                delay_ms,
                error,
            } => {
                let error = first_line(&errors::plain(error), 160);
                let line = format!("{error}  retry {attempt}/{max_attempts}");
                // It stands in the place of the failure it tells of.
                if let Some(failed) = self.stream.failed.take() {
                    self.remove(&failed);
                }
                let mut block = Block::new("retry", Kind::Error, vec![line]);
                block.until = Some(now + i64::try_from(*delay_ms).unwrap_or(0));
                self.put(block);
            }
            Event::RetryEnd { .. } => self.remove("retry"),
            Event::BashUpdate { tag, delta } => {
                if let Some(tag) = tag.as_ref().and_then(Json::as_str) {
                    self.tool(tag, |tool| tool.output.push_str(delta));
                }
            }
            Event::EntryAppended { entry } => self.entry(entry),
            Event::AgentSettled { aborted } => self.settled(*aborted, now),
            Event::ExtensionError { path, event, error } => {
                self.note(Kind::Error, &format!("extension {path}, {event}: {error}"));
            }
            _ => {}
        }
    }

    fn next_id(&mut self, prefix: &str) -> String {
        self.stream.count += 1;
        format!("{prefix}{}", self.stream.count)
    }

    /// Adds a block of one line (or more) that no entry stands behind.
    pub fn note(&mut self, kind: Kind, text: &str) {
        let id = self.next_id("note");
        self.put(Block::new(id, kind, lines(text)));
    }

    fn message_start(&mut self, message: &Message) {
        self.fold_now();
        if let Message::Assistant(assistant) = message {
            self.stream.key = self.next_id("live");
            self.stream.model.clone_from(&assistant.model);
            self.stream.calls.clear();
        }
    }

    fn message_end(&mut self, message: &Message, entry: Option<&str>, now: i64) {
        match message {
            Message::Assistant(assistant) => {
                self.end_thinking(now);
                let key = std::mem::take(&mut self.stream.key);
                self.assistant(assistant, &key, entry);
            }
            // Drawn by the events of its call.
            Message::ToolResult(_) => {}
            other => {
                let id = entry.map_or_else(|| self.next_id("live"), str::to_owned);
                self.message(other, &id, entry);
            }
        }
    }

    /// Brings the blocks of an answer to their final form, whatever was streamed before.
    pub(super) fn assistant(&mut self, message: &AssistantMessage, key: &str, entry: Option<&str>) {
        for (index, content) in message.content.iter().enumerate() {
            let id = format!("{key}:{index}");
            match content {
                Content::Text(text) if text.text.trim().is_empty() => {}
                Content::Text(text) => {
                    self.text_block(&id, &message.model);
                    self.edit(&id, |block| {
                        let header = block.lines.first().cloned().unwrap_or_default();
                        let body = lines(text.text.trim_end());
                        let all = std::iter::once(header).chain(body).collect();
                        let marks = block.marks.clone();
                        block.replace(all, marks);
                    });
                }
                Content::Thinking(thinking) if !thinking.thinking.trim().is_empty() => {
                    if !self.has(&id) {
                        self.put(thinking_block(&id));
                    }
                    self.edit(&id, |block| {
                        let header = block.lines.first().cloned().unwrap_or_default();
                        let body = lines(thinking.thinking.trim());
                        let all = std::iter::once(header).chain(body).collect();
                        block.running = None;
                        block.replace(all, Vec::new());
                    });
                }
                Content::ToolCall(call) => {
                    self.begin_call(&call.id);
                    self.tool(&call.id, |tool| {
                        tool.name.clone_from(&call.name);
                        tool.args = call.arguments.clone();
                    });
                }
                _ => {}
            }
            let entry = entry.map(str::to_owned);
            self.edit(&id, |block| {
                block.entry = entry;
                block.touch(block.lines.len());
            });
        }
        self.outcome(message);
    }

    fn outcome(&mut self, message: &AssistantMessage) {
        let error = message.error_message.as_deref().unwrap_or_default();
        match message.stop_reason {
            StopReason::Error => {
                self.failure(error, &message.provider);
            }
            StopReason::Aborted => self.note(Kind::Error, "aborted"),
            StopReason::Length => {
                self.note(
                    Kind::Error,
                    "the answer was cut: the model's output limit is reached",
                );
            }
            _ => {}
        }
    }

    /// A request failed: what the server said, and below what to do about it.
    fn failure(&mut self, error: &str, provider: &str) {
        let plain = match errors::plain(error) {
            text if text.is_empty() => "the request failed".to_owned(),
            text => clip_to(&text, 1_000),
        };
        let mark = |line, group| Mark {
            line,
            start: 0,
            end: None,
            group,
        };
        let id = self.next_id("note");
        let mut block = Block::new(&id, Kind::Error, vec![plain]);
        if let Some(advice) = errors::advice(error, provider) {
            block.lines.push(advice);
            block.marks = vec![mark(0, "PiError"), mark(1, "PiNotice")];
        }
        self.stream.failed = Some(id);
        self.put(block);
    }

    fn update(&mut self, event: &StreamEvent, now: i64) {
        let key = |index: &usize| format!("{}:{index}", self.stream.key);
        match event {
            StreamEvent::Start(message) => self.stream.model.clone_from(&message.model),
            StreamEvent::TextStart { index, text } => {
                let id = key(index);
                self.end_thinking(now);
                self.append(&id, text, false, now);
            }
            StreamEvent::TextDelta { index, delta } => {
                let id = key(index);
                self.append(&id, delta, false, now);
            }
            StreamEvent::ThinkingStart { index, block } => {
                let id = key(index);
                self.append(&id, &block.thinking, true, now);
            }
            StreamEvent::ThinkingDelta { index, delta } => {
                let id = key(index);
                self.append(&id, delta, true, now);
            }
            StreamEvent::ThinkingEnd { .. } => self.end_thinking(now),
            StreamEvent::ToolCallStart { index, id, name } => {
                self.end_thinking(now);
                self.fold_now();
                // A provider may send the id later; such a call appears with its end.
                if !id.is_empty() {
                    self.begin_call(id);
                    self.stream.calls.push((*index, id.clone()));
                    self.tool(id, |tool| {
                        tool.name.clone_from(name);
                        tool.started = Some(now);
                    });
                }
            }
            StreamEvent::ToolCallEnd { call, .. } => self.tool(&call.id, |tool| {
                tool.name.clone_from(&call.name);
                tool.args = call.arguments.clone();
            }),
            _ => {}
        }
    }

    /// Adds streamed text to a block, which begins with the first text that is not blank.
    fn append(&mut self, id: &str, delta: &str, thinking: bool, now: i64) {
        if !self.has(id) {
            if delta.trim().is_empty() {
                return;
            }
            self.fold_now();
            if thinking {
                let mut block = thinking_block(id);
                block.running = Some(now);
                self.stream.thinking = Some((id.to_owned(), now));
                self.put(block);
            } else {
                let model = self.stream.model.clone();
                self.text_block(id, &model);
            }
        }
        self.edit(id, |block| {
            let delta = if block.lines.len() == 1 {
                delta.trim_start()
            } else {
                delta
            };
            let mut parts = delta.split('\n').map(|part| part.replace('\r', ""));
            let first = parts.next().unwrap_or_default();
            if block.lines.len() == 1 {
                block.lines.push(first);
            } else if let Some(last) = block.lines.last_mut() {
                last.push_str(&first);
            }
            let from = block.lines.len() - 1;
            block.lines.extend(parts);
            block.touch(from);
        });
    }

    fn text_block(&mut self, id: &str, model: &str) {
        if self.has(id) {
            return;
        }
        let mut header = Header::default();
        header.add("Assistant", "PiAssistant");
        header.add(model, "PiTime");
        let mut block = Block::new(id, Kind::Assistant, vec![header.text]);
        block.marks = header.marks;
        self.put(block);
    }

    fn end_thinking(&mut self, now: i64) {
        let Some((id, since)) = self.stream.thinking.take() else {
            return;
        };
        self.edit(&id, |block| {
            block.running = None;
            if let Some(header) = block.lines.first_mut() {
                let seconds = (now - since).max(0) / 1000;
                *header = match seconds {
                    0 => "thinking".to_owned(),
                    _ => format!("thinking {seconds}s"),
                };
            }
            block.touch(0);
        });
    }

    /// Changes a tool block, which is made when it is not there yet.
    pub fn tool(&mut self, call_id: &str, change: impl FnOnce(&mut ToolBlock)) {
        let id = format!("call:{call_id}");
        let tool = self.tools.entry(call_id.to_owned()).or_default();
        change(tool);
        let new = tool.block(&id, self.look.output_lines);
        if !self.has(&id) {
            self.fold_now();
            self.put(new);
            return;
        }
        self.edit(&id, |block| {
            block.running = new.running;
            block.target = new.target;
            // Open until the next block starts; see `fold_now`.
            block.replace(new.lines, new.marks);
        });
    }

    fn fold_later(&mut self, call_id: &str) {
        let done = self.tools.get(call_id).is_some_and(|tool| {
            matches!(tool.state, State::Ok | State::Rejected | State::Aborted)
                && !tool.started_by_person
        });
        if done {
            self.stream.fold_next.push(format!("call:{call_id}"));
        }
    }

    /// Folds what was only kept open until something follows it.
    fn fold_now(&mut self) {
        for id in std::mem::take(&mut self.stream.fold_next) {
            self.edit(&id, |block| {
                block.closed = true;
                block.touch(block.lines.len());
            });
        }
    }

    fn settled(&mut self, aborted: bool, now: i64) {
        self.end_thinking(now);
        self.fold_now();
        self.remove("retry");
        // What still seems to run has no one left to end it.
        let open: Vec<String> = self
            .tools
            .iter()
            .filter(|(_, tool)| !tool.state.is_final() && !tool.started_by_person)
            .map(|(id, _)| id.clone())
            .collect();
        for id in open {
            self.tool(&id, |tool| {
                tool.state = if aborted { State::Aborted } else { State::Fail };
            });
        }
    }

    fn compacted(&mut self, aborted: bool, error: Option<&str>) {
        self.remove("compaction");
        match (aborted, error) {
            (true, _) => self.note(Kind::Note, "compaction stopped"),
            (false, Some(error)) => self.note(Kind::Error, &format!("compaction: {error}")),
            // The entry itself is drawn when it is appended.
            (false, None) => {}
        }
    }

    /// A non-message entry that stands for itself in the chat.
    pub(super) fn entry(&mut self, entry: &Json) {
        let id = at(entry, "/id").as_str().unwrap_or_default();
        let summary = at(entry, "/summary").as_str().unwrap_or_default();
        let title = match at(entry, "/type").as_str() {
            Some("compaction") => match at(entry, "/tokensBefore").as_u64() {
                Some(count) if count > 0 => format!("compacted {} tokens", tokens(count)),
                _ => "compacted".to_owned(),
            },
            // The person's own commands: no other event tells of them.
            Some("message") if at(entry, "/message/role") == "bashExecution" => {
                let message = Message::from_value(at(entry, "/message").clone());
                self.shell_done(at(entry, "/message/command").as_str().unwrap_or_default());
                self.message(&message, id, Some(id));
                return;
            }
            Some("branch_summary") => "summary of the branch that was left".to_owned(),
            _ => return,
        };
        let mut all = vec![title];
        all.extend(lines(summary.trim()));
        let mut block = Block::new(id, Kind::Summary, all);
        block.entry = Some(id.to_owned());
        block.closed = true;
        self.put(block);
    }

    /// A command of the person starts to run; `tag` comes back with its output.
    pub fn shell(&mut self, tag: &str, command: &str, now: i64) {
        self.tool(tag, |tool| {
            tool.name = "bash".into();
            tool.args = serde_json::json!({ "command": command });
            tool.started = Some(now);
            tool.started_by_person = true;
        });
    }

    /// The command is stored: the entry is drawn in the place of what ran.
    fn shell_done(&mut self, command: &str) {
        let runs = |tool: &ToolBlock| {
            tool.started_by_person && at(&tool.args, "/command").as_str() == Some(command)
        };
        let ran = self.tools.iter().find(|(_, tool)| runs(tool));
        if let Some(tag) = ran.map(|(tag, _)| tag.clone()) {
            self.tools.remove(&tag);
            self.remove(&format!("call:{tag}"));
        }
    }

    /// A message that is no answer and no tool result.
    pub(super) fn message(&mut self, message: &Message, id: &str, entry: Option<&str>) {
        self.fold_now();
        let mut block = match message {
            Message::User(user) => user_block(
                id,
                &user.content,
                if self.look.times { user.timestamp } else { 0 },
            ),
            Message::BashExecution(bash) => {
                let mut tool = ToolBlock {
                    name: "bash".into(),
                    args: serde_json::json!({"command": bash.command}),
                    started_by_person: true,
                    ..ToolBlock::default()
                };
                let failed = bash.exit_code.is_some_and(|code| code != 0);
                tool.finish(bash.output.clone(), None, failed);
                tool.block(id, self.look.output_lines)
            }
            Message::Custom(custom) if custom.display => {
                Block::new(id, Kind::Note, lines(custom.content.text("\n").trim()))
            }
            _ => return,
        };
        block.entry = entry.map(str::to_owned);
        self.put(block);
    }
}

fn thinking_block(id: &str) -> Block {
    let mut block = Block::new(id, Kind::Thinking, vec!["thinking".into()]);
    block.closed = true;
    block
}

fn user_block(id: &str, content: &crate::ai::Content, timestamp: i64) -> Block {
    let time = clock(timestamp);
    let header = if timestamp > 0 {
        format!("You  {time}")
    } else {
        "You".to_owned()
    };
    let mut marks = vec![Mark {
        line: 0,
        start: 0,
        end: Some(3),
        group: "PiUser",
    }];
    if header.len() > 3 {
        marks.push(Mark {
            line: 0,
            start: 3,
            end: Some(header.len()),
            group: "PiTime",
        });
    }
    let mut all = vec![header];
    let text = content.text("\n");
    let (own, attached) = attached::part(&text);
    all.extend(lines(own));
    for line in attached {
        marks.push(Mark {
            line: all.len(),
            start: 0,
            end: None,
            group: "PiAttachment",
        });
        all.push(line);
    }
    let images = match content {
        crate::ai::Content::Blocks(blocks) => blocks
            .iter()
            .filter(|block| matches!(block, Content::Image(_)))
            .count(),
        crate::ai::Content::Text(_) => 0,
    };
    for number in 1..=images {
        marks.push(Mark {
            line: all.len(),
            start: 0,
            end: None,
            group: "PiAttachment",
        });
        all.push(format!("[image {number}]"));
    }
    let mut block = Block::new(id, Kind::User, all);
    block.marks = marks;
    block
}

fn texts(content: &[Content]) -> String {
    let texts: Vec<_> = content.iter().filter_map(Content::as_text).collect();
    texts.join("\n")
}
