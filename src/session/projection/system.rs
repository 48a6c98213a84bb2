//! System messages folded into the current one; the rules are those of every request.

pub use crate::ai::transcript::system::{rendered, replay};
