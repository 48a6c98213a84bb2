//! What goes to the Lua side: ops, gathered and sent as batches.
//!
//! One batch is in flight at a time and at most one starts in 33 ms, so a busy editor slows the updates and not the
//! reverse. What waits does not grow with time: an op set under a key replaces the one before it, and a [`Source`] is
//! asked for its ops only when a batch is made.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::editor::value::{MAX_DEPTH, depth, from_json};
use super::editor::{Editor, EditorError};
use super::json::{at, put};

/// Shortest time between the starts of two batches.
const FRAME: Duration = Duration::from_millis(33);
/// How often a Neovim that waits for a key is asked whether it still does.
const BLOCKED_POLL: Duration = Duration::from_millis(50);
/// Levels that surround an op: the list of ops and the argument list.
const SURROUNDING: usize = 2;

/// Something that knows what has to be drawn anew, asked when a batch is made.
pub trait Source: Send + Sync + 'static {
    /// Returns the ops that bring the screen up to date, and takes them as carried out.
    fn take(&self) -> Vec<Json>;
}

enum Item {
    Op(Json),
    Source(Arc<dyn Source>),
}

#[derive(Default)]
struct Waiting {
    items: Vec<Item>,
    /// Where the item of a key stands in `items`.
    keys: HashMap<String, usize>,
    /// Neovim waits for a key: batches are held back.
    blocked: bool,
}

/// A handle to the queue of ops; cheap to clone.
#[derive(Clone, Default)]
pub struct Outbox {
    waiting: Arc<Mutex<Waiting>>,
    wake: Arc<Notify>,
}

impl Outbox {
    /// Queues an op (`{"op": "module.function", ...}`) behind the others.
    pub fn push(&self, op: Json) {
        self.waiting.lock().items.push(Item::Op(op));
        self.wake.notify_one();
    }

    /// Queues an op, in the place of the one with the same key if that still waits.
    pub fn set(&self, key: impl Into<String>, op: Json) {
        self.place(key.into(), Item::Op(op));
    }

    /// Says that a source has something to draw.
    pub fn dirty(&self, key: impl Into<String>, source: Arc<dyn Source>) {
        self.place(key.into(), Item::Source(source));
    }

    /// Answers a request of the Lua side.
    pub fn reply(&self, id: u64, answer: Result<Json, String>) {
        let (result, error) = match answer {
            Ok(result) => (result, Json::Null),
            Err(error) => (Json::Null, error.into()),
        };
        // Results are trees of any depth: they travel as text when Neovim would not take them.
        let deep = depth(&from_json(&result)) + SURROUNDING + 1 > MAX_DEPTH;
        let mut op = json!({"op": "rpc.reply", "id": id, "error": error});
        if deep {
            put(&mut op, "json", result.to_string().into());
        } else {
            put(&mut op, "result", result);
        }
        self.push(op);
    }

    /// Whether batches are held back because Neovim waits for a key.
    pub fn blocked(&self) -> bool {
        self.waiting.lock().blocked
    }

    fn place(&self, key: String, item: Item) {
        let mut waiting = self.waiting.lock();
        let next = waiting.items.len();
        let at = *waiting.keys.entry(key).or_insert(next);
        match waiting.items.get_mut(at) {
            Some(slot) => *slot = item,
            None => waiting.items.push(item),
        }
        drop(waiting);
        self.wake.notify_one();
    }

    fn take(&self) -> Vec<Json> {
        let items = {
            let mut waiting = self.waiting.lock();
            waiting.keys.clear();
            std::mem::take(&mut waiting.items)
        };
        // Outside the lock: a source takes its own.
        let ops = items.into_iter().flat_map(|item| match item {
            Item::Op(op) => vec![op],
            Item::Source(source) => source.take(),
        });
        ops.collect()
    }

    /// Sends batches until the connection ends. Run it in a task of its own.
    pub async fn run(self, editor: Editor) {
        let mut last = Instant::now() - FRAME;
        loop {
            self.wake.notified().await;
            tokio::time::sleep_until(last + FRAME).await;
            if !self.until_free(&editor).await {
                return;
            }
            let ops = self.take();
            if ops.is_empty() {
                continue;
            }
            last = Instant::now();
            match send(&editor, ops).await {
                Err(EditorError::Closed { .. }) => return,
                Err(error) => tracing::error!("a batch was not drawn: {error}"),
                Ok(()) => {}
            }
        }
    }

    /// Waits while Neovim waits for a key; `false` when it is gone.
    async fn until_free(&self, editor: &Editor) -> bool {
        loop {
            let blocked = match editor.mode().await {
                Ok(mode) => mode.blocking,
                Err(EditorError::Closed { .. }) => return false,
                Err(_) => false,
            };
            self.waiting.lock().blocked = blocked;
            if !blocked {
                return true;
            }
            tokio::time::sleep(BLOCKED_POLL).await;
        }
    }
}

/// Sends one batch and logs what could not be carried out.
async fn send(editor: &Editor, ops: Vec<Json>) -> Result<(), EditorError> {
    let encoded = ops.iter().map(|op| {
        let value = from_json(op);
        match depth(&value) {
            levels if levels + SURROUNDING > MAX_DEPTH => op.to_string().into(),
            _ => value,
        }
    });
    let answer = editor
        .change_fn("pi.rpc", "batch", vec![encoded.collect()])
        .await?;
    let answer = super::editor::value::to_json(&answer);
    for error in at(&answer, "/errors").as_array().into_iter().flatten() {
        let index = at(error, "/0")
            .as_u64()
            .and_then(|it| usize::try_from(it).ok());
        let op = index.and_then(|it| ops.get(it.checked_sub(1)?));
        let name = op.map_or(&Json::Null, |op| at(op, "/op"));
        tracing::error!("{name}: {}", at(error, "/1"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    struct Counter(Mutex<u32>);
    impl Source for Counter {
        fn take(&self) -> Vec<Json> {
            let mut count = self.0.lock();
            *count += 1;
            vec![json!({"op": "count", "n": *count})]
        }
    }

    #[test]
    fn a_key_holds_one_place_and_the_last_op() {
        let outbox = Outbox::default();
        outbox.set("a", json!({"op": "a", "n": 1}));
        outbox.push(json!({"op": "b"}));
        outbox.set("a", json!({"op": "a", "n": 2}));
        assert_eq!(
            outbox.take(),
            [json!({"op": "a", "n": 2}), json!({"op": "b"})]
        );
        assert!(outbox.take().is_empty());
        outbox.set("a", json!({"op": "a", "n": 3}));
        assert_eq!(outbox.take(), [json!({"op": "a", "n": 3})]);
    }

    #[test]
    fn a_source_is_asked_once_a_batch() {
        let outbox = Outbox::default();
        let source = Arc::new(Counter(Mutex::new(0)));
        for _ in 0..1_000 {
            outbox.dirty("chat", source.clone());
        }
        assert_eq!(outbox.take(), [json!({"op": "count", "n": 1})]);
    }

    #[test]
    fn a_deep_result_travels_as_text() {
        let outbox = Outbox::default();
        let deep = (0..60).fold(json!(1), |inner, _| json!([inner]));
        outbox.reply(1, Ok(deep.clone()));
        let text = outbox.take().remove(0)["json"].clone();
        assert_eq!(text, Json::from(deep.to_string()));
    }
}
