//! What happens to a session file when programs die, collide, or the disk is not as it was.

use std::io::{BufRead as _, BufReader, Lines};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use pi_nvim::ai::Message;
use pi_nvim::session::store::{Session, Start, StoreNotice};
use serde_json::{Value, json};

fn message(role: &str, text: &str) -> Message {
    let content = match role {
        "user" => json!(text),
        _ => json!([{"type": "text", "text": text}]),
    };
    Message::from_value(
        json!({"role": role, "content": content, "timestamp": 1, "stopReason": "stop"}),
    )
}

fn say(session: &mut Session, text: &str) -> String {
    session
        .append_message(&message("user", text))
        .unwrap()
        .to_string()
}

fn open(path: &Path) -> Session {
    Session::open(path, Path::new("/nowhere"), Start::default()).unwrap()
}

/// A new session in a folder of its own, with its first message written.
fn started() -> (tempfile::TempDir, Session) {
    let dir = tempfile::tempdir().unwrap();
    let mut session =
        Session::create(&dir.path().join("sessions"), dir.path(), Start::default()).unwrap();
    say(&mut session, "first");
    (dir, session)
}

fn path_of(session: &Session) -> std::path::PathBuf {
    session.file().unwrap().to_owned()
}

/// Every entry of the active path by text, root first.
fn texts(session: &Session) -> Vec<String> {
    session
        .context()
        .messages()
        .map(|message| {
            message.to_value()["content"]
                .as_str()
                .unwrap_or("-")
                .to_owned()
        })
        .collect()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n'));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("torn line {line:?}")))
        .collect()
}

const CHILD_FILE: &str = "PI_NVIM_TEST_APPEND_TO";

/// Not a test of its own: the process that [`no_acknowledged_entry_is_lost_to_a_kill`] kills.
#[test]
fn child_that_appends() {
    let Some(path) = std::env::var_os(CHILD_FILE) else {
        return;
    };
    use std::io::Write as _;
    let mut session = open(Path::new(&path));
    let mut out = std::io::stdout().lock();
    for round in 0.. {
        let role = if round % 3 == 0 { "user" } else { "assistant" };
        let text = "x".repeat(1 + (round * 7919) % 9000);
        let id = session.append_message(&message(role, &text)).unwrap();
        // The pipe is gone when the parent is.
        if writeln!(out, "ack {id}")
            .and_then(|()| out.flush())
            .is_err()
        {
            return;
        }
    }
}

/// Starts a process that appends to the file, and reads what it acknowledges.
fn child_on(path: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "sessions::durability::child_that_appends",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD_FILE, path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = child.stdout.take().unwrap();
    (child, BufReader::new(out).lines())
}

