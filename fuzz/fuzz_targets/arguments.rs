//! See `pi_nvim::tools::fuzz::arguments`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pi_nvim::tools::fuzz::arguments(data));
