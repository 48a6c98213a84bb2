//! One running command: starting it, its output as it comes, its end.
//!
//! Both streams go into one pipe, so output comes in exactly the order in which it was written.
//! [`Execution::next`] gives it and ends with [`Step::Ended`]. It may be dropped and called
//! again at any time; a dropped [`Execution`] ends the command's whole tree.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as SyncSocket;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::guard::{self, Order, Report};
use crate::agent::{ErrorClass, ToolError};

/// How long after the shell's end silent pipes are still listened to.
const GRACE: Duration = Duration::from_millis(100);
/// How long a killed tree may take to be gone before the answer is given anyway.
const KILL_WAIT: Duration = Duration::from_secs(3);
/// Bytes read at a time.
const PIECE: usize = 64 * 1024;

/// What to run.
pub(super) struct Spec {
    pub(super) shell: PathBuf,
    pub(super) script: String,
    pub(super) cwd: PathBuf,
    pub(super) set_env: Vec<(OsString, OsString)>,
    pub(super) remove_env: Vec<&'static str>,
    pub(super) guard: Option<PathBuf>,
    pub(super) timeout: Option<Duration>,
}

/// What happened next.
#[derive(Debug)]
pub(super) enum Step {
    Output(Vec<u8>),
    Ended(End),
    /// The shell never ran; says why.
    NotStarted(ToolError),
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The shell ended by itself.
    Exited(i32),
    /// The time was up.
    TimedOut(Option<Earlier>),
    /// The run was aborted.
    Aborted,
}

/// The shell had ended before the time was up; others kept the pipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Earlier {
    pub(super) code: i32,
    pub(super) after: Duration,
}

/// A running command.
pub(super) struct Execution {
    shell: PathBuf,
    child: Child,
    control: Control,
    pipe: Pipe,
    cancel: CancellationToken,
    started: Instant,
    deadline: Option<Instant>,
    exited: Option<Earlier>,
    last_output: Instant,
    /// Set once everything was told to end.
    killed: Option<End>,
    kill_deadline: Option<Instant>,
    settled: bool,
}

/// How the tree is told to end and how its end is learnt.
enum Control {
    Guard {
        socket: UnixStream,
        said: Vec<u8>,
        open: bool,
    },
    /// No guard: the shell itself, leader of its group.
    Group(Option<Pid>),
}

struct Pipe {
    source: Option<Receiver>,
    buffer: Vec<u8>,
}

impl Pipe {
    /// The next piece; `None` once at the end of the stream. Never ready after that.
    async fn next(&mut self) -> Option<Vec<u8>> {
        let Some(source) = &mut self.source else {
            return std::future::pending().await;
        };
        // `read_buf` keeps what it read in the buffer or has read nothing, so this may be dropped.
        match source.read_buf(&mut self.buffer).await {
            Ok(length) if length > 0 => Some(std::mem::replace(
                &mut self.buffer,
                Vec::with_capacity(PIECE),
            )),
            _ => {
                self.source = None;
                None
            }
        }
    }
}

/// The process to start: the guard with its end of a socket and the order for it, or the shell itself.
fn command(spec: &Spec) -> io::Result<(Command, Option<(SyncSocket, String)>)> {
    let args = vec!["-c".to_owned(), spec.script.clone()];
    let Some(program) = &spec.guard else {
        let mut command = Command::new(&spec.shell);
        command.args(args).stdin(Stdio::null()).process_group(0);
        return Ok((command, None));
    };
    let (ours, theirs) = SyncSocket::pair()?;
    let mut command = Command::new(as_started(program));
    command
        .arg0(program)
        .arg(guard::ARGUMENT)
        .stdin(Stdio::from(OwnedFd::from(theirs)));
    let order = Order {
        program: spec.shell.clone(),
        args,
    };
    Ok((command, Some((ours, serde_json::to_string(&order)?))))
}

impl Execution {
    /// Starts the command.
    ///
    /// # Errors
    /// `Other` when the process cannot be started; shell and directory were checked before.
    pub(super) fn start(spec: Spec, cancel: CancellationToken) -> Result<Self, ToolError> {
        let shell = spec.shell.clone();
        Self::spawn(spec, cancel).map_err(|error| {
            let text = format!("cannot start {}: {error}", shell.display());
            ToolError::new(ErrorClass::Other, text)
        })
    }