/// `PI_NVIM_KILL_ROUNDS` sets how often; the default is what `make test` does.
#[test]
fn no_acknowledged_entry_is_lost_to_a_kill() {
    let rounds: u32 = std::env::var("PI_NVIM_KILL_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(60);
    let dir = tempfile::tempdir().unwrap();
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    let mut acknowledged = 0;
    for round in 0..rounds {
        // A new file every tenth round, so that kills meet its creation too.
        let path = dir.path().join(format!("{}.jsonl", round / 10));
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let (mut child, mut read) = child_on(&path);
        let mut acks: Vec<String> = Vec::new();
        let wanted = (seed % 12) as usize;
        while acks.len() < wanted {
            let Some(Ok(line)) = read.next() else {
                panic!("the child ended by itself")
            };
            // The harness prints its own words in front of the first line.
            acks.extend(line.split_once("ack ").map(|(_, id)| id.to_owned()));
        }
        let pause = Instant::now();
        while pause.elapsed() < Duration::from_micros(seed >> 32 & 0xff) {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        acks.extend(
            read.map_while(Result::ok)
                .filter_map(|line| Some(line.strip_prefix("ack ")?.to_owned())),
        );
        acknowledged += acks.len();
        if acks.is_empty() && !path.exists() {
            continue;
        }
        let session = open(&path);
        for id in &acks {
            assert!(
                session.find(id).is_some(),
                "round {round}: {id} was acknowledged and is gone"
            );
        }
        assert_eq!(
            session.path().len(),
            session.len(),
            "round {round}: every entry hangs on the one before it"
        );
    }
    assert!(rounds < 20 || acknowledged > rounds as usize);
}

#[test]
fn files_and_folders_are_private() {
    let (_dir, session) = started();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let path = path_of(&session);
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
}

#[test]
fn two_writers_lose_nothing_and_each_is_told() {
    let (_dir, mut one) = started();
    let path = path_of(&one);
    let mut two = open(&path);
    assert!(
        two.take_notices().is_empty(),
        "this process is no other program"
    );
    for round in 0..50 {
        say(&mut one, &format!("one {round}"));
        say(&mut two, &format!("two {round}"));
    }
    for (session, name) in [(&mut one, "one"), (&mut two, "two")] {
        let notices = session.take_notices();
        assert!(
            matches!(notices[..], [StoreNotice::ForeignEntries { count: 1, .. }]),
            "told once: {notices:?}"
        );
        let texts = texts(session);
        assert_eq!(texts.len(), 51);
        assert!(
            texts[1..].iter().all(|text| text.starts_with(name)),
            "its own branch: {texts:?}"
        );
    }
    assert_eq!(lines(&path).len(), 102);
    let both = open(&path);
    assert_eq!(both.len(), 101);
    let roots = both.tree();
    assert_eq!((roots.roots().len(), roots.children(0).len()), (1, 2));
}

#[test]
fn a_session_that_another_process_has_open_says_so_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let (mut child, mut acks) = child_on(&path);
    assert!(acks.any(|line| line.unwrap().contains("ack ")));
    let notices = open(&path).take_notices();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(notices, [StoreNotice::OpenElsewhere(path.clone())]);
    assert!(
        open(&path).take_notices().is_empty(),
        "the lock went with the process"
    );
}

#[test]
fn an_edit_is_taken_back_by_another_edit() {
    let (_dir, mut session) = started();
    let first = session.leaf_id().unwrap().to_string();
    let reply = session
        .append_message(&message("assistant", "answer"))
        .unwrap()
        .to_string();
    let before = session.context().values(&session);
    for id in [&first, &reply] {
        session.append_context_edit(id, Value::Null).unwrap();
    }
    assert!(session.context().values(&session).is_empty());
    for id in [&first, &reply] {
        session
            .append_context_edit(id, json!({"original": true}))
            .unwrap();
    }
    assert_eq!(session.context().values(&session), before);
    assert_eq!(open(&path_of(&session)).context().messages().count(), 2);
}

#[test]
fn a_vanished_file_is_written_again_complete() {
    let (_dir, mut session) = started();
    let path = path_of(&session);
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    say(&mut session, "second");
    assert_eq!(
        session.take_notices(),
        [StoreNotice::Restored(path.clone())]
    );
    let written = lines(&path);
    assert_eq!((written.len(), &written[0]["type"]), (3, &json!("session")));
    say(&mut session, "third");
    assert_eq!(texts(&open(&path)), ["first", "second", "third"]);
}

#[test]
fn a_folder_that_is_gone_keeps_the_conversation_in_memory_until_it_is_back() {
    let (dir, mut session) = started();
    let path = path_of(&session);
    let (folder, aside) = (path.parent().unwrap().to_owned(), dir.path().join("aside"));
    std::fs::rename(&folder, &aside).unwrap();
    std::fs::write(&folder, "not a folder").unwrap();
    say(&mut session, "second");
    let notices = session.take_notices();
    assert!(
        matches!(notices[..], [StoreNotice::NotWritten { .. }]),
        "{notices:?}"
    );
    assert!(notices[0].to_string().contains("goes on in memory"));
    say(&mut session, "third");
    assert!(session.take_notices().is_empty(), "said once");
    assert!(!session.is_saved());
    assert_eq!(texts(&session), ["first", "second", "third"]);
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&aside, &folder).unwrap();
    say(&mut session, "fourth");
    assert_eq!(
        session.take_notices(),
        [StoreNotice::SavedAgain(path.clone())]
    );
    assert_eq!(texts(&open(&path)), ["first", "second", "third", "fourth"]);
}

#[test]
fn a_session_that_could_never_be_written_is_saved_when_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("sessions");
    std::fs::write(&folder, "in the way").unwrap();
    let mut session = Session::create(&folder, dir.path(), Start::default()).unwrap();
    session.append_model_change("p", "m").unwrap();
    say(&mut session, "first");
    assert!(matches!(
        session.take_notices()[..],
        [StoreNotice::NotWritten { .. }]
    ));
    std::fs::remove_file(&folder).unwrap();
    session.append_thinking_level("high").unwrap();
    assert!(session.is_saved());
    assert_eq!(lines(&path_of(&session)).len(), 4);
}

