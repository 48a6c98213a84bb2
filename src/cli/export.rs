//! `--export`: a session file as a page.

use super::Cli;

/// Writes the page and says where.
///
/// # Errors
/// One line.
pub(crate) fn run(_cli: &Cli, path: &str) -> Result<(), String> {
    Err(format!("cannot export {path} yet"))
}
