//! The adapter keeps its promises with a real Neovim.

use std::time::{Duration, Instant};

use pi_nvim::modes::nvim::editor::EditorError;
use pi_nvim::modes::nvim::editor::value::{depth, from_json};
use rmpv::Value;
use serde_json::json;

use super::harness::Nv;

fn nested(levels: usize) -> Value {
    (0..levels).fold(Value::from("core"), |inner, _| Value::Array(vec![inner]))
}

#[tokio::test]
async fn a_caller_that_stops_waiting_does_not_end_the_connection() {
    let nv = Nv::start().await;
    let editor = nv.editor.clone();
    // Stops waiting at once; the answer comes 100 ms later and finds nobody.
    let waited = tokio::time::timeout(
        Duration::from_millis(1),
        editor.change(
            "vim.wait(100, function() return false end) vim.g.done = 1",
            vec![],
        ),
    );
    assert!(waited.await.is_err());
    nv.wait("get(g:, 'done', 0)").await;
    assert_eq!(nv.eval("1 + 1").await, json!(2));
}

#[tokio::test]
async fn notifications_do_not_hold_up_answers_and_keep_their_order() {
    let nv = Nv::start().await;
    let code = "for i = 1, 500 do vim.rpcnotify(0, 'note', i, { key = 'v' }) end return 'done'";
    assert_eq!(nv.lua(code, json!(null)).await, json!("done"));
    let end = Instant::now() + Duration::from_secs(10);
    while nv.notifications().len() < 500 {
        assert!(Instant::now() < end, "got {}", nv.notifications().len());
        tokio::task::yield_now().await;
    }
    let numbers: Vec<_> = nv
        .notifications()
        .iter()
        .map(|note| note.args[0].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, (1..=500).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_end_of_neovim_fails_all_waiters_and_later_calls_at_once() {
    let nv = Nv::start().await;
    let editor = nv.editor.clone();
    nv.keys("ixx<Esc>r").await;
    while !editor.mode().await.unwrap().blocking {
        tokio::task::yield_now().await;
    }
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let editor = editor.clone();
            tokio::spawn(async move { editor.change("return 1", vec![]).await })
        })
        .collect();
    // Answered after the five were sent: they stand in Neovim's queue now.
    editor.mode().await.unwrap();
    nv.kill().await;
    for waiter in waiting {
        let error = waiter.await.unwrap().unwrap_err();
        assert!(matches!(error, EditorError::Closed { .. }), "{error}");
    }
    let later = editor.call("nvim_get_mode", vec![]).await.unwrap_err();
    assert!(matches!(later, EditorError::Closed { .. }), "{later}");
    assert!(editor.is_closed());
}

