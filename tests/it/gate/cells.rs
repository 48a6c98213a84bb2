//! One test for each cell of the table *state × event* in `doc/architecture.md`.

use pi_nvim::agent::{ErrorClass, ToolError};
use pi_nvim::review::{HunkState, ProposalState, ReviewAction, ReviewEvent};

use super::desk::{Call, Desk, Trouble, numbers, states, text_of};

/// Two proposals to one file: the first open, the second waiting.
async fn waiting() -> (Desk, Call, Call) {
    let mut desk = Desk::new();
    desk.put("f", "1\n2\n3\n");
    let first = desk.replace("c1", "f", "1", "one");
    let second = desk.replace("c2", "f", "3", "three");
    desk.open(&first).await;
    assert_eq!(
        desk.gate.proposal(second.id).unwrap().state,
        ProposalState::Waiting
    );
    (desk, first, second)
}

/// One open proposal with two hunks, at lines 2 and 8 of ten.
async fn open() -> (Desk, Call) {
    let mut desk = Desk::new();
    desk.put("f", &numbers(10));
    let call = desk.propose(
        "c",
        "f",
        &numbers(10)
            .replace("2\n", "two\n")
            .replace("8\n", "eight\n"),
    );
    let proposal = desk.open(&call).await;
    assert_eq!(proposal.hunks.len(), 2);
    (desk, call)
}

/// One proposal that is being written: its commit is held up.
async fn applying() -> (Desk, Call) {
    let (mut desk, call) = open().await;
    let editor = std::sync::Arc::clone(&desk.editor);
    editor.gatekeeper.forget_permits(usize::MAX);
    desk.accept_file(&call);
    desk.state(&call, ProposalState::Applying).await;
    desk.editor.arrived.notified().await;
    (desk, call)
}

/// One proposal that was accepted and written.
async fn done() -> (Desk, ProposalLeft) {
    let (mut desk, call) = open().await;
    desk.accept_file(&call);
    desk.state(&call, ProposalState::Done).await;
    let Call { id, cancel, result } = call;
    let output = result.await.unwrap().unwrap();
    (
        desk,
        ProposalLeft {
            id,
            cancel,
            text: text_of(&output),
        },
    )
}

struct ProposalLeft {
    id: pi_nvim::review::ProposalId,
    cancel: tokio_util::sync::CancellationToken,
    text: String,
}

const ACCEPTED: &str = "1\ntwo\n3\n4\n5\n6\n7\neight\n9\n10\n";
const ABORTED: &str = "Operation aborted";

fn release(desk: &Desk) {
    desk.editor.gatekeeper.add_permits(1_000);
}

// waiting

#[tokio::test]
async fn waiting_abort_leaves_the_queue() {
    let (mut desk, first, second) = waiting().await;
    second.cancel.cancel();
    desk.state(&second, ProposalState::Cancelled).await;
    assert_eq!(second.text().await, (ABORTED.to_owned(), true));
    desk.accept_file(&first);
    assert!(!first.text().await.1);
    assert_eq!(desk.on_disk("f"), "one\n2\n3\n");
}

#[tokio::test]
async fn waiting_quit_cancels() {
    let (desk, first, second) = waiting().await;
    desk.gate.cancel(None).await;
    assert_eq!(second.text().await, (ABORTED.to_owned(), true));
    assert_eq!(first.text().await, (ABORTED.to_owned(), true));
    assert_eq!(desk.on_disk("f"), "1\n2\n3\n");
}

#[tokio::test]
async fn waiting_base_moved_is_read_at_the_head() {
    let (mut desk, first, second) = waiting().await;
    desk.put("f", "0\n1\n2\n3\n");
    desk.gate.file_changed(&desk.path("f"));
    desk.accept_file(&first);
    let proposal = desk.open(&second).await;
    assert_eq!(&*proposal.base.as_ref().unwrap().bytes, b"0\none\n2\n3\n");
}

#[tokio::test]
async fn waiting_keeps_waiting_when_the_write_ahead_fails() {
    let (mut desk, first, second) = waiting().await;
    desk.editor.troubles.lock().push(Trouble::Failed);
    desk.accept_file(&first);
    let notice = |it: &pi_nvim::review::Proposal| it.notice.is_some();
    let proposal = desk.until(first.id, "open again", notice).await;
    assert_eq!(proposal.state, ProposalState::Open);
    let second_now = desk.gate.proposal(second.id).unwrap();
    assert_eq!(second_now.state, ProposalState::Waiting);
}

