//! Replacing the content of a file so that a full disk or a crash never leaves half of it.
//!
//! Entry points: [`replace`] and [`replace_if`] for a file of the project, [`write_private`] for one of our own. A project
//! file is written to a temporary file in its own folder, checked to its full length, given the mode, owner and extended
//! attributes of the old one, flushed and renamed over it. Where that would lose something (several hard links, an owner
//! or attribute that cannot be kept, a folder that cannot be written, a rename that is refused) the file is written in
//! place instead, and its old bytes are put back when that fails. [`replace_if`] looks once more, right before the old
//! text goes, whether the file still is the one that was read; a file that must not exist is made by a rename that
//! refuses to replace one. Flushing: the new file's data is flushed before the rename, so that a power cut leaves the old
//! or the new text; the folder is not flushed, so it may be the old one. A temporary file that a killed process left is
//! named after it, so that [`sweep`] can tell it from one in use.

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

/// A file at one moment: two equal ones mean that nothing was written to it in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Takes the stamp of a file from its facts.
    pub fn of(meta: &fs::Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            len: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// What must be true of a file for it to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Nothing: whatever is there goes.
    Always,
    /// There is no such file.
    IfMissing,
    /// It is still this one.
    IfSame(Stamp),
}

/// What became of a conditional replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The file has the new content.
    Yes,
    /// The condition did not hold; nothing was changed.
    Moved,
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
    replace_if(path, bytes, Only::Always, options).map(drop)
}

/// Replaces the content of a project file, as [`replace`] does, if it is still what it was.
///
/// # Errors
/// As [`replace`].
pub fn replace_if(path: &Path, bytes: &[u8], only: Only, options: Options) -> io::Result<Replaced> {
    let path = follow_links(path)?;
    let old = match fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => return Err(rustix::io::Errno::ISDIR.into()),
        Ok(meta) if !meta.is_file() => return Err(not_regular()),
        Ok(meta) => Some(meta),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if !only.holds(old.as_ref()) {
        return Ok(Replaced::Moved);
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let job = Job {
        path: &path,
        folder,
        bytes,
        only,
        options,
    };
    let Some(old) = old else {
        let made = Folders::make(folder)?;
        let result = job.beside(None).map_err(Refused::into_error);
        if matches!(result, Ok(Replaced::Yes)) {
            made.keep();
        }
        return result;
    };
    if !options.force && is_read_only(&path) {
        return Err(rustix::io::Errno::ACCESS.into());
    }
    if old.nlink() > 1 {
        return job.in_place();
    }
    match job.beside(Some(&old)) {
        Ok(replaced) => Ok(replaced),
        Err(Refused::InPlace(_)) => job.in_place(),
        Err(Refused::Failed(error)) => Err(error),
    }
}

impl Only {
    fn holds(self, now: Option<&fs::Metadata>) -> bool {
        match self {
            Self::Always => true,
            Self::IfMissing => now.is_none(),
            Self::IfSame(stamp) => now.is_some_and(|now| Stamp::of(now) == stamp),
        }
    }
}

/// Folders made for a new file; they go again when the file does not come.
struct Folders {
    made: Vec<PathBuf>,
}

impl Folders {
    fn make(folder: &Path) -> io::Result<Self> {
        let missing = |folder: &&Path| fs::symlink_metadata(folder).is_err();
        let made = folder.ancestors().take_while(missing);
        let folders = Self {
            made: made.map(Path::to_owned).collect(),
        };
        fs::create_dir_all(folder)?;
        Ok(folders)
    }

    fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        for folder in &self.made {
            // Somebody else may have put something into it: then it stays.
            fs::remove_dir(folder).ok();
        }
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
    fill(&mut temp.file, bytes, options.faults)?;
    options.flush.data(&temp.file)?;
    temp.rename(path)
}

/// Removes temporary files that processes left in a folder which were killed before they could.
pub fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().and_then(owner_of).is_some_and(is_dead) {
            tracing::info!(path = %entry.path().display(), "removed what a killed process left");
            fs::remove_file(entry.path()).ok();
        }
    }
}

/// The process that made a temporary file, by its name.
fn owner_of(name: &str) -> Option<rustix::process::Pid> {
    let (process, random) = name
        .strip_prefix(TEMP_PREFIX)?
        .strip_suffix(TEMP_SUFFIX)?
        .split_once('-')?;
    let is_ours = random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    let process = process.parse().ok().filter(|_| is_ours)?;
    rustix::process::Pid::from_raw(process)
}

fn is_dead(process: rustix::process::Pid) -> bool {
    rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)
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

/// One replace of one file.
#[derive(Clone, Copy)]
struct Job<'a> {
    path: &'a Path,
    folder: &'a Path,
    bytes: &'a [u8],
    only: Only,
    options: Options,
}

