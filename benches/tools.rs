//! Throughput of the tools that look at many or large files. `rg` and `fd` are measured beside them in the same run when
//! they are on `PATH` (or named by `PI_NVIM_BENCH_RG`, `PI_NVIM_BENCH_FD`). Results: `doc/benchmarks.md`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench"
)]

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pi_nvim::agent::{SessionFacts, Tool, ToolContext, ToolOutput};
use pi_nvim::review::gate::{Gate, GateConfig};
use pi_nvim::tools::{ToolEnv, ToolOptions, builtin};
use pi_nvim::workspace::disk::DiskWorkspace;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

const FILES: usize = 50_000;

struct Bench {
    runtime: Runtime,
    tools: Vec<Arc<dyn Tool>>,
    cwd: PathBuf,
}

impl Bench {
    fn new(cwd: &Path) -> Self {
        let workspace = Arc::new(DiskWorkspace::default());
        let gate = Gate::new(GateConfig::new(workspace.clone(), cwd));
        let env = ToolEnv {
            workspace,
            gate,
            options: ToolOptions::default().into(),
        };
        Self {
            runtime: Runtime::new().unwrap(),
            tools: builtin(env),
            cwd: cwd.to_owned(),
        }
    }

    fn run(&self, tool: &str, arguments: Value) -> ToolOutput {
        let context = ToolContext {
            call_id: "bench".to_owned(),
            cwd: self.cwd.clone(),
            cancel: CancellationToken::new(),
            updates: Arc::new(|_| {}),
            session: SessionFacts::default(),
        };
        let tool = self
            .tools
            .iter()
            .find(|it| it.declaration().name == tool)
            .unwrap();
        self.runtime
            .block_on(tool.start(arguments, context))
            .unwrap()
    }
}

fn data_dir() -> PathBuf {
    let dir = std::env::temp_dir().join("pi-nvim-bench-tools");
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// A text file of 100 MB, made once.
fn big_file(dir: &Path) -> PathBuf {
    let path = dir.join("big.txt");
    if !path.exists() {
        let mut file = std::io::BufWriter::new(fs::File::create(dir.join("big.part")).unwrap());
        for n in 0..1_450_000 {
            writeln!(
                file,
                "line {n}: some text of an ordinary length, as logs have it, {n:x}"
            )
            .unwrap();
        }
        file.into_inner().unwrap();
        fs::rename(dir.join("big.part"), &path).unwrap();
    }
    path
}

/// A tree of [`FILES`] small source files; twenty of them hold the needle. Made once.
fn forest(dir: &Path) -> PathBuf {
    let root = dir.join("forest");
    if root.exists() {
        return root;
    }
    let part = dir.join("forest.part");
    let mut body = String::new();
    for line in 0..40 {
        writeln!(
            body,
            "    let value_{line} = compute(input, {line}); // step {line}"
        )
        .unwrap();
    }
    for n in 0..FILES {
        let parent = part.join(format!("area{:02}/module{:03}", n % 50, n / 50 % 100));
        fs::create_dir_all(&parent).unwrap();
        let needle = if n % 2500 == 7 { "the_needle_42\n" } else { "" };
        fs::write(
            parent.join(format!("file{n}.rs")),
            format!("// {n}\n{body}{needle}"),
        )
        .unwrap();
    }
    fs::rename(part, &root).unwrap();
    root
}

fn peer(variable: &str, name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::var_os(variable).map(PathBuf::from);
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|it| it.is_file());
    named.or(found)
}

fn external(program: &Path, arguments: &[&str], cwd: &Path) -> Vec<u8> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(cwd)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command.output().unwrap().stdout
}

fn read(c: &mut Criterion) {
    let dir = data_dir();
    let path = big_file(&dir);
    let bench = Bench::new(&dir);
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Bytes(fs::metadata(&path).unwrap().len()));
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(3));
    group.bench_function("100 MB, offset near the end, 50 lines", |b| {
        b.iter(|| {
            black_box(bench.run(
                "read",
                json!({"path": "big.txt", "offset": 1_400_000, "limit": 50}),
            ))
        });
    });
    group.bench_function("100 MB, from the start", |b| {
        b.iter(|| black_box(bench.run("read", json!({"path": "big.txt"}))));
    });
    group.finish();
}

