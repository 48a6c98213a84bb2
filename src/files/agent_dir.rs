//! Where things live: the agent folder, the home folder, and how a path that a person typed is read.
//!
//! Everything is computed from values passed in; no function here looks at the environment or the current directory.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Name of the folder a project keeps its own resources in.
pub const PROJECT_DIR: &str = ".pi";

/// The folders that everything else is found from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The person's home folder.
    pub home: PathBuf,
    /// `PI_CODING_AGENT_DIR`, or `~/.pi/agent`.
    pub agent_dir: PathBuf,
    /// `PI_CODING_AGENT_SESSION_DIR`, expanded; relative values start from the working directory.
    pub session_dir: Option<PathBuf>,
    /// `${XDG_STATE_HOME:-~/.local/state}/pi-nvim`, core's alone.
    pub state_dir: PathBuf,
}

impl Places {
    /// Reads the places from variables that `lookup` knows; an empty value counts as unset. `cwd` is where relative
    /// values start.
    pub fn from_env(lookup: impl Fn(&str) -> Option<OsString>, cwd: &Path) -> Self {
        let value = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let home = value("HOME")
            .or_else(|| value("USERPROFILE"))
            .map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let path = |name: &str| {
            value(name).map(|text| match text.to_str() {
                Some(text) => resolve_path(text, cwd, &home),
                None => cwd.join(text),
            })
        };
        Self {
            agent_dir: path("PI_CODING_AGENT_DIR").unwrap_or_else(|| home.join(".pi/agent")),
            session_dir: path("PI_CODING_AGENT_SESSION_DIR"),
            // The specification of XDG says that a relative value is to be ignored.
            state_dir: value("XDG_STATE_HOME")
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
                .unwrap_or_else(|| home.join(".local/state"))
                .join("pi-nvim"),
            home,
        }
    }

    /// Returns the sessions folder: `--session-dir`, the environment, the setting, else one folder per project below
    /// the agent folder. In a folder of the first three kinds all projects lie side by side.
    pub fn sessions_for(&self, cwd: &Path, flag: Option<&str>, setting: Option<&str>) -> PathBuf {
        let given = |text: &str| resolve_path(text, cwd, &self.home);
        flag.map(given)
            .or_else(|| self.session_dir.clone())
            .or_else(|| setting.map(given))
            .unwrap_or_else(|| self.agent_dir.join("sessions").join(session_dir_name(cwd)))
    }
}

/// Returns the name of a project's folder below `sessions/`: `/home/me/x` becomes `--home-me-x--`.
pub fn session_dir_name(cwd: &Path) -> String {
    let text = normalize(cwd).to_string_lossy().into_owned();
    let text = text.strip_prefix(['/', '\\']).unwrap_or(&text);
    format!("--{}--", text.replace(['/', '\\', ':'], "-"))
}

/// Replaces a leading `~` or `~/` by the home folder.
pub fn expand_home(text: &str, home: &Path) -> PathBuf {
    match text.strip_prefix('~') {
        Some("") => home.to_owned(),
        Some(rest) => match rest.strip_prefix(['/', '\\']) {
            Some(rest) => home.join(rest),
            None => PathBuf::from(text),
        },
        None => PathBuf::from(text),
    }
}

/// Reads a path as a person writes it in settings or on the command line: trimmed, `~` and `file://` understood,
/// relative to `base`, without `.` and `..`. Symbolic links are not followed.
pub fn resolve_path(text: &str, base: &Path, home: &Path) -> PathBuf {
    let text = text.trim();
    let path = match text.strip_prefix("file://") {
        Some(rest) => {
            let rest = rest.strip_prefix("localhost").unwrap_or(rest);
            let bytes: Vec<u8> = percent_encoding::percent_decode_str(rest).collect();
            PathBuf::from(String::from_utf8_lossy(&bytes).into_owned())
        }
        None => expand_home(text, home),
    };
    normalize(&base.join(path))
}

/// Returns a path as a person writes it: `~` for their home folder.
pub fn shown(path: &Path, home: &Path) -> String {
    match path.strip_prefix(home) {
        Ok(rest) if rest.as_os_str().is_empty() => "~".into(),
        Ok(rest) if home.parent().is_some() => format!("~/{}", rest.display()),
        _ => path.display().to_string(),
    }
}

