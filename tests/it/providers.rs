//! Tests of the area `providers`.

mod choice;
mod compare;
mod support;
mod units;
mod wire;