#[tokio::test]
async fn waiting_reads_a_base_without_what_was_undone() {
    let mut desk = Desk::new();
    desk.put("f", "1\n2\n3\n");
    let first = desk.replace("c1", "f", "1", "one");
    desk.open(&first).await;
    desk.accept_file(&first);
    desk.state(&first, ProposalState::Done).await;
    let second = desk.replace("c2", "f", "2", "two");
    let third = desk.replace("c3", "f", "3", "three");
    desk.open(&second).await;
    desk.undo().unwrap();
    desk.until(first.id, "reverted", |it| {
        states(it) == [HunkState::Reverted]
    })
    .await;
    assert_eq!(
        desk.gate.proposal(third.id).unwrap().state,
        ProposalState::Waiting
    );
    desk.accept_file(&second);
    let proposal = desk.open(&third).await;
    assert_eq!(&*proposal.base.as_ref().unwrap().bytes, b"1\ntwo\n3\n");
}

#[tokio::test]
async fn waiting_killed_left_no_record() {
    let (desk, _first, _second) = waiting().await;
    assert_eq!(desk.restarted().recall("s", "c2"), None);
}

// open

#[tokio::test]
async fn open_abort_cancels() {
    let (mut desk, call) = open().await;
    let hunk = desk.gate.proposal(call.id).unwrap().hunks[0].id;
    desk.accept(hunk);
    call.cancel.cancel();
    desk.state(&call, ProposalState::Cancelled).await;
    assert_eq!(call.text().await, (ABORTED.to_owned(), true));
    assert_eq!(desk.on_disk("f"), numbers(10));
    assert_eq!(desk.names(), ["f"]);
}

#[tokio::test]
async fn open_quit_cancels() {
    let (desk, call) = open().await;
    desk.gate.cancel(Some("other")).await;
    assert_eq!(
        desk.gate.proposal(call.id).unwrap().state,
        ProposalState::Open
    );
    desk.gate.cancel(Some("s")).await;
    assert_eq!(call.text().await, (ABORTED.to_owned(), true));
    assert_eq!(desk.on_disk("f"), numbers(10));
}

#[tokio::test]
async fn open_base_moved_gives_new_rows_and_stale_hunks() {
    let (mut desk, call) = open().await;
    let hunk = desk.gate.proposal(call.id).unwrap().hunks[0].id;
    desk.accept(hunk);
    // A line on top, and a change of the second hunk's own line.
    desk.put("f", &format!("0\n{}", numbers(10).replace("8\n", "VIII\n")));
    desk.gate.file_changed(&desk.path("f"));
    let proposal = desk
        .until(call.id, "stale", |it| it.hunks[1].state == HunkState::Stale)
        .await;
    assert_eq!(proposal.hunks[0].state, HunkState::Accepted);
    assert_eq!(proposal.hunks[0].row, 2);
    assert_eq!(proposal.state, ProposalState::Open);
    // The conflict goes away and with it the staleness.
    desk.put("f", &format!("0\n{}", numbers(10)));
    desk.gate.file_changed(&desk.path("f"));
    desk.until(call.id, "pending again", |it| {
        it.hunks[1].state == HunkState::Pending && it.hunks[1].row == 8
    })
    .await;
    desk.accept_file(&call);
    assert!(!call.text().await.1);
    assert_eq!(desk.on_disk("f"), format!("0\n{ACCEPTED}"));
}

#[tokio::test]
async fn open_stays_when_a_write_fails_elsewhere() {
    let (mut desk, call) = open().await;
    desk.put("g", "a\n");
    let other = desk.propose("c2", "g", "b\n");
    desk.open(&other).await;
    let before = desk.gate.proposal(call.id).unwrap();
    desk.editor.troubles.lock().push(Trouble::Failed);
    desk.accept_file(&other);
    desk.until(other.id, "failed", |it| it.notice.is_some())
        .await;
    assert_eq!(desk.gate.proposal(call.id).unwrap().version, before.version);
}

#[tokio::test]
async fn open_undo_takes_the_last_decision_back() {
    let (mut desk, call) = open().await;
    let hunk = desk.gate.proposal(call.id).unwrap().hunks[0].id;
    desk.reject(hunk, Some("no"));
    assert_eq!(
        states(&desk.gate.proposal(call.id).unwrap()),
        [HunkState::Rejected, HunkState::Pending]
    );
    desk.undo().unwrap();
    assert_eq!(
        states(&desk.gate.proposal(call.id).unwrap()),
        [HunkState::Pending, HunkState::Pending]
    );
    assert!(desk.undo().is_err());
    desk.open(&call).await;
}