#[tokio::test]
async fn neovims_own_errors_are_values() {
    let nv = Nv::start().await;
    let error = nv.editor.change("error('no such thing', 0)", vec![]).await;
    let Err(EditorError::Neovim { text, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(text, "no such thing");
    let error = nv.editor.call("nvim_no_such_function", vec![]).await;
    assert!(
        matches!(error, Err(EditorError::Neovim { .. })),
        "{error:?}"
    );
    assert_eq!(nv.eval("2").await, json!(2));
}

#[tokio::test]
async fn deep_arguments_reach_neovim_as_json_text() {
    let nv = Nv::start().await;
    let code = "local v = ... local n = 0
        while type(v) == 'table' do v, n = v[1], n + 1 end
        return { n, v }";
    for levels in [29, 30, 60] {
        let answer = nv.editor.change(code, vec![nested(levels)]).await.unwrap();
        let answer = answer.as_array().unwrap().clone();
        // The argument list itself is one level more for `nvim_exec_lua`.
        let expected = levels.min(28);
        assert_eq!(
            answer[0].as_i64().unwrap() as usize,
            expected,
            "{levels} levels"
        );
        let rest = "[".repeat(levels - expected);
        assert!(answer[1].as_str().unwrap().starts_with(&rest));
    }
    let deep = nested(60);
    assert_eq!(depth(&deep), 60);
    assert_eq!(nv.eval("3").await, json!(3));
}

#[tokio::test]
async fn a_blocked_neovim_is_seen_and_a_drawing_call_is_given_up() {
    let nv = Nv::start().await;
    assert!(!nv.editor.mode().await.unwrap().blocking);
    // `r` waits for a character: nothing but fast calls are served.
    nv.keys("ixx<Esc>r").await;
    while !nv.editor.mode().await.unwrap().blocking {
        tokio::task::yield_now().await;
    }
    let editor = nv.editor.clone();
    let change =
        tokio::spawn(async move { editor.change("vim.g.changed = 1 return 7", vec![]).await });
    let start = Instant::now();
    let drawn = nv.editor.draw("return 1", vec![]).await;
    assert!(
        matches!(drawn, Err(EditorError::GivenUp { .. })),
        "{drawn:?}"
    );
    assert!(start.elapsed() >= Duration::from_secs(5));
    assert!(!change.is_finished(), "a change is waited for");
    nv.keys("y").await;
    assert_eq!(change.await.unwrap().unwrap(), Value::from(7));
    assert_eq!(nv.lines(0).await, ["xy"]);
}

#[tokio::test]
async fn lines_come_as_bytes_in_slices() {
    let nv = Nv::start().await;
    let code = "local lines = {}
        for i = 1, 2500 do lines[i] = 'line ' .. i end
        lines[2] = ('x'):rep(100000)
        lines[3] = 'a\\0b\\xff'
        vim.api.nvim_buf_set_lines(0, 0, -1, false, lines)
        return vim.api.nvim_buf_get_changedtick(0)";
    let tick = nv.lua(code, json!(null)).await;
    let read = nv.editor.read_lines(0, 0, None).await.unwrap();
    assert_eq!(json!(read.changedtick), tick);
    assert_eq!(read.lines.len(), 2500);
    assert_eq!(read.lines[1].len(), 100_000);
    assert_eq!(read.lines[2], b"a\0b\xff");
    assert_eq!(read.lines[2499], b"line 2500");
    let part = nv.editor.read_lines(0, 2499, Some(9000)).await.unwrap();
    assert_eq!(part.lines, [b"line 2500".to_vec()]);
    let gone = nv.editor.read_lines(99, 0, None).await.unwrap_err();
    assert!(gone.to_string().contains("99"), "{gone}");
}

#[tokio::test]
async fn a_read_starts_again_when_the_text_moves() {
    let nv = Nv::start().await;
    nv.lua(
        "local lines = {}
        for i = 1, 3500 do lines[i] = 'old' end
        vim.api.nvim_buf_set_lines(0, 0, -1, false, lines)
        -- The text changes between the first and the second slice, once.
        local get = vim.api.nvim_buf_get_changedtick
        local calls = 0
        vim.api.nvim_buf_get_changedtick = function(buf)
          calls = calls + 1
          local tick = get(buf)
          if calls == 1 then
            for i = 1, 3500 do lines[i] = 'new' end
            vim.api.nvim_buf_set_lines(0, 0, -1, false, lines)
          end
          return tick
        end",
        json!(null),
    )
    .await;
    let read = nv.editor.read_lines(0, 0, None).await.unwrap();
    assert_eq!(read.lines.len(), 3500);
    assert!(read.lines.iter().all(|line| line == b"new"));
}

#[tokio::test]
async fn large_sends_let_other_answers_through() {
    let nv = Nv::start().await;
    let lines: Vec<String> = (0..50_000).map(|i| format!("line {i}")).collect();
    let set =
        "vim.api.nvim_buf_set_lines(0, 0, -1, false, ...) return vim.api.nvim_buf_line_count(0)";
    let answer = nv.editor.change(set, vec![from_json(&json!(lines))]).await;
    assert_eq!(answer.unwrap().as_i64(), Some(50_000));
    for i in 0..10 {
        assert_eq!(nv.eval(&i.to_string()).await, json!(i));
    }
}

#[tokio::test]
async fn the_screen_can_be_read() {
    let nv = Nv::start().await;
    nv.attach(40, 8).await;
    nv.keys("ihello<Esc>").await;
    let screen = nv
        .wait_screen("hello", |screen| screen.find("hello").is_some())
        .await;
    assert_eq!(screen.find("hello"), Some((0, 0)));
    assert_eq!(screen.rows().len(), 8);
    nv.command("syntax off | match ErrorMsg /ell/").await;
    let screen = nv.screen().await;
    assert_eq!(screen.attributes(0, 0), json!(null));
    assert_ne!(screen.attributes(0, 1), json!(null));
}