/// Removes `.` and `..` from a path by its text alone.
pub fn normalize(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !matches!(
                    out.components().next_back(),
                    None | Some(Component::ParentDir)
                ) {
                    out.pop();
                } else if !out.has_root() {
                    out.push(part);
                }
            }
            other => out.push(other),
        }
    }
    out
}

/// Returns the path with links resolved, or the path itself when that fails (it does not exist, a folder is closed).
pub fn real_path(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(vars: &[(&str, &str)]) -> Places {
        let lookup = |name: &str| {
            vars.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        };
        Places::from_env(lookup, Path::new("/work/x"))
    }

    #[test]
    fn agent_dir_defaults_below_home() {
        let it = places(&[("HOME", "/h")]);
        assert_eq!(it.agent_dir, Path::new("/h/.pi/agent"));
        assert_eq!(it.state_dir, Path::new("/h/.local/state/pi-nvim"));
        assert_eq!(it.session_dir, None);
    }

    #[test]
    fn a_path_below_home_is_shown_short() {
        for (path, home, expected) in [
            ("/home/me/x/y", "/home/me", "~/x/y"),
            ("/home/me", "/home/me", "~"),
            ("/home/men", "/home/me", "/home/men"),
            ("/srv/x", "/home/me", "/srv/x"),
            ("/srv/x", "/", "/srv/x"),
        ] {
            assert_eq!(shown(Path::new(path), Path::new(home)), expected);
        }
    }

    #[test]
    fn variables_win_and_tilde_is_expanded() {
        let it = places(&[
            ("HOME", "/h"),
            ("PI_CODING_AGENT_DIR", "~/a/../b"),
            ("PI_CODING_AGENT_SESSION_DIR", "s"),
            ("XDG_STATE_HOME", "relative"),
        ]);
        assert_eq!(it.agent_dir, Path::new("/h/b"));
        assert_eq!(it.session_dir, Some(PathBuf::from("/work/x/s")));
        assert_eq!(it.state_dir, Path::new("/h/.local/state/pi-nvim"));
    }

    #[test]
    fn empty_variables_count_as_unset() {
        let it = places(&[("HOME", "/h"), ("PI_CODING_AGENT_DIR", "")]);
        assert_eq!(it.agent_dir, Path::new("/h/.pi/agent"));
    }

    #[test]
    fn session_folder_precedence() {
        let it = places(&[("HOME", "/h"), ("PI_CODING_AGENT_SESSION_DIR", "/env")]);
        let cwd = Path::new("/w");
        assert_eq!(
            it.sessions_for(cwd, Some("~/f"), Some("s")),
            Path::new("/h/f")
        );
        assert_eq!(it.sessions_for(cwd, None, Some("s")), Path::new("/env"));
        let it = places(&[("HOME", "/h")]);
        assert_eq!(it.sessions_for(cwd, None, Some("s")), Path::new("/w/s"));
        assert_eq!(
            it.sessions_for(cwd, None, None),
            Path::new("/h/.pi/agent/sessions/--w--")
        );
    }

    #[test]
    fn session_dir_names() {
        for (cwd, name) in [
            ("/", "----"),
            ("/a/b c/d:e", "--a-b c-d-e--"),
            ("/a/./b/../ü", "--a-ü--"),
        ] {
            assert_eq!(session_dir_name(Path::new(cwd)), name);
        }
    }

    #[test]
    fn paths_as_typed() {
        let home = Path::new("/h");
        for (text, want) in [
            ("  a/b ", "/base/a/b"),
            ("~", "/h"),
            ("~/x", "/h/x"),
            ("~other", "/base/~other"),
            ("file:///tmp/a%20b", "/tmp/a b"),
            ("../x/./y", "/x/y"),
            ("/../..", "/"),
        ] {
            assert_eq!(
                resolve_path(text, Path::new("/base"), home),
                Path::new(want),
                "{text}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn a_tidy_path_stays_as_it_is(text in "(/?[a.]{0,3}){0,6}") {
            let once = normalize(Path::new(&text));
            proptest::prop_assert_eq!(&normalize(&once), &once);
            let absolute = normalize(&Path::new("/").join(&text));
            proptest::prop_assert!(absolute.components().all(|part| part != Component::ParentDir));
        }

        #[test]
        fn a_session_folder_is_one_name(text in "\\PC{0,40}") {
            let name = session_dir_name(&Path::new("/").join(&text));
            proptest::prop_assert!(!name.contains(['/', '\\', ':']), "{}", name);
        }
    }
}
