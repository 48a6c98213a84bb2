//! The `pi-nvim` binary: arguments, then one mode.

use std::process::ExitCode;

mod cli;

fn main() -> ExitCode {
    if let Some(code) = pi_nvim::tools::bash::guard::run_if_asked() {
        return code;
    }
    let cli = match cli::parse(std::env::args().skip(1)) {
        Ok(cli) => cli,
        Err(line) => {
            cli::say::error(&line);
            return ExitCode::FAILURE;
        }
    };
    cli::run::run(cli)
}
