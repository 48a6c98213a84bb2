//! Tests of the area `providers`.

mod choice;
mod compare;
mod interop;
mod keys;
mod local;
mod proxies;
mod retries;
mod secrets;
mod support;
mod transport;
mod units;
mod wire;
