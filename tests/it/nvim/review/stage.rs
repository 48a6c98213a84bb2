//! A Neovim, the real gate over it, and a model that proposes what a test says.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use pi_nvim::agent::{ToolError, ToolOutput};
use pi_nvim::ai::Block;
use pi_nvim::modes::nvim::editor::Editor;
use pi_nvim::modes::nvim::face::{Panel as _, Request};
use pi_nvim::modes::nvim::outbox::Outbox;
use pi_nvim::modes::nvim::review_view::{Limits, ReviewView};
use pi_nvim::modes::nvim::workspace::EditorWorkspace;
use pi_nvim::review::gate::{Gate, GateConfig, Reviewer};
use pi_nvim::review::{Change, ChangeResult, ChangeTool, Planned, ReviewMode};
use pi_nvim::workspace::disk::DiskWorkspace;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::harness::{Nv, Options};

pub(super) struct Stage {
    pub(super) nv: Nv,
    pub(super) gate: Gate,
    /// Lines that were answered with an error.
    errors: Arc<Mutex<Vec<String>>>,
    calls: Mutex<usize>,
}

/// A proposed change that is under way.
pub(super) struct Call {
    result: JoinHandle<ChangeResult>,
    pub(super) cancel: CancellationToken,
}

impl Stage {
    pub(super) async fn start(files: &[(&'static str, &str)]) -> Self {
        Self::start_with(files, "", ReviewMode::Ask).await
    }

    pub(super) async fn start_with(
        files: &[(&'static str, &str)],
        before: &'static str,
        mode: ReviewMode,
    ) -> Self {
        let files = files
            .iter()
            .map(|(name, text)| (*name, (*text).to_owned()))
            .collect();
        let options = Options {
            files,
            before,
            ..Options::default()
        };
        let nv = Nv::start_with(options).await;
        let (editor, mut inbox) = Editor::connect_path(&nv.socket).await.unwrap();
        let workspace = Arc::new(EditorWorkspace::new(
            editor.clone(),
            DiskWorkspace::default(),
        ));
        let gate = Gate::new(GateConfig {
            reviewer: Reviewer::Person,
            mode,
            state_dir: Some(nv.root.path().join("gate")),
            ..GateConfig::new(workspace.clone(), &nv.cwd)
        });
        let outbox = Outbox::default();
        let view = ReviewView::new(
            gate.clone(),
            workspace,
            &nv.cwd,
            outbox.clone(),
            Limits::default(),
        );
        tokio::spawn(view.clone().run());
        tokio::spawn(outbox.run(editor.clone()));
        let errors = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn({
            let errors = errors.clone();
            async move {
                while let Some(note) = inbox.recv().await {
                    let Some(request) = Request::parse(&note) else {
                        continue;
                    };
                    if request.name == "review"
                        && let Err(line) = view.request(request).await
                    {
                        errors.lock().push(line);
                    }
                }
            }
        });
        let info = editor.call("nvim_get_api_info", vec![]).await.unwrap();
        let channel = info.as_array().unwrap()[0].as_i64().unwrap();
        nv.lua("require('pi.rpc').connect(...)", json!([channel]))
            .await;
        Self {
            nv,
            gate,
            errors,
            calls: Mutex::new(0),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.nv.cwd.join(name)
    }

    pub(super) fn disk(&self, name: &str) -> String {
        String::from_utf8(std::fs::read(self.path(name)).unwrap()).unwrap()
    }

    fn submit(
        &self,
        name: &str,
        tool: ChangeTool,
        plan: impl FnOnce(&[u8]) -> Vec<u8> + Send + 'static,
    ) -> Call {
        let number = {
            let mut calls = self.calls.lock();
            *calls += 1;
            *calls
        };
        let cancel = CancellationToken::new();
        let path_given = name.to_owned();
        let change = Change {
            session: "5e551017".into(),
            call_id: format!("call-{number}"),
            ancestors: Vec::new(),
            tool,
            path_given: path_given.clone(),
            path: self.path(name),
            plan: Box::new(move |base| {
                Ok(Planned {
                    target: plan(&base.bytes).into(),
                    success: format!("Successfully changed {path_given}"),
                    details: None,
                    edit_lines: Vec::new(),
                })
            }),
            cancel: cancel.clone(),
        };
        let result = tokio::spawn(self.gate.submit(change));
        Call { result, cancel }
    }

    /// The model replaces texts of a file.
    pub(super) fn edit(&self, name: &str, pairs: &[(&str, &str)]) -> Call {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(old, new)| ((*old).to_owned(), (*new).to_owned()))
            .collect();
        self.submit(name, ChangeTool::Edit, move |base| {
            let mut text = String::from_utf8(base.to_vec()).unwrap();
            for (old, new) in &pairs {
                assert!(
                    text.contains(old),
                    "the test edits {old:?}, which is not in {text:?}"
                );
                text = text.replacen(old, new, 1);
            }
            text.into_bytes()
        })
    }

    /// The model writes a whole file.
    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Call {
        let content = content.as_ref().to_vec();
        self.submit(name, ChangeTool::Write, move |_| content)
    }

    /// Waits until Lua knows this many reviewable proposals.
    pub(super) async fn wait_open(&self, count: usize) {
        self.nv
            .wait_lua(&format!(
                "return #require('pi.review.state').with_pending() == {count}"
            ))
            .await;
    }

    /// Waits until nothing is left on the screen.
    pub(super) async fn wait_clear(&self) {
        self.nv
            .wait_lua("return #require('pi.review.state').all() == 0")
            .await;
    }

    /// Types review keys with the prefix in use.
    pub(super) async fn press(&self, keys: &str) {
        self.nv.keys(keys).await;
    }

    /// What is drawn over a buffer: one line per mark of the review.
    pub(super) async fn marks(&self, name: &str) -> Vec<String> {
        let code = "
            local buf = vim.fn.bufnr(...)
            local out = {}
            local ns = vim.api.nvim_get_namespaces()['pi.review']
            for _, m in ipairs(vim.api.nvim_buf_get_extmarks(buf, ns, 0, -1, { details = true })) do
              local d = m[4]
              if d.sign_text then out[#out + 1] = ('%d %s'):format(m[2] + 1, vim.trim(d.sign_text)) end
              for _, line in ipairs(d.virt_lines or {}) do
                local text = {}
                for _, chunk in ipairs(line) do text[#text + 1] = chunk[1] end
                local where = d.virt_lines_above and 'above' or 'below'
                out[#out + 1] = ('%s %d: %s'):format(where, m[2] + 1, (table.concat(text):gsub('%s+$', '')))
              end
            end
            return out";
        let marks = self.nv.lua(code, json!([name])).await;
        match marks {
            Value::Array(lines) => lines
                .iter()
                .map(|line| line.as_str().unwrap().to_owned())
                .collect(),
            _ => Vec::new(),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(
                *self.errors.lock(),
                Vec::<String>::new(),
                "messages that were not understood"
            );
        }
    }
}

impl Call {
    pub(super) async fn result(self) -> Result<ToolOutput, ToolError> {
        self.result.await.unwrap()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.result.is_finished()
    }

    /// Text of a success.
    pub(super) async fn text(self) -> String {
        let output = self.result().await.unwrap();
        assert!(!output.is_error, "{output:?}");
        text_of(&output)
    }

    /// Text of a failure.
    pub(super) async fn refusal(self) -> String {
        match self.result().await {
            Ok(output) => {
                assert!(output.is_error, "{output:?}");
                text_of(&output)
            }
            Err(error) => error.message,
        }
    }
}

fn text_of(output: &ToolOutput) -> String {
    let text = |block: &Block| match block {
        Block::Text(text) => text.text.clone(),
        other => format!("{other:?}"),
    };
    output.content.iter().map(text).collect()
}

impl Stage {
    /// Accepts everything open, as another face would.
    pub(super) fn gate_accept_all(&self) {
        let action = pi_nvim::review::ReviewAction::AcceptAll { session: None };
        self.gate.act(action).unwrap();
    }
}

impl Stage {
    /// Waits for a line that something could not be done, and takes it.
    pub(super) async fn expect_error(&self, part: &str) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            let found = {
                let mut errors = self.errors.lock();
                let at = errors.iter().position(|line| line.contains(part));
                at.map(|at| errors.remove(at))
            };
            if found.is_some() {
                return;
            }
            assert!(
                std::time::Instant::now() < deadline,
                "no error says {part:?}"
            );
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}
