//! Faces: each turns its protocol into [`crate::session::Command`] and [`crate::session::Event`], nothing more.

pub mod nvim;
pub mod print;
pub mod rpc;

use crate::session::{Event, NoticeLevel};

/// Gives `warn` what a person has to hear of and no protocol carries: warnings, errors, failures of extensions.
fn notice(event: &Event, warn: impl Fn(&str)) {
    match event {
        Event::Notice { level, text } if *level != NoticeLevel::Info => warn(text),
        Event::ExtensionError { path, error, .. } => warn(&format!("{path}: {error}")),
        _ => {}
    }
}
