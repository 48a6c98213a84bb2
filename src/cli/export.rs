//! `--export IN [OUT]`: a session file as a page, or its last branch as JSONL when `OUT` ends so.

use std::path::{Path, PathBuf};

use pi_nvim::files::agent_dir::{Places, resolve_path};
use pi_nvim::session::listing::same_file;
use pi_nvim::session::store::{Session, Start, StoreError};

use super::{Cli, say};

/// Writes the page and says where.
///
/// # Errors
/// One line.
pub(crate) fn run(cli: &Cli, path: &str) -> Result<(), String> {
    let cwd = std::env::current_dir()
        .map_err(|error| format!("the working directory cannot be used: {error}"))?;
    let places = Places::from_env(|name| std::env::var_os(name), &cwd);
    let source = resolve_path(path, &cwd, &places.home);
    let out = cli.messages.first().map(String::as_str);
    let target = out.map(|out| resolve_path(out, &cwd, &places.home));
    if let Some(target) = &target
        && same_file(&source, target)
    {
        return Err(format!(
            "{} is the session itself: export to another path",
            target.display()
        ));
    }
    let written = export(&source, target, &cwd)?;
    let shown = out.map_or_else(|| written.display().to_string(), str::to_owned);
    say::out(&format!("Exported to: {shown}\n"));
    Ok(())
}

/// Writes the file and returns the path: the given one, or a name in the working directory.
fn export(source: &Path, target: Option<PathBuf>, cwd: &Path) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("read {}: {error}", source.display());
    if !source.exists() {
        return Err(format!("File not found: {}", source.display()));
    }
    // A copy is opened: opening may lock the file, end its last line and bring it to the present version.
    let folder = tempfile::tempdir().map_err(failed)?;
    let copy = folder.path().join(source.file_name().unwrap_or_default());
    std::fs::copy(source, &copy).map_err(failed)?;
    if std::fs::metadata(&copy).map_err(failed)?.len() == 0 {
        return Err(format!("{} is no session: it is empty", source.display()));
    }
    let named = |error: StoreError| {
        let text = error.to_string();
        text.replace(&*copy.to_string_lossy(), &source.to_string_lossy())
    };
    let mut session = Session::open(&copy, cwd, Start::default()).map_err(named)?;
    let target = target.unwrap_or_else(|| PathBuf::from(session.html_name()));
    let written = if target.extension().is_some_and(|ext| ext == "jsonl") {
        session.export_jsonl_to(&target)
    } else {
        session.export_html_to(&target)
    };
    written.map_err(|error| error.to_string())?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = concat!(
        r#"{"type":"session","version":3,"id":"s1","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/w"}"#,
        "\n",
        r#"{"type":"message","id":"00000001","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"<b>hi</b>","timestamp":1}}"#,
    );

    #[test]
    fn a_page_is_written_and_the_session_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("s.jsonl");
        std::fs::write(&source, FILE).unwrap();
        let page = dir.path().join("deep/page.html");
        let written = export(&source, Some(page.clone()), dir.path()).unwrap();
        assert_eq!(written, page);
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(
            text.contains("&lt;b&gt;hi") && text.contains("<script"),
            "{text}"
        );
        let lines = dir.path().join("out.jsonl");
        export(&source, Some(lines.clone()), dir.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&lines).unwrap().lines().count(), 2);
        assert_eq!(std::fs::read_to_string(&source).unwrap(), FILE);
    }

    #[test]
    fn what_is_no_session_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("none.jsonl");
        let error = export(&missing, None, dir.path()).unwrap_err();
        assert_eq!(error, format!("File not found: {}", missing.display()));
        for text in ["", "hello\n"] {
            let file = dir.path().join("other.txt");
            std::fs::write(&file, text).unwrap();
            let error = export(&file, None, dir.path()).unwrap_err();
            assert!(error.contains(&*file.to_string_lossy()), "{error}");
        }
    }
}
