//! Session folders: where sessions lie, which there are, which was used last.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use super::store::{Header, load};
use crate::entry::Line;

/// A header is looked for in this many bytes.
const HEADER_LIMIT: u64 = 1 << 20;

/// Returns the name of the folder that holds the sessions of a working directory.
pub fn dir_name(cwd: &Path) -> String {
    let absolute = std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned());
    let mut parts = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    let text = parts.to_string_lossy();
    let inner = text.strip_prefix(['/', '\\']).unwrap_or(&text);
    format!("--{}--", inner.replace(['/', '\\', ':'], "-"))
}

/// Returns the folder that holds the sessions of a working directory.
pub fn default_dir(agent_dir: &Path, cwd: &Path) -> PathBuf {
    agent_dir.join("sessions").join(dir_name(cwd))
}

/// Reads the header of a file without reading more than needed; `None` when it is no session.
pub fn read_header(path: &Path) -> Option<Header> {
    let file = File::open(path).ok()?;
    let mut header = None;
    load::lines(file.take(HEADER_LIMIT), 0, |_, line, _| {
        match Line::read(line) {
            Line::Nothing => true,
            Line::Header(fields) => {
                header = Header::from_fields(fields);
                false
            }
            Line::Entry(_) | Line::Stray => false,
        }
    })
    .ok()?;
    header
}
