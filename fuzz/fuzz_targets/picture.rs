//! See `pi_nvim::tools::fuzz::picture`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pi_nvim::tools::fuzz::picture(data));
