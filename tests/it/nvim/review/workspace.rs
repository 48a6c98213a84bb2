//! The way from a decision to buffer and disk: everything or nothing, whatever the user and other plugins do meanwhile.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pi_nvim::modes::nvim::editor::Editor;
use pi_nvim::modes::nvim::workspace::EditorWorkspace;
use pi_nvim::workspace::disk::DiskWorkspace;
use pi_nvim::workspace::{Commit, CommitOutcome, FileState, LineEdit, Origin, Workspace};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::super::harness::{Nv, Options};

mod outside;

/// A Neovim with one file open, and the files as the backend sees them.
struct Stage {
    nv: Nv,
    files: Arc<EditorWorkspace>,
    path: PathBuf,
}

impl Stage {
    /// Starts with `f.txt` on disk and open.
    async fn open(content: &[u8]) -> Self {
        let stage = Self::start(content).await;
        stage.nv.command("edit f.txt").await;
        stage
    }

    async fn start(content: &[u8]) -> Self {
        let nv = Nv::start_with(Options::default()).await;
        let path = nv.cwd.join("f.txt");
        std::fs::write(&path, content).unwrap();
        let (editor, mut inbox) = Editor::connect_path(&nv.socket).await.unwrap();
        let files = Arc::new(EditorWorkspace::new(
            editor.clone(),
            DiskWorkspace::default(),
        ));
        let info = editor.call("nvim_get_api_info", vec![]).await.unwrap();
        let channel = info.as_array().unwrap()[0].as_i64().unwrap();
        nv.lua("require('pi.rpc').connect(...)", json!([channel]))
            .await;
        let heard = files.clone();
        tokio::spawn(async move {
            while let Some(note) = inbox.recv().await {
                if format!("{:?}", note.args).contains("ready") {
                    heard.ready_again();
                }
            }
        });
        Self { nv, files, path }
    }

    async fn state(&self) -> FileState {
        self.files.state(&self.path).await.unwrap()
    }

