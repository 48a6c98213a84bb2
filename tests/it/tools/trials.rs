//! Files and commands as they really are trouble: full disks, mounts that refuse, rights, links, programs that ask.
//!
//! What needs mounts runs in a process with mounts of its own ([`in_own_mounts`]), so nothing is left behind; it is passed
//! over, loudly, where the tests may not mount.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pi_nvim::agent::{ErrorClass, ToolError, ToolOutput};
use pi_nvim::files::replace::{self, Flush};
use pi_nvim::tools::bash::user_command;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::harness::{Setup, as_nobody, blocks_text, test_env};
use super::stress::Call;

type Outcome = Result<ToolOutput, ToolError>;

async fn call(setup: &Setup, tool: &'static str, arguments: Value) -> Outcome {
    Call::new(tool, arguments).run(setup, test_env(setup)).await
}

async fn edit(setup: &Setup, path: &str, old: &str, new: &str) -> Outcome {
    let edits = json!([{"oldText": old, "newText": new}]);
    call(setup, "edit", json!({"path": path, "edits": edits})).await
}

#[track_caller]
fn assert_refused(outcome: &Outcome, name: &str) {
    let error = outcome.as_ref().unwrap_err();
    assert_eq!(error.class, ErrorClass::Io);
    assert!(error.message.contains(name), "{}", error.message);
}

fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

const ROLE: &str = "PI_NVIM_TEST_OWN_MOUNTS";

/// Runs a test of this module, called `role_<name>`, once more in a process whose mounts are its own.
fn in_own_mounts(name: &str) {
    let may_mount = Command::new("unshare")
        .args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"])
        .stderr(Stdio::null())
        .status();
    if !may_mount.is_ok_and(|status| status.success()) {
        eprintln!("passed over: no right to mount");
        return;
    }
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("tools::trials::role_{name}")])
        .env(ROLE, name)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

/// Whether this process is the one that [`in_own_mounts`] started for a role.
fn has_own_mounts(name: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|role| role == name)
}

fn mount(args: &[&str], at: &Path) {
    let status = Command::new("mount").args(args).arg(at).status().unwrap();
    assert!(status.success(), "mount {args:?}");
}

#[test]
fn a_full_disk_keeps_every_old_file() {
    in_own_mounts("full_disk");
}

#[tokio::test]
async fn role_full_disk() {
    if !has_own_mounts("full_disk") {
        return;
    }
    let setup = Setup::empty();
    let disk = setup.cwd.join("disk");
    fs::create_dir(&disk).unwrap();
    mount(&["-t", "tmpfs", "-o", "size=256k", "none"], &disk);
    let old = "old line\n".repeat(8_000);
    for name in ["plain", "one", "mode"] {
        fs::write(disk.join(name), &old).unwrap();
    }
    fs::hard_link(disk.join("one"), disk.join("two")).unwrap();
    chmod(disk.join("mode"), 0o750);
    let before = names(&disk);
    let new = "something longer\n".repeat(12_000);
    // `one` has two names and so is written in place; the others go by a second file.
    for name in ["plain", "one", "mode", "fresh", "deep/er/fresh"] {
        let path = format!("disk/{name}");
        let outcome = call(&setup, "write", json!({"path": path, "content": new})).await;
        assert_refused(&outcome, "ENOSPC");
    }
    let edited = edit(&setup, "disk/plain", "no such line", "x").await;
    assert_eq!(edited.unwrap_err().class, ErrorClass::NotFoundText);
    for name in ["plain", "one", "two", "mode"] {
        assert_eq!(fs::read_to_string(disk.join(name)).unwrap(), old, "{name}");
    }
    assert_eq!(
        fs::metadata(disk.join("mode")).unwrap().mode() & 0o777,
        0o750
    );
    // No temporary file stays, and no folder that was made for a file that did not fit.
    assert_eq!(names(&disk), before);
    // A file of our own, as settings and credentials are.
    let private = disk.join("settings.json");
    replace::write_private(&private, b"{}", Flush::Data).unwrap();
    let error = replace::write_private(&private, new.as_bytes(), Flush::Data).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(fs::read(&private).unwrap(), b"{}");
    // What fits is written.
    fs::remove_file(disk.join("mode")).unwrap();
    let outcome = call(
        &setup,
        "write",
        json!({"path": "disk/plain", "content": "short\n"}),
    )
    .await;
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(fs::read(disk.join("plain")).unwrap(), b"short\n");
}

#[test]
fn a_file_that_is_itself_a_mount_is_written_in_place() {
    in_own_mounts("bind");
}

