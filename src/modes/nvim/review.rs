//! Puts the view of the review between the two sides: its ops into the outbox, its messages from the Lua side.

use std::path::Path;
use std::sync::{Arc, Weak};

use serde_json::Value as Json;

use super::face::{Answering, Panel, Request};
use super::outbox::{Outbox, Source};
use super::review_view::ReviewView;
use super::workspace::EditorWorkspace;
use crate::review::gate::Gate;

struct Review(Arc<ReviewView>);

impl Source for Review {
    fn take(&self) -> Vec<Json> {
        self.0.take_ops()
    }
}

impl Panel for Review {
    fn request(&self, request: Request) -> Answering {
        let view = self.0.clone();
        Box::pin(async move { view.message(request.params).await.map(|()| Json::Null) })
    }
}

/// Starts to follow the gate; returns what takes the person's decisions.
pub(super) fn start(
    gate: Gate,
    workspace: Arc<EditorWorkspace>,
    cwd: &Path,
    outbox: &Outbox,
) -> Arc<dyn Panel> {
    let outbox = outbox.clone();
    let view = Arc::new_cyclic(|view: &Weak<ReviewView>| {
        let view = view.clone();
        ReviewView::new(gate, workspace, cwd, move || {
            if let Some(view) = view.upgrade() {
                outbox.dirty("review", Arc::new(Review(view)));
            }
        })
    });
    // Ends with the gate, that is with the process.
    tokio::spawn(view.clone().run());
    Arc::new(Review(view))
}
