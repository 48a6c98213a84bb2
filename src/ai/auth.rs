//! `auth.json`: keys per provider, shared with Pi under its lock. Entries we do not understand are kept as they are.
//!
//! Readers keep the last good state while the file is being replaced. Writers lock, read again, change one provider and
//! replace the file whole.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use super::catalogue;
use super::config_value::ConfigValue;
use crate::files::agent_dir::real_path;
use crate::files::lock::{DirLock, LockError, LockRules};

/// Why a key could not be stored or removed.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The lock was not to be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The file holds something else than an object; writing would destroy it.
    #[error("{} does not hold valid JSON; mend or remove it first", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
    },
    /// Reading or writing failed.
    #[error("write {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A key without characters.
    #[error("the key is empty; nothing was stored")]
    Empty,
}

/// One entry of the file.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// `type: "api_key"`.
    Key {
        /// The key, a `$VARIABLE` or a `!command`.
        key: Option<SecretString>,
        /// Variables for this provider.
        env: Vec<(String, SecretString)>,
    },
    /// Anything else (a subscription sign-in); its type.
    Other(String),
}

impl Entry {
    /// The entry's own variables.
    pub(crate) fn env(&self) -> Vec<(String, String)> {
        match self {
            Self::Key { env, .. } => env
                .iter()
                .map(|(name, value)| (name.clone(), value.expose_secret().to_owned()))
                .collect(),
            Self::Other(_) => Vec::new(),
        }
    }

    fn read(value: &Value) -> Self {
        let kind = value
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if kind != "api_key" {
            return Self::Other(kind.to_owned());
        }
        let env = value.get("env").and_then(Value::as_object);
        Self::Key {
            key: value
                .get("key")
                .and_then(Value::as_str)
                .map(SecretString::from),
            env: env
                .into_iter()
                .flatten()
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.into())))
                .collect(),
        }
    }
}

/// The last good state of the file.
#[derive(Debug, Default)]
struct Snapshot {
    stamp: Option<(SystemTime, u64)>,
    entries: Vec<(String, Entry)>,
}

/// The file, read again when it changed.
#[derive(Debug)]
pub(crate) struct AuthFile {
    path: PathBuf,
    last: Mutex<Snapshot>,
}

impl AuthFile {
    /// The file of an agent folder; it need not exist.
    pub(crate) fn new(agent_dir: &Path) -> Self {
        Self {
            path: agent_dir.join("auth.json"),
            last: Mutex::default(),
        }
    }

    /// Returns the entry of a provider.
    pub(crate) fn entry(&self, provider: &str) -> Option<Entry> {
        let mut last = self.last.lock();
        self.refresh(&mut last);
        last.entries
            .iter()
            .find(|(id, _)| id == provider)
            .map(|(_, entry)| entry.clone())
    }

    /// Returns the ids of all entries.
    pub(crate) fn providers(&self) -> Vec<String> {
        let mut last = self.last.lock();
        self.refresh(&mut last);
        last.entries.iter().map(|(id, _)| id.clone()).collect()
    }

    fn refresh(&self, last: &mut Snapshot) {
        let Ok(meta) = std::fs::metadata(&self.path) else {
            *last = Snapshot::default();
            return;
        };
        let stamp = meta.modified().ok().map(|time| (time, meta.len()));
        if stamp.is_some() && stamp == last.stamp {
            return;
        }
        if let Some(map) = read_object(&self.path) {
            let entries = map
                .iter()
                .map(|(id, value)| (id.clone(), Entry::read(value)))
                .collect();
            *last = Snapshot { stamp, entries };
        }
    }
}

