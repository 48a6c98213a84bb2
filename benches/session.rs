//! The large session: 100,000 entries, 300 MB, beside a plain read of the same file in the same run.
//!
//! `cargo bench --bench session [-- ENTRIES]`. The file is made once per run in a temporary folder, from a fixed seed. Prints
//! one line per measure; `doc/benchmarks.md` says what was reached and what was wanted.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a bench"
)]

use std::io::{BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pi_nvim::ai::Message;
use pi_nvim::entry::iso_time;
use pi_nvim::session::compaction::{CompactionSettings, prepare};
use pi_nvim::session::listing::{Scope, list};
use pi_nvim::session::store::{Session, Start};
use pi_nvim::session::tree_view::{Charset, Filter, TreeView};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A small generator: the same numbers everywhere.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn words(&mut self, len: u64) -> String {
        const WORDS: [&str; 12] = [
            "lexer ",
            "returns ",
            "an error ",
            "when the ",
            "token is ",
            "unknown\n",
            "fn main() ",
            "{ let x = 1; } ",
            "\"quoted\" ",
            "tab\there ",
            "ünïcode ",
            "path/to/file.rs ",
        ];
        let mut text = String::new();
        while (text.len() as u64) < len {
            text.push_str(WORDS[self.below(12) as usize]);
        }
        text
    }
}

struct Maker {
    out: BufWriter<std::fs::File>,
    random: Lcg,
    count: u32,
    ids: Vec<String>,
    parent: Option<String>,
    tokens: u64,
}

impl Maker {
    fn put(&mut self, kind: &str, fields: Value) -> String {
        let id = format!("{:08x}", 0x1000_0000 + self.count);
        let time = 1_767_603_600_000 + i64::from(self.count) * 1000;
        let mut entry =
            json!({"type": kind, "id": id, "parentId": self.parent, "timestamp": iso_time(time)});
        entry
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        writeln!(self.out, "{entry}").unwrap();
        self.count += 1;
        self.parent = Some(id.clone());
        self.ids.push(id.clone());
        id
    }

    fn message(&mut self, mut message: Value) -> String {
        message["timestamp"] = (1_767_603_600_000 + u64::from(self.count) * 1000).into();
        self.put("message", json!({"message": message}))
    }

    fn answer(&mut self, content: Value, stop: &str) {
        self.tokens += 600;
        let usage = json!({"input": self.tokens, "output": 100, "cacheRead": 0, "cacheWrite": 0, "totalTokens": self.tokens + 100,
            "cost": {"input": 0.001, "output": 0.002, "cacheRead": 0, "cacheWrite": 0, "total": 0.003}});
        self.message(json!({"role": "assistant", "content": content, "api": "a", "provider": "p", "model": "m", "usage": usage, "stopReason": stop}));
    }

    fn turn(&mut self, number: u32) {
        let asked = 80 + self.random.below(400);
        let text = self.random.words(asked);
        let user = self.message(json!({"role": "user", "content": text}));
        for step in 0..3 + self.random.below(6) {
            let call = format!("call_{}_{step}", self.count);
            let (thinking, text) = (self.random.words(300), self.random.words(150));
            self.answer(
                json!([{"type": "thinking", "thinking": thinking}, {"type": "text", "text": text},
                    {"type": "toolCall", "id": call, "name": "read", "arguments": {"path": "src/lexer.rs", "offset": step}}]),
                "toolUse",
            );
            let size = match self.random.below(100) {
                0..5 => 50_000,
                5..30 => 8_000,
                _ => 1_500,
            };
            let text = self.random.words(size);
            self.message(json!({"role": "toolResult", "toolCallId": call, "toolName": "read", "content": [{"type": "text", "text": text}], "isError": false}));
        }
        let text = self.random.words(900);
        self.answer(json!([{"type": "text", "text": text}]), "stop");
        if number % 25 == 24 {
            let summary = self.random.words(4000);
            self.put(
                "compaction",
                json!({"summary": summary, "firstKeptEntryId": user, "tokensBefore": self.tokens}),
            );
            self.tokens = 4000;
        }
        if number % 15 == 14 {
            self.put(
                "label",
                json!({"targetId": user, "label": format!("turn {number}")}),
            );
        }
        if number % 40 == 39 {
            self.parent = self.ids.get(self.ids.len().saturating_sub(31)).cloned();
        }
    }
}

fn make(path: &Path, entries: u32) {
    let mut maker = Maker {
        out: BufWriter::new(std::fs::File::create(path).unwrap()),
        random: Lcg(42),
        count: 0,
        ids: Vec::new(),
        parent: None,
        tokens: 0,
    };
    let header = json!({"type": "session", "version": 3, "id": "bench", "timestamp": iso_time(1_767_603_600_000), "cwd": "/srv/proj"});
    writeln!(maker.out, "{header}").unwrap();
    maker.put("model_change", json!({"provider": "p", "modelId": "m"}));
    maker.put("thinking_level_change", json!({"thinkingLevel": "high"}));
    let (base, more) = (maker.random.words(3000), maker.random.words(2000));
    maker.message(
        json!({"role": "system", "content": "", "sections": {"base": base, "more": more}}),
    );
    let mut turn = 0;
    while maker.count < entries {
        maker.turn(turn);
        turn += 1;
    }
    maker.out.flush().unwrap();
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let value = work();
    (start.elapsed(), value)
}

/// The best of three: the machine may be busy with other things.
fn best<T>(mut work: impl FnMut() -> T) -> (Duration, T) {
    let mut result = timed(&mut work);
    for _ in 0..2 {
        let next = timed(&mut work);
        if next.0 < result.0 {
            result = next;
        }
    }
    result
}

