//! What all tools of a process share: the workspace, the gate, and the person's settings.

use std::path::PathBuf;
use std::sync::Arc;

use crate::review::gate::Gate;
use crate::workspace::Workspace;

/// Surroundings of the built-in tools. Made once per session by whoever assembles it; cheap to clone behind an `Arc`.
#[derive(Clone)]
pub struct ToolEnv {
    /// Files as tools see them.
    pub workspace: Arc<dyn Workspace>,
    /// Every change and every command passes it.
    pub gate: Gate,
    /// Settings and places.
    pub options: ToolOptions,
}

/// Settings and places that tools need; plain data.
#[derive(Clone, Debug)]
pub struct ToolOptions {
    /// Shell code put before each command (setting `shellCommandPrefix`).
    pub command_prefix: Option<String>,
    /// The shell (setting `shellPath`); must exist.
    pub shell_path: Option<PathBuf>,
    /// Whether pictures are scaled to what models take (setting `images.autoResize`).
    pub auto_resize_images: bool,
    /// Where full outputs are kept.
    pub tmp_dir: PathBuf,
    /// The person's home.
    pub home: PathBuf,
    /// The agent's own `bin` directory, put first on `PATH` of commands.
    pub agent_bin_dir: Option<PathBuf>,
    /// The binary that is run as `--guard` around each command; `None` runs commands without a guard (an SDK user
    /// without the binary: commands then outlive a killed host).
    pub guard: Option<PathBuf>,
    /// Variables set for commands on top of the inherited environment.
    pub extra_env: Vec<(String, String)>,
}

impl Default for ToolOptions {
    fn default() -> Self {
        Self {
            command_prefix: None,
            shell_path: None,
            auto_resize_images: true,
            tmp_dir: std::env::temp_dir(),
            home: std::env::home_dir().unwrap_or_else(|| PathBuf::from("/")),
            agent_bin_dir: None,
            guard: None,
            extra_env: Vec::new(),
        }
    }
}
