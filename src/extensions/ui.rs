//! What extensions show and ask: Pi's extension UI protocol, from the side of the extension.
//!
//! Entry point: [`Ui`]. A dialog is a record to the face and the wait for its answer. It ends with its default when the
//! face gives it up, when its time is over, when its token fires, when there is no face that answers, and when the
//! session ends: a dialog never hangs. Several may be open at once; `ui_prompt_start` and `ui_prompt_end` are told of
//! the outermost one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{Port, put};

/// How long a dialog waits, and what gives it up.
#[derive(Clone, Debug, Default)]
pub struct DialogOptions {
    /// The default is given after this time; without it the dialog waits for the person.
    pub timeout: Option<Duration>,
    /// Gives the dialog up.
    pub cancel: CancellationToken,
}

/// Where a widget stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Above the place where a person types.
    AboveEditor,
    /// Below it.
    BelowEditor,
}

/// Hears the beginning and the end of the outermost dialog.
type OnPrompt = Box<dyn Fn(Value) + Send + Sync>;

/// Dialogs and notes of the extensions of one session. Clones share them.
#[derive(Clone, Default)]
pub struct Ui {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    on_prompt: Mutex<Option<OnPrompt>>,
}

#[derive(Default)]
struct State {
    port: Option<Arc<dyn Port>>,
    /// Dialogs that wait, by the id of their request.
    open: HashMap<String, oneshot::Sender<Value>>,
    /// How many wait.
    depth: usize,
    /// Kind and title of the outermost dialog, while any is open.
    outermost: Option<(&'static str, String)>,
}

impl Ui {
    pub(super) fn attach(&self, port: Arc<dyn Port>, on_prompt: OnPrompt) {
        self.shared.state.lock().port = Some(port);
        *self.shared.on_prompt.lock() = Some(on_prompt);
    }

    /// Takes an answer of the face. One that belongs to no open dialog is dropped.
    pub fn answer(&self, record: &Value) {
        let Some(id) = record.get("id").and_then(Value::as_str) else {
            return;
        };
        let waiting = self.shared.state.lock().open.remove(id);
        if let Some(waiting) = waiting {
            // The dialog may be over already.
            drop(waiting.send(record.clone()));
        }
    }

    /// Ends all open dialogs with their defaults. Later ones wait for answers again.
    pub fn close_all(&self) {
        self.shared.state.lock().open.clear();
    }

    /// The face answers no more: open dialogs end with their defaults, and later ones at once.
    pub fn gone(&self) {
        let mut state = self.shared.state.lock();
        state.port = None;
        state.open.clear();
    }

    /// Lets a person choose one of the options; `None`: none was chosen.
    pub async fn select(
        &self,
        title: &str,
        options: &[String],
        how: DialogOptions,
    ) -> Option<String> {
        let fields = json!({"title": title, "options": options});
        let answer = self.ask("select", title, fields, how).await?;
        text(&answer)
    }

    /// Asks yes or no; anything but a yes is no.
    pub async fn confirm(&self, title: &str, message: &str, how: DialogOptions) -> bool {
        let fields = json!({"title": title, "message": message});
        let answer = self.ask("confirm", title, fields, how).await;
        let confirmed = answer.and_then(|answer| answer.get("confirmed")?.as_bool());
        confirmed.unwrap_or(false)
    }

    /// Asks for a line; `None`: given up.
    pub async fn input(
        &self,
        title: &str,
        placeholder: Option<&str>,
        how: DialogOptions,
    ) -> Option<String> {
        let mut fields = json!({"title": title});
        if let Some(placeholder) = placeholder {
            put(&mut fields, "placeholder", placeholder);
        }
        let answer = self.ask("input", title, fields, how).await?;
        text(&answer)
    }

    /// Lets a person edit a text, for as long as it takes; `None`: given up.
    pub async fn editor(
        &self,
        title: &str,
        prefill: Option<&str>,
        cancel: CancellationToken,
    ) -> Option<String> {
        let mut fields = json!({"title": title});
        if let Some(prefill) = prefill {
            put(&mut fields, "prefill", prefill);
        }
        let how = DialogOptions {
            timeout: None,
            cancel,
        };
        let answer = self.ask("editor", title, fields, how).await?;
        text(&answer)
    }

    /// Shows a line; `kind` is `info`, `warning` or `error`.
    pub fn notify(&self, message: &str, kind: Option<&str>) {
        self.show(
            "notify",
            [
                ("message", Some(message.into())),
                ("notifyType", kind.map(Value::from)),
            ],
        );
    }

