//! Neovim.
