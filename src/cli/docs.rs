//! Help, shell completions and the manual page, all made from the table of flags.

use std::fmt::Write as _;

use super::flags::{FLAGS, Flag, GROUPS, Takes};
use pi_nvim::files::agent_dir::Places;

/// Shells with completions.
pub(crate) const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

const INTRO: &str = "\
pi-nvim: a coding agent whose edits you review, hunk by hunk, inside Neovim

In Neovim, type :Pi and a task. The binary is also useful alone:

  pi-nvim -p \"what does this crate do?\"       answer once
  git diff | pi-nvim -p \"review this\"         with a pipe
  pi-nvim -p @src/lib.rs \"explain this file\"  with a file
  pi-nvim --mode rpc                          driven by another program, line by line
  pi-nvim --attach \"$NVIM\"                    join the Neovim this terminal runs in

Usage: pi-nvim [options] [--] [@files...] [messages...]
       pi-nvim auth check | completions bash|zsh|fish | man
";

const ENVIRONMENT: [(&str, &str); 4] = [
    (
        "PI_CODING_AGENT_DIR",
        "settings, keys, models and sessions (default ~/.pi/agent)",
    ),
    ("PI_CODING_AGENT_SESSION_DIR", "sessions somewhere else"),
    ("PI_OFFLINE", "1: make no request but those to the model"),
    ("PI_NVIM_LOG", "what to log, for example debug"),
];

fn shown() -> impl Iterator<Item = &'static Flag> {
    FLAGS.iter().filter(|flag| !flag.help.is_empty())
}

fn spelling(flag: &Flag) -> String {
    let mut names: Vec<&str> = flag.short.to_vec();
    names.push(flag.long);
    let value = match flag.takes {
        Takes::Nothing => String::new(),
        Takes::Value(name) => format!(" {name}"),
        Takes::Optional(name) => format!(" [{name}]"),
    };
    names.join(", ") + &value
}

/// Returns the text of `--help`.
pub(crate) fn help() -> String {
    let mut out = INTRO.to_owned();
    for group in GROUPS {
        let _ = writeln!(out, "\n{group}:");
        for flag in shown().filter(|flag| flag.group == group) {
            let _ = writeln!(out, "  {:<34}{}", spelling(flag), flag.help);
        }
    }
    out.push_str("\nEnvironment:\n");
    for (name, meaning) in ENVIRONMENT {
        let _ = writeln!(out, "  {name:<34}{meaning}");
    }
    out
}

/// Returns the text of `--version`; a long one names the folders in use.
pub(crate) fn version(long: bool) -> String {
    let mut out = format!("{}\n", env!("CARGO_PKG_VERSION"));
    if long {
        let cwd = std::env::current_dir().unwrap_or_default();
        let places = Places::from_env(|name| std::env::var_os(name), &cwd);
        let _ = writeln!(
            out,
            "settings, keys, sessions: {}",
            places.agent_dir.display()
        );
        let _ = writeln!(
            out,
            "log, commit records, drafts: {}",
            places.state_dir.display()
        );
    }
    out
}

/// Returns the completion script for a shell of [`SHELLS`]; empty for any other name.
pub(crate) fn completions(shell: &str) -> String {
    match shell {
        "bash" => bash(),
        "zsh" => zsh(),
        "fish" => fish(),
        _ => String::new(),
    }
}

/// Words that begin a command of their own.
const COMMANDS: &str = "auth completions man";

/// Values a flag may have, where they are few.
fn choices(flag: &Flag) -> &'static str {
    match flag.long {
        "--mode" => "text json rpc",
        "--review" => "auto reject",
        "--thinking" => "off minimal low medium high xhigh max",
        _ => "",
    }
}

fn bash() -> String {
    let names: Vec<&str> = shown()
        .flat_map(|flag| flag.short.iter().copied().chain([flag.long]))
        .collect();
    let mut cases = String::new();
    for flag in shown().filter(|flag| !choices(flag).is_empty()) {
        let _ = writeln!(
            cases,
            "    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;",
            flag.long,
            choices(flag)
        );
    }
    format!(
        "_pi_nvim() {{\n  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}\n  case $prev in\n{cases}  esac\n  \
         if [[ $COMP_CWORD -eq 1 && $cur != -* ]]; then\n    COMPREPLY=($(compgen -W \"{COMMANDS}\" -- \"$cur\") $(compgen -f -- \"$cur\")); return\n  fi\n  \
         if [[ $COMP_CWORD -eq 2 && $prev == completions ]]; then\n    COMPREPLY=($(compgen -W \"{shells}\" -- \"$cur\")); return\n  fi\n  \
         case $cur in\n    -*) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")) ;;\n    @*) COMPREPLY=($(compgen -f -P @ -- \"${{cur#@}}\")) ;;\n    \
         *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n  esac\n}}\ncomplete -o filenames -F _pi_nvim pi-nvim\n",
        names.join(" "),
        shells = SHELLS.join(" "),
    )
}

