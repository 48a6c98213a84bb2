//! The adapter to a running Neovim: the only place that names nvim-rs.
//!
//! Entry points: [`Editor::connect`], [`Editor::draw`], [`Editor::change`], [`Editor::read_lines`]. What holds by
//! construction: the future of a call is never dropped (each runs in a task of its own and answers through a channel);
//! notifications from Neovim are only forwarded; a closed connection fails every waiting and every later call at once;
//! no argument is nested deeper than Neovim takes; text is read in slices that belong to one `changedtick`. Calls made
//! by different tasks may reach Neovim in any order: await one before the next where order matters.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use nvim_rs::{Handler, Neovim};
use rmpv::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

pub mod transport;
pub mod value;

use value::{fit, lua_error};

/// How long a call that only draws is waited for.
const DRAW_PATIENCE: Duration = Duration::from_secs(5);
/// Lines and bytes of one slice; receiving costs grow with the square of a message's size.
const SLICE_LINES: i64 = 1_000;
const SLICE_BYTES: i64 = 64 * 1024;
/// How often a read starts again because the text moved under it.
const READ_ROUNDS: usize = 20;
/// Runs inside Neovim: lines of a slice, where the next begins (`nil` at the end), and the tick they belong to.
const SLICE_LUA: &str = "
local buf, first, last, max_lines, max_bytes = ...
if not vim.api.nvim_buf_is_loaded(buf) then error('buffer ' .. buf .. ' is not loaded', 0) end
local count = vim.api.nvim_buf_line_count(buf)
last = last < 0 and count or math.min(last, count)
local stop = math.min(first + max_lines, last)
local lines = first < stop and vim.api.nvim_buf_get_lines(buf, first, stop, false) or {}
local bytes, kept = 0, 0
for _, line in ipairs(lines) do
  bytes = bytes + #line + 1
  if kept > 0 and bytes > max_bytes then break end
  kept = kept + 1
end
for i = #lines, kept + 1, -1 do lines[i] = nil end
local reached = first + kept
return { vim.api.nvim_buf_get_changedtick(buf), lines, reached < last and reached or -1 }
";

type Writer = Compat<Box<dyn AsyncWrite + Send + Unpin>>;

/// Why a call to Neovim gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditorError {
    /// Neovim is gone.
    #[error("{op}: the connection to Neovim is closed ({reason})")]
    Closed {
        /// What was called.
        op: String,
        /// What ended it.
        reason: String,
    },
    /// Neovim answered with an error.
    #[error("{op}: {text}")]
    Neovim {
        /// What was called.
        op: String,
        /// Neovim's error kind (0 exception, 1 validation), when it gave one.
        code: Option<i64>,
        /// Its text, without the stack.
        text: String,
    },
    /// Neovim is busy; a call that only draws is not waited for any longer. It may still be carried out.
    #[error("{op}: Neovim did not answer for {} s", DRAW_PATIENCE.as_secs())]
    GivenUp {
        /// What was called.
        op: String,
    },
    /// The answer has not the expected form.
    #[error("{op}: unexpected answer {got}")]
    Shape {
        /// What was called.
        op: String,
        /// The beginning of the answer.
        got: String,
    },
    /// The text changed while it was read, again and again.
    #[error("read buffer {buffer}: the text keeps changing")]
    Restless {
        /// Buffer number.
        buffer: i64,
    },
}

/// A notification from Neovim.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// Name given to `rpcnotify`.
    pub name: String,
    /// Its arguments.
    pub args: Vec<Value>,
}

/// Lines of a buffer that all belong to one `changedtick`. Bytes, not text: a buffer may hold anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    /// The tick.
    pub changedtick: i64,
    /// Lines without their endings; a NUL in the file is a NUL here.
    pub lines: Vec<Vec<u8>>,
}

/// What Neovim is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Short mode name.
    pub mode: String,
    /// Whether it waits for a key and runs nothing but fast calls.
    pub blocking: bool,
}

/// A handle to a running Neovim; cheap to clone.
#[derive(Clone)]
pub struct Editor {
    nvim: Neovim<Writer>,
    /// `Some(reason)` once the connection has ended.
    closed: watch::Receiver<Option<Arc<str>>>,
}

#[derive(Clone)]
struct Forward {
    notes: mpsc::UnboundedSender<Notification>,
}

#[async_trait]
impl Handler for Forward {
    type Writer = Writer;

