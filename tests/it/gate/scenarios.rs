//! What people met elsewhere and must not meet here; the names say what holds.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use pi_nvim::review::{HunkState, ProposalState, ReviewAction, ReviewEvent};

use super::desk::{Desk, numbers, states};

/// Six functions with the same body; `changed` has another.
fn functions(from: usize, changed: usize) -> String {
    (from..7)
        .map(|n| {
            let body = if n == changed { "new" } else { "body" };
            format!("fn f{n}() {{\n    {body}\n}}\n\n")
        })
        .collect()
}

#[tokio::test]
async fn a_hunk_follows_its_own_function_when_another_is_put_on_top() {
    for loaded in [false, true] {
        let mut desk = Desk::new();
        desk.put("f", &functions(1, 9));
        if loaded {
            desk.editor.load(&desk.path("f"));
        }
        let call = desk.propose("c", "f", &functions(1, 4));
        let row = desk.open(&call).await.hunks[0].row;
        desk.put("f", &functions(0, 9));
        if loaded {
            desk.editor.load(&desk.path("f"));
        }
        desk.gate.file_changed(&desk.path("f"));
        desk.until(call.id, "moved", |it| it.hunks[0].row == row + 4)
            .await;
        desk.accept_file(&call);
        assert!(!call.text().await.1);
        assert_eq!(desk.on_disk("f"), functions(0, 4));
    }
}

#[tokio::test]
async fn a_change_of_the_hunks_own_line_is_stale_and_not_overwritten() {
    let mut desk = Desk::new();
    desk.put("f", &functions(1, 9));
    let call = desk.propose("c", "f", &functions(1, 4));
    let hunk = desk.open(&call).await.hunks[0].id;
    // Nobody tells the gate: it finds out at the commit.
    let mine = functions(1, 4).replace("new", "mine");
    desk.put("f", &mine);
    desk.accept(hunk);
    let proposal = desk
        .until(call.id, "stale", |it| states(it) == [HunkState::Stale])
        .await;
    assert_eq!(proposal.state, ProposalState::Open);
    assert!(proposal.notice.as_ref().unwrap().contains("conflict"));
    let accept = ReviewAction::Accept {
        hunks: vec![hunk],
        note: None,
    };
    assert!(desk.gate.act(accept).is_err());
    desk.reject(hunk, Some("file changed while the edit waited"));
    let (text, is_error) = call.text().await;
    assert!(
        is_error && text.ends_with("Reason: file changed while the edit waited"),
        "{text}"
    );
    assert_eq!(desk.on_disk("f"), mine);
}

#[tokio::test]
async fn hunks_of_different_length_land_on_their_own_lines() {
    let old = numbers(30);
    let new = old
        .replace("\n3\n", "\n3a\n3b\n3c\n3d\n")
        .replace("\n12\n", "\n")
        .replace("\n25\n", "\ntwenty-five\n");
    let expected = old
        .replace("\n3\n", "\n3a\n3b\n3c\n3d\n")
        .replace("\n25\n", "\ntwenty-five\n");
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut desk = Desk::new();
        desk.put("f", &old);
        let call = desk.propose("c", "f", &new);
        let proposal = desk.open(&call).await;
        for index in order {
            let hunk = proposal.hunks[index].id;
            if index == 1 {
                desk.reject(hunk, None);
            } else {
                desk.accept(hunk);
            }
        }
        let (text, is_error) = call.text().await;
        assert!(
            !is_error && text.starts_with("Applied 2 of 3 hunks to f."),
            "{text}"
        );
        assert_eq!(desk.on_disk("f"), expected);
    }
}

#[tokio::test]
async fn a_rejected_change_leaves_no_trace_on_disk() {
    let mut desk = Desk::new();
    desk.put("f", "a\n");
    let before = std::fs::metadata(desk.path("f"))
        .unwrap()
        .modified()
        .unwrap();
    let call = desk.propose("c", "f", "b\n");
    let hunk = desk.open(&call).await.hunks[0].id;
    desk.reject(hunk, Some("use tabs"));
    let (text, is_error) = call.text().await;
    assert!(is_error);
    assert_eq!(
        text,
        "The user rejected this change to f; the file is unchanged. Reason: use tabs"
    );
    let after = std::fs::metadata(desk.path("f"))
        .unwrap()
        .modified()
        .unwrap();
    assert_eq!((before, desk.names()), (after, vec!["f".to_owned()]));
}

