//! pi.nvim: the Pi coding agent as a library.
//!
//! Reading order: [`ai`] (models), [`agent`] (the loop), [`workspace`] and [`review`] (files, and what a person decides
//! about them), [`tools`], [`entry`] and [`session`] (the conversation), [`resources`] (settings, skills, prompts),
//! [`extensions`], [`modes`] (faces). `doc/architecture.md` is the plan of the house.

pub mod agent;
pub mod ai;
pub mod entry;
pub mod extensions;
pub mod files;
pub mod modes;
pub mod resources;
pub mod review;
pub mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tools;
pub mod workspace;
