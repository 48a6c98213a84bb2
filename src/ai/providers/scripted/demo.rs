//! The agent of `make demo`: moves over the sample project in `scripts/demo/sample`, chosen by what happened so far.
//!
//! A pure function of the conversation. It reads files, asks to run the tests, proposes edits of several hunks in two
//! files and a new file, runs the tests again and, when some fail because the person rejected something, proposes
//! another way for exactly those. It needs no key and no network, and works the same in a test as on a screen.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::ai::{Block, Message};

/// What the scripted agent says and does next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Move {
    /// Thinking shown before the text.
    pub thinking: String,
    /// The answer.
    pub text: String,
    /// Tool calls as (id, name, arguments).
    pub calls: Vec<(String, String, Value)>,
}

/// One thing that is wrong in the sample, with two ways to put it right.
struct Fix {
    path: &'static str,
    /// Test that fails until it is put right; empty when no test looks at it.
    test: &'static str,
    /// What it is called in a sentence.
    what: &'static str,
    old: &'static str,
    new: &'static str,
    /// The way proposed after the first one was rejected.
    other: &'static str,
}

const MONEY: &str = "shop/money.py";
const CART: &str = "shop/cart.py";
const TESTS: &str = "python3 -B -m unittest -q";

const FIXES: [Fix; 5] = [
    Fix {
        path: MONEY,
        test: "test_parse_keeps_every_cent",
        what: "reading amounts",
        old: "    return int(float(text) * 100)",
        new: "    whole, _, cents = text.partition(\".\")\n    return int(whole) * 100 + int((cents + \"00\")[:2])",
        other: "    return round(float(text) * 100)",
    },
    Fix {
        path: MONEY,
        test: "",
        what: "showing amounts",
        old: "    return \"%.2f\" % (cents / 100)",
        new: "    return \"%d.%02d\" % divmod(cents, 100)",
        other: "",
    },
    Fix {
        path: CART,
        test: "test_total_counts_the_quantity",
        what: "the total",
        old: "        return sum(cents for _, cents, _ in self.lines)",
        new: "        return sum(cents * quantity for _, cents, quantity in self.lines)",
        other: "        total = 0\n        for _, cents, quantity in self.lines:\n            total += cents * quantity\n        return total",
    },
    Fix {
        path: CART,
        test: "test_discount_is_whole_cents",
        what: "the discount",
        old: "        return self.total() - self.total() * percent / 100",
        new: "        return round(self.total() * (1 - percent / 100))",
        other: "        return self.total() * (100 - percent) // 100",
    },
    Fix {
        path: CART,
        test: "test_receipt_shows_the_quantity",
        what: "the receipt",
        old: "        for name, cents, _ in self.lines:\n            rows.append(\"%s %s\" % (name, money.show(cents)))",
        new: "        for name, cents, quantity in self.lines:\n            rows.append(\"%d x %s %s\" % (quantity, name, money.show(cents * quantity)))",
        other: "        for name, cents, quantity in self.lines:\n            rows.append(f\"{quantity} x {name} {money.show(cents * quantity)}\")",
    },
];

const CHANGES: &str = "# Changes\n\n- Amounts are read and shown digit by digit, so no cent is lost to floating point.\n- Totals and receipts count the quantity.\n- A discount gives whole cents.\n";

/// Returns the next move for this conversation.
pub fn respond(messages: &[Arc<Message>]) -> Move {
    let story = Story { messages };
    if !story.called("demo-read-cart") {
        return read_the_code();
    }
    if !story.called("demo-tests-1") {
        return first_tests();
    }
    if !story.called("demo-edit-cart") {
        return propose(&story);
    }
    if !story.called("demo-tests-3") {
        return look_again(&story);
    }
    finish(&story, "demo-tests-3")
}

fn read_the_code() -> Move {
    Move {
        thinking: "A small Python project with failing tests. Read before touching anything."
            .into(),
        text: "I'll read the code and its tests first.".into(),
        calls: [
            ("money", MONEY),
            ("cart", CART),
            ("tests", "tests/test_shop.py"),
        ]
        .map(|(id, path)| call(&format!("demo-read-{id}"), "read", json!({ "path": path })))
        .into(),
    }
}

fn first_tests() -> Move {
    Move {
        text: "The cart ignores quantities and the money goes through floats. Let me see what the tests say.".into(),
        calls: vec![run_tests("demo-tests-1")],
        ..Move::default()
    }
}

