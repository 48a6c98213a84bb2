//! JSONL over stdio.
