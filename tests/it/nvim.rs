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
mod place;
mod review;
mod seed;
mod sessions;
mod tree;
mod trust;