fn propose(story: &Story<'_>) -> Move {
    let seen = match story.result("demo-tests-1") {
        Some(text) if text.contains("FAIL") => {
            format!("{} tests fail. ", failing(&text).len())
        }
        _ => "Without a test run I go by the code. ".into(),
    };
    let edits = |path: &str| -> Value {
        let list: Vec<Value> = FIXES
            .iter()
            .filter(|fix| fix.path == path)
            .map(|fix| edit(fix, fix.new))
            .collect();
        json!({ "path": path, "edits": list })
    };
    Move {
        thinking: "Cents must stay whole numbers, and the quantity belongs into total and receipt."
            .into(),
        text: format!(
            "{seen}I'll put both files right, note it in CHANGES.md, and run the tests again."
        ),
        calls: vec![
            call("demo-edit-money", "edit", edits(MONEY)),
            call("demo-edit-cart", "edit", edits(CART)),
            call(
                "demo-write-changes",
                "write",
                json!({ "path": "CHANGES.md", "content": CHANGES }),
            ),
            run_tests("demo-tests-2"),
        ],
    }
}

/// After the proposals: done when the tests pass, another way for what was rejected when they don't.
fn look_again(story: &Story<'_>) -> Move {
    let output = story.result("demo-tests-2").unwrap_or_default();
    let names = failing(&output);
    let open: Vec<&Fix> = FIXES
        .iter()
        .filter(|fix| !fix.other.is_empty() && names.iter().any(|name| name == fix.test))
        .collect();
    if open.is_empty() {
        return finish(story, "demo-tests-2");
    }
    // A receipt that is right but adds up a wrong total fails too: mend what is below it first.
    let rejected: Vec<&Fix> = open
        .iter()
        .copied()
        .filter(|fix| story.refused(fix))
        .collect();
    let todo = if rejected.is_empty() { open } else { rejected };
    let mut calls = Vec::new();
    for (id, path) in [("money", MONEY), ("cart", CART)] {
        let list: Vec<Value> = todo
            .iter()
            .filter(|fix| fix.path == path)
            .map(|fix| edit(fix, fix.other))
            .collect();
        if !list.is_empty() {
            calls.push(call(
                &format!("demo-again-{id}"),
                "edit",
                json!({ "path": path, "edits": list }),
            ));
        }
    }
    calls.push(run_tests("demo-tests-3"));
    let what: Vec<&str> = todo.iter().map(|fix| fix.what).collect();
    let reason = match story.reason() {
        Some(reason) => format!(" You said: \u{201c}{reason}\u{201d}."),
        None => String::new(),
    };
    Move {
        thinking:
            "What was rejected still fails its test; the rest stands. Another way for that alone."
                .into(),
        text: format!(
            "{} still fails because {} did not go in.{reason} Another way, for that alone:",
            names.join(", "),
            join(&what)
        ),
        calls,
    }
}

fn finish(story: &Story<'_>, tests: &str) -> Move {
    if story.said_goodbye() {
        return Move {
            text: "That is all this scripted agent can do. Choose a real model with `:Pi model`, or `:Pi login` for a key."
                .into(),
            ..Move::default()
        };
    }
    let output = story.result(tests).unwrap_or_default();
    let names = failing(&output);
    let text = if output.contains("OK") && names.is_empty() {
        format!(
            "{GOODBYE}all tests pass. What you rejected was left out, and only what you accepted was written."
        )
    } else if names.is_empty() {
        format!(
            "{GOODBYE}I could not run the tests, so I stop here. Only what you accepted was written."
        )
    } else {
        format!(
            "{GOODBYE}{} still fails. I stop here rather than ask a third time; tell me how you want it.",
            names.join(", ")
        )
    };
    Move {
        text,
        ..Move::default()
    }
}

/// How the last answer begins; also how it is known again.
const GOODBYE: &str = "Done: ";

fn call(id: &str, name: &str, arguments: Value) -> (String, String, Value) {
    (id.to_owned(), name.to_owned(), arguments)
}

fn run_tests(id: &str) -> (String, String, Value) {
    call(id, "bash", json!({ "command": TESTS }))
}

fn edit(fix: &Fix, new: &str) -> Value {
    json!({ "oldText": fix.old, "newText": new })
}

