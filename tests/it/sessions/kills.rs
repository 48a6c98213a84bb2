//! Real processes that do real work for a scripted model and are killed with `SIGKILL`: at random moments, and exactly
//! between commit record, file write and result. The next process resumes, and then everything has to be true: every
//! entry that was told is in the session file, every call has one answer, calls answered as written are on disk and the
//! others are not.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pi_nvim::session::store::{Session, Start};
use serde_json::{Value, json};

/// Moments of the program that a test can choose to die at, in the order in which one call passes them.
const MOMENTS: [&str; 9] = [
    "message-stored",
    "answer-stored",
    "record-stored",
    "temporary-written",
    "file-written",
    "record-done",
    "result-made",
    "result-stored",
    "record-dropped",
];

/// A small generator, so that a seed gives the same rounds again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

/// A call the model made: the whole text of a file, or one line of it.
#[derive(Clone, Debug)]
struct Call {
    id: String,
    path: String,
    old_line: Option<String>,
    new_text: String,
}

impl Call {
    fn apply(&self, files: &mut BTreeMap<String, String>) {
        let text = files.entry(self.path.clone()).or_default();
        *text = match &self.old_line {
            Some(line) => text.replacen(line, &self.new_text, 1),
            None => self.new_text.clone(),
        };
    }

    fn delta(&self, index: usize) -> Value {
        let (name, arguments) = match &self.old_line {
            Some(line) => (
                "edit",
                json!({"path": self.path, "edits": [{"oldText": line, "newText": self.new_text}]}),
            ),
            None => (
                "write",
                json!({"path": self.path, "content": self.new_text}),
            ),
        };
        json!({"index": index, "id": self.id, "type": "function",
            "function": {"name": name, "arguments": arguments.to_string()}})
    }
}

/// What has to be true, and what is not known yet.
struct Ledger {
    work: PathBuf,
    session: PathBuf,
    random: Random,
    /// What is on disk, by the answers so far.
    files: BTreeMap<String, String>,
    /// Calls of the last answers whose outcome was not looked at yet.
    open: Vec<Call>,
    /// What the model asks for next instead of something random.
    next: Option<Vec<Call>>,
    /// No calls any more.
    quiet: bool,
    calls: usize,
    written: usize,
    refused: usize,
    unanswered: usize,
    trouble: Vec<String>,
}

impl Ledger {
    /// Looks at every open call: its answer in the session file, and what is on disk.
    fn settle(&mut self) -> Vec<(String, Option<(bool, String)>)> {
        let results = results(&self.session);
        let mut outcomes = Vec::new();
        for call in std::mem::take(&mut self.open) {
            let found: Vec<&(String, bool, String)> =
                results.iter().filter(|(id, ..)| *id == call.id).collect();
            let outcome = match found[..] {
                [] => None,
                [(_, is_error, text)] => Some((*is_error, text.clone())),
                _ => {
                    self.trouble
                        .push(format!("{} has {} results", call.id, found.len()));
                    None
                }
            };
            match &outcome {
                Some((false, _)) => {
                    self.written += 1;
                    call.apply(&mut self.files);
                }
                Some((true, text)) => {
                    self.refused += 1;
                    if !text.contains("nothing was written") {
                        self.trouble.push(format!("{call:?} is answered {text:?}"));
                    }
                }
                None => self.unanswered += 1,
            }
            outcomes.push((call.id, outcome));
        }
        for (path, text) in &self.files {
            let on_disk = std::fs::read_to_string(self.work.join(path)).unwrap_or_default();
            if on_disk != *text {
                self.trouble.push(format!(
                    "{path} holds {on_disk:?}, by the answers {text:?}; {outcomes:?}"
                ));
            }
        }
        outcomes
    }

    /// Answers a request.
    fn answer(&mut self, body: &Value) -> Vec<Value> {
        self.pairs(body);
        self.settle();
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        let role = messages.last().map(|last| last["role"].clone());
        let wants = !self.quiet && (role == Some(json!("user")) || self.random.below(3) == 0);
        let calls = match self.next.take() {
            Some(calls) if calls.is_empty() => return vec![json!({"content": "Done."})],
            Some(calls) => calls,
            None if wants => {
                let mut calls: Vec<Call> = Vec::new();
                for place in 0..1 + self.random.below(3) {
                    let call = self.some_call(place, &calls);
                    calls.push(call);
                }
                calls
            }
            None => return vec![json!({"content": "Done."})],
        };
        self.calls += calls.len();
        let deltas = calls.iter().enumerate();
        let deltas = deltas
            .map(|(index, call)| json!({"tool_calls": [call.delta(index)]}))
            .collect();
        self.open = calls;
        deltas
    }

