//! From arguments to a mode, and from its end to an exit code.

use std::fs::File;
use std::io::{IsTerminal as _, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::input;
use super::say::Complaint;
use super::start::Startup;
use super::{Action, Cli, Mode, docs, say};
use pi_nvim::modes::{print, rpc};
use pi_nvim::session::Runtime;

/// Exit code of a process that SIGTERM ended.
const TERMINATED: u8 = 143;
/// Exit code of a process that SIGHUP ended.
const HUNG_UP: u8 = 129;
/// Exit code of a process that SIGINT ended (Ctrl-C).
const INTERRUPTED: u8 = 130;

/// Runs what the arguments ask for.
pub(crate) fn run(cli: Cli) -> ExitCode {
    for warning in &cli.warnings {
        say::warning(warning);
    }
    if let Some(code) = act(&cli) {
        return code;
    }
    let mode = effective_mode(&cli);
    // Before any thread: stray prints must never reach a protocol.
    let wire = match mode {
        Mode::Rpc | Mode::Json => match take_stdout() {
            Ok(wire) => Some(wire),
            Err(error) => {
                say::error(&format!("take over stdout: {error}"));
                return ExitCode::FAILURE;
            }
        },
        _ => None,
    };
    // One thread: what blocks has threads of its own, and a wake-up of another one costs more than most steps of a turn.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let code = match runtime {
        Ok(runtime) => runtime.block_on(run_mode(cli, mode, wire)),
        Err(error) => {
            say::error(&format!("start the async runtime: {error}"));
            1
        }
    };
    // Not by returning: a thread may still be blocked in a read of stdin.
    std::process::exit(i32::from(code));
}

/// Actions that need no session; `None` for those that do.
fn act(cli: &Cli) -> Option<ExitCode> {
    match cli.action.as_ref()? {
        Action::Help => say::out(&docs::help()),
        Action::Version => say::out(&docs::version(cli.verbose)),
        Action::Completions(shell) => say::out(&docs::completions(shell)),
        Action::Man => say::out(&docs::man()),
        Action::ListModels(_) | Action::AuthCheck | Action::Export(_) => {
            return Some(super::actions::run(cli));
        }
    }
    Some(ExitCode::SUCCESS)
}

fn effective_mode(cli: &Cli) -> Mode {
    match cli.mode {
        Mode::Auto if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() => {
            Mode::Print
        }
        mode => mode,
    }
}

/// Keeps fd 1 for the protocol and points fd 1 at stderr.
fn take_stdout() -> std::io::Result<File> {
    // Closed in every child: a command that goes on in the background must not hold the protocol channel open.
    let wire: OwnedFd = std::io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(std::io::stderr())?;
    Ok(File::from(wire))
}

async fn run_mode(cli: Cli, mode: Mode, wire: Option<File>) -> u8 {
    let result = match (mode, wire) {
        (Mode::Auto | Mode::Nvim, _) => Err(Complaint::from(
            "start Neovim and type `:Pi`, or ask one question with `pi-nvim -p \"...\"` (see --help)"
                .to_owned(),
        )),
        (mode, wire) => serve(cli, mode, wire).await,
    };
    match result {
        Ok(code) => code,
        Err(complaint) => {
            complaint.say();
            1
        }
    }
}

async fn serve(cli: Cli, mode: Mode, wire: Option<File>) -> Result<u8, Complaint> {
    let mut signals = Signals::new()?;
    let prompts = match mode {
        Mode::Rpc => Vec::new(),
        _ => input::prompts(&cli, piped_stdin()?)?,
    };
    let startup = Startup::new(cli)?;
    let runtime = startup.open().await?;
    let work = async {
        match (mode, wire) {
            (Mode::Rpc, Some(wire)) => {
                let source = rpc::Source::new(std::io::stdin());
                let sink = rpc::Sink::new(wire);
                let served = rpc::serve(runtime.clone(), source, sink, say::warning).await;
                Ok(u8::from(!matches!(served, Ok(rpc::Ended::Input))))
            }
            (Mode::Json, Some(wire)) => {
                let sink = rpc::Sink::new(wire);
                let ran = print::json(&runtime, prompts, sink, say::warning).await;
                ran.map(|()| 0).map_err(Complaint::from)
            }
            _ => print_text(&runtime, prompts).await,
        }
    };
    let code = tokio::select! {
        biased;
        code = signals.first() => {
            end(&runtime, &mut signals).await;
            if mode == Mode::Print {
                say::line("Request was aborted");
            }
            return Ok(code);
        }
        done = work => done?,
    };
    end(&runtime, &mut signals).await;
    Ok(code)
}

async fn print_text(runtime: &Runtime, prompts: Vec<print::Prompt>) -> Result<u8, Complaint> {
    let printed = print::print(runtime, prompts, say::warning).await?;
    say::out(&printed.out);
    if let Some(line) = &printed.err {
        say::line(line);
    }
    Ok(u8::from(!printed.success))
}

/// Shuts the session down; a second signal ends the wait for it.
async fn end(runtime: &Runtime, signals: &mut Signals) {
    tokio::select! {
        biased;
        () = runtime.shutdown() => {}
        _ = signals.first() => {}
    }
}

/// The whole of stdin when it is no terminal.
fn piped_stdin() -> Result<Option<String>, String> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    stdin
        .lock()
        .read_to_end(&mut bytes)
        .map_err(|error| format!("read stdin: {error}"))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Signals that ask the process to end.
struct Signals {
    terminate: Signal,
    hang_up: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, String> {
        let listen = |kind| signal(kind).map_err(|error| format!("listen for signals: {error}"));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one and returns the exit code it asks for.
    async fn first(&mut self) -> u8 {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => TERMINATED,
            _ = self.hang_up.recv() => HUNG_UP,
            _ = self.interrupt.recv() => INTERRUPTED,
        }
    }
}