#[test]
fn a_replaced_file_is_read_again_and_gets_what_it_lacks() {
    let (dir, mut session) = started();
    let path = path_of(&session);
    let copy = dir.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    say(&mut session, "second");
    let mut other = open(&copy);
    say(&mut other, "theirs");
    std::fs::rename(&copy, &path).unwrap();
    say(&mut session, "third");
    assert_eq!(
        session.take_notices(),
        [StoreNotice::Replaced(path.clone())]
    );
    assert_eq!(texts(&session), ["first", "second", "third"]);
    let read = open(&path);
    assert_eq!(texts(&read), ["first", "second", "third"]);
    assert_eq!(read.len(), 4);
    drop(session);
}

#[test]
fn a_foreign_file_in_the_place_of_the_session_is_left_alone() {
    let (_dir, mut session) = started();
    let path = path_of(&session);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "my notes\n").unwrap();
    say(&mut session, "second");
    assert!(matches!(
        session.take_notices()[..],
        [StoreNotice::NotWritten { .. }]
    ));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "my notes\n");
    assert_eq!(texts(&session), ["first", "second"]);
}

#[test]
fn a_file_that_appears_before_the_first_message_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let mut session = open(&path);
    session.append_model_change("p", "m").unwrap();
    std::fs::write(&path, "theirs\n").unwrap();
    let error = session.append_message(&message("user", "x")).unwrap_err();
    assert!(error.to_string().contains("exists already"), "{error}");
    assert_eq!(
        (session.len(), std::fs::read_to_string(&path).unwrap()),
        (1, "theirs\n".to_owned())
    );
}

#[test]
fn a_torn_foreign_line_does_not_swallow_the_next_entry() {
    let (_dir, mut session) = started();
    let path = path_of(&session);
    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut file, b"{\"type\":\"message\",\"id\":\"tor").unwrap();
    say(&mut session, "second");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"tor\n{\"type\":\"message\""), "{text}");
    assert_eq!(texts(&open(&path)), ["first", "second"]);
}

#[test]
fn cycles_end_the_walk_and_their_members_are_roots() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let entry = |id: &str, parent: &str| json!({"type": "message", "id": id, "parentId": parent, "message": {"role": "user", "content": id}});
    let header = json!({"type": "session", "version": 3, "id": "s", "cwd": "/"});
    let all = [
        header,
        entry("a", "b"),
        entry("b", "a"),
        entry("self", "self"),
        entry("c", "b"),
        entry("d", "c"),
    ];
    let text: String = all.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, text).unwrap();
    let session = open(&path);
    assert_eq!(texts(&session), ["a", "b", "c", "d"]);
    let tree = session.tree();
    assert_eq!(tree.roots(), [0, 1, 2]);
    assert_eq!((tree.children(1), tree.children(3)), (&[3][..], &[4][..]));
}

#[test]
fn a_chain_of_a_hundred_thousand_entries_needs_no_stack() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let mut text = format!(
        "{}\n",
        json!({"type": "session", "version": 3, "id": "s", "cwd": "/"})
    );
    for at in 0..100_000 {
        let parent = if at == 0 {
            "null".to_owned()
        } else {
            format!("\"{}\"", at - 1)
        };
        text.push_str(&format!(
            "{{\"type\":\"custom\",\"id\":\"{at}\",\"parentId\":{parent}}}\n"
        ));
    }
    std::fs::write(&path, text).unwrap();
    let run = move || {
        let mut session = open(&path);
        assert_eq!(session.path().len(), 100_000);
        assert!(session.tree_json().ends_with("]}]}]}]"));
        assert_eq!(session.export_jsonl().lines().count(), 100_001);
        let leaf = session.leaf_id().unwrap().to_string();
        assert_eq!(
            session.branched(&leaf, Start::default()).unwrap().len(),
            100_000
        );
    };
    // A quarter of the usual stack: recursion over the chain would not fit.
    std::thread::Builder::new()
        .stack_size(512 * 1024)
        .spawn(run)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn odd_lines_survive_opening_appending_and_copying() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let deep = format!("{}{}", "[".repeat(3000), "]".repeat(3000));
    let odd = [
        r#"{"type":"session","version":3,"id":"s","cwd":"/","kept":{"a":1}}"#.to_owned(),
        r#"{"type":"message","id":"a","parentId":null,"x":12345678901234567890123,"message":{"role":"user","content":"cut \ud83d","y":1e999}}"#.to_owned(),
        format!(r#"{{"type":"future","id":"b","parentId":"a","deep":{deep},"b":1.0,"a":2}}"#),
        r#"{"type":"message","id":"c","parentId":"b","id":"c","message":{"role":"user","content":"old","content":"new"}}"#.to_owned(),
    ];
    std::fs::write(&path, odd.join("\n") + "\n").unwrap();
    let mut session = open(&path);
    assert_eq!(texts(&session), ["cut \u{fffd}", "new"]);
    say(&mut session, "more");
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept.starts_with(&odd.join("\n")));
    let leaf = session.leaf_id().unwrap().to_string();
    let fork = session.branched(&leaf, Start::default()).unwrap();
    let copied = std::fs::read_to_string(fork.file().unwrap()).unwrap();
    for line in &odd[1..] {
        assert!(copied.contains(line.as_str()), "{line:.200}");
    }
    assert!(session.export_jsonl().contains(&deep));
    let whole = pi_nvim::session::fork::fork_from(
        &path,
        &dir.path().join("fork"),
        Path::new("/other"),
        Start::default(),
    )
    .unwrap();
    assert_eq!(
        (whole.len(), whole.header().parent_session()),
        (4, path.to_str())
    );
    assert!(
        std::fs::read_to_string(whole.file().unwrap())
            .unwrap()
            .contains(odd[1].as_str())
    );
}