fn read_object(path: &Path) -> Option<Map<String, Value>> {
    let bytes = std::fs::read(path).ok()?;
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes);
    match serde_json::from_slice(bytes).ok()? {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

/// Stores a key (or a `$VARIABLE`, or a `!command`) for a provider. Blocking: waits for the lock up to 30 s.
pub fn login(agent_dir: &Path, provider: &str, key: &SecretString) -> Result<(), AuthError> {
    let key = key.expose_secret().trim();
    if key.is_empty() {
        return Err(AuthError::Empty);
    }
    change(agent_dir, |map| {
        let mut entry = json!({"type": "api_key", "key": key});
        let env = map.get(provider).and_then(|old| old.get("env")).cloned();
        if let (Some(env), Some(entry)) = (env, entry.as_object_mut()) {
            entry.insert("env".into(), env);
        }
        map.insert(provider.to_owned(), entry);
        true
    })
    .map(|_| ())
}

/// Removes the entry of a provider; false when there was none. Blocking like [`login`].
pub fn logout(agent_dir: &Path, provider: &str) -> Result<bool, AuthError> {
    change(agent_dir, |map| map.shift_remove(provider).is_some())
}

/// Changes the file under its lock; `edit` says whether there is anything to write.
fn change(
    agent_dir: &Path,
    edit: impl FnOnce(&mut Map<String, Value>) -> bool,
) -> Result<bool, AuthError> {
    let named = agent_dir.join("auth.json");
    let io = |source| AuthError::Io {
        path: named.clone(),
        source,
    };
    if !agent_dir.exists() {
        make_private_dir(agent_dir).map_err(io)?;
    }
    let lock = DirLock::acquire(&named, LockRules::AUTH)?;
    let path = real_path(&named);
    let mut map = match std::fs::metadata(&path) {
        Ok(meta) if meta.len() > 0 => {
            read_object(&path).ok_or_else(|| AuthError::Unreadable { path: path.clone() })?
        }
        _ => Map::new(),
    };
    if !edit(&mut map) {
        return Ok(false);
    }
    let text = serde_json::to_string_pretty(&map).map_err(|error| io(error.into()))?;
    if !lock.is_held() {
        return Err(io(io::Error::other("the lock was lost while waiting")));
    }
    replace(&path, text.as_bytes()).map_err(io)?;
    Ok(true)
}

fn make_private_dir(dir: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Replaces a file whole: a temporary one (0600, or the mode the file has) is written to its full length, flushed, renamed.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    if let Ok(meta) = std::fs::metadata(path) {
        file.as_file().set_permissions(meta.permissions())?;
    }
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    if file.as_file().metadata()?.len() != bytes.len() as u64 {
        return Err(io::Error::other("the disk took only a part"));
    }
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Where a provider's key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The command line.
    CommandLine,
    /// `auth.json`; how it is written there.
    AuthFile(StoredAs),
    /// `apiKey` of `models.json`.
    ModelsFile,
    /// This environment variable.
    Environment(String),
}

impl std::fmt::Display for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CommandLine => f.write_str("the command line"),
            Self::AuthFile(StoredAs::Key) => f.write_str("auth.json"),
            Self::AuthFile(StoredAs::Variable) => f.write_str("a variable named in auth.json"),
            Self::AuthFile(StoredAs::Command) => f.write_str("a command named in auth.json"),
            Self::ModelsFile => f.write_str("models.json"),
            Self::Environment(name) => f.write_str(name),
        }
    }
}

/// How a key stands in `auth.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredAs {
    /// Written out.
    Key,
    /// As the name of a variable.
    Variable,
    /// As a command.
    Command,
}

/// State of one provider, for `auth check` and `:Pi login`; holds no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderStatus {
    /// Provider id.
    pub provider: String,
    /// Name for people.
    pub name: String,
    /// Where its key comes from; `None` = not configured.
    pub source: Option<KeySource>,
    /// Whether somebody set something up for it, working or not.
    pub set_up: bool,
    /// What stands in the way of using it, in one line; `None` = it can be used.
    pub problem: Option<String>,
    /// Number of its models.
    pub models: usize,
}

/// Tells how a stored key is written.
pub(crate) fn stored_as(key: &SecretString) -> StoredAs {
    let value = ConfigValue::parse(key.expose_secret());
    match value {
        ConfigValue::Command(_) => StoredAs::Command,
        value if !value.variables().is_empty() => StoredAs::Variable,
        ConfigValue::Template(_) => StoredAs::Key,
    }
}

/// Leaves out of a reason what a list by provider says already.
pub fn beside_name<'a>(provider: &str, why: &'a str) -> &'a str {
    let said = format!("no API key for {provider}: ");
    why.strip_prefix(said.as_str()).unwrap_or(why)
}

/// Returns the name of a provider for people.
pub(crate) fn display_name(provider: &str) -> String {
    catalogue::provider(provider).map_or_else(|| provider.to_owned(), |known| known.name.to_owned())
}
