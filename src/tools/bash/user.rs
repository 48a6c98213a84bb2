//! Commands a person types after `!`: the same spawn, no timeout, no session variables, output made safe to display.

use std::path::Path;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::ansi::Cleaner;
use super::output::{FullOutput, Tail};
use super::process::{End, Execution, Step};
use crate::agent::ToolError;
use crate::tools::ToolEnv;
use crate::tools::decode::StreamDecoder;
use crate::tools::truncate::{self, MAX_BYTES, MAX_LINES};

/// Cleaned text kept in memory.
const KEEP: usize = 100 * 1024;

/// What became of a person's command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserOutput {
    /// The end of the cleaned output.
    pub output: String,
    /// Exit code; absent when it was cancelled.
    pub exit_code: Option<i32>,
    /// Ended by the person.
    pub cancelled: bool,
    /// `output` is not all of it.
    pub truncated: bool,
    /// File with all of it, when it was long.
    pub full_output_path: Option<String>,
}

/// Runs a command. `show` gets cleaned text as it comes; while it is full the command waits, so a slow reader slows the
/// command and memory stays bounded. A closed `show` is ignored.
///
/// # Errors
/// `ShellMissing`, `CwdMissing`, or why the shell could not be started.
pub async fn user_command(
    env: &ToolEnv,
    command: &str,
    cwd: &Path,
    cancel: CancellationToken,
    show: mpsc::Sender<String>,
) -> Result<UserOutput, ToolError> {
    let spec = super::spec(&env.options.get(), command, cwd, Vec::new(), None)?;
    let mut execution = Execution::start(spec, cancel.clone())?;
    let mut output = Cleaned::new(&env.options.get().tmp_dir);
    loop {
        let fresh = match execution.next().await {
            Step::Output(piece) => output.feed(&piece),
            Step::Ended(end) => {
                let (rest, result) = output.finish(end);
                tell(&show, rest, &cancel).await;
                return Ok(result);
            }
            Step::NotStarted(error) => return Err(error),
        };
        tell(&show, fresh, &cancel).await;
    }
}

/// Hands text on; an abort ends the wait for a slow reader.
async fn tell(show: &mpsc::Sender<String>, text: String, cancel: &CancellationToken) {
    if text.is_empty() {
        return;
    }
    tokio::select! {
        biased;
        // Nobody looks any more: the result still tells.
        _closed = show.send(text) => {}
        // The text stays in the result; it is only not shown while running.
        () = cancel.cancelled() => {}
    }
}

struct Cleaned {
    decoder: StreamDecoder,
    cleaner: Cleaner,
    tail: Tail,
    totals: truncate::Totals,
    raw_bytes: usize,
    full: FullOutput,
}

impl Cleaned {
    fn new(tmp: &Path) -> Self {
        Self {
            decoder: StreamDecoder::default(),
            cleaner: Cleaner::default(),
            tail: Tail::new(KEEP, 2 * KEEP),
            totals: truncate::Totals::default(),
            raw_bytes: 0,
            full: FullOutput::new(tmp),
        }
    }

    /// Takes a piece and returns what of it is to be shown.
    fn feed(&mut self, piece: &[u8]) -> String {
        self.raw_bytes += piece.len();
        let (mut text, mut clean) = (String::new(), String::new());
        self.decoder.feed(piece, &mut text);
        self.cleaner.feed(&text, &mut clean);
        self.take(&clean);
        clean
    }

    fn take(&mut self, clean: &str) {
        if !clean.is_empty() {
            self.tail.push(clean);
            self.full.push(clean.as_bytes());
            self.totals.bytes += clean.len();
            self.totals.lines += memchr::memchr_iter(b'\n', clean.as_bytes()).count();
        }
        if self.raw_bytes > MAX_BYTES || self.totals.lines > MAX_LINES {
            self.full.open();
        }
    }

    fn finish(mut self, end: End) -> (String, UserOutput) {
        let (mut text, mut clean) = (String::new(), String::new());
        self.decoder.finish(&mut text);
        self.cleaner.feed(&text, &mut clean);
        self.cleaner.finish(&mut clean);
        self.take(&clean);
        let kept = self.tail.text();
        let unterminated = !kept.is_empty() && !kept.ends_with('\n');
        self.totals.lines += usize::from(unterminated);
        let cut = truncate::tail_of(kept, self.totals, MAX_LINES, MAX_BYTES);
        let truncated = cut.truncated() || self.tail.dropped;
        if truncated {
            self.full.open();
        }
        self.full.close();
        let exit_code = match end {
            End::Exited(code) => Some(code),
            End::TimedOut(_) | End::Aborted => None,
        };
        let result = UserOutput {
            output: cut.content,
            exit_code,
            cancelled: end == End::Aborted,
            truncated,
            full_output_path: self.full.path().map(str::to_owned),
        };
        (clean, result)
    }
}