/// Processor time of this process and of the children it waited for, in milliseconds.
fn processor_time() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    // User and system time of the process, then those of its children, in hundredths of a second.
    let ticks = fields.split(' ').skip(11).take(4);
    ticks
        .filter_map(|field| field.parse::<f64>().ok())
        .sum::<f64>()
        * 10.0
}

/// Runs programs in turn, so that whatever else the machine does meets all of them alike, and prints the least time of
/// each beside the first one's. Not criterion's way: that measures one after the other, and on a busy machine the minutes
/// differ more than the programs. Processor time is shown too, since others cannot take it away.
fn beside(title: &str, runs: &[(&str, &dyn Fn())]) {
    let rounds = std::env::var("PI_NVIM_BENCH_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(25);
    let mut least = vec![(f64::MAX, f64::MAX); runs.len()];
    for _ in 0..rounds {
        for (place, (_, run)) in runs.iter().enumerate() {
            let (started, before) = (Instant::now(), processor_time());
            run();
            let (wall, busy) = &mut least[place];
            *wall = wall.min(started.elapsed().as_secs_f64() * 1e3);
            *busy = busy.min(processor_time() - before);
        }
    }
    println!("{title} (the least of {rounds} rounds in turn)");
    for ((name, _), (wall, busy)) in runs.iter().zip(&least) {
        println!(
            "    {name:<24} {wall:>7.0} ms (pi-nvim: {:.2} of it), processor {busy:>6.0} ms (pi-nvim: {:.2} of it)",
            least[0].0 / wall,
            least[0].1 / busy,
        );
    }
}

/// What `grep` means, in the options of `rg`.
const RG: [&str; 7] = [
    "--no-config",
    "--json",
    "--line-number",
    "--color=never",
    "--hidden",
    "--sort=none",
    "--",
];

fn grep(c: &mut Criterion) {
    let root = forest(&data_dir());
    let bench = Bench::new(&root);
    let output = bench.run("grep", json!({"pattern": "the_needle_[0-9]+"}));
    let text = output.content[0].as_text().unwrap();
    assert_eq!(text.lines().count(), FILES / 2500);
    let rg = peer("PI_NVIM_BENCH_RG", "rg");
    for (title, pattern) in [
        ("grep: 50k files, a rare word", "the_needle_[0-9]+"),
        ("grep: 50k files, nothing", "no_such_word_at_all"),
    ] {
        let ours = || drop(black_box(bench.run("grep", json!({ "pattern": pattern }))));
        let with = |sort: &'static str| {
            let (rg, root) = (rg.clone(), root.clone());
            move || {
                let Some(rg) = &rg else { return };
                let mut arguments = RG.to_vec();
                arguments[5] = sort;
                arguments.extend([pattern, "."]);
                black_box(external(rg, &arguments, &root));
            }
        };
        let (any_order, sorted) = (with("--sort=none"), with("--sort=path"));
        match rg {
            Some(_) => beside(
                title,
                &[
                    ("pi-nvim, in path order", &ours),
                    ("rg, in any order", &any_order),
                    ("rg --sort path", &sorted),
                ],
            ),
            None => beside(title, &[("pi-nvim, in path order", &ours)]),
        }
    }
    let mut group = c.benchmark_group("grep");
    group
        .sample_size(20)
        .measurement_time(Duration::from_secs(5));
    group.bench_function("50k files, limit reached early", |b| {
        b.iter(|| black_box(bench.run("grep", json!({"pattern": "compute"}))));
    });
    group.finish();
}

fn find(_: &mut Criterion) {
    let root = forest(&data_dir());
    let bench = Bench::new(&root);
    let pattern = "file4999[0-9].rs";
    let ours = || drop(black_box(bench.run("find", json!({ "pattern": pattern }))));
    let title = "find: 50k files, 11 results";
    let Some(fd) = peer("PI_NVIM_BENCH_FD", "fd") else {
        return beside(title, &[("pi-nvim, in path order", &ours)]);
    };
    let arguments = ["--color=never", "--hidden", "--glob", "--", pattern];
    let theirs = || drop(black_box(external(&fd, &arguments, &root)));
    beside(
        title,
        &[
            ("pi-nvim, in path order", &ours),
            ("fd, in any order", &theirs),
        ],
    );
}

criterion_group!(benches, read, grep, find);
criterion_main!(benches);
