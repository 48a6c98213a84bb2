//! The log: one file in the state folder, warnings and errors unless `PI_NVIM_LOG` says otherwise.
//!
//! Standard output belongs to the protocol and standard error to the person, so neither is written to. A file that has
//! grown past [`MOST`] is set aside once. A log that cannot be opened is no reason not to work: nothing is logged then.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

/// Bytes a log may have when a process starts.
const MOST: u64 = 4 * 1024 * 1024;

/// Begins to log below `state_dir`. Called once, before a mode runs.
pub(crate) fn start(state_dir: &Path) {
    let wanted = std::env::var("PI_NVIM_LOG").unwrap_or_default();
    // nvim-rs tells every message it sees at debug level: what a person types and reads is not for a file.
    let filter = format!(
        "{},nvim_rs=off",
        if wanted.is_empty() { "warn" } else { &wanted }
    );
    let Ok(filter) = EnvFilter::try_new(filter) else {
        return;
    };
    let Ok(file) = open(&state_dir.join("log")) else {
        return;
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(Mutex::new(file));
    // Another subscriber is there already only when a program that uses the library set one.
    log.try_init().ok();
}

fn open(folder: &Path) -> io::Result<File> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let path = folder.join("pi-nvim.log");
    if std::fs::metadata(&path).is_ok_and(|meta| meta.len() > MOST) {
        std::fs::rename(&path, folder.join("pi-nvim.log.old"))?;
    }
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_log_is_private_and_does_not_grow_for_ever() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("log");
        drop(open(&folder).unwrap());
        let path = folder.join("pi-nvim.log");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&path)), (0o700, 0o600));
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(MOST + 1)
            .unwrap();
        let file = open(&folder).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        assert!(folder.join("pi-nvim.log.old").exists());
    }
}
