//! extensions
