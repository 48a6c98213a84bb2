//! The mutation queue.
