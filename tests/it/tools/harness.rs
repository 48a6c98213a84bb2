//! Runs recorded tool cases: sets up their files, runs the calls through the pipeline the loop uses, compares.
//!
//! `tests/conformance/tools/README.md` holds the rules. Entry point: [`suite`]. A case whose note says "non-root" runs on a
//! thread that gave up root's rights when the tests themselves run as root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use futures::future::{BoxFuture, join_all};
use pi_nvim::agent::arguments::ArgumentCheck;
use pi_nvim::agent::{ErrorClass, SessionFacts, Tool, ToolContext, ToolError, ToolOutput};
use pi_nvim::ai::message::ToolCall;
use pi_nvim::ai::{Block, Model};
use pi_nvim::review::gate::{Gate, GateConfig};
use pi_nvim::tools::{ToolEnv, ToolOptions, builtin};
use pi_nvim::workspace::disk::DiskWorkspace;
use pi_nvim::workspace::{Commit, CommitOutcome, FileState, Workspace};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::conformance::{Outcome, Tally, data_dir};

use super::compare;

/// One recorded case.
pub(crate) struct Case(pub(crate) Value);

impl Case {
    pub(crate) fn name(&self) -> &str {
        self.0["name"].as_str().unwrap()
    }

    fn wants_non_root(&self) -> bool {
        self.0["note"]
            .as_str()
            .is_some_and(|note| note.contains("non-root"))
    }

    /// The single call of the case, or its `calls`.
    fn calls(&self) -> Vec<Value> {
        match self.0.get("calls").and_then(Value::as_array) {
            Some(calls) => calls.clone(),
            None => vec![self.0.clone()],
        }
    }
}

/// What one call gave.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Class of a thrown error.
    pub(crate) class: Option<ErrorClass>,
    /// `content`, `details`, `isError`, `structuredContent` as JSON, masked.
    pub(crate) result: Value,
    /// File named by `details.fullOutputPath`, when there is one.
    pub(crate) full_output: Option<PathBuf>,
}

impl Ran {
    /// All text blocks joined.
    pub(crate) fn text(&self) -> String {
        let blocks = self.result["content"].as_array().unwrap();
        blocks
            .iter()
            .filter_map(|block| block["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// A case set up on disk.
pub(crate) struct Setup {
    root: tempfile::TempDir,
    pub(crate) cwd: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) tmp: PathBuf,
    before: BTreeMap<String, Entry>,
    home_before: BTreeMap<String, Entry>,
}

/// One path of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File(Vec<u8>),
    Dir,
    Symlink(PathBuf),
}

/// Decides cases that a plain comparison does not: `None` leaves the case to it.
pub(crate) type Special = fn(&Case, &[Ran], &Setup) -> Option<Outcome>;

/// Runs all cases of `tests/conformance/tools/<file>` and counts them.
pub(crate) fn suite(file: &str, special: Special) {
    suite_of(file, |_| true, special);
}

/// As [`suite`] for the cases that `mine` picks; the others are counted as passed by the suite of their own tool.
pub(crate) fn suite_of(file: &str, mine: fn(&Case) -> bool, special: Special) {
    let mut tally = Tally::new(&format!("tools/{file}"));
    let only = std::env::var("PI_NVIM_CASE").ok();
    let (root_cases, plain): (Vec<_>, Vec<_>) = load(file)
        .into_iter()
        .filter(mine)
        .filter(|case| {
            only.as_deref()
                .is_none_or(|only| case.name().contains(only))
        })
        .partition(|case| case.wants_non_root() && rustix::process::getuid().is_root());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let runs = plain.into_iter().map(|case| async move {
        let outcome = run_and_compare(&case, special).await;
        (case.name().to_owned(), outcome)
    });
    let done: Vec<_> = runtime.block_on(futures::stream::iter(runs).buffered(8).collect());
    for (name, outcome) in done {
        tally.case(&name, outcome);
    }
    for case in root_cases {
        let name = case.name().to_owned();
        let thread = std::thread::spawn(move || {
            give_up_root();
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(run_and_compare(&case, special))
        });
        tally.case(&name, thread.join().unwrap());
    }
    if only.is_none() {
        tally.finish();
    } else {
        tally.finish_partial();
    }
}

/// Takes root's rights from this thread and the threads it will start; other threads keep theirs.
fn give_up_root() {
    use rustix::process::{Gid, Uid};
    let (gid, uid) = (Gid::from_raw(65534), Uid::from_raw(65534));
    rustix::thread::set_thread_groups(&[gid]).unwrap();
    rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
    rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
}

/// Runs something without root's rights, when the tests have them.
pub(crate) fn as_nobody<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if rustix::process::getuid().is_root() {
                give_up_root();
            }
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(work());
        });
        thread.join().unwrap();
    });
}

