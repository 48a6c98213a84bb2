//! What answers requests: one module per wire API, and the scripted model.

pub mod scripted;