    async fn handle_request(
        &self,
        name: String,
        _args: Vec<Value>,
        _nvim: Neovim<Writer>,
    ) -> Result<Value, Value> {
        Err(Value::from(format!(
            "pi takes notifications only, not the request {name}"
        )))
    }

    async fn handle_notify(&self, name: String, args: Vec<Value>, _nvim: Neovim<Writer>) {
        // Fails only when the receiver is gone, that is while the program ends.
        self.notes.send(Notification { name, args }).ok();
    }
}

impl Editor {
    /// Speaks msgpack-rpc over a pair of streams. Notifications arrive at the receiver, which never fills up: they come
    /// from a person's keys and from debounced Lua, each a few hundred bytes.
    pub fn connect(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> (Self, mpsc::UnboundedReceiver<Notification>) {
        let (notes, inbox) = mpsc::unbounded_channel();
        let writer: Box<dyn AsyncWrite + Send + Unpin> = Box::new(writer);
        let (nvim, io) =
            Neovim::<Writer>::new(reader.compat(), writer.compat_write(), Forward { notes });
        let (close, closed) = watch::channel(None);
        // Owned by the connection: it ends with it.
        tokio::spawn(async move {
            let reason: Arc<str> = match io.await {
                Ok(()) => "the other side closed it".into(),
                Err(error) if error.is_reader_error() || error.is_channel_closed() => {
                    "Neovim ended it".into()
                }
                Err(error) => error.to_string().into(),
            };
            close.send_replace(Some(reason));
        });
        (Self { nvim, closed }, inbox)
    }

    /// Connects to the socket of a running Neovim.
    ///
    /// # Errors
    /// When nothing listens there.
    pub async fn connect_path(
        path: &Path,
    ) -> std::io::Result<(Self, mpsc::UnboundedReceiver<Notification>)> {
        let stream = tokio::net::UnixStream::connect(path).await?;
        let (reader, writer) = tokio::io::split(stream);
        Ok(Self::connect(reader, writer))
    }

    /// Waits until the connection has ended and returns why.
    pub async fn closed(&self) -> Arc<str> {
        let mut closed = self.closed.clone();
        match closed.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_else(|| "closed".into()),
            Err(_) => "the watcher ended".into(),
        }
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.closed.borrow().is_some()
    }

