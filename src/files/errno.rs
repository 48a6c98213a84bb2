//! Names and words for errors of the system, as models and people read them.

use std::io;

use rustix::io::Errno;

/// Says what happened, beginning with the errno's name: `ENOENT: no such file or directory`.
pub fn describe(error: &io::Error) -> String {
    let Some(errno) = Errno::from_io_error(error) else {
        return error.to_string();
    };
    match name_and_words(errno) {
        Some((name, words)) => format!("{name}: {words}"),
        None => format!("errno {}: {error}", errno.raw_os_error()),
    }
}

fn name_and_words(errno: Errno) -> Option<(&'static str, &'static str)> {
    Some(match errno {
        Errno::NOENT => ("ENOENT", "no such file or directory"),
        Errno::ACCESS => ("EACCES", "permission denied"),
        Errno::PERM => ("EPERM", "operation not permitted"),
        Errno::ISDIR => ("EISDIR", "it is a directory"),
        Errno::NOTDIR => ("ENOTDIR", "a part of the path is not a directory"),
        Errno::EXIST => ("EEXIST", "a file stands where a directory is needed"),
        Errno::LOOP => ("ELOOP", "too many symbolic links"),
        Errno::NAMETOOLONG => ("ENAMETOOLONG", "the name is too long"),
        Errno::NOSPC => ("ENOSPC", "no space left on the disk"),
        Errno::DQUOT => ("EDQUOT", "the disk quota is used up"),
        Errno::ROFS => ("EROFS", "the file system is read-only"),
        Errno::BUSY => ("EBUSY", "it is in use"),
        Errno::TXTBSY => ("ETXTBSY", "it is a program that is running"),
        Errno::FBIG => ("EFBIG", "the file is too large"),
        Errno::IO => ("EIO", "input or output failed"),
        Errno::MFILE => ("EMFILE", "too many open files"),
        Errno::INVAL => ("EINVAL", "not possible for this file"),
        Errno::NFILE => ("ENFILE", "too many open files on this machine"),
        Errno::XDEV => ("EXDEV", "it is on another file system"),
        Errno::TOOBIG => ("E2BIG", "the arguments are too long"),
        Errno::NOTEMPTY => ("ENOTEMPTY", "the directory is not empty"),
        Errno::NXIO => ("ENXIO", "no such device"),
        Errno::NODEV => ("ENODEV", "no such device"),
        Errno::STALE => ("ESTALE", "the file server does not know the file any more"),
        Errno::TIMEDOUT => ("ETIMEDOUT", "no answer in time"),
        Errno::NOMEM => ("ENOMEM", "not enough memory"),
        Errno::AGAIN => ("EAGAIN", "not possible at the moment"),
        Errno::NOEXEC => ("ENOEXEC", "it is no program"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_begin_with_their_name() {
        assert_eq!(
            describe(&Errno::NOENT.into()),
            "ENOENT: no such file or directory"
        );
        assert_eq!(describe(&io::Error::other("odd")), "odd");
        let rare = describe(&Errno::DOM.into());
        assert!(rare.starts_with("errno 33: "), "{rare}");
    }
}
