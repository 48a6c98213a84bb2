//! The one order of events.
//!
//! Whoever changes the session puts the event here at the same moment, without waiting; one task hands everything on to
//! the subscribers in that order. Memory stays bounded because those who make many events (a run, a shell command)
//! wait with [`Outbox::caught_up`] until the subscribers have caught up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc, oneshot};

use crate::session::protocol::Event;

/// So many events may stand in line before a run waits.
const LINE: usize = 32;

/// So many events wait for the first subscriber.
const EARLY: usize = 64;

enum Item {
    Event(Arc<Event>),
    Subscribe(mpsc::Sender<Arc<Event>>),
    /// Answered when everything before it has been handed on.
    Mark(oneshot::Sender<()>),
}

/// Where events are put. Clones share the line.
#[derive(Clone)]
pub(super) struct Outbox {
    line: mpsc::UnboundedSender<Item>,
    level: Arc<Level>,
}

#[derive(Default)]
struct Level {
    waiting: AtomicUsize,
    fell: Notify,
}

impl Outbox {
    /// Makes the line and starts the task that hands on; it ends when the last clone is dropped.
    pub(super) fn start() -> Self {
        // Unbounded, but see the module text: the level is what bounds it.
        let (line, items) = mpsc::unbounded_channel();
        let level = Arc::new(Level::default());
        tokio::spawn(hand_on(items, Arc::clone(&level)));
        Self { line, level }
    }

    /// Puts an event in line.
    pub(super) fn put(&self, event: Event) {
        self.level.waiting.fetch_add(1, Ordering::Relaxed);
        // Fails only when the runtime is being torn down: nobody is there to hear it.
        drop(self.line.send(Item::Event(Arc::new(event))));
    }

    /// Adds a subscriber that gets everything put from now on.
    pub(super) fn subscribe(&self, capacity: usize) -> mpsc::Receiver<Arc<Event>> {
        // When it is full the handing on waits, and with it everyone who waits in `caught_up`.
        let (events, receiver) = mpsc::channel(capacity.max(1));
        drop(self.line.send(Item::Subscribe(events)));
        receiver
    }

    /// Waits while the line is long.
    pub(super) async fn caught_up(&self) {
        while self.level.waiting.load(Ordering::Relaxed) > LINE {
            let fell = self.level.fell.notified();
            if self.level.waiting.load(Ordering::Relaxed) > LINE {
                fell.await;
            }
        }
    }

    /// Waits until everything put so far stands in the subscribers' channels.
    pub(super) async fn handed_on(&self) {
        let (mark, reached) = oneshot::channel();
        drop(self.line.send(Item::Mark(mark)));
        // An error says that the task is gone: nothing is left to wait for.
        let _ = reached.await;
    }
}

async fn hand_on(mut items: mpsc::UnboundedReceiver<Item>, level: Arc<Level>) {
    let mut subscribers: Vec<mpsc::Sender<Arc<Event>>> = Vec::new();
    // What was put before anyone listened (notices of the start) waits for the first subscriber.
    let mut early: Option<Vec<Arc<Event>>> = Some(Vec::new());
    while let Some(item) = items.recv().await {
        match item {
            Item::Event(event) => {
                if let Some(early) = early.as_mut().filter(|early| early.len() < EARLY) {
                    early.push(Arc::clone(&event));
                }
                let mut gone = false;
                for subscriber in &subscribers {
                    gone |= subscriber.send(Arc::clone(&event)).await.is_err();
                }
                if gone {
                    subscribers.retain(|subscriber| !subscriber.is_closed());
                }
                level.waiting.fetch_sub(1, Ordering::Relaxed);
                level.fell.notify_waiters();
            }
            Item::Subscribe(subscriber) => {
                for event in early.take().unwrap_or_default() {
                    // A subscriber that is gone already is found out with the next event.
                    drop(subscriber.send(event).await);
                }
                subscribers.push(subscriber);
            }
            // The one who asked may have gone.
            Item::Mark(mark) => {
                let _ = mark.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_subscriber_makes_the_run_wait_and_loses_nothing() {
        let outbox = Outbox::start();
        let mut events = outbox.subscribe(1);
        let run = outbox.clone();
        let made = tokio::spawn(async move {
            for _ in 0..500 {
                run.put(Event::TurnStart);
                run.caught_up().await;
            }
        });
        outbox.handed_on().await;
        let mut seen = 0;
        while seen < 500 {
            assert!(matches!(&*events.recv().await.unwrap(), Event::TurnStart));
            seen += 1;
        }
        made.await.unwrap();
    }

    #[tokio::test]
    async fn a_dropped_subscription_holds_nobody_up() {
        let outbox = Outbox::start();
        drop(outbox.subscribe(1));
        for _ in 0..100 {
            outbox.put(Event::TurnStart);
            outbox.caught_up().await;
        }
        outbox.handed_on().await;
    }
}
