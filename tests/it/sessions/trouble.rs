//! A session file that cannot be written while the real program runs: removed, in the way, full, shared. Each has one
//! outcome and one clear line, and the conversation goes on.

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout};

use serde_json::{Value, json};

use super::kills::World;

/// A running program whose model says `Done.` to everything.
struct Program {
    world: World,
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    /// Starts it through other programs (`sh -c ...`), the session in `folder` below the root of its world.
    fn start(world: World, launcher: &[&str], session: &Path) -> Self {
        world.says_done();
        let mut child = world.spawn_with(launcher, session, None);
        Self {
            input: child.stdin.take().unwrap(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            world,
        }
    }

    /// Sends a prompt and waits until the run has settled; gives the answer's error, if it has one.
    fn prompt(&mut self, text: &str) -> Option<String> {
        let record = json!({"id": "p", "type": "prompt", "message": text});
        writeln!(self.input, "{record}").unwrap();
        let mut error = None;
        loop {
            let line = self.lines.next().expect("the program lives").unwrap();
            let event: Value = serde_json::from_str(&line).unwrap();
            match event["type"].as_str() {
                Some("response") if event["success"] == false => {
                    return Some(event["error"].to_string());
                }
                Some("message_end") if event["message"]["stopReason"] == "error" => {
                    error = Some(event["message"]["errorMessage"].to_string());
                }
                Some("agent_settled") => return error,
                _ => {}
            }
        }
    }

    /// Ends the program in order and gives all it said on standard error.
    fn end(mut self) -> (World, Vec<String>) {
        drop(self.input);
        let mut said = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert!(self.child.wait().unwrap().success());
        (self.world, said.lines().map(str::to_owned).collect())
    }
}

/// Texts of the person's messages on the path to the last entry; the file must hold nothing but whole lines.
fn asked(file: &Path) -> Vec<String> {
    asked_in(&std::fs::read_to_string(file).unwrap())
}

fn asked_in(text: &str) -> Vec<String> {
    let entries: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("torn: {line:.100}")))
        .collect();
    assert_eq!(entries[0]["type"], "session");
    let mut path = Vec::new();
    let mut next = entries.last().cloned();
    while let Some(entry) = next {
        let parent = entry["parentId"].clone();
        next = entries
            .iter()
            .find(|it| it["id"] == parent && !parent.is_null())
            .cloned();
        assert!(parent.is_null() || next.is_some(), "{parent} is missing");
        if entry["message"]["role"] == "user" {
            path.push(
                entry["message"]["content"][0]["text"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
            );
        }
    }
    path.reverse();
    path
}

#[track_caller]
fn said_once(lines: &[String], part: &str) {
    let found: Vec<&String> = lines.iter().filter(|line| line.contains(part)).collect();
    assert_eq!(found.len(), 1, "{part:?} in {lines:#?}");
    assert!(found[0].contains(".jsonl"), "names the file: {}", found[0]);
}

fn in_folder() -> (World, PathBuf) {
    let world = World::new(3);
    let folder = world.root().join("sessions");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("s.jsonl");
    (world, file)
}

#[test]
fn a_removed_session_file_is_written_again_whole() {
    let (world, file) = in_folder();
    let mut program = Program::start(world, &[], &file);
    program.prompt("one");
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
    assert_eq!(program.prompt("two"), None);
    program.prompt("three");
    let (_world, said) = program.end();
    said_once(&said, "had been removed and was written again");
    assert_eq!(asked(&file), ["one", "two", "three"]);
}

