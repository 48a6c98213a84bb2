//! What other programs and hooks do to a file around the moment of a commit. Nothing of theirs may be lost, and nobody may
//! be told something that is not so.

use std::os::unix::fs::symlink;

use pretty_assertions::assert_eq;

use super::*;

/// The first commit there is a reason against; the disk and the buffer are as they were.
async fn refused(stage: &Stage, target: &[u8], why: &str) {
    let (disk, text) = (stage.disk(), stage.text().await);
    match stage.write(target).await {
        CommitOutcome::Failed(error) => assert!(error.to_string().contains(why), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(stage.disk(), disk);
    assert_eq!(stage.text().await, text);
    assert_eq!(stage.nv.eval("&modified").await, json!(1));
}

/// Puts another text on disk, at another time than the one there.
fn from_outside(path: &Path, text: &[u8]) {
    let before = std::fs::metadata(path).and_then(|meta| meta.modified());
    std::fs::write(path, text).unwrap();
    if let Ok(before) = before {
        let file = std::fs::File::options().append(true).open(path).unwrap();
        file.set_modified(before + Duration::from_secs(7)).unwrap();
    }
}

const OUTSIDE: &[u8] = b"one\ntwo\nthree\nFROM OUTSIDE\n";

#[tokio::test]
async fn unsaved_lines_do_not_overwrite_what_came_to_the_disk() {
    // Looked at before it happened, or only after it.
    for looked in [true, false] {
        let stage = Stage::open(LINES).await;
        if looked {
            stage.state().await;
        }
        stage.nv.command("call setline(1, 'ONE')").await;
        if looked {
            stage.state().await;
        }
        from_outside(&stage.path, OUTSIDE);
        let why = "changed on disk, and its buffer has unsaved changes";
        refused(&stage, b"ONE\n2\nthree\nfour\n", why).await;
        // Neovim's own warning is never a question that waits for a key.
        assert_eq!(stage.nv.eval("mode()").await, json!("n"));
        refused(&stage, b"ONE\n2\nthree\nfour\n", why).await;
        // The person decides which of the two stays.
        if looked {
            stage.nv.command("write!").await;
            stage.nv.command("call setline(3, 'THREE')").await;
            let both = b"ONE\n2\nTHREE\nfour\n";
            written(stage.write(both).await, both);
        } else {
            stage.nv.command("edit!").await;
            let theirs = b"one\n2\nthree\nFROM OUTSIDE\n";
            written(stage.write(theirs).await, theirs);
        }
    }
}

#[tokio::test]
async fn saving_as_one_likes_is_no_change_from_outside() {
    let stage = Stage::open(LINES).await;
    stage.state().await;
    for round in ["a", "b", "c"] {
        stage
            .nv
            .command(&format!("call setline(1, '{round}')"))
            .await;
        stage.nv.command("write").await;
        stage.nv.command("call setline(4, 'unsaved')").await;
        let target = format!("{round}\n2{round}\nthree\nunsaved\n").into_bytes();
        written(stage.write(&target).await, &target);
    }
    // Read again after another program wrote to it, then typed in.
    from_outside(&stage.path, OUTSIDE);
    stage.nv.command("checktime").await;
    stage.nv.wait("getline(4) == 'FROM OUTSIDE'").await;
    stage.nv.command("call setline(1, 'mine')").await;
    let target = b"mine\n2\nthree\nFROM OUTSIDE\n";
    written(stage.write(target).await, target);
}

#[tokio::test]
async fn what_comes_to_the_disk_while_a_commit_waits_is_not_overwritten() {
    let stage = Stage::open(LINES).await;
    stage.nv.keys("i").await;
    stage.nv.wait("mode() == 'i'").await;
    let base = stage.state().await;
    let (files, change) = (
        stage.files.clone(),
        commit(&stage.path, base, b"one\n2\nthree\nfour\n", false),
    );
    let waiting = tokio::spawn(async move { files.commit(change).await });
    stage.nv.wait("exists('#pi.review.commit.1')").await;
    from_outside(&stage.path, OUTSIDE);
    stage.nv.keys("<Esc>").await;
    let outcome = waiting.await.unwrap();
    assert!(
        matches!(outcome, CommitOutcome::Moved | CommitOutcome::Typed),
        "{outcome:?}"
    );
    assert_eq!(stage.disk(), OUTSIDE);
    assert_eq!(&*stage.state().await.bytes, OUTSIDE);
}

#[tokio::test]
async fn a_new_file_that_appeared_is_not_overwritten_by_its_unsaved_buffer() {
    let stage = Stage::start(LINES).await;
    std::fs::remove_file(&stage.path).unwrap();
    stage.nv.command("edit f.txt").await;
    stage.nv.command("call setline(1, 'mine')").await;
    stage.state().await;
    std::fs::write(&stage.path, "theirs\n").unwrap();
    refused(&stage, b"mine\nadded\n", "changed on disk").await;
}

#[tokio::test]
async fn a_link_that_leads_elsewhere_by_now_does_not_take_the_text_there() {
    let stage = Stage::start(LINES).await;
    let cwd = &stage.nv.cwd;
    for (name, text) in [("r1", "one\ntwo\n"), ("r2", "other\nrelease\n")] {
        std::fs::create_dir(cwd.join(name)).unwrap();
        std::fs::write(cwd.join(name).join("f"), text).unwrap();
    }
    symlink("r1", cwd.join("current")).unwrap();
    stage.nv.command("edit current/f").await;
    let path = cwd.join("r1/f");
    let base = stage.files.state(&path).await.unwrap();
    assert!(matches!(base.origin, Origin::Buffer(_)));
    std::fs::remove_file(cwd.join("current")).unwrap();
    symlink("r2", cwd.join("current")).unwrap();
    let read = |name: &str| std::fs::read_to_string(cwd.join(name)).unwrap();
    let outcome = stage
        .files
        .commit(commit(&path, base, b"one\n2\n", false))
        .await;
    assert!(matches!(outcome, CommitOutcome::Moved), "{outcome:?}");
    assert_eq!(
        (read("r1/f"), read("r2/f")),
        ("one\ntwo\n".into(), "other\nrelease\n".into())
    );
    let base = stage.files.state(&path).await.unwrap();
    assert_eq!(base.origin, Origin::Disk);
    let outcome = stage
        .files
        .commit(commit(&path, base, b"one\n2\n", false))
        .await;
    written(outcome, b"one\n2\n");
    assert_eq!(
        (read("r1/f"), read("r2/f")),
        ("one\n2\n".into(), "other\nrelease\n".into())
    );
}

#[tokio::test]
async fn a_hook_that_fails_after_the_write_does_not_undo_it() {
    let target = b"one\n2\nthree\nfour\n";
    for hook in [
        "call nosuch()",
        "call setline(1, 'after') | throw 'late'",
        "throw 'late' | call setline(1, 'after')",
        "bwipeout!",
    ] {
        let stage = Stage::open(LINES).await;
        stage.nv.command("edit other | buffer f.txt").await;
        stage
            .nv
            .command(&format!("autocmd BufWritePost f.txt {hook}"))
            .await;
        written(stage.write(target).await, target);
        assert_eq!(stage.disk(), target, "{hook}");
        if hook.starts_with("call nosuch") {
            assert_eq!(stage.text().await, "one\n2\nthree\nfour");
            assert_eq!(stage.nv.eval("&modified").await, json!(0));
            stage
                .nv
                .wait("execute('messages') =~ 'a hook failed after'")
                .await;
        }
    }
}

#[tokio::test]
async fn a_hook_that_takes_the_buffer_away_before_the_write_is_a_failed_write() {
    let stage = Stage::open(LINES).await;
    stage
        .nv
        .command("autocmd BufWritePre f.txt bwipeout! | throw 'gone'")
        .await;
    let outcome = stage.write(b"one\n2\nthree\nfour\n").await;
    assert!(matches!(outcome, CommitOutcome::Failed(_)), "{outcome:?}");
    assert_eq!(stage.disk(), LINES);
}

#[tokio::test]
async fn a_hook_that_names_a_locked_text_is_put_back_like_any_other() {
    let stage = Stage::open(LINES).await;
    stage
        .nv
        .command("autocmd BufWritePre f.txt call setline(4, 'hook') | throw 'E565: not now'")
        .await;
    let outcome = stage.write(b"one\n2\nthree\nfour\n").await;
    assert!(matches!(outcome, CommitOutcome::Failed(_)), "{outcome:?}");
    assert_eq!(stage.disk(), LINES);
    assert_eq!(stage.text().await, "one\ntwo\nthree\nfour");
}

#[tokio::test]
async fn unsaved_text_without_a_form_in_the_files_encoding_is_not_written() {
    let stage = Stage::start(b"caf\xe9\ntwo\n").await;
    stage.nv.command("edit ++enc=latin1 f.txt").await;
    stage
        .nv
        .command("call setline(1, 'caf\u{e9} \u{2192} bar')")
        .await;
    let target = "caf\u{e9} \u{2192} bar\n2\n";
    refused(&stage, target.as_bytes(), "no form in latin1").await;
}
