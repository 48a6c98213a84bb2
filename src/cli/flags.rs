//! The table of flags. Names and meanings are Pi's where Pi has them, so that a command line works with both programs.

/// What stands behind a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Nothing.
    Nothing,
    /// A value, named so in the help.
    Value(&'static str),
    /// A value that may be left out.
    Optional(&'static str),
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    /// `--name`.
    pub(crate) long: &'static str,
    /// Other spellings.
    pub(crate) short: &'static [&'static str],
    /// What stands behind it.
    pub(crate) takes: Takes,
    /// One line of help; empty for a flag that is accepted and does nothing here.
    pub(crate) help: &'static str,
    /// Heading in the help.
    pub(crate) group: &'static str,
}

const fn flag(
    group: &'static str,
    long: &'static str,
    short: &'static [&'static str],
    takes: Takes,
    help: &'static str,
) -> Flag {
    Flag {
        long,
        short,
        takes,
        help,
        group,
    }
}

use Takes::{Nothing, Optional, Value};

/// Headings in the order of the help.
pub(crate) const GROUPS: [&str; 6] = ["Modes", "Model", "Session", "Tools", "Resources", "Other"];

/// All flags.
pub(crate) const FLAGS: &[Flag] = &[
    flag(
        "Modes",
        "--print",
        &["-p"],
        Nothing,
        "Answer once on stdout and leave; reads a pipe on stdin too",
    ),
    flag(
        "Modes",
        "--mode",
        &[],
        Value("MODE"),
        "text, json (events as lines) or rpc (a program drives it)",
    ),
    flag(
        "Modes",
        "--attach",
        &[],
        Value("ADDR"),
        "Join a running Neovim: its socket path, or a loopback host:port",
    ),
    flag(
        "Modes",
        "--review",
        &[],
        Value("WHO"),
        "Without Neovim, edits are written at once (auto) or refused (reject)",
    ),
    flag(
        "Model",
        "--model",
        &[],
        Value("PATTERN"),
        "Model id, provider/id or part of a name, with :level for thinking",
    ),
    flag(
        "Model",
        "--provider",
        &[],
        Value("ID"),
        "Look for --model only at this provider",
    ),
    flag(
        "Model",
        "--thinking",
        &[],
        Value("LEVEL"),
        "off, minimal, low, medium, high, xhigh or max",
    ),
    flag(
        "Model",
        "--api-key",
        &[],
        Value("KEY"),
        "Key for this process; not stored",
    ),
    flag(
        "Model",
        "--models",
        &[],
        Value("LIST"),
        "Models to cycle through: names or globs, with commas",
    ),
    flag(
        "Model",
        "--list-models",
        &[],
        Optional("TEXT"),
        "List models that can be used, and leave",
    ),
    flag(
        "Session",
        "--continue",
        &["-c"],
        Nothing,
        "Go on with the most recent session of this directory",
    ),
    flag(
        "Session",
        "--resume",
        &["-r"],
        Nothing,
        "Choose a session of this directory from a list",
    ),
    flag(
        "Session",
        "--session",
        &[],
        Value("FILE|ID"),
        "Open this session file, or the session whose id begins so",
    ),
    flag(
        "Session",
        "--session-id",
        &[],
        Value("ID"),
        "Open the session with exactly this id, or create it",
    ),
    flag(
        "Session",
        "--fork",
        &[],
        Value("FILE|ID"),
        "Copy a session into a new one of this directory",
    ),
    flag(
        "Session",
        "--session-dir",
        &[],
        Value("DIR"),
        "Keep sessions here",
    ),
    flag("Session", "--no-session", &[], Nothing, "Store nothing"),
    flag(
        "Session",
        "--name",
        &["-n"],
        Value("NAME"),
        "Name of the session",
    ),
    flag(
        "Session",
        "--export",
        &[],
        Value("FILE"),
        "Write a session as a web page, and leave; the next word is the page's name",
    ),
    flag(
        "Tools",
        "--tools",
        &["-t"],
        Value("LIST"),
        "Only these tools, or +name and -name to change the default ones",
    ),
    flag(
        "Tools",
        "--exclude-tools",
        &["-xt"],
        Value("LIST"),
        "Without these tools",
    ),
    flag(
        "Tools",
        "--no-builtin-tools",
        &["-nbt"],
        Nothing,
        "Without the built-in tools",
    ),
    flag("Tools", "--no-tools", &["-nt"], Nothing, "Without any tool"),
    flag(
        "Resources",
        "--system-prompt",
        &[],
        Value("TEXT|FILE"),
        "Replace the opening of the system prompt",
    ),
    flag(
        "Resources",
        "--append-system-prompt",
        &[],
        Value("TEXT|FILE"),
        "Add to the system prompt (repeatable)",
    ),
    flag(
        "Resources",
        "--no-context-files",
        &["-nc"],
        Nothing,
        "Without AGENTS.md and CLAUDE.md",
    ),
    flag(
        "Resources",
        "--skill",
        &[],
        Value("PATH"),
        "Load a skill from here (repeatable)",
    ),
    flag(
        "Resources",
        "--no-skills",
        &["-ns"],
        Nothing,
        "Look for no skills",
    ),
    flag(
        "Resources",
        "--prompt-template",
        &[],
        Value("PATH"),
        "Load a prompt template from here (repeatable)",
    ),
    flag(
        "Resources",
        "--no-prompt-templates",
        &["-np"],
        Nothing,
        "Look for no prompt templates",
    ),
    flag(
        "Resources",
        "--extension",
        &["-e"],
        Value("PATH"),
        "Load an extension (repeatable)",
    ),
    flag(
        "Resources",
        "--no-extensions",
        &["-ne"],
        Nothing,
        "Look for no extensions",
    ),
    flag(
        "Resources",
        "--approve",
        &["-a"],
        Nothing,
        "Trust the project's own settings, skills and templates this time",
    ),
    flag(
        "Resources",
        "--no-approve",
        &["-na"],
        Nothing,
        "Do not trust them this time",
    ),
    flag("Resources", "--theme", &[], Value("PATH"), ""),
    flag("Resources", "--use-theme", &[], Value("NAME"), ""),
    flag("Resources", "--no-themes", &[], Nothing, ""),
    flag("Resources", "--no-mcp", &[], Nothing, ""),
    flag(
        "Other",
        "--offline",
        &[],
        Nothing,
        "Make no request but those to the model",
    ),
    flag(
        "Other",
        "--verbose",
        &[],
        Nothing,
        "Name the folders in use with --version",
    ),
    flag("Other", "--tui-mode", &[], Value("MODE"), ""),
    flag("Other", "--help", &["-h"], Nothing, "This text"),
    flag("Other", "--version", &["-v"], Nothing, "The version"),
];

/// Finds a flag by any of its spellings.
pub(crate) fn find(name: &str) -> Option<&'static Flag> {
    FLAGS
        .iter()
        .find(|flag| flag.long == name || flag.short.contains(&name))
}