    /// Sets a text of the status line; `None` clears it.
    pub fn set_status(&self, key: &str, text: Option<&str>) {
        self.show(
            "setStatus",
            [
                ("statusKey", Some(key.into())),
                ("statusText", text.map(Value::from)),
            ],
        );
    }

    /// Shows lines beside the place where a person types; `None` clears them.
    pub fn set_widget(&self, key: &str, lines: Option<&[String]>, at: Option<Placement>) {
        let at = at.map(|at| match at {
            Placement::AboveEditor => "aboveEditor",
            Placement::BelowEditor => "belowEditor",
        });
        self.show(
            "setWidget",
            [
                ("widgetKey", Some(key.into())),
                ("widgetLines", lines.map(Value::from)),
                ("widgetPlacement", at.map(Value::from)),
            ],
        );
    }

    /// Sets the title of the window.
    pub fn set_title(&self, title: &str) {
        self.show("setTitle", [("title", Some(title.into()))]);
    }

    /// Sets what stands where a person types.
    pub fn set_editor_text(&self, text: &str) {
        self.show("set_editor_text", [("text", Some(text.into()))]);
    }

    fn show<const N: usize>(&self, method: &str, fields: [(&str, Option<Value>); N]) {
        let port = self.shared.state.lock().port.clone();
        if let Some(port) = port.filter(|port| port.has_ui()) {
            let fields = fields.into_iter();
            let fields = fields.filter_map(|(name, value)| Some((name.to_owned(), value?)));
            port.show(request(&new_id(), method, fields));
        }
    }

    /// Sends a dialog and waits; `None` for everything that is no answer.
    async fn ask(
        &self,
        method: &'static str,
        title: &str,
        fields: Value,
        how: DialogOptions,
    ) -> Option<Value> {
        let DialogOptions { timeout, cancel } = how;
        if cancel.is_cancelled() {
            return None;
        }
        let id = new_id();
        let (sender, answered) = oneshot::channel();
        let port = {
            let mut state = self.shared.state.lock();
            let port = state.port.clone().filter(|port| port.has_ui())?;
            state.open.insert(id.clone(), sender);
            port
        };
        // Also when the one who waits is dropped.
        let _open = Open::begin(self, id.clone(), method, title);
        let mut fields = fields.as_object().cloned().unwrap_or_default();
        if let Some(timeout) = timeout {
            let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            fields.insert("timeout".to_owned(), millis.into());
        }
        port.show(request(&id, method, fields));
        let answer = tokio::select! {
            biased;
            // An error says that all dialogs were closed.
            answer = answered => answer.ok(),
            () = cancel.cancelled() => None,
            () = after(timeout) => None,
        }?;
        (answer.get("cancelled") != Some(&Value::Bool(true))).then_some(answer)
    }
}

/// Keeps a dialog in the books for as long as it is open.
struct Open<'a> {
    ui: &'a Ui,
    id: String,
}

impl<'a> Open<'a> {
    fn begin(ui: &'a Ui, id: String, kind: &'static str, title: &str) -> Self {
        let first = {
            let mut state = ui.shared.state.lock();
            state.depth += 1;
            let first = state.outermost.is_none();
            if first {
                state.outermost = Some((kind, title.to_owned()));
            }
            first
        };
        if first {
            ui.tell("ui_prompt_start", kind, title);
        }
        Self { ui, id }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let over = {
            let mut state = self.ui.shared.state.lock();
            state.open.remove(&self.id);
            state.depth = state.depth.saturating_sub(1);
            (state.depth == 0).then(|| state.outermost.take()).flatten()
        };
        if let Some((kind, title)) = over {
            self.ui.tell("ui_prompt_end", kind, &title);
        }
    }
}

impl Ui {
    fn tell(&self, event: &str, kind: &str, title: &str) {
        if let Some(on_prompt) = &*self.shared.on_prompt.lock() {
            on_prompt(json!({"type": event, "reason": "ui_prompt", "kind": kind, "title": title}));
        }
    }
}

fn text(answer: &Value) -> Option<String> {
    answer.get("value")?.as_str().map(str::to_owned)
}

fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn request(id: &str, method: &str, fields: impl IntoIterator<Item = (String, Value)>) -> Value {
    let mut record = Map::new();
    record.insert("type".to_owned(), "extension_ui_request".into());
    record.insert("id".to_owned(), id.into());
    record.insert("method".to_owned(), method.into());
    record.extend(fields);
    Value::Object(record)
}

