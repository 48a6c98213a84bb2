//! What a prompt mentions and only this program can say: `@diff`, `@changes`, pictures.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value as Json, json};
use tokio::io::AsyncReadExt as _;

use super::changes;
use super::slot::Slot;
use crate::ai::Block;
use crate::files::errno::describe;
use crate::review::gate::Gate;
use crate::tools::image::sniff;

/// Longest text of one mention.
const LIMIT: usize = 20_000;

/// How long git may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Largest picture that is read; the tools scale it to what the model takes.
const MAX_PICTURE: u64 = 32 * 1024 * 1024;

/// Whether a text mentions a name: `@diff`, between blanks, perhaps with a comma behind it.
pub(super) fn mentions(text: &str, name: &str) -> bool {
    text.split_whitespace().any(|word| {
        let Some(rest) = word.strip_prefix('@').and_then(|it| it.strip_prefix(name)) else {
            return false;
        };
        rest.chars().all(|c| ",.;:!?)".contains(c))
    })
}

/// Whether [`gather`] has something to add.
pub(super) fn has_live(text: &str) -> bool {
    mentions(text, "diff") || mentions(text, "changes")
}

/// Adds what these mentions stand for to the context that came from Neovim.
pub(super) async fn gather(gate: &Gate, slot: &Arc<Slot>, text: &str, context: &Json) -> Json {
    let mut all = context.as_array().cloned().unwrap_or_default();
    if mentions(text, "diff") {
        let found = diff(&slot.cwd()).await;
        all.push(json!({"name": "diff", "text": found}));
    }
    if mentions(text, "changes") {
        let found = changes::mentioned(gate, slot).await;
        let found = found.unwrap_or_else(|line| format!("(not known: {line})"));
        let (kept, _) = cut(found.into_bytes());
        all.push(json!({"name": "changes", "text": kept}));
    }
    Json::Array(all)
}

/// What differs from the last commit, staged or not, and the names of files git does not know.
async fn diff(cwd: &Path) -> String {
    let changed = git(
        cwd,
        &[
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "HEAD",
        ],
    )
    .await;
    let changed = match changed {
        // Before the first commit there is no HEAD.
        Err(line) if line.contains("HEAD") => {
            git(
                cwd,
                &[
                    "diff",
                    "--no-ext-diff",
                    "--no-textconv",
                    "--no-color",
                    "--cached",
                ],
            )
            .await
        }
        other => other,
    };
    let new = git(cwd, &["ls-files", "--others", "--exclude-standard"]).await;
    let new = new.unwrap_or_default();
    match changed {
        Err(line) => format!("(not known: {line})"),
        Ok(changed) if changed.trim().is_empty() && new.trim().is_empty() => {
            "(nothing differs from the last commit)".to_owned()
        }
        Ok(changed) if new.trim().is_empty() => changed,
        Ok(changed) => format!("{changed}\nFiles that git does not know:\n{new}"),
    }
}

/// Runs git in a group of its own, without terminal, pager, prompts or programs that the repository names.
async fn git(cwd: &Path, args: &[&str]) -> Result<String, String> {
    let mut command = tokio::process::Command::new("git");
    command
        .args([
            "--no-pager",
            "-c",
            "core.fsmonitor=false",
            "-c",
            "color.ui=never",
        ])
        .args(args)
        .current_dir(cwd)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "git is not installed".to_owned(),
        _ => format!("git: {}", describe(&error)),
    })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let work = async {
        // Read as far as is shown and no further: dropping the pipe ends a git that has more to say.
        let (out, err) = tokio::join!(read_some(stdout), read_some(stderr));
        let (text, cut) = cut(out);
        if cut {
            return Ok(text);
        }
        let status = child.wait().await.map_err(|error| describe(&error))?;
        match status.success() {
            true => Ok(text),
            false => {
                let err = String::from_utf8_lossy(&err);
                Err(err.lines().next().unwrap_or("git failed").trim().to_owned())
            }
        }
    };
    let ended = tokio::time::timeout(PATIENCE, work).await;
    ended.unwrap_or_else(|_| Err(format!("git took longer than {} s", PATIENCE.as_secs())))
}

