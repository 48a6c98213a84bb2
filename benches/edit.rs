//! How long a change takes: editing a large file by the tool's whole way to the disk, and cutting a large change into hunks.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench"
)]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use pi_nvim::agent::{SessionFacts, Tool, ToolContext};
use pi_nvim::files::replace::{Flush, Options};
use pi_nvim::review::gate::{Gate, GateConfig};
use pi_nvim::review::hunks::{lines, spans};
use pi_nvim::tools::{ToolEnv, ToolOptions, builtin};
use pi_nvim::workspace::disk::DiskWorkspace;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A text of about this many bytes; every line is unique.
fn text(bytes: usize) -> String {
    (0..)
        .map(|line| format!("    let value_{line} = compute(input, {line})?; // step\n"))
        .scan(0, |total, line| {
            *total += line.len();
            (*total <= bytes).then_some(line)
        })
        .collect()
}

fn edit_tool(dir: &Path) -> Arc<dyn Tool> {
    let workspace = Arc::new(DiskWorkspace::with_options(Options {
        flush: Flush::Never,
        ..Options::default()
    }));
    let gate = Gate::new(GateConfig::new(Arc::clone(&workspace) as _, dir));
    let env = ToolEnv {
        workspace,
        gate,
        options: ToolOptions::default().into(),
    };
    builtin(env)
        .into_iter()
        .find(|tool| tool.declaration().name == "edit")
        .expect("there is an edit tool")
}

fn arguments(n_edits: usize, n_lines: usize) -> Value {
    let edits: Vec<Value> = (0..n_edits)
        .map(|edit| {
            let line = edit * n_lines / n_edits;
            json!({"oldText": format!("value_{line} = compute"), "newText": format!("result_{line} = run")})
        })
        .collect();
    json!({"path": "big.rs", "edits": edits})
}

fn edit_large_file(c: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("big.rs");
    let content = text(10 * 1024 * 1024);
    let n_lines = content.lines().count();
    let tool = edit_tool(dir.path());
    let mut group = c.benchmark_group("edit 10 MB");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(4));
    for n_edits in [1, 10, 100] {
        let arguments = arguments(n_edits, n_lines);
        group.bench_function(format!("{n_edits} edits"), |b| {
            b.iter_batched(
                || std::fs::write(&file, &content).unwrap(),
                |()| {
                    let context = ToolContext {
                        call_id: "call".to_owned(),
                        cwd: dir.path().to_owned(),
                        cancel: CancellationToken::new(),
                        updates: Arc::new(|_| {}),
                        session: SessionFacts::default(),
                    };
                    runtime
                        .block_on(async { tool.start(arguments.clone(), context).await.unwrap() })
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn cut_into_hunks(c: &mut Criterion) {
    let old: String = (0..10_000).map(|line| format!("line {line}\n")).collect();
    let new: String = (0..10_000)
        .map(|line| match line % 10 {
            5 => format!("line {line} changed\n"),
            _ => format!("line {line}\n"),
        })
        .collect();
    let mut group = c.benchmark_group("hunks");
    group
        .sample_size(20)
        .measurement_time(Duration::from_secs(3));
    group.bench_function("10,000 lines, 1,000 changes", |b| {
        b.iter(|| {
            let (old, new) = (lines(black_box(old.as_bytes())), lines(new.as_bytes()));
            let found = spans(&old, &new, 1);
            assert_eq!(found.len(), 1_000);
            found
        });
    });
    group.finish();
}

criterion_group!(benches, edit_large_file, cut_into_hunks);
criterion_main!(benches);
