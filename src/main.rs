//! The `pi-nvim` binary: arguments, then one mode.

use std::process::ExitCode;

mod cli;
mod nvim_mode;

fn main() -> ExitCode {
    if let Some(code) = pi_nvim::tools::bash::guard::run_if_asked() {
        return code;
    }
    let done = match cli::parse(std::env::args().skip(1)) {
        Ok(cli) if cli.mode == cli::Mode::Nvim || cli.attach.is_some() => nvim_mode::run(cli),
        Ok(_) => Ok(()),
        Err(line) => Err(line),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
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