async fn run_and_compare(case: &Case, special: Special) -> Outcome {
    let setup = Setup::of(case);
    let ran = run(case, &setup).await;
    match special(case, &ran, &setup) {
        Some(outcome) => outcome,
        None => match compare::case(case, &ran, &setup) {
            Ok(()) => Outcome::Pass,
            Err(why) => Outcome::Fail(why),
        },
    }
}

/// Reads a file of cases. Lone surrogate escapes, which a strict parser refuses, become U+FFFD as the provider layer
/// makes them.
pub(crate) fn load(file: &str) -> Vec<Case> {
    let text = fs::read_to_string(data_dir().join("tools").join(file)).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&without_lone_surrogates(&text)).unwrap();
    cases.into_iter().map(Case).collect()
}

fn without_lone_surrogates(text: &str) -> String {
    let unit = |at: usize| {
        let escape = text.get(at..at + 6)?;
        u16::from_str_radix(escape.strip_prefix("\\u")?, 16).ok()
    };
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let (take, lone) = match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => (12, false),
            Some(0xd800..=0xdfff) => (6, true),
            Some(_) => (6, false),
            None if rest.starts_with('\\') => (2, false),
            None => (rest.chars().next().unwrap().len_utf8(), false),
        };
        out.push_str(if lone { "\\ufffd" } else { &rest[..take] });
        at += take;
    }
    out
}

/// Runs the calls of a case as one parallel batch.
pub(crate) async fn run(case: &Case, setup: &Setup) -> Vec<Ran> {
    let tools = builtin(env_of(case, setup));
    let cwd = match case.0["cwd"].as_str() {
        Some(sub) => setup.cwd.join(sub),
        None => setup.cwd.clone(),
    };
    let cancel = CancellationToken::new();
    match case.0["abort_after_ms"].as_u64() {
        Some(0) => cancel.cancel(),
        Some(ms) => {
            let cancel = cancel.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                cancel.cancel();
            });
        }
        None => {}
    }
    let mut started = Vec::new();
    for call in case.calls() {
        started.push(start(&tools, case, &call, &cwd, &cancel, setup));
    }
    join_all(started).await
}

fn start(
    tools: &[Arc<dyn Tool>],
    case: &Case,
    call: &Value,
    cwd: &Path,
    cancel: &CancellationToken,
    setup: &Setup,
) -> BoxFuture<'static, Ran> {
    let name = call["call_name"]
        .as_str()
        .or(call["tool"].as_str())
        .unwrap();
    let call = ToolCall {
        id: "call_1".to_owned(),
        name: name.to_owned(),
        arguments: setup.unmask(&call["args"]),
        arguments_error: call["arguments_error"].as_str().map(str::to_owned),
        ..ToolCall::default()
    };
    let context = ToolContext {
        call_id: call.id.clone(),
        cwd: cwd.to_owned(),
        cancel: cancel.clone(),
        updates: Arc::new(|_| {}),
        session: SessionFacts {
            model: model_of(case).map(Arc::new),
            ..SessionFacts::default()
        },
    };
    let running =
        prepare(tools, &call, cancel).map(|(tool, arguments)| tool.start(arguments, context));
    let masks = setup.masks();
    Box::pin(async move {
        let result = match running {
            Ok(running) => running.await,
            Err(error) => Err(error),
        };
        ran(result, &masks)
    })
}

fn prepare(
    tools: &[Arc<dyn Tool>],
    call: &ToolCall,
    cancel: &CancellationToken,
) -> Result<(Arc<dyn Tool>, Value), ToolError> {
    if cancel.is_cancelled() {
        return Err(ToolError::aborted());
    }
    let tool = tools
        .iter()
        .find(|tool| tool.declaration().name == call.name);
    let Some(tool) = tool else {
        let text = format!("Tool {} not found", call.name);
        return Err(ToolError::new(ErrorClass::UnknownTool, text));
    };
    let arguments = ArgumentCheck::default().prepare(tool.as_ref(), call)?;
    Ok((Arc::clone(tool), arguments))
}

