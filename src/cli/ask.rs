//! Questions on a terminal: yes or no, one of a list. Said on stderr, so that stdout stays the answer's.

use std::io::{BufRead, IsTerminal as _, Write as _};

use super::Mode;

/// A person at a terminal.
pub(crate) struct Person<I> {
    input: I,
    say: fn(&str),
}

/// Returns the person who can be asked: nobody where stdin is no terminal or carries a protocol.
pub(crate) fn person(mode: Mode) -> Option<Person<std::io::StdinLock<'static>>> {
    let stdin = std::io::stdin();
    let asks = mode != Mode::Rpc && stdin.is_terminal() && std::io::stderr().is_terminal();
    asks.then(|| Person {
        input: stdin.lock(),
        say: |text| {
            let mut stderr = std::io::stderr();
            // Nobody can be told when stderr is gone.
            drop(
                stderr
                    .write_all(text.as_bytes())
                    .and_then(|()| stderr.flush()),
            );
        },
    })
}

impl<I: BufRead> Person<I> {
    /// Asks for a yes; anything else is a no.
    pub(crate) fn confirm(&mut self, question: &str) -> bool {
        (self.say)(&format!("{question} [y/N] "));
        matches!(self.line().as_deref(), Some("y" | "Y" | "yes" | "Yes"))
    }

    /// Lets the person choose a row by its number: an empty line is the first, `q` and the end of input none.
    pub(crate) fn pick(&mut self, title: &str, rows: &[String]) -> Option<usize> {
        (self.say)(&format!("{title}\n"));
        for (number, row) in (1..).zip(rows) {
            (self.say)(&format!("{number:>4}  {row}\n"));
        }
        loop {
            (self.say)(&format!(
                "Number (1-{}, Enter for 1, q to leave): ",
                rows.len()
            ));
            let line = self.line()?;
            match (line.as_str(), line.parse::<usize>()) {
                ("", _) => return Some(0),
                ("q" | "Q", _) => return None,
                (_, Ok(number)) if (1..=rows.len()).contains(&number) => return Some(number - 1),
                _ => (self.say)(&format!("{line:?} is none of them.\n")),
            }
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.input.read_line(&mut line) {
            Ok(1..) => Some(line.trim().to_owned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(text: &str) -> Person<&[u8]> {
        Person {
            input: text.as_bytes(),
            say: |_| (),
        }
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        for (said, meant) in [
            ("y\n", true),
            ("yes\n", true),
            ("\n", false),
            ("n\n", false),
            ("", false),
        ] {
            assert_eq!(person(said).confirm("Copy it?"), meant, "{said:?}");
        }
    }

    #[test]
    fn a_row_is_chosen_by_its_number() {
        let rows = ["a".to_owned(), "b".to_owned()];
        let picks = [
            ("\n", Some(0)),
            ("2\n", Some(1)),
            ("7\nx\n 1 \n", Some(0)),
            ("q\n", None),
            ("", None),
            ("3\n", None),
        ];
        for (said, meant) in picks {
            assert_eq!(person(said).pick("Sessions", &rows), meant, "{said:?}");
        }
    }
}
