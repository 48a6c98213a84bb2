//! Project trust: nothing of a project is loaded or run before a person said so.
//!
//! [`needs_trust`] looks whether there is anything to decide, [`decide`] goes through the rules, [`TrustStore`] remembers
//! answers in `trust.json`, a file shared with Pi. Context files are text only and need no trust.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::settings::{Settings, Trust};
use crate::files::agent_dir::{Places, normalize, real_path};
use crate::files::lock::{DirLock, LockError, LockRules};
use crate::files::replace::{Options, replace};

/// What in a project's `.pi` asks for a decision; existing is enough.
const PROTECTED: [&str; 8] = [
    "settings.json",
    "mcp.json",
    "extensions",
    "skills",
    "prompts",
    "themes",
    "SYSTEM.md",
    "APPEND_SYSTEM.md",
];

/// Returns what would be loaded from the project once it is trusted; empty: there is nothing to decide. The person's
/// own folders never count, not even when `cwd` is the home folder.
pub fn protected_resources(places: &Places, cwd: &Path) -> Vec<PathBuf> {
    let cwd = normalize(cwd);
    let dir = cwd.join(crate::files::agent_dir::PROJECT_DIR);
    let mut found: Vec<PathBuf> = Vec::new();
    if real_path(&dir) != real_path(&places.agent_dir) {
        found.extend(
            PROTECTED
                .iter()
                .map(|name| dir.join(name))
                .filter(|path| path.exists()),
        );
    }
    let own = real_path(&places.home.join(".agents/skills"));
    let agents = cwd.ancestors().map(|dir| dir.join(".agents/skills"));
    found.extend(agents.filter(|path| path.exists() && real_path(path) != own));
    found
}

/// Tells whether the project has anything that needs trust.
pub fn needs_trust(places: &Places, cwd: &Path) -> bool {
    !protected_resources(places, cwd).is_empty()
}

/// The rules of one process: what the command line said and what a person answered for as long as it runs. Clones share
/// the answers.
#[derive(Clone, Debug, Default)]
pub struct TrustRules {
    flag: Option<bool>,
    answers: Arc<Mutex<HashMap<PathBuf, bool>>>,
}

impl TrustRules {
    /// Makes rules; `flag` is `--approve` or `--no-approve`.
    pub fn new(flag: Option<bool>) -> Self {
        Self {
            flag,
            answers: Arc::default(),
        }
    }

    /// Takes an answer that holds until the process ends.
    pub fn answer(&self, cwd: &Path, trusted: bool) {
        self.answers.lock().insert(cwd.to_owned(), trusted);
    }

    /// Returns what was answered or said on the command line about a folder.
    pub fn known(&self, cwd: &Path) -> Option<bool> {
        let answered = self.answers.lock().get(cwd).copied();
        answered.or(self.flag)
    }

    /// Returns where the rules lead, and what is wrong with the store.
    pub fn verdict(&self, places: &Places, cwd: &Path) -> (Verdict, Option<TrustError>) {
        let (facts, trouble) = TrustFacts::gather(places, cwd, self.known(cwd));
        (decide(cwd, &facts, []), trouble)
    }

    /// Decides again for a session that runs: a decision counts, an open question changes nothing. So a project does not
    /// lose trust because the session made its first `.pi`.
    pub fn again(&self, places: &Places, cwd: &Path, now: Trust) -> Trust {
        match self.verdict(places, cwd).0 {
            Verdict::Decided { trusted: true, .. } => Trust::Trusted,
            Verdict::Decided { trusted: false, .. } => Trust::Untrusted,
            Verdict::Ask(_) => now,
        }
    }
}

/// Returns one line that names what an undecided project has and that it is not used; for faces that cannot ask.
pub fn not_used(places: &Places, cwd: &Path) -> Option<String> {
    let names: Vec<String> = protected_resources(places, cwd)
        .iter()
        .map(|path| path.strip_prefix(cwd).unwrap_or(path).display().to_string())
        .collect();
    if names.is_empty() {
        return None;
    }
    Some(format!(
        "{} is not trusted yet, so these are not used: {}; --approve uses them",
        cwd.display(),
        names.join(", ")
    ))
}