#[tokio::test]
async fn role_bind() {
    if !has_own_mounts("bind") {
        return;
    }
    let setup = Setup::empty();
    let (source, file) = (setup.home.join("source"), setup.cwd.join("f"));
    fs::write(&source, "one\ntwo\n").unwrap();
    fs::write(&file, "").unwrap();
    mount(&["--bind", source.to_str().unwrap()], &file);
    let inode = fs::metadata(&source).unwrap().ino();
    edit(&setup, "f", "two", "2").await.unwrap();
    assert_eq!(fs::read(&source).unwrap(), b"one\n2\n");
    let outcome = call(&setup, "write", json!({"path": "f", "content": "new\n"})).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(fs::read(&source).unwrap(), b"new\n");
    assert_eq!(fs::metadata(&file).unwrap().ino(), inode);
    assert_eq!(names(&setup.cwd), ["f"]);
}

#[test]
fn a_read_only_mount_is_said_and_left_alone() {
    in_own_mounts("read_only");
}

#[tokio::test]
async fn role_read_only() {
    if !has_own_mounts("read_only") {
        return;
    }
    let setup = Setup::empty();
    let disk = setup.cwd.join("disk");
    fs::create_dir(&disk).unwrap();
    mount(&["-t", "tmpfs", "none"], &disk);
    fs::write(disk.join("f"), "old\n").unwrap();
    mount(&["-o", "remount,ro"], &disk);
    let read = call(&setup, "read", json!({"path": "disk/f"}))
        .await
        .unwrap();
    assert_eq!(blocks_text(&read.content), "old\n");
    let outcome = edit(&setup, "disk/f", "old", "new").await;
    let error = outcome.unwrap_err();
    assert!(
        error.message.contains("EROFS") || error.message.contains("EACCES"),
        "{}",
        error.message
    );
    let fresh = call(&setup, "write", json!({"path": "disk/n/g", "content": "x"})).await;
    assert_refused(&fresh, "EROFS");
    assert_eq!(fs::read(disk.join("f")).unwrap(), b"old\n");
    assert_eq!(names(&disk), ["f"]);
}

#[test]
fn a_default_acl_of_the_folder_gives_the_file_no_new_rights() {
    in_own_mounts("acl");
}

/// `user:1000:rwx` beside the usual entries, as the kernel stores it.
fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 6, u32::MAX),
        (0x02, 7, 1000),
        (0x04, 4, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 4, u32::MAX),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[tokio::test]
async fn role_acl() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    if !has_own_mounts("acl") {
        return;
    }
    let setup = Setup::empty();
    let disk = setup.cwd.join("disk");
    fs::create_dir(&disk).unwrap();
    mount(&["-t", "tmpfs", "none"], &disk);
    fs::write(disk.join("f"), "old\n").unwrap();
    chmod(disk.join("f"), 0o640);
    if setxattr(
        &disk,
        "system.posix_acl_default",
        &acl(),
        XattrFlags::empty(),
    )
    .is_err()
    {
        eprintln!("passed over: no access lists here");
        return;
    }
    edit(&setup, "disk/f", "old", "new").await.unwrap();
    let mut value = [0_u8; 256];
    let access = getxattr(disk.join("f"), "system.posix_acl_access", &mut value);
    assert_eq!(access, Err(rustix::io::Errno::NODATA));
    assert_eq!(fs::metadata(disk.join("f")).unwrap().mode() & 0o777, 0o640);
}

#[tokio::test]
async fn rights_links_and_modes_stay_as_they_are() {
    let setup = Setup::empty();
    let file = |name: &str| setup.cwd.join(name);
    fs::write(file("real"), "v=1\n").unwrap();
    chmod(file("real"), 0o755);
    symlink("real", file("ln")).unwrap();
    fs::hard_link(file("real"), file("hard")).unwrap();
    let inode = fs::metadata(file("real")).unwrap().ino();
    edit(&setup, "ln", "v=1", "v=2").await.unwrap();
    call(&setup, "write", json!({"path": "hard", "content": "v=3\n"}))
        .await
        .unwrap();
    assert!(fs::symlink_metadata(file("ln")).unwrap().is_symlink());
    for name in ["real", "ln", "hard"] {
        let meta = fs::metadata(file(name)).unwrap();
        assert_eq!((meta.ino(), meta.mode() & 0o777), (inode, 0o755), "{name}");
        assert_eq!(fs::read(file(name)).unwrap(), b"v=3\n");
    }
    fs::write(file("locked"), "old\n").unwrap();
    chmod(file("locked"), 0o444);
    assert_refused(&edit(&setup, "locked", "old", "new").await, "EACCES");
    let outcome = call(&setup, "write", json!({"path": "locked", "content": "new"})).await;
    assert_refused(&outcome, "EACCES");
    assert_eq!(fs::read(file("locked")).unwrap(), b"old\n");
    assert_eq!(names(&setup.cwd), ["hard", "ln", "locked", "real"]);
}