fn join(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

/// Names of failing tests in the output of `unittest`.
fn failing(output: &str) -> Vec<String> {
    let mut names: Vec<String> = output
        .lines()
        .filter_map(|line| {
            line.strip_prefix("FAIL: ")
                .or_else(|| line.strip_prefix("ERROR: "))
        })
        .filter_map(|rest| rest.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    names.dedup();
    names
}

/// The conversation so far, as the script asks about it.
struct Story<'a> {
    messages: &'a [Arc<Message>],
}

impl Story<'_> {
    fn called(&self, id: &str) -> bool {
        self.messages.iter().any(|message| match &**message {
            Message::Assistant(answer) => answer.tool_calls().any(|call| call.id == id),
            _ => false,
        })
    }

    fn results(&self) -> impl Iterator<Item = (&str, String)> {
        self.messages.iter().filter_map(|message| match &**message {
            Message::ToolResult(result) => {
                let texts: Vec<&str> = result.content.iter().filter_map(Block::as_text).collect();
                Some((result.tool_call_id.as_str(), texts.join("\n")))
            }
            _ => None,
        })
    }

    fn result(&self, id: &str) -> Option<String> {
        self.results()
            .find(|(call, _)| *call == id)
            .map(|(_, text)| text)
    }

    /// Whether the first proposal for this was not written, as far as the result tells.
    fn refused(&self, fix: &Fix) -> bool {
        let id = if fix.path == MONEY {
            "demo-edit-money"
        } else {
            "demo-edit-cart"
        };
        let first = fix.new.lines().next().unwrap_or_default().trim();
        self.result(id).is_some_and(|text| {
            text.contains("the file is unchanged")
                || (text.contains("NOT applied") && text.contains(first))
        })
    }

    /// The reason the person gave for a rejection of the proposals, if any.
    fn reason(&self) -> Option<String> {
        self.results()
            .filter(|(id, _)| id.starts_with("demo-edit") || id.starts_with("demo-write"))
            .find_map(|(_, text)| {
                let at = text.find("Reason: ").or_else(|| text.find("reason: "))?;
                let rest = text.get(at + "Reason: ".len()..)?;
                Some(rest.lines().next()?.trim().trim_end_matches('.').to_owned())
            })
    }

    fn said_goodbye(&self) -> bool {
        self.messages.iter().any(|message| match &**message {
            Message::Assistant(answer) => answer
                .content
                .iter()
                .filter_map(Block::as_text)
                .any(|text| text.starts_with(GOODBYE)),
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ai::{AssistantMessage, ToolResultMessage, message::ToolCall};

    fn answered(history: &mut Vec<Arc<Message>>, step: &Move, result: impl Fn(&str) -> String) {
        let content = step
            .calls
            .iter()
            .map(|(id, name, arguments)| {
                Block::ToolCall(ToolCall {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: arguments.clone(),
                    ..ToolCall::default()
                })
            })
            .chain([Block::text(step.text.clone())])
            .collect();
        history.push(Arc::new(Message::Assistant(AssistantMessage {
            content,
            ..AssistantMessage::default()
        })));
        for (id, name, _) in &step.calls {
            history.push(Arc::new(Message::ToolResult(ToolResultMessage {
                tool_call_id: id.clone(),
                tool_name: name.clone(),
                content: vec![Block::text(result(id))],
                ..ToolResultMessage::default()
            })));
        }
    }

    #[test]
    fn everything_accepted_ends_after_the_second_test_run() {
        let mut history = Vec::new();
        for ids in [
            vec!["demo-read-money", "demo-read-cart", "demo-read-tests"],
            vec!["demo-tests-1"],
        ] {
            let step = respond(&history);
            assert_eq!(
                step.calls
                    .iter()
                    .map(|call| call.0.as_str())
                    .collect::<Vec<_>>(),
                ids
            );
            answered(&mut history, &step, |_| {
                "FAIL: test_discount_is_whole_cents (x)".into()
            });
        }
        let step = respond(&history);
        assert_eq!(step.calls.len(), 4);
        answered(&mut history, &step, |_| "Ran 4 tests\n\nOK".into());
        assert!(respond(&history).text.contains("all tests pass"));
        assert!(respond(&history).calls.is_empty());
    }

    #[test]
    fn a_rejected_hunk_gets_another_way_with_the_reason() {
        let mut history = Vec::new();
        for _ in 0..2 {
            let step = respond(&history);
            answered(&mut history, &step, |_| String::new());
        }
        let step = respond(&history);
        answered(&mut history, &step, |id| {
            match id {
            "demo-edit-cart" => "Applied 2 of 3 hunks to shop/cart.py. Rejected hunks were NOT applied:\n\
                                 +        return round(self.total() * (1 - percent / 100))\nReason: no floats\n"
                .into(),
            "demo-tests-2" => "FAIL: test_discount_is_whole_cents (tests.test_shop)\n".into(),
            _ => "ok".into(),
        }
        });
        let again = respond(&history);
        assert!(again.text.contains("no floats"), "{}", again.text);
        assert_eq!(again.calls[0].2["edits"].as_array().unwrap().len(), 1);
        assert!(
            again.calls[0].2["edits"][0]["newText"]
                .as_str()
                .unwrap()
                .contains("// 100")
        );
        answered(&mut history, &again, |_| "Ran 4 tests\n\nOK".into());
        let last = respond(&history);
        assert!(last.text.contains("all tests pass"));
        answered(&mut history, &last, |_| String::new());
        assert!(respond(&history).text.contains(":Pi model"));
    }
}
