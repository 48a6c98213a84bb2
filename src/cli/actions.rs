//! Actions that look something up and leave: models, credentials, export.

use std::process::ExitCode;

use super::start::Startup;
use super::{Action, Cli, say};

/// Runs one of these actions.
pub(crate) fn run(cli: &Cli) -> ExitCode {
    let done = match &cli.action {
        Some(Action::ListModels(filter)) => list_models(cli, filter.as_deref()),
        Some(Action::AuthCheck) => auth_check(cli),
        Some(Action::Export(path)) => super::export::run(cli, path),
        _ => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            say::error(&line);
            ExitCode::FAILURE
        }
    }
}

fn list_models(cli: &Cli, filter: Option<&str>) -> Result<(), String> {
    let startup = Startup::new(cli.clone())?;
    let wanted = filter.unwrap_or_default().to_lowercase();
    let models = startup.opener.registry.available();
    let rows: Vec<String> = models
        .iter()
        .map(|model| format!("{}/{}\t{}", model.provider, model.id, model.name))
        .filter(|row| row.to_lowercase().contains(&wanted))
        .collect();
    if rows.is_empty() {
        say::line(
            "No models to choose from: set a key in the environment or in auth.json (see `pi-nvim auth check`).",
        );
        return Ok(());
    }
    say::out(&format!("{}\n", rows.join("\n")));
    Ok(())
}

fn auth_check(cli: &Cli) -> Result<(), String> {
    let startup = Startup::new(cli.clone())?;
    for status in startup.opener.registry.status() {
        let state = match (&status.problem, &status.source) {
            (Some(problem), _) => problem.clone(),
            (None, Some(_)) => format!("ready, {} models", status.models),
            (None, None) => "no key".to_owned(),
        };
        say::out(&format!("{}\t{}\t{state}\n", status.provider, status.name));
    }
    Ok(())
}