fn ran(result: Result<ToolOutput, ToolError>, masks: &Masks) -> Ran {
    let mut full_output = None;
    let (class, result) = match result {
        Ok(output) => {
            let path = output
                .details
                .as_ref()
                .and_then(|it| it["fullOutputPath"].as_str());
            full_output = path.map(PathBuf::from);
            let mut result = json!({
                "content": output.content, "details": output.details, "isError": output.is_error,
            });
            if let Some(structured) = output.structured_content {
                result["structuredContent"] = structured;
            }
            (None, result)
        }
        Err(error) => {
            let content = json!([{"type": "text", "text": error.message}]);
            (
                Some(error.class),
                json!({"content": content, "details": {}, "isError": true}),
            )
        }
    };
    Ran {
        class,
        result: masks.apply(&result),
        full_output,
    }
}

fn model_of(case: &Case) -> Option<Model> {
    let model = case.0.get("context")?.get("model")?;
    Some(Model {
        id: model["id"].as_str()?.to_owned(),
        input: serde_json::from_value(model["input"].clone()).ok()?,
        input_limits: model.get("inputLimits").cloned(),
        ..Model::default()
    })
}

fn env_of(case: &Case, setup: &Setup) -> ToolEnv {
    let options = case.0.get("options").cloned().unwrap_or_default();
    let text = |key: &str| options.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut extra_env = vec![("HOME".to_owned(), setup.home.display().to_string())];
    if let Some(env) = case.0.get("env").and_then(Value::as_object) {
        let pairs = env
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
        extra_env.extend(pairs);
    }
    let env = test_env(setup);
    env.options.change(|now| {
        now.command_prefix = text("commandPrefix");
        now.shell_path = text("shellPath").map(PathBuf::from);
        now.auto_resize_images = options
            .get("autoResizeImages")
            .and_then(Value::as_bool)
            .unwrap_or(true);
        now.extra_env = extra_env;
    });
    env
}

/// Tools over the plain disk, with the real guard and nobody who reviews.
pub(crate) fn test_env(setup: &Setup) -> ToolEnv {
    ToolEnv {
        workspace: Arc::new(Buffers::default()),
        gate: Gate::new(GateConfig::new(
            Arc::new(DiskWorkspace::default()),
            &setup.cwd,
        )),
        options: ToolOptions {
            home: setup.home.clone(),
            tmp_dir: setup.tmp.clone(),
            guard: Some(PathBuf::from(env!("CARGO_BIN_EXE_pi-nvim"))),
            ..ToolOptions::default()
        }
        .into(),
    }
}

/// A workspace with unsaved buffers over a disk that only the tools themselves read.
#[derive(Default)]
pub(crate) struct Buffers(pub(crate) Vec<(PathBuf, Arc<[u8]>)>);

impl Workspace for Buffers {
    fn state<'a>(&'a self, _path: &'a Path) -> BoxFuture<'a, std::io::Result<FileState>> {
        unimplemented!("these suites change nothing")
    }

    fn unsaved<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Option<Arc<[u8]>>> {
        let found = self.0.iter().find(|(name, _)| name == path);
        let bytes = found.map(|(_, bytes)| Arc::clone(bytes));
        Box::pin(async { bytes })
    }

    fn all_unsaved(&self) -> BoxFuture<'_, Vec<(PathBuf, Arc<[u8]>)>> {
        let all = self.0.clone();
        Box::pin(async { all })
    }

    fn commit(&self, _commit: Commit) -> BoxFuture<'_, CommitOutcome> {
        unimplemented!("these suites change nothing")
    }
}

impl Setup {
    /// Makes the directories and files of a case.
    pub(crate) fn of(case: &Case) -> Self {
        let root = tempfile::Builder::new()
            .prefix("pi-case-")
            .tempdir()
            .unwrap();
        let top = root.path().canonicalize().unwrap();
        let [cwd, home, tmp] = ["cwd", "home", "tmp"].map(|name| top.join(name));
        for dir in [&cwd, &home, &tmp] {
            fs::create_dir(dir).unwrap();
        }
        create(&cwd, case.0.get("files_before"));
        create(&home, case.0.get("home_before"));
        let (before, home_before) = (tree(&cwd), tree(&home));
        Self {
            root,
            cwd,
            home,
            tmp,
            before,
            home_before,
        }
    }

    /// An empty case.
    pub(crate) fn empty() -> Self {
        Self::of(&Case(json!({})))
    }

