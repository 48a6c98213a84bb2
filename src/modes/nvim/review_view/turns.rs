//! One after the other: what a person did is carried out in the order of their keys, also when one thing takes a moment.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The line.
#[derive(Default)]
pub(super) struct Turns(Mutex<Line>);

#[derive(Default)]
struct Line {
    busy: bool,
    waiting: VecDeque<oneshot::Sender<()>>,
}

/// A place in the line; dropping it lets the next one come.
pub(super) struct Turn {
    turns: Arc<Turns>,
    ahead: Option<oneshot::Receiver<()>>,
}

impl Turns {
    /// Takes a place at the end of the line.
    pub(super) fn take(self: &Arc<Self>) -> Turn {
        let mut line = self.0.lock();
        let ahead = if line.busy {
            let (sender, receiver) = oneshot::channel();
            line.waiting.push_back(sender);
            Some(receiver)
        } else {
            line.busy = true;
            None
        };
        Turn {
            turns: Arc::clone(self),
            ahead,
        }
    }

    fn next(&self) {
        let mut line = self.0.lock();
        while let Some(next) = line.waiting.pop_front() {
            if next.send(()).is_ok() {
                return;
            }
        }
        line.busy = false;
    }
}

impl Turn {
    /// Whether nobody is ahead.
    pub(super) fn is_now(&self) -> bool {
        self.ahead.is_none()
    }

    /// Waits until nobody is ahead.
    pub(super) async fn come(mut self) -> Self {
        if let Some(ahead) = &mut self.ahead {
            // The sender lives as long as somebody is ahead.
            ahead.await.ok();
            self.ahead = None;
        }
        self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let here = match &mut self.ahead {
            None => true,
            // Given up at the very moment at which its turn came.
            Some(ahead) => {
                ahead.close();
                ahead.try_recv().is_ok()
            }
        };
        if here {
            self.turns.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[tokio::test]
    async fn each_waits_for_the_one_ahead_and_whoever_leaves_is_passed_over() {
        let turns = Arc::new(Turns::default());
        let (first, second, third) = (turns.take(), turns.take(), turns.take());
        assert_eq!(
            (first.is_now(), second.is_now(), third.is_now()),
            (true, false, false)
        );
        drop(second);
        drop(first);
        let third = third.come().await;
        let fourth = turns.take();
        assert!(!fourth.is_now());
        drop(third);
        drop(fourth);
        assert!(turns.take().is_now());
    }
}