#[tokio::test]
async fn a_rejected_new_file_leaves_no_folder_and_can_be_proposed_again() {
    let mut desk = Desk::new();
    let first = desk.propose("c1", "a/b/n.txt", "text\n");
    desk.open(&first).await;
    desk.act(ReviewAction::RejectFile {
        proposal: first.id,
        note: None,
    });
    assert!(first.text().await.1);
    assert!(desk.names().is_empty());
    let second = desk.propose("c2", "a/b/n.txt", "text\n");
    desk.open(&second).await;
    desk.accept_file(&second);
    assert!(!second.text().await.1);
    assert_eq!(desk.on_disk("a/b/n.txt"), "text\n");
}

#[tokio::test]
async fn an_empty_new_file_is_reviewed_like_any_other() {
    let mut desk = Desk::new();
    let call = desk.propose("c", "empty", "");
    let proposal = desk.open(&call).await;
    assert_eq!(
        proposal.hunks[0].label.as_deref(),
        Some("creates an empty file")
    );
    assert!(desk.names().is_empty());
    desk.accept_file(&call);
    assert!(!call.text().await.1);
    assert_eq!(desk.on_disk("empty"), "");
}

#[tokio::test]
async fn a_file_that_appeared_meanwhile_is_not_overwritten() {
    for target in ["", "theirs\n"] {
        let mut desk = Desk::new();
        let call = desk.propose("c", "n", target);
        let hunk = desk.open(&call).await.hunks[0].id;
        desk.put("n", "mine\n");
        desk.accept(hunk);
        desk.until(call.id, "stale", |it| states(it) == [HunkState::Stale])
            .await;
        desk.act(ReviewAction::DropStale { proposal: call.id });
        assert!(call.text().await.1);
        assert_eq!(desk.on_disk("n"), "mine\n");
    }
}

#[tokio::test]
async fn a_file_deleted_meanwhile_is_stale() {
    let mut desk = Desk::new();
    desk.put("f", "a\n");
    let call = desk.propose("c", "f", "b\n");
    let hunk = desk.open(&call).await.hunks[0].id;
    std::fs::remove_file(desk.path("f")).unwrap();
    desk.accept(hunk);
    desk.until(call.id, "stale", |it| states(it) == [HunkState::Stale])
        .await;
    assert!(desk.names().is_empty());
}

#[tokio::test]
async fn undoing_a_new_file_removes_it() {
    let mut desk = Desk::new();
    let call = desk.propose("c", "n", "text\n");
    desk.open(&call).await;
    desk.accept_file(&call);
    desk.state(&call, ProposalState::Done).await;
    desk.undo().unwrap();
    desk.until(call.id, "reverted", |it| {
        states(it) == [HunkState::Reverted]
    })
    .await;
    assert!(desk.names().is_empty());
}

#[tokio::test]
async fn no_change_is_no_review() {
    let desk = Desk::new();
    desk.put("f", "a\n");
    let call = desk.propose("c", "f", "a\n");
    assert_eq!(
        call.text().await,
        ("Successfully wrote to f".to_owned(), false)
    );
    assert!(desk.editor.commits.lock().is_empty());
}

#[tokio::test]
async fn unsaved_text_is_the_base_and_survives() {
    let mut desk = Desk::new();
    let path = desk.path("f");
    desk.put("f", "1\n2\n3\n");
    desk.editor.load(&path);
    desk.editor
        .type_text(&path, |bytes| bytes.extend(b"typed\n"));
    let call = desk.replace("c", "f", "2", "two");
    let proposal = desk.open(&call).await;
    assert!(proposal.notice.as_ref().unwrap().contains("unsaved"));
    desk.editor.type_text(&path, |bytes| {
        bytes.splice(0..0, *b"0\n");
    });
    desk.accept_file(&call);
    assert!(!call.text().await.1);
    assert_eq!(desk.on_disk("f"), "0\n1\ntwo\n3\ntyped\n");
}

#[tokio::test]
async fn what_save_hooks_change_is_told() {
    let mut desk = Desk::new();
    desk.put("f", "one\n2\n3\n");
    desk.editor.load(&desk.path("f"));
    *desk.editor.hook.lock() = Some(|bytes| {
        String::from_utf8(bytes)
            .unwrap()
            .replace("one", "ONE")
            .into_bytes()
    });
    let call = desk.replace("c", "f", "3", "three");
    desk.open(&call).await;
    desk.accept_file(&call);
    let (text, is_error) = call.text().await;
    assert!(!is_error);
    assert!(
        text.starts_with("Successfully wrote to f\n\nOn-save hooks changed the file"),
        "{text}"
    );
    assert!(text.contains("-one\n+ONE"), "{text}");
    // What is on disk by the hook's hand is not taken for a revert, and the hunk can still be undone.
    desk.undo().unwrap();
    desk.event(|event| matches!(event, ReviewEvent::FileWritten { by: "undo", .. }))
        .await;
    assert_eq!(desk.on_disk("f"), "ONE\n2\n3\n");
}

