//! Pi's RPC protocol: JSON records over stdin and stdout, one per line.
//!
//! Entry point: [`serve`]. The face translates and nothing more: a record becomes a [`Command`], an event a record.
//! Responses and events share one order because answers come as events ([`Runtime::submit`]). Invariants: one record
//! per line and nothing else on stdout; every command gets exactly one response; a line that makes no sense gets an
//! error response and the process lives on.

mod commands;
mod framing;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

pub use self::commands::parse;
pub use self::framing::{Lines, Sink, Source};
use crate::session::{Command, CommandError, Event, Runtime};

/// Tag of the mark that ends the output.
const END: u64 = u64::MAX;

/// Lines are written together up to this size.
const BATCH: usize = 64 << 10;

/// How long the end of the input waits for commands that were read and not begun.
const BEGUN: Duration = Duration::from_millis(100);

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client closed its end.
    Input,
    /// The client does not read any more.
    Output,
}

/// A command on its way: what its response repeats.
struct Waiting {
    id: Option<Value>,
    command: String,
}

/// Serves one client until it closes its end, then shuts the session down. All records made until then are written.
/// `warn` gets what a person should know and no record carries.
///
/// # Errors
/// When the output cannot be written.
pub async fn serve(runtime: Runtime, source: Source, sink: Sink, warn: Warn) -> io::Result<Ended> {
    let face = Arc::new(Face {
        waiting: Mutex::default(),
        warn,
    });
    // When the writer is behind everyone waits: the run goes on when the client has read.
    let events = runtime.subscribe(64);
    let (records, lines) = mpsc::channel(64);
    let writing = tokio::spawn(Arc::clone(&face).write(events, sink, lines));
    let reading = read(&face, &runtime, source, &records);
    tokio::pin!(reading, writing);
    let ended = tokio::select! {
        biased;
        written = &mut writing => {
            runtime.shutdown().await;
            written.map_err(io::Error::other)??;
            return Ok(Ended::Output);
        }
        () = &mut reading => Ended::Input,
    };
    // Commands are begun in order: when this one is answered, what was read before has begun.
    let begun = runtime.request(Command::GetState);
    drop(tokio::time::timeout(BEGUN, begun).await);
    runtime.shutdown().await;
    runtime.submit(Command::GetState, END);
    writing.await.map_err(io::Error::other)??;
    Ok(ended)
}

/// Tells a person one line.
pub type Warn = fn(&str);

struct Face {
    waiting: Mutex<Tags>,
    warn: Warn,
}

#[derive(Default)]
struct Tags {
    last: u64,
    open: HashMap<u64, Waiting>,
}

