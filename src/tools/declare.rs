//! What the built-in tools have in common: one declared shape, typed arguments, errors that name the errno.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{ToolEnv, paths};
use crate::agent::{ErrorClass, Sight, Tool, ToolContext, ToolError, ToolOutput};
use crate::ai::ToolDeclaration;
use crate::files::errno::describe;

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

impl BuiltIn {
    /// A tool that looks around: it changes nothing, takes arguments as they come, and needs no guidelines.
    pub(super) fn looking(
        env: Arc<ToolEnv>,
        name: &str,
        description: String,
        schema: &str,
        snippet: &'static str,
        start: StartFn,
    ) -> Self {
        Self {
            env,
            declaration: declaration(name, description, schema, Sampling::Free),
            snippet: Some(snippet),
            guidelines: &[],
            sight: Sight::Sees,
            prepare: |arguments| arguments,
            start,
        }
    }
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

/// What `grep`, `find` and `ls` start from.
pub(super) struct Ground {
    /// The file or directory the optional `path` argument means.
    pub(super) place: PathBuf,
    /// Unsaved buffers by real path.
    pub(super) buffers: Vec<(PathBuf, Arc<[u8]>)>,
    pub(super) cancel: CancellationToken,
}

impl Ground {
    /// The error of an aborted call, once it is one.
    pub(super) fn go_on(&self) -> Result<(), ToolError> {
        match self.cancel.is_cancelled() {
            true => Err(ToolError::aborted()),
            false => Ok(()),
        }
    }
}

/// Finds out where to look and which buffers stand for files there, then looks on a blocking thread.
pub(super) async fn look<T: Send + 'static>(
    env: &ToolEnv,
    cx: &ToolContext,
    path: Option<&str>,
    work: impl FnOnce(&Ground) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let ground = Ground {
        place: paths::resolve(path.unwrap_or("."), &cx.cwd, &env.options.get().home)?,
        buffers: unless_aborted(cx, env.workspace.all_unsaved()).await?,
        cancel: cx.cancel.clone(),
    };
    blocking(cx, move || work(&ground)).await
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
            describe(error)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_was_tried_on_what() {
        let error = std::fs::read("/no/such/file").unwrap_err();
        assert_eq!(
            io_error("read", "x", &error).message,
            "cannot read x: ENOENT: no such file or directory"
        );
    }

    #[test]
    fn limits_are_whole_and_positive() {
        let limits = [None, Some(0.0), Some(-3.0), Some(2.9), Some(1e300)].map(|it| limit(it, 7));
        assert_eq!(limits, [7, 1, 1, 2, usize::MAX]);
    }
}
