//! The command line: arguments in, one validated [`Cli`] out.
//!
//! Two steps. [`flags::FLAGS`] is the table of what exists; [`parse`] reads the arguments by it and checks what can be
//! checked without looking at the disk. Parsed by hand and not by a crate because unknown long flags are no error here:
//! extensions may claim them later. Help, shell completions and the man page are made from the same table ([`docs`]).

use secrecy::SecretString;

use pi_nvim::ai::ModelRegistry;
use pi_nvim::ai::ThinkingLevel;
use pi_nvim::ai::choice::Wanted;
use pi_nvim::ai::patterns::CliFlags;
use pi_nvim::files::agent_dir::Places;
use pi_nvim::resources::ResourceFlags;
use pi_nvim::resources::trust::TrustRules;
use pi_nvim::session::{Opener, ToolChoice};

mod actions;
mod ask;
pub(crate) mod docs;
mod export;
pub(crate) mod flags;
mod input;
pub(crate) mod log;
pub(crate) mod run;
pub(crate) mod say;
pub(crate) mod sessions;
mod start;

use flags::{Flag, Takes};

/// What to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nothing said: print when a pipe is involved, else the editor.
    #[default]
    Auto,
    /// Print the answer (`-p`, `--mode text`).
    Print,
    /// Events as JSON lines.
    Json,
    /// Pi's RPC protocol.
    Rpc,
    /// msgpack-rpc on stdin and stdout; how the plugin starts the binary.
    Nvim,
}

/// Who decides on edits when no Neovim is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HeadlessReview {
    /// Written at once, as Pi does.
    #[default]
    Auto,
    /// Refused.
    Reject,
}

/// A command of its own instead of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// `--help`.
    Help,
    /// `--version`.
    Version,
    /// `auth check`: which providers have credentials.
    AuthCheck,
    /// `completions SHELL`.
    Completions(String),
    /// `man`: the manual page.
    Man,
    /// `--list-models [TEXT]`.
    ListModels(Option<String>),
    /// `--export IN [OUT]`.
    Export(String),
}

/// The arguments, checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cli {
    pub(crate) action: Option<Action>,
    pub(crate) mode: Mode,
    pub(crate) attach: Option<String>,
    pub(crate) review: HeadlessReview,
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) api_key: Option<SecretString>,
    pub(crate) thinking: Option<ThinkingLevel>,
    pub(crate) models: Option<Vec<String>>,
    pub(crate) continue_recent: bool,
    pub(crate) resume: bool,
    pub(crate) session: Option<String>,
    pub(crate) session_id: Option<String>,
    pub(crate) fork: Option<String>,
    pub(crate) session_dir: Option<String>,
    pub(crate) no_session: bool,
    pub(crate) name: Option<String>,
    pub(crate) tools: ToolChoice,
    pub(crate) extensions: Vec<String>,
    pub(crate) no_extensions: bool,
    pub(crate) skills: Vec<String>,
    pub(crate) no_skills: bool,
    pub(crate) prompt_templates: Vec<String>,
    pub(crate) no_prompt_templates: bool,
    pub(crate) no_context_files: bool,
    pub(crate) system_prompt: Option<String>,
    pub(crate) append_system_prompt: Vec<String>,
    /// `-a` / `-na`: what to think of the project's own resources, for this process.
    pub(crate) trust: Option<bool>,
    pub(crate) offline: bool,
    pub(crate) verbose: bool,
    /// `@file` arguments without the `@`, in order.
    pub(crate) files: Vec<String>,
    /// Messages in order.
    pub(crate) messages: Vec<String>,
    /// Unknown long flags; an error unless an extension claims them.
    pub(crate) unclaimed: Vec<(String, Option<String>)>,
    /// Said on stderr before anything else happens.
    pub(crate) warnings: Vec<String>,
}

