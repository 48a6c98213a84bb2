//! Whether something has to be done about the size of the context. Pure: the runtime carries it out.

use super::{CompactionSettings, prepare::prepare};
use crate::ai::{AssistantMessage, Message, Model, StopReason, overflow};
use crate::entry::{EntryId, Kind, Role};
use crate::session::projection::{Context, Entries, Pos, estimate};

/// When the question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// A run has ended.
    AfterRun,
    /// A prompt is about to be sent; answers that were stopped count too.
    BeforePrompt,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Nothing,
    /// Compact because the context grew too big (reason `threshold`); no retry.
    Threshold,
    /// Compact because the answer shows that the context did not fit (reason `overflow`); the answer is complete, so it is
    /// not asked for again.
    OverflowKept,
    /// Omit these entries with context edits, compact (reason `overflow`), and ask again once.
    OverflowRetry {
        /// The failed answer and its tool results.
        omit: Vec<EntryId>,
    },
    /// The second failure in a row: say so and stop.
    GiveUp {
        /// One line for a person.
        message: &'static str,
    },
}

/// Said when the context did not fit twice.
pub const OVERFLOW_GAVE_UP: &str = "Context overflow recovery failed after one compact-and-retry attempt. Shorten the \
context (/compact with instructions, or a new session) or choose a model with a larger window.";
/// Said when an answer was cut twice.
pub const LENGTH_GAVE_UP: &str = "Truncated response recovery failed after one compact-and-retry attempt. Ask for a shorter \
answer, or choose a model with a larger window.";

/// What is known when the question is asked.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// When.
    pub when: When,
    /// The model in use.
    pub model: &'a Model,
    /// Its settings.
    pub settings: &'a CompactionSettings,
    /// Whether a recovery was tried since the last user message or good answer.
    pub recovered_once: bool,
}

/// Decides after an answer. Between the turns of a run [`between_turns`] decides.
pub fn after_answer<E: Entries + ?Sized>(
    entries: &E,
    path: &[Pos],
    context: &Context,
    situation: &Situation<'_>,
) -> Decision {
    let Some(last) = Last::find(entries, path, context) else {
        return Decision::Nothing;
    };
    let aborted =
        last.answer.stop_reason == StopReason::Aborted && situation.when == When::AfterRun;
    if !situation.settings.enabled || aborted || last.is_stale() {
        return Decision::Nothing;
    }
    match last.trouble(situation.model) {
        Some(_) if last.answer.stop_reason == StopReason::Stop => Decision::OverflowKept,
        Some(Trouble::Overflow) if situation.recovered_once => Decision::GiveUp {
            message: OVERFLOW_GAVE_UP,
        },
        Some(Trouble::Length) if situation.recovered_once => Decision::GiveUp {
            message: LENGTH_GAVE_UP,
        },
        Some(Trouble::Length) if prepare(entries, path, situation.settings).is_err() => {
            Decision::Nothing
        }
        Some(_) => Decision::OverflowRetry {
            omit: last.with_results(entries, path),
        },
        None if last.is_over(context, situation) => Decision::Threshold,
        None => Decision::Nothing,
    }
}

/// Whether to compact between two turns of a run.
pub fn between_turns(context: &Context, model: &Model, settings: &CompactionSettings) -> bool {
    settings.is_over(context.estimate().tokens, model.context_window)
}

enum Trouble {
    Overflow,
    Length,
}

/// The last answer of a branch, and what came after it.
struct Last {
    answer: AssistantMessage,
    id: EntryId,
    /// Index in the path.
    at: usize,
    projects: bool,
    edited_later: bool,
    /// Time of the newest compaction of the branch.
    compacted_ms: Option<i64>,
    compacted_later: bool,
}

impl Last {
    fn find<E: Entries + ?Sized>(entries: &E, path: &[Pos], context: &Context) -> Option<Self> {
        let kind = |pos: &Pos| entries.facts(*pos).map(|facts| facts.kind);
        let is_answer = |pos: &Pos| {
            entries
                .facts(*pos)
                .is_some_and(|facts| facts.is_message(Role::Assistant))
        };
        let at = path.iter().rposition(is_answer)?;
        let entry = entries.entry(*path.get(at)?)?;
        let Message::Assistant(answer) = entry.message()? else {
            return None;
        };
        let later = path.get(at + 1..).unwrap_or_default();
        let compaction = path
            .iter()
            .rev()
            .find(|pos| kind(pos) == Some(Kind::Compaction));
        Some(Self {
            answer,
            projects: context
                .item(entry.id())
                .is_some_and(|item| !item.messages.is_empty()),
            id: entry.id().clone(),
            at,
            edited_later: later.iter().any(|pos| kind(pos) == Some(Kind::ContextEdit)),
            compacted_ms: compaction.and_then(|pos| entries.facts(*pos)?.time_ms),
            compacted_later: later.iter().any(|pos| kind(pos) == Some(Kind::Compaction)),
        })
    }

    /// An answer from before the newest compaction says nothing about the context as it is now.
    fn is_stale(&self) -> bool {
        self.compacted_ms
            .is_some_and(|time| self.answer.timestamp <= time)
    }

    fn trouble(&self, model: &Model) -> Option<Trouble> {
        let same_model = self.answer.provider == model.provider && self.answer.model == model.id;
        if !same_model {
            return None;
        }
        let error =
            overflow::is_overflow_error(&self.answer) && self.projects && !self.compacted_later;
        let silent = self.projects
            && !self.edited_later
            && overflow::is_silent_overflow(&self.answer, model.context_window);
        if error || silent {
            return Some(Trouble::Overflow);
        }
        let cut = self.projects && overflow::is_recoverable_length(&self.answer, model.max_tokens);
        cut.then_some(Trouble::Length)
    }

    /// The answer and the results of its calls, up to the next answer.
    fn with_results<E: Entries + ?Sized>(&self, entries: &E, path: &[Pos]) -> Vec<EntryId> {
        let calls: Vec<&str> = self.answer.tool_calls().map(|call| &*call.id).collect();
        let later = path.get(self.at + 1..).unwrap_or_default();
        let is_result = |pos: &&Pos| {
            entries
                .facts(**pos)
                .is_some_and(|facts| facts.is_message(Role::ToolResult))
        };
        let results = later.iter().filter(is_result).filter_map(|pos| {
            let entry = entries.entry(*pos)?;
            match entry.message()? {
                Message::ToolResult(result) if calls.contains(&&*result.tool_call_id) => {
                    Some(entry.id().clone())
                }
                _ => None,
            }
        });
        std::iter::once(self.id.clone()).chain(results).collect()
    }

    fn is_over(&self, context: &Context, situation: &Situation<'_>) -> bool {
        let window = situation.model.context_window;
        let usage = estimate::context_tokens(&self.answer.usage);
        let tokens = if context.has_edits() {
            context.estimate().tokens
        } else if self.answer.stop_reason == StopReason::Error || usage == 0 {
            let all = estimate::messages_tokens(context.messages().map(|message| &**message));
            let found = all
                .last_usage_index
                .and_then(|at| context.messages().nth(at));
            let old = found
                .zip(self.compacted_ms)
                .is_some_and(|(message, time)| message.timestamp() <= time);
            if old {
                return false;
            }
            all.tokens
        } else {
            usage
        };
        situation.settings.is_over(tokens, window)
    }
}
