//! Reviews in a real Neovim: files seen through buffers, commits, hunks on the screen, keys.

mod gate;
mod scenarios;
mod stage;
mod upsets;
mod view;
mod workspace;
