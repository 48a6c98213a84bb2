//! `find`: paths below a directory that match a glob, ignored files left out, in path order.
//!
//! The semantics are those of the reference's external program: smart case, `.gitignore` also outside repositories,
//! hidden files included, links listed but not followed. The walk is in order and stops one past the limit, so the same
//! tree always gives the same answer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use globset::{GlobBuilder, GlobMatcher};
use ignore::WalkBuilder;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::declare::{self, BuiltIn, Sampling, declaration};
use super::{ToolEnv, truncate};
use crate::agent::{ErrorClass, Sight, ToolContext, ToolError, ToolOutput};

const LIMIT: usize = 1000;

const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "pattern": {"type": "string", "description": "Glob relative to `path`, such as src/**/*.rs; without a / it is tested against base names at any depth"},
    "path": {"type": "string", "description": "Directory to search; the working directory when left out"},
    "limit": {"type": "number", "description": "How many results at most (default 1000)"}
  },
  "required": ["pattern"]
}"#;

#[derive(Deserialize)]
struct Input {
    pattern: String,
    path: Option<String>,
    limit: Option<f64>,
}

/// Makes the tool.
pub(super) fn tool(env: Arc<ToolEnv>) -> BuiltIn {
    let description = "Find files and directories by glob. Gives paths relative to the searched directory, directories \
         with a trailing /, in path order. Leaves out what .gitignore excludes; includes hidden files. A pattern in \
         lower case ignores case. Shows at most 1000 results (or `limit`) and 50KB.";
    BuiltIn {
        env,
        declaration: declaration("find", description.to_owned(), SCHEMA, Sampling::Free),
        snippet: Some("Find files by glob pattern, respecting .gitignore"),
        guidelines: &[],
        sight: Sight::Sees,
        prepare: |arguments| arguments,
        start,
    }
}

fn start(
    env: Arc<ToolEnv>,
    arguments: Value,
    cx: ToolContext,
) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
    Box::pin(async move {
        let input: Input = declare::decode("find", arguments)?;
        let dir = declare::place(input.path.as_deref(), &cx, &env)?;
        let limit = declare::limit(input.limit, LIMIT);
        let cancel = cx.cancel.clone();
        let found = declare::blocking(&cx, move || {
            let search = Search::new(dir, &input.pattern)?;
            search.run(limit, &|| cancel.is_cancelled())
        });
        Ok(render(found.await?, limit))
    })
}

struct Search {
    dir: PathBuf,
    glob: GlobMatcher,
    subject: Subject,
}

/// What the glob is tested against.
#[derive(Clone, Copy)]
enum Subject {
    Name,
    Relative,
    Absolute,
    Anything,
}

struct Found {
    paths: Vec<String>,
    more: bool,
}

impl Search {
    fn new(dir: PathBuf, pattern: &str) -> Result<Self, ToolError> {
        let meta = std::fs::metadata(&dir);
        if !meta.is_ok_and(|meta| meta.is_dir()) {
            return Err(ToolError::new(
                ErrorClass::SearchPathInvalid,
                format!("the search path {} is not a directory", dir.display()),
            ));
        }
        let mut pattern = pattern;
        while let Some(rest) = pattern.strip_prefix("./") {
            pattern = rest;
        }
        let subject = match pattern {
            "" => Subject::Anything,
            absolute if absolute.starts_with('/') => Subject::Absolute,
            path if path.contains('/') => Subject::Relative,
            _ => Subject::Name,
        };
        let glob = GlobBuilder::new(pattern)
            .literal_separator(true)
            .backslash_escape(true)
            .case_insensitive(!pattern.chars().any(char::is_uppercase))
            .build()
            .map_err(|error| {
                ToolError::new(
                    ErrorClass::BadPattern,
                    format!("bad glob {pattern:?}: {}", error.kind()),
                )
            })?;
        Ok(Self {
            dir,
            glob: glob.compile_matcher(),
            subject,
        })
    }

    fn run(&self, limit: usize, aborted: &dyn Fn() -> bool) -> Result<Found, ToolError> {
        let mut found = Found {
            paths: Vec::new(),
            more: false,
        };
        let mut trouble = None;
        for entry in self.walk().build() {
            if aborted() {
                return Err(ToolError::aborted());
            }
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    trouble.get_or_insert(error);
                    continue;
                }
            };
            let Ok(relative) = entry.path().strip_prefix(&self.dir) else {
                continue;
            };
            if entry.depth() == 0 || !self.matches(relative) {
                continue;
            }
            let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
            let Some(line) = line(relative, is_dir) else {
                continue;
            };
            if found.paths.len() == limit {
                found.more = true;
                break;
            }
            found.paths.push(line);
        }
        match trouble {
            // An unreadable folder spoils the answer only when there is no other.
            Some(error) if found.paths.is_empty() => Err(ToolError::new(
                ErrorClass::Io,
                format!("cannot search {}: {error}", self.dir.display()),
            )),
            _ => Ok(found),
        }
    }

    fn walk(&self) -> WalkBuilder {
        let in_repository = self.dir.ancestors().any(|dir| dir.join(".git").exists());
        let mut walk = WalkBuilder::new(&self.dir);
        walk.hidden(false)
            .follow_links(false)
            .require_git(in_repository)
            .add_custom_ignore_filename(".fdignore")
            .sort_by_file_name(std::ffi::OsStr::cmp);
        walk
    }

    fn matches(&self, relative: &Path) -> bool {
        match self.subject {
            Subject::Anything => true,
            Subject::Name => relative
                .file_name()
                .is_some_and(|name| self.glob.is_match(name)),
            Subject::Relative => self.glob.is_match(relative),
            Subject::Absolute => self.glob.is_match(self.dir.join(relative)),
        }
    }
}

/// The line of a result; `None` for a name of blanks only.
fn line(relative: &Path, is_dir: bool) -> Option<String> {
    let mut text = relative.to_string_lossy().into_owned();
    if is_dir {
        text.push('/');
    }
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn render(found: Found, limit: usize) -> ToolOutput {
    if found.paths.is_empty() {
        return ToolOutput::text("No files found matching pattern");
    }
    let text = found.paths.join("\n");
    let cut = truncate::head(&text, truncate::NO_LINE_LIMIT, truncate::MAX_BYTES);
    let mut notices = Vec::new();
    let mut details = Map::new();
    if found.more {
        let twice = limit.saturating_mul(2);
        notices.push(format!(
            "{limit} results limit reached. Use limit={twice} for more, or refine pattern"
        ));
        details.insert("resultLimitReached".to_owned(), json!(limit));
    }
    super::with_notices(cut, notices, details)
}
