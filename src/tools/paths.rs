//! Path arguments: from what a model writes to an absolute path.
//!
//! Entry points: [`resolve`] (every tool) and [`resolve_existing`] (`read`, which also tries the spellings that macOS
//! gives screenshot names). Nothing here follows symlinks and nothing is confined to the working directory.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use percent_encoding::percent_decode_str;
use unicode_normalization::UnicodeNormalization;

use crate::agent::{ErrorClass, ToolError};

/// Returns the absolute, lexically normalised path that the argument `given` means.
///
/// # Errors
/// `BadFileUrl` for a `file://` URL that names another host, hides a slash or cannot be decoded; `InvalidPath` for a
/// NUL byte.
pub fn resolve(given: &str, cwd: &Path, home: &Path) -> Result<PathBuf, ToolError> {
    let plain: String = given
        .chars()
        .map(|c| if is_odd_space(c) { ' ' } else { c })
        .collect();
    let plain = plain.strip_prefix('@').unwrap_or(&plain);
    if plain.contains('\0') {
        return Err(ToolError::new(
            ErrorClass::InvalidPath,
            format!("invalid path {plain:?}: it holds a NUL byte"),
        ));
    }
    let path = expand(plain, home)?;
    Ok(normalise(&absolute_dir(cwd, home)?.join(path)))
}

/// As [`resolve`]; when nothing stands at that path, the first of its usual other spellings that exists.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_existing(given: &str, cwd: &Path, home: &Path) -> Result<PathBuf, ToolError> {
    let path = resolve(given, cwd, home)?;
    if exists(&path) {
        return Ok(path);
    }
    let Some(text) = path.to_str() else {
        return Ok(path);
    };
    let found = spellings(text)
        .into_iter()
        .map(PathBuf::from)
        .find(|it| exists(it));
    Ok(found.unwrap_or(path))
}

fn exists(path: &Path) -> bool {
    std::fs::metadata(path).is_ok()
}

/// The spellings that macOS gives names people type otherwise: a narrow space before AM or PM, decomposed accents, a
/// curly apostrophe, the last two together.
fn spellings(path: &str) -> [String; 4] {
    let decomposed: String = path.nfd().collect();
    let curly = |text: &str| text.replace('\'', "\u{2019}");
    [
        narrow_space_before_am_pm(path),
        decomposed.clone(),
        curly(path),
        curly(&decomposed),
    ]
}

fn narrow_space_before_am_pm(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find(' ') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let mut next = after.chars().skip(1);
        let is_mark = matches!(next.next(), Some('a' | 'A' | 'p' | 'P'))
            && matches!(next.next(), Some('m' | 'M'))
            && next.next() == Some('.');
        out.push(if is_mark { '\u{202f}' } else { ' ' });
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    out.push_str(rest);
    out
}

/// Spaces that look like a plain one; models copy them from file listings and web pages.
fn is_odd_space(c: char) -> bool {
    matches!(
        c,
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}'
    )
}

/// The working directory takes a tilde and a URL as well.
fn absolute_dir(cwd: &Path, home: &Path) -> Result<PathBuf, ToolError> {
    match cwd.to_str() {
        Some(text) if !cwd.is_absolute() => expand(text, home),
        _ => Ok(cwd.to_owned()),
    }
}

fn expand(text: &str, home: &Path) -> Result<PathBuf, ToolError> {
    if text == "~" {
        return Ok(home.to_owned());
    }
    if let Some(rest) = text.strip_prefix("~/") {
        return Ok(home.join(rest.trim_start_matches('/')));
    }
    if let Some(rest) = text.strip_prefix("file://") {
        return file_url(text, rest);
    }
    Ok(PathBuf::from(text))
}

fn file_url(url: &str, rest: &str) -> Result<PathBuf, ToolError> {
    let bad =
        |why: &str| ToolError::new(ErrorClass::BadFileUrl, format!("bad file URL {url}: {why}"));
    let path_start = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(path_start);
    if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
        return Err(bad("only local files can be named; leave the host empty"));
    }
    // A query or fragment is not part of the path, as for any URL.
    let path = path.split(['?', '#']).next().unwrap_or(path);
    if path.to_ascii_lowercase().contains("%2f") {
        return Err(bad("an encoded slash is not allowed"));
    }
    let valid_escapes = path.split('%').skip(1).all(|piece| {
        piece.len() >= 2 && piece.bytes().take(2).all(|byte| byte.is_ascii_hexdigit())
    });
    if !valid_escapes {
        return Err(bad("invalid percent escape"));
    }
    let decoded = percent_decode_str(path)
        .decode_utf8()
        .map_err(|_| bad("the escapes are no UTF-8"))?;
    if decoded.contains('\0') {
        return Err(bad("it holds a NUL byte"));
    }
    Ok(PathBuf::from(if decoded.is_empty() {
        "/"
    } else {
        &*decoded
    }))
}

/// Removes `.`, `..`, doubled and trailing slashes without looking at the disk.
pub(super) fn normalise(path: &Path) -> PathBuf {
    let mut parts: Vec<&OsStr> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push(name),
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    let mut out = PathBuf::from("/");
    out.extend(parts);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &str, wanted: &str) {
        let got = match resolve(given, Path::new("/w/d"), Path::new("/home/u")) {
            Ok(path) => path.display().to_string(),
            Err(error) => format!("{:?}", error.class),
        };
        assert_eq!(got, wanted, "{given:?}");
    }

    #[test]
    fn arguments_become_absolute_paths() {
        for (given, wanted) in [
            ("", "/w/d"),
            (".", "/w/d"),
            ("a", "/w/d/a"),
            ("./a//b/../c/", "/w/d/a/c"),
            ("../../../..", "/"),
            ("/x/./y", "/x/y"),
            ("@a", "/w/d/a"),
            ("@@a", "/w/d/@a"),
            ("./@a", "/w/d/@a"),
            ("~", "/home/u"),
            ("~/a", "/home/u/a"),
            ("~x/a", "/w/d/~x/a"),
            ("a\u{a0}b\u{3000}c", "/w/d/a b c"),
            (" a ", "/w/d/ a "),
            ("file:///x/a%20b", "/x/a b"),
            ("file://localhost/x", "/x"),
            ("file://host/x", "BadFileUrl"),
            ("file:///a%2Fb", "BadFileUrl"),
            ("file:///a%zz", "BadFileUrl"),
            ("file:///a%ff", "BadFileUrl"),
            ("FILE:///a", "/w/d/FILE:/a"),
            ("http://x/y", "/w/d/http:/x/y"),
            ("a\0b", "InvalidPath"),
        ] {
            check(given, wanted);
        }
    }

    #[test]
    fn screenshot_names_are_found_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let read = |given: &str| {
            let path = resolve_existing(given, dir.path(), Path::new("/")).unwrap();
            path.strip_prefix(dir.path())
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(read("Shot 1.01.11 AM.png.txt"), "Shot 1.01.11 AM.png.txt");
        for name in [
            "Shot 1.01.11\u{202f}AM.png.txt",
            "cafe\u{301}",
            "it\u{2019}s",
            "d\u{2019}e\u{301}",
        ] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(
            read("Shot 1.01.11 AM.png.txt"),
            "Shot 1.01.11\u{202f}AM.png.txt"
        );
        assert_eq!(read("caf\u{e9}"), "cafe\u{301}");
        assert_eq!(read("it's"), "it\u{2019}s");
        assert_eq!(read("d'\u{e9}"), "d\u{2019}e\u{301}");
    }
}
