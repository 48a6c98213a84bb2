//! Tests of the area `providers`.

mod choice;
mod compare;
mod keys;
mod local;
mod support;
mod transport;
mod units;
mod wire;