/// Reads the arguments (without the program's name).
///
/// # Errors
/// One line for stderr, without `Error: `.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Cli, String> {
    let mut cli = Cli::default();
    let mut rest: std::collections::VecDeque<String> = args.into_iter().collect();
    if let Some(action) = sub_command(&mut rest)? {
        cli.action = Some(action);
        return Ok(cli);
    }
    while let Some(arg) = rest.pop_front() {
        if arg == "--" {
            rest.drain(..).for_each(|word| cli.word(word));
        } else if arg.starts_with('-') && arg.len() > 1 {
            option(&mut cli, &arg, &mut rest)?;
        } else {
            cli.word(arg);
        }
    }
    check(&cli)?;
    Ok(cli)
}

/// Commands that begin with a word. The word alone, not followed by what the command needs, is an ordinary message.
fn sub_command(rest: &mut std::collections::VecDeque<String>) -> Result<Option<Action>, String> {
    let words: Vec<&str> = rest.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["auth", "check"] => Ok(Some(Action::AuthCheck)),
        ["completions", shell] if docs::SHELLS.contains(shell) => {
            Ok(Some(Action::Completions((*shell).into())))
        }
        ["completions", other] if !other.contains(' ') => Err(format!(
            "No completions for \"{other}\". Valid values: {}",
            docs::SHELLS.join(", ")
        )),
        ["man"] => Ok(Some(Action::Man)),
        _ => Ok(None),
    }
}

fn option(
    cli: &mut Cli,
    arg: &str,
    rest: &mut std::collections::VecDeque<String>,
) -> Result<(), String> {
    let (name, inline) = match arg.split_once('=') {
        Some((name, value)) if arg.starts_with("--") => (name, Some(value.to_owned())),
        _ => (arg, None),
    };
    let Some(flag) = flags::find(name) else {
        return unknown(cli, arg, name, inline, rest);
    };
    match flag.takes {
        Takes::Nothing => set_switch(cli, flag, rest),
        Takes::Optional(_) => {
            let value = inline.or_else(|| take_if(rest, |next| !next.starts_with(['-', '@'])));
            set_optional(cli, flag, value);
        }
        Takes::Value(_) => match inline.or_else(|| rest.pop_front()) {
            Some(value) => return set_value(cli, flag, value),
            None => return missing_value(cli, flag),
        },
    }
    Ok(())
}

fn missing_value(cli: &mut Cli, flag: &Flag) -> Result<(), String> {
    match flag.long {
        "--mode" => Err("--mode requires text, json, or rpc".into()),
        "--name" => Err("--name requires a non-empty value".into()),
        // As any long flag nobody knows: an extension may have one of this name that takes no value.
        long => {
            cli.unclaimed.push((long.to_owned(), None));
            Ok(())
        }
    }
}

fn unknown(
    cli: &mut Cli,
    arg: &str,
    name: &str,
    inline: Option<String>,
    rest: &mut std::collections::VecDeque<String>,
) -> Result<(), String> {
    if arg.starts_with("---") {
        cli.messages.push(arg.to_owned());
        return Ok(());
    }
    if !arg.starts_with("--") {
        return Err(format!("Unknown option: {arg}"));
    }
    let value = inline.or_else(|| take_if(rest, |next| !next.starts_with(['-', '@'])));
    cli.unclaimed.push((name.to_owned(), value));
    Ok(())
}

fn take_if(
    rest: &mut std::collections::VecDeque<String>,
    wanted: impl Fn(&str) -> bool,
) -> Option<String> {
    if rest.front().is_some_and(|next| wanted(next)) {
        rest.pop_front()
    } else {
        None
    }
}