    fn disk(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    async fn commit(&self, base: FileState, target: &[u8], force: bool) -> CommitOutcome {
        self.files
            .commit(commit(&self.path, base, target, force))
            .await
    }

    /// Reads, then writes this text.
    async fn write(&self, target: &[u8]) -> CommitOutcome {
        let base = self.state().await;
        self.commit(base, target, false).await
    }

    async fn text(&self) -> String {
        self.nv.lines(0).await.join("\n")
    }
}

/// The change as one edit of the middle, as the gate would give it.
fn commit(path: &Path, base: FileState, target: &[u8], force: bool) -> Commit {
    let lines = |text: &[u8]| -> Vec<Vec<u8>> {
        text.split_inclusive(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect()
    };
    let (old, new) = (lines(&base.bytes), lines(target));
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..]
        .iter()
        .rev()
        .zip(new[head..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let edit = LineEdit {
        start: head,
        removed: old.len() - tail - head,
        added: new[head..new.len() - tail].concat(),
    };
    Commit {
        path: path.to_owned(),
        base,
        target: Arc::from(target),
        edits: vec![edit],
        force,
    }
}

#[track_caller]
fn written(outcome: CommitOutcome, expected: &[u8]) {
    match outcome {
        CommitOutcome::Written { on_disk } => {
            assert_eq!(
                String::from_utf8_lossy(&on_disk),
                String::from_utf8_lossy(expected)
            );
        }
        other => panic!("not written: {other:?}"),
    }
}

const LINES: &[u8] = b"one\ntwo\nthree\nfour\n";

#[tokio::test]
async fn an_open_file_is_its_buffer_and_a_commit_goes_through_it() {
    let stage = Stage::open(LINES).await;
    let state = stage.state().await;
    assert!(matches!(&state.origin, Origin::Buffer(it) if !it.modified));
    assert_eq!(&*state.bytes, LINES);
    written(
        stage.write(b"one\n2\nthree\nfour\n").await,
        b"one\n2\nthree\nfour\n",
    );
    assert_eq!(stage.disk(), b"one\n2\nthree\nfour\n");
    assert_eq!(stage.text().await, "one\n2\nthree\nfour");
    assert_eq!(stage.nv.eval("&modified").await, json!(0));
    stage.nv.command("undo").await;
    assert_eq!(stage.text().await, "one\ntwo\nthree\nfour");
}

#[tokio::test]
async fn unsaved_lines_are_part_of_the_file() {
    let stage = Stage::open(LINES).await;
    assert_eq!(stage.files.unsaved(&stage.path).await, None);
    stage.nv.command("call setline(1, 'ONE')").await;
    let expected: &[u8] = b"ONE\ntwo\nthree\nfour\n";
    assert_eq!(&*stage.state().await.bytes, expected);
    assert_eq!(
        stage.files.unsaved(&stage.path).await.as_deref(),
        Some(expected)
    );
    let all = stage.files.all_unsaved().await;
    assert_eq!(all, vec![(stage.path.clone(), Arc::from(expected))]);
    written(
        stage.write(b"ONE\ntwo\n3\nfour\n").await,
        b"ONE\ntwo\n3\nfour\n",
    );
    assert_eq!(stage.files.all_unsaved().await, vec![]);
}

#[tokio::test]
async fn marks_folds_and_views_stay_where_their_lines_go() {
    let content: String = (1..=50).map(|n| format!("line {n}\n")).collect();
    let stage = Stage::open(content.as_bytes()).await;
    let setup = "
        vim.cmd('set foldmethod=manual')
        vim.cmd('20,25fold')
        vim.cmd('20foldopen')
        vim.api.nvim_buf_set_mark(0, 'q', 40, 0, {})
        vim.g.mark = vim.api.nvim_buf_set_extmark(0, vim.api.nvim_create_namespace('x'), 29, 0, {})
        vim.api.nvim_win_set_cursor(0, { 30, 3 })";
    stage.nv.lua(setup, json!(null)).await;
    let target = content.replace("line 5\n", "line 5\nnew a\nnew b\n");
    written(stage.write(target.as_bytes()).await, target.as_bytes());
    let now = "
        local ns = vim.api.nvim_create_namespace('x')
        return {
          vim.api.nvim_buf_get_mark(0, 'q')[1],
          vim.api.nvim_buf_get_extmark_by_id(0, ns, vim.g.mark, {})[1] + 1,
          vim.fn.foldlevel(22), vim.fn.foldlevel(27), vim.fn.foldlevel(21), vim.fn.foldlevel(28),
          vim.api.nvim_win_get_cursor(0)[1],
        }";
    assert_eq!(
        stage.nv.lua(now, json!(null)).await,
        json!([42, 32, 1, 1, 0, 0, 32])
    );
}

#[tokio::test]
async fn a_text_that_moved_is_left_alone() {
    let stage = Stage::open(LINES).await;
    let base = stage.state().await;
    stage.nv.command("call setline(4, 'FOUR')").await;
    let outcome = stage.commit(base, b"one\n2\nthree\nfour\n", false).await;
    assert!(matches!(outcome, CommitOutcome::Moved), "{outcome:?}");
    assert_eq!(stage.disk(), LINES);
    assert_eq!(stage.text().await, "one\ntwo\nthree\nFOUR");
}

#[tokio::test]
async fn a_commit_waits_until_the_user_leaves_insert_mode() {
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
    assert_eq!(stage.disk(), LINES);
    stage.nv.keys("<Esc>").await;
    written(waiting.await.unwrap(), b"one\n2\nthree\nfour\n");
}

#[tokio::test]
async fn typing_in_between_is_a_moved_text() {
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
    stage.nv.keys("x<Esc>").await;
    let outcome = waiting.await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Typed), "{outcome:?}");
    assert_eq!(stage.text().await, "xone\ntwo\nthree\nfour");
}

#[tokio::test]
async fn at_a_hit_enter_prompt_a_commit_waits_for_the_key_and_writes_once() {
    let stage = Stage::open(LINES).await;
    let base = stage.state().await;
    stage
        .nv
        .lua(
            "vim.g.writes = 0
             vim.api.nvim_create_autocmd('BufWritePost', { callback = function() vim.g.writes = vim.g.writes + 1 end })",
            json!(null),
        )
        .await;
    stage.nv.attach(80, 24).await;
    stage.nv.keys(":echo 'a' | echo 'b'<CR>").await;
    while !stage.nv.editor.mode().await.unwrap().blocking {
        tokio::task::yield_now().await;
    }
    let (files, change) = (
        stage.files.clone(),
        commit(&stage.path, base, b"one\n2\nthree\nfour\n", false),
    );
    let waiting = tokio::spawn(async move { files.commit(change).await });
    // The call has to arrive at Neovim before the key; a fast call made after it is answered after it was read.
    for _ in 0..20 {
        stage.nv.editor.mode().await.unwrap();
    }
    assert_eq!(stage.disk(), LINES);
    assert!(!waiting.is_finished());
    stage.nv.keys("<CR>").await;
    written(waiting.await.unwrap(), b"one\n2\nthree\nfour\n");
    assert_eq!(stage.nv.eval("g:writes").await, json!(1));
}

#[tokio::test]
async fn a_failing_write_puts_everything_back() {
    let stage = Stage::open(LINES).await;
    stage.nv.command("call setline(1, 'ONE')").await;
    let hooks = "
        vim.api.nvim_create_autocmd('BufWritePre', { group = vim.api.nvim_create_augroup('bad', {}), callback = function()
          vim.fn.setline(4, 'hook')
        end })
        vim.api.nvim_create_autocmd('BufWritePre', { group = 'bad', callback = function() error('no today') end })";
    stage.nv.lua(hooks, json!(null)).await;
    let before = stage.nv.eval("undotree().seq_cur").await;
    match stage.write(b"ONE\n2\nthree\nfour\n").await {
        CommitOutcome::Failed(error) => assert!(error.to_string().contains("no today"), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(stage.disk(), LINES);
    assert_eq!(stage.text().await, "ONE\ntwo\nthree\nfour");
    assert_eq!(stage.nv.eval("&modified").await, json!(1));
    assert_eq!(stage.nv.eval("undotree().seq_cur").await, before);
    stage.nv.command("silent! redo").await;
    assert_eq!(stage.text().await, "ONE\ntwo\nthree\nfour");
    stage.nv.command("autocmd! bad").await;
    written(
        stage.write(b"ONE\n2\nthree\nfour\n").await,
        b"ONE\n2\nthree\nfour\n",
    );
    stage.nv.command("undo").await;
    assert_eq!(stage.text().await, "ONE\ntwo\nthree\nfour");
}

#[tokio::test]
async fn a_failing_write_is_put_back_without_undo_too() {
    let stage = Stage::open(LINES).await;
    stage.nv.command("setlocal undolevels=-1").await;
    stage
        .nv
        .command("autocmd BufWritePre * call setline(4, 'hook') | throw 'no'")
        .await;
    let outcome = stage.write(b"one\n2\nthree\nfour\n").await;
    assert!(matches!(outcome, CommitOutcome::Failed(_)), "{outcome:?}");
    assert_eq!(stage.text().await, "one\ntwo\nthree\nfour");
    assert_eq!(stage.nv.eval("&modified").await, json!(0));
}

#[tokio::test]
async fn what_a_hook_changes_is_on_disk_and_told() {
    let stage = Stage::open(LINES).await;
    stage
        .nv
        .command("autocmd BufWritePre * call setline(1, toupper(getline(1)))")
        .await;
    written(
        stage.write(b"one\n2\nthree\nfour\n").await,
        b"ONE\n2\nthree\nfour\n",
    );
    stage.nv.command("undo").await;
    assert_eq!(stage.text().await, "one\ntwo\nthree\nfour");
}

#[tokio::test]
async fn hooks_can_be_left_out() {
    let stage = Stage::open(LINES).await;
    stage
        .nv
        .command("autocmd BufWritePre * call setline(1, toupper(getline(1)))")
        .await;
    stage
        .nv
        .lua("vim.g.pi = { review = { on_save = false } }", json!(null))
        .await;
    written(
        stage.write(b"one\n2\nthree\nfour\n").await,
        b"one\n2\nthree\nfour\n",
    );
}

#[tokio::test]
async fn two_commits_are_two_undo_steps_with_the_focus_elsewhere() {
    let stage = Stage::open(LINES).await;
    stage.nv.command("new").await;
    written(
        stage.write(b"1\ntwo\nthree\nfour\n").await,
        b"1\ntwo\nthree\nfour\n",
    );
    stage.nv.keys("isome words<Esc>").await;
    stage.nv.wait("getline(1) == 'some words'").await;
    written(
        stage.write(b"1\ntwo\nthree\n4\n").await,
        b"1\ntwo\nthree\n4\n",
    );
    stage.nv.command("wincmd p").await;
    stage.nv.command("undo").await;
    assert_eq!(stage.text().await, "1\ntwo\nthree\nfour");
    stage.nv.command("undo").await;
    assert_eq!(stage.text().await, "one\ntwo\nthree\nfour");
}

#[tokio::test]
async fn a_read_only_buffer_is_written_only_when_the_person_says_so() {
    let stage = Stage::open(LINES).await;
    stage.nv.command("setlocal readonly").await;
    let target = b"one\n2\nthree\nfour\n";
    match stage.write(target).await {
        CommitOutcome::Failed(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        }
        other => panic!("{other:?}"),
    }
    let base = stage.state().await;
    written(stage.commit(base, target, true).await, target);
}

#[tokio::test]
async fn a_file_nobody_loaded_stays_unloaded() {
    let stage = Stage::start(LINES).await;
    assert_eq!(stage.state().await.origin, Origin::Disk);
    written(stage.write(b"1\n").await, b"1\n");
    assert_eq!(stage.nv.eval("bufloaded('f.txt')").await, json!(0));
}

#[tokio::test]
async fn a_buffer_that_cannot_be_changed_is_written_around() {
    let stage = Stage::open(LINES).await;
    stage.nv.command("setlocal nomodifiable").await;
    written(stage.write(b"1\n").await, b"1\n");
    stage.nv.wait("getline(1) == '1' && line('$') == 1").await;
}

#[tokio::test]
async fn a_new_file_fills_the_buffer_that_waits_for_it() {
    let stage = Stage::start(LINES).await;
    std::fs::remove_file(&stage.path).unwrap();
    stage.nv.command("edit f.txt").await;
    assert_eq!(stage.state().await.origin, Origin::Missing);
    written(stage.write(b"new\n").await, b"new\n");
    stage.nv.wait("getline(1) == 'new' && !&modified").await;
}

/// Opens `before`, writes `after`, and compares bytes, buffer and undo.
async fn check_bytes(before: &[u8], after: &[u8]) {
    let stage = Stage::open(before).await;
    assert_eq!(
        String::from_utf8_lossy(&stage.state().await.bytes),
        String::from_utf8_lossy(before)
    );
    written(stage.write(after).await, after);
    assert_eq!(
        String::from_utf8_lossy(&stage.state().await.bytes),
        String::from_utf8_lossy(after)
    );
    stage.nv.command("edit!").await;
    assert_eq!(&*stage.state().await.bytes, after);
}

#[tokio::test]
async fn endings_bom_and_final_newline_are_what_was_accepted() {
    for (before, after) in [
        (&b"a\nb"[..], &b"a\nB"[..]),
        (b"a\nb", b"a\nb\n"),
        (b"a\nb\n", b"a\nb"),
        (b"a\r\nb\r\n", b"a\r\nB\r\nc\r\n"),
        (b"a\r\nb\r\n", b"a\nb\n"),
        (b"a\nb\n", b"a\r\nb\r\n"),
        (b"a\r\nb\nc\r\n", b"a\r\nB\nc\r\n"),
        (b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfA\nb\n"),
        (b"\xef\xbb\xbfa\n", b"a\n"),
        (b"a\n", b"\xef\xbb\xbfa\n"),
        (b"", b"a\n"),
        (b"", b"\n"),
        (b"a\n", b""),
        (b"\n", b"\n\n"),
        (b"a\0b\n", b"a\0b\nc\n"),
    ] {
        check_bytes(before, after).await;
    }
}

#[tokio::test]
async fn another_encoding_is_written_through_its_buffer() {
    let stage = Stage::open(b"caf\xe9\nb\n").await;
    assert_eq!(stage.nv.eval("&fileencoding").await, json!("latin1"));
    let base = stage.state().await;
    assert_eq!(String::from_utf8_lossy(&base.bytes), "café\nb\n");
    written(
        stage.commit(base, "café\nnaïve\n".as_bytes(), false).await,
        "café\nnaïve\n".as_bytes(),
    );
    assert_eq!(stage.disk(), b"caf\xe9\nna\xefve\n");
    let outcome = stage.write("café\n→\n".as_bytes()).await;
    assert!(matches!(outcome, CommitOutcome::Failed(_)), "{outcome:?}");
    assert_eq!(stage.disk(), b"caf\xe9\nna\xefve\n");
    assert_eq!(stage.text().await, "café\nnaïve");
}

#[tokio::test]
async fn a_reload_the_user_declined_leaves_the_disk_in_charge() {
    let stage = Stage::open(LINES).await;
    stage.nv.command("set noautoread").await;
    std::fs::write(&stage.path, "changed\n").unwrap();
    let state = stage.state().await;
    assert_eq!(
        (&*state.bytes, &state.origin),
        (&b"changed\n"[..], &Origin::Disk)
    );
    written(stage.commit(state, b"more\n", false).await, b"more\n");
}

#[tokio::test]
async fn a_file_changed_on_disk_is_reloaded_before_it_is_the_base() {
    let stage = Stage::open(LINES).await;
    let newer = std::time::SystemTime::now() + Duration::from_secs(5);
    std::fs::write(&stage.path, "changed\n").unwrap();
    std::fs::File::options()
        .write(true)
        .open(&stage.path)
        .unwrap()
        .set_modified(newer)
        .unwrap();
    let state = stage.state().await;
    assert_eq!(&*state.bytes, b"changed\n");
    assert!(matches!(state.origin, Origin::Buffer(_)));
}

#[tokio::test]
async fn when_the_editor_goes_away_nobody_claims_to_know() {
    let stage = Stage::open(LINES).await;
    let base = stage.state().await;
    stage.nv.attach(80, 24).await;
    stage.nv.keys(":echo 'a' | echo 'b'<CR>").await;
    while !stage.nv.editor.mode().await.unwrap().blocking {
        tokio::task::yield_now().await;
    }
    let Stage { nv, files, path } = stage;
    let change = commit(&path, base, b"2\n", false);
    let waiting = tokio::spawn(async move { files.commit(change).await });
    for _ in 0..20 {
        nv.editor.mode().await.unwrap();
    }
    nv.kill().await;
    match waiting.await.unwrap() {
        CommitOutcome::Unknown | CommitOutcome::Failed(_) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_big_file_is_read_and_written_in_time() {
    let content: String = (0..30_000)
        .map(|n| format!("this is line number {n}\n"))
        .collect();
    let stage = Stage::open(content.as_bytes()).await;
    let target = content.replace("number 15000\n", "number fifteen thousand\n");
    let start = std::time::Instant::now();
    written(stage.write(target.as_bytes()).await, target.as_bytes());
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_buffer_that_another_neovim_has_open_too_is_written_around() {
    let stage = Stage::open(LINES).await;
    stage.nv.command("let b:pi_swap = v:true").await;
    stage
        .nv
        .command("autocmd BufWritePre * let g:wrote = 1")
        .await;
    written(stage.write(b"1\n").await, b"1\n");
    stage.nv.wait("getline(1) == '1' && !&modified").await;
    assert_eq!(stage.nv.eval("exists('g:wrote')").await, json!(0));
}