    /// Calls an API function. Waits for the answer or for the end of the connection, however long that takes.
    ///
    /// # Errors
    /// `Closed`, or `Neovim` with the editor's own error.
    pub async fn call(&self, method: &str, args: Vec<Value>) -> Result<Value, EditorError> {
        let op = method.to_owned();
        if let Some(reason) = self.closed.borrow().clone() {
            return Err(closed_error(op, &reason));
        }
        let (answer, waiting) = oneshot::channel();
        let nvim = self.nvim.clone();
        let args: Vec<Value> = args.into_iter().map(fit).collect();
        // Detached on purpose: dropping the call's future would end the whole connection when its answer arrives.
        tokio::spawn({
            let method = op.clone();
            async move {
                let result = nvim.call(&method, args).await;
                // The caller may have stopped waiting; the answer is then nobody's.
                answer.send(result).ok();
            }
        });
        tokio::select! {
            biased;
            Ok(result) = waiting => match result {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(error)) => {
                    let (code, text) = lua_error(&error);
                    Err(EditorError::Neovim { op, code, text })
                }
                Err(error) => {
                    let reason = self.closed.borrow().clone();
                    let reason = reason.unwrap_or_else(|| error.to_string().into());
                    Err(closed_error(op, &reason))
                }
            },
            reason = self.closed() => Err(closed_error(op, &reason)),
        }
    }

    /// Runs Lua that changes a file or a buffer (or anything else that must not be half known): never given up.
    ///
    /// # Errors
    /// `Closed`, or `Neovim` when the Lua raised an error.
    pub async fn change(&self, lua: &str, args: Vec<Value>) -> Result<Value, EditorError> {
        self.call("nvim_exec_lua", vec![lua.into(), Value::Array(args)])
            .await
    }

    /// Runs Lua that only draws or reads. After 5 s the wait ends; the call itself still runs when Neovim gets to it.
    ///
    /// # Errors
    /// As [`Editor::change`], or `GivenUp`.
    pub async fn draw(&self, lua: &str, args: Vec<Value>) -> Result<Value, EditorError> {
        tokio::time::timeout(DRAW_PATIENCE, self.change(lua, args))
            .await
            .unwrap_or_else(|_| {
                Err(EditorError::GivenUp {
                    op: "nvim_exec_lua".into(),
                })
            })
    }

    /// Calls `require(module)[function](...)` as [`Editor::change`] does.
    ///
    /// # Errors
    /// As [`Editor::change`].
    pub async fn change_fn(
        &self,
        module: &str,
        function: &str,
        args: Vec<Value>,
    ) -> Result<Value, EditorError> {
        self.change(MODULE_LUA, module_args(module, function, args))
            .await
    }

    /// Calls `require(module)[function](...)` as [`Editor::draw`] does.
    ///
    /// # Errors
    /// As [`Editor::draw`].
    pub async fn draw_fn(
        &self,
        module: &str,
        function: &str,
        args: Vec<Value>,
    ) -> Result<Value, EditorError> {
        self.draw(MODULE_LUA, module_args(module, function, args))
            .await
    }

    /// Asks what Neovim is doing; it answers even while it waits for a key.
    ///
    /// # Errors
    /// As [`Editor::call`], or `Shape`.
    pub async fn mode(&self) -> Result<Mode, EditorError> {
        let answer = self.call("nvim_get_mode", Vec::new()).await?;
        let field = |name: &str| {
            answer.as_map().and_then(|map| {
                map.iter()
                    .find(|(key, _)| key.as_str() == Some(name))
                    .map(|(_, value)| value)
            })
        };
        let mode = field("mode").and_then(Value::as_str);
        let blocking = field("blocking").and_then(Value::as_bool);
        match (mode, blocking) {
            (Some(mode), Some(blocking)) => Ok(Mode {
                mode: mode.to_owned(),
                blocking,
            }),
            _ => Err(shape_error("nvim_get_mode", &answer)),
        }
    }

    /// Reads lines `first..last` of a loaded buffer (`last` `None`: to its end), all of one `changedtick`.
    ///
    /// # Errors
    /// As [`Editor::call`], or `Restless` when the text would not stand still.
    pub async fn read_lines(
        &self,
        buffer: i64,
        first: usize,
        last: Option<usize>,
    ) -> Result<Lines, EditorError> {
        for _ in 0..READ_ROUNDS {
            if let Some(lines) = self.read_once(buffer, first, last).await? {
                return Ok(lines);
            }
        }
        Err(EditorError::Restless { buffer })
    }

    /// One attempt; `None` when the tick moved between two slices.
    async fn read_once(
        &self,
        buffer: i64,
        first: usize,
        last: Option<usize>,
    ) -> Result<Option<Lines>, EditorError> {
        let last = last.map_or(-1, |last| i64::try_from(last).unwrap_or(i64::MAX));
        let mut next = i64::try_from(first).unwrap_or(i64::MAX);
        let mut out: Option<Lines> = None;
        loop {
            let args = [buffer, next, last, SLICE_LINES, SLICE_BYTES].map(Value::from);
            let answer = self.change(SLICE_LUA, args.to_vec()).await?;
            let Some(slice) = Slice::parse(&answer) else {
                return Err(shape_error("read buffer", &answer));
            };
            let lines = out.get_or_insert_with(|| Lines {
                changedtick: slice.changedtick,
                lines: Vec::new(),
            });
            if lines.changedtick != slice.changedtick {
                return Ok(None);
            }
            lines.lines.extend(slice.lines);
            match slice.next {
                Some(reached) => next = reached,
                None => return Ok(out),
            }
        }
    }
}

struct Slice {
    changedtick: i64,
    lines: Vec<Vec<u8>>,
    next: Option<i64>,
}

impl Slice {
    fn parse(answer: &Value) -> Option<Self> {
        let [tick, lines, next] = answer.as_array()?.as_slice() else {
            return None;
        };
        let lines = lines.as_array()?.iter();
        Some(Self {
            changedtick: tick.as_i64()?,
            lines: lines
                .map(|line| line.as_slice().map(<[u8]>::to_vec))
                .collect::<Option<_>>()?,
            next: Some(next.as_i64()?).filter(|next| *next >= 0),
        })
    }
}

const MODULE_LUA: &str = "
local module, name = ...
return require(module)[name](select(3, ...))
";

fn module_args(module: &str, function: &str, args: Vec<Value>) -> Vec<Value> {
    let mut all = vec![Value::from(module), Value::from(function)];
    all.extend(args);
    all
}

fn closed_error(op: String, reason: &str) -> EditorError {
    EditorError::Closed {
        op,
        reason: reason.to_owned(),
    }
}

fn shape_error(op: &str, got: &Value) -> EditorError {
    EditorError::Shape {
        op: op.to_owned(),
        got: got.to_string().chars().take(80).collect(),
    }
}