/// The setting `defaultProjectTrust`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultTrust {
    /// Ask, and do not trust where nobody can be asked.
    #[default]
    Ask,
    /// Trust every project.
    Always,
    /// Trust none.
    Never,
}

/// What an extension's `project_trust` handler said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerAnswer {
    /// Nothing, or it failed.
    Undecided,
    /// Yes or no.
    Decided {
        /// The verdict.
        trusted: bool,
        /// Whether to store it.
        remember: bool,
    },
}

/// What is known before anybody is asked.
#[derive(Clone, Debug, Default)]
pub struct TrustFacts {
    /// `--approve` or `--no-approve`.
    pub flag: Option<bool>,
    /// Whether the project has protected resources.
    pub needs_trust: bool,
    /// The nearest stored answer.
    pub saved: Option<bool>,
    /// The setting.
    pub default: DefaultTrust,
}

impl TrustFacts {
    /// Looks everything up. A store that cannot be read counts as empty and comes back as the second value.
    pub fn gather(places: &Places, cwd: &Path, flag: Option<bool>) -> (Self, Option<TrustError>) {
        let (saved, trouble) = match TrustStore::new(&places.agent_dir).nearest(cwd) {
            Ok(found) => (found.map(|(_, trusted)| trusted), None),
            Err(err) => (None, Some(err)),
        };
        let settings = Settings::load(&places.agent_dir, cwd, Trust::Untrusted);
        let facts = Self {
            flag,
            needs_trust: needs_trust(places, cwd),
            saved,
            default: settings.default_project_trust(),
        };
        (facts, trouble)
    }
}

/// What is to be written to the store: `None` removes an entry.
pub type TrustChanges = Vec<(PathBuf, Option<bool>)>;

/// Where the rules led.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Decided.
    Decided {
        /// Whether the project is trusted.
        trusted: bool,
        /// What to store.
        save: TrustChanges,
    },
    /// A person has to say; without one the project is not trusted.
    Ask(Vec<TrustChoice>),
}

/// Goes through the rules in their order. `handlers` is only called when a handler may decide; a failed handler counts
/// as undecided.
pub fn decide(
    cwd: &Path,
    facts: &TrustFacts,
    handlers: impl IntoIterator<Item = HandlerAnswer>,
) -> Verdict {
    let decided = |trusted| Verdict::Decided {
        trusted,
        save: Vec::new(),
    };
    if let Some(flag) = facts.flag {
        return decided(flag);
    }
    if !facts.needs_trust {
        return decided(facts.saved.unwrap_or(true));
    }
    for answer in handlers {
        if let HandlerAnswer::Decided { trusted, remember } = answer {
            let entry = (real_path(cwd), Some(trusted));
            return Verdict::Decided {
                trusted,
                save: remember.then_some(entry).into_iter().collect(),
            };
        }
    }
    match (facts.saved, facts.default) {
        (Some(saved), _) => decided(saved),
        (None, DefaultTrust::Always) => decided(true),
        (None, DefaultTrust::Never) => decided(false),
        (None, DefaultTrust::Ask) => Verdict::Ask(TrustChoice::ALL.to_vec()),
    }
}

/// One answer to the question; dismissing it is no answer: not trusted, nothing stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustChoice {
    /// This folder, from now on.
    Trust,
    /// The folder above and all in it, from now on.
    TrustParent,
    /// This folder, until the program ends.
    TrustSession,
    /// Not, from now on.
    Deny,
    /// Not, until the program ends.
    DenySession,
}

impl TrustChoice {
    /// In the order in which they are offered.
    pub const ALL: [Self; 5] = [
        Self::Trust,
        Self::TrustParent,
        Self::TrustSession,
        Self::Deny,
        Self::DenySession,
    ];

