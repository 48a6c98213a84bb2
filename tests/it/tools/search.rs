//! `read`, `grep`, `find` and `ls` at their limits: unsaved buffers, odd files, huge files, order, aborts.

use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pi_nvim::agent::{ErrorClass, ToolError, ToolOutput};
use pi_nvim::tools::ToolEnv;
use serde_json::{Value, json};

use super::harness::{Buffers, Setup, blocks_text, test_env};
use super::stress::Call;

async fn run(setup: &Setup, tool: &'static str, arguments: Value) -> Result<ToolOutput, ToolError> {
    Call::new(tool, arguments).run(setup, test_env(setup)).await
}

async fn text(setup: &Setup, tool: &'static str, arguments: Value) -> String {
    match run(setup, tool, arguments).await {
        Ok(output) => blocks_text(&output.content),
        Err(error) => format!("{:?}: {}", error.class, error.message),
    }
}

fn with_buffers(setup: &Setup, buffers: &[(&str, &str)]) -> ToolEnv {
    let buffers = buffers
        .iter()
        .map(|(name, text)| (setup.cwd.join(name), Arc::from(text.as_bytes())));
    ToolEnv {
        workspace: Arc::new(Buffers(buffers.collect())),
        ..test_env(setup)
    }
}

#[tokio::test]
async fn unsaved_buffers_are_read_and_searched() {
    let setup = Setup::empty();
    fs::create_dir(setup.cwd.join("d")).unwrap();
    fs::write(setup.cwd.join("d/a.txt"), "old\n").unwrap();
    fs::write(setup.cwd.join("b.txt"), "old\n").unwrap();
    std::os::unix::fs::symlink("d/a.txt", setup.cwd.join("link")).unwrap();
    std::os::unix::fs::symlink("d", setup.cwd.join("dirlink")).unwrap();
    let env = with_buffers(&setup, &[("d/a.txt", "new\n"), ("unborn.txt", "not yet\n")]);
    for (tool, arguments, wanted) in [
        ("read", json!({"path": "d/a.txt"}), "new\n"),
        ("read", json!({"path": "link"}), "new\n"),
        ("read", json!({"path": "unborn.txt"}), "not yet\n"),
        ("read", json!({"path": "b.txt"}), "old\n"),
        (
            "grep",
            json!({"pattern": "old|new"}),
            "b.txt:1: old\nd/a.txt:1: new",
        ),
        (
            "grep",
            json!({"pattern": "old|new", "path": "dirlink"}),
            "a.txt:1: new",
        ),
        (
            "grep",
            json!({"pattern": "old|new", "path": "d/a.txt"}),
            "a.txt:1: new",
        ),
    ] {
        let output = Call::new(tool, arguments.clone())
            .run(&setup, env.clone())
            .await
            .unwrap();
        assert_eq!(blocks_text(&output.content), wanted, "{tool} {arguments}");
    }
}

