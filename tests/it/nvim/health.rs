//! `:checkhealth pi`, and leaving Neovim while the backend runs.

use std::process::{Command, Output, Stdio};

use super::harness::{nvim_program, repository};

/// Runs Neovim as a person would start it, with keys of their own, shows the report and leaves.
fn report(leader: &str, local_leader: &str, colours: bool) -> Output {
    let root = tempfile::tempdir().unwrap();
    let mut command = Command::new(nvim_program());
    command
        .args(["--clean", "-n", "-i", "NONE", "--headless"])
        .args(["--cmd", &format!("set rtp^={}", repository().display())])
        .args([
            "--cmd",
            &format!("let mapleader='{leader}' | let maplocalleader='{local_leader}'"),
        ])
        .args([
            "--cmd",
            if colours {
                "set termguicolors"
            } else {
                "set notermguicolors"
            },
        ])
        .args(["-c", "checkhealth pi"])
        .args([
            "-c",
            "lua io.stdout:write(table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\\n'))",
        ])
        .args(["-c", "qall!"])
        .env_remove("NVIM")
        .env("HOME", root.path())
        .env("PI_CODING_AGENT_DIR", root.path().join("agent"))
        .env("PI_NVIM_BIN", env!("CARGO_BIN_EXE_pi-nvim"))
        .current_dir(root.path())
        .stdin(Stdio::null());
    for name in ["CONFIG", "DATA", "STATE", "CACHE", "RUNTIME"] {
        let kind = if name == "RUNTIME" { "DIR" } else { "HOME" };
        command.env(format!("XDG_{name}_{kind}"), root.path().join(name));
    }
    command.output().unwrap()
}

#[track_caller]
fn check(leader: &str, local_leader: &str, colours: bool, expected: &[&str]) {
    let output = report(leader, local_leader, colours);
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    for wanted in expected {
        assert!(text.contains(wanted), "{wanted} is not in:\n{text}\n{said}");
    }
    assert!(!text.contains("ERROR"), "{text}");
    // The backend ends with Neovim, and that is no news.
    assert!(!said.contains("ended"), "{said}");
}

#[test]
fn the_report_names_what_is_there() {
    let expected = [
        "answered in",
        "no provider has a key",
        "prefix ,: ,a accepts a hunk",
    ];
    check(" ", ",", true, &expected);
}

#[test]
fn the_report_says_why_a_prefix_was_not_taken() {
    let expected = ["prefix g.: g.a accepts a hunk", "the same key as <leader>"];
    check(" ", " ", false, &expected);
}
