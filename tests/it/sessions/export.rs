//! The HTML page: what untrusted text may do in it, and how it behaves in a real browser.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pi_nvim::ai::Message;
use pi_nvim::session::store::{CompactionEntry, Session, Start};
use serde_json::{Value, json};

fn append(session: &mut Session, message: Value) -> String {
    session
        .append_message(&Message::from_value(message))
        .unwrap()
        .to_string()
}

const EVIL: &str = "<script>document.title='pwned'</script> [x](javascript:alert(1)) <img src=x onerror=alert(1)> \"'>&";

/// A session with everything a page shows, on two branches; returns the entry where they part.
pub(super) fn session(dir: &Path) -> Session {
    let mut session =
        Session::create(dir, Path::new("/srv/<b>proj</b>"), Start::default()).unwrap();
    let png = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAFUlEQVR4nGP4z8CAFWEXHbQSDLReAwA9FS/RAX+VbwAAAABJRU5ErkJggg==";
    append(
        &mut session,
        json!({
            "role": "system", "content": "", "sections": {"base": "You are careful.\n</pre><script>1</script>"},
            "toolsAdded": [{"name": "read", "description": "Reads a file", "parameters": {"type": "object"}}],
        }),
    );
    let asked = append(
        &mut session,
        json!({"role": "user", "content": format!("# Make the lexer return errors\n\n{EVIL}\n\n| a | b |\n|---|---|\n| 1 | 2 |")}),
    );
    session.append_label(&asked, Some("<i>base</i>")).unwrap();
    append(
        &mut session,
        json!({
            "role": "assistant", "provider": "p", "model": "m<1>", "stopReason": "toolUse", "usage": {"input": 900, "output": 100},
            "content": [
                {"type": "thinking", "thinking": "Look at the lexer first. </details>"},
                {"type": "text", "text": "I'll look at `lex()` first:\n\n```rust\nfn lex(source: &str) -> Vec<Token> { todo!() }\n```\n\nSee [the docs](https://example.org/a?b=\"c\")."},
                {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "src/lex.rs", "x\"><script>": "</div>"}},
                {"type": "toolCall", "id": "c2", "name": "edit", "arguments": {"path": "src/lex.rs", "newText": "fn lex()\n-> Result<Vec<Token>, LexError>"}},
            ],
        }),
    );
    append(
        &mut session,
        json!({"role": "toolResult", "toolCallId": "c1", "toolName": "read", "isError": false,
        "content": [{"type": "text", "text": EVIL}, {"type": "image", "mimeType": "image/png", "data": png}, {"type": "image", "mimeType": "image/svg+xml", "data": "x"}]}),
    );
    let shared = append(
        &mut session,
        json!({"role": "toolResult", "toolCallId": "c2", "toolName": "edit", "isError": true,
        "content": [{"type": "text", "text": "1 hunk rejected"}], "details": {"patch": "--- a\n+++ b\n-old <b>\n+new"}}),
    );
    append(
        &mut session,
        json!({"role": "assistant", "content": [{"type": "text", "text": "First branch answer."}], "stopReason": "stop"}),
    );
    session.branch(&shared).unwrap();
    append(
        &mut session,
        json!({"role": "user", "content": "Second branch question"}),
    );
    append(
        &mut session,
        json!({"role": "bashExecution", "command": "ls </code>", "output": "a\u{1b}[31mb"}),
    );
    append(
        &mut session,
        json!({"role": "assistant", "content": [], "stopReason": "error", "errorMessage": "overloaded <x>"}),
    );
    session.append_context_edit(&shared, Value::Null).unwrap();
    session
        .append_compaction(CompactionEntry {
            summary: "## Goal\nErrors\n<script>2</script>".into(),
            tokens_before: 5000,
            ..Default::default()
        })
        .unwrap();
    append(
        &mut session,
        json!({"role": "assistant", "content": [{"type": "text", "text": "Second branch answer."}], "stopReason": "stop"}),
    );
    session
}

/// The browser on PATH. Without one the tests that need it say so and do nothing, unless `PI_NVIM_NEED_BROWSER` is set.
pub(super) fn browser() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = std::env::split_paths(&paths)
        .flat_map(|dir| names.map(|name| dir.join(name)))
        .find(|path| path.is_file());
    if found.is_none() {
        assert!(
            std::env::var_os("PI_NVIM_NEED_BROWSER").is_none(),
            "no chromium on PATH, though this run is meant to have one"
        );
        println!("skipped: no chromium on PATH, so the page was not tried in a browser");
    }
    found
}

