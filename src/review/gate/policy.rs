//! When a person is asked: mode, rules, grants.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

use super::super::{GrantScope, ReviewMode};
use super::{Reviewer, State};

/// A rule before the mode.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Which files it is for.
    pub scope: RuleScope,
    /// How their changes are treated.
    pub mode: ReviewMode,
}

/// Which files a rule is for.
#[derive(Clone, Debug)]
pub enum RuleScope {
    /// Paths, relative to the project, that match.
    Glob(GlobMatcher),
    /// Everything outside the project.
    OutsideCwd,
}

impl Rule {
    /// A rule for a glob; one without `/` is for names at any depth.
    ///
    /// # Errors
    /// One line saying what is wrong with the glob.
    pub fn glob(glob: &str, mode: ReviewMode) -> Result<Self, String> {
        let pattern = if glob.contains('/') {
            glob.to_owned()
        } else {
            format!("**/{glob}")
        };
        let matcher = GlobBuilder::new(&pattern)
            .literal_separator(true)
            .build()
            .map_err(|error| format!("review rule `{glob}`: {}", error.kind()))?
            .compile_matcher();
        Ok(Self {
            scope: RuleScope::Glob(matcher),
            mode,
        })
    }

    /// A rule for everything outside the project.
    pub fn outside_cwd(mode: ReviewMode) -> Self {
        Self {
            scope: RuleScope::OutsideCwd,
            mode,
        }
    }
}

/// What a person granted in advance.
#[derive(Default)]
pub(super) struct Grants {
    sessions: HashSet<String>,
    runs: HashSet<String>,
    files: HashSet<(String, PathBuf)>,
    /// Leading words of commands, by session.
    pub(super) prefixes: Vec<(String, Vec<String>)>,
}

impl Grants {
    pub(super) fn grant(&mut self, scope: GrantScope, session: &str, path: Option<&Path>) {
        match (scope, path) {
            (GrantScope::Session, _) => {
                self.sessions.insert(session.to_owned());
            }
            (GrantScope::Run, _) => {
                self.runs.insert(session.to_owned());
            }
            (GrantScope::FileForRun, Some(path)) => {
                self.files.insert((session.to_owned(), path.to_owned()));
            }
            (GrantScope::FileForRun, None) => {}
        }
    }

    pub(super) fn covers(&self, session: &str, paths: [&Path; 2]) -> bool {
        self.sessions.contains(session)
            || self.runs.contains(session)
            || paths.iter().any(|path| {
                self.files
                    .contains(&(session.to_owned(), (*path).to_owned()))
            })
    }

    pub(super) fn run_ended(&mut self, session: &str) {
        self.runs.remove(session);
        self.files.retain(|(of, _)| of != session);
    }
}

/// What happens to a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A person decides.
    Ask,
    /// Written at once.
    Write {
        /// Listed as still to be looked at.
        unreviewed: bool,
    },
    /// Refused without asking.
    Refuse,
}

impl State {
    /// Decides how a change is treated, and by which mode.
    pub(super) fn verdict(
        &self,
        cwd: &Path,
        session: &str,
        path: &Path,
        real_path: &Path,
    ) -> (Verdict, ReviewMode) {
        match self.reviewer {
            Reviewer::AutoAccept => return (Verdict::Write { unreviewed: false }, ReviewMode::Off),
            Reviewer::Reject => return (Verdict::Refuse, ReviewMode::Readonly),
            Reviewer::Person => {}
        }
        let outside = !real_path.starts_with(cwd);
        let mode = self.mode_for(cwd, real_path, outside);
        let verdict = match mode {
            ReviewMode::Readonly => Verdict::Refuse,
            ReviewMode::Off => Verdict::Write { unreviewed: false },
            _ if self.grants.covers(session, [path, real_path]) => {
                Verdict::Write { unreviewed: false }
            }
            ReviewMode::Ask => Verdict::Ask,
            ReviewMode::Auto => Verdict::Write { unreviewed: true },
        };
        (verdict, mode)
    }

    fn mode_for(&self, cwd: &Path, real_path: &Path, outside: bool) -> ReviewMode {
        let relative = real_path.strip_prefix(cwd).unwrap_or(real_path);
        let rule = self.rules.iter().find(|rule| match &rule.scope {
            RuleScope::Glob(glob) => glob.is_match(relative),
            RuleScope::OutsideCwd => outside,
        });
        match (rule, self.mode) {
            (Some(rule), _) => rule.mode,
            // Outside the project is asked about in every mode but `off`.
            (None, ReviewMode::Auto) if outside => ReviewMode::Ask,
            (None, mode) => mode,
        }
    }
}

/// The words of a simple command: one that runs a single program, without redirection, substitution or a second line.
/// `None` for anything else.
pub(super) fn simple_words(command: &str) -> Option<Vec<String>> {
    const NOT_SIMPLE: &[char] = &[
        '\n', '\r', ';', '&', '|', '<', '>', '`', '(', ')', '{', '}', '\\',
    ];
    if command.contains(NOT_SIMPLE) {
        return None;
    }
    let words: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_simple_commands_have_words() {
        assert_eq!(
            simple_words("git  status -s").map(|words| words.len()),
            Some(3)
        );
        for command in [
            "", "a; b", "a && b", "a & b", "a | b", "a > f", "a < f", "a $(b)", "a `b`", "a\nb",
            "(a)", "a \\\nb", "{ a; }",
        ] {
            assert_eq!(simple_words(command), None, "{command}");
        }
    }

    #[test]
    fn globs_without_a_slash_match_names_at_any_depth() {
        let rule = Rule::glob("*.lock", ReviewMode::Auto).unwrap();
        let RuleScope::Glob(glob) = &rule.scope else {
            panic!("a glob");
        };
        assert!(glob.is_match("a/b/Cargo.lock") && glob.is_match("x.lock"));
        assert!(!glob.is_match("x.locked"));
        assert!(Rule::glob("a[", ReviewMode::Auto).is_err());
    }
}
