//! The guard: a tiny process between core and a command, so that the command's whole tree ends with core.
//!
//! Core starts its own binary as `pi-nvim --guard` with one end of a socket pair as standard input. The guard reads one
//! line of JSON (what to run), starts it in a group of its own and says `exit CODE` when it ended. One byte ends the
//! guard: [`RELEASE`] leaves background processes alone, [`KILL`] ends the whole tree. When core is gone, however it
//! ended, the socket closes, which means the same as [`KILL`].
//!
//! The guard is the leader of a new session without a terminal, so nothing below it can open `/dev/tty`. On Linux it
//! adopts orphans of the tree, so a process that left the group or daemonised itself is still found and ended.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

/// The argument that makes the binary a guard.
pub const ARGUMENT: &str = "--guard";

/// Tells the guard to end and leave what still runs alone.
pub(super) const RELEASE: u8 = b'r';
/// Tells the guard to end everything.
pub(super) const KILL: u8 = b'k';

/// What to run. It travels over the socket and not as arguments: `pkill -f` in a script must not find the guard.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
}

/// What the guard says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The shell ended.
    Exit(i32),
    /// The shell could not be started.
    Failed(String),
}

impl Report {
    /// Reads a line of the guard.
    pub(super) fn parse(line: &str) -> Option<Self> {
        match line.trim_end().split_once(' ')? {
            ("exit", code) => Some(Self::Exit(code.parse().ok()?)),
            ("failed", why) => Some(Self::Failed(why.to_owned())),
            _ => None,
        }
    }

    fn line(&self) -> String {
        match self {
            Self::Exit(code) => format!("exit {code}\n"),
            Self::Failed(why) => format!("failed {}\n", why.replace('\n', " ")),
        }
    }
}

/// Runs as the guard when the arguments say so; call this first in `main`, before any thread exists.
pub fn run_if_asked() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != ARGUMENT || args.next().is_some() {
        return None;
    }
    // Whoever started it sees the closed socket; there is nobody to tell more.
    Some(run().unwrap_or(ExitCode::FAILURE))
}

fn run() -> io::Result<ExitCode> {
    let stdin = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let socket = UnixStream::from(stdin);
    // Fails only for a group leader, which then has its own session or keeps the one it has.
    let _session = rustix::process::setsid();
    adopt_orphans();
    let mut control = BufReader::new(socket.try_clone()?);
    let mut line = String::new();
    control.read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line)?;
    let spawned = Command::new(&order.program)
        .args(&order.args)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn();
    // The guard must not hold the command's pipes open.
    let null: OwnedFd = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?
        .into();
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let child = match spawned {
        Ok(child) => child,
        Err(error) => {
            tell(&socket, &Report::Failed(error.to_string()));
            return Ok(ExitCode::FAILURE);
        }
    };
    let Some(leader) = Pid::from_raw(child.id().cast_signed()) else {
        return Ok(ExitCode::FAILURE);
    };
    let reaped = Arc::new(AtomicBool::new(false));
    let listener = {
        let reaped = Arc::clone(&reaped);
        thread::spawn(move || listen(control, leader, &reaped))
    };
    reap(&socket, leader, &reaped);
    // Nothing is left to wait for; core decides when it is over. The listener ends the process itself.
    let _ended = listener.join();
    Ok(ExitCode::SUCCESS)
}

/// Waits for core's word and ends the process.
fn listen(mut control: BufReader<UnixStream>, leader: Pid, reaped: &AtomicBool) {
    let mut byte = [0];
    let word = control.read_exact(&mut byte).map(|()| byte);
    if matches!(word, Ok([RELEASE])) {
        std::process::exit(0);
    }
    kill_tree(leader, reaped);
    std::process::exit(128 + Signal::KILL.as_raw());
}

/// Reaps the shell and adopted orphans until none is left.
fn reap(socket: &UnixStream, leader: Pid, reaped: &AtomicBool) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == leader => {
                reaped.store(true, Ordering::SeqCst);
                tell(socket, &Report::Exit(exit_code(status)));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn tell(mut socket: &UnixStream, report: &Report) {
    // When core is gone the listener ends everything.
    let _sent = socket.write_all(report.line().as_bytes());
}

fn exit_code(status: WaitStatus) -> i32 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    }
}

#[cfg(target_os = "linux")]
fn adopt_orphans() {
    // Without it only processes that stay in the group are ended.
    let _adopted = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

#[cfg(not(target_os = "linux"))]
fn adopt_orphans() {}

/// Ends the shell's group at one stroke, then whatever else descends from the guard.
#[cfg(target_os = "linux")]
fn kill_tree(leader: Pid, reaped: &AtomicBool) {
    /// More rounds than any tree needs; a bound, so that the guard itself always ends.
    const ROUNDS: usize = 500;
    if !reaped.load(Ordering::SeqCst) {
        // An empty group is gone already.
        let _gone = rustix::process::kill_process_group(leader, Signal::KILL);
    }
    for _ in 0..ROUNDS {
        let descendants = tree::descendants(rustix::process::getpid());
        if descendants.is_empty() {
            return;
        }
        for pid in descendants {
            // It may have ended meanwhile.
            let _gone = rustix::process::kill_process(pid, Signal::KILL);
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Ends the shell's group. It is stopped first: else the shell may start the next command of a list between two kills.
#[cfg(not(target_os = "linux"))]
fn kill_tree(leader: Pid, _reaped: &AtomicBool) {
    // An empty group is gone already.
    let _stopped = rustix::process::kill_process_group(leader, Signal::STOP);
    let _gone = rustix::process::kill_process_group(leader, Signal::KILL);
}

#[cfg(target_os = "linux")]
mod tree {
    use std::collections::HashMap;

    use rustix::process::Pid;

    /// Returns all live descendants of `root`.
    pub(super) fn descendants(root: Pid) -> Vec<Pid> {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        let Ok(processes) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        for process in processes.flatten() {
            let pid = process
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let Some(pid) = pid
                && let Ok(stat) = std::fs::read_to_string(process.path().join("stat"))
                && let Some(parent) = live_parent(&stat)
            {
                children.entry(parent).or_default().push(pid);
            }
        }
        let mut found = Vec::new();
        let mut open = vec![root.as_raw_nonzero().get()];
        while let Some(parent) = open.pop() {
            for child in children.remove(&parent).unwrap_or_default() {
                open.push(child);
                found.extend(Pid::from_raw(child));
            }
        }
        found
    }

    /// The parent in a line of `/proc/PID/stat`; `None` for what has ended and only waits to be reaped.
    fn live_parent(stat: &str) -> Option<i32> {
        // The name in parentheses may hold anything, so the fields are counted from its end.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(parent)
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn names_with_parentheses_are_read() {
            assert_eq!(super::live_parent("12 (a) b) S 7 12 12 0"), Some(7));
            assert_eq!(super::live_parent("12 (a) Z 7 12 12 0"), None);
        }
    }
}