#[tokio::test]
async fn open_killed_left_no_record() {
    let (desk, _call) = open().await;
    assert_eq!(desk.restarted().recall("s", "c"), None);
    assert_eq!(desk.on_disk("f"), numbers(10));
}

// applying

#[tokio::test]
async fn applying_abort_waits_for_the_answer_and_tells_the_truth() {
    let (desk, call) = applying().await;
    call.cancel.cancel();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!call.result.is_finished());
    release(&desk);
    let (text, is_error) = call.text().await;
    assert_eq!(
        (text.as_str(), is_error),
        ("Successfully wrote to f", false)
    );
    assert_eq!(desk.on_disk("f"), ACCEPTED);
}

#[tokio::test]
async fn applying_abort_of_a_write_that_fails_cancels() {
    let (desk, call) = applying().await;
    desk.editor.troubles.lock().push(Trouble::Failed);
    call.cancel.cancel();
    release(&desk);
    assert_eq!(call.text().await, (ABORTED.to_owned(), true));
    assert_eq!(desk.on_disk("f"), numbers(10));
}

#[tokio::test]
async fn applying_quit_looks_at_the_disk() {
    let (desk, call) = applying().await;
    let gone = Trouble::Gone { written: true };
    desk.editor.troubles.lock().push(gone);
    let quit = desk.gate.cancel(None);
    release(&desk);
    quit.await;
    assert_eq!(
        call.text().await,
        ("Successfully wrote to f".to_owned(), false)
    );

    let (desk, call) = applying().await;
    let gone = Trouble::Gone { written: false };
    desk.editor.troubles.lock().push(gone);
    release(&desk);
    let (text, is_error) = call.text().await;
    assert!(is_error && text.contains("nothing was written"), "{text}");
    assert_eq!(desk.restarted().recall("s", "c"), None);
}

#[tokio::test]
async fn applying_moved_merges_again_at_most_five_rounds() {
    let (desk, call) = applying().await;
    desk.editor.troubles.lock().extend([Trouble::Moved; 4]);
    desk.put("f", &format!("0\n{}", numbers(10)));
    release(&desk);
    assert_eq!(
        call.text().await,
        ("Successfully wrote to f".to_owned(), false)
    );
    assert_eq!(desk.on_disk("f"), format!("0\n{ACCEPTED}"));

    let (mut desk, call) = applying().await;
    desk.editor.troubles.lock().extend([Trouble::Moved; 5]);
    release(&desk);
    let proposal = desk.open(&call).await;
    assert_eq!(states(&proposal), [HunkState::Stale; 2]);
    assert_eq!(desk.on_disk("f"), numbers(10));
    desk.act(ReviewAction::DropStale { proposal: call.id });
    let (text, is_error) = call.text().await;
    assert!(
        is_error && text.contains("changed while the edit was waiting"),
        "{text}"
    );
}

#[tokio::test]
async fn applying_failed_is_open_again_and_nothing_is_told() {
    let (mut desk, call) = applying().await;
    desk.editor.troubles.lock().push(Trouble::Failed);
    release(&desk);
    let proposal = desk.open(&call).await;
    assert_eq!(states(&proposal), [HunkState::Pending; 2]);
    assert!(proposal.notice.as_ref().unwrap().contains("ENOSPC"));
    desk.event(|event| matches!(event, ReviewEvent::Said { line } if line.contains("ENOSPC")))
        .await;
    assert!(!call.result.is_finished());
    assert_eq!(desk.restarted().recall("s", "c"), None);
    desk.accept_file(&call);
    assert_eq!(
        call.text().await,
        ("Successfully wrote to f".to_owned(), false)
    );
}

#[tokio::test]
async fn applying_undo_acts_on_the_state_reached() {
    let (mut desk, call) = applying().await;
    desk.undo().unwrap();
    assert_eq!(
        desk.gate.proposal(call.id).unwrap().state,
        ProposalState::Applying
    );
    release(&desk);
    desk.until(call.id, "reverted", |it| {
        states(it) == [HunkState::Reverted; 2]
    })
    .await;
    assert_eq!(desk.on_disk("f"), numbers(10));

    let (mut desk, call) = applying().await;
    desk.editor.troubles.lock().push(Trouble::Failed);
    desk.undo().unwrap();
    release(&desk);
    let proposal = desk.open(&call).await;
    assert_eq!(states(&proposal), [HunkState::Pending; 2]);
}

