//! Commands that misbehave: trees that will not end, output that will not end, prompts, daemons, a killed backend.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pi_nvim::agent::{
    ErrorClass, SessionFacts, Tool, ToolContext, ToolError, ToolOutput, ToolUpdate,
};
use pi_nvim::ai::Model;
use pi_nvim::review::gate::{Gate, GateConfig, Reviewer};
use pi_nvim::review::{ApprovalAnswer, ReviewEvent, ReviewMode};
use pi_nvim::tools::{ToolEnv, bash::user_command, builtin};
use pi_nvim::workspace::disk::DiskWorkspace;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::harness::{Setup, blocks_text, test_env};

/// How long anything may take that should happen at once.
const SOON: Duration = Duration::from_secs(5);

type Outcome = Result<ToolOutput, ToolError>;

/// One call of a tool by hand.
pub(super) struct Call {
    pub(super) tool: &'static str,
    pub(super) arguments: Value,
    pub(super) cancel: CancellationToken,
    pub(super) session: SessionFacts,
}

impl Call {
    pub(super) fn new(tool: &'static str, arguments: Value) -> Self {
        Self {
            tool,
            arguments,
            cancel: CancellationToken::new(),
            session: SessionFacts::default(),
        }
    }

    fn bash(command: &str) -> Self {
        Self::new("bash", json!({ "command": command }))
    }

    fn bash_for(command: &str, timeout: f64) -> Self {
        Self::new("bash", json!({ "command": command, "timeout": timeout }))
    }

    pub(super) async fn run(self, setup: &Setup, env: ToolEnv) -> Outcome {
        self.run_with_updates(setup, env).await.0
    }

    async fn run_with_updates(self, setup: &Setup, env: ToolEnv) -> (Outcome, Vec<ToolUpdate>) {
        let updates = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let sink = Arc::clone(&updates);
        let context = ToolContext {
            call_id: "c1".to_owned(),
            cwd: setup.cwd.clone(),
            cancel: self.cancel,
            updates: Arc::new(move |update| sink.lock().push(update)),
            session: self.session,
        };
        let tools = builtin(env);
        let tool: &Arc<dyn Tool> = tools
            .iter()
            .find(|tool| tool.declaration().name == self.tool)
            .unwrap();
        let outcome = tool.start(self.arguments, context).await;
        let updates = updates.lock().clone();
        (outcome, updates)
    }
}

async fn run(setup: &Setup, command: &str) -> Outcome {
    Call::bash(command).run(setup, test_env(setup)).await
}

fn text(outcome: &Outcome) -> String {
    match outcome {
        Ok(output) => blocks_text(&output.content),
        Err(error) => error.message.clone(),
    }
}

/// Waits until something is so; panics when it does not become so soon.
#[track_caller]
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + SOON;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < end, "{what} did not happen");
        std::thread::yield_now();
    }
}

/// The pid a command left in a file, once it stands there.
fn pid_in(path: &Path) -> Option<i32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Whether a process is there and not merely waiting to be reaped.
fn alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    !stat.rsplit_once(") ").unwrap().1.starts_with('Z')
}

fn assert_gone(setup: &Setup, names: &[&str]) {
    for name in names {
        let pid = pid_in(&setup.cwd.join(name)).unwrap();
        eventually(&format!("the end of {name}"), || {
            (!alive(pid)).then_some(())
        });
    }
}

/// A shell, a child in its group, one in its own session, and one that daemonised itself.
const TREE: &str = "echo $$ > shell; sleep 300 & echo $! > child; \
    setsid sh -c 'echo $$ > session; exec sleep 300' & \
    (setsid sh -c '(sh -c \"echo \\$\\$ > daemon; exec sleep 300\" &)' &) ; \
    until [ -s daemon ] && [ -s session ]; do sleep 0.01; done; echo ready > ready; trap '' TERM HUP INT; sleep 300";
