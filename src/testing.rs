//! Fakes for the seams, as real code: what tests of every layer share.

pub mod decode;
pub mod http;

/// Returns how many random cases a property test runs: 256, or what `PI_NVIM_CASES` says.
pub fn cases() -> u32 {
    std::env::var("PI_NVIM_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(256)
}
