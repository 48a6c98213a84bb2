//! The disk alone: what tools see without an editor, and the way to disk for files no editor has loaded.
//!
//! Entry points: [`DiskWorkspace`], [`real_path`]. Everything that may block runs on a blocking thread.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;

use super::{Commit, CommitOutcome, FileState, Origin, Workspace};
use crate::files::replace::{self, Only, Options, Replaced, Stamp};

/// Files as they are on disk.
#[derive(Clone, Debug, Default)]
pub struct DiskWorkspace {
    options: Options,
}

impl DiskWorkspace {
    /// Writes with these options; `force` is taken from each commit.
    pub fn with_options(options: Options) -> Self {
        Self { options }
    }
}

impl Workspace for DiskWorkspace {
    fn state<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, io::Result<FileState>> {
        let path = path.to_owned();
        Box::pin(async move { blocking(move || read_state(&path)).await? })
    }

    fn unsaved<'a>(&'a self, _path: &'a Path) -> BoxFuture<'a, Option<Arc<[u8]>>> {
        Box::pin(async { None })
    }

    fn all_unsaved(&self) -> BoxFuture<'_, Vec<(PathBuf, Arc<[u8]>)>> {
        Box::pin(async { Vec::new() })
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, CommitOutcome> {
        let options = Options {
            force: commit.force,
            ..self.options
        };
        Box::pin(async move {
            blocking(move || write(&commit, options))
                .await
                .unwrap_or(CommitOutcome::Unknown)
        })
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)
}

/// Files above this are not taken into memory, several times over, to be changed.
const MAX_BYTES: u64 = 512 * 1024 * 1024;

/// Reads a file from disk. Only regular files have a state; a missing one is [`Origin::Missing`].
///
/// # Errors
/// `EISDIR` for a folder, `ENOTDIR` below a file, `EFBIG` for half a gigabyte and more, and whatever else reading says.
pub fn read_state(path: &Path) -> io::Result<FileState> {
    read_stamped(path).map(|(state, _)| state)
}

/// Reads a file, and what must still be true of it when it is replaced by what was made of this reading.
fn read_stamped(path: &Path) -> io::Result<(FileState, Only)> {
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let missing = FileState {
                bytes: Arc::from([]),
                origin: Origin::Missing,
            };
            return Ok((missing, Only::IfMissing));
        }
        Err(error) => return Err(error),
    };
    check_kind(&meta)?;
    let (file, meta) = open(path)?;
    check_kind(&meta)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(rustix::io::Errno::FBIG.into());
    }
    let state = FileState {
        bytes: bytes.into(),
        origin: Origin::Disk,
    };
    // From before the reading: a change while it went on counts.
    Ok((state, Only::IfSame(Stamp::of(&meta))))
}

/// Opens without waiting for the other end of a pipe that took the file's place a moment ago.
fn open(path: &Path) -> io::Result<(File, fs::Metadata)> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let meta = file.metadata()?;
    Ok((file, meta))
}

fn check_kind(meta: &fs::Metadata) -> io::Result<()> {
    if meta.is_dir() {
        return Err(rustix::io::Errno::ISDIR.into());
    }
    // Opening a pipe would wait for its other end.
    if !meta.is_file() {
        return Err(replace::not_regular());
    }
    Ok(())
}

fn write(commit: &Commit, options: Options) -> CommitOutcome {
    let (now, only) = match read_stamped(&commit.path) {
        Ok(now) => now,
        Err(error) => return CommitOutcome::Failed(error),
    };
    let same = (now.origin == Origin::Missing) == (commit.base.origin == Origin::Missing)
        && now.bytes == commit.base.bytes;
    if !same {
        return CommitOutcome::Moved;
    }
    match replace::replace_if(&commit.path, &commit.target, only, options) {
        Ok(Replaced::Yes) => CommitOutcome::Written {
            on_disk: Arc::clone(&commit.target),
        },
        Ok(Replaced::Moved) => CommitOutcome::Moved,
        Err(error) => CommitOutcome::Failed(error),
    }
}

/// Resolves every symbolic link of a path; of a file that does not exist yet, those of its deepest existing folder and
/// of the dangling links on the way. Two spellings of one file give one path.
///
/// # Errors
/// `ELOOP`, `EACCES`, `ENAMETOOLONG` and the like; a missing file or folder is none.
pub fn real_path(path: &Path) -> io::Result<PathBuf> {
    resolve(path, 40)
}

fn resolve(path: &Path, links_left: usize) -> io::Result<PathBuf> {
    let error = match fs::canonicalize(path) {
        Ok(real) => return Ok(real),
        Err(error) => error,
    };
    if !matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ) {
        return Err(error);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(error);
    };
    if let Ok(target) = fs::read_link(path) {
        let Some(left) = links_left.checked_sub(1) else {
            return Err(rustix::io::Errno::LOOP.into());
        };
        return resolve(&parent.join(target), left);
    }
    Ok(resolve(parent, links_left)?.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn spellings_of_one_file_give_one_path() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(root.join("real")).unwrap();
        symlink("real", root.join("link")).unwrap();
        symlink("real/later.txt", root.join("dangling")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let expected = root.join("real/later.txt");
        assert_eq!(real_path(&root.join("link/later.txt")).unwrap(), expected);
        assert_eq!(real_path(&root.join("dangling")).unwrap(), expected);
        assert_eq!(
            real_path(&root.join("link/a/b.txt")).unwrap(),
            root.join("real/a/b.txt")
        );
        assert!(real_path(&root.join("loop")).is_err());
        fs::write(&expected, "").unwrap();
        assert_eq!(
            real_path(&root.join("link/later.txt/below")).unwrap(),
            expected.join("below")
        );
    }

    #[tokio::test]
    async fn a_commit_onto_a_changed_file_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "one").unwrap();
        let workspace = DiskWorkspace::default();
        let base = workspace.state(&path).await.unwrap();
        fs::write(&path, "two").unwrap();
        let commit = Commit {
            path: path.clone(),
            base,
            target: Arc::from(&b"three"[..]),
            edits: Vec::new(),
            force: false,
        };
        let outcome = workspace.commit(commit).await;
        assert!(matches!(outcome, CommitOutcome::Moved));
        assert_eq!(fs::read(&path).unwrap(), b"two");
    }

    #[tokio::test]
    async fn folders_pipes_and_paths_below_a_file_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "").unwrap();
        let workspace = DiskWorkspace::default();
        let kind = async |name: &str| {
            let path = dir.path().join(name);
            workspace
                .state(&path)
                .await
                .map_err(|error| error.kind())
                .map(|state| state.origin)
        };
        assert_eq!(kind("").await, Err(io::ErrorKind::IsADirectory));
        assert_eq!(kind("f/x").await, Err(io::ErrorKind::NotADirectory));
        assert_eq!(kind("none").await, Ok(Origin::Missing));
    }

    #[test]
    fn what_is_too_large_for_memory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        // Sparse: takes no room on the disk.
        File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        let error = read_state(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