    fn masks(&self) -> Masks {
        Masks {
            places: [
                (&self.cwd, "{cwd}"),
                (&self.home, "{home}"),
                (&self.tmp, "{tmp}"),
            ]
            .map(|(path, mask)| (path.display().to_string(), mask)),
        }
    }

    fn unmask(&self, value: &Value) -> Value {
        map_strings(value, &|text| {
            text.replace("{cwd}", self.cwd.to_str().unwrap())
                .replace("{home}", self.home.to_str().unwrap())
        })
    }

    /// Compares the files with what the case says they are now.
    pub(crate) fn check_files(&self, case: &Case) -> Result<(), String> {
        if let Some(expected) = case.0.get("files_after") {
            check_tree("files_after", expected, &self.before, &tree(&self.cwd))?;
        }
        match case.0.get("home_after") {
            Some(expected) => {
                check_tree("home_after", expected, &self.home_before, &tree(&self.home))
            }
            None if tree(&self.home) == self.home_before => Ok(()),
            None => Err("the home directory changed".to_owned()),
        }
    }

    /// What a file under the working directory held before the calls.
    pub(crate) fn bytes_before(&self, name: &str) -> Vec<u8> {
        match self.before.get(name).map(|entry| &entry.kind) {
            Some(Kind::File(bytes)) => bytes.clone(),
            _ => Vec::new(),
        }
    }

    /// Whether nothing changed under the working directory.
    pub(crate) fn is_unchanged(&self) -> bool {
        tree(&self.cwd) == self.before
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        // Directories without rights cannot be emptied.
        for (name, entry) in self
            .before
            .iter()
            .filter(|(_, entry)| entry.kind == Kind::Dir)
        {
            if entry.mode & 0o700 != 0o700 {
                // Already gone is fine.
                let _gone =
                    fs::set_permissions(self.cwd.join(name), fs::Permissions::from_mode(0o755));
            }
        }
        let _root = &self.root;
    }
}