    fn spawn(spec: Spec, cancel: CancellationToken) -> io::Result<Self> {
        let (mut command, order) = command(&spec)?;
        let (reader, writer) = io::pipe()?;
        let second = writer.try_clone()?;
        command.current_dir(&spec.cwd).stdout(writer).stderr(second);
        for name in &spec.remove_env {
            command.env_remove(name);
        }
        command.envs(spec.set_env.iter().map(|(name, value)| (name, value)));
        let child = command.spawn()?;
        // It holds our copies of the writing end; the pipe could not end before they are closed.
        drop(command);
        let source = Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let control = match order {
            Some((socket, order)) => {
                send_order(&socket, &order)?;
                Control::Guard {
                    socket: UnixStream::from_std(socket)?,
                    said: Vec::new(),
                    open: true,
                }
            }
            None => Control::Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed()))),
        };
        let now = Instant::now();
        let deadline = spec.timeout.map(|timeout| now + timeout);
        Ok(Self {
            shell: spec.shell,
            pipe: Pipe {
                source: Some(source),
                buffer: Vec::with_capacity(PIECE),
            },
            child,
            control,
            cancel,
            started: now,
            deadline,
            exited: None,
            last_output: now,
            killed: None,
            kill_deadline: None,
            settled: false,
        })
    }

    /// Waits for the next thing to happen. After [`Step::Ended`] nothing runs on our account.
    pub(super) async fn next(&mut self) -> Step {
        loop {
            if let Some(end) = self.end() {
                self.settle().await;
                return Step::Ended(end);
            }
            let grace = self.grace();
            let cancelled = self.cancel.clone();
            tokio::select! {
                biased;
                () = cancelled.cancelled(), if self.killed.is_none() => self.kill(End::Aborted).await,
                () = at(self.deadline), if self.killed.is_none() => {
                    self.kill(End::TimedOut(self.exited)).await;
                }
                // Before the pipe: one that is always full must not hide the end of the shell.
                exited = self.control.exited(&mut self.child), if self.exited.is_none() => match exited {
                    Ok(code) => {
                        self.exited = Some(Earlier { code, after: self.started.elapsed() });
                        self.last_output = Instant::now();
                    }
                    Err(why) => {
                        self.settle().await;
                        return Step::NotStarted(self.not_started(&why));
                    }
                },
                piece = self.pipe.next() => if let Some(piece) = self.arrived(piece) {
                    return Step::Output(piece);
                },
                () = at(grace) => self.pipe.source = None,
            }
        }
    }

    fn not_started(&self, why: &str) -> ToolError {
        let shell = self.shell.display();
        ToolError::new(ErrorClass::Other, format!("cannot start {shell}: {why}"))
    }

    fn arrived(&mut self, piece: Option<Vec<u8>>) -> Option<Vec<u8>> {
        self.last_output = Instant::now();
        piece
    }

    /// When silent pipes are given up.
    fn grace(&self) -> Option<Instant> {
        let quiet = self.exited.map(|_| self.last_output + GRACE);
        match (quiet, self.kill_deadline) {
            (Some(quiet), Some(late)) => Some(quiet.min(late)),
            (quiet, late) => quiet.or(late),
        }
    }

    /// How it ended, once the shell is gone and nothing more is awaited from the pipes.
    fn end(&self) -> Option<End> {
        if self.pipe.source.is_some() {
            return None;
        }
        match (self.killed, self.exited) {
            (Some(End::TimedOut(_)), _) => self.killed,
            (Some(end), _) => Some(end),
            (None, Some(shell)) => Some(End::Exited(shell.code)),
            (None, None) => None,
        }
    }

    async fn kill(&mut self, why: End) {
        self.killed = Some(why);
        self.kill_deadline = Some(Instant::now() + KILL_WAIT);
        match &mut self.control {
            Control::Guard { socket, .. } => {
                // A guard that is gone has taken the tree along or lost it; there is nothing else to try.
                let _sent = socket.write_all(&[guard::KILL]).await;
            }
            Control::Group(leader) => kill_group(*leader),
        }
    }

    /// Lets go of what still runs after a normal end, and reaps our own child.
    async fn settle(&mut self) {
        self.settled = true;
        if self.killed.is_none()
            && let Control::Guard { socket, .. } = &mut self.control
        {
            // A guard that is gone needs no release.
            let _sent = socket.write_all(&[guard::RELEASE]).await;
        }
        // The runtime reaps it later if it takes longer.
        let _reaped = tokio::time::timeout(KILL_WAIT, self.child.wait()).await;
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        // Closing the socket makes a guard end everything; without one it is done here.
        if let (false, Control::Group(leader)) = (self.settled, &self.control) {
            kill_group(*leader);
        }
    }
}

impl Control {
    /// Waits for the end of the shell and returns its code. May be dropped and called again.
    async fn exited(&mut self, child: &mut Child) -> Result<i32, String> {
        if let Self::Guard { socket, said, open } = self {
            while *open {
                match socket.read_buf(said).await {
                    Ok(length) if length > 0 => {}
                    _ => *open = false,
                }
                let line = String::from_utf8_lossy(said);
                match line.contains('\n').then(|| Report::parse(&line)).flatten() {
                    Some(Report::Exit(code)) => return Ok(code),
                    Some(Report::Failed(why)) => return Err(why),
                    None => {}
                }
            }
        }
        Ok(child.wait().await.map_or(1, code_of))
    }
}

/// The running binary as it was started: an upgrade may have replaced or removed its file since.
#[cfg(target_os = "linux")]
fn as_started(guard: &Path) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let name = own.to_string_lossy();
    if Path::new(name.trim_end_matches(" (deleted)")) == guard {
        PathBuf::from("/proc/self/exe")
    } else {
        guard.to_owned()
    }
}

#[cfg(not(target_os = "linux"))]
fn as_started(guard: &Path) -> PathBuf {
    guard.to_owned()
}

fn code_of(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1)
}

fn kill_group(leader: Option<Pid>) {
    if let Some(leader) = leader {
        // Stopped first: else the shell may start the next command of a list between two kills. An empty group is gone.
        let _stopped = rustix::process::kill_process_group(leader, Signal::STOP);
        let _killed = rustix::process::kill_process_group(leader, Signal::KILL);
    }
}

/// Sends the order while the socket still blocks: the guard reads it at once.
fn send_order(mut socket: &SyncSocket, order: &str) -> io::Result<()> {
    use std::io::Write as _;
    socket.write_all(order.as_bytes())?;
    socket.write_all(b"\n")?;
    socket.set_nonblocking(true)
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}