#[test]
fn a_folder_in_which_nothing_can_be_written_is_told_and_made_up_for() {
    let (world, file) = in_folder();
    let folder = file.parent().unwrap().to_owned();
    let aside = world.root().join("aside");
    let mut program = Program::start(world, &[], &file);
    program.prompt("one");
    std::fs::rename(&folder, &aside).unwrap();
    std::fs::write(&folder, "in the way").unwrap();
    assert_eq!(program.prompt("two"), None, "the conversation goes on");
    assert_eq!(program.prompt("three"), None);
    assert_eq!(asked(&aside.join("s.jsonl")), ["one"]);
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&aside, &folder).unwrap();
    program.prompt("four");
    let (_world, said) = program.end();
    said_once(&said, "cannot be written");
    said_once(&said, "is saved again");
    assert_eq!(asked(&file), ["one", "two", "three", "four"]);
}

/// The largest file a child may write is a disk that is full for it: writes stop in the middle of a line.
#[test]
fn a_full_disk_tears_no_line_and_loses_nothing_that_was_said() {
    let (world, file) = in_folder();
    let limited = ["sh", "-c", "trap '' XFSZ; ulimit -f 40; exec \"$@\"", "sh"];
    let mut program = Program::start(world, &limited, &file);
    program.prompt("one");
    let long = "x".repeat(30_000);
    for number in 0..3 {
        assert_eq!(
            program.prompt(&format!("{number} {long}")),
            None,
            "the conversation goes on"
        );
    }
    // Whole lines only, while nothing more fits.
    let on_disk = asked(&file).len();
    assert!((1..4).contains(&on_disk), "{on_disk}");
    let (_world, said) = program.end();
    said_once(&said, "cannot be written");
}

#[test]
fn a_disk_that_was_full_gets_everything_once_there_is_room() {
    let allowed = std::process::Command::new("unshare")
        .args([
            "-rm",
            "sh",
            "-c",
            "mount -t tmpfs -o size=64k none \"$1\"",
            "sh",
        ])
        .arg(std::env::temp_dir())
        .output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        println!("skipped: this machine lets nobody mount a file system of their own");
        return;
    }
    let (world, file) = in_folder();
    let folder = file.parent().unwrap().to_str().unwrap().to_owned();
    let script = format!("mount -t tmpfs -o size=128k none '{folder}' && exec \"$@\"");
    let mut program = Program::start(world, &["unshare", "-rm", "sh", "-c", &script, "sh"], &file);
    program.prompt("one");
    // The program's own view of the folder.
    let inside = PathBuf::from(format!("/proc/{}/root{folder}", program.child.id()));
    let ballast = inside.join("ballast");
    std::fs::write(&ballast, vec![0; 80_000]).unwrap();
    let long = "x".repeat(30_000);
    for number in 0..2 {
        assert_eq!(
            program.prompt(&format!("{number} {long}")),
            None,
            "the conversation goes on"
        );
    }
    let inner = inside.join("s.jsonl");
    assert!(asked(&inner).len() < 3);
    std::fs::remove_file(&ballast).unwrap();
    program.prompt("four");
    let text = std::fs::read_to_string(&inner).unwrap();
    assert_eq!(asked_in(&text).len(), 4, "everything is there");
    let (_world, said) = program.end();
    said_once(&said, "cannot be written");
    said_once(&said, "is saved again");
}

#[test]
fn two_programs_on_one_session_are_told_and_each_goes_on_with_its_own_branch() {
    let (world, file) = in_folder();
    let mut one = Program::start(world, &[], &file);
    one.prompt("first");
    let mut two = Program::start(World::new(4), &[], &file);
    two.prompt("from two");
    one.prompt("from one");
    two.prompt("two again");
    one.prompt("one again");
    let (_one, said_one) = one.end();
    assert_eq!(asked(&file), ["first", "from one", "one again"]);
    let (_two, said_two) = two.end();
    said_once(&said_two, "is open in another pi-nvim");
    said_once(&said_two, "another program wrote to session");
    said_once(&said_one, "another program wrote to session");
    let text = std::fs::read_to_string(&file).unwrap();
    for wanted in ["from one", "from two", "one again", "two again"] {
        assert_eq!(
            text.matches(&format!("\"text\":\"{wanted}\"")).count(),
            1,
            "{wanted}"
        );
    }
}