/// Turns lines into commands until the input ends.
async fn read(face: &Face, runtime: &Runtime, mut source: Source, records: &mpsc::Sender<Value>) {
    while let Some(line) = source.next().await {
        match face.take(&line) {
            Taken::Command(command, tag) => runtime.submit(command, tag),
            Taken::Answer(record) => {
                // Fails when the writer is gone; reading ends then as well.
                if records.send(record).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// What a line of the client is.
enum Taken {
    Command(Command, u64),
    /// Answered at once.
    Answer(Value),
}

impl Face {
    fn take(&self, line: &str) -> Taken {
        let record: Value = match serde_json::from_str(line) {
            Ok(record) => record,
            Err(error) => {
                let said = format!("Failed to parse command: {error}");
                return Taken::Answer(failure(None, Some("parse"), &said));
            }
        };
        let id = record.get("id").cloned();
        let Some(kind) = record.get("type").and_then(Value::as_str) else {
            let given = record.get("type");
            let said = match given {
                Some(other) => format!("Unknown command: {other}"),
                None => "Unknown command: undefined".to_owned(),
            };
            return Taken::Answer(failure(id, None, &said));
        };
        if kind == "extension_ui_response" {
            let tag = self.open(None);
            return Taken::Command(Command::UiAnswer { record }, tag);
        }
        match parse(kind, &record) {
            Some(Ok(command)) => {
                let waiting = Waiting {
                    id,
                    command: kind.to_owned(),
                };
                Taken::Command(command, self.open(Some(waiting)))
            }
            Some(Err(said)) => Taken::Answer(failure(id, Some(kind), &said)),
            None => Taken::Answer(failure(id, Some(kind), &format!("Unknown command: {kind}"))),
        }
    }

    /// Gives a command its tag; without `waiting` its answer is not written.
    fn open(&self, waiting: Option<Waiting>) -> u64 {
        let mut tags = self.waiting.lock();
        tags.last += 1;
        let tag = tags.last;
        if let Some(waiting) = waiting {
            tags.open.insert(tag, waiting);
        }
        tag
    }

    /// Writes events and answers until the end mark.
    async fn write(
        self: Arc<Self>,
        mut events: mpsc::Receiver<Arc<Event>>,
        sink: Sink,
        mut records: mpsc::Receiver<Value>,
    ) -> io::Result<()> {
        let mut is_over = false;
        while !is_over {
            let mut batch = String::new();
            tokio::select! {
                biased;
                event = events.recv() => is_over = self.add(event.as_deref(), &mut batch),
                Some(record) = records.recv() => batch.push_str(&record.to_string()),
            }
            // What stands in line already is written with it: one wake-up of the writer for all.
            while !is_over && batch.len() < BATCH {
                let Ok(event) = events.try_recv() else { break };
                is_over = self.add(Some(&event), &mut batch);
            }
            if !batch.is_empty() {
                sink.write(batch).await?;
            }
        }
        while let Ok(record) = records.try_recv() {
            sink.write(record.to_string()).await?;
        }
        sink.finish().await
    }

    /// Adds the line of an event; true at the end of all.
    fn add(&self, event: Option<&Event>, batch: &mut String) -> bool {
        let line = match event {
            None => return true,
            Some(Event::Response { tag, .. }) if *tag == END => return true,
            Some(Event::Response { tag, answer }) => self.response(*tag, answer),
            Some(event @ Event::Notice { .. }) => {
                super::notice(event, self.warn);
                None
            }
            Some(event) => event.to_line(),
        };
        if let Some(line) = line {
            if !batch.is_empty() {
                batch.push('\n');
            }
            batch.push_str(&line);
        }
        false
    }

    /// The line of a response; `None` for answers nobody asked for here.
    fn response(&self, tag: u64, answer: &Result<Value, CommandError>) -> Option<String> {
        let Waiting { id, command } = self.waiting.lock().open.remove(&tag)?;
        match answer {
            Err(error) => Some(failure(id, Some(&command), &error.0).to_string()),
            Ok(data) if command == "get_tree" => Some(tree_response(id, data)),
            Ok(data) => {
                let mut record = head(id, Some(&command), true);
                if !data.is_null() || answers_null(&command) {
                    record.insert("data".to_owned(), data.clone());
                }
                Some(Value::Object(record).to_string())
            }
        }
    }
}

/// Commands whose `null` is data and not its absence.
fn answers_null(command: &str) -> bool {
    matches!(command, "cycle_model" | "cycle_thinking_level")
}

fn head(id: Option<Value>, command: Option<&str>, success: bool) -> Map<String, Value> {
    let mut record = Map::new();
    if let Some(id) = id {
        record.insert("id".to_owned(), id);
    }
    record.insert("type".to_owned(), "response".into());
    if let Some(command) = command {
        record.insert("command".to_owned(), command.into());
    }
    record.insert("success".to_owned(), success.into());
    record
}

fn failure(id: Option<Value>, command: Option<&str>, said: &str) -> Value {
    let mut record = head(id, command, false);
    record.insert("error".to_owned(), said.into());
    Value::Object(record)
}

/// The tree comes as JSON text (it may nest deeper than a value) and goes into the line as it is.
fn tree_response(id: Option<Value>, data: &Value) -> String {
    let tree = data.get("treeJson").and_then(Value::as_str).unwrap_or("[]");
    let leaf = data.get("leafId").unwrap_or(&Value::Null);
    let mut line = Value::Object(head(id, Some("get_tree"), true)).to_string();
    line.pop();
    line.push_str(&format!(r#","data":{{"tree":{tree},"leafId":{leaf}}}}}"#));
    line
}