/// The page as the browser holds it after scripts ran.
fn dom(browser: &Path, page: &Path, hash: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--virtual-time-budget=2000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", home.path().display()))
        .arg(format!("file://{}{hash}", page.display()))
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn text_of_a_session_stays_text() {
    let dir = tempfile::tempdir().unwrap();
    let page = session(dir.path()).export_html();
    assert_eq!(page.matches("<script").count(), 1, "only our own script");
    for bad in [
        "javascript:",
        "onerror=alert(1)>",
        "<b>proj",
        "<i>base",
        "<img src=x",
    ] {
        assert!(
            !page
                .replace("&lt;img src=x onerror=alert(1)&gt;", "")
                .replace("(javascript:alert(1))", "")
                .contains(bad),
            "{bad}"
        );
    }
    assert!(!page.contains('\u{1b}'));
    assert!(page.contains("href=\"https://example.org/a?b=&quot;c&quot;\""));
    for part in [
        "http-equiv=\"Content-Security-Policy\"",
        "default-src 'none'",
        "prefers-color-scheme: dark",
        "(a picture of type image/svg+xml that cannot be shown)",
        "<table>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let outside = page
        .split("href=\"")
        .skip(1)
        .filter(|target| !target.starts_with('#') && !target.starts_with("https://example.org"));
    assert_eq!(outside.count(), 0);
    assert!(
        !page.contains("src=\"http") && !page.contains("url("),
        "nothing is loaded"
    );
}

#[test]
fn the_active_branch_is_shown_and_the_other_hidden() {
    let dir = tempfile::tempdir().unwrap();
    let page = session(dir.path()).export_html();
    let article = |text: &str| {
        let at = page.find(text).unwrap_or_else(|| panic!("{text}"));
        let start = page[..at].rfind("<article").unwrap();
        page[start..].split('>').next().unwrap().to_owned()
    };
    let main = page.find("<main").unwrap();
    assert!(page[main..].contains("First branch answer."));
    assert!(article("<p>First branch answer.").ends_with(" hidden"));
    assert!(!article("<p>Second branch answer.").ends_with(" hidden"));
}

#[test]
fn thousands_of_entries_make_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let mut session = Session::create(dir.path(), Path::new("/p"), Start::default()).unwrap();
    for at in 0..3000 {
        append(
            &mut session,
            json!({"role": if at % 2 == 0 { "user" } else { "assistant" }, "content": [{"type": "text", "text": format!("message {at}")}]}),
        );
    }
    let to = dir.path().join("deep/er/page.html");
    session.export_html_to(&to).unwrap();
    let page = std::fs::read_to_string(&to).unwrap();
    assert_eq!(
        (
            page.matches("<article").count(),
            page.trim_end().ends_with("</html>")
        ),
        (3000, true)
    );
    let Some(browser) = browser() else { return };
    let seen = dom(&browser, &to, "#e2990");
    assert!(seen.contains("class=\"on here\"") && seen.matches("<article").count() == 3000);
}

#[test]
fn a_browser_runs_the_page_and_nothing_else() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let session = session(dir.path());
    let page = dir.path().join("page.html");
    session.export_html_to(&page).unwrap();
    if let Some(keep) = std::env::var_os("PI_NVIM_KEEP_PAGE") {
        std::fs::copy(&page, keep).unwrap();
    }
    let plain = dom(&browser, &page, "");
    assert!(
        plain.contains("<title># Make the lexer return errors"),
        "no script of the session ran"
    );
    let other = session
        .entries()
        .position(|entry| entry.text().contains("First branch answer."))
        .unwrap();
    let moved = dom(&browser, &page, &format!("#e{other}"));
    let hidden = |dom: &str, text: &str| {
        let at = dom.find(text).unwrap();
        let start = dom[..at].rfind("<article").unwrap();
        dom[start..].split('>').next().unwrap().contains("hidden")
    };
    assert!(
        hidden(&plain, "<p>First branch answer.") && !hidden(&plain, "<p>Second branch answer.")
    );
    assert!(
        !hidden(&moved, "<p>First branch answer.") && hidden(&moved, "<p>Second branch answer.")
    );
}
