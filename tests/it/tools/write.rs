//! Recorded cases of `write`, and of several changes at once.

use super::{harness, null_is_refused};

#[test]
fn write() {
    harness::suite("write.json", null_is_refused);
}

#[test]
fn queue() {
    harness::suite("queue.json", null_is_refused);
}
