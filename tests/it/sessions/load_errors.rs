//! Odd files: opened or refused, and whether they were touched.

use base64::Engine as _;
use pi_nvim::session::store::{Session, Start};
use serde_json::{Value, json};

use super::{Place, compare, replace};
use crate::conformance::{Outcome, Tally, data_dir};

fn run(case: &Value) -> Result<(), String> {
    let place = Place::new();
    let path = place.dir.path().join("s.jsonl");
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(case["contentBase64"].as_str().unwrap())
        .unwrap();
    let bytes = replace(&bytes, b"{cwd}", place.cwd().to_str().unwrap().as_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let opened = Session::open(&path, &place.cwd(), Start::default());
    let after = std::fs::read(&path).unwrap();
    let file = match () {
        () if after == bytes => "unchanged",
        () if after == [&bytes[..], b"\n"].concat() => "newline-appended",
        () if bytes.is_empty() && after.starts_with(b"{\"type\":\"session\"") => "header-written",
        () => "changed",
    };
    let actual = match opened {
        Ok(session) => {
            json!({"ok": true, "entryCount": session.len(), "leafId": session.leaf_id(), "file": file})
        }
        Err(error) => {
            let text = error.to_string().replace(path.to_str().unwrap(), "{file}");
            json!({"ok": false, "error": text, "file": file})
        }
    };
    compare(&case["expected"], &actual)
}

#[test]
fn recorded_load_errors() {
    let text = std::fs::read_to_string(data_dir().join("sessions/load-errors.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut tally = Tally::new("sessions/load-errors.json");
    for case in cases {
        let outcome = run(&case).map_or_else(Outcome::Fail, |()| Outcome::Pass);
        tally.case(case["name"].as_str().unwrap(), outcome);
    }
    tally.finish();
}