async fn after(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A face that keeps what it is shown.
    #[derive(Default)]
    struct Shown {
        records: Mutex<Vec<Value>>,
        silent: bool,
    }

    impl Port for Shown {
        fn report(&self, _: &str, _: &str, _: &str) {}

        fn show(&self, record: Value) {
            self.records.lock().push(record);
        }

        fn has_ui(&self) -> bool {
            !self.silent
        }

        fn append_entry(&self, _: &str, _: Option<Value>) -> Result<(), String> {
            Ok(())
        }
    }

    struct Fixture {
        ui: Ui,
        shown: Arc<Shown>,
        prompts: Arc<Mutex<Vec<String>>>,
    }

    fn fixture(silent: bool) -> Fixture {
        let (ui, prompts) = (Ui::default(), Arc::new(Mutex::new(Vec::new())));
        let shown = Arc::new(Shown {
            silent,
            ..Shown::default()
        });
        let heard = Arc::clone(&prompts);
        ui.attach(
            Arc::clone(&shown) as Arc<dyn Port>,
            Box::new(move |record| {
                let line = format!("{} {}", record["type"], record["kind"]);
                heard.lock().push(line.replace('"', ""));
            }),
        );
        Fixture { ui, shown, prompts }
    }

    impl Fixture {
        /// Waits for a request and answers it.
        async fn answer(&self, at: usize, answer: Value) -> Value {
            loop {
                let record = self.shown.records.lock().get(at).cloned();
                if let Some(record) = record {
                    let mut full = answer;
                    full["id"] = record["id"].clone();
                    self.ui.answer(&full);
                    return record;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    fn options(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test]
    async fn answers_end_dialogs_and_nested_ones_are_one_prompt() {
        let fixture = fixture(false);
        let names = options(&["x", "y"]);
        let asking = async {
            tokio::join!(
                fixture.ui.select("Pick", &names, DialogOptions::default()),
                fixture
                    .ui
                    .confirm("Sure?", "Really", DialogOptions::default()),
            )
        };
        let answering = async {
            let second = fixture.answer(1, json!({"confirmed": true})).await;
            let first = fixture.answer(0, json!({"value": "y"})).await;
            (first, second)
        };
        let ((picked, sure), (first, second)) = tokio::join!(asking, answering);
        assert_eq!((picked.as_deref(), sure), (Some("y"), true));
        assert_eq!(first["options"], json!(["x", "y"]));
        assert_eq!(
            (&second["method"], &second["message"]),
            (&json!("confirm"), &json!("Really"))
        );
        assert_eq!(
            *fixture.prompts.lock(),
            ["ui_prompt_start select", "ui_prompt_end select"]
        );
        // Nobody waits for it any more.
        fixture.ui.answer(&first);
    }

    #[tokio::test(start_paused = true)]
    async fn time_cancellation_odd_answers_and_the_end_give_the_default() {
        let fixture = fixture(false);
        let ui = &fixture.ui;
        let soon = DialogOptions {
            timeout: Some(Duration::from_secs(60)),
            ..DialogOptions::default()
        };
        assert_eq!(ui.input("Name", Some("hint"), soon).await, None);
        assert_eq!(fixture.shown.records.lock()[0]["timeout"], 60_000);
        let how = DialogOptions::default();
        let token = how.cancel.clone();
        let (sure, ()) = tokio::join!(ui.confirm("a", "b", how), async { token.cancel() });
        assert!(!sure);
        let given_up = DialogOptions {
            cancel: token,
            ..DialogOptions::default()
        };
        assert!(!ui.confirm("a", "b", given_up).await);
        for answer in [
            json!({"cancelled": true, "value": "x"}),
            json!({}),
            json!({"value": 7}),
        ] {
            let at = fixture.shown.records.lock().len();
            let asked = ui.editor("Edit", Some("pre"), CancellationToken::new());
            let (text, record) = tokio::join!(asked, fixture.answer(at, answer));
            assert_eq!((text, &record["prefill"]), (None, &json!("pre")));
        }
        let names = options(&["x"]);
        let (none, ()) = tokio::join!(ui.select("Pick", &names, DialogOptions::default()), async {
            ui.close_all();
        });
        assert_eq!(none, None);
        ui.gone();
        assert!(!ui.confirm("a", "b", DialogOptions::default()).await);
        assert!(ui.shared.state.lock().open.is_empty());
        let starts = fixture.prompts.lock().len();
        assert_eq!(starts % 2, 0, "every start has its end");
    }

    #[tokio::test]
    async fn without_a_face_that_answers_nothing_is_shown() {
        let fixture = fixture(true);
        let asked = fixture.ui.confirm("a", "b", DialogOptions::default()).await;
        fixture.ui.notify("x", Some("warning"));
        assert!(!asked && fixture.shown.records.lock().is_empty());
        assert!(fixture.prompts.lock().is_empty());
    }
}
