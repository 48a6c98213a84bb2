//! Recorded sequences of operations on a session, and the file they leave.

use std::collections::HashMap;
use std::path::PathBuf;

use pi_nvim::ai::{Content, Message};
use pi_nvim::session::store::{CompactionEntry, Session, Start, SummaryEntry};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{Place, cases, compare};
use crate::conformance::{Outcome, Tally};

struct Runner {
    place: Place,
    session: Session,
    names: HashMap<String, String>,
    automatic: usize,
    previous: Option<PathBuf>,
}

impl Runner {
    fn new(start: &str) -> Self {
        let place = Place::new();
        let session = if start.starts_with("new ") {
            Session::create(
                &place.dir.path().join("sessions"),
                &place.cwd(),
                Start::default(),
            )
            .unwrap()
        } else {
            place.open(start)
        };
        Self {
            place,
            session,
            names: HashMap::new(),
            automatic: 0,
            previous: None,
        }
    }

    /// Puts real ids for `$names`.
    fn resolved(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.names.get(text).unwrap_or(text).as_str().into(),
            Value::Array(items) => items.iter().map(|item| self.resolved(item)).collect(),
            other => other.clone(),
        }
    }

    fn exists(&self) -> bool {
        self.session.file().is_some_and(std::path::Path::exists)
    }

    fn perform(&mut self, op: &str, args: &[Value]) -> Result<Value, String> {
        let arg = |at: usize| {
            args.get(at)
                .filter(|value| value.get("$undefined").is_none())
                .cloned()
        };
        let text = |at: usize| {
            arg(at)
                .and_then(|value| value.as_str().map(str::to_owned))
                .unwrap_or_default()
        };
        let session = &mut self.session;
        let id = match op {
            "appendMessage" => session.append_message(&Message::from_value(args[0].clone())),
            "appendModelChange" => session.append_model_change(&text(0), &text(1)),
            "appendThinkingLevelChange" => session.append_thinking_level(&text(0)),
            "appendCustomEntry" => session.append_custom(&text(0), arg(1)),
            "appendCustomMessageEntry" => {
                let content = Content::deserialize(&args[1]).unwrap();
                session.append_custom_message(&text(0), &content, args[2] == true, arg(3))
            }
            "appendSessionInfo" => session.append_session_info(&text(0)),
            "appendLabelChange" => {
                session.append_label(&text(0), arg(1).as_ref().and_then(Value::as_str))
            }
            "appendContextEdit" => session.append_context_edit(&text(0), args[1].clone()),
            "appendCompaction" => session.append_compaction(CompactionEntry {
                summary: text(0),
                first_kept: arg(1).and_then(|value| value.as_str().map(str::to_owned)),
                tokens_before: args[2].as_u64().unwrap(),
                details: arg(3),
                from_hook: arg(4).and_then(|value| value.as_bool()),
                usage: arg(5).map(|value| serde_json::from_value(value).unwrap()),
            }),
            "appendUsage" => {
                let usage = serde_json::from_value(args[3].clone()).unwrap();
                let note = arg(4).and_then(|value| value.as_str().map(str::to_owned));
                session.append_usage(&text(0), (&text(1), &text(2)), usage, note.as_deref())
            }
            "branchWithSummary" => {
                let target = arg(0).and_then(|value| value.as_str().map(str::to_owned));
                let summary = SummaryEntry {
                    summary: text(1),
                    details: arg(2),
                    from_hook: arg(3).and_then(|value| value.as_bool()),
                    usage: arg(4).map(|value| serde_json::from_value(value).unwrap()),
                };
                session.branch_with_summary(target.as_deref(), summary)
            }
            _ => return self.other(op, &text(0)),
        };
        match id {
            Ok(id) => Ok(json!({"id": id})),
            Err(error) => Err(error.to_string()),
        }
    }

    fn other(&mut self, op: &str, text: &str) -> Result<Value, String> {
        Ok(match op {
            "branch" => {
                self.session
                    .branch(text)
                    .map_err(|error| error.to_string())?;
                json!({"value": null})
            }
            "resetLeaf" => {
                self.session.reset_leaf();
                json!({"value": null})
            }
            "getLeafId" => json!({"value": self.session.leaf_id()}),
            "getLabel" => json!({"value": self.session.label(text).map(|label| &label.text)}),
            "getSessionName" => json!({"value": self.session.name()}),
            "checkFile" => json!({"fileExists": self.exists()}),
            "deleteFile" => {
                std::fs::remove_file(self.session.file().unwrap()).unwrap();
                json!({})
            }
            "reopen" => {
                let file = self.session.file().unwrap().to_owned();
                self.session = Session::open(&file, &self.place.cwd(), Start::default()).unwrap();
                json!({})
            }
            "createBranchedSession" => {
                let old = self.session.file().unwrap().to_owned();
                let fork = self
                    .session
                    .branched(text, Default::default())
                    .map_err(|error| error.to_string())?;
                self.session = fork;
                self.previous = Some(old.clone());
                let file = self.session.file().unwrap();
                let name_matches = file
                    .to_str()
                    .unwrap()
                    .ends_with(&format!("_{}.jsonl", self.session.id()));
                json!({"newFile": file != old, "fileExists": self.exists(), "nameMatches": name_matches})
            }
            "exportJsonl" => {
                let text = self.session.export_jsonl();
                let lines: Value = text
                    .lines()
                    .map(|line| serde_json::from_str::<Value>(line).unwrap())
                    .collect();
                json!({"lines": lines})
            }
            other => panic!("unknown operation {other}"),
        })
    }

    /// Ids, times and paths become the recording's masks.
    fn masked(&self, value: &Value, recorded: &Value) -> Value {
        let mut masks = Masks {
            runner: self,
            ids: HashMap::new(),
        };
        masks.apply(&self.place.masked(value), recorded)
    }

    fn run(&mut self, case: &Value) -> Result<(), String> {
        let mut trouble = Vec::new();
        for step in case["ops"].as_array().unwrap() {
            let args: Vec<Value> = step["args"]
                .as_array()
                .unwrap()
                .iter()
                .map(|arg| self.resolved(arg))
                .collect();
            let op = step["op"].as_str().unwrap();
            let result = self
                .perform(op, &args)
                .unwrap_or_else(|error| json!({"error": error}));
            if let Some(id) = result["id"].as_str() {
                let name = match step["as"].as_str() {
                    Some(name) => format!("${name}"),
                    None => {
                        self.automatic += 1;
                        format!("$e{}", self.automatic)
                    }
                };
                self.names.insert(name, id.to_owned());
            }
            let result = self.masked(&result, &step["result"]);
            if let Err(why) = compare(&step["result"], &result) {
                trouble.push(format!("{op}: {why}"));
            }
        }
        let (lines, ends) = match std::fs::read_to_string(self.session.file().unwrap()) {
            Ok(text) => {
                let read = |line: &str| {
                    serde_json::from_str(line).unwrap_or_else(|_| json!({"$unparsable": line}))
                };
                let lines = text.lines().map(read);
                (lines.collect(), text.ends_with('\n'))
            }
            Err(_) => (Value::Null, true),
        };
        let mut actual =
            json!({"finalLeafId": self.session.leaf_id(), "endsWithNewline": ends, "lines": lines});
        if case["expected"]["lines"].is_null() {
            actual["endsWithNewline"] = case["expected"]["endsWithNewline"].clone();
        }
        let actual = self.masked(&actual, &case["expected"]);
        if let Err(why) = compare(&case["expected"], &actual) {
            trouble.push(why);
        }
        if trouble.is_empty() {
            Ok(())
        } else {
            Err(trouble.join("\n"))
        }
    }
}

