//! `find`: paths below a directory that match a glob, ignored files left out, in path order.
//!
//! The semantics are those of the reference's external program: smart case, `.gitignore` also outside repositories,
//! hidden files included, links listed but not followed. Files that so far are only unsaved buffers of the editor are
//! found too, since `read` and `grep` see them.

use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use globset::{GlobBuilder, GlobMatcher};
use ignore::WalkBuilder;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use super::declare::{self, BuiltIn, Ground};
use super::walk::{self, Bound, First, Walk};
use super::{Listing, ToolEnv, Wording};
use crate::agent::{ErrorClass, ToolContext, ToolError, ToolOutput};

const LIMIT: usize = 1000;

pub(super) const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "pattern": {"type": "string", "description": "Glob relative to `path`, such as src/**/*.rs; without a / it is tested against base names at any depth"},
    "path": {"type": "string", "description": "Directory to search; the working directory when left out"},
    "limit": {"type": "number", "description": "How many results at most (default 1000)"}
  },
  "required": ["pattern"]
}"#;

#[derive(Deserialize)]
pub(super) struct Input {
    pattern: String,
    path: Option<String>,
    limit: Option<f64>,
}

/// Makes the tool.
pub(super) fn tool(env: Arc<ToolEnv>) -> BuiltIn {
    let description = "Find files and directories by glob. Gives paths relative to the searched directory, directories \
         with a trailing /, in path order. Leaves out what .gitignore excludes; includes hidden files. A pattern in \
         lower case ignores case. Shows at most 1000 results (or `limit`) and 50KB.";
    BuiltIn::looking(
        env,
        "find",
        description.to_owned(),
        SCHEMA,
        "Find files by glob pattern, respecting .gitignore",
        start,
    )
}

fn start(
    env: Arc<ToolEnv>,
    arguments: Value,
    cx: ToolContext,
) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
    Box::pin(async move {
        let input: Input = declare::decode("find", arguments)?;
        let limit = declare::limit(input.limit, LIMIT);
        let found = declare::look(&env, &cx, input.path.as_deref(), move |ground| {
            Search::new(ground, &input.pattern)?.run(limit)
        });
        Ok(found.await?.render(limit, &WORDING))
    })
}

const WORDING: Wording = Wording {
    empty: "No files found matching pattern",
    things: "results",
    advice: ", or refine pattern",
    detail: "resultLimitReached",
};

struct Search<'a> {
    ground: &'a Ground,
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

impl<'a> Search<'a> {
    fn new(ground: &'a Ground, pattern: &str) -> Result<Self, ToolError> {
        let dir = &ground.place;
        let meta = std::fs::metadata(dir);
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
            ground,
            glob: glob.compile_matcher(),
            subject,
        })
    }

    fn run(&self, limit: usize) -> Result<Listing, ToolError> {
        let bound = Bound::default();
        let first = Mutex::new(First::new(limit));
        let keep = |relative: &Path, is_dir: bool| {
            if self.matches(relative)
                && let Some(line) = line(relative, is_dir)
            {
                first.lock().add(relative.to_owned(), 1, line, &bound);
            }
        };
        let rules = self.rules();
        for (relative, _) in walk::unwritten(self.ground, &rules) {
            keep(&relative, false);
        }
        let mut walk = Walk {
            ground: self.ground,
            rules,
            bound: &bound,
        };
        let trouble = walk.visit(|| {
            |met| {
                let is_dir = met.entry.file_type().is_some_and(|kind| kind.is_dir());
                keep(met.relative, is_dir);
            }
        });
        self.ground.go_on()?;
        let mut lines: Vec<String> = first
            .into_inner()
            .into_files()
            .map(|(_, line)| line)
            .collect();
        let more = lines.len() > limit;
        lines.truncate(limit);
        match trouble {
            // An unreadable folder spoils the answer only when there is no other.
            Some(trouble) if lines.is_empty() => Err(ToolError::new(
                ErrorClass::Io,
                format!("cannot search everything: {trouble}"),
            )),
            _ => Ok(Listing { lines, more }),
        }
    }

    fn rules(&self) -> WalkBuilder {
        let dir = &self.ground.place;
        let in_repository = dir.ancestors().any(|dir| dir.join(".git").exists());
        let mut rules = WalkBuilder::new(dir);
        rules
            .hidden(false)
            .follow_links(false)
            .require_git(in_repository)
            .add_custom_ignore_filename(".fdignore");
        rules
    }

    fn matches(&self, relative: &Path) -> bool {
        match self.subject {
            Subject::Anything => true,
            Subject::Name => relative
                .file_name()
                .is_some_and(|name| self.glob.is_match(name)),
            Subject::Relative => self.glob.is_match(relative),
            Subject::Absolute => self.glob.is_match(self.ground.place.join(relative)),
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