#[tokio::test]
async fn applying_decides_nothing_more() {
    let (desk, call) = applying().await;
    let hunk = desk.gate.proposal(call.id).unwrap().hunks[0].id;
    let reject = ReviewAction::Reject {
        hunks: vec![hunk],
        note: None,
    };
    assert!(desk.gate.act(reject).is_err());
    release(&desk);
    assert!(!call.text().await.1);
}

#[tokio::test]
async fn applying_killed_is_told_by_the_record() {
    let (desk, call) = applying().await;
    // Held up before anything was written.
    let told = desk.restarted().recall("s", "c").unwrap();
    assert!(told.is_error && text_of(&told).contains("nothing was written"));
    // Written, and killed before the record was marked.
    desk.put("f", ACCEPTED);
    let told = desk.restarted().recall("s", "c").unwrap();
    assert_eq!(text_of(&told), "Successfully wrote to f");
    // Something else is there.
    desk.put("f", "else\n");
    let told = desk.restarted().recall("s", "c").unwrap();
    assert!(told.is_error && text_of(&told).contains("Read f again"));
    drop(call);
}

// done

#[tokio::test]
async fn done_abort_and_quit_change_nothing() {
    let (desk, left) = done().await;
    left.cancel.cancel();
    desk.gate.cancel(None).await;
    let proposal = desk.gate.proposal(left.id).unwrap();
    assert_eq!(proposal.state, ProposalState::Done);
    assert_eq!(left.text, "Successfully wrote to f");
    assert_eq!(desk.on_disk("f"), ACCEPTED);
}

#[tokio::test]
async fn done_base_moved_keeps_rows_and_sees_lines_that_are_back() {
    let (mut desk, left) = done().await;
    desk.editor.load(&desk.path("f"));
    let changed = |desk: &Desk| desk.gate.file_changed(&desk.path("f"));
    desk.editor.type_text(&desk.path("f"), |bytes| {
        bytes.splice(0..0, *b"0\n");
    });
    changed(&desk);
    desk.until(left.id, "moved", |it| it.hunks[1].row == 8)
        .await;
    // Plain undo in the editor: nothing is said until the buffer is written.
    let back = format!("0\n{}", numbers(10).replace("8\n", "eight\n"));
    desk.editor
        .type_text(&desk.path("f"), |bytes| *bytes = back.into_bytes());
    changed(&desk);
    // Another change after it shows that the first was seen.
    desk.editor.type_text(&desk.path("f"), |bytes| {
        bytes.splice(0..0, *b"00\n");
    });
    changed(&desk);
    let proposal = desk
        .until(left.id, "moved", |it| it.hunks[1].row == 9)
        .await;
    assert_eq!(states(&proposal), [HunkState::Accepted; 2]);
    assert!(desk.note_texts().is_empty());
    desk.editor.save(&desk.path("f"));
    changed(&desk);
    desk.until(left.id, "reverted", |it| {
        states(it) == [HunkState::Reverted, HunkState::Accepted]
    })
    .await;
    changed(&desk);
    let note = desk
        .event(|event| matches!(event, ReviewEvent::ModelNote { .. }))
        .await;
    let ReviewEvent::ModelNote { session, text } = note else {
        panic!("a note");
    };
    assert_eq!(session, "s");
    assert!(
        text.starts_with("Note: the user reverted hunk 1 of your edit to f"),
        "{text}"
    );
    // Redo.
    let again = format!("00\n0\n{ACCEPTED}");
    desk.editor
        .type_text(&desk.path("f"), |bytes| *bytes = again.into_bytes());
    changed(&desk);
    desk.until(left.id, "accepted again", |it| {
        states(it) == [HunkState::Accepted; 2]
    })
    .await;
    assert!(desk.note_texts().is_empty(), "the note came once");
}

#[tokio::test]
async fn done_undo_that_cannot_write_stays_accepted() {
    let (mut desk, left) = done().await;
    desk.editor.troubles.lock().push(Trouble::Failed);
    desk.undo().unwrap();
    let proposal = desk.until(left.id, "told", |it| it.notice.is_some()).await;
    assert_eq!(states(&proposal), [HunkState::Accepted; 2]);
    assert_eq!(desk.on_disk("f"), ACCEPTED);
    assert!(desk.note_texts().is_empty());
}

