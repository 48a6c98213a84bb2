//! Every recorded transcript.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::compare::Strictness;
use super::{case, compare};
use crate::conformance::{Outcome, Tally, data_dir};

/// Transcripts at a time: most of them wait most of the time.
const TOGETHER: usize = 4;

/// Its extension is a TypeScript file, which is not run: functions that do the same stand in for it.
const EXTENSION: &str = "extension-ui";

fn cases() -> Vec<(String, Value)> {
    let mut files: Vec<_> = std::fs::read_dir(data_dir().join("rpc"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .collect();
    files.sort();
    let only = std::env::var("PI_NVIM_RPC_CASE").ok();
    files
        .into_iter()
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (
                name,
                serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap(),
            )
        })
        .filter(|(name, _)| {
            only.as_ref()
                .is_none_or(|only| name.contains(only.as_str()))
        })
        .collect()
}

/// Passed, different on purpose, or failed.
fn judge(case: &Value, run: &case::Run) -> Outcome {
    let decided = compare::decided(case);
    let wanted = decided.as_ref().unwrap_or(case);
    let Err(why) = compare::compare(wanted, run, Strictness::Exact) else {
        return if decided.is_some() {
            Outcome::Differs
        } else {
            Outcome::Pass
        };
    };
    match compare::compare(wanted, run, Strictness::OwnWording) {
        Ok(()) if differs_on_purpose(case) => Outcome::Differs,
        Ok(()) => Outcome::Fail(format!("only the wording differs:\n{why}")),
        Err(why) => Outcome::Fail(why),
    }
}

/// Whether the differences file names the case.
fn differs_on_purpose(case: &Value) -> bool {
    let path = data_dir().join("differences/rpc.json");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let name = case["name"].as_str().unwrap();
    text.contains(&format!("-{name}\""))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transcripts() {
    let slots = Arc::new(Semaphore::new(TOGETHER));
    let mut playing = JoinSet::new();
    for (name, case) in cases() {
        let slots = Arc::clone(&slots);
        playing.spawn(async move {
            let _slot = slots.acquire_owned().await.unwrap();
            let title = case["name"].as_str().unwrap().to_owned();
            let outcome = match title.as_str() {
                EXTENSION => match crate::hooks::dialogs::recorded(&case).await {
                    Ok(()) => Outcome::Differs,
                    Err(why) => Outcome::Fail(why),
                },
                _ => judge(&case, &case::play(&case).await),
            };
            (name, outcome)
        });
    }
    let mut outcomes: Vec<(String, Outcome)> = playing.join_all().await;
    outcomes.sort_by(|a, b| a.0.cmp(&b.0));
    let mut tally = Tally::new("rpc/*.json");
    for (name, outcome) in outcomes {
        tally.case(&name, outcome);
    }
    tally.finish();
}
