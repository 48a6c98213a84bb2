//! The `pi-nvim` binary: arguments, then one mode.
fn main() {}
