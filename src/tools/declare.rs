//! What the built-in tools have in common: one declared shape, typed arguments, errors that name the errno.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{ToolEnv, paths};
use crate::agent::{ErrorClass, Sight, Tool, ToolContext, ToolError, ToolOutput};
use crate::ai::ToolDeclaration;

/// Starts a call. Runs when the call's turn in the batch comes, so a place in a queue is taken here; the future works.
pub(super) type StartFn =
    fn(Arc<ToolEnv>, Value, ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>>;

/// A built-in tool as data.
pub(super) struct BuiltIn {
    pub(super) env: Arc<ToolEnv>,
    pub(super) declaration: ToolDeclaration,
    pub(super) snippet: Option<&'static str>,
    pub(super) guidelines: &'static [&'static str],
    pub(super) sight: Sight,
    pub(super) prepare: fn(Value) -> Value,
    pub(super) start: StartFn,
}

impl Tool for BuiltIn {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn prompt_snippet(&self) -> Option<&str> {
        self.snippet
    }

    fn prompt_guidelines(&self) -> &[&str] {
        self.guidelines
    }

    fn prepare_arguments(&self, arguments: Value) -> Value {
        (self.prepare)(arguments)
    }

    fn sight(&self) -> Sight {
        self.sight
    }

    fn start(
        &self,
        arguments: Value,
        cx: ToolContext,
    ) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        if cx.cancel.is_cancelled() {
            return Box::pin(async { Err(ToolError::aborted()) });
        }
        (self.start)(Arc::clone(&self.env), arguments, cx)
    }
}

/// Whether providers are asked to sample arguments strictly by the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampling {
    /// Strictly where the provider can.
    PreferStrict,
    /// As the provider likes.
    Free,
}

/// Makes a declaration. `schema` is a constant of ours; a test of the module parses it.
pub(super) fn declaration(
    name: &str,
    description: String,
    schema: &str,
    sampling: Sampling,
) -> ToolDeclaration {
    ToolDeclaration {
        name: name.to_owned(),
        description,
        parameters: serde_json::from_str(schema).unwrap_or_else(|_| json!({"type": "object"})),
        constrained_sampling: match sampling {
            Sampling::PreferStrict => Some(json!({"type": "json_schema", "strict": "prefer"})),
            Sampling::Free => None,
        },
        ..ToolDeclaration::default()
    }
}

/// Decodes validated arguments. Hooks may have changed them after validation, so this can still fail.
pub(super) fn decode<T: DeserializeOwned>(tool: &str, arguments: Value) -> Result<T, ToolError> {
    serde_json::from_value(arguments).map_err(|error| {
        ToolError::new(
            ErrorClass::Validation,
            format!("Validation failed for tool \"{tool}\":\n  - root: {error}"),
        )
    })
}

/// The search or listing directory an optional `path` argument means.
pub(super) fn place(
    given: Option<&str>,
    cx: &ToolContext,
    env: &ToolEnv,
) -> Result<PathBuf, ToolError> {
    paths::resolve(given.unwrap_or("."), &cx.cwd, &env.options.home)
}

/// A limit argument: absent is `default`, else whole and at least 1.
pub(super) fn limit(given: Option<f64>, default: usize) -> usize {
    given.map_or(default, |limit| limit.floor().max(1.0) as usize)
}

/// Runs blocking work off the async threads; an abort ends the wait at once, the work sees the token and ends soon.
pub(super) async fn blocking<T: Send + 'static>(
    cx: &ToolContext,
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let running = tokio::task::spawn_blocking(work);
    tokio::select! {
        biased;
        // The work only reads: losing its result loses nothing.
        () = cx.cancel.cancelled() => Err(ToolError::aborted()),
        done = running => match done {
            Ok(result) => result,
            Err(error) => Err(ToolError::new(ErrorClass::Other, format!("the tool stopped unexpectedly: {error}"))),
        },
    }
}

/// Waits for something that changes nothing, such as a question to the editor; an abort ends the wait.
pub(super) async fn unless_aborted<T>(
    cx: &ToolContext,
    question: impl Future<Output = T>,
) -> Result<T, ToolError> {
    tokio::select! {
        biased;
        () = cx.cancel.cancelled() => Err(ToolError::aborted()),
        answer = question => Ok(answer),
    }
}

/// An error the model reads: what was tried on what, the cause, the errno name.
pub(super) fn io_error(action: &str, given: impl AsRef<Path>, error: &io::Error) -> ToolError {
    ToolError::new(
        ErrorClass::Io,
        format!(
            "cannot {action} {}: {}",
            given.as_ref().display(),
            cause(error)
        ),
    )
}

/// The cause in words with its errno name: `no such file or directory (ENOENT)`.
pub(super) fn cause(error: &io::Error) -> String {
    let Some(code) = error.raw_os_error() else {
        return error.to_string();
    };
    let text = error.to_string();
    let words = text
        .split(" (os error")
        .next()
        .unwrap_or(&text)
        .to_lowercase();
    match errno_name(code) {
        Some(name) => format!("{words} ({name})"),
        None => format!("{words} (errno {code})"),
    }
}

fn errno_name(code: i32) -> Option<&'static str> {
    use rustix::io::Errno as E;
    let names: [(E, &str); 28] = [
        (E::NOENT, "ENOENT"),
        (E::ACCESS, "EACCES"),
        (E::ISDIR, "EISDIR"),
        (E::NOTDIR, "ENOTDIR"),
        (E::EXIST, "EEXIST"),
        (E::LOOP, "ELOOP"),
        (E::NAMETOOLONG, "ENAMETOOLONG"),
        (E::PERM, "EPERM"),
        (E::NOSPC, "ENOSPC"),
        (E::DQUOT, "EDQUOT"),
        (E::ROFS, "EROFS"),
        (E::BUSY, "EBUSY"),
        (E::MFILE, "EMFILE"),
        (E::NFILE, "ENFILE"),
        (E::INVAL, "EINVAL"),
        (E::IO, "EIO"),
        (E::TXTBSY, "ETXTBSY"),
        (E::XDEV, "EXDEV"),
        (E::FBIG, "EFBIG"),
        (E::TOOBIG, "E2BIG"),
        (E::NOTEMPTY, "ENOTEMPTY"),
        (E::NXIO, "ENXIO"),
        (E::NODEV, "ENODEV"),
        (E::STALE, "ESTALE"),
        (E::TIMEDOUT, "ETIMEDOUT"),
        (E::NOMEM, "ENOMEM"),
        (E::AGAIN, "EAGAIN"),
        (E::NOEXEC, "ENOEXEC"),
    ];
    let found = names.iter().find(|(errno, _)| errno.raw_os_error() == code);
    found.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_name_the_errno() {
        let error = std::fs::read("/no/such/file").unwrap_err();
        assert_eq!(cause(&error), "no such file or directory (ENOENT)");
        assert_eq!(
            io_error("read", "x", &error).message,
            "cannot read x: no such file or directory (ENOENT)"
        );
    }

    #[test]
    fn limits_are_whole_and_positive() {
        let limits = [None, Some(0.0), Some(-3.0), Some(2.9), Some(1e300)].map(|it| limit(it, 7));
        assert_eq!(limits, [7, 1, 1, 2, usize::MAX]);
    }
}
