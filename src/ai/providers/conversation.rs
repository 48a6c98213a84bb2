//! The conversation inside a request: converted once, sent with every turn.
//!
//! A request carries the whole conversation, and a turn adds only its end. [`Call::conversation`] cuts it into parts that
//! convert by themselves, one for each answer and what follows it, and keeps the JSON text of each ([`Kept`]). A turn
//! converts the parts that are new; the others are copied into the body. Messages are the same when they are the same
//! object: the projection shares them from request to request, and gives new ones after a context edit or a compaction.
//! Invariant: what was kept never changes a body, held by a property test over all wire APIs.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeSeq as _, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::Call;
use crate::ai::message::{AssistantMessage, Block, Message, StopReason, ToolDeclaration};
use crate::ai::model::Model;
use crate::ai::transcript;

/// Writes tools as an API wants them, and says whether some are strict.
type WriteTools<'a> = dyn Fn(&[ToolDeclaration]) -> Result<(Value, bool), String> + 'a;

/// Changes elements; true when that was done.
pub(crate) type Mark<'a> = &'a dyn Fn(&mut [Value]) -> bool;

/// How a wire API writes a conversation.
pub(crate) struct Rules<'a> {
    /// The id that a foreign tool call gets.
    pub(crate) rename: &'a dyn Fn(&str, &AssistantMessage) -> String,
    /// Converts prepared messages; the number is that of the messages before them.
    pub(crate) convert: &'a dyn Fn(&[Message], usize) -> Vec<Value>,
    /// Changes elements at the end for this one request (cache markers): given those of the last part, and of the parts
    /// before it until it returns true.
    pub(crate) mark: Option<Mark<'a>>,
    /// What `convert` depends on beside the model, as text.
    pub(crate) variant: String,
}

/// A converted conversation.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    parts: Vec<Arc<[Box<RawValue>]>>,
    /// Whether it holds a tool call or a result.
    pub(crate) has_tools: bool,
    /// How many messages were converted for this request; the others had been before.
    #[cfg(test)]
    pub(crate) converted: usize,
}

impl Conversation {
    /// Puts an element before all others.
    pub(crate) fn lead(&mut self, element: &Value) -> Result<(), String> {
        let json = texts(std::slice::from_ref(element)).map_err(|error| error.to_string())?;
        self.parts.insert(0, json);
        Ok(())
    }

    /// Bytes of the elements, for the size of a buffer.
    pub(crate) fn len(&self) -> usize {
        let elements = self.parts.iter().flat_map(|part| part.iter());
        elements.map(|element| element.get().len() + 1).sum()
    }
}

impl Serialize for Conversation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for element in self.parts.iter().flat_map(|part| part.iter()) {
            list.serialize_element(element)?;
        }
        list.end()
    }
}

/// What all system messages of a conversation lead to.
#[derive(Debug)]
pub(crate) struct Offer {
    systems: Vec<Arc<Message>>,
    /// The whole system prompt.
    pub(crate) prompt: String,
    /// Tools on offer.
    pub(crate) tools: Vec<ToolDeclaration>,
}

/// The tools as a wire API writes them.
#[derive(Debug)]
pub(crate) struct Tools {
    /// The JSON text.
    pub(crate) json: Box<RawValue>,
    /// Whether arguments of some tool are sampled strictly.
    pub(crate) strict: bool,
}

/// What earlier requests of a session were converted to.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    model: Option<Arc<Model>>,
    variant: String,
    parts: Vec<Part>,
    offer: Option<Arc<Offer>>,
    /// The tools of an offer and of what they depend on beside it.
    tools: Option<(Arc<Offer>, String, Arc<Tools>)>,
    /// Convert everything as one part, to compare with.
    #[cfg(test)]
    is_uncut: bool,
}

/// One part of a conversation and its JSON text.
#[derive(Debug)]
struct Part {
    /// Held, so that another message cannot come to lie at the same address.
    messages: Vec<Arc<Message>>,
    /// How many prepared messages come before.
    start: usize,
    /// How many prepared messages it became.
    count: usize,
    has_tools: bool,
    json: Arc<[Box<RawValue>]>,
}

impl Part {
    fn new(
        call: &Call,
        rules: &Rules,
        messages: &[Arc<Message>],
        start: usize,
    ) -> Result<Self, serde_json::Error> {
        let prepared = transcript::prepare(messages, &call.model, rules.rename);
        Ok(Self {
            messages: messages.to_vec(),
            start,
            count: prepared.len(),
            has_tools: prepared.iter().any(is_of_tools),
            json: texts(&(rules.convert)(&prepared, start))?,
        })
    }

