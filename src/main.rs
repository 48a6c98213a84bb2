//! The `pi-nvim` binary: arguments, then one mode.

use std::process::ExitCode;

mod cli;
mod nvim_mode;

fn main() -> ExitCode {
    if let Some(code) = pi_nvim::tools::bash::guard::run_if_asked() {
        return code;
    }
    let done = match cli::parse(std::env::args().skip(1)) {
        Ok(cli) if cli.is_for_editor() => nvim_mode::run(cli),
        Ok(cli) => return cli::run::run(cli),
        Err(line) => Err(line),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            cli::say::error(&line);
            ExitCode::FAILURE
        }
    }
}
