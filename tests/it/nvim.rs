//! The Neovim face against a real Neovim.

mod changes;
mod chat;
mod editor;
mod errors;
mod harness;
mod health;
mod help;
mod life;
mod model;
mod order;
mod review;
mod tree;
mod trust;
