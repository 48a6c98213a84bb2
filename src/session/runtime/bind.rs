//! Binds extensions to the session: what they may reach, when they hear that it begins, and the wire of its requests.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::core::Core;
use super::state::describe;
use crate::ai::Model;
use crate::ai::tap::{MaybeTap, Tap, TapPoint};
use crate::extensions::{Discovered, Hooks, Port, Reason};
use crate::resources::Resources;
use crate::session::protocol::{Event, NoticeLevel};

/// The session as extensions reach it. It does not keep the session alive.
struct SessionPort(Weak<Core>);

impl Port for SessionPort {
    fn report(&self, path: &str, event: &str, error: &str) {
        if let Some(core) = self.0.upgrade() {
            core.tell(Event::ExtensionError {
                path: path.to_owned(),
                event: event.to_owned(),
                error: error.to_owned(),
            });
        }
    }

    fn show(&self, record: Value) {
        if let Some(core) = self.0.upgrade() {
            core.tell(Event::ExtensionUi { record });
        }
    }

    fn has_ui(&self) -> bool {
        self.0.upgrade().is_some_and(|core| core.config.has_ui)
    }

    fn append_entry(&self, custom_type: &str, data: Option<Value>) -> Result<(), String> {
        let core = self.0.upgrade().ok_or("the session is over")?;
        core.with(|state| {
            let stored = state.session.append_custom(custom_type, data);
            state.tell_notices(&core);
            let id = stored.map_err(|error| describe(&error))?;
            state.tell_entry(&core, &id);
            Ok(())
        })
    }
}

/// Gives extensions their way to the session.
pub(super) fn attach(core: &Arc<Core>) {
    let port = SessionPort(Arc::downgrade(core));
    core.config.hooks.attach(Arc::new(port));
}

/// Tells extensions that the session begins, and takes in the resources they bring.
pub(super) async fn begin(core: &Core, reason: Reason, previous: Option<&std::path::PathBuf>) {
    core.config.hooks.session_start(reason, previous).await;
    // A session in the same process keeps what was found at its start.
    if matches!(reason, Reason::Startup | Reason::Reload) {
        discover(core, reason).await;
    }
}

async fn discover(core: &Core, reason: Reason) {
    let hooks = &core.config.hooks;
    if !hooks.wants("resources_discover") {
        return;
    }
    let cwd = core.with(|state| state.cwd.clone());
    let found = hooks.resources_discover(&cwd, reason).await;
    if found == Discovered::default() {
        return;
    }
    let mut options = core.config.load.clone();
    options.flags.skills.extend(found.skills);
    options.flags.prompt_templates.extend(found.prompts);
    let before = core.with(|state| state.resources.settings.clone());
    let load = move || {
        options.trust = options
            .trust_rules
            .again(&options.places, &options.cwd, options.trust);
        Resources::reload(&options, before)
    };
    let loaded = tokio::task::spawn_blocking(load).await;
    core.with(|state| match loaded {
        Ok(resources) => {
            let known = &state.resources.diagnostics;
            let new = resources
                .diagnostics
                .iter()
                .filter(|it| !known.contains(it));
            for diagnostic in new {
                core.notice(NoticeLevel::Warning, diagnostic.message.clone());
            }
            state.resources = resources;
        }
        Err(error) => core.notice(NoticeLevel::Warning, describe(&error)),
    });
}

/// Lets extensions look at requests on their way.
struct Wire(Arc<dyn Hooks>);

fn event_at(point: TapPoint) -> &'static str {
    match point {
        TapPoint::Headers => "before_provider_headers",
        TapPoint::Payload => "before_provider_request",
        TapPoint::Response => "after_provider_response",
        TapPoint::StreamEvent => "provider_stream_event",
    }
}

#[async_trait]
impl Tap for Wire {
    fn wants(&self, at: TapPoint) -> bool {
        self.0.wants(event_at(at))
    }

    async fn headers(&self, headers: Map<String, Value>) -> Map<String, Value> {
        self.0.provider_headers(headers).await
    }

    async fn payload(&self, payload: Value) -> Value {
        self.0.provider_request(payload).await
    }

    async fn response(&self, status: u16, headers: Map<String, Value>) {
        let kind = event_at(TapPoint::Response);
        let record = json!({"type": kind, "status": status, "headers": headers});
        self.0.observe(&record).await;
    }

    async fn stream_event(&self, model: &Model, data: Value) {
        let record = json!({
            "type": event_at(TapPoint::StreamEvent), "provider": model.provider, "api": model.api,
            "model": model.id, "data": data,
        });
        self.0.observe(&record).await;
    }
}

/// Returns what lets extensions look at a request; none when none wants to.
pub(super) fn tap(hooks: &Arc<dyn Hooks>) -> MaybeTap {
    let points = [
        TapPoint::Headers,
        TapPoint::Payload,
        TapPoint::Response,
        TapPoint::StreamEvent,
    ];
    match points.into_iter().any(|point| hooks.wants(event_at(point))) {
        true => MaybeTap::new(Arc::new(Wire(Arc::clone(hooks)))),
        false => MaybeTap::default(),
    }
}