#[tokio::test]
async fn done_undo_writes_the_inverse_and_merges_an_open_proposal_over_it() {
    let (mut desk, left) = done().await;
    let next = desk.replace("c2", "f", "5\n", "five\n");
    desk.open(&next).await;
    desk.put("f", &format!("0\n{ACCEPTED}"));
    desk.undo().unwrap();
    desk.until(left.id, "reverted", |it| {
        states(it) == [HunkState::Reverted; 2]
    })
    .await;
    assert_eq!(desk.on_disk("f"), format!("0\n{}", numbers(10)));
    let proposal = desk
        .until(next.id, "moved", |it| it.hunks[0].row == 5)
        .await;
    assert_eq!(states(&proposal), [HunkState::Pending]);
    desk.accept_file(&next);
    assert!(!next.text().await.1);
    assert_eq!(
        desk.on_disk("f"),
        format!("0\n{}", numbers(10).replace("5\n", "five\n"))
    );
}

#[tokio::test]
async fn done_undo_of_lines_changed_since_says_so() {
    let (mut desk, left) = done().await;
    desk.put("f", &ACCEPTED.replace("two", "zwei"));
    desk.undo().unwrap();
    let proposal = desk.until(left.id, "told", |it| it.notice.is_some()).await;
    assert_eq!(states(&proposal), [HunkState::Accepted; 2]);
    assert_eq!(desk.on_disk("f"), ACCEPTED.replace("two", "zwei"));
}

#[tokio::test]
async fn done_killed_is_rebuilt_from_the_record_until_the_result_is_stored() {
    let (desk, left) = done().await;
    // Changed since: the record is marked done, so the result stands.
    desk.put("f", "else\n");
    let again = desk.restarted();
    assert_eq!(text_of(&again.recall("s", "c").unwrap()), left.text);
    again.drop_record("s", "c");
    assert_eq!(again.recall("s", "c"), None);
}

// failed and cancelled: nothing has any effect any more

#[derive(Clone, Copy, PartialEq)]
enum Happens {
    Abort,
    Quit,
    BaseMoved,
    WriteFailed,
    Undo,
    Killed,
}

async fn settled_stays(state: ProposalState, event: Happens) {
    let mut desk = Desk::new();
    desk.put("f", "1\n");
    let call = if state == ProposalState::Failed {
        desk.submit("s", "c", "f", |_| {
            Err(ToolError::new(ErrorClass::NotFoundText, "no match"))
        })
    } else {
        let call = desk.propose("c", "f", "2\n");
        let hunk = desk.open(&call).await.hunks[0].id;
        let note = ReviewAction::Note {
            hunk,
            note: Some("hm".to_owned()),
        };
        desk.act(note);
        call.cancel.cancel();
        call
    };
    let before = desk.state(&call, state).await;
    let Call { id, cancel, result } = call;
    let text = result.await.unwrap().unwrap_err();
    match event {
        Happens::Abort => cancel.cancel(),
        Happens::Quit => desk.gate.cancel(None).await,
        Happens::BaseMoved => {
            desk.put("f", "0\n1\n");
            desk.gate.file_changed(&desk.path("f"));
        }
        Happens::WriteFailed => desk.editor.troubles.lock().push(Trouble::Failed),
        Happens::Undo => assert!(desk.undo().is_err()),
        Happens::Killed => assert_eq!(desk.restarted().recall("s", "c"), None),
    }
    // A change of another file goes all the way through; by then the event would have shown.
    desk.put("g", "a\n");
    let other = desk.propose("c2", "g", "b\n");
    desk.open(&other).await;
    desk.gate.cancel(None).await;
    let after = desk.gate.proposal(id).unwrap();
    assert_eq!((after.state, after.version), (state, before.version));
    assert!(desk.editor.commits.lock().is_empty());
    let expected = match state {
        ProposalState::Failed => "no match",
        _ => ABORTED,
    };
    assert_eq!(text.message, expected);
}

macro_rules! nothing_happens {
    ($($name:ident: $state:ident $event:ident;)*) => {
        $(#[tokio::test]
        async fn $name() {
            settled_stays(ProposalState::$state, Happens::$event).await;
        })*
    };
}

nothing_happens! {
    failed_abort: Failed Abort;
    failed_quit: Failed Quit;
    failed_base_moved: Failed BaseMoved;
    failed_write_failed: Failed WriteFailed;
    failed_undo: Failed Undo;
    failed_killed: Failed Killed;
    cancelled_abort: Cancelled Abort;
    cancelled_quit: Cancelled Quit;
    cancelled_base_moved: Cancelled BaseMoved;
    cancelled_write_failed: Cancelled WriteFailed;
    cancelled_undo: Cancelled Undo;
    cancelled_killed: Cancelled Killed;
}
