//! The places where the binary itself talks to a terminal.

use std::io::Write as _;

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
