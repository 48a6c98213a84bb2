//! `mcp.json`: read for the names of its servers only, so that a person hears that they are not started. The file is
//! never written.

use std::path::Path;

use serde_json::Value;

use super::{Diagnostic, DiagnosticCode};

/// Returns one line when a file configures servers that would have to run.
pub(super) fn not_started(path: &Path) -> Option<Diagnostic> {
    let text = crate::files::read_text(path).ok()?;
    let json: Value = serde_json::from_str(&text).ok()?;
    let servers = json.get("mcpServers")?.as_object()?;
    let wanted = |entry: &Value| entry.get("enabled") != Some(&Value::Bool(false));
    let names: Vec<&str> = servers
        .iter()
        .filter(|(_, entry)| wanted(entry))
        .map(|(name, _)| name.as_str())
        .collect();
    if names.is_empty() {
        return None;
    }
    let what = format!(
        "MCP is not there yet, so its servers do not run: {}",
        names.join(", ")
    );
    Some(Diagnostic::new(DiagnosticCode::Mcp, path, &what))
}
