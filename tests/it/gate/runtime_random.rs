//! A whole session in random order: the real runtime, loop, tools, gate and queue, with fakes only at the seams (the
//! model, the person, the editor's buffers, other programs) on paused time.
//!
//! The model edits, writes and reads four files (one is not there at first); the person decides, undoes and lets whole
//! files through; others type and write between; prompts, steering, follow-ups and aborts come at any moment; requests
//! fail and writes fail. Afterwards the session file, the files, the decisions, the notes and what every request contained
//! must tell one story. Lines name who made them, as in the test of the gate alone.
//!
//! 256 cases by default: a whole session takes some 90 ms of a debug build, so they are done in half a minute.
//! A failing case prints its seed; `PI_NVIM_SEED` runs that one alone, `PI_NVIM_CASES` sets how many are run; a million of
//! them (not with nextest, which ends what takes minutes): `PI_NVIM_CASES=1000000 cargo test --test it gate::runtime_random`.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use pi_nvim::ai::providers::scripted::Scripted;
use pi_nvim::files::agent_dir::Places;
use pi_nvim::review::gate::Gate;
use pi_nvim::review::{GrantScope, ReviewAction};
use pi_nvim::session::protocol::{Behavior, Command};
use pi_nvim::session::runtime::{Runtime, RuntimeConfig, SessionChoice};
use pi_nvim::tools::{self, ToolEnv, ToolOptions};
use serde_json::json;
use tokio::task::JoinHandle;

use super::desk::{Desk, Editor, Trouble};
use super::random::{Random, decide, each_seed, open};

mod checks;
mod fakes;

use checks::Told;
use fakes::{Brain, Recorder};

#[test]
fn whatever_happens_the_session_tells_what_was_done() {
    each_seed(case);
}

/// `d` is not there at first.
const FILES: [&str; 4] = ["a", "b", "c", "d"];
const NOTE_TYPE: &str = "pi-nvim.review-note";

struct World {
    desk: Desk,
    files: Arc<Recorder>,
    runtime: Runtime,
    session: String,
    is_over: Arc<AtomicBool>,
    told: Arc<Mutex<Told>>,
    troubles: Arc<Mutex<Vec<String>>>,
    /// Texts of the person that the session has taken.
    taken: Vec<String>,
    started: usize,
    originals: BTreeMap<PathBuf, String>,
}

async fn case(seed: u64) {
    let mut random = Random(seed);
    let mut world = World::new(&mut random);
    let others = [world.person(random.branch()), world.others(random.branch())];
    for step in 0..8 + random.below(16) {
        pause(&mut random, 120).await;
        world.step(step, &mut random).await;
    }
    world.finish(&mut random).await;
    for task in others {
        task.await.unwrap();
    }
    world.last_word().await;
    world.check().await;
    world.runtime.shutdown().await;
}

