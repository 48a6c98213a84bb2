//! The Neovim face against a real Neovim.

mod attention;
mod changes;
mod chat;
mod commands;
mod edit;
mod editor;
mod errors;
mod harness;
mod health;
mod help;
mod life;
mod model;
mod models;
mod order;
mod place;
mod prompt;
mod review;
mod seed;
mod sessions;
mod tree;
mod trust;
