//! Tests of the area `providers`.
