//! Fakes for the seams, as real code: what tests of every layer share.

pub mod decode;
pub mod http;

/// Returns how many random cases a property test runs: 256, or what `PI_NVIM_CASES` or `PROPTEST_CASES` says.
pub fn cases() -> u32 {
    ["PI_NVIM_CASES", "PROPTEST_CASES"]
        .iter()
        .find_map(|name| std::env::var(name).ok()?.parse().ok())
        .unwrap_or(256)
}
