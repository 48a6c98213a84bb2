//! The first line of a session file.

use serde_json::{Map, Value};

use crate::entry::json;

/// The header: known fields by name, the others kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    fields: Map<String, Value>,
}

impl Header {
    /// The version that new files carry.
    pub const VERSION: u64 = 3;

    /// Makes the header of a new session.
    pub fn new(id: &str, timestamp: &str, cwd: &str, parent_session: Option<&str>) -> Self {
        let mut fields = Map::new();
        fields.insert("type".into(), "session".into());
        fields.insert("version".into(), Self::VERSION.into());
        fields.insert("id".into(), id.into());
        fields.insert("timestamp".into(), timestamp.into());
        fields.insert("cwd".into(), cwd.into());
        if let Some(parent) = parent_session {
            fields.insert("parentSession".into(), parent.into());
        }
        Self { fields }
    }

    /// Takes the fields of a header line; `None` when they make no header.
    pub fn from_fields(fields: Map<String, Value>) -> Option<Self> {
        let is_session =
            fields.get("type")?.as_str()? == "session" && fields.get("id")?.is_string();
        is_session.then_some(Self { fields })
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.fields.get(key)?.as_str()
    }

    /// Returns the session id.
    pub fn id(&self) -> &str {
        self.text("id").unwrap_or_default()
    }

    /// Returns the format version; a missing one is 1.
    pub fn version(&self) -> u64 {
        let version = self.fields.get("version");
        version.and_then(Value::as_u64).unwrap_or(1)
    }

    /// Returns when the session was made, as it stands in the file.
    pub fn timestamp(&self) -> Option<&str> {
        self.text("timestamp")
    }

    /// Returns the stored working directory.
    pub fn cwd(&self) -> Option<&str> {
        self.text("cwd")
    }

    /// Returns the file this session was made from.
    pub fn parent_session(&self) -> Option<&str> {
        self.text("parentSession")
    }

    /// Returns all fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Returns the line, without its line feed.
    pub fn line(&self) -> String {
        json::stringify(&Value::Object(self.fields.clone()))
    }

    pub(super) fn set_version(&mut self, version: u64) {
        self.fields.insert("version".into(), version.into());
    }
}

/// Whether a caller may give this session id.
pub fn is_valid_id(id: &str) -> bool {
    let bytes = id.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    outer(bytes.first()) && outer(bytes.last()) && bytes.iter().all(inner)
}
