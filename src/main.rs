//! The `pi-nvim` binary: arguments, then one mode.

use std::process::ExitCode;

mod cli;

fn main() -> ExitCode {
    if let Some(code) = pi_nvim::tools::bash::guard::run_if_asked() {
        return code;
    }
    match cli::parse(std::env::args().skip(1)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(line) => {
            complain(&line);
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the one place where the binary talks to a terminal before a mode runs"
)]
fn complain(line: &str) {
    eprintln!("Error: {line}");
}