fn zsh() -> String {
    let mut out = "#compdef pi-nvim\n_arguments -S \\\n".to_owned();
    for flag in shown() {
        let help = flag
            .help
            .replace('\'', "")
            .replace('[', "(")
            .replace(']', ")")
            .replace(':', ";");
        let value = match (flag.takes, choices(flag)) {
            (Takes::Nothing, _) => String::new(),
            (Takes::Optional(name), _) => format!("::{name}:"),
            (Takes::Value(name), "") => format!(":{name}:_files"),
            (Takes::Value(name), words) => format!(":{name}:({words})"),
        };
        for name in flag.short.iter().copied().chain([flag.long]) {
            let _ = writeln!(out, "  '{name}[{help}]{value}' \\");
        }
    }
    let _ = writeln!(out, "  '1:command or message:({COMMANDS})' \\");
    out.push_str("  '*:message or @file:_files'\n");
    out
}

fn fish() -> String {
    let mut out = format!(
        "complete -c pi-nvim -n __fish_is_first_token -a '{COMMANDS}'\n\
         complete -c pi-nvim -n '__fish_seen_subcommand_from completions' -f -a '{}'\n\
         complete -c pi-nvim -n '__fish_seen_subcommand_from auth' -f -a check\n",
        SHELLS.join(" ")
    );
    for flag in shown() {
        let mut line = format!(
            "complete -c pi-nvim -l {}",
            flag.long.trim_start_matches('-')
        );
        for short in flag.short {
            let name = short.trim_start_matches('-');
            let _ = write!(
                line,
                " {} {name}",
                if name.len() == 1 { "-s" } else { "-o" }
            );
        }
        if let Takes::Value(_) = flag.takes {
            line.push_str(" -r");
        }
        if !choices(flag).is_empty() {
            let _ = write!(line, " -f -a '{}'", choices(flag));
        }
        let _ = writeln!(out, "{line} -d '{}'", flag.help.replace('\'', "\\'"));
    }
    out
}

/// Returns the manual page in roff.
pub(crate) fn man() -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('-', "\\-");
    let mut out = format!(
        ".TH PI\\-NVIM 1 \"\" \"pi\\-nvim {}\"\n.SH NAME\n",
        env!("CARGO_PKG_VERSION")
    );
    out.push_str("pi\\-nvim \\- a coding agent whose edits are reviewed in Neovim\n.SH SYNOPSIS\n");
    out.push_str(
        ".B pi\\-nvim\n[options] [\\-\\-] [@files...] [messages...]\n.SH DESCRIPTION\n.nf\n",
    );
    out.push_str(&escape(INTRO));
    out.push_str(".fi\n");
    for group in GROUPS {
        let _ = writeln!(out, ".SH {}", group.to_uppercase());
        for flag in shown().filter(|flag| flag.group == group) {
            let _ = writeln!(
                out,
                ".TP\n.B {}\n{}",
                escape(&spelling(flag)),
                escape(flag.help)
            );
        }
    }
    out.push_str(".SH ENVIRONMENT\n");
    for (name, meaning) in ENVIRONMENT {
        let _ = writeln!(out, ".TP\n.B {name}\n{}", escape(meaning));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_flag_and_fits_a_terminal() {
        let help = help();
        for flag in shown() {
            assert!(help.contains(flag.long), "{}", flag.long);
        }
        for line in help.lines() {
            assert!(line.chars().count() <= 110, "{line}");
        }
    }

    #[test]
    fn shells_read_their_completions() {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        for shell in SHELLS {
            assert!(
                completions(shell).contains("--model") || completions(shell).contains("-l model")
            );
            let Ok(mut child) = Command::new(shell)
                .arg("-n")
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
            else {
                continue;
            };
            child
                .stdin
                .take()
                .unwrap()
                .write_all(completions(shell).as_bytes())
                .unwrap();
            let out = child.wait_with_output().unwrap();
            assert!(
                out.status.success(),
                "{shell}: {}",
                String::from_utf8_lossy(&out.stderr)
            );
        }
    }
}
