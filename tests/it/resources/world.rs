//! A temporary root with the folders that recorded cases speak of, and their placeholders.

use std::path::{Path, PathBuf};

use pi_nvim::files::agent_dir::Places;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct World {
    _dir: TempDir,
    pub(crate) root: PathBuf,
    pub(crate) cwd: PathBuf,
}

impl World {
    /// `cwd` is relative to the root.
    pub(crate) fn new(cwd: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let world = Self {
            cwd: root.join(cwd),
            root,
            _dir: dir,
        };
        for dir in [&world.cwd, &world.places().agent_dir] {
            std::fs::create_dir_all(dir).unwrap();
        }
        world
    }

    /// The usual place.
    pub(crate) fn project() -> Self {
        Self::new("home/proj")
    }

    pub(crate) fn places(&self) -> Places {
        let home = self.root.join("home");
        Places {
            agent_dir: home.join(".pi/agent"),
            session_dir: None,
            state_dir: home.join(".local/state/pi-nvim"),
            home,
        }
    }

    fn placeholders(&self) -> [(&'static str, String); 4] {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let places = self.places();
        [
            ("$CWD", text(&self.cwd)),
            ("$AGENT", text(&places.agent_dir)),
            ("$HOME", text(&places.home)),
            ("$ROOT", text(&self.root)),
        ]
    }

    /// Puts real paths in.
    pub(crate) fn real(&self, text: &str) -> String {
        let all = self.placeholders();
        all.iter().fold(text.to_owned(), |text, (name, path)| {
            text.replace(name, path)
        })
    }

    pub(crate) fn real_value(&self, value: &Value) -> Value {
        serde_json::from_str(&self.real(&value.to_string())).unwrap()
    }

    /// Puts placeholders back, the longest path first.
    pub(crate) fn placeheld(&self, text: &str) -> String {
        let mut all = self.placeholders();
        all.sort_by_key(|(_, path)| std::cmp::Reverse(path.len()));
        all.iter().fold(text.to_owned(), |text, (name, path)| {
            text.replace(path, name)
        })
    }

    pub(crate) fn placeheld_path(&self, path: &Path) -> String {
        self.placeheld(path.to_str().unwrap())
    }

    /// Makes the files of a case.
    pub(crate) fn make(&self, files: &Value) {
        for file in files.as_array().into_iter().flatten() {
            let path = PathBuf::from(self.real(file["path"].as_str().unwrap()));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            if file["dir"] == true {
                std::fs::create_dir_all(&path).unwrap();
            } else if let Some(target) = file["symlink"].as_str() {
                drop(std::fs::remove_file(&path));
                std::os::unix::fs::symlink(self.real(target), &path).unwrap();
            } else {
                std::fs::write(&path, self.real(file["content"].as_str().unwrap())).unwrap();
            }
        }
    }
}
