//! The recorded cases of the area `resources`, and what they leave open.

mod composition;
mod context_files;
mod layering;
mod locking;
mod prompt;
mod settings;
mod skills;
mod templates;
mod trust;
mod world;

use serde_json::Value;

use crate::conformance::{Outcome, Tally, data_dir};

/// Reads one file of recorded cases.
fn recorded(name: &str) -> Value {
    let path = data_dir().join("resources").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Runs every case of one list through `check`, which says what is wrong.
fn run(area: &str, file: &str, key: &str, mut check: impl FnMut(&Value) -> Outcome) {
    let mut tally = Tally::new(&format!("{area}/{file}#{key}"));
    for (idx, case) in recorded(file)[key].as_array().unwrap().iter().enumerate() {
        let name = case["id"]
            .as_str()
            .map_or_else(|| format!("number {idx}"), str::to_owned);
        tally.case(&name, check(case));
    }
    tally.finish();
}

/// Compares whole values; the text of a failure shows both.
fn same(got: &Value, want: &Value) -> Outcome {
    if got == want {
        return Outcome::Pass;
    }
    Outcome::Fail(format!("got  {got}\nwant {want}"))
}

/// The area that comes later is counted, so that nobody forgets it.
#[test]
fn parts_for_later_are_counted() {
    for key in [
        "config",
        "toolNames",
        "exposure",
        "searchRanking",
        "tokenize",
    ] {
        run("mcp", "mcp.json", key, |_| {
            Outcome::Skipped("MCP is not there yet".to_owned())
        });
    }
}
