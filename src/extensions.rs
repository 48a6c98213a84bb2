//! Where extensions hook into a run: one trait, asked by the runtime at each point of `spec/extensions.md` A2.
//!
//! Entry point: [`Hooks`]. Its default methods do nothing, so that a host implements what it has.

pub mod compose;

/// What extensions may do to a session. Every method has a default that changes nothing.
pub trait Hooks: Send + Sync + 'static {}

/// No extensions.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
