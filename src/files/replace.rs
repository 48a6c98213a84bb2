//! Replacing the content of a file so that a full disk or a crash never leaves half of it.
//!
//! Entry points: [`replace`] for a file of the project, [`write_private`] for one of our own. A project file is written
//! to a temporary file in its own folder with its mode, owner and extended attributes, checked to its full length,
//! flushed and renamed over the old one. Where that would lose something (several hard links, an owner or attribute that
//! cannot be kept, a folder that cannot be written, a rename that is refused) the file is written in place instead, and
//! its old bytes are put back when that fails. Flushing: the new file's data is flushed before the rename, so that a
//! power cut leaves the old or the new text; the folder is not flushed, so it may be the old one.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// How many symbolic links are followed before the path counts as a loop, as in Linux.
const MAX_LINKS: usize = 40;

/// Faults that tests put in the way of a write; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The disk is full after this many bytes.
    pub full_after: Option<usize>,
    /// The rename over the old file is refused, as for a bind-mounted file.
    pub refuse_rename: bool,
}

/// Whether data is flushed before the file counts as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flush {
    /// Flushed: what the program does.
    #[default]
    Data,
    /// Left to the system: for tests that write thousands of files.
    Never,
}

/// How [`replace`] goes about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Write although the file is marked read-only.
    pub force: bool,
    /// Flushing.
    pub flush: Flush,
    /// Faults for tests.
    pub faults: Faults,
}

/// Follows the symbolic links at the end of a path, also to a file that does not exist yet.
///
/// # Errors
/// `ELOOP` for a loop, and whatever reading a link says.
pub fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::symlink_metadata(&at) {
            Ok(meta) if meta.is_symlink() => {
                let target = fs::read_link(&at)?;
                at = at.parent().unwrap_or(Path::new("/")).join(target);
            }
            Ok(_) => return Ok(at),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(at),
            Err(error) => return Err(error),
        }
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// Whether a file may not be written: no write bit is set, or the system says so. A missing file may.
pub fn is_read_only(path: &Path) -> bool {
    let Ok(meta) = fs::metadata(path) else {
        return false;
    };
    meta.permissions().mode() & 0o222 == 0
        || rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_err()
}

/// Replaces the content of a project file; creates it and its folders when missing. Symbolic links are followed.
///
/// # Errors
/// The file then has its old content. `EACCES` when it is read-only and `force` is not set.
pub fn replace(path: &Path, bytes: &[u8], options: Options) -> io::Result<()> {
    let path = follow_links(path)?;
    let old = match fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => return Err(rustix::io::Errno::ISDIR.into()),
        Ok(meta) if !meta.is_file() => return Err(not_regular()),
        Ok(meta) => Some(meta),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let Some(old) = old else {
        fs::create_dir_all(folder)?;
        return beside(&path, folder, None, bytes, options).map_err(Refused::into_error);
    };
    if !options.force && is_read_only(&path) {
        return Err(rustix::io::Errno::ACCESS.into());
    }
    if old.nlink() > 1 {
        return in_place(&path, bytes, options);
    }
    match beside(&path, folder, Some(&old), bytes, options) {
        Ok(()) => Ok(()),
        Err(Refused::InPlace(_)) => in_place(&path, bytes, options),
        Err(Refused::Failed(error)) => Err(error),
    }
}

/// Writes a file of our own, readable by its owner only, whole before it takes the place of the old one.
///
/// # Errors
/// The file then has its old content.
pub fn write_private(path: &Path, bytes: &[u8], flush: Flush) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut temp = Temp::new(folder, 0o600)?;
    let options = Options {
        flush,
        ..Options::default()
    };
    fill(&mut temp.file, bytes, options)?;
    temp.rename(path)
}

/// The error for devices, pipes and sockets.
pub fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "EINVAL: not a regular file")
}

/// Why the way over a temporary file did not work.
enum Refused {
    /// Writing in place may still do.
    InPlace(io::Error),
    /// Nothing will.
    Failed(io::Error),
}

impl Refused {
    fn into_error(self) -> io::Error {
        match self {
            Self::InPlace(error) | Self::Failed(error) => error,
        }
    }

