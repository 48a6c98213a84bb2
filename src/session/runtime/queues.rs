//! The two queues of messages that wait for a run: steering and follow-up.
//!
//! A queue has two halves. `waiting` is what the loop polls; `shown` is what faces see: a text stays shown until its
//! message begins, so that a face never loses sight of it in between.

use std::collections::VecDeque;

use serde_json::{Map, Value};

use crate::agent::Queue;
use crate::ai::Message;
use crate::session::protocol::{Event, QueueMode};

#[derive(Default)]
struct Line {
    waiting: VecDeque<Message>,
    shown: Vec<String>,
    mode: QueueMode,
}

/// Both queues.
#[derive(Default)]
pub(super) struct Queues {
    steering: Line,
    follow_up: Line,
}

impl Queues {
    /// Makes empty queues with the modes that the settings say.
    pub(super) fn from_settings(settings: &Map<String, Value>) -> Self {
        let mut queues = Self::default();
        queues.follow(settings);
        queues
    }

    /// Takes over the modes that the settings say; what waits stays.
    pub(super) fn follow(&mut self, settings: &Map<String, Value>) {
        let mode = |key: &str| {
            let word = settings.get(key).and_then(Value::as_str);
            word.and_then(QueueMode::parse).unwrap_or_default()
        };
        self.set_mode(Queue::Steering, mode("steeringMode"));
        self.set_mode(Queue::FollowUp, mode("followUpMode"));
    }

    fn line(&mut self, queue: Queue) -> &mut Line {
        match queue {
            Queue::Steering => &mut self.steering,
            Queue::FollowUp => &mut self.follow_up,
        }
    }

    /// Adds a message that faces see by its text.
    pub(super) fn push(&mut self, queue: Queue, message: Message) {
        let line = self.line(queue);
        line.shown.push(text_of(&message));
        line.waiting.push_back(message);
    }

    /// Takes what the loop gets by the queue's mode.
    pub(super) fn poll(&mut self, queue: Queue) -> Vec<Message> {
        let line = self.line(queue);
        match line.mode {
            QueueMode::OneAtATime => line.waiting.pop_front().into_iter().collect(),
            QueueMode::All => line.waiting.drain(..).collect(),
        }
    }

    /// Notes that a message begins; true when a shown text went with it. The steering queue is looked at first.
    pub(super) fn began(&mut self, message: &Message) -> bool {
        if !matches!(message, Message::User(_)) {
            return false;
        }
        let text = text_of(message);
        [&mut self.steering, &mut self.follow_up]
            .into_iter()
            .any(
                |line| match line.shown.iter().position(|shown| *shown == text) {
                    Some(at) => {
                        line.shown.remove(at);
                        true
                    }
                    None => false,
                },
            )
    }

    /// Empties both; returns the shown texts.
    pub(super) fn clear(&mut self) -> (Vec<String>, Vec<String>) {
        self.steering.waiting.clear();
        self.follow_up.waiting.clear();
        (
            std::mem::take(&mut self.steering.shown),
            std::mem::take(&mut self.follow_up.shown),
        )
    }

    /// Whether a run would find something.
    pub(super) fn any_waiting(&self) -> bool {
        !self.steering.waiting.is_empty() || !self.follow_up.waiting.is_empty()
    }

    /// How many texts faces see.
    pub(super) fn shown_len(&self) -> usize {
        self.steering.shown.len() + self.follow_up.shown.len()
    }

    /// Returns how a queue is emptied.
    pub(super) fn mode(&self, queue: Queue) -> QueueMode {
        match queue {
            Queue::Steering => self.steering.mode,
            Queue::FollowUp => self.follow_up.mode,
        }
    }

    /// Changes how a queue is emptied.
    pub(super) fn set_mode(&mut self, queue: Queue, mode: QueueMode) {
        self.line(queue).mode = mode;
    }

    /// Returns the event that shows both queues.
    pub(super) fn event(&self) -> Event {
        Event::QueueUpdate {
            steering: self.steering.shown.clone(),
            follow_up: self.follow_up.shown.clone(),
        }
    }
}

fn text_of(message: &Message) -> String {
    match message {
        Message::User(user) => user.content.text(""),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ai::{Block, Content, UserMessage};

    fn user(text: &str) -> Message {
        Message::User(UserMessage {
            content: Content::Blocks(vec![Block::text(text)]),
            ..UserMessage::default()
        })
    }

    #[test]
    fn a_text_is_shown_until_its_message_begins() {
        let mut queues = Queues::default();
        queues.push(Queue::Steering, user("a"));
        queues.push(Queue::FollowUp, user("a"));
        let polled = queues.poll(Queue::FollowUp);
        assert_eq!(queues.shown_len(), 2);
        assert!(queues.began(&polled[0]));
        assert!(matches!(
            queues.event(),
            Event::QueueUpdate { steering, follow_up } if steering.is_empty() && follow_up == ["a"]
        ));
        assert!(!queues.began(&user("b")));
    }

    #[test]
    fn modes_decide_what_a_poll_takes() {
        let mut queues = Queues::default();
        queues.push(Queue::Steering, user("a"));
        queues.push(Queue::Steering, user(""));
        assert_eq!(queues.poll(Queue::Steering).len(), 1);
        queues.push(Queue::Steering, user("c"));
        queues.set_mode(Queue::Steering, QueueMode::All);
        assert_eq!(queues.poll(Queue::Steering).len(), 2);
        assert!(!queues.any_waiting());
    }
}
