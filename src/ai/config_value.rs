//! Values of configuration files that may name a variable or a command: `$NAME`, `${NAME}`, `!command`.

use std::process::Stdio;
use std::time::Duration;

use super::http::EnvLookup;

/// How long a command may run.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);

/// A configured value, read but not resolved.
#[derive(Clone, PartialEq, Eq)]
pub enum ConfigValue {
    /// Output of a shell command.
    Command(String),
    /// Text with variables.
    Template(Vec<Part>),
}

/// A piece of a template.
#[derive(Clone, PartialEq, Eq)]
pub enum Part {
    /// As it stands.
    Text(String),
    /// A variable's name.
    Variable(String),
}

/// Without texts: a key may be written out, in a command too.
impl std::fmt::Debug for ConfigValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Command(_) => f.write_str("Command(..)"),
            Self::Template(parts) => f.debug_tuple("Template").field(parts).finish(),
        }
    }
}

/// Without texts: a key may be written out.
impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(..)"),
            Self::Variable(name) => f.debug_tuple("Variable").field(name).finish(),
        }
    }
}

/// Why a value could not be resolved; never holds the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// A variable without a value.
    #[error("the environment variable {0} is not set")]
    Unset(String),
    /// The command failed or printed nothing.
    #[error("the configured command {0}")]
    Command(String),
}

impl ConfigValue {
    /// Reads a value. Anything that is no valid reference is plain text.
    pub fn parse(text: &str) -> Self {
        if let Some(command) = text.strip_prefix('!') {
            return Self::Command(command.to_owned());
        }
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            plain.push_str(before);
            rest = after;
            if let Some(next) = after.strip_prefix(['$', '!']) {
                plain.push(if after.starts_with('$') { '$' } else { '!' });
                rest = next;
            } else if let Some((name, next)) = variable(after) {
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                }
                parts.push(Part::Variable(name.to_owned()));
                rest = next;
            } else {
                plain.push('$');
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Self::Template(parts)
    }

    /// Returns the variables the value names.
    pub fn variables(&self) -> Vec<&str> {
        match self {
            Self::Command(_) => Vec::new(),
            Self::Template(parts) => parts
                .iter()
                .filter_map(|part| match part {
                    Part::Variable(name) => Some(name.as_str()),
                    Part::Text(_) => None,
                })
                .collect(),
        }
    }

    /// Whether the value would resolve, without running anything: a command counts as configured.
    pub fn is_configured(&self, env: &EnvLookup) -> bool {
        self.variables().iter().all(|name| has(env, name))
    }

    /// Whether the text is a secret taken from elsewhere rather than written down in the file.
    pub fn is_reference(&self) -> bool {
        matches!(self, Self::Command(_)) || !self.variables().is_empty()
    }

    /// Resolves the value. `overlay` are variables for commands beside the process's own.
    pub async fn resolve(
        &self,
        env: &EnvLookup,
        overlay: &[(String, String)],
    ) -> Result<String, ValueError> {
        match self {
            Self::Command(command) => run(command, overlay).await,
            Self::Template(parts) => {
                let resolve = |part: &Part| match part {
                    Part::Text(text) => Ok(text.clone()),
                    Part::Variable(name) => env(name)
                        .filter(|value| !value.is_empty())
                        .ok_or_else(|| ValueError::Unset(name.clone())),
                };
                parts.iter().map(resolve).collect()
            }
        }
    }
}

fn has(env: &EnvLookup, name: &str) -> bool {
    env(name).is_some_and(|value| !value.is_empty())
}

/// Reads a variable after its `$`: its name and what follows.
fn variable(after: &str) -> Option<(&str, &str)> {
    let braced = after.strip_prefix('{');
    let from = braced.unwrap_or(after);
    let end = from
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(from.len());
    let (name, rest) = from.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    match braced {
        Some(_) => Some((name, rest.strip_prefix('}')?)),
        None => Some((name, rest)),
    }
}

/// Runs a command of the shell and returns what it prints, trimmed.
async fn run(command: &str, overlay: &[(String, String)]) -> Result<String, ValueError> {
    let fail = |why: &str| Err(ValueError::Command(why.to_owned()));
    let output = tokio::process::Command::new("sh")
        .arg("-c")
        .arg(command)
        .envs(overlay.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(COMMAND_LIMIT, output).await {
        Err(_) => fail("took longer than 10 s"),
        Ok(Err(_)) => fail("could not be started"),
        Ok(Ok(output)) if !output.status.success() => fail("failed"),
        Ok(Ok(output)) => match String::from_utf8_lossy(&output.stdout).trim() {
            "" => fail("printed nothing"),
            text => Ok(text.to_owned()),
        },
    }
}