    /// Refusals of the folder or file system, as against a full disk.
    fn sort(error: io::Error) -> Self {
        use rustix::io::Errno;
        let refused = [
            Errno::ACCESS,
            Errno::PERM,
            Errno::ROFS,
            Errno::BUSY,
            Errno::XDEV,
        ];
        match Errno::from_io_error(&error) {
            Some(errno) if refused.contains(&errno) => Self::InPlace(error),
            _ => Self::Failed(error),
        }
    }
}

/// Writes a temporary file in the same folder and renames it over the old one.
fn beside(
    path: &Path,
    folder: &Path,
    old: Option<&fs::Metadata>,
    bytes: &[u8],
    options: Options,
) -> Result<(), Refused> {
    // The mode given here is narrowed by the umask, which is right for a new file; an old file's mode is set below.
    let mut temp = Temp::new(folder, 0o666).map_err(Refused::sort)?;
    if let Some(old) = old {
        keep_identity(path, old, &temp.file).map_err(Refused::InPlace)?;
    }
    fill(&mut temp.file, bytes, options).map_err(Refused::Failed)?;
    super::moment("temporary-written");
    if options.faults.refuse_rename {
        return Err(Refused::InPlace(rustix::io::Errno::BUSY.into()));
    }
    temp.rename(path).map_err(Refused::sort)
}

/// A file beside the one it will replace; removed unless it did.
struct Temp {
    file: File,
    path: PathBuf,
    renamed: bool,
}

