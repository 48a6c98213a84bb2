//! One-shot text and JSON events.