#[test]
fn the_old_formats_are_forked_with_their_context() {
    let place = super::Place::new();
    for file in ["files/v1-linear.jsonl", "files/v2-hookmessage.jsonl"] {
        let path = place.copy(file);
        let before = std::fs::read(&path).unwrap();
        let dir = place.dir.path().join("forks");
        let fork =
            pi_nvim::session::fork::fork_from(&path, &dir, &place.cwd(), Start::default()).unwrap();
        assert_eq!(
            std::fs::read(&path).unwrap(),
            before,
            "the source is not touched"
        );
        let opened = open(&path);
        let count = |session: &Session| session.context().messages().count();
        assert!(count(&fork) > 0);
        assert_eq!((count(&fork), fork.header().version()), (count(&opened), 3));
    }
}

#[test]
fn imports_take_a_free_name_and_leave_nothing_behind_when_given_up() {
    let (dir, session) = started();
    let source = dir.path().join("s.jsonl");
    std::fs::copy(path_of(&session), &source).unwrap();
    let into = dir.path().join("into");
    let import =
        |source: &Path| pi_nvim::session::fork::import(source, &into, dir.path(), Start::default());
    let first = import(&source).unwrap();
    let second = import(&source).unwrap();
    assert_eq!(
        first.copied.as_deref(),
        Some(into.join("s.jsonl").as_path())
    );
    assert_eq!(
        second.copied.as_deref(),
        Some(into.join("s-1.jsonl").as_path())
    );
    second.discard();
    assert!(!into.join("s-1.jsonl").exists());
    assert!(
        import(&into.join("s.jsonl")).unwrap().copied.is_none(),
        "it lies there already"
    );
    std::fs::write(&source, "notes").unwrap();
    assert!(import(&source).is_err());
    assert!(import(&dir.path().join("missing.jsonl")).is_err());
    assert_eq!(std::fs::read_dir(&into).unwrap().count(), 1);
}

#[test]
fn a_fork_holds_the_branch_before_the_message_and_gives_its_text() {
    let (_dir, mut session) = started();
    let answer = session
        .append_message(&message("assistant", "answer"))
        .unwrap();
    let asked = say(&mut session, "asked");
    session.branch(&answer).unwrap();
    say(&mut session, "other");
    let (fork, text) = session.forked_before(&asked, Start::default()).unwrap();
    assert_eq!((texts(&fork).len(), text.as_str()), (2, "asked"));
    assert_ne!(fork.id(), session.id());
    assert_eq!(fork.header().parent_session(), path_of(&session).to_str());
    assert!(session.forked_before(&answer, Start::default()).is_err());
    let candidates: Vec<String> = session
        .fork_candidates()
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(candidates, ["first", "asked", "other"]);
    let memory = Session::in_memory(Path::new("/"), Start::default()).unwrap();
    assert_eq!(
        memory.sibling(Start::default()).unwrap().file(),
        None,
        "in memory stays in memory"
    );
}
