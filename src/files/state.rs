//! A folder of our own state: private to its owner, with files that are replaced whole, and a store of texts by content.
//!
//! Entry point: [`StateDir`]. Core alone writes here; the folder is given from outside, nothing reads the environment.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use super::replace::{Flush, write_private};

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
        make_private(path.parent().unwrap_or(&self.root))?;
        write_private(&path, bytes, Flush::Data)
    }

    /// Adds to the end of a file (mode 0600), in one write.
    ///
    /// # Errors
    /// Trouble with opening or writing.
    pub fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.root.join(name);
        make_private(path.parent().unwrap_or(&self.root))?;
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?
            .write_all(bytes)
    }

    /// Adds to the end of a file in one write, not flushed. Nothing happens when there is no such file.
    ///
    /// # Errors
    /// Trouble with opening or writing.
    pub fn add_to(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        match fs::OpenOptions::new()
            .append(true)
            .open(self.root.join(name))
        {
            Ok(mut file) => file.write_all(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the oldest files until the rest is within limits of size and age. Meant for the start of the program; what
    /// cannot be removed stays. Age counts from the newest file: a clock that was set far ahead makes nothing old.
    pub fn trim(&self, max_bytes: u64, max_age: Duration) {
        let mut files = Vec::new();
        collect(&self.root, &mut files);
        files.sort_by_key(|(modified, _, _)| std::cmp::Reverse(*modified));
        let newest = files.first().map(|(modified, _, _)| *modified);
        let now = SystemTime::now().min(newest.unwrap_or(SystemTime::UNIX_EPOCH));
        let mut total = 0;
        for (modified, len, path) in files {
            total += len;
            let is_old = now.duration_since(modified).is_ok_and(|age| age > max_age);
            if total > max_bytes || is_old {
                fs::remove_file(path).ok();
            }
        }
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

    /// Keeps a text under its fingerprint, once; returns the fingerprint. Without a flush a power cut may lose the text:
    /// what is left of it is then no longer what its name says, and not given back.
    ///
    /// # Errors
    /// The text is then not kept.
    pub fn keep(&self, bytes: &[u8], flush: Flush) -> io::Result<String> {
        let name = fingerprint(bytes);
        let path = self.root.join(shelved(&name));
        // What a power cut left of an earlier one is written anew; a whole one is as young as its last use.
        let is_kept = fs::read(&path).is_ok_and(|kept| kept == bytes);
        if is_kept && touch(&path).is_ok() {
            return Ok(name);
        }
        make_private(path.parent().unwrap_or(&self.root))?;
        write_private(&path, bytes, flush)?;
        Ok(name)
    }

    /// Returns a text kept earlier; `None` when it is gone or no longer what its name says.
    pub fn kept(&self, name: &str) -> Option<Vec<u8>> {
        let bytes = fs::read(self.root.join(shelved(name))).ok()?;
        (fingerprint(&bytes) == name).then_some(bytes)
    }
}

fn touch(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.set_modified(SystemTime::now())
}

fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

fn collect(folder: &Path, files: &mut Vec<(SystemTime, u64, PathBuf)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() {
            collect(&entry.path(), files);
        } else if let Ok(modified) = meta.modified() {
            files.push((modified, meta.len(), entry.path()));
        }
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
        let name = state.keep(b"text", Flush::Data).unwrap();
        assert_eq!(name, state.keep(b"text", Flush::Data).unwrap());
        assert_eq!(state.kept(&name).as_deref(), Some(&b"text"[..]));
        assert_eq!(mode(state.root()), 0o700);
        assert_eq!(mode(&state.root().join(shelved(&name))), 0o600);
    }

    #[test]
    fn trimming_keeps_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        for (age, name) in [(3, "a"), (2, "b/c"), (1, "d")] {
            state.write(name, b"1234").unwrap();
            let path = dir.path().join(name);
            let file = fs::OpenOptions::new().append(true).open(path).unwrap();
            let then = SystemTime::now() - Duration::from_secs(age * 3_600);
            file.set_modified(then).unwrap();
        }
        let left = || ["a", "b/c", "d"].map(|name| state.read(name).unwrap().is_some());
        // Two hours before the newest is not yet too old; one hour is.
        state.trim(1_000, Duration::from_secs(9_000));
        assert_eq!(left(), [true, true, true]);
        state.trim(1_000, Duration::from_secs(5_000));
        assert_eq!(left(), [false, true, true]);
        state.trim(6, Duration::from_secs(9_000));
        assert_eq!(left(), [false, false, true]);
    }

    #[test]
    fn a_damaged_text_is_not_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let name = state.keep(b"text", Flush::Data).unwrap();
        fs::write(state.root().join(shelved(&name)), b"tex").unwrap();
        assert_eq!(state.kept(&name), None);
        // Kept once more, it is whole again.
        state.keep(b"text", Flush::Data).unwrap();
        assert_eq!(state.kept(&name).as_deref(), Some(&b"text"[..]));
    }

    #[test]
    fn a_text_in_use_does_not_grow_old() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let name = state.keep(b"text", Flush::Never).unwrap();
        let file = fs::File::open(dir.path().join(shelved(&name))).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(9_000))
            .unwrap();
        state.keep(b"text", Flush::Never).unwrap();
        state.write("newest", b"").unwrap();
        state.trim(1_000, Duration::from_secs(3_600));
        assert!(state.kept(&name).is_some());
    }

    #[test]
    fn fingerprints_are_sha256() {
        assert_eq!(
            fingerprint(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
