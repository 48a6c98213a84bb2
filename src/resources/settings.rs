//! `settings.json` of the person and of the project.
//!
//! Entry points: [`Settings::load`], the typed getters in `values`, [`Settings::set`]. Invariants: a file that is not
//! valid is reported by line and never written; a write touches only the keys that were set; reading creates nothing;
//! an untrusted project has no settings.

mod merge;
mod values;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

pub use values::{
    BranchSummarySettings, CacheWarming, CompactionSettings, DoubleEscape, ProviderRetry,
    QueueMode, RetrySettings, Transport, TreeFilter, ValueError,
};

use crate::files::agent_dir::PROJECT_DIR;
use crate::files::lock::{DirLock, LockError, LockRules};
use crate::files::replace::{Options, replace};

/// Which of the two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `<agent-dir>/settings.json`.
    Global,
    /// `<cwd>/.pi/settings.json`.
    Project,
}

/// Whether the project's own files may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A person (or a rule of theirs) said yes.
    Trusted,
    /// Not, or not yet.
    Untrusted,
}

/// What is wrong with a settings file, or why one was not written.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Not a JSON object.
    #[error("{}:{line}: {what}; the file is left alone, mend it and reload", path.display())]
    Invalid {
        /// Which file.
        scope: Scope,
        /// The file.
        path: PathBuf,
        /// Line of the mistake, from 1.
        line: usize,
        /// What the parser said.
        what: String,
    },
    /// Cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        scope: Scope,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Another process kept the lock.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Project settings of an untrusted project are not written.
    #[error("{} is not written: the project is not trusted", path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
    },
}

#[derive(Clone, Debug)]
struct ScopeState {
    scope: Scope,
    path: PathBuf,
    values: Map<String, Value>,
    error: Option<Arc<SettingsError>>,
    /// Set here but not yet in the file, because a write failed.
    pending: Vec<(Vec<String>, Value)>,
}

/// The settings in force.
#[derive(Clone, Debug)]
pub struct Settings {
    global: ScopeState,
    project: ScopeState,
    trust: Trust,
    effective: Map<String, Value>,
    /// `sessionDir` of the project file; the one key that needs no trust.
    project_session_dir: Option<String>,
}

impl Settings {
    /// Reads both files. Mistakes in them are kept as [`Settings::errors`]; the other file still counts.
    pub fn load(agent_dir: &Path, cwd: &Path, trust: Trust) -> Self {
        let state = |scope, path| ScopeState {
            scope,
            path,
            values: Map::new(),
            error: None,
            pending: Vec::new(),
        };
        let mut settings = Self {
            global: state(Scope::Global, agent_dir.join("settings.json")),
            project: state(Scope::Project, cwd.join(PROJECT_DIR).join("settings.json")),
            trust,
            effective: Map::new(),
            project_session_dir: None,
        };
        settings.reload(trust);
        settings
    }

    /// Whether these are the settings of this working directory.
    pub fn belong_to(&self, cwd: &Path) -> bool {
        self.project.path.starts_with(cwd.join(PROJECT_DIR))
    }

    /// Reads both files again. A file that became invalid keeps the values it had.
    pub fn reload(&mut self, trust: Trust) {
        self.trust = trust;
        self.global.reload();
        match trust {
            Trust::Trusted => {
                self.project.reload();
                self.project_session_dir = text_of(&self.project.values, "sessionDir");
            }
            Trust::Untrusted => {
                self.project.values = Map::new();
                self.project.error = None;
                let file = read_object(Scope::Project, &self.project.path);
                self.project_session_dir = file.ok().and_then(|file| text_of(&file, "sessionDir"));
            }
        }
        self.merge();
    }

    /// Returns the merged view; unknown keys are in it.
    pub fn effective(&self) -> &Map<String, Value> {
        &self.effective
    }

    /// Returns one file's values, for lists that are combined and not replaced. Empty for an untrusted project.
    pub fn scope(&self, scope: Scope) -> &Map<String, Value> {
        &self.state(scope).values
    }

    /// Returns what is wrong with the files, at most one each.
    pub fn errors(&self) -> impl Iterator<Item = &SettingsError> {
        [&self.global, &self.project]
            .into_iter()
            .filter_map(|state| state.error.as_deref())
    }

    /// Sets one key, or one key inside another (`["compaction", "enabled"]`), and writes the file: only this key changes
    /// in what is on disk at that moment. When the write fails the value holds in memory and is written with the next one.
    /// Blocking, for at most a fifth of a second.
    ///
    /// # Errors
    /// [`SettingsError::Untrusted`] before anything changed, else why the file was not written.
    pub fn set(&mut self, scope: Scope, key: &[&str], value: Value) -> Result<(), SettingsError> {
        if scope == Scope::Project && self.trust == Trust::Untrusted {
            return Err(SettingsError::Untrusted {
                path: self.project.path.clone(),
            });
        }
        self.hold(scope, key, value);
        self.write(scope)
    }