async fn read_some(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let most = u64::try_from(LIMIT).unwrap_or(u64::MAX) + 1;
        // What came before an error is all there is.
        pipe.take(most).read_to_end(&mut bytes).await.ok();
    }
    bytes
}

/// Cuts a text to the limit, at a line, and says so; whether it was cut.
fn cut(mut bytes: Vec<u8>) -> (String, bool) {
    if bytes.len() <= LIMIT {
        return (String::from_utf8_lossy(&bytes).into_owned(), false);
    }
    bytes.truncate(LIMIT);
    let stop = bytes.iter().rposition(|byte| *byte == b'\n');
    bytes.truncate(stop.unwrap_or(LIMIT));
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (format!("{text}\n… cut at {LIMIT} bytes"), true)
}

/// Reads the pictures of a prompt; its text stays where it is when one cannot be read.
pub(super) async fn pictures(list: &Json) -> Result<Vec<Block>, String> {
    let paths = list.as_array().into_iter().flatten();
    let paths: Vec<PathBuf> = paths.filter_map(Json::as_str).map(PathBuf::from).collect();
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let read = tokio::task::spawn_blocking(move || {
        paths
            .iter()
            .map(|path| picture(path))
            .collect::<Result<_, _>>()
    });
    read.await
        .map_err(|error| format!("read the pictures: {error}"))?
}

fn picture(path: &Path) -> Result<Block, String> {
    let name = path.display();
    let size = std::fs::metadata(path).map_err(|error| cannot(path, &error))?;
    if size.len() > MAX_PICTURE {
        return Err(format!("attach {name}: it is larger than 32 MB"));
    }
    let bytes = std::fs::read(path).map_err(|error| cannot(path, &error))?;
    let kind = sniff(&bytes)
        .ok_or_else(|| format!("attach {name}: it is no PNG, JPEG, GIF or WebP picture"))?;
    let data = base64::engine::general_purpose::STANDARD.encode(&bytes);
    Ok(Block::image(data, kind.mime()))
}

fn cannot(path: &Path, error: &std::io::Error) -> String {
    format!("attach {}: {}", path.display(), describe(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn a_mention_stands_alone() {
        assert!(mentions("look at @diff, please", "diff"));
        assert!(mentions("@diff", "diff"));
        assert!(!mentions("@different", "diff"));
        assert!(!mentions("a@diff", "diff"));
        assert!(!mentions("@diff/file.rs", "diff"));
    }

    #[test]
    fn long_texts_are_cut_at_a_line() {
        let (text, was_cut) = cut("line\n".repeat(5_000).into_bytes());
        assert!(was_cut);
        assert!(
            text.ends_with("line\n… cut at 20000 bytes"),
            "{}",
            &text[text.len() - 60..]
        );
        assert_eq!(cut(b"short".to_vec()), ("short".to_owned(), false));
    }

    #[tokio::test]
    async fn a_diff_runs_nothing_the_repository_names() {
        let dir = tempfile::tempdir().unwrap();
        let run = |args: &[&str]| {
            let done = std::process::Command::new("git")
                .args(args)
                .current_dir(dir.path())
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .output()
                .unwrap();
            assert!(done.status.success(), "{done:?}");
        };
        run(&["init", "-q"]);
        std::fs::write(dir.path().join("a.txt"), "one\n").unwrap();
        assert!(diff(dir.path()).await.contains("a.txt"));
        run(&["add", "a.txt"]);
        assert!(diff(dir.path()).await.contains("+one"));
        run(&[
            "-c",
            "user.name=n",
            "-c",
            "user.email=e",
            "commit",
            "-qm",
            "first",
        ]);
        assert_eq!(
            diff(dir.path()).await,
            "(nothing differs from the last commit)"
        );
        std::fs::write(dir.path().join("a.txt"), "two\n").unwrap();
        std::fs::write(dir.path().join(".gitattributes"), "*.txt diff=evil\n").unwrap();
        for key in [
            "diff.external",
            "diff.evil.command",
            "diff.evil.textconv",
            "core.fsmonitor",
            "core.pager",
        ] {
            run(&["config", key, "touch ran; cat"]);
        }
        let found = diff(dir.path()).await;
        assert!(found.contains("-one\n+two"), "{found}");
        assert!(!dir.path().join("ran").exists());
        assert!(diff(Path::new("/")).await.starts_with("(not known:"));
    }
}
