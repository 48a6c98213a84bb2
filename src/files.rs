//! Folders and files of the program itself: the agent folder shared with Pi, our own state folder, the lock that both
//! programs respect, and a replace that never leaves half a file.
//!
//! Entry points: [`agent_dir::Places`], [`lock::DirLock`]. Knows nothing of agents. Nothing here reads the environment
//! by itself: [`agent_dir::Places::from_env`] is given a look-up.

pub mod agent_dir;
pub mod errno;
pub mod lock;
pub mod replace;
pub mod state;

use std::path::Path;

/// A moment between two steps that belong together: where a test has the program die. Nothing in other builds.
#[inline]
pub(crate) fn moment(name: &str) {
    #[cfg(feature = "testing")]
    crate::testing::pass(name);
    #[cfg(not(feature = "testing"))]
    let _ = name;
}

/// Reads a text file the way all of Pi's readers do: one UTF-8 BOM is dropped, bytes that are no UTF-8 become `U+FFFD`.
///
/// # Errors
/// Those of reading the file.
pub fn read_text(path: &Path) -> std::io::Result<String> {
    let bytes = std::fs::read(path)?;
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes);
    Ok(String::from_utf8_lossy(bytes).into_owned())
}
