//! A session as it stood at one moment, for work that takes long: exports, counts, searches.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Session, StoreError, SystemStamps};

/// A copy of the index over the same text: reading it needs no lock and sees nothing of what is appended later. It cannot
/// be appended to. What it counts ([`Session::stats`]) the session knows too.
#[derive(Debug)]
pub struct Snapshot(Session);

impl Deref for Snapshot {
    type Target = Session;
    fn deref(&self) -> &Session {
        &self.0
    }
}

impl Session {
    /// Copies the index; the text stays where it is. Takes milliseconds for a hundred thousand entries.
    ///
    /// # Errors
    /// [`StoreError::Read`] when the system gives no second handle on the file.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let disk = match &self.disk {
            Some(disk) => Some(disk.frozen().map_err(|source| StoreError::Read {
                path: disk.path.clone(),
                source,
            })?),
            None => None,
        };
        Ok(Snapshot(Self {
            header: self.header.clone(),
            cwd: self.cwd.clone(),
            dir: self.dir.clone(),
            disk,
            slots: self.slots.clone(),
            index: self.index.clone(),
            pending: self.pending.clone(),
            leaf: self.leaf,
            labels: self.labels.clone(),
            name: self.name.clone(),
            away: self.away,
            foreign: self.foreign,
            notices: Vec::new(),
            stamps: Box::new(SystemStamps),
            cache: Mutex::new(None),
            stats: Arc::clone(&self.stats),
            load: self.load,
        }))
    }
}
