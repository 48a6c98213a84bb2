//! The session tree: rows for the window, jumps and labels.

use std::sync::Arc;

use super::face::{Answering, Request};
use super::requests::done;
use super::slot::Slot;
use crate::session::Command;
use crate::session::protocol::SummaryWish;

pub(super) fn start(slot: &Arc<Slot>, request: &Request) -> Answering {
    let text = |key: &str| request.text(key).map(str::to_owned);
    match request.name.as_str() {
        "tree.jump" => slot.command(Command::Navigate {
            target: text("entry"),
            summary: match (request.flag("summary"), text("instructions")) {
                (true, Some(instructions)) => SummaryWish::With(instructions),
                (true, None) => SummaryWish::Plain,
                (false, _) => SummaryWish::None,
            },
            label: None,
        }),
        "tree.label" => match text("entry") {
            Some(entry) => slot.command(Command::SetLabel {
                entry,
                label: text("label"),
            }),
            None => done(Err("no entry named".into())),
        },
        "tree.entries" => slot.command(Command::GetEntries { since: None }),
        name => done(Err(format!("the backend knows no request {name}"))),
    }
}