/// Memory in MiB: resident now, and at its highest since the last reset.
fn memory() -> (f64, f64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<f64>()
            .unwrap()
            / 1024.0
    };
    (field("VmRSS"), field("VmHWM"))
}

/// Figures beside their targets; one beyond twice its target fails the bench.
#[derive(Default)]
struct Targets {
    over: bool,
}

impl Targets {
    fn check(&mut self, name: &str, figure: f64, target: f64, unit: &str) {
        let verdict = match figure / target {
            ratio if ratio <= 1.0 => "reached",
            ratio if ratio <= 2.0 => "missed",
            _ => "FAILED, more than twice the target",
        };
        self.over |= figure > 2.0 * target;
        println!("target {name}: {figure:.2} {unit}, wanted at most {target} {unit}: {verdict}");
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn large(path: &Path, targets: &mut Targets) {
    let size = std::fs::metadata(path).unwrap().len() as f64 / 1_048_576.0;
    let (whole, _) = best(|| std::fs::read(path).unwrap().len());
    let (chunks, _) = best(|| {
        let (mut file, mut buffer, mut sum) =
            (std::fs::File::open(path).unwrap(), vec![0; 1 << 20], 0);
        loop {
            match file.read(&mut buffer).unwrap() {
                0 => break sum,
                count => sum += count,
            }
        }
    });
    println!(
        "file: {size:.0} MiB; plain read: {:.0} ms whole, {:.0} ms in chunks",
        ms(whole),
        ms(chunks)
    );
    // Writing 5 there resets the highest mark; where it is not allowed the mark includes the read above.
    drop(std::fs::write("/proc/self/clear_refs", "5"));
    let before = memory().0;
    let (opened, mut session) = best(|| {
        let session = Session::open(path, Path::new("/srv/proj"), Start::default()).unwrap();
        session.context();
        session
    });
    let (now, high) = memory();
    println!(
        "open + first projection: {:.0} ms = {:.2} x whole read, {:.2} x chunked read; {} entries, path {}, context {} messages",
        ms(opened),
        ms(opened) / ms(whole),
        ms(opened) / ms(chunks),
        session.len(),
        session.path().len(),
        session.context().messages().count()
    );
    targets.check(
        "open, of the plain read",
        ms(opened) / ms(whole),
        3.0,
        "times",
    );
    targets.check("resident memory, of the file", high / size, 0.6, "times");
    println!(
        "memory: {:.0} MiB more than before, {high:.0} MiB at most = {:.2} x the file",
        now - before,
        high / size
    );
    let (again, _) = best(|| session.context().messages().count());
    let (anew, _) = best(|| session.context_at(session.leaf()).messages().count());
    println!(
        "projection: {:.3} ms repeated, {:.1} ms computed anew",
        ms(again),
        ms(anew)
    );
    let (tree, _) = best(|| session.tree().roots().len());
    let mut view = TreeView::new(Filter::Default, Charset::Unicode);
    let (layout, ()) = best(|| view.refresh(&session));
    let from = view.len().saturating_sub(60);
    let (window, rows) = best(|| view.rows(&session, from..from + 60).len());
    println!(
        "tree: {:.1} ms; rows: {:.1} ms to lay out {}, {:.2} ms for a window of {rows}",
        ms(tree),
        ms(layout),
        view.len(),
        ms(window)
    );
    targets.check("tree rows, window", ms(window), 10.0, "ms");
    let settings = CompactionSettings::default();
    let (prepared, _) = best(|| prepare(&session, &session.path(), &settings).is_ok());
    let (stats, _) = timed(|| session.stats().total_messages);
    println!(
        "compaction preparation: {:.1} ms; statistics: {:.0} ms the first time",
        ms(prepared),
        ms(stats)
    );
    let text = "x".repeat(400);
    let message = Message::from_value(json!({"role": "user", "content": text, "timestamp": 1}));
    let mut appends: Vec<Duration> = (0..5000)
        .map(|_| timed(|| session.append_message(&message).unwrap()).0)
        .collect();
    let median = |part: &mut [Duration]| {
        part.sort();
        part[part.len() / 2].as_secs_f64() * 1e6
    };
    let (first, last) = appends.split_at_mut(2500);
    let (first, last) = (median(first), median(last));
    println!("append: {first:.1} us at first, {last:.1} us after 2,500 more (medians)");
    targets.check("append", last, 20.0, "us");
}

fn thousand(dir: &Path, targets: &mut Targets) {
    let one = dir.join("one.jsonl");
    make(&one, 20);
    let text = std::fs::read_to_string(&one).unwrap();
    let folder = dir.join("many");
    std::fs::create_dir(&folder).unwrap();
    for at in 0..1000 {
        std::fs::write(
            folder.join(format!("{at:04}.jsonl")),
            text.replacen("bench", &format!("bench-{at}"), 1),
        )
        .unwrap();
    }
    let cancel = CancellationToken::new();
    let (all, infos) = best(|| list(Scope::Folder(&folder), &cancel, &mut |_| {}));
    let (first, ()) = best(|| {
        let stop = CancellationToken::new();
        list(Scope::Folder(&folder), &stop, &mut |_| stop.cancel());
    });
    println!(
        "list of {} sessions of {} KiB: {:.0} ms, first rows after {:.1} ms",
        infos.len(),
        text.len() / 1024,
        ms(all),
        ms(first)
    );
    targets.check("list", ms(all), 100.0, "ms");
}

fn main() {
    let entries = std::env::args()
        .skip(1)
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(100_000);
    let dir: PathBuf = std::env::temp_dir().join(format!("pi-nvim-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("large.jsonl");
    make(&path, entries);
    let mut targets = Targets::default();
    large(&path, &mut targets);
    thousand(&dir, &mut targets);
    std::fs::remove_dir_all(&dir).unwrap();
    if targets.over {
        std::process::exit(1);
    }
}
