//! Model calls, a person's decisions, typing, other programs, aborts and failing writes, in random order over the real
//! gate and queue on paused time. Afterwards files, results told to the model, notes and records must agree.
//!
//! Every line of the files names who put it there: `L` lines were there before, `c<call>h<hunk>` came from a call, `t` was
//! typed, `d` was written by another program, so that whatever is lost or doubled shows. A failing case prints its seed;
//! `PI_NVIM_SEED` runs that one alone, `PI_NVIM_CASES` sets how many are run; a million of them (not with nextest, which
//! ends what takes minutes): `PI_NVIM_CASES=1000000 cargo test --test it gate::random`.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use pi_nvim::agent::{ErrorClass, ToolError};
use pi_nvim::review::gate::Gate;
use pi_nvim::review::{HunkState, Proposal, ProposalId, ProposalState, ReviewAction, ReviewEvent};
use pi_nvim::workspace::queue::MutationQueue;
use tokio::time::sleep;

use super::desk::{Call, Desk, Trouble, text_of};

#[test]
fn whatever_happens_files_results_and_records_agree() {
    each_seed(case);
}

/// Runs the cases that are asked for, each on a paused time of its own. A failing one prints its seed.
pub(super) fn each_seed<F: Future<Output = ()>>(case: impl Fn(u64) -> F) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seeds: Vec<u64> = match number("PI_NVIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("PI_NVIM_CASES").unwrap_or(256)).collect(),
    };
    for seed in seeds {
        let run = catch_unwind(AssertUnwindSafe(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(case(seed));
        }));
        if let Err(panic) = run {
            eprintln!("the failing case has the seed: PI_NVIM_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// A small generator (splitmix64): the same seed gives the same case.
#[derive(Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    /// Lets some time pass.
    pub(super) async fn pause(&mut self) {
        sleep(Duration::from_millis(self.below(40) as u64)).await;
    }

    pub(super) fn branch(&mut self) -> Self {
        Self(self.next())
    }
}

const FILES: [&str; 3] = ["a", "b", "c"];

struct World {
    desk: Desk,
    queue: MutationQueue,
    loaded: Vec<bool>,
    /// Lines that nobody but their owner may remove.
    foreign: BTreeSet<String>,
}

async fn case(seed: u64) {
    let mut random = Random(seed);
    let queue = MutationQueue::default();
    let desk = Desk::with(|config| config.queue = queue.clone());
    let mut loaded = Vec::new();
    for name in FILES {
        let lines = 3 + random.below(10);
        let text: String = (0..lines).map(|line| format!("L{name}{line}\n")).collect();
        desk.put(name, &text);
        loaded.push(random.chance(50));
        if loaded[loaded.len() - 1] {
            desk.editor.load(&desk.path(name));
        }
    }
    let mut world = World {
        desk,
        queue,
        loaded,
        foreign: BTreeSet::new(),
    };
    let mut events = world.desk.gate.subscribe();
    let mut calls = Vec::new();
    let n_steps = 20 + random.below(40);
    for step in 0..n_steps {
        random.pause().await;
        world.step(step, &mut random, &mut calls);
    }
    world.finish(&calls, &mut random).await;
    let mut notes = 0;
    let mut settled: BTreeMap<ProposalId, usize> = BTreeMap::new();
    while let Ok(event) = events.try_recv() {
        match event {
            ReviewEvent::ModelNote { .. } => notes += 1,
            ReviewEvent::Settled { proposal, .. } => *settled.entry(proposal).or_default() += 1,
            _ => {}
        }
    }
    for call in &calls {
        assert_eq!(settled.get(&call.id), Some(&1), "settled once");
    }
    world.check(calls, notes).await;
}

impl World {
    fn step(&mut self, step: usize, random: &mut Random, calls: &mut Vec<Call>) {
        match random.below(100) {
            0..25 => {
                let name = FILES[random.below(FILES.len())];
                calls.push(self.call(calls.len(), name, random.branch()));
            }
            25..60 => decide(&self.desk.gate, "s", random),
            60..75 => self.type_or_write(step, random),
            75..80 => {
                if let Some(call) = random.pick(calls) {
                    call.cancel.cancel();
                }
            }
            80..88 => {
                let trouble = if random.chance(60) {
                    Trouble::Moved
                } else {
                    Trouble::Failed
                };
                self.desk.editor.troubles.lock().push(trouble);
            }
            88..96 => {
                // Nothing to undo is fine.
                self.desk.undo().ok();
            }
            _ => {
                let name = FILES[random.below(FILES.len())];
                self.desk.gate.file_changed(&self.desk.path(name));
            }
        }
    }

    /// A call that changes one to three places of a file, never lines that are not its business.
    fn call(&self, number: usize, name: &str, mut random: Random) -> Call {
        let session = if number.is_multiple_of(3) { "t" } else { "s" };
        self.desk
            .submit(session, &format!("call{number}"), name, move |base| {
                let text = String::from_utf8(base.to_vec()).unwrap();
                let mut lines: Vec<String> =
                    text.split_inclusive('\n').map(str::to_owned).collect();
                let ours: Vec<usize> = (0..lines.len())
                    .filter(|line| lines[*line].starts_with(['L', 'c']))
                    .collect();
                if ours.is_empty() || random.chance(10) {
                    return Err(ToolError::new(ErrorClass::NotFoundText, "no match"));
                }
                for hunk in 0..1 + random.below(3) {
                    let at = ours[random.below(ours.len())];
                    if !lines[at].starts_with(['L', 'c'])
                        || lines[at].contains(&format!("c{number}h"))
                    {
                        continue;
                    }
                    let mine = format!("c{number}h{hunk}\n");
                    lines[at] = match random.below(4) {
                        0 => format!("{mine}{}", lines[at]),
                        1 => format!("{}{mine}", lines[at]),
                        2 => format!("{mine}c{number}h{hunk}+\n"),
                        _ => mine,
                    };
                }
                Ok(lines.concat().into_bytes())
            })
    }

    /// Types into a buffer, or another program changes the file on disk.
    fn type_or_write(&mut self, step: usize, random: &mut Random) {
        let at = random.below(FILES.len());
        let path = self.desk.path(FILES[at]);
        let mut change = |text: &mut Vec<u8>, line: String| {
            let lines: Vec<Vec<u8>> = text
                .split_inclusive(|byte| *byte == b'\n')
                .map(<[u8]>::to_vec)
                .collect();
            let place = random.below(lines.len() + 1);
            let mut lines = lines;
            lines.insert(place, line.into_bytes());
            *text = lines.concat();
        };
        if self.loaded[at] {
            let line = format!("t{step}");
            self.foreign.insert(line.clone());
            self.desk
                .editor
                .type_text(&path, |text| change(text, format!("{line}\n")));
        } else {
            let line = format!("d{step}");
            self.foreign.insert(line.clone());
            let mut text = std::fs::read(&path).unwrap();
            change(&mut text, format!("{line}\n"));
            std::fs::write(&path, text).unwrap();
        }
        if random.chance(60) {
            self.desk.gate.file_changed(&path);
        }
    }

    /// The person decides all that is left, until every call has its result.
    async fn finish(&self, calls: &[Call], random: &mut Random) {
        for _ in 0..2_000 {
            if calls.iter().all(|call| call.result.is_finished()) {
                break;
            }
            for proposal in open(&self.desk.gate) {
                let id = proposal.id;
                self.desk
                    .gate
                    .act(ReviewAction::DropStale { proposal: id })
                    .ok();
                let action = if random.chance(70) {
                    ReviewAction::AcceptFile { proposal: id }
                } else {
                    ReviewAction::RejectFile {
                        proposal: id,
                        note: None,
                    }
                };
                self.desk.gate.act(action).ok();
            }
            random.pause().await;
        }
        // What reverts in the background ends too: the blocking work behind it holds the paused clock.
        sleep(Duration::from_secs(1)).await;
    }

    async fn check(&self, calls: Vec<Call>, notes: usize) {
        assert_eq!(self.queue.files_held(), 0, "the queue is empty");
        let inserted = self.inserted();
        let mut known: BTreeSet<String> = inserted.clone();
        known.extend(self.foreign.iter().cloned());
        let mut reverted = 0;
        for (number, call) in calls.into_iter().enumerate() {
            let proposal = self.desk.gate.proposal(call.id).unwrap();
            reverted += proposal
                .hunks
                .iter()
                .filter(|hunk| hunk.state == HunkState::Reverted)
                .count();
            check_call(number, call, &proposal, &inserted, &self.desk).await;
        }
        assert_eq!(notes, reverted, "one note for each hunk taken back");
        let mut seen = BTreeSet::new();
        for (at, name) in FILES.into_iter().enumerate() {
            let path = self.desk.path(name);
            let text = match self.loaded[at] {
                true => self.desk.editor.buffers.lock()[&path].bytes.clone(),
                false => std::fs::read(&path).unwrap(),
            };
            let text = String::from_utf8(text).unwrap();
            assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
            for line in text.lines() {
                assert!(
                    line.starts_with('L') || known.contains(line),
                    "a line of nobody: {line:?}"
                );
                assert!(seen.insert(line.to_owned()), "{line} stands twice");
            }
        }
        for line in &self.foreign {
            assert!(seen.contains(line), "{line} was lost");
        }
    }

    /// Lines that commits have put into files.
    fn inserted(&self) -> BTreeSet<String> {
        let lines = |text: &[u8]| -> BTreeSet<String> {
            let text = String::from_utf8(text.to_vec()).unwrap();
            text.lines().map(str::to_owned).collect()
        };
        let written = self.desk.editor.written.lock();
        written
            .iter()
            .flat_map(|(before, after)| {
                let (before, after) = (lines(before), lines(after));
                assert!(
                    before
                        .difference(&after)
                        .all(|line| !line.starts_with(['t', 'd'])),
                    "a commit removed what was not its own"
                );
                after.difference(&before).cloned().collect::<Vec<_>>()
            })
            .collect()
    }
}

/// Proposals that wait for the person.
pub(super) fn open(gate: &Gate) -> Vec<Arc<Proposal>> {
    let mut all = gate.proposals(None);
    all.retain(|it| it.state == ProposalState::Open);
    all
}

/// One thing that a person does in a review.
pub(super) fn decide(gate: &Gate, session: &str, random: &mut Random) {
    let open = open(gate);
    let Some(proposal) = random.pick(&open) else {
        return;
    };
    let Some(hunk) = random.pick(&proposal.hunks) else {
        return;
    };
    let note = random.chance(30).then(|| "because".to_owned());
    let id = proposal.id;
    let action = match random.below(20) {
        0..6 => ReviewAction::Accept {
            hunks: vec![hunk.id],
            note,
        },
        6..9 => ReviewAction::Reject {
            hunks: vec![hunk.id],
            note,
        },
        9..12 => ReviewAction::AcceptFile { proposal: id },
        12 => ReviewAction::RejectFile { proposal: id, note },
        13 => ReviewAction::AcceptAll { session: None },
        14 => ReviewAction::DropStale { proposal: id },
        15 => ReviewAction::Note {
            hunk: hunk.id,
            note,
        },
        16 => ReviewAction::Force { proposal: id },
        17 if random.chance(20) => ReviewAction::RejectAll {
            session: Some(session.to_owned()),
            note,
        },
        _ => ReviewAction::AcceptLines {
            hunk: hunk.id,
            from: hunk.new_start,
            to: hunk.new_start + 1,
        },
    };
    // Decided already, in conflict, being written: a person sees the line and goes on.
    gate.act(action).ok();
}

/// What the model was told is what happened, and the record says the same.
async fn check_call(
    number: usize,
    call: Call,
    proposal: &Proposal,
    inserted: &BTreeSet<String>,
    desk: &Desk,
) {
    let session = proposal.session.clone();
    let (text, is_error) = call.text().await;
    let record = desk.gate.recall(&session, &format!("call{number}"));
    let is_applied = |state: HunkState| matches!(state, HunkState::Accepted | HunkState::Reverted);
    let applied = proposal
        .hunks
        .iter()
        .filter(|hunk| is_applied(hunk.state))
        .count();
    let total = proposal.hunks.len();
    let wrote = !is_error && total > 0;
    let mine = format!("c{number}h");
    if wrote {
        let expected = match applied {
            _ if applied == total => format!("Successfully wrote to {}", proposal.path_given),
            _ => format!(
                "Applied {applied} of {total} hunks to {}.",
                proposal.path_given
            ),
        };
        assert!(
            text.starts_with(&expected),
            "told {text:?}, happened {expected:?}"
        );
        assert_eq!(proposal.state, ProposalState::Done);
        let told = record.map(|output| text_of(&output));
        assert_eq!(told.as_ref(), Some(&text), "the record says what was told");
    } else {
        assert_eq!(record, None, "no record of what was not written: {text}");
        assert!(
            !inserted.iter().any(|line| line.starts_with(&mine)),
            "told {text:?}, but it was written"
        );
    }
    for hunk in &proposal.hunks {
        let lines = hunk
            .new
            .iter()
            .map(|line| String::from_utf8_lossy(line).trim_end().to_owned());
        for line in lines.filter(|line| line.starts_with(&mine)) {
            let expected = wrote && is_applied(hunk.state);
            assert_eq!(
                inserted.contains(&line),
                expected,
                "{line} {:?}: {text}",
                hunk.state
            );
        }
    }
}