    fn is(&self, messages: &[Arc<Message>], start: usize) -> bool {
        self.start == start
            && self.messages.len() == messages.len()
            && self
                .messages
                .iter()
                .zip(messages)
                .all(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// Its elements with the marks of this request; `None` when none of them takes one.
    fn marked(&self, call: &Call, rules: &Rules, mark: Mark<'_>) -> Option<Vec<Value>> {
        let prepared = transcript::prepare(&self.messages, &call.model, rules.rename);
        let mut elements = (rules.convert)(&prepared, self.start);
        mark(&mut elements).then_some(elements)
    }
}

impl Call {
    /// Returns the system prompt and the tools on offer.
    pub(crate) fn offer(&self) -> Arc<Offer> {
        let is_system = |message: &&Arc<Message>| matches!(***message, Message::System(_));
        let systems = self.messages.iter().filter(is_system);
        let mut kept = self.kept.lock();
        if let Some(offer) = &kept.offer
            && systems.clone().count() == offer.systems.len()
            && systems
                .clone()
                .zip(&offer.systems)
                .all(|(one, other)| Arc::ptr_eq(one, other))
        {
            return Arc::clone(offer);
        }
        let system = transcript::system::replay(systems.clone().map(|message| &**message));
        let system = system.unwrap_or_default();
        let offer = Offer {
            systems: systems.cloned().collect(),
            prompt: transcript::system::rendered(&system),
            tools: system.tools_added.unwrap_or_default(),
        };
        Arc::clone(kept.offer.insert(Arc::new(offer)))
    }

    /// Returns the tools of an offer as `write` writes them (with whether some are strict). `variant` says what that depends
    /// on beside offer and model.
    ///
    /// # Errors
    /// Those of `write`.
    pub(crate) fn tools(
        &self,
        offer: &Arc<Offer>,
        variant: String,
        write: &WriteTools<'_>,
    ) -> Result<Arc<Tools>, String> {
        let mut kept = self.kept.lock();
        kept.keep_model(self);
        if let Some((of, how, tools)) = &kept.tools
            && Arc::ptr_eq(of, offer)
            && *how == variant
        {
            return Ok(Arc::clone(tools));
        }
        let (value, strict) = write(&offer.tools)?;
        let json = to_raw_value(&value).map_err(|error| error.to_string())?;
        let tools = Arc::new(Tools { json, strict });
        kept.tools = Some((Arc::clone(offer), variant, Arc::clone(&tools)));
        Ok(tools)
    }

    /// Converts the conversation, as far as it was not converted for an earlier request.
    ///
    /// # Errors
    /// A value that cannot be written as JSON; there is none in practice.
    pub(crate) fn conversation(&self, rules: &Rules) -> Result<Conversation, String> {
        self.convert(rules).map_err(|error| error.to_string())
    }

    fn convert(&self, rules: &Rules) -> Result<Conversation, serde_json::Error> {
        let mut kept = self.kept.lock();
        kept.keep_model(self);
        if kept.variant != rules.variant {
            kept.parts.clear();
            kept.variant.clone_from(&rules.variant);
        }
        let mut out = Conversation::default();
        let (mut start, mut count) = (0, 0);
        for messages in kept.cut(&self.messages) {
            if !kept
                .parts
                .get(count)
                .is_some_and(|part| part.is(messages, start))
            {
                kept.parts.truncate(count);
                kept.parts.push(Part::new(self, rules, messages, start)?);
                #[cfg(test)]
                {
                    out.converted += messages.len();
                }
            }
            if let Some(part) = kept.parts.get(count) {
                start += part.count;
                out.has_tools |= part.has_tools;
                out.parts.push(Arc::clone(&part.json));
            }
            count += 1;
        }
        kept.parts.truncate(count);
        if let Some(mark) = rules.mark {
            let marked = kept.parts.iter().zip(&mut out.parts).rev();
            let mut marked =
                marked.filter_map(|(part, json)| Some((part.marked(self, rules, mark)?, json)));
            if let Some((elements, json)) = marked.next() {
                *json = texts(&elements)?;
            }
        }
        Ok(out)
    }
}

impl Kept {
    fn cut<'a>(&self, messages: &'a [Arc<Message>]) -> Vec<&'a [Arc<Message>]> {
        #[cfg(test)]
        if self.is_uncut {
            return vec![messages];
        }
        parts(messages).collect()
    }

    /// Forgets everything that was converted for another model.
    fn keep_model(&mut self, call: &Call) {
        let same = |model: &Arc<Model>| Arc::ptr_eq(model, &call.model) || *model == call.model;
        if !self.model.as_ref().is_some_and(same) {
            self.parts.clear();
            self.tools = None;
        }
        self.model = Some(Arc::clone(&call.model));
    }
}

fn is_of_tools(message: &Message) -> bool {
    match message {
        Message::Assistant(answer) => answer.tool_calls().next().is_some(),
        other => matches!(other, Message::ToolResult(_)),
    }
}

fn texts(elements: &[Value]) -> Result<Arc<[Box<RawValue>]>, serde_json::Error> {
    elements.iter().map(to_raw_value).collect()
}

/// Cuts a conversation where no wire API looks across: right before an answer that is sure to be sent. Whatever merges
/// neighbours (results of several calls, a person's messages) finds them in one part.
fn parts(messages: &[Arc<Message>]) -> impl Iterator<Item = &[Arc<Message>]> {
    messages.chunk_by(|_, next| !opens_part(next))
}

fn opens_part(message: &Message) -> bool {
    let Message::Assistant(answer) = message else {
        return false;
    };
    let is_sent = |block: &Block| match block {
        Block::Text(text) => !text.text.trim_start().is_empty(),
        Block::ToolCall(_) => true,
        _ => false,
    };
    !matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted)
        && answer.content.iter().any(is_sent)
}

#[cfg(test)]
mod tests;
