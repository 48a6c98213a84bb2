//! A folder of our own state: private to its owner, with files that are replaced whole, and a store of texts by content.
//!
//! Entry point: [`StateDir`]. Core alone writes here; the folder is given from outside, nothing reads the environment.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::replace::write_private;

/// Returns the SHA-256 of some bytes in lower-case hexadecimal: how a text is named in records and checkpoints.
pub fn fingerprint(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes)
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// A private folder.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: PathBuf,
}

impl StateDir {
    /// Names the folder; it is made (mode 0700) when something is first written.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes a file (mode 0600), flushed.
    ///
    /// # Errors
    /// The file then has its old content.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.root.join(name);
        let folder = path.parent().unwrap_or(&self.root);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        write_private(&path, bytes)
    }

    /// Reads a file; `None` when there is none.
    ///
    /// # Errors
    /// Any other trouble with reading.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.root.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a file; fine when there is none.
    ///
    /// # Errors
    /// Any other trouble with removing.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.root.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Keeps a text under its fingerprint, once; returns the fingerprint.
    ///
    /// # Errors
    /// The text is then not kept.
    pub fn keep(&self, bytes: &[u8]) -> io::Result<String> {
        let name = fingerprint(bytes);
        let shelf = shelved(&name);
        if !self.root.join(&shelf).is_file() {
            self.write(&shelf, bytes)?;
        }
        Ok(name)
    }

    /// Returns a text kept earlier; `None` when it is gone or no longer what its name says.
    pub fn kept(&self, name: &str) -> Option<Vec<u8>> {
        let bytes = fs::read(self.root.join(shelved(name))).ok()?;
        (fingerprint(&bytes) == name).then_some(bytes)
    }
}

/// Two levels, so that no folder grows to tens of thousands of names.
fn shelved(name: &str) -> String {
    format!("{}/{name}", name.get(..2).unwrap_or("00"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_kept_is_private_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path().join("pi/checkpoints"));
        let name = state.keep(b"text").unwrap();
        assert_eq!(name, state.keep(b"text").unwrap());
        assert_eq!(state.kept(&name).as_deref(), Some(&b"text"[..]));
        assert_eq!(mode(state.root()), 0o700);
        assert_eq!(mode(&state.root().join(shelved(&name))), 0o600);
    }

    #[test]
    fn a_damaged_text_is_not_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let name = state.keep(b"text").unwrap();
        fs::write(state.root().join(shelved(&name)), b"tex").unwrap();
        assert_eq!(state.kept(&name), None);
    }

    #[test]
    fn fingerprints_are_sha256() {
        assert_eq!(
            fingerprint(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
