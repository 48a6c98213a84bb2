//! A real Neovim for tests: started without a person's settings in folders of its own, driven over msgpack-rpc, watched
//! by conditions and never by sleeping, and gone when the test ends.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pi_nvim::modes::nvim::editor::value::{from_json, to_json};
use pi_nvim::modes::nvim::editor::{Editor, Notification};
use rmpv::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// How long a condition may take to become true. Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(10);

/// How to start it.
#[derive(Default)]
pub(super) struct Options {
    /// Files to put into the working directory: path and content.
    pub(super) files: Vec<(&'static str, String)>,
    /// More environment variables.
    pub(super) env: Vec<(&'static str, String)>,
    /// Lua run before plugins are loaded (`vim.g.pi = ...`).
    pub(super) before: &'static str,
}

/// A running Neovim. Dropping it ends it.
pub(super) struct Nv {
    /// The rpc connection.
    pub(super) editor: Editor,
    /// Holds every folder of this instance.
    pub(super) root: TempDir,
    /// Working directory.
    pub(super) cwd: PathBuf,
    /// Where it also listens.
    pub(super) socket: PathBuf,
    child: Child,
    screen: Arc<Mutex<Screen>>,
    notes: Arc<Mutex<Vec<Notification>>>,
}

/// Returns the Neovim to test with: `PI_NVIM_TEST_NVIM`, else `nvim` on PATH.
pub(super) fn nvim_program() -> PathBuf {
    std::env::var_os("PI_NVIM_TEST_NVIM").map_or_else(|| "nvim".into(), PathBuf::from)
}

pub(super) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Nv {
    /// Starts a plain one.
    pub(super) async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// Starts one with the plugin on its runtime path, the tested binary named by `PI_NVIM_BIN`.
    pub(super) async fn start_with(options: Options) -> Self {
        let root = tempfile::Builder::new().prefix("pinv").tempdir().unwrap();
        let dir = |name: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path.canonicalize().unwrap()
        };
        let cwd = dir("work");
        for (name, content) in &options.files {
            let path = cwd.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let socket = root.path().join("s");
        let mut command = Command::new(nvim_program());
        command
            .args(["--clean", "-n", "-i", "NONE", "--embed", "--headless"])
            .arg("--listen")
            .arg(&socket)
            .args(["--cmd", &format!("set rtp^={}", repository().display())]);
        if !options.before.is_empty() {
            command.args(["--cmd", &format!("lua {}", options.before)]);
        }
        command
            .env_remove("NVIM")
            .env_remove("NVIM_LISTEN_ADDRESS")
            .env("HOME", dir("home"))
            .env("PI_CODING_AGENT_DIR", dir("agent"))
            .env("XDG_CONFIG_HOME", dir("config"))
            .env("XDG_DATA_HOME", dir("data"))
            .env("XDG_STATE_HOME", dir("state"))
            .env("XDG_CACHE_HOME", dir("cache"))
            .env("XDG_RUNTIME_DIR", dir("run"))
            .env("PI_NVIM_BIN", env!("CARGO_BIN_EXE_pi-nvim"))
            .envs(options.env.iter().map(|(key, value)| (*key, value)))
            .current_dir(&cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| {
            panic!(
                "start {}: {error}; set PI_NVIM_TEST_NVIM to a Neovim 0.11 or newer",
                nvim_program().display()
            )
        });
        let (editor, mut inbox) =
            Editor::connect(child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let screen = Arc::new(Mutex::new(Screen::default()));
        let notes = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn({
            let (screen, notes) = (screen.clone(), notes.clone());
            async move {
                while let Some(note) = inbox.recv().await {
                    match note.name.as_str() {
                        "redraw" => screen.lock().redraw(&note.args),
                        _ => notes.lock().push(note),
                    }
                }
            }
        });
        let nv = Self {
            editor,
            root,
            cwd,
            socket,
            child,
            screen,
            notes,
        };
        nv.wait("v:vim_did_enter == 1").await;
        nv
    }

    /// Runs Lua and returns what it returns; `args` is `...`.
    #[track_caller]
    pub(super) fn lua(
        &self,
        code: &str,
        args: serde_json::Value,
    ) -> impl Future<Output = serde_json::Value> + use<> {
        let place = std::panic::Location::caller();
        let (editor, code) = (self.editor.clone(), code.to_owned());
        async move {
            let args = match from_json(&args) {
                Value::Array(args) => args,
                Value::Nil => Vec::new(),
                one => vec![one],
            };
            match editor.change(&code, args).await {
                Ok(value) => to_json(&value),
                Err(error) => panic!("{place}: {error}\nin: {code}"),
            }
        }
    }

    /// Evaluates a Vim expression.
    pub(super) async fn eval(&self, expression: &str) -> serde_json::Value {
        let value = self.editor.call("nvim_eval", vec![expression.into()]).await;
        to_json(&value.unwrap_or_else(|error| panic!("{error}\nin: {expression}")))
    }

    /// Runs an Ex command.
    pub(super) async fn command(&self, command: &str) {
        let done = self.editor.call("nvim_command", vec![command.into()]).await;
        done.unwrap_or_else(|error| panic!("{error}\nin: {command}"));
    }

    /// Types keys, in `<CR>` notation.
    pub(super) async fn keys(&self, keys: &str) {
        let done = self.editor.call("nvim_input", vec![keys.into()]).await;
        done.unwrap_or_else(|error| panic!("{error}\nin: {keys}"));
    }

    /// Waits until a Vim expression is true.
    #[track_caller]
    pub(super) fn wait(&self, expression: &str) -> impl Future<Output = ()> + use<'_> {
        let code = format!(
            "local ok, it = pcall(vim.api.nvim_eval, [==[{expression}]==]) return ok and it ~= 0 and it ~= false and it ~= ''"
        );
        self.wait_lua_inner(code, expression.to_owned(), std::panic::Location::caller())
    }

    /// Waits until Lua returns something true; errors count as not yet.
    #[track_caller]
    pub(super) fn wait_lua(&self, code: &str) -> impl Future<Output = ()> + use<'_> {
        let wrapped = format!("local ok, it = pcall(function() {code} end) return ok and it");
        self.wait_lua_inner(wrapped, code.to_owned(), std::panic::Location::caller())
    }

    async fn wait_lua_inner(
        &self,
        code: String,
        shown: String,
        place: &'static std::panic::Location<'static>,
    ) {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.editor.change(&code, Vec::new()).await;
            let answer = answer.unwrap_or_else(|error| panic!("{place}: {error}\nin: {shown}"));
            if !matches!(answer, Value::Nil | Value::Boolean(false)) {
                return;
            }
            if Instant::now() > end {
                panic!(
                    "{place}: still not true: {shown}\n{}",
                    self.describe().await
                );
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Everything that helps to see why a condition did not come true.
    pub(super) async fn describe(&self) -> String {
        let code = "
            local out = { 'mode ' .. vim.inspect(vim.api.nvim_get_mode()) }
            out[#out + 1] = vim.api.nvim_exec2('messages', { output = true }).output
            for _, win in ipairs(vim.api.nvim_list_wins()) do
              local buf = vim.api.nvim_win_get_buf(win)
              out[#out + 1] = ('== window %d: %s'):format(win, vim.api.nvim_buf_get_name(buf))
              out[#out + 1] = table.concat(vim.api.nvim_buf_get_lines(buf, 0, 60, false), '\\n')
            end
            return table.concat(out, '\\n')";
        match self.editor.change(code, Vec::new()).await {
            Ok(text) => text.as_str().unwrap_or_default().to_owned(),
            Err(error) => error.to_string(),
        }
    }

    /// Lines of a buffer, by number (0: the current one).
    pub(super) async fn lines(&self, buffer: i64) -> Vec<String> {
        let lines = self.editor.read_lines(buffer, 0, None).await.unwrap();
        let text = |line: Vec<u8>| String::from_utf8_lossy(&line).into_owned();
        lines.lines.into_iter().map(text).collect()
    }

    /// The notifications that came so far (other than redraws).
    pub(super) fn notifications(&self) -> Vec<Notification> {
        self.notes.lock().clone()
    }

    /// Attaches a user interface of this size; [`Nv::screen`] then shows it.
    pub(super) async fn attach(&self, columns: u64, rows: u64) {
        let options = Value::Map(vec![
            ("rgb".into(), true.into()),
            ("ext_linegrid".into(), true.into()),
        ]);
        let args = vec![columns.into(), rows.into(), options];
        self.editor.call("nvim_ui_attach", args).await.unwrap();
    }

    /// What the attached user interface shows now, after a redraw.
    pub(super) async fn screen(&self) -> Screen {
        self.command("redraw").await;
        self.screen.lock().clone()
    }

    /// Waits until the screen satisfies a condition.
    pub(super) async fn wait_screen(&self, what: &str, test: impl Fn(&Screen) -> bool) -> Screen {
        let end = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen.lock().clone();
            if test(&screen) {
                return screen;
            }
            assert!(
                Instant::now() < end,
                "the screen never showed {what}:\n{}",
                screen.text()
            );
            tokio::time::sleep(TICK).await;
        }
    }

    /// Asks Neovim to quit and returns how long its process took.
    pub(super) async fn quit(mut self) -> Duration {
        let start = Instant::now();
        // The connection ends under this call: its error says only that.
        self.editor
            .call("nvim_command", vec!["qa!".into()])
            .await
            .ok();
        tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .expect("Neovim ends after :qa!")
            .unwrap();
        start.elapsed()
    }

    /// Kills Neovim as a crash would and waits until it is gone.
    pub(super) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Whether a process is there (and not a zombie).
pub(super) fn alive(pid: i64) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .trim_start()
            .starts_with('Z')
    })
}

/// Waits until a process is gone and returns how long that took.
pub(super) async fn wait_gone(pid: i64) -> Duration {
    let start = Instant::now();
    while alive(pid) {
        assert!(start.elapsed() < PATIENCE, "process {pid} is still there");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    start.elapsed()
}

/// The cells of an attached user interface.
#[derive(Clone, Default)]
pub(super) struct Screen {
    cells: Vec<Vec<(String, u64)>>,
    /// Highlight attributes by id, as Neovim names them.
    attributes: std::collections::BTreeMap<u64, serde_json::Value>,
    /// Row and column.
    pub(super) cursor: (usize, usize),
}

impl Screen {
    /// Rows as text, blanks at their ends removed.
    pub(super) fn rows(&self) -> Vec<String> {
        let row = |cells: &Vec<(String, u64)>| -> String {
            let text: String = cells.iter().map(|(text, _)| text.as_str()).collect();
            text.trim_end().to_owned()
        };
        self.cells.iter().map(row).collect()
    }

    /// The whole screen as text.
    pub(super) fn text(&self) -> String {
        self.rows().join("\n")
    }

    /// Attributes of a cell (`foreground`, `background`, `bold` ...).
    pub(super) fn attributes(&self, row: usize, column: usize) -> serde_json::Value {
        let id = self.cells[row][column].1;
        self.attributes.get(&id).cloned().unwrap_or_default()
    }

    /// Row and column (in cells) where a text stands first.
    pub(super) fn find(&self, needle: &str) -> Option<(usize, usize)> {
        self.cells.iter().enumerate().find_map(|(row, cells)| {
            let text: String = cells.iter().map(|(text, _)| text.as_str()).collect();
            let at = text.find(needle)?;
            let mut bytes = 0;
            let column = cells.iter().position(|(text, _)| {
                let here = bytes >= at;
                bytes += text.len();
                here
            });
            Some((row, column?))
        })
    }

    fn redraw(&mut self, batches: &[Value]) {
        for batch in batches {
            let Some([kind, calls @ ..]) = batch.as_array().map(Vec::as_slice) else {
                continue;
            };
            for call in calls {
                self.apply(
                    kind.as_str().unwrap_or(""),
                    call.as_array().map_or(&[], Vec::as_slice),
                );
            }
        }
    }

    fn apply(&mut self, kind: &str, args: &[Value]) {
        let number = |i: usize| args.get(i).and_then(Value::as_i64).unwrap_or(0);
        let size = |i: usize| usize::try_from(number(i)).unwrap_or(0);
        match kind {
            "grid_resize" => {
                self.cells = vec![vec![(" ".to_owned(), 0); size(1)]; size(2)];
            }
            "grid_clear" => self
                .cells
                .iter_mut()
                .flatten()
                .for_each(|cell| *cell = (" ".into(), 0)),
            "hl_attr_define" => {
                self.attributes
                    .insert(number(0).unsigned_abs(), to_json(&args[1]));
            }
            "grid_cursor_goto" => self.cursor = (size(1), size(2)),
            "grid_line" => self.line(size(1), size(2), args[3].as_array().unwrap()),
            "grid_scroll" => {
                let (top, bottom, left, right) = (size(1), size(2), size(3), size(4));
                let by = number(5);
                let steps = usize::try_from(by.abs()).unwrap();
                let mut shift = |to: usize, from: usize| {
                    let moved = self.cells[from][left..right].to_vec();
                    self.cells[to][left..right].clone_from_slice(&moved);
                };
                if by > 0 {
                    (top..bottom - steps).for_each(|row| shift(row, row + steps));
                } else {
                    (top + steps..bottom)
                        .rev()
                        .for_each(|row| shift(row, row - steps));
                }
            }
            _ => {}
        }
    }

    fn line(&mut self, row: usize, mut column: usize, runs: &[Value]) {
        let mut attribute = 0;
        for run in runs {
            let run = run.as_array().unwrap();
            let text = run[0].as_str().unwrap_or(" ").to_owned();
            attribute = run.get(1).and_then(Value::as_u64).unwrap_or(attribute);
            for _ in 0..run.get(2).and_then(Value::as_u64).unwrap_or(1) {
                self.cells[row][column] = (text.clone(), attribute);
                column += 1;
            }
        }
    }
}