/// Replaces machine-dependent text by masks.
#[derive(Clone)]
pub(crate) struct Masks {
    places: [(String, &'static str); 3],
}

impl Masks {
    fn apply(&self, value: &Value) -> Value {
        map_strings(value, &|text| self.text(text))
    }

    fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (place, mask) in &self.places {
            if text.contains(place.as_str()) {
                text = text.replace(place, mask);
            }
        }
        while let Some(at) = text.find("{tmp}/pi-bash-") {
            let end = at + "{tmp}/pi-bash-0123456789abcdef.log".len();
            let name = text.get(at..end).unwrap_or_default();
            assert!(
                name.ends_with(".log"),
                "{name} is no name for a full output"
            );
            text.replace_range(at..end, "{full_output_path}");
        }
        text
    }
}

fn map_strings(value: &Value, change: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(items) => items.iter().map(|item| map_strings(item, change)).collect(),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (name.clone(), map_strings(value, change)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

fn create(root: &Path, files: Option<&Value>) {
    let Some(files) = files.and_then(Value::as_object) else {
        return;
    };
    for (name, spec) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if spec["dir"] == true {
            fs::create_dir_all(&path).unwrap();
        } else if let Some(target) = spec["symlink"].as_str() {
            let target = target.replace("{cwd}", root.to_str().unwrap());
            symlink(target, &path).unwrap();
        } else {
            fs::write(&path, bytes(spec)).unwrap();
        }
    }
    // Deepest first: a directory without rights could not be entered afterwards.
    for (name, spec) in files.iter().rev() {
        if let Some(mode) = spec["mode"].as_str() {
            let mode = u32::from_str_radix(mode, 8).unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

fn bytes(spec: &Value) -> Vec<u8> {
    if let Some(text) = spec["text"].as_str() {
        text.as_bytes().to_vec()
    } else if let Some(data) = spec["base64"].as_str() {
        STANDARD.decode(data).unwrap()
    } else {
        generate(&spec["gen"]).into_bytes()
    }
}

fn generate(spec: &Value) -> String {
    if let Some(text) = spec.as_str() {
        return text.to_owned();
    }
    if let Some(parts) = spec["concat"].as_array() {
        return parts.iter().map(generate).collect();
    }
    if let Some(repeat) = spec.get("repeat") {
        return generate(&repeat["unit"]).repeat(repeat["count"].as_u64().unwrap() as usize);
    }
    let lines = &spec["lines"];
    let template = lines["template"].as_str().unwrap();
    let join = lines["join"].as_str().unwrap_or("\n");
    let count = lines["count"].as_u64().unwrap();
    let all: Vec<String> = (1..=count)
        .map(|n| template.replace("{n}", &n.to_string()))
        .collect();
    let end = if lines["final_newline"] == false {
        ""
    } else {
        join
    };
    all.join(join) + end
}

/// Reads a whole tree, relative names in order; unreadable files are made readable for the moment.
pub(crate) fn tree(root: &Path) -> BTreeMap<String, Entry> {
    let mut out = BTreeMap::new();
    walk(root, "", &mut out);
    out
}

fn walk(dir: &Path, prefix: &str, out: &mut BTreeMap<String, Entry>) {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    for name in names {
        let path = dir.join(&name);
        let name = format!("{prefix}{}", name.to_str().unwrap());
        let meta = fs::symlink_metadata(&path).unwrap();
        let mode = meta.permissions().mode() & 0o7777;
        if meta.is_symlink() {
            let kind = Kind::Symlink(fs::read_link(&path).unwrap());
            out.insert(name, Entry { kind, mode: 0 });
            continue;
        }
        let locked = mode & 0o500 != if meta.is_dir() { 0o500 } else { 0o400 } & mode;
        let locked = locked || mode & 0o400 == 0 || (meta.is_dir() && mode & 0o100 == 0);
        if locked {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        if meta.is_dir() {
            out.insert(
                name.clone(),
                Entry {
                    kind: Kind::Dir,
                    mode,
                },
            );
            walk(&path, &format!("{name}/"), out);
        } else {
            let kind = Kind::File(fs::read(&path).unwrap());
            out.insert(name, Entry { kind, mode });
        }
        if locked {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

fn check_tree(
    what: &str,
    expected: &Value,
    before: &BTreeMap<String, Entry>,
    now: &BTreeMap<String, Entry>,
) -> Result<(), String> {
    let expected = expected.as_object().unwrap();
    let extra: Vec<&String> = now
        .keys()
        .filter(|name| !is_expected(expected, name) && !is_old_dir(before, name))
        .collect();
    if !extra.is_empty() {
        return Err(format!("{what}: unexpected {extra:?}"));
    }
    for (name, spec) in expected {
        let Some(entry) = now.get(name) else {
            return Err(format!("{what}: {name} is missing"));
        };
        let same = match &entry.kind {
            _ if spec["unchanged"] == true => {
                before.get(name).is_some_and(|it| it.kind == entry.kind)
            }
            Kind::Dir => spec["dir"] == true,
            Kind::Symlink(target) => spec["symlink"]
                .as_str()
                .is_some_and(|it| Path::new(it) == target),
            Kind::File(bytes) => compare::file_is(spec, bytes),
        };
        if !same {
            return Err(format!(
                "{what}: {name} should be {spec}, is {:?}",
                shown(entry)
            ));
        }
        let mode = spec["mode"]
            .as_str()
            .map(|mode| u32::from_str_radix(mode, 8).unwrap());
        let wanted = mode.or_else(|| before.get(name).map(|entry| entry.mode));
        if wanted.is_some_and(|wanted| wanted != entry.mode) {
            return Err(format!(
                "{what}: {name} has mode {:o}, wanted {wanted:?}",
                entry.mode
            ));
        }
    }
    Ok(())
}

/// Empty directories of the set-up are not listed.
fn is_old_dir(before: &BTreeMap<String, Entry>, name: &str) -> bool {
    before
        .get(name)
        .is_some_and(|entry| entry.kind == Kind::Dir)
}

/// A directory need not be listed when something inside it is.
fn is_expected(expected: &Map<String, Value>, name: &str) -> bool {
    expected.contains_key(name)
        || expected
            .keys()
            .any(|it| it.starts_with(&format!("{name}/")))
}

fn shown(entry: &Entry) -> String {
    match &entry.kind {
        Kind::File(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            format!(
                "{:?} (mode {:o})",
                text.chars().take(300).collect::<String>(),
                entry.mode
            )
        }
        other => format!("{other:?}"),
    }
}

/// The blocks of an output as JSON, for tests that look at one call by hand.
pub(crate) fn blocks_text(blocks: &[Block]) -> String {
    blocks
        .iter()
        .filter_map(Block::as_text)
        .collect::<Vec<_>>()
        .join("\n")
}
