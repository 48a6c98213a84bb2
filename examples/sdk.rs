//! A session in a program of one's own: a model, tools, a reviewer, one prompt, its events as they come.
//!
//! `cargo run --example sdk` needs no network: the model is scripted. Put `ModelRegistry::load(...).provider()` in its
//! place to ask a real one.
use std::sync::Arc;

use pi_nvim::ai::providers::scripted::{Answer, Scripted};
use pi_nvim::session::{Command, Event, Runtime, RuntimeConfig};

#[tokio::main]
async fn main() -> Result<(), pi_nvim::session::CommandError> {
    let folder = std::env::temp_dir().join(format!("pi-nvim-sdk-{}", std::process::id()));
    let model = Scripted::replay([Answer::say("Hello from the model.")]);
    let config = RuntimeConfig::in_memory(&folder, Arc::new(model), Arc::new(Scripted::model()));
    let runtime = Runtime::start(config)?;
    let mut events = runtime.subscribe(64);
    runtime.request(Command::prompt("Say hello")).await?;
    while let Some(event) = events.recv().await {
        match &*event {
            Event::MessageEnd { message, .. } => tell(&message.to_value().to_string()),
            Event::AgentSettled { .. } => break,
            _ => {}
        }
    }
    runtime.shutdown().await;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example that shows what it gets")]
fn tell(line: &str) {
    println!("{line}");
}