const TREE_PIDS: [&str; 4] = ["shell", "child", "session", "daemon"];

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_ends_the_whole_tree() {
    let setup = Setup::empty();
    let started = Instant::now();
    let outcome = Call::bash_for(&format!("echo a; {TREE}"), 1.0)
        .run(&setup, test_env(&setup))
        .await;
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    assert_eq!(text(&outcome), "a\n\n\nCommand timed out after 1 seconds");
    assert_eq!(outcome.unwrap_err().class, ErrorClass::Timeout);
    assert_gone(&setup, &TREE_PIDS);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_ends_the_whole_tree() {
    let setup = Setup::empty();
    let call = Call::bash(TREE);
    let cancel = call.cancel.clone();
    let ready = setup.cwd.join("ready");
    let abort = tokio::task::spawn_blocking(move || {
        eventually("ready", || ready.exists().then_some(()));
        cancel.cancel();
        Instant::now()
    });
    let outcome = call.run(&setup, test_env(&setup)).await;
    assert!(abort.await.unwrap().elapsed() < Duration::from_secs(2));
    assert_eq!(
        outcome,
        Err(ToolError::new(ErrorClass::Aborted, "Command aborted"))
    );
    assert_gone(&setup, &TREE_PIDS);
}

/// Not a test of its own: the backend that the next test kills.
#[tokio::test(flavor = "multi_thread")]
async fn role_backend() {
    let Ok(dir) = std::env::var("PI_NVIM_TEST_BACKEND_DIR") else {
        return;
    };
    let mut setup = Setup::empty();
    setup.cwd = dir.into();
    let outcome = run(&setup, TREE).await;
    panic!("the command ended: {outcome:?}");
}

#[test]
fn a_killed_backend_takes_its_commands_along() {
    let setup = Setup::empty();
    let mut backend = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tools::stress::role_backend", "--nocapture"])
        .env("PI_NVIM_TEST_BACKEND_DIR", &setup.cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ready = setup.cwd.join("ready");
    eventually("ready", || ready.exists().then_some(()));
    backend.kill().unwrap();
    backend.wait().unwrap();
    assert_gone(&setup, &TREE_PIDS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_call_takes_its_command_along() {
    let setup = Setup::empty();
    let ready = setup.cwd.join("ready");
    let call = run(&setup, TREE);
    let seen =
        tokio::task::spawn_blocking(move || eventually("ready", || ready.exists().then_some(())));
    tokio::select! {
        outcome = call => panic!("{outcome:?}"),
        seen = seen => seen.unwrap(),
    }
    assert_gone(&setup, &TREE_PIDS);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_guard_the_group_still_ends() {
    let setup = Setup::empty();
    let env = test_env(&setup);
    env.options.change(|options| options.guard = None);
    let call = Call::bash_for("echo $$ > shell; sleep 300 & echo $! > child; exit 3", 0.5);
    let outcome = call.run(&setup, env.clone()).await;
    // The child keeps the pipe and is quiet: the shell's end counts.
    assert_eq!(text(&outcome), "(no output)\n\nCommand exited with code 3");
    let child = pid_in(&setup.cwd.join("child")).unwrap();
    assert!(alive(child));
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(child).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let call = Call::bash_for(
        "echo $$ > shell; sleep 300 & echo $! > child; sleep 300",
        0.3,
    );
    assert_eq!(
        call.run(&setup, env).await.unwrap_err().class,
        ErrorClass::Timeout
    );
    assert_gone(&setup, &["shell", "child"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_process_is_left_alone_after_a_normal_end() {
    let setup = Setup::empty();
    let started = Instant::now();
    let outcome = run(&setup, "sleep 60 & echo $! > child; echo done").await;
    assert!(started.elapsed() < Duration::from_secs(2));
    assert_eq!(text(&outcome), "done\n");
    let child = pid_in(&setup.cwd.join("child")).unwrap();
    assert!(alive(child));
    let pid = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shells_end_is_told_when_others_keep_writing() {
    let setup = Setup::empty();
    let command = "(while :; do echo t; sleep 0.05; done) & echo $! > child; echo done; sleep 0.1";
    let outcome = Call::bash_for(command, 1.0)
        .run(&setup, test_env(&setup))
        .await;
    let text = text(&outcome);
    assert!(
        text.starts_with("done\n") || text.starts_with("t\n"),
        "{text}"
    );
    assert!(text.contains("timed out after 1 seconds"), "{text}");
    assert!(text.contains("code 0 after 0."), "{text}");
    assert_gone(&setup, &["child"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_no_terminal_and_no_input() {
    let setup = Setup::empty();
    let outcome = run(
        &setup,
        "tty; (echo x >/dev/tty) 2>/dev/null; echo rc=$?; cat; read x; echo rc=$?",
    )
    .await;
    assert_eq!(text(&outcome), "not a tty\nrc=1\nrc=1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_prompt_fails_at_once() {
    let setup = Setup::empty();
    fs::write(
        setup.cwd.join("askpw"),
        "read -rs pw </dev/tty || exit 1; echo got it\n",
    )
    .unwrap();
    let started = Instant::now();
    let outcome = run(&setup, "bash ./askpw 2>/dev/null").await;
    assert!(started.elapsed() < Duration::from_secs(2));
    assert_eq!(text(&outcome), "(no output)\n\nCommand exited with code 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_never_lets_the_next_command_run() {
    let setup = Setup::empty();
    for round in 0..20 {
        let file = setup.cwd.join(format!("started{round}"));
        let call = Call::bash(&format!("touch {}; sleep 5; touch leaked", file.display()));
        let cancel = call.cancel.clone();
        let abort = tokio::task::spawn_blocking(move || {
            eventually("start", || file.exists().then_some(()));
            cancel.cancel();
        });
        let outcome = call.run(&setup, test_env(&setup)).await;
        abort.await.unwrap();
        assert!(text(&outcome).ends_with("Command aborted"));
    }
    assert!(!setup.cwd.join("leaked").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_output_is_held_in_bounded_memory() {
    let setup = Setup::empty();
    let before = peak_kib();
    let outcome = run(&setup, "seq 1 3000000").await.unwrap();
    let text = blocks_text(&outcome.content);
    let path = outcome.details.unwrap()["fullOutputPath"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(text.ends_with(&format!(
        "2999999\n3000000\n\n[Showing lines 2998001-3000000 of 3000000. Full output: {path}]"
    )));
    assert_eq!(fs::metadata(path).unwrap().len(), 22_888_896);
    let grown = peak_kib() - before;
    assert!(grown < 30 * 1024, "{grown} KiB");
    let outcome = Call::bash_for("yes", 0.5)
        .run(&setup, test_env(&setup))
        .await;
    assert!(super::compare::class_name(outcome.err().map(|error| error.class)) == "timeout");
    let grown = peak_kib() - before;
    assert!(grown < 40 * 1024, "{grown} KiB");
}

/// Most memory this process ever used.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_one_huge_line_is_shown() {
    let setup = Setup::empty();
    let outcome = run(&setup, "head -c 150000 /dev/zero | tr '\\0' x").await;
    let text = text(&outcome);
    assert!(text.starts_with(&"x".repeat(51_200)));
    assert!(
        text.contains("\n\n[Showing last 50.0KB of line 1 (line is 146.5KB). Full output: "),
        "{}",
        &text[51_200..]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_bytes_become_replacement_characters() {
    let setup = Setup::empty();
    let outcome = run(&setup, "printf '\\326\\320\\316\\304\\nok\\n'").await;
    assert_eq!(text(&outcome), "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\nok\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn split_colours_are_joined_raw_and_removed_for_people() {
    let setup = Setup::empty();
    let command = "printf 'a\\033[3'; sleep 0.2; printf '1mb\\n'";
    assert_eq!(text(&run(&setup, command).await), "a\u{1b}[31mb\n");
    let env = test_env(&setup);
    let (show, mut pieces) = tokio::sync::mpsc::channel(16);
    let output = user_command(&env, command, &setup.cwd, CancellationToken::new(), show)
        .await
        .unwrap();
    assert_eq!(
        (output.output.as_str(), output.exit_code),
        ("ab\n", Some(0))
    );
    let mut shown = String::new();
    while let Some(piece) = pieces.recv().await {
        shown.push_str(&piece);
    }
    assert_eq!(shown, "ab\n");
    assert!(!output.truncated && !output.cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persons_command_is_cancelled_with_what_it_said() {
    let setup = Setup::empty();
    let env = test_env(&setup);
    let cancel = CancellationToken::new();
    let (show, mut pieces) = tokio::sync::mpsc::channel(1);
    let command = "echo a; echo $$ > shell; sleep 300";
    let running = user_command(&env, command, &setup.cwd, cancel.clone(), show);
    let (output, ()) = tokio::join!(running, async {
        assert_eq!(pieces.recv().await.as_deref(), Some("a\n"));
        cancel.cancel();
    });
    let output = output.unwrap();
    assert_eq!(
        (output.output.as_str(), output.exit_code, output.cancelled),
        ("a\n", None, true)
    );
    if let Some(pid) = pid_in(&setup.cwd.join("shell")) {
        eventually("the end of the shell", || (!alive(pid)).then_some(()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persons_long_output_is_saved() {
    let setup = Setup::empty();
    let env = test_env(&setup);
    // Nobody looks: the command is not held up.
    let (show, _) = tokio::sync::mpsc::channel(1);
    let output = user_command(
        &env,
        "seq 1 100000",
        &setup.cwd,
        CancellationToken::new(),
        show,
    )
    .await
    .unwrap();
    assert!(
        output.truncated && output.output.ends_with("\n100000"),
        "{}",
        output.output.len()
    );
    let saved = fs::read_to_string(output.full_output_path.unwrap()).unwrap();
    assert!(saved.starts_with("1\n2\n") && saved.ends_with("\n100000\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_begin_empty_and_come_at_a_bounded_rate() {
    let setup = Setup::empty();
    let started = Instant::now();
    let call = Call::bash("for i in $(seq 200); do echo $i; sleep 0.005; done");
    let (outcome, updates) = call.run_with_updates(&setup, test_env(&setup)).await;
    let tenths = started.elapsed().as_millis() / 100;
    assert_eq!(updates[0], ToolUpdate::default());
    assert!(
        updates.len() >= 4 && updates.len() as u128 <= tenths + 4,
        "{} in {tenths}",
        updates.len()
    );
    let last = updates.last().unwrap();
    assert_eq!(blocks_text(&last.content), text(&outcome));
    let lengths: Vec<usize> = updates
        .iter()
        .map(|it| blocks_text(&it.content).len())
        .collect();
    assert!(lengths.is_sorted(), "{lengths:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_inherits_no_stray_files() {
    let setup = Setup::empty();
    let outcome = run(
        &setup,
        "ls -l /proc/$$/fd | grep -c socket; readlink /proc/$$/fd/0; ls /proc/$$/fd | wc -l",
    )
    .await;
    let text = text(&outcome);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["0", "/dev/null"], "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_is_told_in_variables() {
    let setup = Setup::empty();
    let mut call = Call::bash("env | grep ^PI_ | sort");
    call.session = SessionFacts {
        session_id: "s1".to_owned(),
        session_file: Some("/tmp/s1.jsonl".into()),
        model: Some(Arc::new(Model {
            id: "m".to_owned(),
            provider: "p".to_owned(),
            ..Model::default()
        })),
        thinking_level: Some("high".to_owned()),
        ..SessionFacts::default()
    };
    let env = test_env(&setup);
    let outer = vec![("PI_MODEL".to_owned(), "outer".to_owned())];
    env.options.change(|options| options.extra_env = outer);
    let outcome = call.run(&setup, env).await;
    assert_eq!(
        text(&outcome)
            .lines()
            .filter(|line| !line.starts_with("PI_NVIM") && !line.starts_with("PI_CODING"))
            .collect::<Vec<_>>(),
        [
            "PI_MODEL=m",
            "PI_PROVIDER=p",
            "PI_REASONING_LEVEL=high",
            "PI_SESSION_FILE=/tmp/s1.jsonl",
            "PI_SESSION_ID=s1"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agents_own_programs_are_found_first() {
    let setup = Setup::empty();
    let bin = setup.home.join("bin");
    fs::create_dir(&bin).unwrap();
    let env = test_env(&setup);
    env.options
        .change(|options| options.agent_bin_dir = Some(bin.clone()));
    let outcome = Call::bash("echo ${PATH%%:*}").run(&setup, env).await;
    assert_eq!(text(&outcome), format!("{}\n", bin.display()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_of_any_length_runs_or_says_why_not() {
    let setup = Setup::empty();
    let long = format!(": {}; echo ok", "x".repeat(100_000));
    assert_eq!(text(&run(&setup, &long).await), "ok\n");
    let too_long = format!(": {}; echo ok", "x".repeat(1_000_000));
    let outcome = run(&setup, &too_long).await;
    assert!(
        text(&outcome).contains("cannot start /bin/bash: Argument list too long"),
        "{}",
        text(&outcome)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_hunts_by_name_does_not_meet_the_guard() {
    let setup = Setup::empty();
    let outcome = run(&setup, "pgrep -f unlikely-name-x7 | grep -v $$ ; echo over").await;
    assert_eq!(text(&outcome), "over\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_commands_run_at_once() {
    let setup = Setup::empty();
    let env = test_env(&setup);
    let calls =
        (0..20).map(|n| Call::bash(&format!("sleep 0.1; echo {n}")).run(&setup, env.clone()));
    let outcomes = futures::future::join_all(calls).await;
    for (n, outcome) in outcomes.iter().enumerate() {
        assert_eq!(text(outcome), format!("{n}\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stands_still_holds_the_command_and_not_the_memory() {
    let setup = Setup::empty();
    let env = test_env(&setup);
    let cancel = CancellationToken::new();
    let (show, mut pieces) = tokio::sync::mpsc::channel(1);
    let before = peak_kib();
    let running = user_command(&env, "yes", &setup.cwd, cancel.clone(), show);
    let (output, ()) = tokio::join!(running, async {
        pieces.recv().await.unwrap();
        cancel.cancel();
    });
    assert!(output.unwrap().cancelled);
    let grown = peak_kib() - before;
    assert!(grown < 10 * 1024, "{grown} KiB");
}

#[test]
fn a_command_does_not_hold_the_protocol_channel() {
    let setup = Setup::empty();
    let mut backend = Command::new(env!("CARGO_BIN_EXE_pi-nvim"))
        .args(["--mode", "rpc"])
        .current_dir(&setup.cwd)
        .env("HOME", &setup.home)
        .env("XDG_STATE_HOME", setup.home.join("state"))
        .env_remove("PI_CODING_AGENT_DIR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut commands = backend.stdin.take().unwrap();
    let answers = backend.stdout.take().unwrap();
    let channel = format!("pipe:[{}]", rustix::fs::fstat(&answers).unwrap().st_ino);
    let ask = json!({"type": "bash", "id": "1", "command": "ls -l /proc/$$/fd /proc/$PPID/fd"});
    writeln!(commands, "{ask}").unwrap();
    let response = BufReader::new(answers)
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap())
        .find(|record| record["type"] == "response")
        .unwrap();
    backend.kill().unwrap();
    backend.wait().unwrap();
    let output = response["data"]["output"].as_str().unwrap();
    assert!(
        output.contains("/dev/null") && !output.contains(&channel),
        "{channel} in {output}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_starts_only_when_a_person_allowed_it() {
    let setup = Setup::empty();
    let mut env = test_env(&setup);
    env.gate = Gate::new(GateConfig {
        reviewer: Reviewer::Person,
        mode: ReviewMode::Ask,
        ..GateConfig::new(Arc::new(DiskWorkspace::default()), &setup.cwd)
    });
    let no = ApprovalAnswer::Refused {
        reason: Some("not on a Friday".to_owned()),
    };
    for (answer, said, ran) in [
        (no, "not on a Friday", false),
        (ApprovalAnswer::Once, "done", true),
    ] {
        let mut events = env.gate.subscribe();
        let call = Call::bash("touch ran; echo done").run(&setup, env.clone());
        let (outcome, ()) = tokio::join!(call, async {
            loop {
                if let Some(ReviewEvent::Approval { id, request }) = events.recv().await {
                    assert_eq!(request.command, "touch ran; echo done");
                    assert!(!setup.cwd.join("ran").exists());
                    return env.gate.answer(id, answer);
                }
            }
        });
        assert!(text(&outcome).contains(said), "{}", text(&outcome));
        assert_eq!(setup.cwd.join("ran").exists(), ran);
    }
    // A bad argument is said before anybody is asked.
    let outcome = Call::bash_for("true", 0.0).run(&setup, env).await;
    assert_eq!(outcome.unwrap_err().class, ErrorClass::InvalidTimeout);
}