#[tokio::test]
async fn a_link_is_kept_and_shows_where_it_leads() {
    let mut desk = Desk::new();
    let outside = desk.outside().join("y");
    std::fs::write(&outside, "v=1\n").unwrap();
    symlink(&outside, desk.path("x")).unwrap();
    let first = desk.replace("c1", "x", "v=1", "v=2");
    let second = desk.replace("c2", "../y", "v=2", "v=3");
    let proposal = desk.open(&first).await;
    assert_eq!(proposal.real_path, outside);
    let notice = proposal.notice.as_ref().unwrap();
    assert!(notice.contains("outside") && notice.contains(outside.to_str().unwrap()));
    desk.accept_file(&first);
    desk.open(&second).await;
    desk.accept_file(&second);
    assert!(!second.text().await.1);
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "v=3\n");
    assert!(
        std::fs::symlink_metadata(desk.path("x"))
            .unwrap()
            .is_symlink()
    );
}

#[tokio::test]
async fn a_read_only_file_asks_once_more() {
    let mut desk = Desk::new();
    desk.put("f", "a\n");
    std::fs::set_permissions(desk.path("f"), std::fs::Permissions::from_mode(0o444)).unwrap();
    let call = desk.propose("c", "f", "b\n");
    let proposal = desk.open(&call).await;
    assert_eq!(proposal.notice.as_deref(), Some("read-only"));
    desk.accept_file(&call);
    desk.until(call.id, "asked", |it| {
        it.notice
            .as_ref()
            .is_some_and(|it| it.contains("write anyway?"))
    })
    .await;
    assert_eq!(desk.on_disk("f"), "a\n");
    desk.act(ReviewAction::Force { proposal: call.id });
    assert!(!call.text().await.1);
    assert_eq!(desk.on_disk("f"), "b\n");
}

#[tokio::test]
async fn accepting_some_lines_splits_the_hunk() {
    let mut desk = Desk::new();
    desk.put("f", "a\nz\n");
    let call = desk.propose("c", "f", "a\n1\n2\n3\nz\n");
    let proposal = desk.open(&call).await;
    assert_eq!((proposal.hunks.len(), proposal.hunks[0].new_start), (1, 1));
    desk.act(ReviewAction::AcceptLines {
        hunk: proposal.hunks[0].id,
        from: 2,
        to: 3,
    });
    let proposal = desk.gate.proposal(call.id).unwrap();
    assert_eq!(
        states(&proposal),
        [HunkState::Pending, HunkState::Accepted, HunkState::Pending]
    );
    desk.act(ReviewAction::RejectFile {
        proposal: call.id,
        note: None,
    });
    assert!(call.text().await.0.starts_with("Applied 1 of 3 hunks"));
    assert_eq!(desk.on_disk("f"), "a\n2\nz\n");
}

#[tokio::test]
async fn text_the_person_edited_is_what_is_written_and_told() {
    let mut desk = Desk::new();
    desk.put("f", &numbers(9));
    let call = desk.propose(
        "c",
        "f",
        &numbers(9).replace("2\n", "two\n").replace("8\n", "eight\n"),
    );
    let proposal = desk.open(&call).await;
    desk.accept(proposal.hunks[0].id);
    let edited = numbers(9).replace("2\n", "two\n").replace("8\n", "VIII\n");
    desk.act(ReviewAction::EditTarget {
        proposal: call.id,
        target: edited.clone().into_bytes(),
    });
    let proposal = desk.gate.proposal(call.id).unwrap();
    assert_eq!(states(&proposal), [HunkState::Accepted, HunkState::Pending]);
    assert!(proposal.hunks[1].edited && !proposal.hunks[0].edited);
    desk.accept_file(&call);
    let (text, is_error) = call.text().await;
    assert!(
        !is_error && text.starts_with("Applied with changes made by the user."),
        "{text}"
    );
    assert!(text.contains("-eight\n+VIII"), "{text}");
    assert_eq!(desk.on_disk("f"), edited);
}

#[tokio::test]
async fn editing_everything_away_is_a_rejection() {
    let mut desk = Desk::new();
    desk.put("f", "a\n");
    let call = desk.propose("c", "f", "b\n");
    desk.open(&call).await;
    desk.act(ReviewAction::EditTarget {
        proposal: call.id,
        target: b"a\n".to_vec(),
    });
    let (text, is_error) = call.text().await;
    assert!(is_error && text.contains("rejected"), "{text}");
    assert_eq!(desk.on_disk("f"), "a\n");
}

