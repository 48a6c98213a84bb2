//! Starts the Neovim mode from the command line.

use std::sync::Arc;
use std::time::Duration;

use pi_nvim::ai::providers::scripted::{Answer, Scripted, demo};
use pi_nvim::ai::registry::ModelRegistry;
use pi_nvim::files::agent_dir::Places;
use pi_nvim::modes::nvim::editor::transport::Stdio;
use pi_nvim::modes::nvim::opener::Setup;
use pi_nvim::modes::nvim::{self, Connection};
use pi_nvim::resources::ResourceFlags;

use crate::cli::Cli;

/// Runs until Neovim is gone.
pub(crate) fn run(cli: Cli) -> Result<(), String> {
    // Before any thread: standard output is the protocol's from here on.
    let connection = match &cli.attach {
        Some(path) => Connection::Attach(path.into()),
        None => Connection::Stdio(Stdio::take().map_err(|error| {
            format!("--mode nvim is started by Neovim, over standard input and output: {error}")
        })?),
    };
    let setup = setup(cli)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("start the runtime: {error}"))?;
    let done = runtime.block_on(nvim::run(connection, setup));
    // Threads that block on something must not keep Neovim waiting.
    runtime.shutdown_background();
    done
}

fn setup(cli: Cli) -> Result<Setup, String> {
    if let Some(error) = cli.unclaimed_error() {
        return Err(error);
    }
    let cwd = std::env::current_dir().map_err(|error| format!("current directory: {error}"))?;
    let places = Places::from_env(|name| std::env::var_os(name), &cwd);
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
    let wanted = cli.wanted();
    Ok(Setup {
        places,
        registry,
        flags: ResourceFlags {
            system_prompt: cli.system_prompt,
            append_system_prompt: cli.append_system_prompt,
            extensions: cli.extensions,
            skills: cli.skills,
            prompt_templates: cli.prompt_templates,
            no_extensions: cli.no_extensions,
            no_skills: cli.no_skills,
            no_prompt_templates: cli.no_prompt_templates,
            no_context_files: cli.no_context_files,
        },
        model,
        wanted,
        api_key: cli.api_key,
        session_dir: cli.session_dir,
        trust: cli.trust,
        guard: std::env::current_exe().ok(),
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
