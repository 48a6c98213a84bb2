//! What all tools of a process share: the workspace, the gate, and the person's settings.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;

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
    pub options: LiveOptions,
}

/// Options as they stand now: clones share them, so a change of the settings reaches the tools of a running session.
#[derive(Clone, Debug, Default)]
pub struct LiveOptions(Arc<RwLock<Arc<ToolOptions>>>);

impl LiveOptions {
    /// Returns the options as they stand. A call takes them once and goes by them to its end.
    pub fn get(&self) -> Arc<ToolOptions> {
        Arc::clone(&self.0.read())
    }

    /// Changes the options for calls that begin from now on.
    pub fn change(&self, change: impl FnOnce(&mut ToolOptions)) {
        let mut held = self.0.write();
        let mut options = ToolOptions::clone(&held);
        change(&mut options);
        *held = Arc::new(options);
    }
}

impl From<ToolOptions> for LiveOptions {
    fn from(options: ToolOptions) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(options))))
    }
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
