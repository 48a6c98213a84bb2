//! Questions about commands: which leading words a person may allow for the session.

use crate::review::ApprovalRequest;

use serde_json::{Value, json};

/// Signs that make a command more than one simple command, or hide what it runs.
const COMPOUND: &[char] = &[
    '\n', ';', '&', '|', '<', '>', '`', '$', '(', ')', '{', '}', '\\',
];

/// Returns the words that a prefix grant would cover: program and sub-command. `None` for anything but one simple
/// command.
pub(super) fn prefix(command: &str) -> Option<String> {
    if command.contains(COMPOUND) {
        return None;
    }
    let mut words = command.split_whitespace();
    let program = words.next()?;
    if program.contains(['=', '\'', '"']) {
        return None;
    }
    let plain = |word: &&str| {
        word.chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':'))
            && !word.starts_with('-')
    };
    Some(match words.next().filter(plain) {
        Some(sub) => format!("{program} {sub}"),
        None => program.to_owned(),
    })
}

/// Builds the op that asks.
pub(super) fn ask(id: u64, request: &ApprovalRequest) -> Value {
    let mut op = json!({
        "op": "attention.ask",
        "id": id,
        "kind": "bash",
        "session": request.session,
        "tool": request.tool,
        "command": request.command,
    });
    if let Some(prefix) = prefix(&request.command) {
        super::put(&mut op, "prefix", prefix);
    }
    op
}

#[cfg(test)]
mod tests {
    use super::prefix;

    fn check(command: &str, expected: Option<&str>) {
        assert_eq!(prefix(command).as_deref(), expected, "{command}");
    }

    #[test]
    fn a_simple_command_offers_program_and_sub_command() {
        check("cargo test --all", Some("cargo test"));
        check("ls -la", Some("ls"));
        check("npm run:x", Some("npm run:x"));
        check("cat src/main.rs", Some("cat"));
    }

    #[test]
    fn anything_compound_offers_nothing() {
        for command in [
            "a; b", "a && b", "a | b", "a > f", "a $(b)", "a `b`", "a\nb", "(a)", "X=1 a", "",
            "'a b' c",
        ] {
            check(command, None);
        }
    }
}
