//! Tests of the area `tools`.
