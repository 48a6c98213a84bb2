//! A session as a file for others: the active branch as JSONL, the whole session as one HTML page.

mod escape;
mod html;

use std::path::Path;

use super::projection::Entries;
use super::store::{Header, Session, StoreError, disk};
use crate::entry::{EntryId, iso_time};

impl Session {
    /// Returns the active branch as a session file: every entry of the path, chained anew.
    pub fn export_jsonl(&mut self) -> String {
        let mut out = String::new();
        let now = self.now_ms();
        self.export_lines(now, |line| {
            out.push_str(line);
            out.push('\n');
            Ok(())
        })
        // Appending to a text cannot fail.
        .unwrap_or(());
        out
    }

    /// Writes the active branch to a file; folders are made as needed, an existing file is replaced.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub fn export_jsonl_to(&mut self, path: &Path) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.write_jsonl(now, path)
    }

    /// As [`Session::export_jsonl_to`], with the time that the header carries.
    pub(crate) fn write_jsonl(&self, now_ms: i64, path: &Path) -> Result<(), StoreError> {
        disk::export(path, |out| {
            self.export_lines(now_ms, |line| writeln!(out, "{line}"))
        })
    }

    /// Returns the whole session as one HTML page.
    pub fn export_html(&self) -> String {
        let mut out = Vec::new();
        // Writing to memory cannot fail.
        html::write(self, &mut out).unwrap_or(());
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Writes the whole session as one HTML page; folders are made as needed, an existing file is replaced.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub fn export_html_to(&self, path: &Path) -> Result<(), StoreError> {
        disk::export(path, |out| html::write(self, out))
    }

    /// Returns the name of the page when the person gives none.
    pub fn html_name(&self) -> String {
        let base = self.file().and_then(Path::file_stem);
        let base = base.map_or_else(|| self.id_text().into(), |stem| stem.to_string_lossy());
        format!("pi-session-{base}.html")
    }

    /// Returns the name of the JSONL file when the person gives none.
    pub fn jsonl_name(now_ms: i64) -> String {
        let time = iso_time(now_ms).replace([':', '.'], "-");
        format!("session-{time}.jsonl")
    }

    fn export_lines(
        &self,
        now_ms: i64,
        mut write: impl FnMut(&str) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let now = iso_time(now_ms);
        let header = Header::new(self.id_text(), &now, &self.cwd().to_string_lossy(), None);
        write(&header.line())?;
        let mut parent: Option<EntryId> = None;
        for pos in self.path() {
            let Some(entry) = self.entry(pos) else {
                continue;
            };
            // An entry may span lines only if JSON whitespace does: it stood on one line, so it goes on one line.
            write(
                entry
                    .with_parent(parent.as_ref().map(EntryId::as_str))
                    .trim(),
            )?;
            parent = Some(entry.id().clone());
        }
        Ok(())
    }
}