fn set_switch(cli: &mut Cli, flag: &Flag, rest: &mut std::collections::VecDeque<String>) {
    match flag.long {
        "--print" => {
            if cli.mode == Mode::Auto {
                cli.mode = Mode::Print;
            }
            let message = |next: &str| {
                !next.starts_with('@') && (!next.starts_with('-') || next.starts_with("---"))
            };
            if let Some(message) = take_if(rest, message) {
                cli.messages.push(message);
            }
        }
        "--help" => cli.action = Some(Action::Help),
        "--version" => cli.action = Some(Action::Version),
        "--continue" => cli.continue_recent = true,
        "--resume" => cli.resume = true,
        "--no-session" => cli.no_session = true,
        "--no-builtin-tools" => cli.tools.no_builtin = true,
        "--no-tools" => cli.tools.none = true,
        "--no-extensions" => cli.no_extensions = true,
        "--no-skills" => cli.no_skills = true,
        "--no-prompt-templates" => cli.no_prompt_templates = true,
        "--no-context-files" => cli.no_context_files = true,
        "--approve" => cli.trust = Some(true),
        "--no-approve" => cli.trust = Some(false),
        "--offline" => cli.offline = true,
        "--verbose" => cli.verbose = true,
        // Accepted so that a command line written for Pi's terminal works: there are no themes and no MCP to turn off.
        _ => {}
    }
}

fn set_optional(cli: &mut Cli, flag: &Flag, value: Option<String>) {
    if flag.long == "--list-models" {
        cli.action = Some(Action::ListModels(value));
    }
}

fn set_value(cli: &mut Cli, flag: &Flag, value: String) -> Result<(), String> {
    match flag.long {
        "--mode" => cli.mode = mode(&value)?,
        "--review" => cli.review = review(&value)?,
        "--attach" => cli.attach = Some(value),
        "--export" => cli.action = Some(Action::Export(value)),
        "--provider" => cli.provider = Some(value),
        "--model" => cli.model = Some(value),
        "--api-key" => cli.api_key = Some(value.into()),
        "--models" => cli.models = Some(list(&value)),
        "--session" => cli.session = Some(value),
        "--session-id" => cli.session_id = Some(value),
        "--fork" => cli.fork = Some(value),
        "--session-dir" => cli.session_dir = Some(value),
        "--tools" => tools(&mut cli.tools, &value)?,
        "--exclude-tools" => cli.tools.exclude.extend(list(&value)),
        "--extension" => cli.extensions.push(value),
        "--skill" => cli.skills.push(value),
        "--prompt-template" => cli.prompt_templates.push(value),
        "--system-prompt" => cli.system_prompt = Some(value),
        "--append-system-prompt" => cli.append_system_prompt.push(value),
        "--name" if value.trim().is_empty() => {
            return Err("--name requires a non-empty value".into());
        }
        "--name" => cli.name = Some(value.trim().to_owned()),
        "--thinking" => match ThinkingLevel::parse(&value) {
            Some(level) => cli.thinking = Some(level),
            None => cli.warnings.push(format!(
                "Invalid thinking level \"{value}\". Valid values: {}",
                ThinkingLevel::ALL.map(ThinkingLevel::as_str).join(", ")
            )),
        },
        _ => {}
    }
    Ok(())
}

fn mode(word: &str) -> Result<Mode, String> {
    match word {
        "text" => Ok(Mode::Print),
        "json" => Ok(Mode::Json),
        "rpc" => Ok(Mode::Rpc),
        "nvim" => Ok(Mode::Nvim),
        _ => Err(format!(
            "Invalid mode \"{word}\". Valid values: text, json, rpc"
        )),
    }
}

fn review(word: &str) -> Result<HeadlessReview, String> {
    match word {
        "auto" => Ok(HeadlessReview::Auto),
        "reject" => Ok(HeadlessReview::Reject),
        _ => Err(format!(
            "Invalid review \"{word}\". Valid values: auto, reject"
        )),
    }
}

