//! Entry types of a session file: one JSON line each.
