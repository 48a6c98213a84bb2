//! Where ids and times come from; tests put their own in place.

use uuid::Uuid;

/// A source of ids and times.
pub trait Stamps: Send + Sync {
    /// Unix milliseconds now.
    fn now_ms(&mut self) -> i64;
    /// A candidate for an entry id.
    fn entry_id(&mut self) -> String;
    /// A longer candidate, taken when short ones keep colliding.
    fn long_entry_id(&mut self) -> String {
        Uuid::new_v4().to_string()
    }
    /// A session id.
    fn session_id(&mut self) -> String;
}

/// The system's clock and random ids.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemStamps;

impl Stamps for SystemStamps {
    fn now_ms(&mut self) -> i64 {
        jiff::Timestamp::now().as_millisecond()
    }

    fn entry_id(&mut self) -> String {
        let mut id = Uuid::new_v4().simple().to_string();
        id.truncate(8);
        id
    }

    fn session_id(&mut self) -> String {
        // The crate's shared context keeps these ascending within the process.
        Uuid::now_v7().to_string()
    }
}