fn list(value: &str) -> Vec<String> {
    value
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

fn tools(choice: &mut ToolChoice, value: &str) -> Result<(), String> {
    let names = list(value);
    let modifiers = names
        .iter()
        .filter(|name| name.starts_with(['+', '-']))
        .count();
    if modifiers == 0 {
        choice.only = Some(names);
        return Ok(());
    }
    if modifiers < names.len() {
        return Err("--tools takes either names, or +name and -name, not both".into());
    }
    let with = |sign: char| {
        let names = names.iter().filter_map(move |name| name.strip_prefix(sign));
        names.map(str::to_owned).collect()
    };
    choice.added = with('+');
    choice.removed = with('-');
    Ok(())
}

impl Cli {
    fn word(&mut self, word: String) {
        match word.strip_prefix('@') {
            Some(file) => self.files.push(file.to_owned()),
            None => self.messages.push(word),
        }
    }

    /// Whether Neovim is the face, and not a command that only looks something up.
    pub(crate) fn is_for_editor(&self) -> bool {
        self.action.is_none() && (self.mode == Mode::Nvim || self.attach.is_some())
    }

    /// Whether the arguments say which session to begin with.
    pub(crate) fn names_session(&self) -> bool {
        self.continue_recent
            || self.no_session
            || [&self.session, &self.session_id, &self.fork, &self.name]
                .into_iter()
                .any(Option::is_some)
    }

    /// Returns what the arguments say about models.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            flags: CliFlags {
                provider: self.provider.clone(),
                model: self.model.clone(),
                has_thinking: self.thinking.is_some(),
                has_api_key: self.api_key.is_some(),
            },
            thinking: self.thinking,
            patterns: self.models.clone(),
        }
    }

    /// Returns what opens the sessions of this process, as the arguments want them.
    pub(crate) fn opener(&self, places: Places, registry: ModelRegistry) -> Opener {
        Opener {
            flags: ResourceFlags {
                system_prompt: self.system_prompt.clone(),
                append_system_prompt: self.append_system_prompt.clone(),
                extensions: self.extensions.clone(),
                skills: self.skills.clone(),
                prompt_templates: self.prompt_templates.clone(),
                no_extensions: self.no_extensions,
                no_skills: self.no_skills,
                no_prompt_templates: self.no_prompt_templates,
                no_context_files: self.no_context_files,
            },
            trust: TrustRules::new(self.trust),
            wanted: self.wanted(),
            api_key: self.api_key.clone(),
            session_dir: self.session_dir.clone(),
            tools: self.tools.clone(),
            guard: std::env::current_exe().ok(),
            ..Opener::new(places, registry)
        }
    }

    /// Returns the error about unknown long flags that no extension claimed.
    pub(crate) fn unclaimed_error(&self) -> Option<String> {
        self.unclaimed
            .first()
            .map(|(name, _)| format!("Unknown option: {name}"))
    }
}

/// Combinations that make no sense.
fn check(cli: &Cli) -> Result<(), String> {
    let chosen = [
        ("--session", cli.session.is_some()),
        ("--continue", cli.continue_recent),
        ("--resume", cli.resume),
        ("--no-session", cli.no_session),
    ];
    if cli.fork.is_some()
        && let Some((other, _)) = chosen.iter().find(|(_, set)| *set)
    {
        return Err(format!("--fork cannot be combined with {other}"));
    }
    if cli.session_id.is_some()
        && let Some((other, _)) = chosen.iter().take(3).find(|(_, set)| *set)
    {
        return Err(format!("--session-id cannot be combined with {other}"));
    }
    if let Some(id) = &cli.session_id
        && !valid_session_id(id)
    {
        return Err("--session-id takes letters, digits, '-', '_' and '.', and begins and ends with a letter or digit".into());
    }
    if let (Some(provider), None) = (&cli.provider, &cli.model) {
        return Err(format!(
            "--provider requires --model (for example: --provider {provider} --model <pattern>)"
        ));
    }
    if cli.mode == Mode::Rpc && !cli.files.is_empty() {
        return Err("@file arguments are not supported in RPC mode".into());
    }
    if cli.is_for_editor() {
        return check_for_editor(cli);
    }
    Ok(())
}

/// What makes no sense where a person sits in Neovim.
fn check_for_editor(cli: &Cli) -> Result<(), String> {
    if !cli.messages.is_empty() || !cli.files.is_empty() {
        return Err(
            "with Neovim a message is written there: start without one, then `:Pi ask`".into(),
        );
    }
    if cli.review == HeadlessReview::Reject {
        return Err(
            "--review is for runs without Neovim; there the option `review.mode` decides".into(),
        );
    }
    if cli.attach.is_some() && !matches!(cli.mode, Mode::Auto | Mode::Nvim) {
        return Err(
            "--attach joins a Neovim: it cannot be combined with -p or another --mode".into(),
        );
    }
    Ok(())
}

