//! What comes at a bad moment: keys while a change is worked out, files that vanish, writes that fail and are tried again.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use pi_nvim::review::{HunkState, ProposalState, ReviewAction, ReviewEvent, ReviewMode};

use super::desk::{Call, Desk, Trouble, numbers, states};

/// A change whose working out goes on until the sender speaks.
async fn worked_out(desk: &mut Desk) -> (Call, mpsc::Sender<()>) {
    desk.put("f", "1\n2\n");
    let (go_on, wait) = mpsc::channel::<()>();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let call = desk.plan("c", "f", move |_| {
        begun.send(()).unwrap();
        wait.recv().unwrap();
        b"one\n2\n".to_vec()
    });
    has_begun.await.unwrap();
    (call, go_on)
}

#[tokio::test]
async fn everything_refused_while_a_change_is_worked_out_is_refused() {
    for mode in [ReviewMode::Ask, ReviewMode::Auto] {
        let mut desk = Desk::with(|config| config.mode = mode);
        let (call, go_on) = worked_out(&mut desk).await;
        desk.act(ReviewAction::RejectAll {
            session: None,
            note: Some("not now".to_owned()),
        });
        go_on.send(()).unwrap();
        let (text, is_error) = call.text().await;
        assert!(is_error && text.ends_with("Reason: not now"), "{text}");
        assert_eq!(desk.on_disk("f"), "1\n2\n");
    }
}

#[tokio::test]
async fn a_mode_chosen_while_a_change_is_worked_out_holds_for_it() {
    for (mode, next) in [
        (ReviewMode::Auto, ReviewMode::Readonly),
        (ReviewMode::Auto, ReviewMode::Ask),
    ] {
        let mut desk = Desk::with(|config| config.mode = mode);
        let (call, go_on) = worked_out(&mut desk).await;
        desk.act(ReviewAction::SetMode { mode: next });
        go_on.send(()).unwrap();
        if next == ReviewMode::Ask {
            desk.open(&call).await;
            desk.act(ReviewAction::RejectFile {
                proposal: call.id,
                note: None,
            });
        }
        assert!(call.text().await.1);
        assert_eq!(desk.on_disk("f"), "1\n2\n");
    }
}

#[tokio::test]
async fn an_insertion_does_not_become_all_of_a_file_that_is_gone_or_emptied() {
    for gone in [true, false] {
        let mut desk = Desk::new();
        desk.put("f", &numbers(9));
        let call = desk.propose("c", "f", &format!("0\n{}10\n", numbers(9)));
        assert_eq!(desk.open(&call).await.hunks.len(), 2);
        if gone {
            fs::remove_file(desk.path("f")).unwrap();
        } else {
            desk.put("f", "");
        }
        desk.accept_file(&call);
        desk.until(call.id, "stale", |it| states(it) == [HunkState::Stale; 2])
            .await;
        assert_eq!(fs::read(desk.path("f")).unwrap_or_default(), b"");
        // Back again, as after a change of branches: as it was decided.
        desk.put("f", &numbers(9));
        desk.gate.file_changed(&desk.path("f"));
        assert!(!call.text().await.1);
        assert_eq!(desk.on_disk("f"), format!("0\n{}10\n", numbers(9)));
    }
}

#[tokio::test]
async fn an_undo_that_could_not_write_can_be_tried_again() {
    let mut desk = Desk::new();
    desk.put("f", "1\n");
    let call = desk.propose("c", "f", "one\n");
    desk.open(&call).await;
    desk.accept_file(&call);
    desk.state(&call, ProposalState::Done).await;
    desk.editor.troubles.lock().push(Trouble::Failed);
    desk.undo().unwrap();
    desk.event(
        |event| matches!(event, ReviewEvent::Said { line } if line.contains("not reverted")),
    )
    .await;
    assert_eq!(desk.on_disk("f"), "one\n");
    desk.undo().unwrap();
    desk.until(call.id, "reverted", |it| {
        states(it) == [HunkState::Reverted]
    })
    .await;
    assert_eq!(desk.on_disk("f"), "1\n");
    assert_eq!(desk.undo().unwrap_err(), "nothing to undo");
}

#[tokio::test]
async fn what_was_forced_onto_a_read_only_file_is_taken_back_too() {
    let mut desk = Desk::new();
    desk.put("f", "1\n");
    fs::set_permissions(desk.path("f"), Permissions::from_mode(0o444)).unwrap();
    let call = desk.propose("c", "f", "one\n");
    desk.open(&call).await;
    desk.act(ReviewAction::Force { proposal: call.id });
    desk.accept_file(&call);
    desk.state(&call, ProposalState::Done).await;
    assert_eq!(desk.on_disk("f"), "one\n");
    desk.undo().unwrap();
    desk.until(call.id, "reverted", |it| {
        states(it) == [HunkState::Reverted]
    })
    .await;
    assert_eq!(desk.on_disk("f"), "1\n");
}

#[tokio::test]
async fn undo_passes_over_a_decision_that_a_failed_write_took_back() {
    let mut desk = Desk::new();
    desk.put("f", "1\n");
    desk.put("g", "1\n");
    let (f, g) = (
        desk.propose("c", "f", "one\n"),
        desk.propose("d", "g", "two\n"),
    );
    desk.open(&f).await;
    desk.open(&g).await;
    desk.accept_file(&f);
    desk.state(&f, ProposalState::Done).await;
    desk.editor.troubles.lock().push(Trouble::Failed);
    desk.accept_file(&g);
    desk.until(g.id, "open again", |it| {
        it.state == ProposalState::Open && it.notice.is_some()
    })
    .await;
    desk.undo().unwrap();
    desk.until(f.id, "reverted", |it| states(it) == [HunkState::Reverted])
        .await;
    assert_eq!(desk.on_disk("f"), "1\n");
}

