//! One conversation: the coordinator that ties everything below together.

pub mod export;
pub mod fork;
pub mod listing;
pub mod projection;
pub mod protocol;
pub mod store;
pub mod tree;

pub use protocol::{Command, Event};