    /// Sets a key in memory only: in force at once, and in the file with the next [`Settings::write`].
    pub fn hold(&mut self, scope: Scope, key: &[&str], value: Value) {
        let state = self.state_mut(scope);
        put(&mut state.values, key, value.clone());
        let key: Vec<String> = key.iter().map(|&part| part.to_owned()).collect();
        state.pending.retain(|(other, _)| *other != key);
        state.pending.push((key, value));
        self.merge();
    }

    /// Writes what is held. Blocking, for at most a fifth of a second: a caller with a lock writes a copy and then takes
    /// over with [`Settings::written`] what that did.
    ///
    /// # Errors
    /// Why the file was not written.
    pub fn write(&mut self, scope: Scope) -> Result<(), SettingsError> {
        self.state_mut(scope).write()
    }

    /// Takes over that a copy of these settings was written, of which `held` was what it held.
    pub fn written(&mut self, scope: Scope, held: &[(Vec<String>, Value)]) {
        let state = self.state_mut(scope);
        state.pending.retain(|pair| !held.contains(pair));
        state.error = None;
    }

    /// What is set here and not in the file.
    pub fn held(&self, scope: Scope) -> &[(Vec<String>, Value)] {
        &self.state(scope).pending
    }

    fn state(&self, scope: Scope) -> &ScopeState {
        match scope {
            Scope::Global => &self.global,
            Scope::Project => &self.project,
        }
    }

    fn state_mut(&mut self, scope: Scope) -> &mut ScopeState {
        match scope {
            Scope::Global => &mut self.global,
            Scope::Project => &mut self.project,
        }
    }

    fn merge(&mut self) {
        self.effective = merge::effective(&self.global.values, &self.project.values);
    }
}

impl ScopeState {
    fn reload(&mut self) {
        match read_object(self.scope, &self.path) {
            Ok(mut values) => {
                merge::migrate(&mut values);
                for (key, value) in &self.pending {
                    let key: Vec<&str> = key.iter().map(String::as_str).collect();
                    put(&mut values, &key, value.clone());
                }
                self.values = values;
                self.error = None;
            }
            Err(err) => self.error = Some(Arc::new(err)),
        }
    }

    fn write(&mut self) -> Result<(), SettingsError> {
        let _lock = DirLock::acquire(&self.path, LockRules::SETTINGS)?;
        let before = crate::files::read_text(&self.path).unwrap_or_default();
        let mut file = read_object(self.scope, &self.path)?;
        for (key, value) in &self.pending {
            let key: Vec<&str> = key.iter().map(String::as_str).collect();
            put(&mut file, &key, value.clone());
        }
        let mut text = format!("{:#}", Value::Object(file));
        if before.ends_with('\n') {
            text.push('\n');
        }
        let io = |source| SettingsError::Io {
            scope: self.scope,
            path: self.path.clone(),
            source,
        };
        replace(&self.path, text.as_bytes(), Options::default()).map_err(io)?;
        self.pending.clear();
        self.error = None;
        Ok(())
    }
}

/// Puts a value at a key of at most two parts; what stands in the way of an inner key and is no object goes.
fn put(map: &mut Map<String, Value>, key: &[&str], value: Value) {
    match key {
        [] => {}
        [last] => drop(map.insert((*last).to_owned(), value)),
        [first, rest @ ..] => {
            let inner = map.entry(*first).or_insert(Value::Null);
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

fn text_of(map: &Map<String, Value>, key: &str) -> Option<String> {
    map.get(key).and_then(Value::as_str).map(str::to_owned)
}

/// Reads a file that is missing, empty or a JSON object.
fn read_object(scope: Scope, path: &Path) -> Result<Map<String, Value>, SettingsError> {
    let text = match crate::files::read_text(path) {
        Ok(text) => text,
        Err(err) if is_missing(&err) => return Ok(Map::new()),
        Err(source) => {
            return Err(SettingsError::Io {
                scope,
                path: path.to_owned(),
                source,
            });
        }
    };
    if text.is_empty() {
        return Ok(Map::new());
    }
    let invalid = |line, what| SettingsError::Invalid {
        scope,
        path: path.to_owned(),
        line,
        what,
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(invalid(1, "settings must be one JSON object".to_owned())),
        Err(err) => Err(invalid(err.line().max(1), format!("not valid JSON: {err}"))),
    }
}

fn is_missing(err: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(err.kind(), NotFound | NotADirectory)
}
