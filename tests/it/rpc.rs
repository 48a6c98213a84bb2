//! Tests of the faces without an editor: every recorded transcript is played again, and what no transcript holds.

mod case;
mod compare;
mod mock;
mod pattern;
mod process;
mod sdk;
mod sessions;
mod wire;
