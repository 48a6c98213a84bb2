//! Faces: each turns its protocol into [`crate::session::Command`] and [`crate::session::Event`], nothing more.

pub mod nvim;
pub mod print;
pub mod rpc;