impl Job<'_> {
    /// Writes a temporary file in the same folder and renames it over the old one.
    fn beside(&self, old: Option<&fs::Metadata>) -> Result<Replaced, Refused> {
        // A new file's mode is narrowed by the umask. What will replace a file is nobody else's to open until it has the
        // old one's mode.
        let mode = if old.is_some() { 0o600 } else { 0o666 };
        let mut temp = Temp::new(self.folder, mode).map_err(Refused::sort)?;
        if let Some(old) = old {
            give_to_owner(old, &temp.file).map_err(Refused::InPlace)?;
        }
        fill(&mut temp.file, self.bytes, self.options.faults).map_err(Refused::Failed)?;
        if let Some(old) = old {
            // After the last byte: writing takes capabilities and set-user-id bits away.
            copy_attributes(self.path, &temp.file).map_err(Refused::InPlace)?;
            let mode = Permissions::from_mode(old.permissions().mode() & 0o7777);
            temp.file.set_permissions(mode).map_err(Refused::InPlace)?;
        }
        let flush = self.options.flush;
        flush.data(&temp.file).map_err(Refused::Failed)?;
        super::moment("temporary-written");
        if self.options.faults.refuse_rename {
            return Err(Refused::InPlace(rustix::io::Errno::BUSY.into()));
        }
        let renamed = match self.only {
            Only::IfMissing => temp.rename_to_new(self.path),
            _ if !self.only.holds(fs::metadata(self.path).ok().as_ref()) => {
                return Ok(Replaced::Moved);
            }
            _ => temp.rename(self.path),
        };
        match renamed {
            Ok(()) => Ok(Replaced::Yes),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Replaced::Moved),
            Err(error) => Err(Refused::sort(error)),
        }
    }

    /// Writes over the file itself. Its old bytes are put back when the new ones do not fit.
    fn in_place(&self) -> io::Result<Replaced> {
        let (path, options) = (self.path, self.options);
        let mut reader = File::open(path)?;
        if !self.only.holds(Some(&reader.metadata()?)) {
            return Ok(Replaced::Moved);
        }
        let mut old = Vec::new();
        reader.read_to_end(&mut old)?;
        let unlocked = options.force && is_read_only(path);
        let mode = fs::metadata(path)?.permissions();
        if unlocked {
            fs::set_permissions(path, Permissions::from_mode(mode.mode() | 0o200))?;
        }
        let result = OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut file| self.over(&mut file, &old));
        if unlocked {
            fs::set_permissions(path, mode)?;
        }
        result.map(|()| Replaced::Yes)
    }

    /// Not truncated first: the blocks the old text has are then ours to put it back into.
    fn over(&self, file: &mut File, old: &[u8]) -> io::Result<()> {
        let flush = self.options.flush;
        fill(file, self.bytes, self.options.faults)
            .and_then(|()| flush.data(file))
            .inspect_err(|_| {
                let back = fill(file, old, Faults::default()).and_then(|()| flush.data(file));
                if let Err(error) = back {
                    tracing::error!(path = %self.path.display(), %error, "old text could not be put back");
                }
            })
    }
}

/// How the names of temporary files begin and end; between are the process and a random number.
const TEMP_PREFIX: &str = ".pi-";
const TEMP_SUFFIX: &str = ".tmp";

/// A file beside the one it will replace; removed unless it did.
struct Temp {
    file: File,
    path: PathBuf,
    renamed: bool,
}

impl Temp {
    fn new(folder: &Path, mode: u32) -> io::Result<Self> {
        loop {
            let (process, random) = (std::process::id(), uuid::Uuid::new_v4().as_u64_pair().0);
            let name = format!("{TEMP_PREFIX}{process}-{random:016x}{TEMP_SUFFIX}");
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

    /// Gives the file its name if nothing has it yet: `EEXIST` otherwise.
    fn rename_to_new(mut self, to: &Path) -> io::Result<()> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, &self.path, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => {
                self.renamed = true;
                Ok(())
            }
            // Not every file system can; a second name that is made only where there is none does the same.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => match fs::hard_link(&self.path, to)
            {
                Ok(()) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
                Err(_) if fs::symlink_metadata(to).is_ok() => Err(Errno::EXIST.into()),
                Err(_) => self.rename(to),
            },
            Err(error) => Err(error.into()),
        }
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

fn give_to_owner(old: &fs::Metadata, new: &File) -> io::Result<()> {
    let fresh = new.metadata()?;
    if (fresh.uid(), fresh.gid()) != (old.uid(), old.gid()) {
        std::os::unix::fs::fchown(new, Some(old.uid()), Some(old.gid()))?;
    }
    Ok(())
}

/// Gives the new file the extended attributes, and so the ACL, of the old one. An ACL that the folder gave it goes.
fn copy_attributes(path: &Path, new: &File) -> io::Result<()> {
    use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr, getxattr, listxattr};
    use rustix::io::Errno;
    const ACL: &[u8] = b"system.posix_acl_access";
    let mut names = vec![0_u8; 64 * 1024];
    let len = match listxattr(path, &mut names[..]) {
        Ok(len) => len,
        // The file system has none.
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    names.truncate(len);
    let names: Vec<_> = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .collect();
    for name in &names {
        let mut value = vec![0_u8; 64 * 1024];
        let len = getxattr(path, *name, &mut value[..])?;
        value.truncate(len);
        fsetxattr(new, *name, &value, XattrFlags::empty())?;
    }
    if !names.contains(&ACL) && fgetxattr(new, ACL, &mut [0_u8; 4096][..]).is_ok() {
        fremovexattr(new, ACL)?;
    }
    Ok(())
}

/// Makes the file hold exactly these bytes.
fn fill(file: &mut File, bytes: &[u8], faults: Faults) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    let room = faults.full_after.unwrap_or(usize::MAX);
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
    Ok(())
}

impl Flush {
    fn data(self, file: &File) -> io::Result<()> {
        match self {
            Self::Data => file.sync_data(),
            Self::Never => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
