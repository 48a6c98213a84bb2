//! The review gate over real files, a fake editor and a person made of code.

mod cells;
mod desk;
mod modes;
mod random;
mod runtime_random;
mod scenarios;
mod upsets;
