//! The first prompt: a pipe, files and the first message in one; further messages are further prompts.

use std::path::Path;

use super::Cli;
use pi_nvim::ai::Block;
use pi_nvim::files::agent_dir::resolve_path;
use pi_nvim::modes::print::Prompt;
use pi_nvim::tools::image::{self, Profile};

/// Returns the prompts in order; none when there is nothing to ask.
///
/// # Errors
/// A file that is missing or cannot be read.
pub(crate) fn prompts(cli: &Cli, piped: Option<String>) -> Result<Vec<Prompt>, String> {
    let cwd = std::env::current_dir().map_err(|error| format!("working directory: {error}"))?;
    let home = std::env::home_dir().unwrap_or_default();
    let mut first = Prompt {
        text: piped.map(|text| text.trim().to_owned()).unwrap_or_default(),
        images: Vec::new(),
    };
    for file in &cli.files {
        add_file(&mut first, &resolve_path(file, &cwd, &home))?;
    }
    let mut messages = cli.messages.iter();
    if let Some(message) = messages.next() {
        first.text.push_str(message);
    }
    let mut prompts = Vec::new();
    if !first.text.is_empty() || !first.images.is_empty() {
        prompts.push(first);
    }
    prompts.extend(messages.map(|message| Prompt {
        text: message.clone(),
        images: Vec::new(),
    }));
    Ok(prompts)
}

fn add_file(prompt: &mut Prompt, path: &Path) -> Result<(), String> {
    let name = path.display();
    if !path.exists() {
        return Err(format!("File not found: {name}"));
    }
    let bytes = std::fs::read(path).map_err(|error| format!("read {name}: {error}"))?;
    if bytes.is_empty() {
        return Ok(());
    }
    if let Some(kind) = image::sniff(&bytes) {
        let picture = image::prepare(kind, bytes, &Profile::of(None, true));
        let notes = picture.notes.join("\n");
        prompt
            .text
            .push_str(&format!("<file name=\"{name}\">{notes}</file>\n"));
        if let Some(data) = picture.data {
            prompt.images.push(Block::image(data, picture.mime));
        }
        return Ok(());
    }
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes);
    let text = String::from_utf8_lossy(bytes);
    prompt
        .text
        .push_str(&format!("<file name=\"{name}\">\n{text}\n</file>\n"));
    Ok(())
}