#[tokio::test]
async fn accept_all_is_one_undo_and_leaves_waiting_ones_alone() {
    let mut desk = Desk::new();
    for name in ["f", "g"] {
        desk.put(name, "a\nb\nc\nd\n");
    }
    let f = desk.propose("c1", "f", "A\nb\nc\nD\n");
    let g = desk.propose("c2", "g", "A\nb\nc\nd\n");
    let later = desk.replace("c3", "g", "d", "D");
    desk.open(&f).await;
    desk.open(&g).await;
    let line = desk.act(ReviewAction::AcceptAll { session: None });
    assert_eq!(line, "3 hunks in 2 files accepted");
    desk.state(&f, ProposalState::Done).await;
    desk.state(&g, ProposalState::Done).await;
    desk.open(&later).await;
    desk.undo().unwrap();
    for id in [f.id, g.id] {
        desk.until(id, "reverted", |it| {
            states(it).iter().all(|state| *state == HunkState::Reverted)
        })
        .await;
    }
    assert_eq!(desk.on_disk("f"), "a\nb\nc\nd\n");
    assert_eq!(desk.on_disk("g"), "a\nb\nc\nd\n");
}

#[tokio::test]
async fn rejecting_everything_with_a_reason_answers_open_and_waiting_changes_and_commands() {
    let mut desk = Desk::new();
    desk.put("f", "a\nb\n");
    let first = desk.replace("c1", "f", "a", "A");
    let second = desk.replace("c2", "f", "b", "B");
    desk.open(&first).await;
    let request = pi_nvim::review::ApprovalRequest {
        session: "s".to_owned(),
        call_id: "c3".to_owned(),
        tool: "bash".to_owned(),
        command: "make".to_owned(),
    };
    let command = tokio::spawn(desk.gate.approve(request, Default::default()));
    desk.event(|event| matches!(event, ReviewEvent::Approval { .. }))
        .await;
    desk.act(ReviewAction::RejectAll {
        session: Some("s".to_owned()),
        note: Some("use the other file".to_owned()),
    });
    for text in [first.text().await.0, second.text().await.0] {
        assert!(text.ends_with("Reason: use the other file"), "{text}");
    }
    let refused = command.await.unwrap().unwrap_err().message;
    assert!(refused.ends_with("Reason: use the other file"), "{refused}");
    assert_eq!(desk.on_disk("f"), "a\nb\n");
}

#[tokio::test]
async fn three_changes_of_one_file_by_three_spellings_all_arrive() {
    let desk = Desk::with(|config| config.reviewer = pi_nvim::review::gate::Reviewer::AutoAccept);
    desk.put("f", &numbers(100));
    symlink("f", desk.path("l")).unwrap();
    let calls = [
        desk.replace_quietly("c1", "f", "50\n", "FIFTY\n"),
        desk.replace_quietly("c2", "./f", "75\n", "SEV\n"),
        desk.replace_quietly("c3", "l", "90\n", "NIN\n"),
    ];
    for call in calls {
        assert!(!call.await.unwrap().unwrap().is_error);
    }
    let expected = numbers(100)
        .replace("50\n", "FIFTY\n")
        .replace("75\n", "SEV\n")
        .replace("90\n", "NIN\n");
    assert_eq!(desk.on_disk("f"), expected);
}

#[tokio::test]
async fn a_panic_while_planning_fails_that_call_only() {
    let mut desk = Desk::new();
    desk.put("f", "a\n");
    let bad = desk.plan("c1", "f", |_| panic!("a fault in a tool"));
    let good = desk.replace("c2", "f", "a", "b");
    assert!(bad.text().await.1);
    desk.open(&good).await;
    desk.accept_file(&good);
    assert!(!good.text().await.1);
}

#[tokio::test]
async fn a_state_folder_that_cannot_be_written_does_not_stop_the_work() {
    let mut desk = Desk::with(|config| config.state_dir = Some("/dev/null/state".into()));
    desk.put("f", "a\n");
    let call = desk.propose("c", "f", "b\n");
    desk.open(&call).await;
    desk.accept_file(&call);
    assert!(!call.text().await.1);
    assert_eq!(desk.on_disk("f"), "b\n");
}

