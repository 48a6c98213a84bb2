//! Tests of the area `rpc`.