    /// Every call of the history has exactly one answer, and no answer is without its call.
    fn pairs(&mut self, body: &Value) {
        let mut calls: BTreeMap<String, usize> = BTreeMap::new();
        for message in body["messages"].as_array().into_iter().flatten() {
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                calls.insert(call["id"].as_str().unwrap().to_owned(), 0);
            }
            if message["role"] == "tool" {
                let id = message["tool_call_id"].as_str().unwrap().to_owned();
                match calls.get_mut(&id) {
                    Some(count) => *count += 1,
                    None => self
                        .trouble
                        .push(format!("{id} is answered before its call")),
                }
            }
        }
        let wrong = calls.into_iter().filter(|(_, count)| *count != 1);
        self.trouble
            .extend(wrong.map(|(id, count)| format!("the model sees {count} answers to {id}")));
    }

    /// A call that can be carried out whatever becomes of the ones before it in the same answer: each place has its own
    /// line, and a file that is rewritten as a whole is left alone after that.
    fn some_call(&mut self, place: u64, before: &[Call]) -> Call {
        let path = format!("f{}.txt", self.random.below(3));
        let id = format!("c{}_{place}", self.calls);
        let rewritten = |call: &Call| call.path == path && call.old_line.is_none();
        let known = self
            .files
            .get(&path)
            .filter(|_| !before.iter().any(rewritten));
        let line = known.and_then(|text| text.lines().nth(usize::try_from(place).unwrap()));
        match line.filter(|_| place > 0 || self.random.below(2) == 0) {
            Some(line) => Call {
                new_text: format!("edit {id}"),
                old_line: Some(line.to_owned()),
                path,
                id,
            },
            None => Call {
                path: if place == 0 {
                    path
                } else {
                    format!("new-{id}.txt")
                },
                new_text: (0..4).map(|at| format!("write {id} {at}\n")).collect(),
                old_line: None,
                id,
            },
        }
    }
}

