//! The Neovim mode: puts the face and the sessions together.

use super::Cli;

/// Serves the Neovim that started this process, or the one `--attach` names.
///
/// # Errors
/// One line.
pub(crate) async fn serve(_cli: Cli) -> Result<u8, String> {
    Err("the Neovim mode is not wired yet".to_owned())
}
