//! One conversation: the runtime that ties the loop, the store and the faces together.
//!
//! Entry points: [`Runtime`] (the handle every face holds), [`RuntimeConfig`], and its language, [`protocol`].

pub mod branch_summary;
pub mod compaction;
pub mod export;
pub mod fork;
pub mod listing;
pub mod opener;
pub mod projection;
pub mod protocol;
pub mod runtime;
pub mod search;
pub mod stats;
pub mod store;
pub mod tree;
pub mod tree_view;
pub mod wire;

pub use opener::{Desk, Opener, ToolChoice, Wish};
pub use protocol::{Command, CommandError, Event, NoticeLevel};
pub use runtime::{Models, Runtime, RuntimeConfig, ScopedModels, SessionChoice};
