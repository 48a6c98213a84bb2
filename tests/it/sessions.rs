//! Tests of the area `sessions`.