/// Lets some time pass, never none: work in threads is over when the clock goes on.
async fn pause(random: &mut Random, most: usize) {
    let millis = 1 + random.below(most) as u64;
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

impl World {
    fn new(random: &mut Random) -> Self {
        let files = Arc::new(OnceLock::new());
        let slot = Arc::clone(&files);
        let desk = Desk::with(|config| {
            let editor = Arc::new(Editor::new());
            let recorder = Arc::new(Recorder {
                editor,
                log: Mutex::default(),
                busy: Mutex::default(),
            });
            config.workspace = Arc::clone(&recorder) as _;
            slot.set(recorder).ok();
        });
        let files = Arc::clone(files.get().unwrap());
        let mut originals = BTreeMap::new();
        for name in &FILES[..3] {
            let lines = 3 + random.below(10);
            let text: String = (0..lines).map(|line| format!("L{name}{line}\n")).collect();
            desk.put(name, &text);
            originals.insert(desk.path(name), text);
            if random.chance(50) {
                files.editor.load(&desk.path(name));
            }
        }
        let (is_over, troubles) = (Arc::<AtomicBool>::default(), Arc::default());
        let file = Arc::new(OnceLock::new());
        let mut brain = Brain {
            random: random.branch(),
            files: Arc::clone(&files),
            root: desk.root.clone(),
            left: 0,
            calls: 0,
            is_over: Arc::clone(&is_over),
            session: Arc::clone(&file),
            troubles: Arc::clone(&troubles),
        };
        let model = Scripted::new(move |request| brain.answer(request));
        let runtime = start(&desk, Arc::clone(&files), model);
        let (path, session) = runtime.look(|session| {
            let path = session.file().unwrap().to_owned();
            (path, session.id().to_owned())
        });
        file.set(path).unwrap();
        let told = Arc::new(Mutex::new(Told::default()));
        let mut events = runtime.subscribe(16);
        let hearing = Arc::clone(&told);
        let alarms = Arc::clone(&troubles);
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                let heard = catch_unwind(AssertUnwindSafe(|| hearing.lock().hear(&event)));
                if heard.is_err() {
                    let alarms: &Mutex<Vec<String>> = &alarms;
                    alarms.lock().push(format!("{event:?}"));
                }
            }
        });
        Self {
            desk,
            files,
            runtime,
            session,
            is_over,
            told,
            troubles,
            taken: Vec::new(),
            started: 0,
            originals,
        }
    }

    /// The person at the review, until all is over.
    fn person(&self, mut random: Random) -> JoinHandle<()> {
        let gate = self.desk.gate.clone();
        let session = self.session.clone();
        let is_over = Arc::clone(&self.is_over);
        tokio::spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                pause(&mut random, 40).await;
                match random.below(20) {
                    // Nothing to undo is fine.
                    0..2 => drop(gate.act(ReviewAction::Undo { session: None })),
                    2 if random.chance(20) => grant(&gate, &session, &mut random),
                    _ => decide(&gate, &session, &mut random),
                }
            }
        })
    }

    /// Typing, other programs and failing writes, until all is over.
    fn others(&self, mut random: Random) -> JoinHandle<()> {
        let gate = self.desk.gate.clone();
        let files = Arc::clone(&self.files);
        let is_over = Arc::clone(&self.is_over);
        let root = self.desk.root.clone();
        tokio::spawn(async move {
            for step in 0.. {
                pause(&mut random, 150).await;
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                let path = root.join(FILES[random.below(FILES.len())]);
                match random.below(10) {
                    0 => files.editor.troubles.lock().push(Trouble::Moved),
                    1 => files.editor.troubles.lock().push(Trouble::Failed),
                    2 => gate.file_changed(&path),
                    _ => {
                        if files.insert(&path, &format!("t{step}\n"), &mut random)
                            && random.chance(60)
                        {
                            gate.file_changed(&path);
                        }
                    }
                }
            }
        })
    }

    async fn step(&mut self, step: usize, random: &mut Random) {
        let text = format!("say{step}.");
        let images = Vec::new();
        let command = match random.below(100) {
            0..40 => Command::Prompt {
                text: text.clone(),
                images,
                behavior: *random
                    .pick(&[None, Some(Behavior::Steer), Some(Behavior::FollowUp)])
                    .unwrap(),
            },
            40..55 => Command::Steer {
                text: text.clone(),
                images,
            },
            55..62 => Command::FollowUp {
                text: text.clone(),
                images,
            },
            62..67 => return self.runtime.submit(Command::Abort, step as u64),
            67..72 => return drop(self.runtime.request(Command::Abort).await.unwrap()),
            _ => return,
        };
        // A prompt without a behavior is refused during a run.
        if let Ok(answer) = self.runtime.request(command).await {
            self.taken.push(text);
            self.started += usize::from(answer["disposition"] == "started");
        }
    }

    async fn is_busy(&self) -> bool {
        let state = self.runtime.request(Command::GetState).await.unwrap();
        state["isStreaming"].as_bool().unwrap()
    }

    /// The person decides all that is left, until the session is at rest; what hangs is aborted.
    async fn finish(&mut self, random: &mut Random) {
        self.is_over.store(true, Ordering::SeqCst);
        for round in 0..2_000 {
            if !self.is_busy().await {
                break;
            }
            assert!(round < 1_999, "never at rest: {:?}", open(&self.desk.gate));
            if round == 60 {
                self.runtime.request(Command::Abort).await.unwrap();
            }
            for proposal in open(&self.desk.gate) {
                let id = proposal.id;
                let drop_stale = ReviewAction::DropStale { proposal: id };
                self.desk.gate.act(drop_stale).ok();
                let action = match random.chance(70) {
                    true => ReviewAction::AcceptFile { proposal: id },
                    false => ReviewAction::RejectFile {
                        proposal: id,
                        note: None,
                    },
                };
                self.desk.gate.act(action).ok();
            }
            pause(random, 40).await;
        }
        // What reverts in the background ends too: the work in threads behind it holds the paused clock.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    /// A last prompt, with which all notes and queued texts go to the model.
    async fn last_word(&mut self) {
        let answer = self.runtime.request(Command::prompt("bye.")).await.unwrap();
        assert_eq!(answer["disposition"], "started");
        self.taken.push("bye.".to_owned());
        self.started += 1;
        for _ in 0..2_000 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if !self.is_busy().await {
                return;
            }
        }
        panic!("the last prompt never ended");
    }
}

/// Lets everything through until the run ends, for one file.
fn grant(gate: &Gate, session: &str, random: &mut Random) {
    let open = open(gate);
    let Some(proposal) = random.pick(&open) else {
        return;
    };
    let action = ReviewAction::Grant {
        scope: GrantScope::FileForRun,
        session: session.to_owned(),
        path: Some(proposal.path.clone()),
    };
    gate.act(action).ok();
}

fn start(desk: &Desk, files: Arc<Recorder>, model: Scripted) -> Runtime {
    let outside = desk.outside();
    let agent_dir = outside.join("agent");
    std::fs::create_dir(&agent_dir).unwrap();
    let settings = json!({ "retry": { "baseDelayMs": 20 } });
    std::fs::write(agent_dir.join("settings.json"), settings.to_string()).unwrap();
    let env = ToolEnv {
        workspace: files,
        gate: desk.gate.clone(),
        options: ToolOptions {
            home: outside.clone(),
            tmp_dir: outside.clone(),
            ..ToolOptions::default()
        }
        .into(),
    };
    let record = Arc::new(Scripted::model());
    let mut config = RuntimeConfig::in_memory(&desk.root, Arc::new(model), record);
    config.load.places = Places {
        home: outside.clone(),
        agent_dir,
        session_dir: None,
        state_dir: outside.join("state"),
    };
    config.session = SessionChoice::New;
    config.tools = tools::builtin(env);
    config.active_tools = Some(["read", "edit", "write"].map(str::to_owned).to_vec());
    config.shell = None;
    config.gate = desk.gate.clone();
    Runtime::start(config).unwrap()
}
