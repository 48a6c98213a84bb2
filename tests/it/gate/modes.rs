//! When a person is asked: modes, rules, grants, commands.

use pi_nvim::review::gate::{Reviewer, Rule};
use pi_nvim::review::{
    ApprovalAnswer, ApprovalRequest, GrantScope, HunkState, ProposalState, ReviewAction,
    ReviewEvent, ReviewMode,
};

use super::desk::{Desk, states};

fn desk_in(mode: ReviewMode) -> Desk {
    let desk = Desk::with(|config| config.mode = mode);
    desk.put("f", "a\nb\nc\nd\n");
    desk
}

const NEW: &str = "A\nb\nc\nD\n";

#[tokio::test]
async fn auto_writes_at_once_and_lists_what_nobody_saw() {
    let mut desk = desk_in(ReviewMode::Auto);
    let call = desk.propose("c", "f", NEW);
    let proposal = desk.state(&call, ProposalState::Done).await;
    assert!(proposal.unreviewed);
    let output = call.result.await.unwrap().unwrap();
    assert_eq!(output.details.unwrap()["review"]["mode"], "auto");
    assert_eq!(desk.on_disk("f"), NEW);
    // Accepting marks as seen, rejecting takes back and tells the model.
    desk.accept(proposal.hunks[0].id);
    assert!(desk.gate.proposal(proposal.id).unwrap().unreviewed);
    desk.reject(proposal.hunks[1].id, None);
    desk.until(proposal.id, "reverted", |it| {
        states(it) == [HunkState::Accepted, HunkState::Reverted] && !it.unreviewed
    })
    .await;
    assert_eq!(desk.on_disk("f"), "A\nb\nc\nd\n");
    assert_eq!(desk.note_texts().len(), 1);
}

#[tokio::test]
async fn off_writes_and_lists_nothing_to_look_at() {
    let mut desk = desk_in(ReviewMode::Off);
    let call = desk.propose("c", "f", NEW);
    let proposal = desk.state(&call, ProposalState::Done).await;
    assert!(!proposal.unreviewed);
    assert!(!desk.gate.asks());
    assert_eq!(desk.on_disk("f"), NEW);
}

#[tokio::test]
async fn readonly_refuses_without_asking() {
    let desk = desk_in(ReviewMode::Readonly);
    let (text, is_error) = desk.propose("c", "f", NEW).text().await;
    assert!(is_error && text.contains("f is unchanged"), "{text}");
    assert_eq!(desk.on_disk("f"), "a\nb\nc\nd\n");
}

#[tokio::test]
async fn without_a_person_everything_is_written_or_refused_by_the_same_path() {
    let desk = desk_in(ReviewMode::Ask);
    desk.gate.set_reviewer(Reviewer::AutoAccept);
    assert!(!desk.gate.asks());
    let output = desk.propose("c1", "f", NEW).result.await.unwrap().unwrap();
    assert_eq!(output.details, None);
    assert_eq!(desk.on_disk("f"), NEW);
    assert!(desk.restarted().recall("s", "c1").is_some());
    desk.gate.set_reviewer(Reviewer::Reject);
    assert!(desk.propose("c2", "f", "x\n").text().await.1);
    assert_eq!(desk.on_disk("f"), NEW);
}

#[tokio::test]
async fn the_first_rule_that_matches_wins() {
    let mut desk = Desk::with(|config| {
        config.mode = ReviewMode::Auto;
        config.rules = vec![
            Rule::glob("**/.env*", ReviewMode::Ask).unwrap(),
            Rule::glob("*.lock", ReviewMode::Off).unwrap(),
        ];
    });
    let env = desk.propose("c1", ".env.local", "KEY=1\n");
    desk.open(&env).await;
    let lock = desk.propose("c2", "a.lock", "1\n");
    assert!(!desk.state(&lock, ProposalState::Done).await.unreviewed);
    // Outside the project is asked about in every mode but `off`.
    let outside = desk.propose("c3", "../o.txt", "1\n");
    desk.open(&outside).await;
    desk.gate
        .act(ReviewAction::SetMode {
            mode: ReviewMode::Off,
        })
        .unwrap();
    let free = desk.propose("c4", "../p.txt", "1\n");
    desk.state(&free, ProposalState::Done).await;
}

