//! Texts that were sent along with a prompt (`@diff`, `@selection` ...): told by name, not shown in full.

/// What [`super::super::prompt::with_context`] adds, by name.
const NAMES: [&str; 9] = [
    "buffer",
    "buffers",
    "changes",
    "diagnostics",
    "diff",
    "quickfix",
    "range",
    "selection",
    "task",
];

/// Parts a prompt from what was sent along: its own text, and a line for each attached text.
pub(super) fn part(text: &str) -> (&str, Vec<String>) {
    let mut own = text.trim_end();
    let mut attached = Vec::new();
    while let Some((before, name, inner)) = last(own) {
        // The task of `:Pi edit` is always the same.
        if name != "task" {
            let lines = inner.lines().count();
            let s = if lines == 1 { "" } else { "s" };
            attached.push(format!("+ {name}, {lines} line{s}"));
        }
        own = before.trim_end();
    }
    attached.reverse();
    (own, attached)
}

fn last(text: &str) -> Option<(&str, &'static str, &str)> {
    let name = NAMES
        .into_iter()
        .find(|name| text.ends_with(&format!("\n</{name}>")))?;
    let inner = text.strip_suffix(&format!("\n</{name}>"))?;
    let (before, inner) = inner.rsplit_once(&format!("\n\n<{name}>\n"))?;
    Some((before, name, inner))
}

#[cfg(test)]
mod tests {
    use super::part;
    use pretty_assertions::assert_eq;

    #[test]
    fn what_was_sent_along_is_named() {
        let text = "do it\n\n@diff\n\n<diff>\n-a\n+b\n</diff>\n\n<range>\nx\n</range>\n\n<task>\nnow\n</task>";
        let lines = vec!["+ diff, 2 lines".to_owned(), "+ range, 1 line".to_owned()];
        assert_eq!(part(text), ("do it\n\n@diff", lines));
    }

    #[test]
    fn other_text_stays() {
        for text in [
            "plain",
            "a\n\n<b>\nc\n</b>",
            "a <diff>\nx\n</diff>",
            "\n</diff>",
        ] {
            assert_eq!(part(text), (text, Vec::new()));
        }
    }
}
