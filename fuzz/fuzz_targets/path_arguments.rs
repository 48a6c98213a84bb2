//! See `pi_nvim::tools::fuzz::path_arguments`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pi_nvim::tools::fuzz::path_arguments(data));
