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

#[test]
fn what_was_written_meanwhile_stays() {
    let (dir, path) = setup("old");
    let read = Stamp::of(&fs::metadata(&path).unwrap());
    // Another program replaces it by a rename; same length, and the time of the old one.
    let other = dir.path().join("other");
    fs::write(&other, "new").unwrap();
    let then = fs::metadata(&path).unwrap().modified().unwrap();
    File::open(&other).unwrap().set_modified(then).unwrap();
    fs::rename(&other, &path).unwrap();
    let only = Only::IfSame(read);
    let replaced = replace_if(&path, b"mine", only, Options::default()).unwrap();
    assert_eq!(replaced, Replaced::Moved);
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(names(dir.path()), ["f.txt"]);
    // Hard links are written in place, after the same look.
    fs::hard_link(&path, &other).unwrap();
    let replaced = replace_if(&path, b"mine", only, Options::default()).unwrap();
    assert_eq!(replaced, Replaced::Moved);
    let only = Only::IfSame(Stamp::of(&fs::metadata(&path).unwrap()));
    let replaced = replace_if(&path, b"mine", only, Options::default()).unwrap();
    assert_eq!(replaced, Replaced::Yes);
    assert_eq!(fs::read(&other).unwrap(), b"mine");
}

#[test]
fn a_new_file_takes_no_other_ones_place() {
    let (dir, path) = setup("theirs");
    let made = replace_if(&path, b"mine", Only::IfMissing, Options::default()).unwrap();
    assert_eq!(made, Replaced::Moved);
    // Made in the very moment between the look and the rename.
    let mut temp = Temp::new(dir.path(), 0o600).unwrap();
    fill(&mut temp.file, b"mine", Faults::default()).unwrap();
    let error = temp.rename_to_new(&path).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    assert_eq!(names(dir.path()), ["f.txt"]);
}

#[test]
fn folders_of_a_new_file_that_could_not_be_written_go_again() {
    let (dir, _path) = setup("");
    let options = faulty(Faults {
        full_after: Some(0),
        ..Faults::default()
    });
    replace(&dir.path().join("a/b/c.txt"), b"text", options).unwrap_err();
    assert_eq!(names(dir.path()), ["f.txt"]);
}

#[test]
fn special_mode_bits_and_capabilities_survive() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let (_dir, path) = setup("old");
    fs::set_permissions(&path, Permissions::from_mode(0o6755)).unwrap();
    // Version 2, no capability of any kind: valid, and the kernel drops it at the next write.
    let none = [[0, 0, 0, 2], [0; 4], [0; 4], [0; 4], [0; 4]].concat();
    let capable = setxattr(&path, "security.capability", &none, XattrFlags::empty()).is_ok();
    replace(&path, b"new", Options::default()).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o6755);
    if capable {
        let mut value = [0_u8; 64];
        let len = getxattr(&path, "security.capability", &mut value).unwrap();
        assert_eq!(&value[..len], none);
    }
}

#[test]
fn only_what_dead_processes_left_is_swept() {
    let dir = tempfile::tempdir().unwrap();
    let child = std::process::Command::new("true").spawn().unwrap();
    let dead = child.id();
    child.wait_with_output().unwrap();
    let alive = std::process::id();
    let left = [
        format!(".pi-{alive}-0123456789abcdef.tmp"),
        ".pi-1-notes.tmp".to_owned(),
        ".pi-x-0123456789abcdef.tmp".to_owned(),
    ];
    for name in &left {
        fs::write(dir.path().join(name), "").unwrap();
    }
    fs::write(
        dir.path().join(format!(".pi-{dead}-0123456789abcdef.tmp")),
        "",
    )
    .unwrap();
    sweep(dir.path());
    let mut left = left.to_vec();
    left.sort();
    assert_eq!(names(dir.path()), left);
}
