//! Reviews in a real Neovim: files seen through buffers, commits, hunks on the screen, keys.

mod gate;
mod scenarios;
mod stage;
mod view;
mod workspace;
