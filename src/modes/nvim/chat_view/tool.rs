//! A tool call and its result as one block: `edit src/parse.rs  +6 -4  2/3 ok`.

use serde_json::Value as Json;

use super::text::{clip_to, duration, fenced, first_line, terminal_lines};
use super::{Block, Kind, Mark};

/// Most lines of output that are shown; of more, the first and last few.
const OUTPUT_LIMIT: usize = 200;
const OUTPUT_ENDS: usize = 20;
/// Longest command or pattern in a header.
const SUMMARY_LIMIT: usize = 100;

/// Where a call stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Its arguments are still arriving, or it runs.
    #[default]
    Running,
    /// Held back until an earlier change is decided.
    Waits,
    /// A person has to look at it.
    Asks,
    /// Done.
    Ok,
    /// Failed.
    Fail,
    /// A person said no.
    Rejected,
    /// Ended by an abort.
    Aborted,
}

impl State {
    /// Word or sign in the header, and its colours.
    fn word(self) -> (&'static str, &'static str) {
        match self {
            Self::Running => ("…", "PiTime"),
            Self::Waits => ("waits for review", "PiStatusWarn"),
            Self::Asks => ("[?]", "PiStatusAsk"),
            Self::Ok => ("ok", "PiToolOk"),
            Self::Fail => ("fail", "PiToolError"),
            Self::Rejected => ("x rejected", "PiToolError"),
            Self::Aborted => ("! aborted", "PiStatusWarn"),
        }
    }

    /// Whether there is a result.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Running | Self::Waits | Self::Asks)
    }
}

/// What is known of a call.
#[derive(Clone, Debug, Default)]
pub struct ToolBlock {
    /// Tool name.
    pub name: String,
    /// Arguments, as far as they are known.
    pub args: Json,
    /// Where it stands.
    pub state: State,
    /// When it started (Unix ms).
    pub started: Option<i64>,
    /// How long it took.
    pub took_ms: Option<u64>,
    /// Text of the result, or of what is there so far.
    pub output: String,
    /// Details of the result.
    pub details: Option<Json>,
    /// Decided and all hunks of its proposal.
    pub hunks: Option<(usize, usize)>,
    /// One line below the header while a person is needed.
    pub hint: Option<String>,
    /// Whether the chat shows this call's output unfolded when done.
    pub started_by_person: bool,
}

impl ToolBlock {
    /// Puts the result in.
    pub fn finish(&mut self, text: String, details: Option<Json>, is_error: bool) {
        self.state = match (is_error, text.as_str()) {
            (false, _) => State::Ok,
            (true, "Operation aborted") => State::Aborted,
            (true, text) if text.starts_with("The user rejected") => State::Rejected,
            (true, _) => State::Fail,
        };
        self.output = text;
        self.details = details;
        self.hint = None;
    }

    /// Draws the block.
    pub(super) fn block(&self, id: &str, live_lines: usize) -> Block {
        let (lines, marks) = self.lines(live_lines);
        let mut block = Block::new(id, Kind::Tool, lines);
        block.marks = marks;
        block.closed = match self.state {
            State::Ok | State::Rejected | State::Aborted => !self.started_by_person,
            State::Running | State::Waits | State::Asks | State::Fail => false,
        };
        block.running = self.started.filter(|_| self.state == State::Running);
        block.target = self.target();
        block
    }

    fn lines(&self, live_lines: usize) -> (Vec<String>, Vec<Mark>) {
        let mut header = Header::default();
        header.add(&self.name, "PiTool");
        header.add(&self.summary(), "PiToolOutput");
        self.facts(&mut header);
        let (word, group) = self.state.word();
        header.add(word, group);
        let mut lines = vec![header.text];
        let mut marks = header.marks;
        if let Some(hint) = &self.hint {
            marks.push(whole(lines.len(), "PiStatusAsk"));
            lines.push(hint.clone());
        }
        self.body(&mut lines, &mut marks, live_lines);
        (lines, marks)
    }

    fn arg(&self, key: &str) -> Option<&str> {
        self.args.get(key).and_then(Json::as_str)
    }

    fn target(&self) -> Option<(String, usize)> {
        let path = self
            .arg("path")
            .filter(|_| !matches!(self.name.as_str(), "ls" | "find"))?;
        let detail = self.details.as_ref();
        let line = detail
            .and_then(|details| details.get("firstChangedLine"))
            .or_else(|| self.args.get("offset"))
            .and_then(Json::as_u64);
        let line = line.and_then(|line| usize::try_from(line).ok());
        Some((path.to_owned(), line.unwrap_or(1).max(1)))
    }

