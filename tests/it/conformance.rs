//! Counting recorded cases: what passed, what differs on purpose, what was lost.
//!
//! A test of an area makes one [`Tally`] per part (a line of `tests/conformance/COUNTS` such as `tools/bash.json`),
//! reports every case, and finishes it. `finish` fails when a case failed, when fewer or more cases were seen than `COUNTS`
//! says, or when a deliberate difference is not listed with its reason in `tests/conformance/differences/<area>.json`
//! (a list of `{"part", "case", "reason"}`; `case` may be a list of names), or is listed but does not differ.
//! Each part leaves `target/conformance/<part>.json`; `make conformance` adds them up.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Outcome of one recorded case.
pub enum Outcome {
    /// As recorded.
    Pass,
    /// Not as recorded, on purpose, and exactly as the differences file says it should be.
    Differs,
    /// Neither; the text says how.
    Fail(String),
    /// Not run (says why); counts as neither passed nor failed and is printed.
    Skipped(String),
}

/// Counts the cases of one part.
pub struct Tally {
    part: String,
    passed: usize,
    differs: BTreeSet<String>,
    failed: Vec<(String, String)>,
    skipped: Vec<(String, String)>,
}

/// Returns the folder of the recorded data.
pub fn data_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

impl Tally {
    /// Starts counting `part`, a name of `COUNTS` (`tools/bash.json`).
    pub fn new(part: &str) -> Self {
        Self {
            part: part.to_owned(),
            passed: 0,
            differs: BTreeSet::new(),
            failed: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// Notes one case.
    pub fn case(&mut self, name: &str, outcome: Outcome) {
        match outcome {
            Outcome::Pass => self.passed += 1,
            Outcome::Differs => {
                self.differs.insert(name.to_owned());
            }
            Outcome::Fail(why) => self.failed.push((name.to_owned(), why)),
            Outcome::Skipped(why) => self.skipped.push((name.to_owned(), why)),
        }
    }

    /// Reports a run of picked cases only; counts and differences are not checked.
    #[track_caller]
    pub fn finish_partial(self) {
        println!(
            "{}: {} passed, {} differ, {} skipped",
            self.part,
            self.passed,
            self.differs.len(),
            self.skipped.len()
        );
        assert!(self.failed.is_empty(), "{:#?}", self.failed);
    }

    /// Checks and reports.
    #[track_caller]
    pub fn finish(self) {
        let area = self.part.split('/').next().unwrap_or_default();
        let mut trouble = String::new();
        for (name, why) in &self.failed {
            let _ = writeln!(trouble, "--- {}: {name}\n{why}", self.part);
        }
        let total = self.passed + self.differs.len() + self.failed.len() + self.skipped.len();
        match expected_count(&self.part) {
            Some(count) if count == total => {}
            other => {
                let _ = writeln!(
                    trouble,
                    "{}: {total} cases seen, COUNTS says {other:?}",
                    self.part
                );
            }
        }
        let listed = listed_differences(area, &self.part);
        for name in self.differs.difference(&listed) {
            let _ = writeln!(trouble, "{}: `{name}` differs but is not listed", self.part);
        }
        for name in listed.difference(&self.differs) {
            let _ = writeln!(
                trouble,
                "{}: `{name}` is listed as a difference but does not differ",
                self.part
            );
        }
        let line = serde_json::json!({
            "part": self.part, "total": total, "passed": self.passed + self.differs.len(),
            "differences": self.differs.len(), "failed": self.failed.len(), "skipped": self.skipped.len(),
        });
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/conformance");
        std::fs::create_dir_all(&dir).unwrap();
        let file = self.part.replace(['/', '*', '#'], "_");
        std::fs::write(dir.join(format!("{file}.json")), line.to_string()).unwrap();
        println!(
            "{}: {} of {total}, {} deliberate differences, {} skipped",
            self.part,
            self.passed + self.differs.len(),
            self.differs.len(),
            self.skipped.len()
        );
        for (name, why) in &self.skipped {
            println!("  skipped {name}: {why}");
        }
        assert!(
            trouble.is_empty(),
            "{} of {total} failed\n{trouble}",
            self.failed.len()
        );
    }
}

fn expected_count(part: &str) -> Option<usize> {
    let counts = std::fs::read_to_string(data_dir().join("COUNTS")).unwrap();
    counts
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .find(|(name, _)| *name == part)
        .and_then(|(_, count)| count.parse().ok())
}

fn listed_differences(area: &str, part: &str) -> BTreeSet<String> {
    let path = data_dir().join(format!("differences/{area}.json"));
    let Ok(text) = std::fs::read_to_string(&path) else {
        return BTreeSet::new();
    };
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut names = BTreeSet::new();
    for row in rows.iter().filter(|row| row["part"] == part) {
        assert!(
            row["reason"]
                .as_str()
                .is_some_and(|reason| !reason.is_empty()),
            "{row} needs a reason"
        );
        match &row["case"] {
            Value::String(name) => {
                names.insert(name.clone());
            }
            Value::Array(list) => {
                names.extend(list.iter().map(|name| name.as_str().unwrap().to_owned()));
            }
            other => panic!("{other} is no case name"),
        }
    }
    names
}
