//! One conversation: the coordinator that ties everything below together.

pub mod protocol;

pub use protocol::{Command, Event};
