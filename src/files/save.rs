//! Writing the program's own small files (settings, trust, login data): the new text is complete on disk before the old
//! one goes.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Replaces `path` by `bytes` and keeps its permissions. A symbolic link stays one: its target is replaced. When no
/// second file can be put in place (a bind mount, a folder that is closed to us) the file is written where it is.
///
/// # Errors
/// Those of writing; the old content is intact then, except after a failed write in place.
pub fn save(path: &Path, bytes: &[u8]) -> io::Result<()> {
    save_with_mode(path, bytes, 0o666)
}

/// As [`save`], for files that hold secrets: a new file can be read by its owner only.
///
/// # Errors
/// Those of [`save`].
pub fn save_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    save_with_mode(path, bytes, 0o600)
}

fn save_with_mode(path: &Path, bytes: &[u8], new_mode: u32) -> io::Result<()> {
    let path = super::agent_dir::real_path(path);
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    fs::create_dir_all(folder)?;
    match beside(folder, &path, bytes, new_mode) {
        Err(err) if in_place_may_do(&err) && path.exists() => {
            let mut file = fs::OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(&path)?;
            file.write_all(bytes)?;
            file.sync_all()
        }
        other => other,
    }
}

fn beside(folder: &Path, path: &Path, bytes: &[u8], new_mode: u32) -> io::Result<()> {
    let permissions = match fs::metadata(path) {
        Ok(meta) => meta.permissions(),
        Err(_) => permissions(new_mode),
    };
    let mut file = tempfile::Builder::new()
        .prefix(".pi-")
        .permissions(permissions.clone())
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    if path.exists() {
        // The mask of the process was applied at creation; an existing file keeps exactly what it had.
        file.as_file().set_permissions(permissions)?;
    }
    file.persist(path).map_err(|err| err.error)?;
    Ok(())
}

#[cfg(unix)]
fn permissions(mode: u32) -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(mode)
}

fn in_place_may_do(err: &io::Error) -> bool {
    matches!(
        err.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ResourceBusy
            | io::ErrorKind::CrossesDevices
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn links_and_permissions_stay() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("dotfiles/settings.json");
        fs::create_dir(real.parent().unwrap()).unwrap();
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        let link = dir.path().join("settings.json");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        save(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"new");
        let mode = fs::metadata(&real).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o640);
        assert_eq!(fs::read_dir(real.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn secrets_are_for_the_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/auth.json");
        save_private(&path, b"{}").unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
    }
}