struct Masks<'a> {
    runner: &'a Runner,
    /// New ids by mask: the same mask means the same value.
    ids: HashMap<String, String>,
}

impl Masks<'_> {
    fn apply(&mut self, value: &Value, recorded: &Value) -> Value {
        match (value, recorded) {
            (Value::Array(items), Value::Array(masks)) => {
                let mask = |at: usize| masks.get(at).unwrap_or(&Value::Null);
                let items = items.iter().enumerate();
                items.map(|(at, item)| self.apply(item, mask(at))).collect()
            }
            (Value::Object(fields), Value::Object(masks)) => {
                let mut out = serde_json::Map::new();
                for (key, item) in fields {
                    out.insert(
                        key.clone(),
                        self.apply(item, masks.get(key).unwrap_or(&Value::Null)),
                    );
                }
                Value::Object(out)
            }
            (Value::String(text), Value::String(mask)) => self.text(text, mask),
            (Value::String(text), _) => self.text(text, ""),
            (Value::Number(_), Value::String(mask)) if mask == "{ms}" => mask.as_str().into(),
            (other, _) => other.clone(),
        }
    }

    fn text(&mut self, text: &str, mask: &str) -> Value {
        let name = self
            .runner
            .names
            .iter()
            .find(|(_, id)| *id == text)
            .map(|(name, _)| name.clone());
        let known = match mask {
            "{sessionId}" => text == self.runner.session.id() || uuid_like(text),
            "{iso}" => pi_nvim::entry::iso_ms(text).is_some(),
            "{previousFile}" => self
                .runner
                .previous
                .as_deref()
                .is_some_and(|path| path.to_str() == Some(text)),
            _ if mask.starts_with("{newId:") => {
                self.ids
                    .entry(mask.to_owned())
                    .or_insert_with(|| text.to_owned())
                    == text
            }
            _ => false,
        };
        if known {
            return mask.into();
        }
        match name {
            Some(name) => name.into(),
            None => self.errors(text).into(),
        }
    }

    /// Error texts name ids inside.
    fn errors(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (name, id) in &self.runner.names {
            out = out.replace(id, name);
        }
        out
    }
}

fn uuid_like(text: &str) -> bool {
    text.len() == 36 && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

#[test]
fn recorded_operations() {
    let mut tally = Tally::new("sessions/ops/*.json");
    for (name, mut case) in cases("ops") {
        let differs = name.starts_with("20-");
        if differs {
            // Pi leaves a file without header; required is the complete file.
            case["expected"]["lines"] = json!([
                {"type": "session", "version": 3, "id": "{sessionId}", "timestamp": "{iso}", "cwd": "{cwd}"},
                {"type": "message", "id": "$e1", "parentId": null, "timestamp": "{iso}", "message": case["ops"][0]["args"][0]},
                case["expected"]["lines"][0],
            ]);
        }
        let outcome = match Runner::new(case["start"].as_str().unwrap()).run(&case) {
            Ok(()) if differs => Outcome::Differs,
            Ok(()) => Outcome::Pass,
            Err(why) => Outcome::Fail(why),
        };
        tally.case(&name, outcome);
    }
    tally.finish();
}