#[tokio::test]
async fn typing_while_a_write_waits_costs_one_look() {
    let mut desk = Desk::new();
    desk.put("f", &numbers(10));
    let done = desk.replace("c", "f", "2\n", "two\n");
    desk.open(&done).await;
    desk.accept_file(&done);
    desk.state(&done, ProposalState::Done).await;
    let call = desk.replace("d", "f", "8\n", "eight\n");
    desk.open(&call).await;
    let editor = std::sync::Arc::clone(&desk.editor);
    editor.gatekeeper.forget_permits(usize::MAX);
    desk.accept_file(&call);
    desk.state(&call, ProposalState::Applying).await;
    editor.arrived.notified().await;
    let before = editor.reads.load(Ordering::Relaxed);
    for _ in 0..1_000 {
        desk.gate.file_changed(&desk.path("f"));
    }
    editor.gatekeeper.add_permits(100);
    let id = call.id;
    assert!(!call.text().await.1);
    // The look that the settled change itself asks for has been made when its row is known.
    desk.act(ReviewAction::Undo { session: None });
    desk.until(id, "reverted", |it| states(it) == [HunkState::Reverted])
        .await;
    let looks = editor.reads.load(Ordering::Relaxed) - before;
    assert!(looks < 10, "{looks} looks at the file");
}

#[tokio::test]
async fn a_state_folder_that_cannot_be_written_is_told_once() {
    let mut desk = Desk::with(|config| config.state_dir = Some("/dev/null/state".into()));
    let mut events = desk.gate.subscribe();
    for (name, text) in [("f", "one\n"), ("g", "two\n")] {
        desk.put(name, "1\n");
        let call = desk.propose(name, name, text);
        desk.open(&call).await;
        desk.accept_file(&call);
        assert!(!call.text().await.1);
    }
    let mut told = 0;
    while let Ok(event) = events.try_recv() {
        told +=
            usize::from(matches!(event, ReviewEvent::Said { line } if line.contains("restore")));
    }
    assert_eq!(told, 1);
}

/// Saving indents everything, as a formatter does.
fn indent(bytes: Vec<u8>) -> Vec<u8> {
    let text = String::from_utf8(bytes).unwrap();
    let line = |line: &str| format!("    {}\n", line.trim());
    text.lines().map(line).collect::<String>().into_bytes()
}

/// Two accepted hunks, at lines 2 and 8 of ten, in a file that a formatter indented when it was saved.
async fn formatted() -> (Desk, Call) {
    let mut desk = Desk::new();
    let text = String::from_utf8(indent(numbers(10).into_bytes())).unwrap();
    desk.put("f", &text);
    desk.editor.load(&desk.path("f"));
    *desk.editor.hook.lock() = Some(indent);
    // The model indents nothing.
    let target = text
        .replace("    2\n", "two\n")
        .replace("    8\n", "eight\n");
    let call = desk.propose("c", "f", &target);
    let hunks = desk.open(&call).await.hunks.clone();
    for hunk in hunks {
        desk.accept(hunk.id);
    }
    desk.state(&call, ProposalState::Done).await;
    assert!(desk.on_disk("f").contains("\n    two\n"));
    (desk, call)
}

#[tokio::test]
async fn a_hunk_that_a_formatter_changed_on_saving_is_taken_back() {
    let (mut desk, call) = formatted().await;
    let mut events = desk.gate.subscribe();
    desk.undo().unwrap();
    desk.until(call.id, "one reverted", |it| {
        states(it) == [HunkState::Accepted, HunkState::Reverted]
    })
    .await;
    let text = String::from_utf8(indent(numbers(10).into_bytes())).unwrap();
    assert_eq!(desk.on_disk("f"), text.replace("    2\n", "    two\n"));
    desk.undo().unwrap();
    desk.until(call.id, "both reverted", |it| {
        states(it) == [HunkState::Reverted; 2]
    })
    .await;
    assert_eq!(desk.on_disk("f"), text);
    let mut notes = 0;
    while let Ok(event) = events.try_recv() {
        notes += usize::from(matches!(event, ReviewEvent::ModelNote { .. }));
    }
    assert_eq!(notes, 2);
}

#[tokio::test]
async fn undo_and_redo_in_the_editor_are_followed_through_a_formatter() {
    let (mut desk, call) = formatted().await;
    let path = desk.path("f");
    let before = indent(numbers(10).into_bytes());
    let after = desk.on_disk("f").into_bytes();
    for (text, state) in [
        (&before, HunkState::Reverted),
        (&after, HunkState::Accepted),
    ] {
        desk.editor.type_text(&path, |bytes| bytes.clone_from(text));
        desk.editor.save(&path);
        desk.gate.file_changed(&path);
        desk.until(call.id, "followed", |it| states(it) == [state; 2])
            .await;
    }
}

#[tokio::test]
async fn what_a_formatter_changed_is_put_back_with_the_change() {
    let (mut desk, call) = formatted().await;
    call.result.await.unwrap().unwrap();
    let calls = ["c".to_owned()];
    let line = desk.gate.restore("s", &calls).await.unwrap();
    assert_eq!(line, "1 file to restore, shown as a review");
    let restore = desk.gate.proposals(None).last().unwrap().id;
    *desk.editor.hook.lock() = None;
    desk.act(ReviewAction::AcceptFile { proposal: restore });
    desk.until(restore, "done", |it| it.state == ProposalState::Done)
        .await;
    assert_eq!(
        desk.on_disk("f").into_bytes(),
        indent(numbers(10).into_bytes())
    );
}
