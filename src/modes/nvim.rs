//! The Neovim face: a bridge to the Lua plugin over msgpack-rpc.
//!
//! [`editor`] is the adapter to the running Neovim.

pub mod editor;
pub mod review_view;
pub mod workspace;
