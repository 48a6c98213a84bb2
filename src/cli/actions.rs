//! Actions that look something up and leave: models, credentials, export.

use std::process::ExitCode;

use pi_nvim::ai::auth::{self, ProviderStatus};

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

/// Prints a line for each provider, those that can be used first. Fails when there are none, so that scripts can ask.
fn auth_check(cli: &Cli) -> Result<(), String> {
    let startup = Startup::new(cli.clone())?;
    let mut rows = startup.opener.registry.status();
    // A key alone would not help where nothing is known of the models.
    rows.retain(|row| row.models > 0 || row.set_up);
    // What somebody set up and does not work is looked for next.
    rows.sort_by_key(|row| (row.problem.is_some(), !row.set_up));
    let width = rows.iter().map(|row| row.provider.len()).max();
    let width = width.unwrap_or_default();
    for row in &rows {
        say::out(&format!("{}\n", auth_line(row, width)));
    }
    if rows.iter().all(|row| row.problem.is_some()) {
        return Err(
            "no provider can be used yet: set one of the variables above, or store a key with `:Pi login PROVIDER` in Neovim"
                .to_owned(),
        );
    }
    Ok(())
}

fn auth_line(row: &ProviderStatus, width: usize) -> String {
    let (provider, models) = (&row.provider, row.models);
    let plural = if models == 1 { "model" } else { "models" };
    match (&row.problem, &row.source) {
        (Some(why), _) => {
            let why = auth::beside_name(provider, why);
            format!("{provider:width$}  -      {why}")
        }
        (None, Some(source)) => {
            format!("{provider:width$}  ready  key from {source}, {models} {plural}")
        }
        (None, None) => format!("{provider:width$}  ready  {models} {plural}"),
    }
}