impl Temp {
    fn new(folder: &Path, mode: u32) -> io::Result<Self> {
        loop {
            let name = format!(".pi-{:016x}.tmp", uuid::Uuid::new_v4().as_u64_pair().0);
            let path = folder.join(name);
            let opened = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(&path);
            match opened {
                Ok(file) => {
                    return Ok(Self {
                        file,
                        path,
                        renamed: false,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn rename(mut self, to: &Path) -> io::Result<()> {
        fs::rename(&self.path, to)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.renamed {
            // Nothing better can be done about a leftover than to leave it.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Gives the new file the owner, mode and extended attributes (and so the ACL) of the old one.
fn keep_identity(path: &Path, old: &fs::Metadata, new: &File) -> io::Result<()> {
    let fresh = new.metadata()?;
    if (fresh.uid(), fresh.gid()) != (old.uid(), old.gid()) {
        std::os::unix::fs::fchown(new, Some(old.uid()), Some(old.gid()))?;
    }
    copy_attributes(path, new)?;
    new.set_permissions(Permissions::from_mode(old.permissions().mode() & 0o7777))
}

fn copy_attributes(path: &Path, new: &File) -> io::Result<()> {
    use rustix::fs::{XattrFlags, fsetxattr, getxattr, listxattr};
    use rustix::io::Errno;
    let mut names = vec![0_u8; 64 * 1024];
    let len = match listxattr(path, &mut names[..]) {
        Ok(len) => len,
        // The file system has none.
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    names.truncate(len);
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0_u8; 64 * 1024];
        let len = getxattr(path, name, &mut value[..])?;
        value.truncate(len);
        fsetxattr(new, name, &value, XattrFlags::empty())?;
    }
    Ok(())
}

/// Writes over the file itself. Its old bytes are put back when the new ones do not fit.
fn in_place(path: &Path, bytes: &[u8], options: Options) -> io::Result<()> {
    let mut old = Vec::new();
    File::open(path)?.read_to_end(&mut old)?;
    let unlocked = options.force && is_read_only(path);
    let mode = fs::metadata(path)?.permissions();
    if unlocked {
        fs::set_permissions(path, Permissions::from_mode(mode.mode() | 0o200))?;
    }
    let result = OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| {
            // Not truncated first: the blocks the old text has are then ours to put it back into.
            fill(&mut file, bytes, options).inspect_err(|_| {
                let plain = Options {
                    faults: Faults::default(),
                    ..options
                };
                if let Err(error) = fill(&mut file, &old, plain) {
                    tracing::error!(path = %path.display(), %error, "old text could not be put back");
                }
            })
        });
    if unlocked {
        fs::set_permissions(path, mode)?;
    }
    result
}

/// Makes the file hold exactly these bytes.
fn fill(file: &mut File, bytes: &[u8], options: Options) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    let room = options.faults.full_after.unwrap_or(usize::MAX);
    match bytes.get(..room) {
        Some(part) => {
            file.write_all(part)?;
            return Err(rustix::io::Errno::NOSPC.into());
        }
        None => file.write_all(bytes)?,
    }
    file.set_len(bytes.len() as u64)?;
    if file.metadata()?.len() != bytes.len() as u64 {
        return Err(io::Error::new(
            io::ErrorKind::WriteZero,
            "the file is shorter than what was written to it",
        ));
    }
    match options.flush {
        Flush::Data => file.sync_data(),
        Flush::Never => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.txt");
        fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn faulty(faults: Faults) -> Options {
        Options {
            faults,
            ..Options::default()
        }
    }

    #[test]
    fn a_full_disk_leaves_the_old_file_and_no_other() {
        let (dir, path) = setup("old text");
        let options = faulty(Faults {
            full_after: Some(3),
            ..Faults::default()
        });
        let error = replace(&path, b"new text", options).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(28));
        assert_eq!(fs::read(&path).unwrap(), b"old text");
        assert_eq!(names(dir.path()), ["f.txt"]);
    }

    #[test]
    fn a_full_disk_in_place_puts_the_old_text_back() {
        let (dir, path) = setup("old text");
        fs::hard_link(&path, dir.path().join("g.txt")).unwrap();
        let options = faulty(Faults {
            full_after: Some(3),
            ..Faults::default()
        });
        replace(&path, b"much longer new text", options).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old text");
    }

    #[test]
    fn hard_links_stay_together() {
        let (dir, path) = setup("old");
        let other = dir.path().join("g.txt");
        fs::hard_link(&path, &other).unwrap();
        replace(&path, b"n", Options::default()).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"n");
    }

    #[test]
    fn symbolic_links_stay_links_also_dangling_ones() {
        let (dir, path) = setup("old");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("f.txt", &link).unwrap();
        replace(&link, b"new", Options::default()).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let dangling = dir.path().join("dangling");
        std::os::unix::fs::symlink("sub/made.txt", &dangling).unwrap();
        replace(&dangling, b"made", Options::default()).unwrap();
        assert_eq!(fs::read(dir.path().join("sub/made.txt")).unwrap(), b"made");
    }

    #[test]
    fn a_loop_of_links_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("l");
        std::os::unix::fs::symlink("l", &link).unwrap();
        let error = replace(&link, b"", Options::default()).unwrap_err();
        assert_eq!(
            rustix::io::Errno::from_io_error(&error),
            Some(rustix::io::Errno::LOOP)
        );
    }

    #[test]
    fn a_refused_rename_falls_back_to_writing_in_place() {
        let (dir, path) = setup("old");
        let inode = fs::metadata(&path).unwrap().ino();
        let options = faulty(Faults {
            refuse_rename: true,
            ..Faults::default()
        });
        replace(&path, b"new", options).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
        assert_eq!(names(dir.path()), ["f.txt"]);
    }

    #[test]
    fn read_only_files_need_force() {
        let (_dir, path) = setup("old");
        fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        let error = replace(&path, b"new", Options::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let force = Options {
            force: true,
            ..Options::default()
        };
        replace(&path, b"new", force).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
            0o444
        );
    }

    #[test]
    fn modes_are_kept_and_new_files_follow_the_umask() {
        let (dir, path) = setup("#!/bin/sh\n");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        replace(&path, b"new", Options::default()).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
            0o755
        );
        // What the umask makes of 0666 is what `File::create` gives.
        let plain = dir.path().join("plain");
        File::create(&plain).unwrap();
        let fresh = dir.path().join("a/b/new.sh");
        replace(&fresh, b"#!/bin/sh\n", Options::default()).unwrap();
        assert_eq!(
            fs::metadata(&fresh).unwrap().permissions().mode(),
            fs::metadata(&plain).unwrap().permissions().mode()
        );
    }

    #[test]
    fn extended_attributes_are_kept_where_the_system_has_them() {
        use rustix::fs::{XattrFlags, getxattr, setxattr};
        let (_dir, path) = setup("old");
        if setxattr(&path, "user.pi", b"kept", XattrFlags::empty()).is_err() {
            return;
        }
        replace(&path, b"new", Options::default()).unwrap();
        let mut value = [0_u8; 16];
        let len = getxattr(&path, "user.pi", &mut value).unwrap();
        assert_eq!(&value[..len], b"kept");
    }

    #[test]
    fn folders_and_pipes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = replace(dir.path(), b"", Options::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        let error = replace(Path::new("/dev/null"), b"", Options::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