    fn summary(&self) -> String {
        let path = self.arg("path").unwrap_or_default();
        let text = match self.name.as_str() {
            "read" => {
                let number = |key: &str| self.args.get(key).and_then(Json::as_u64);
                match (number("offset"), number("limit")) {
                    (None, None) => path.to_owned(),
                    (offset, None) => format!("{path} ({}-)", offset.unwrap_or(1)),
                    (offset, Some(limit)) => {
                        let first = offset.unwrap_or(1);
                        format!(
                            "{path} ({first}-{})",
                            first.saturating_add(limit).saturating_sub(1)
                        )
                    }
                }
            }
            "edit" | "write" => path.to_owned(),
            "bash" => first_line(self.arg("command").unwrap_or_default(), SUMMARY_LIMIT),
            "ls" => if path.is_empty() { "." } else { path }.to_owned(),
            "grep" | "find" => {
                let pattern = self.arg("pattern").unwrap_or_default();
                match path {
                    "" => pattern.to_owned(),
                    path => format!("{pattern} in {path}"),
                }
            }
            _ => match &self.args {
                Json::Null => String::new(),
                Json::Object(map) if map.is_empty() => String::new(),
                args => args.to_string(),
            },
        };
        clip_to(&text.replace('\n', " "), SUMMARY_LIMIT)
    }

    fn facts(&self, header: &mut Header) {
        if matches!(self.name.as_str(), "edit" | "write") {
            let (added, removed) = self.changed_lines();
            if added > 0 {
                header.add(&format!("+{added}"), "Added");
            }
            if removed > 0 {
                header.add(&format!("-{removed}"), "Removed");
            }
            if let Some((decided, all)) = self.hunks
                && all > 0
                && (self.state == State::Asks || decided < all)
            {
                header.add(&format!("{decided}/{all}"), "PiTime");
            }
        }
        // Of a change the time is mostly that of the person.
        let change = matches!(self.name.as_str(), "edit" | "write");
        let worth = |ms: &u64| !change && (*ms >= 1_000 || self.name == "bash");
        if let Some(ms) = self.took_ms.filter(worth) {
            header.add(&duration(ms), "PiTime");
        }
        if let Some(code) = self.exit_code() {
            header.add(&format!("exit {code}"), "PiTime");
        }
    }

    fn exit_code(&self) -> Option<i64> {
        if self.name != "bash" || self.state != State::Fail {
            return None;
        }
        let last = self.output.trim_end().lines().last()?;
        last.strip_prefix("Command exited with code ")?.parse().ok()
    }

    /// Lines added and removed, of what was written or (for `write`) of what is proposed.
    fn changed_lines(&self) -> (usize, usize) {
        if let Some(diff) = self.diff() {
            let count = |sign: char| diff.lines().filter(|line| line.starts_with(sign)).count();
            return (count('+'), count('-'));
        }
        let content = self.arg("content").map_or(0, |text| text.lines().count());
        (
            if self.state == State::Rejected {
                0
            } else {
                content
            },
            0,
        )
    }

    fn diff(&self) -> Option<&str> {
        self.details.as_ref()?.get("diff")?.as_str()
    }

    fn body(&self, lines: &mut Vec<String>, marks: &mut Vec<Mark>, live_lines: usize) {
        let failed = matches!(self.state, State::Fail | State::Rejected);
        if let Some(diff) = self.diff().filter(|_| !failed) {
            for line in cut(diff.lines().map(str::to_owned).collect()) {
                let group = match line.chars().next() {
                    Some('+') => "PiReviewAdd",
                    Some('-') => "PiReviewDelete",
                    _ => "PiToolOutput",
                };
                marks.push(whole(lines.len(), group));
                lines.push(line);
            }
            return;
        }
        if self.name == "bash"
            && let Some(command) = self
                .arg("command")
                .filter(|command| command.trim().contains('\n'))
        {
            lines.extend(fenced(super::text::lines(command.trim()), "sh"));
        }
        let output = terminal_lines(&self.output);
        if output.is_empty() {
            return;
        }
        if matches!(self.name.as_str(), "edit" | "write") && self.state == State::Ok {
            return;
        }
        let shown = match self.state {
            State::Running | State::Waits | State::Asks => {
                let hidden = output.len().saturating_sub(live_lines);
                output.into_iter().skip(hidden).collect()
            }
            _ => cut(output),
        };
        lines.extend(fenced(shown, ""));
    }
}

/// Leaves out the middle of long output.
fn cut(lines: Vec<String>) -> Vec<String> {
    if lines.len() <= OUTPUT_LIMIT {
        return lines;
    }
    let hidden = lines.len() - 2 * OUTPUT_ENDS;
    let tail = lines.len() - OUTPUT_ENDS;
    let mut out: Vec<String> = lines.iter().take(OUTPUT_ENDS).cloned().collect();
    out.push(format!("… {hidden} lines, <CR> opens all"));
    out.extend(lines.into_iter().skip(tail));
    out
}

fn whole(line: usize, group: &'static str) -> Mark {
    Mark {
        line,
        start: 0,
        end: None,
        group,
    }
}

/// The first line of a block, made of parts with two blanks between them.
#[derive(Default)]
pub(super) struct Header {
    pub(super) text: String,
    pub(super) marks: Vec<Mark>,
}

impl Header {
    pub(super) fn add(&mut self, part: &str, group: &'static str) {
        if part.is_empty() {
            return;
        }
        if !self.text.is_empty() {
            // The first part is a name and belongs to the second, as `-4` belongs to `+6`.
            let close = self.marks.len() == 1 || group == "Removed";
            let gap = if close { " " } else { "  " };
            self.text.push_str(gap);
        }
        let start = self.text.len();
        self.text.push_str(part);
        self.marks.push(Mark {
            line: 0,
            start,
            end: Some(self.text.len()),
            group,
        });
    }
}