#[tokio::test]
async fn files_that_are_only_buffers_so_far_are_found_like_others() {
    let setup = Setup::empty();
    fs::create_dir_all(setup.cwd.join("d/.git")).unwrap();
    fs::write(setup.cwd.join("d/.gitignore"), "*.log\nout/\n").unwrap();
    fs::write(setup.cwd.join("d/b.rs"), "needle\n").unwrap();
    fs::write(setup.cwd.join("d/gone"), "").unwrap();
    std::os::unix::fs::symlink("d", setup.cwd.join("link")).unwrap();
    let env = with_buffers(
        &setup,
        &[
            ("d/a.rs", "needle a\n"),
            ("d/new/c.rs", "needle c\n"),
            // Ignored, as it will be once it is written.
            ("d/x.log", "needle log\n"),
            ("d/out/x.rs", "needle out\n"),
            ("elsewhere.rs", "needle elsewhere\n"),
        ],
    );
    for (tool, arguments, wanted) in [
        (
            "grep",
            json!({"pattern": "needle", "path": "d"}),
            "a.rs:1: needle a\nb.rs:1: needle\nnew/c.rs:1: needle c",
        ),
        (
            "grep",
            json!({"pattern": "needle", "path": "link", "glob": "a*"}),
            "a.rs:1: needle a",
        ),
        (
            "grep",
            json!({"pattern": "needle", "path": "d/new/c.rs"}),
            "c.rs:1: needle c",
        ),
        (
            "grep",
            json!({"pattern": "needle", "path": "d", "limit": 1}),
            "a.rs:1: needle a\n\n[1 matches limit reached. Use limit=2 for more, or refine pattern]",
        ),
        (
            "find",
            json!({"pattern": "*.rs", "path": "d"}),
            "a.rs\nb.rs\nnew/c.rs",
        ),
        (
            "find",
            json!({"pattern": "new/*.rs", "path": "link"}),
            "new/c.rs",
        ),
        (
            "find",
            json!({"pattern": "*.log", "path": "d"}),
            "No files found matching pattern",
        ),
        (
            "ls",
            json!({"path": "d"}),
            ".git/\n.gitignore\na.rs\nb.rs\ngone\nx.log",
        ),
        (
            "ls",
            json!({"path": "link", "limit": 3}),
            ".git/\n.gitignore\na.rs\n\n[3 entries limit reached. Use limit=6 for more]",
        ),
    ] {
        let output = Call::new(tool, arguments.clone())
            .run(&setup, env.clone())
            .await;
        assert_eq!(
            blocks_text(&output.unwrap().content),
            wanted,
            "{tool} {arguments}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_kept_whatever_order_the_tree_is_searched_in() {
    let setup = Setup::empty();
    forest(&setup);
    for limit in [1, 7, 49, 50, 51, 1999, 2000, 2001] {
        let found = text(&setup, "grep", json!({"pattern": "needle", "limit": limit})).await;
        let hits: Vec<&str> = found
            .lines()
            .filter(|line| line.contains(":2: needle"))
            .collect();
        assert_eq!(hits.len(), limit.min(2000), "{limit}");
        assert!(hits.is_sorted_by_key(|hit| hit.split(':').next()));
        assert_eq!(found.contains("limit reached"), limit < 2000, "{limit}");
        let last = format!(
            "d{:02}/f{:02}.txt:2:",
            (limit.min(2000) - 1) / 50,
            (limit.min(2000) - 1) % 50
        );
        assert!(
            hits.last().unwrap().starts_with(&last),
            "{limit}: {:?}",
            hits.last()
        );
        let listed = text(&setup, "find", json!({"pattern": "f*.txt", "limit": limit})).await;
        assert_eq!(
            listed.lines().filter(|line| line.ends_with(".txt")).count(),
            limit.min(2000)
        );
        assert_eq!(listed.contains("limit reached"), limit < 2000, "{limit}");
    }
}

#[tokio::test]
async fn system_files_without_a_size_are_read() {
    let setup = Setup::empty();
    let text = text(
        &setup,
        "read",
        json!({"path": "/proc/self/status", "limit": 1}),
    )
    .await;
    assert!(text.starts_with("Name:"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipes_and_endless_devices_do_not_hang() {
    let setup = Setup::empty();
    let pipe = setup.cwd.join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(text(&setup, "read", json!({"path": "pipe"})).await, "");
    fs::write(setup.cwd.join("a.txt"), "x\n").unwrap();
    assert_eq!(
        text(&setup, "grep", json!({"pattern": "x"})).await,
        "a.txt:1: x"
    );
    let refused = text(&setup, "grep", json!({"pattern": "x", "path": "pipe"})).await;
    assert!(refused.starts_with("SearchPathInvalid"), "{refused}");
    let call = Call::new("read", json!({"path": "/dev/zero"}));
    call.cancel.cancel();
    assert_eq!(
        call.run(&setup, test_env(&setup)).await,
        Err(ToolError::aborted())
    );
    let call = Call::new("read", json!({"path": "/dev/zero"}));
    let cancel = call.cancel.clone();
    let started = Instant::now();
    let stop = async {
        tokio::task::yield_now().await;
        cancel.cancel();
        futures::future::pending::<()>().await;
    };
    tokio::select! {
        outcome = call.run(&setup, test_env(&setup)) => assert_eq!(outcome, Err(ToolError::aborted())),
        () = stop => {}
    }
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn a_huge_file_is_read_in_bounded_memory() {
    let setup = Setup::empty();
    let mut file = fs::File::create(setup.cwd.join("big")).unwrap();
    file.write_all(b"first\n").unwrap();
    // A sparse line of 200 MiB without a newline.
    file.set_len(200 << 20).unwrap();
    let before = peak_kib();
    let text = text(&setup, "read", json!({"path": "big"})).await;
    assert_eq!(
        text,
        "first\n\n[Showing lines 1-1 of 2 (50.0KB limit). Use offset=2 to continue.]"
    );
    let grown = peak_kib() - before;
    assert!(grown < 20 * 1024, "{grown} KiB");
}

fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_file_that_claims_a_huge_picture_is_left_out() {
    let setup = Setup::empty();
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    png.extend(200_000u32.to_be_bytes());
    png.extend(200_000u32.to_be_bytes());
    png.extend(b"\x08\x02\0\0\0");
    png.extend([0; 4000]);
    fs::write(setup.cwd.join("bomb.png"), png).unwrap();
    let text = text(&setup, "read", json!({"path": "bomb.png"})).await;
    assert!(
        text.starts_with("Read image file [image/png]\n[Image omitted"),
        "{text}"
    );
}

/// Many files with a match each, in several directories.
fn forest(setup: &Setup) {
    for dir in 0..40 {
        let dir = setup.cwd.join(format!("d{dir:02}"));
        fs::create_dir(&dir).unwrap();
        for file in 0..50 {
            let text = format!("one\nneedle {file}\n{}", "filler\n".repeat(file * 7));
            fs::write(dir.join(format!("f{file:02}.txt")), text).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_tree_gives_the_same_answer() {
    let setup = Setup::empty();
    forest(&setup);
    let first = text(&setup, "grep", json!({"pattern": "needle", "context": 1})).await;
    assert!(
        first.starts_with("d00/f00.txt-1- one\nd00/f00.txt:2: needle 0\nd00/f01.txt-1- one\n"),
        "{first}"
    );
    assert!(first.contains("d01/f49.txt:2: needle 49") && !first.contains("d02/"));
    assert!(
        first.ends_with("[100 matches limit reached. Use limit=200 for more, or refine pattern]")
    );
    for _ in 0..10 {
        assert_eq!(
            text(&setup, "grep", json!({"pattern": "needle", "context": 1})).await,
            first
        );
    }
    let all = text(&setup, "grep", json!({"pattern": "needle", "limit": 5000})).await;
    assert_eq!(
        all.lines().filter(|line| line.contains("needle")).count(),
        2000,
        "{}",
        all.len()
    );
    let found = text(&setup, "find", json!({"pattern": "*.txt", "limit": 3})).await;
    assert!(
        found.starts_with("d00/f00.txt\nd00/f01.txt\nd00/f02.txt\n\n[3 results"),
        "{found}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_file_with_everything_does_not_hold_memory() {
    let setup = Setup::empty();
    forest(&setup);
    let mut file =
        std::io::BufWriter::new(fs::File::create(setup.cwd.join("zz-last.txt")).unwrap());
    for n in 0..100_000 {
        writeln!(
            file,
            "needle in a long line that goes on and on and on, number {n}"
        )
        .unwrap();
    }
    drop(file);
    let before = peak_kib();
    let output = run(
        &setup,
        "grep",
        json!({"pattern": "needle", "limit": 1_000_000}),
    )
    .await
    .unwrap();
    let details = output.details.unwrap();
    assert_eq!(details["truncation"]["totalLines"], 102_000);
    let grown = peak_kib() - before;
    assert!(grown < 40 * 1024, "{grown} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_ends_a_search_at_once() {
    let setup = Setup::empty();
    let file = fs::File::create(setup.cwd.join("huge")).unwrap();
    file.set_len(20 << 30).unwrap();
    let call = Call::new("grep", json!({"pattern": "needle", "path": "huge"}));
    let cancel = call.cancel.clone();
    let started = Instant::now();
    let (outcome, ()) = tokio::join!(call.run(&setup, test_env(&setup)), async {
        tokio::task::yield_now().await;
        cancel.cancel();
    });
    assert_eq!(outcome, Err(ToolError::aborted()));
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn patterns_that_look_like_options_are_patterns() {
    let setup = Setup::empty();
    fs::write(setup.cwd.join("evil.sh"), "touch ran\n").unwrap();
    for (tool, pattern) in [("grep", "--pre=./evil.sh"), ("find", "-x")] {
        let said = text(&setup, tool, json!({ "pattern": pattern })).await;
        assert!(said.starts_with("No "), "{tool}: {said}");
    }
}

#[tokio::test]
async fn a_deep_tree_is_walked() {
    let setup = Setup::empty();
    let mut dir = setup.cwd.clone();
    for _ in 0..200 {
        dir.push("d");
    }
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("leaf"), "needle\n").unwrap();
    let found = text(&setup, "find", json!({"pattern": "leaf"})).await;
    assert_eq!(found, format!("{}leaf", "d/".repeat(200)));
    let hit = text(&setup, "grep", json!({"pattern": "needle"})).await;
    assert_eq!(hit, format!("{}leaf:1: needle", "d/".repeat(200)));
}

#[tokio::test]
async fn errors_name_what_the_model_wrote() {
    let setup = Setup::empty();
    let error = run(&setup, "read", json!({"path": "@nope.txt"}))
        .await
        .unwrap_err();
    assert_eq!(error.class, ErrorClass::Io);
    assert_eq!(
        error.message,
        "cannot read @nope.txt: ENOENT: no such file or directory"
    );
    let error = run(&setup, "grep", json!({"pattern": "("}))
        .await
        .unwrap_err();
    assert!(error.message.contains("literal"), "{}", error.message);
}
