//! `grep`: lines that match a pattern, by ripgrep's own engine in process, in path order.
//!
//! `grep/search.rs` searches with several threads and hands over what it found file by file in order; [`Report`] here
//! folds that into text, limits and notices. Unsaved buffers of the editor are searched instead of their files, also
//! those whose files are not there yet.

mod engine;
mod search;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::declare::{self, BuiltIn};
use super::{ToolEnv, truncate};
use crate::agent::{ToolContext, ToolError, ToolOutput};
use engine::{Event, EventKind};
use search::Query;

const LIMIT: usize = 100;

pub(super) const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "pattern": {"type": "string", "description": "Regular expression (Rust regex syntax), or plain text with `literal`"},
    "path": {"type": "string", "description": "File or directory to search; the working directory when left out"},
    "glob": {"type": "string", "description": "Only files that match, relative to `path`, such as *.rs or src/**/*.ts; without a / it is tested against base names at any depth; a leading ! excludes"},
    "ignoreCase": {"type": "boolean", "description": "Ignore case (default false)"},
    "literal": {"type": "boolean", "description": "Take the pattern as plain text (default false)"},
    "context": {"type": "number", "description": "Lines shown before and after each match (default 0)"},
    "limit": {"type": "number", "description": "How many matches at most (default 100)"}
  },
  "required": ["pattern"]
}"#;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: Option<bool>,
    literal: Option<bool>,
    context: Option<f64>,
    limit: Option<f64>,
}

/// Makes the tool.
pub(super) fn tool(env: Arc<ToolEnv>) -> BuiltIn {
    let description = "Search the content of files. Gives matching lines as path:line: text (context lines as \
         path-line- text), in path order. Leaves out what .gitignore excludes and binary files; includes hidden files. \
         Shows at most 100 matches (or `limit`) and 50KB; lines are cut at 500 characters.";
    BuiltIn::looking(
        env,
        "grep",
        description.to_owned(),
        SCHEMA,
        "Search file contents for a pattern, respecting .gitignore",
        start,
    )
}

fn start(
    env: Arc<ToolEnv>,
    arguments: Value,
    cx: ToolContext,
) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
    Box::pin(async move {
        let input: Input = declare::decode("grep", arguments)?;
        let query = Query {
            pattern: input.pattern,
            glob: input.glob,
            ignore_case: input.ignore_case.unwrap_or(false),
            literal: input.literal.unwrap_or(false),
            context: input
                .context
                .map_or(0, |lines| lines.floor().max(0.0) as usize),
            limit: declare::limit(input.limit, LIMIT),
        };
        let report = declare::look(&env, &cx, input.path.as_deref(), move |ground| {
            let mut report = Report::new(query.limit, query.context);
            search::run(&query, ground, &mut report)?;
            Ok(report)
        });
        Ok(report.await?.render())
    })
}

/// Whether the search should go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Continue,
    Stop,
}

/// Folds events, which come file by file in order, into what is shown.
struct Report {
    limit: usize,
    context: u64,
    matches: usize,
    /// File and last line that the context of the last counted match reaches, once the limit is reached.
    last: Option<(usize, u64)>,
    limit_exceeded: bool,
    lines_cut: bool,
    text: String,
    totals: truncate::Totals,
}

impl Report {
    fn new(limit: usize, context: usize) -> Self {
        Self {
            limit,
            context: context as u64,
            matches: 0,
            last: None,
            limit_exceeded: false,
            lines_cut: false,
            text: String::new(),
            totals: truncate::Totals { lines: 0, bytes: 0 },
        }
    }

    /// Takes the next event; `file` is its position in path order.
    fn take(&mut self, file: usize, name: &str, event: &Event) -> Flow {
        let Some((last_file, last_line)) = self.last else {
            if event.kind == EventKind::Match {
                self.matches += 1;
                if self.matches == self.limit {
                    self.last = Some((file, event.line.saturating_add(self.context)));
                }
            }
            self.show(name, event, event.kind);
            return Flow::Continue;
        };
        // One more match only raises the flag; inside the trailing context it is shown as a context line.
        self.limit_exceeded |= event.kind == EventKind::Match;
        let in_context = file == last_file && event.line <= last_line;
        if in_context {
            self.show(name, event, EventKind::Context);
            return Flow::Continue;
        }
        match self.limit_exceeded {
            true => Flow::Stop,
            false => Flow::Continue,
        }
    }

    fn show(&mut self, name: &str, event: &Event, kind: EventKind) {
        let line = match kind {
            EventKind::Match => format!("{name}:{}: {}", event.line, event.text),
            EventKind::Context => format!("{name}-{}- {}", event.line, event.text),
        };
        self.lines_cut |= event.cut;
        let joint = usize::from(self.totals.lines > 0);
        // One line past the limit is enough to cut there; the rest is only counted.
        if self.text.len() <= truncate::MAX_BYTES {
            if joint > 0 {
                self.text.push('\n');
            }
            self.text.push_str(&line);
        }
        self.totals.lines += 1;
        self.totals.bytes += line.len() + joint;
    }

    fn render(self) -> ToolOutput {
        if self.matches == 0 {
            return ToolOutput::text("No matches found");
        }
        let cut = truncate::head_of(
            &self.text,
            self.totals,
            truncate::NO_LINE_LIMIT,
            truncate::MAX_BYTES,
        );
        let mut details = Map::new();
        let mut before = Vec::new();
        let mut after = Vec::new();
        if self.limit_exceeded {
            let (limit, twice) = (self.limit, self.limit.saturating_mul(2));
            before.push(format!(
                "{limit} matches limit reached. Use limit={twice} for more, or refine pattern"
            ));
            details.insert("matchLimitReached".to_owned(), json!(limit));
        }
        if self.lines_cut {
            let units = truncate::MAX_LINE_UNITS;
            after.push(format!(
                "Some lines truncated to {units} chars. Use read tool to see full lines"
            ));
        }
        let lines_cut = self.lines_cut;
        let mut output = super::with_notices(cut, before, after, details);
        if lines_cut {
            let details = output.details.get_or_insert_with(|| json!({}));
            if let Some(details) = details.as_object_mut() {
                details.insert("linesTruncated".to_owned(), json!(true));
            }
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, line: u64) -> Event {
        let text = format!("l{line}");
        Event {
            kind,
            line,
            text,
            cut: false,
        }
    }

    #[test]
    fn a_match_in_the_last_context_is_shown_as_context() {
        use EventKind::{Context, Match};
        let mut report = Report::new(1, 2);
        let flows: Vec<Flow> = [(Match, 1), (Match, 2), (Context, 3), (Context, 4)]
            .map(|(kind, line)| report.take(0, "f", &event(kind, line)))
            .to_vec();
        assert_eq!(
            flows,
            [Flow::Continue, Flow::Continue, Flow::Continue, Flow::Stop]
        );
        assert_eq!(report.text, "f:1: l1\nf-2- l2\nf-3- l3");
        assert!(report.limit_exceeded);
    }

    #[test]
    fn the_context_of_a_file_ends_with_the_file() {
        let mut report = Report::new(1, 5);
        report.take(0, "f", &event(EventKind::Match, 1));
        assert_eq!(
            report.take(1, "g", &event(EventKind::Context, 1)),
            Flow::Continue
        );
        assert_eq!(report.take(1, "g", &event(EventKind::Match, 2)), Flow::Stop);
        assert_eq!(report.text, "f:1: l1");
    }
}
