//! `bash`: runs a script, streams its output, and makes sure that nothing it started outlives its reason.
//!
//! `bash/process.rs` runs one command under `bash/guard.rs`; `bash/output.rs` keeps what is shown and saves the rest;
//! `bash/user.rs` is the path of commands a person types. A command has no terminal and no input, so pagers and password
//! prompts end at once instead of waiting, and programs that call an editor get one that changes nothing.

pub mod ansi;
pub mod guard;
mod output;
mod process;
mod user;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until};

use super::declare::{self, BuiltIn, Sampling, declaration};
use super::{ToolEnv, ToolOptions, truncate};
use crate::agent::{
    ErrorClass, SessionFacts, Sight, ToolContext, ToolError, ToolOutput, ToolUpdate,
};
use crate::ai::Block;
use crate::review::ApprovalRequest;
use output::Output;
use process::{Earlier, End, Execution, Spec, Step};

pub use user::{UserOutput, user_command};

/// Longest timeout in seconds: what a timer of the reference can hold.
const MAX_TIMEOUT: f64 = 2_147_483.647;
/// Least time between two updates.
const THROTTLE: Duration = Duration::from_millis(100);

/// Variables that tell a command about its session; never inherited from an outer one.
const SESSION_VARIABLES: [&str; 5] = [
    "PI_SESSION_ID",
    "PI_SESSION_FILE",
    "PI_PROVIDER",
    "PI_MODEL",
    "PI_REASONING_LEVEL",
];

/// Programs that open an editor get one that takes the text as it is: without a terminal a real one waits for keys that
/// never come (`git commit`, `git rebase --continue`).
const EDITOR_VARIABLES: [&str; 4] = ["GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "VISUAL", "EDITOR"];
const NO_EDITOR: &str = "true";

pub(super) const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "command": {"type": "string", "description": "Script for bash"},
    "timeout": {"type": "number", "description": "Seconds after which it is stopped; no limit when left out"}
  },
  "required": ["command"]
}"#;

#[derive(Deserialize)]
pub(super) struct Input {
    command: String,
    timeout: Option<f64>,
}

/// Makes the tool.
pub(super) fn tool(env: Arc<ToolEnv>) -> BuiltIn {
    let description = "Run a bash script in the working directory. Gives stdout and stderr together, the last 2000 lines \
         or 50KB of it, whichever is less; longer output is saved to a file whose name is given. There is no terminal \
         and no input. Set `timeout` for commands that may not end.";
    BuiltIn {
        env,
        declaration: declaration(
            "bash",
            description.to_owned(),
            SCHEMA,
            Sampling::PreferStrict,
        ),
        snippet: Some("Run bash scripts"),
        guidelines: &[
            "In bash, PI_MODEL, PI_PROVIDER, PI_REASONING_LEVEL, PI_SESSION_ID and PI_SESSION_FILE tell which model and \
             session you are.",
        ],
        sight: Sight::Sees,
        prepare: |arguments| arguments,
        start,
    }
}

fn start(
    env: Arc<ToolEnv>,
    arguments: Value,
    cx: ToolContext,
) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
    Box::pin(async move {
        let input: Input = declare::decode("bash", arguments)?;
        let timeout = input.timeout.map(checked_timeout).transpose()?;
        let request = ApprovalRequest {
            session: cx.session.session_id.clone(),
            call_id: cx.call_id.clone(),
            tool: "bash".to_owned(),
            command: input.command.clone(),
        };
        env.gate.approve(request, cx.cancel.clone()).await?;
        if cx.cancel.is_cancelled() {
            return Err(ToolError::aborted());
        }
        let variables = session_variables(&cx.session);
        let spec = spec(
            &env.options.get(),
            &input.command,
            &cx.cwd,
            variables,
            timeout,
        )?;
        (cx.updates)(ToolUpdate::default());
        let started = Instant::now();
        let watch = env.gate.before_command().await;
        let ended = run(&env, spec, &cx).await;
        // Also after an abort: what was changed is changed.
        if let Some(watch) = watch {
            let session = &cx.session.session_id;
            env.gate.after_command(watch, session, &cx.call_id).await;
        }
        let (output, end) = ended?;
        finished(output, end, input.timeout, started.elapsed())
    })
}