/// Results in a session file: call, whether it is an error, text.
fn results(session: &Path) -> Vec<(String, bool, String)> {
    let text = std::fs::read_to_string(session).unwrap_or_default();
    let entries = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    entries
        .filter(|entry: &Value| entry["message"]["role"] == "toolResult")
        .map(|entry| {
            let message = &entry["message"];
            (
                message["toolCallId"].as_str().unwrap().to_owned(),
                message["isError"] == true,
                message["content"][0]["text"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
            )
        })
        .collect()
}

/// A model server on loopback, a project and an agent folder of their own.
pub(super) struct World {
    dir: tempfile::TempDir,
    ledger: Arc<Mutex<Ledger>>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["work", "agent", "home"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let provider = json!({"baseUrl": format!("http://{address}/v1"), "api": "openai-completions", "apiKey": "k",
            "models": [{"id": "m", "contextWindow": 200_000_000, "maxTokens": 8192}]});
        let write = |name: &str, value: Value| {
            std::fs::write(root.join("agent").join(name), value.to_string()).unwrap();
        };
        write("models.json", json!({"providers": {"mock": provider}}));
        write(
            "settings.json",
            json!({"defaultProvider": "mock", "defaultModel": "m"}),
        );
        let ledger = Arc::new(Mutex::new(Ledger {
            work: root.join("work"),
            session: root.join("session.jsonl"),
            random: Random(seed | 1),
            files: BTreeMap::new(),
            open: Vec::new(),
            next: None,
            quiet: false,
            calls: 0,
            written: 0,
            refused: 0,
            unanswered: 0,
            trouble: Vec::new(),
        }));
        let answers = Arc::clone(&ledger);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let answers = Arc::clone(&answers);
                // A client that was killed is what this is about.
                std::thread::spawn(move || drop(serve(stream, &answers)));
            }
        });
        Self { dir, ledger }
    }

    pub(super) fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    /// The model says no more than `Done.` from now on.
    pub(super) fn says_done(&self) {
        self.ledger.lock().quiet = true;
    }

    fn spawn(&self, die_at: Option<&str>) -> Child {
        self.spawn_with(&[], &self.root().join("session.jsonl"), die_at)
    }

    /// Starts the program, by way of a launcher that is given its command line when there is one.
    pub(super) fn spawn_with(
        &self,
        launcher: &[&str],
        session: &Path,
        die_at: Option<&str>,
    ) -> Child {
        let root = self.root();
        let program = env!("CARGO_BIN_EXE_pi-nvim");
        let mut words = launcher.iter().copied().chain([program]);
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .args(["--mode", "rpc", "--session"])
            .arg(session)
            .current_dir(root.join("work"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", root.join("home"))
            .env("XDG_STATE_HOME", root.join("home/state"))
            .env("PI_CODING_AGENT_DIR", root.join("agent"))
            .env("PI_OFFLINE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(moment) = die_at {
            command.env("PI_NVIM_TEST_DIE_AT", moment);
        }
        command.spawn().unwrap()
    }

    /// One process: it resumes, gets a prompt, and dies. Returns whether it came to the end of the run before.
    fn round(&self, death: &Death) -> bool {
        let mut child = self.spawn(death.moment.as_deref());
        let mut input = child.stdin.take().unwrap();
        // It may be dead already.
        drop(writeln!(
            input,
            "{}",
            json!({"id": "p", "type": "prompt", "message": "go on"})
        ));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut told = Vec::new();
        let mut settled = false;
        let mut take = |line: std::io::Result<String>| {
            // The last line may be torn.
            let event: Value = line
                .ok()
                .and_then(|line| serde_json::from_str(&line).ok())
                .unwrap_or_default();
            let kind = event["type"].as_str().unwrap_or_default().to_owned();
            if kind == "message_end" {
                told.push(event["message"].clone());
            }
            settled |= kind == "agent_settled";
            kind
        };
        let mut seen = 0;
        while seen < death.after_lines {
            let Some(line) = lines.next() else { break };
            seen += 1;
            if take(line) == "agent_settled" {
                break;
            }
        }
        let pause = Instant::now();
        while pause.elapsed() < death.pause {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        lines.for_each(|line| drop(take(line)));
        drop(input);
        self.check(&told);
        settled
    }

    /// What was told is in the file, in one chain, whoever died when.
    fn check(&self, told: &[Value]) {
        let path = self.root().join("session.jsonl");
        if told.is_empty() && !path.exists() {
            return;
        }
        let session = Session::open(&path, Path::new("/"), Start::default()).unwrap();
        let stored: Vec<Value> = session
            .entries()
            .map(|entry| entry.value()["message"].clone())
            .collect();
        for message in told {
            assert!(stored.contains(message), "told and not stored: {message}");
        }
        assert_eq!(session.path().len(), session.len(), "one chain");
    }

    /// Lets a process come to its end and looks at all that was open.
    fn finish(&self) {
        self.ledger.lock().next = Some(Vec::new());
        assert!(self.round(&Death::never()), "the last run comes to its end");
        let mut ledger = self.ledger.lock();
        ledger.settle();
        assert!(ledger.trouble.is_empty(), "{}", ledger.trouble.join("\n"));
    }
}

/// When a process dies.
struct Death {
    moment: Option<String>,
    after_lines: u64,
    pause: Duration,
}

impl Death {
    fn never() -> Self {
        Self {
            moment: None,
            after_lines: u64::MAX,
            pause: Duration::ZERO,
        }
    }

    fn at(moment: impl Into<String>) -> Self {
        Self {
            moment: Some(moment.into()),
            ..Self::never()
        }
    }

    fn random(random: &mut Random) -> Self {
        if random.below(2) == 0 {
            let moment = MOMENTS[usize::try_from(random.below(9)).unwrap()];
            return Self::at(format!("{moment}:{}", 1 + random.below(4)));
        }
        Self {
            moment: None,
            after_lines: random.below(45),
            pause: Duration::from_micros(random.below(2_000)),
        }
    }
}

fn serve(stream: TcpStream, ledger: &Mutex<Ledger>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let line = line.trim().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(count) = line.strip_prefix("content-length:") {
            length = count.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body: Value = serde_json::from_slice(&body)?;
    let deltas = ledger.lock().answer(&body);
    let reason = match deltas.first() {
        Some(delta) if delta.get("tool_calls").is_some() => "tool_calls",
        _ => "stop",
    };
    let mut text = String::new();
    let mut chunk = |value: Value| text.push_str(&format!("data: {value}\n\n"));
    for delta in deltas {
        chunk(json!({"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta}]}));
    }
    chunk(
        json!({"id": "x", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
    );
    chunk(
        json!({"id": "x", "model": "m", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}),
    );
    let mut out = stream;
    write!(
        out,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{text}data: [DONE]\n\n",
        text.len() + "data: [DONE]\n\n".len()
    )
}

/// Runs some rounds; a fresh session every 25, so that none grows long and its first message is met too.
fn rounds(count: u64, seed: u64) -> (usize, usize, usize) {
    let mut random = Random(seed | 1);
    let mut sums = (0, 0, 0);
    let mut left = count;
    while left > 0 {
        let world = World::new(random.below(u64::MAX >> 17));
        for _ in 0..left.min(25) {
            world.round(&Death::random(&mut random));
        }
        left -= left.min(25);
        world.finish();
        let ledger = world.ledger.lock();
        sums.0 += ledger.written;
        sums.1 += ledger.refused;
        sums.2 += ledger.unanswered;
    }
    sums
}

/// `PI_NVIM_KILL_ROUNDS` sets how often, `PI_NVIM_KILL_SEED` begins elsewhere; `make test` kills 140 times.
#[test]
fn killed_at_any_moment_nothing_is_lost_and_no_call_is_answered_falsely() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let count = number("PI_NVIM_KILL_ROUNDS").unwrap_or(140);
    let seed = number("PI_NVIM_KILL_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        u64::from(now.unwrap().subsec_nanos())
    });
    println!("PI_NVIM_KILL_SEED={seed}");
    let sums: Vec<(usize, usize, usize)> = std::thread::scope(|scope| {
        let lanes: Vec<_> = [0, 1]
            .map(|lane| {
                scope.spawn(move || rounds(count.div_ceil(2), seed ^ (lane << 40) ^ 0x9e37_79b9))
            })
            .into_iter()
            .collect();
        lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
    });
    let sum = |pick: fn(&(usize, usize, usize)) -> usize| sums.iter().map(pick).sum::<usize>();
    let (written, refused, unanswered) = (sum(|it| it.0), sum(|it| it.1), sum(|it| it.2));
    println!(
        "{count} kills: {written} calls written, {refused} answered as not written, {unanswered} never begun"
    );
    // All three ends are met, or the kills come at the wrong moments.
    assert!(count < 100 || (written > 20 && refused > 0 && unanswered > 5));
}

/// How a call stands after a kill at a moment: its result in the file, and whether its text is on disk.
#[track_caller]
fn check(moment: &str, edits: bool, expected: Option<bool>) {
    let world = World::new(7);
    let (work, path) = (world.root().join("work"), "f.txt".to_owned());
    let id = "call".to_owned();
    std::fs::write(work.join(&path), "one\ntwo\n").unwrap();
    let call = Call {
        id,
        path,
        old_line: edits.then(|| "two".to_owned()),
        new_text: if edits { "2" } else { "all\nnew\n" }.to_owned(),
    };
    {
        let mut ledger = world.ledger.lock();
        ledger.files.insert("f.txt".into(), "one\ntwo\n".into());
        ledger.next = Some(vec![call.clone()]);
    }
    let settled = world.round(&Death::at(moment));
    assert!(!settled, "{moment} is passed");
    // What is open must survive the requests of the next process, to be looked at here.
    let mut expected_files = BTreeMap::from([("f.txt".to_owned(), "one\ntwo\n".to_owned())]);
    if expected == Some(true) {
        call.apply(&mut expected_files);
    }
    let on_disk = std::fs::read_to_string(work.join("f.txt")).unwrap();
    assert_eq!(on_disk, expected_files["f.txt"], "{moment}");
    // Opening answers nothing; the next prompt does. A kill in the middle of that answers nothing twice.
    let again = world.round(&Death::at("recalled-stored"));
    world.finish();
    let answers: Vec<bool> = results(&world.root().join("session.jsonl"))
        .into_iter()
        .filter(|(id, ..)| id == "call")
        .map(|(_, is_error, _)| !is_error)
        .collect();
    assert_eq!(answers, Vec::from_iter(expected), "{moment}");
    let recalled = matches!(
        moment,
        "record-stored" | "temporary-written" | "file-written" | "record-done" | "result-made"
    );
    assert_eq!(!again, recalled, "{moment}: answered from the record");
    let left = world.root().join("home/state/pi-nvim/commits");
    let left = std::fs::read_dir(left).map_or(0, Iterator::count);
    assert_eq!(left, 0, "{moment}: records are dropped");
    let beside = std::fs::read_dir(&work).unwrap();
    let beside: Vec<_> = beside
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| Path::new(name).extension().is_some_and(|it| it == "tmp"))
        .collect();
    assert!(beside.is_empty(), "{moment}: left behind: {beside:?}");
}

#[test]
fn killed_before_the_write_a_call_is_answered_as_not_applied() {
    for edits in [true, false] {
        check("answer-stored", edits, None);
        check("record-stored", edits, Some(false));
        check("temporary-written", edits, Some(false));
    }
}

#[test]
fn killed_after_the_write_a_call_is_answered_as_written_once() {
    for edits in [true, false] {
        for moment in [
            "file-written",
            "record-done",
            "result-made",
            "result-stored",
            "record-dropped",
        ] {
            check(moment, edits, Some(true));
        }
    }
}