#[tokio::test]
async fn grants_hold_for_their_scope_and_cover_what_is_open() {
    let mut desk = desk_in(ReviewMode::Ask);
    let grant = |scope, path| ReviewAction::Grant {
        scope,
        session: "s".to_owned(),
        path,
    };
    let first = desk.propose("c1", "f", NEW);
    desk.open(&first).await;
    desk.act(grant(GrantScope::FileForRun, Some(desk.path("f"))));
    desk.state(&first, ProposalState::Done).await;
    let second = desk.propose("c2", "f", "x\n");
    desk.state(&second, ProposalState::Done).await;
    let other = desk.propose("c3", "g", "x\n");
    desk.open(&other).await;
    desk.gate.run_ended("s");
    let third = desk.propose("c4", "f", "y\n");
    desk.open(&third).await;
    desk.act(grant(GrantScope::Session, None));
    desk.state(&third, ProposalState::Done).await;
    desk.state(&other, ProposalState::Done).await;
    desk.gate.run_ended("s");
    let fourth = desk.propose("c5", "g", "y\n");
    desk.state(&fourth, ProposalState::Done).await;
    let elsewhere = desk.submit("t", "c6", "g", |_| Ok(b"z\n".to_vec()));
    desk.open(&elsewhere).await;
}

fn request(command: &str) -> ApprovalRequest {
    ApprovalRequest {
        session: "s".to_owned(),
        call_id: "c".to_owned(),
        tool: "bash".to_owned(),
        command: command.to_owned(),
    }
}

async fn question(desk: &mut Desk) -> u64 {
    let event = desk
        .event(|event| matches!(event, ReviewEvent::Approval { .. }))
        .await;
    match event {
        ReviewEvent::Approval { id, .. } => id,
        _ => unreachable!(),
    }
}

#[tokio::test]
async fn commands_ask_and_a_prefix_covers_simple_commands_only() {
    let mut desk = desk_in(ReviewMode::Ask);
    let ask = |desk: &Desk, command: &str| {
        tokio::spawn(desk.gate.approve(request(command), Default::default()))
    };
    let first = ask(&desk, "git status -s");
    let id = question(&mut desk).await;
    assert_eq!(desk.gate.questions(Some("s")).len(), 1);
    desk.gate.answer(
        id,
        ApprovalAnswer::Prefix {
            prefix: "git status".to_owned(),
        },
    );
    assert!(first.await.unwrap().is_ok());
    assert!(ask(&desk, "git  status").await.unwrap().is_ok());
    for command in [
        "git push",
        "git status; rm x",
        "git statusx",
        "git status > f",
    ] {
        let asked = ask(&desk, command);
        let id = question(&mut desk).await;
        desk.gate.answer(
            id,
            ApprovalAnswer::Refused {
                reason: Some("no".to_owned()),
            },
        );
        let refused = asked.await.unwrap().unwrap_err().message;
        assert!(refused.contains("not run. Reason: no"), "{refused}");
    }
    let once = ask(&desk, "make");
    let id = question(&mut desk).await;
    desk.gate.answer(id, ApprovalAnswer::Once);
    assert!(once.await.unwrap().is_ok());
    let again = ask(&desk, "make");
    question(&mut desk).await;
    desk.gate.cancel(Some("s")).await;
    assert!(again.await.unwrap().is_err());
}

#[tokio::test]
async fn commands_run_without_a_question_in_auto_and_without_a_person() {
    let desk = desk_in(ReviewMode::Auto);
    assert!(
        desk.gate
            .approve(request("rm x"), Default::default())
            .await
            .is_ok()
    );
    let desk = desk_in(ReviewMode::Ask);
    desk.gate.set_reviewer(Reviewer::AutoAccept);
    assert!(
        desk.gate
            .approve(request("rm x"), Default::default())
            .await
            .is_ok()
    );
}