#[tokio::test]
async fn endings_and_the_last_newline_are_hunks_of_their_own() {
    let mut desk = Desk::new();
    desk.put("f", "a\r\nb\r\nc");
    let call = desk.propose("c", "f", "a\nB\r\nc\n");
    let proposal = desk.open(&call).await;
    let labels: Vec<_> = proposal
        .hunks
        .iter()
        .map(|hunk| hunk.label.as_deref())
        .collect();
    assert_eq!(
        labels,
        [Some("CRLF → LF"), None, Some("adds final newline")]
    );
    desk.accept(proposal.hunks[1].id);
    desk.act(ReviewAction::RejectFile {
        proposal: call.id,
        note: None,
    });
    call.text().await;
    assert_eq!(desk.on_disk("f"), "a\r\nB\r\nc");
}

#[tokio::test]
async fn a_call_whose_future_is_dropped_is_cancelled() {
    let mut desk = Desk::new();
    desk.put("f", "a\n");
    let call = desk.propose("c", "f", "b\n");
    desk.open(&call).await;
    call.result.abort();
    desk.until(call.id, "cancelled", |it| {
        it.state == ProposalState::Cancelled
    })
    .await;
    let next = desk.propose("c2", "f", "c\n");
    desk.open(&next).await;
}

#[tokio::test]
async fn what_calls_changed_is_put_back_by_review_also_after_a_restart() {
    let mut desk = Desk::new();
    desk.put("f", &numbers(10));
    for (call_id, name, old, new) in [
        ("c1", "f", "2\n", "two\n"),
        ("c2", "f", "8\n", "eight\n"),
        ("c3", "f", "two\n", "TWO\n"),
    ] {
        let call = desk.replace(call_id, name, old, new);
        desk.open(&call).await;
        desk.accept_file(&call);
        assert!(!call.text().await.1);
    }
    let call = desk.propose("c4", "n", "new\n");
    desk.open(&call).await;
    desk.accept_file(&call);
    assert!(!call.text().await.1);
    // Mine since: a line on top, and one of theirs.
    let mine = format!("0\n{}", desk.on_disk("f").replace("eight", "acht"));
    desk.put("f", &mine);
    desk.gate = desk.restarted();
    desk.events = desk.gate.subscribe();
    desk.gate
        .set_reviewer(pi_nvim::review::gate::Reviewer::Person);
    assert_eq!(desk.gate.changes("s").len(), 4);
    let calls = ["c1", "c2", "c3", "c4"].map(str::to_owned);
    let line = desk.gate.restore("s", &calls).await.unwrap();
    assert_eq!(
        line,
        "2 files to restore, shown as a review; changed since and left alone: 1 place in f"
    );
    assert_eq!(
        desk.on_disk("f"),
        mine,
        "nothing is written before the review"
    );
    let open: Vec<_> = desk.gate.proposals(None).iter().map(|it| it.id).collect();
    // Waiting for the one proposal must not eat the note about the other.
    let notes = desk.gate.subscribe();
    desk.act(ReviewAction::AcceptAll { session: None });
    for id in open {
        desk.until(id, "restored", |it| it.state == ProposalState::Done)
            .await;
    }
    desk.events = notes;
    for _ in 0..2 {
        desk.event(|event| matches!(event, ReviewEvent::ModelNote { .. }))
            .await;
    }
    assert_eq!(
        desk.on_disk("f"),
        format!("0\n{}", numbers(10).replace("8", "acht"))
    );
    assert_eq!(desk.names(), ["f"]);
    assert!(desk.gate.restore("s", &["other".to_owned()]).await.is_err());
}

#[tokio::test]
async fn putting_back_what_was_written_unasked_leaves_one_thing_to_decide() {
    let mut desk = Desk::new();
    desk.put("f", "1\n2\n3\n");
    desk.act(ReviewAction::SetMode {
        mode: pi_nvim::review::ReviewMode::Auto,
    });
    let call = desk.replace("c1", "f", "2\n", "two\n");
    let written = call.id;
    assert!(!call.text().await.1);
    let shown = |desk: &Desk| desk.gate.proposal(written).is_some_and(|it| it.unreviewed);
    assert!(shown(&desk));
    let line = desk.gate.restore("s", &["c1".to_owned()]).await.unwrap();
    assert_eq!(line, "1 file to restore, shown as a review");
    assert!(!shown(&desk), "it is part of the review");
    let open = desk.gate.proposals(None).pop().unwrap();
    desk.accept(open.hunks[0].id);
    desk.event(|event| matches!(event, ReviewEvent::Said { line } if line == "restored f"))
        .await;
    assert_eq!(desk.on_disk("f"), "1\n2\n3\n");
    desk.undo().unwrap();
    desk.until(open.id, "reverted", |it| {
        it.hunks[0].state == HunkState::Reverted
    })
    .await;
    assert_eq!(desk.on_disk("f"), "1\ntwo\n3\n");
}