async fn run(env: &ToolEnv, spec: Spec, cx: &ToolContext) -> Result<(Output, End), ToolError> {
    let execution = Execution::start(spec, cx.cancel.clone())?;
    let mut output = Output::new(&env.options.get().tmp_dir);
    let end = follow(execution, &mut output, cx).await?;
    output.finish();
    Ok((output, end))
}

fn checked_timeout(seconds: f64) -> Result<Duration, ToolError> {
    if seconds.is_finite() && seconds > 0.0 && seconds <= MAX_TIMEOUT {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(ToolError::new(
        ErrorClass::InvalidTimeout,
        format!("timeout must be more than 0 and at most {MAX_TIMEOUT} seconds, got {seconds}"),
    ))
}

/// Finds the shell and puts the pieces of a command together.
fn spec(
    options: &ToolOptions,
    command: &str,
    cwd: &Path,
    variables: Vec<(OsString, OsString)>,
    timeout: Option<Duration>,
) -> Result<Spec, ToolError> {
    let shell = shell(options)?;
    if !cwd.is_dir() {
        return Err(ToolError::new(
            ErrorClass::CwdMissing,
            format!("the working directory {} does not exist", cwd.display()),
        ));
    }
    let script = match &options.command_prefix {
        Some(prefix) => format!("{prefix}\n{command}"),
        None => command.to_owned(),
    };
    if script.contains('\0') {
        let text = "the command holds a NUL byte, which no shell can take".to_owned();
        return Err(ToolError::new(ErrorClass::Other, text));
    }
    let extra = options
        .extra_env
        .iter()
        .filter(|(name, _)| !SESSION_VARIABLES.contains(&name.as_str()));
    let editors = EDITOR_VARIABLES.map(|name| (name.into(), NO_EDITOR.into()));
    let mut set_env: Vec<(OsString, OsString)> = editors.into();
    set_env.extend(extra.map(|(name, value)| (name.into(), value.into())));
    set_env.extend(search_path(options));
    set_env.extend(variables);
    Ok(Spec {
        shell,
        script,
        cwd: cwd.to_owned(),
        set_env,
        remove_env: SESSION_VARIABLES.to_vec(),
        guard: options.guard.clone(),
        timeout,
    })
}

fn shell(options: &ToolOptions) -> Result<PathBuf, ToolError> {
    if let Some(shell) = &options.shell_path {
        if shell.exists() {
            return Ok(shell.clone());
        }
        return Err(ToolError::new(
            ErrorClass::ShellMissing,
            format!(
                "the shell {} does not exist; check the setting shellPath",
                shell.display()
            ),
        ));
    }
    let usual = PathBuf::from("/bin/bash");
    if usual.exists() {
        return Ok(usual);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join("bash"))
        .find(|bash| bash.is_file());
    Ok(found.unwrap_or_else(|| PathBuf::from("sh")))
}

/// `PATH` with the agent's own directory first, when that is not in it yet.
fn search_path(options: &ToolOptions) -> Option<(OsString, OsString)> {
    let bin = options.agent_bin_dir.as_ref()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    if dirs.contains(bin) {
        return None;
    }
    dirs.insert(0, bin.clone());
    Some(("PATH".into(), std::env::join_paths(dirs).ok()?))
}

fn session_variables(session: &SessionFacts) -> Vec<(OsString, OsString)> {
    let model = session.model.as_deref();
    let values: [Option<OsString>; 5] = [
        Some(session.session_id.clone().into()).filter(|id: &OsString| !id.is_empty()),
        session.session_file.clone().map(OsString::from),
        model.map(|model| model.provider.clone().into()),
        model.map(|model| model.id.clone().into()),
        session.thinking_level.clone().map(OsString::from),
    ];
    let pairs = SESSION_VARIABLES.iter().zip(values);
    pairs
        .filter_map(|(name, value)| Some((OsString::from(name), value?)))
        .collect()
}

/// Collects output until the end; tells how it stands at most every [`THROTTLE`].
async fn follow(
    mut execution: Execution,
    output: &mut Output,
    cx: &ToolContext,
) -> Result<End, ToolError> {
    let mut due: Option<Instant> = None;
    let mut last: Option<Instant> = None;
    loop {
        let step = tokio::select! {
            biased;
            () = until(due) => None,
            // Dropping this loses nothing: pieces stay in the execution until they are returned.
            step = execution.next() => Some(step),
        };
        match step {
            Some(Step::Output(piece)) => {
                output.feed(&piece);
                due = due.or_else(|| Some(last.map_or_else(Instant::now, |last| last + THROTTLE)));
            }
            Some(Step::Ended(end)) => {
                if due.is_some() {
                    tell(output, cx);
                }
                return Ok(end);
            }
            Some(Step::NotStarted(error)) => return Err(error),
            None => {
                tell(output, cx);
                last = Some(Instant::now());
                due = None;
            }
        }
    }
}

async fn until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

fn tell(output: &mut Output, cx: &ToolContext) {
    let (text, details) = output.shown();
    (cx.updates)(ToolUpdate {
        content: vec![Block::text(text)],
        details: Some(details.unwrap_or_else(|| serde_json::json!({}))),
    });
}

fn finished(
    mut output: Output,
    end: End,
    timeout: Option<f64>,
    took: Duration,
) -> Result<ToolOutput, ToolError> {
    let (text, details) = output.shown();
    match end {
        End::Exited(code) => Ok(ToolOutput {
            content: vec![Block::text(with_exit_code(text, code))],
            details,
            is_error: code != 0,
            structured_content: Some(structured(&output, code, took)),
            ..ToolOutput::default()
        }),
        End::TimedOut(earlier) => {
            let status = timeout_status(timeout.unwrap_or_default(), earlier);
            Err(ToolError::new(
                ErrorClass::Timeout,
                with_status(text, &status),
            ))
        }
        End::Aborted => Err(ToolError::new(
            ErrorClass::Aborted,
            with_status(text, "Command aborted"),
        )),
    }
}

fn with_exit_code(text: String, code: i32) -> String {
    let text = if text.is_empty() {
        "(no output)".to_owned()
    } else {
        text
    };
    match code {
        0 => text,
        code => format!("{text}\n\nCommand exited with code {code}"),
    }
}

fn with_status(text: String, status: &str) -> String {
    if text.is_empty() {
        status.to_owned()
    } else {
        format!("{text}\n\n{status}")
    }
}

fn timeout_status(seconds: f64, earlier: Option<Earlier>) -> String {
    let status = format!("Command timed out after {seconds} seconds");
    let Some(Earlier { code, after }) = earlier else {
        return status;
    };
    let after = truncate::one_decimal(after.as_secs_f64());
    let after = after.strip_suffix(".0").unwrap_or(&after);
    format!(
        "{status}. The shell itself had exited with code {code} after {after} seconds, but background processes kept \
         writing to its output"
    )
}

fn structured(output: &Output, code: i32, took: Duration) -> Value {
    let (text, truncated) = output.whole.text();
    let mut value = Map::new();
    value.insert("output".to_owned(), json!(text));
    value.insert("truncated".to_owned(), json!(truncated));
    if let Some(path) = output.full_output_path().filter(|_| truncated) {
        value.insert("full_output_path".to_owned(), json!(path));
    }
    let seconds = (took.as_secs_f64() * 10.0).round() / 10.0;
    value.insert("exit_code".to_owned(), json!(code));
    value.insert("wall_time_seconds".to_owned(), json!(seconds));
    Value::Object(value)
}
