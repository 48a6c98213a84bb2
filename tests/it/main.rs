//! All integration tests in one binary: it links once.
#![allow(
    unreachable_pub,
    missing_docs,
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests"
)]

mod architecture;
mod conformance;
mod docs;
mod gate;
mod hooks;
mod nvim;
mod providers;
mod resources;
mod rpc;
mod sessions;
mod tools;
