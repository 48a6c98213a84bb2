//! Tests of the area `providers`.

mod compare;
mod support;
mod wire;
