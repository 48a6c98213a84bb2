//! Fakes for the seams, as real code: what tests of every layer share.

pub mod http;
