//! The places where the binary itself talks to a terminal.

use std::io::Write as _;

use pi_nvim::session::CommandError;

/// Why the process ends without having done what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Complaint {
    /// `Error: …`.
    Error(String),
    /// The line alone, as the reference program says it.
    Plain(String),
}

impl Complaint {
    /// Says it on stderr.
    pub(crate) fn say(&self) {
        match self {
            Self::Error(text) => error(text),
            Self::Plain(text) => line(text),
        }
    }
}

impl std::fmt::Display for Complaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Error(text) | Self::Plain(text)) = self;
        f.write_str(text)
    }
}

impl From<String> for Complaint {
    fn from(line: String) -> Self {
        Self::Error(line)
    }
}

impl From<CommandError> for Complaint {
    fn from(error: CommandError) -> Self {
        Self::Error(error.0)
    }
}

/// One line on stderr.
pub(crate) fn line(text: &str) {
    // Nobody can be told when stderr is gone.
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// `Error: …` on stderr.
pub(crate) fn error(text: &str) {
    line(&format!("Error: {text}"));
}

/// `Warning: …` on stderr.
pub(crate) fn warning(text: &str) {
    line(&format!("Warning: {text}"));
}

/// Text on stdout; a closed pipe is no error.
pub(crate) fn out(text: &str) {
    let mut stdout = std::io::stdout();
    drop(
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
    );
}