    /// A line for the dialog.
    pub fn label(self, cwd: &Path) -> String {
        match self {
            Self::Trust => "Trust this folder".to_owned(),
            Self::TrustParent => {
                let parent = cwd.parent().unwrap_or(cwd);
                format!("Trust everything in {}", parent.display())
            }
            Self::TrustSession => "Trust for this session".to_owned(),
            Self::Deny => "Do not trust this folder".to_owned(),
            Self::DenySession => "Do not trust for this session".to_owned(),
        }
    }

    /// Returns whether the project is trusted now, and what to store.
    pub fn apply(self, cwd: &Path) -> (bool, TrustChanges) {
        let own = real_path(cwd);
        match self {
            Self::Trust => (true, vec![(own, Some(true))]),
            Self::TrustParent => match own.parent().map(Path::to_owned) {
                Some(parent) => (true, vec![(parent, Some(true)), (own, None)]),
                None => (true, vec![(own, Some(true))]),
            },
            Self::TrustSession => (true, Vec::new()),
            Self::Deny => (false, vec![(own, Some(false))]),
            Self::DenySession => (false, Vec::new()),
        }
    }
}

/// Why the store could not be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file holds something else than a table of answers; it is left alone.
    #[error("{} is not a table of trust answers ({what}); mend or remove it", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The lock was not to be had.
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// `trust.json` of the agent folder.
#[derive(Clone, Debug)]
pub struct TrustStore {
    path: PathBuf,
}

impl TrustStore {
    /// The store of an agent folder; nothing is read yet.
    pub fn new(agent_dir: &Path) -> Self {
        Self {
            path: agent_dir.join("trust.json"),
        }
    }

    /// Returns the stored answer for `cwd` or the nearest folder above that has one, with that folder.
    ///
    /// # Errors
    /// [`TrustError::Invalid`] and [`TrustError::Io`]; a missing file is an empty store.
    pub fn nearest(&self, cwd: &Path) -> Result<Option<(PathBuf, bool)>, TrustError> {
        let entries = self.read()?;
        let cwd = real_path(&normalize(cwd));
        let answer = |dir: &Path| {
            let entry = entries.get(dir.to_string_lossy().as_ref());
            entry
                .copied()
                .flatten()
                .map(|trusted| (dir.to_owned(), trusted))
        };
        Ok(cwd.ancestors().find_map(answer))
    }

    /// Stores answers under the lock that Pi takes; everything else in the file stays.
    ///
    /// # Errors
    /// All of [`TrustError`]; the file is unchanged then.
    pub fn save(&self, changes: &TrustChanges) -> Result<(), TrustError> {
        if changes.is_empty() {
            return Ok(());
        }
        let _lock = DirLock::acquire(&self.path, LockRules::SETTINGS)?;
        let mut entries = self.read()?;
        for (path, answer) in changes {
            let key = path.to_string_lossy().into_owned();
            match answer {
                Some(trusted) => drop(entries.insert(key, Some(*trusted))),
                None => drop(entries.remove(&key)),
            }
        }
        let json = entries
            .into_iter()
            .map(|(key, answer)| (key, answer.into()))
            .collect();
        let mut text = format!("{:#}", Value::Object(json));
        text.push('\n');
        replace(&self.path, text.as_bytes(), Options::default()).map_err(|source| self.io(source))
    }

    fn read(&self) -> Result<BTreeMap<String, Option<bool>>, TrustError> {
        let text = match crate::files::read_text(&self.path) {
            Ok(text) => text,
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(self.io(source)),
        };
        if text.is_empty() {
            return Ok(BTreeMap::new());
        }
        serde_json::from_str(&text).map_err(|err| TrustError::Invalid {
            path: self.path.clone(),
            what: err.to_string(),
        })
    }

    fn io(&self, source: std::io::Error) -> TrustError {
        TrustError::Io {
            path: self.path.clone(),
            source,
        }
    }
}
