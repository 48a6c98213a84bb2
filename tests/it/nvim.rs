//! The Neovim face against a real Neovim.

mod editor;
mod harness;
mod help;
mod review;