#[test]
fn in_a_folder_that_takes_no_file_the_old_one_is_written_in_place() {
    let setup = Setup::empty();
    let dir = setup.cwd.join("d");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("open"), "old\n").unwrap();
    fs::write(dir.join("closed"), "old\n").unwrap();
    chmod(dir.join("open"), 0o666);
    chmod(&dir, 0o555);
    let inode = fs::metadata(dir.join("open")).unwrap().ino();
    as_nobody(|| async {
        edit(&setup, "d/open", "old", "new").await.unwrap();
        assert_refused(&edit(&setup, "d/closed", "old", "new").await, "EACCES");
        let fresh = call(&setup, "write", json!({"path": "d/fresh", "content": ""})).await;
        assert_refused(&fresh, "EACCES");
    });
    assert_eq!(fs::read(dir.join("open")).unwrap(), b"new\n");
    assert_eq!(fs::read(dir.join("closed")).unwrap(), b"old\n");
    assert_eq!(fs::metadata(dir.join("open")).unwrap().ino(), inode);
    assert_eq!(names(&dir), ["closed", "open"]);
    chmod(&dir, 0o755);
}

/// Programs that ask on a terminal, or show page by page; each has to end by itself.
#[tokio::test(flavor = "multi_thread")]
async fn pagers_editors_and_prompts_end_at_once() {
    let setup = Setup::empty();
    fs::write(setup.cwd.join("long"), "line\n".repeat(500)).unwrap();
    let quiet = "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; \
        git init -q . && git add long && ";
    for (program, command) in [
        (
            "git",
            format!(
                "{quiet} git commit -qm first && PAGER=less git -c core.pager=less -p log --oneline | cat"
            ),
        ),
        (
            "git",
            format!(
                "{quiet} git -c core.editor=vi commit --amend && git rebase -q -i --root && git log --format=%s"
            ),
        ),
        ("git", "git clone -q http://127.0.0.1:9/x.git".to_owned()),
        ("less", "less long".to_owned()),
        ("more", "more long".to_owned()),
        ("man", "man ls".to_owned()),
        ("python3", "python3 -c 'input()'".to_owned()),
        ("python3", "python3".to_owned()),
        (
            "python3",
            "python3 -c 'import getpass; getpass.getpass()'".to_owned(),
        ),
        ("bash", "select x in a b; do echo $x; done".to_owned()),
        ("bash", "bash -i".to_owned()),
        ("ssh", "ssh -o ConnectTimeout=1 -p 9 127.0.0.1".to_owned()),
    ] {
        let started = Instant::now();
        let script = format!("command -v {program} >/dev/null || exit 0; {command}");
        // The time only ends a test that has failed.
        let arguments = json!({"command": script, "timeout": 20});
        let outcome = call(&setup, "bash", arguments).await;
        assert!(outcome.is_ok(), "{command}: {outcome:?}");
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{command}: {:?}",
            started.elapsed()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_output_is_text_for_the_model_and_safe_for_people() {
    let setup = Setup::empty();
    let command = "head -c 300000 /dev/urandom; printf '\\033]0;title\\007\\033[2Jend\\n'";
    let output = call(&setup, "bash", json!({"command": command}))
        .await
        .unwrap();
    let text = blocks_text(&output.content);
    assert!(
        text.contains("end\n\n[Showing") || text.contains("end\n\n\n[Showing"),
        "{}",
        text.len()
    );
    let saved = output.details.unwrap()["fullOutputPath"]
        .as_str()
        .unwrap()
        .to_owned();
    // The file has the bytes themselves, for nobody else.
    let meta = fs::metadata(&saved).unwrap();
    assert_eq!((meta.len(), meta.mode() & 0o777), (300_000 + 18, 0o600));
    let env = test_env(&setup);
    let (show, mut pieces) = tokio::sync::mpsc::channel(1);
    let running = user_command(&env, command, &setup.cwd, CancellationToken::new(), show);
    let (output, shown) = tokio::join!(running, async {
        let mut shown = String::new();
        while let Some(piece) = pieces.recv().await {
            shown.push_str(&piece);
        }
        shown
    });
    let output = output.unwrap().output;
    for text in [&shown, &output] {
        let bad = text.chars().find(|c| *c < ' ' && *c != '\n' && *c != '\t');
        assert_eq!(bad, None);
        assert!(text.ends_with("end\n") || text.ends_with("end"));
    }
}
