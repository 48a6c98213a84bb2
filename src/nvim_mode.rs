//! Starts the Neovim mode from the command line.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pi_nvim::ai::providers::scripted::{Answer, Scripted, demo};
use pi_nvim::ai::registry::ModelRegistry;
use pi_nvim::files::agent_dir::Places;
use pi_nvim::modes::nvim::editor::transport::Stdio;
use pi_nvim::modes::nvim::{self, Begin, Connection};
use pi_nvim::session::{Opener, Wish};

use crate::cli::Cli;
use crate::cli::sessions::choose;

/// Runs until Neovim is gone.
pub(crate) fn run(cli: Cli) -> Result<(), String> {
    // Before any thread: standard output is the protocol's from here on.
    let connection = match &cli.attach {
        Some(path) => Connection::Attach(path.into()),
        None => Connection::Stdio(Stdio::take().map_err(|error| {
            format!("--mode nvim is started by Neovim, over standard input and output: {error}")
        })?),
    };
    let cwd = std::env::current_dir().map_err(|error| format!("current directory: {error}"))?;
    let opener = opener(&cli, &cwd)?;
    let begin = begin(&cli, &opener, cwd)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("start the runtime: {error}"))?;
    let done = runtime.block_on(nvim::run(connection, opener, begin));
    // Threads that block on something must not keep Neovim waiting.
    runtime.shutdown_background();
    done
}

/// Works out which session the arguments name, if they name one.
fn begin(cli: &Cli, opener: &Opener, cwd: PathBuf) -> Result<Begin, String> {
    let mut begin = Begin {
        pick: cli.resume,
        in_memory: cli.no_session,
        ..Begin::default()
    };
    if cli.names_session() && !cli.resume {
        let loaded = opener.load(&cwd);
        let chosen = choose(cli, opener, &cwd, &loaded.resources);
        let chosen = chosen.map_err(|complaint| complaint.to_string())?;
        let wish = Wish {
            session: chosen.session,
            id: chosen.id,
            name: cli.name.clone(),
            flags_hold: true,
        };
        *begin.first.get_mut() = Some((cwd, wish));
    }
    Ok(begin)
}

fn opener(cli: &Cli, cwd: &Path) -> Result<Opener, String> {
    if let Some(error) = cli.unclaimed_error() {
        return Err(error);
    }
    let places = Places::from_env(|name| std::env::var_os(name), cwd);
    crate::cli::log::start(&places.state_dir);
    let registry =
        ModelRegistry::load(&places.agent_dir, Arc::new(|name| std::env::var(name).ok()));
    let demo = std::env::var_os("PI_NVIM_DEMO").is_some_and(|value| !value.is_empty());
    let model = if demo {
        let model = Scripted::model();
        registry.register("scripted", Arc::new(scripted_demo()), vec![model.clone()]);
        Some(Arc::new(model))
    } else {
        None
    };
    Ok(Opener {
        model,
        has_ui: true,
        ..cli.opener(places, registry)
    })
}

/// The agent of the demo, as a model.
fn scripted_demo() -> Scripted {
    Scripted::new(|request| {
        let step = demo::respond(&request.messages);
        let mut answer = Answer::new();
        if !step.thinking.is_empty() {
            answer = answer.thinking(step.thinking);
        }
        for word in step.text.split_inclusive(' ') {
            answer = answer.text(word).pause(Duration::from_millis(12));
        }
        for (id, name, arguments) in step.calls {
            answer = answer.call(id, name, arguments);
        }
        answer
    })
}
