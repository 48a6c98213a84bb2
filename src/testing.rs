//! Fakes for the seams, as real code: what tests of every layer share.

pub mod decode;
pub mod http;

/// Kills this process, as `SIGKILL` does, when it passes the moment that `PI_NVIM_TEST_DIE_AT` names: `moment`, or
/// `moment:3` for the third time it comes by. Tests of real processes use it to die exactly between two steps.
pub fn pass(moment: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicI64, Ordering};

    static WANTED: LazyLock<Option<(String, AtomicI64)>> = LazyLock::new(|| {
        let wanted = std::env::var("PI_NVIM_TEST_DIE_AT").ok()?;
        let (name, count) = wanted.split_once(':').unwrap_or((&wanted, "1"));
        Some((name.to_owned(), AtomicI64::new(count.parse().unwrap_or(1))))
    });
    let Some((name, left)) = &*WANTED else { return };
    if name == moment && left.fetch_sub(1, Ordering::Relaxed) == 1 {
        // A process that may not kill itself goes on, and the test that waits for its death says so.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .ok();
    }
}

/// Returns how many random cases a property test runs: 256, or what `PI_NVIM_CASES` or `PROPTEST_CASES` says.
pub fn cases() -> u32 {
    ["PI_NVIM_CASES", "PROPTEST_CASES"]
        .iter()
        .find_map(|name| std::env::var(name).ok()?.parse().ok())
        .unwrap_or(256)
}