fn valid_session_id(id: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(id.chars().next()) && edge(id.chars().next_back()) && id.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn read(line: &str) -> Result<Cli, String> {
        parse(
            line.split('|')
                .filter(|word| !word.is_empty())
                .map(str::to_owned),
        )
    }

    fn fails(line: &str, expect: Expect) {
        expect.assert_eq(&read(line).unwrap_err());
    }

    #[test]
    fn print_takes_the_next_word_as_message() {
        let cli = read("-p|hello|@a.txt|more").unwrap();
        assert_eq!(
            (cli.mode, cli.messages, cli.files),
            (
                Mode::Print,
                vec!["hello".into(), "more".into()],
                vec!["a.txt".into()]
            )
        );
        assert_eq!(read("-p|@a.txt|x").unwrap().messages, ["x"]);
        assert_eq!(read("-p|---x").unwrap().messages, ["---x"]);
        assert_eq!(
            read("-p|--|-x is a flag?").unwrap().messages,
            ["-x is a flag?"]
        );
        assert_eq!(read("--mode|json|-p|x").unwrap().mode, Mode::Json);
    }

    #[test]
    fn unknown_flags() {
        fails("-p|-zz", expect!["Unknown option: -zz"]);
        let cli = read("--frob|1|--plan|@f|--x=2").unwrap();
        assert_eq!(
            cli.unclaimed,
            [
                ("--frob".into(), Some("1".into())),
                ("--plan".into(), None),
                ("--x".into(), Some("2".into()))
            ]
        );
        assert_eq!(cli.files, ["f"]);
        assert_eq!(
            read("x|--model").unwrap().unclaimed_error().unwrap(),
            "Unknown option: --model"
        );
    }

    #[test]
    fn bad_values_and_combinations() {
        fails("--mode", expect!["--mode requires text, json, or rpc"]);
        fails(
            "--mode|xml",
            expect![[r#"Invalid mode "xml". Valid values: text, json, rpc"#]],
        );
        fails(
            "--mode|rpc|@a",
            expect!["@file arguments are not supported in RPC mode"],
        );
        fails(
            "--fork|x|--continue",
            expect!["--fork cannot be combined with --continue"],
        );
        fails(
            "--session-id|x|-r",
            expect!["--session-id cannot be combined with --resume"],
        );
        fails(
            "--session-id|-bad-",
            expect![
                "--session-id takes letters, digits, '-', '_' and '.', and begins and ends with a letter or digit"
            ],
        );
        fails(
            "--provider|mock|hi",
            expect!["--provider requires --model (for example: --provider mock --model <pattern>)"],
        );
        fails("--name| ", expect!["--name requires a non-empty value"]);
        fails(
            "--tools|read,+grep",
            expect!["--tools takes either names, or +name and -name, not both"],
        );
        fails(
            "--review|maybe",
            expect![[r#"Invalid review "maybe". Valid values: auto, reject"#]],
        );
        fails(
            "completions|tcsh",
            expect![[r#"No completions for "tcsh". Valid values: bash, zsh, fish"#]],
        );
    }

    #[test]
    fn values_are_read() {
        let cli = read("--thinking|huge|-t|+grep,-bash|--models|a, b|--append-system-prompt|x|-a")
            .unwrap();
        assert!(cli.warnings.first().unwrap().contains("huge"));
        let expected = ToolChoice {
            added: vec!["grep".into()],
            removed: vec!["bash".into()],
            ..ToolChoice::default()
        };
        assert_eq!((cli.tools, cli.trust), (expected, Some(true)));
        assert_eq!(cli.models.unwrap(), ["a", "b"]);
        assert_eq!(read("auth|check").unwrap().action, Some(Action::AuthCheck));
        assert_eq!(read("auth").unwrap().messages, ["auth"]);
        assert_eq!(
            read("--list-models|gpt").unwrap().action,
            Some(Action::ListModels(Some("gpt".into())))
        );
    }
}
