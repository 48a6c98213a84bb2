//! The loop against a host that writes down everything it is asked and told.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use expect_test::{Expect, expect};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::host::*;
use super::*;
use crate::ai::providers::scripted::{Answer, Scripted};
use crate::ai::{
    Block, Message, Model, Request, RequestOptions, StopReason, SystemMessage, ToolDeclaration,
};

/// A tool that does what its name says: `wait` answers after its milliseconds, `stuck` only when aborted, `boom` panics.
struct TestTool {
    declaration: ToolDeclaration,
    sight: Sight,
}

fn test_tool(name: &str, sight: Sight) -> Arc<dyn Tool> {
    Arc::new(TestTool {
        declaration: ToolDeclaration {
            name: name.to_owned(),
            parameters: json!({"type": "object", "properties": {"ms": {"type": "number"}}}),
            ..ToolDeclaration::default()
        },
        sight,
    })
}

impl Tool for TestTool {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn sight(&self) -> Sight {
        self.sight
    }

    fn execution_mode(&self) -> ExecutionMode {
        if self.declaration.name == "alone" {
            ExecutionMode::Sequential
        } else {
            ExecutionMode::Parallel
        }
    }

    fn start(
        &self,
        arguments: Value,
        cx: ToolContext,
    ) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let name = self.declaration.name.clone();
        assert!(name != "boom", "tool went wrong");
        Box::pin(async move {
            (cx.updates)(ToolUpdate {
                content: vec![Block::text("so far")],
                details: None,
            });
            let time = Duration::from_millis(arguments["ms"].as_u64().unwrap_or(0));
            tokio::select! {
                () = cx.cancel.cancelled() => return Err(ToolError::new(ErrorClass::Aborted, "stopped")),
                () = tokio::time::sleep(time), if name != "stuck" => {}
            }
            (cx.updates)(ToolUpdate::default());
            Ok(ToolOutput {
                terminate: name == "finish",
                ..ToolOutput::text(format!("{name} {}", time.as_millis()))
            })
        })
    }
}

#[derive(Default)]
struct State {
    log: Vec<String>,
    stored: Vec<Arc<Message>>,
    steering: VecDeque<Message>,
    follow_up: VecDeque<Message>,
    declared: Vec<ToolDeclaration>,
    decisions: VecDeque<TurnDecision>,
}

struct TestHost {
    provider: Scripted,
    state: Mutex<State>,
    tools: Vec<Arc<dyn Tool>>,
    person: bool,
    cancel: CancellationToken,
    /// Cancels the run when this line is logged.
    abort_at: Option<&'static str>,
}

impl TestHost {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let tools = vec![
            test_tool("wait", Sight::Sees),
            test_tool("change", Sight::Changes),
            test_tool("stuck", Sight::Blind),
            test_tool("alone", Sight::Blind),
            test_tool("finish", Sight::Blind),
            test_tool("boom", Sight::Blind),
        ];
        Self {
            provider: Scripted::replay(answers),
            state: Mutex::new(State {
                declared: tools
                    .iter()
                    .map(|tool| tool.declaration().clone())
                    .collect(),
                ..State::default()
            }),
            tools,
            person: false,
            cancel: CancellationToken::new(),
            abort_at: None,
        }
    }

    fn log(&self, line: String) {
        if self.abort_at == Some(line.as_str()) {
            self.cancel.cancel();
        }
        self.state.lock().log.push(line);
    }

    async fn check(self, expect: Expect) {
        run(
            &self,
            &ArgumentCheck::default(),
            vec![user("go")],
            &self.cancel,
        )
        .await;
        expect.assert_eq(&self.state.lock().log.join("\n"));
    }
}

fn user(text: &str) -> Message {
    Message::User(crate::ai::UserMessage {
        content: crate::ai::Content::Blocks(vec![Block::text(text)]),
        ..crate::ai::UserMessage::default()
    })
}

fn show(message: &Message) -> String {
    let text = |blocks: &[Block]| {
        let shown: Vec<String> = blocks
            .iter()
            .map(|block| match block {
                Block::Text(text) => text.text.clone(),
                Block::ToolCall(call) => format!("<{}>", call.id),
                _ => "?".to_owned(),
            })
            .collect();
        shown.join("")
    };
    match message {
        Message::User(user) => format!("user: {}", user.content.text("")),
        Message::Assistant(answer) => format!(
            "answer: {} [{:?}{}]",
            text(&answer.content),
            answer.stop_reason,
            answer
                .error_message
                .as_ref()
                .map(|said| format!(": {said}"))
                .unwrap_or_default()
        ),
        Message::ToolResult(result) => format!(
            "result {}{}: {}",
            result.tool_call_id,
            if result.is_error { " failed" } else { "" },
            text(&result.content)
        ),
        Message::System(system) => format!(
            "system +{} -{}",
            system.tools_added.as_ref().map_or(0, Vec::len),
            system.tools_removed.as_ref().map_or(0, Vec::len)
        ),
        other => other.role().to_owned(),
    }
}

#[async_trait]
impl RunHost for TestHost {
    async fn emit(&self, event: RunEvent) {
        self.log(match event {
            RunEvent::AgentStart => "agent start".to_owned(),
            RunEvent::AgentEnd(messages) => format!("agent end: {}", messages.len()),
            RunEvent::TurnStart => "turn start".to_owned(),
            RunEvent::TurnEnd { tool_results, .. } => format!("turn end: {}", tool_results.len()),
            RunEvent::MessageStart(_) | RunEvent::MessageUpdate { .. } => return,
            RunEvent::ToolStart(call) => format!("  start {}", call.id),
            RunEvent::ToolUpdate(call, update) => {
                format!("  update {} {}", call.id, update.content.len())
            }
            RunEvent::ToolEnd { call, .. } => format!("  end {}", call.id),
            RunEvent::ToolWaits(call) => format!("  waits {}", call.id),
        });
    }

    async fn end_message(&self, message: Message) -> Result<Arc<Message>, HostError> {
        self.log(show(&message));
        if matches!(message, Message::System(_)) {
            self.state.lock().declared = self
                .tools
                .iter()
                .map(|tool| tool.declaration().clone())
                .collect();
        }
        let message = Arc::new(message);
        self.state.lock().stored.push(Arc::clone(&message));
        Ok(message)
    }

    async fn announce_unstored(&self, message: Arc<Message>) {
        self.log(format!("unstored {}", show(&message)));
    }

    async fn poll(&self, queue: Queue) -> Vec<Message> {
        let mut state = self.state.lock();
        let next = match queue {
            Queue::Steering => state.steering.pop_front(),
            Queue::FollowUp => state.follow_up.pop_front(),
        };
        next.into_iter().collect()
    }

    async fn prepare_next_turn(&self) -> Result<Vec<Message>, HostError> {
        Ok(Vec::new())
    }

    async fn prepare_request(&self) -> Result<PreparedRequest, HostError> {
        let state = self.state.lock();
        Ok(PreparedRequest {
            provider: Arc::new(self.provider.clone()),
            request: Request {
                model: Arc::new(Model::default()),
                messages: state.stored.clone(),
                options: RequestOptions::default(),
                cancel: self.cancel.clone(),
            },
        })
    }

    async fn finish_turn(&self, _turn: &FinishedTurn) -> TurnDecision {
        self.state.lock().decisions.pop_front().unwrap_or_default()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.clone()
    }

    fn declared(&self) -> Option<Arc<SystemMessage>> {
        Some(Arc::new(SystemMessage {
            tools_added: Some(self.state.lock().declared.clone()),
            ..SystemMessage::default()
        }))
    }

    fn person_reviews(&self) -> bool {
        self.person
    }

    fn call_setting(&self) -> CallSetting {
        CallSetting::default()
    }

    async fn before_call(&self, call: &CallInfo, args: Value) -> Result<BeforeCall, HostError> {
        if args.get("block").is_some() {
            return Ok(BeforeCall::Block {
                reason: None,
                terminate: false,
            });
        }
        if call.id == "hook" {
            return Err(HostError("hook broke".to_owned()));
        }
        Ok(BeforeCall::Run(args))
    }

    async fn after_call(&self, _: &CallInfo, _: &Value, outcome: CallOutcome) -> CallOutcome {
        outcome
    }

    fn now_ms(&self) -> i64 {
        0
    }
}

#[tokio::test(start_paused = true)]
async fn results_come_in_call_order_and_ends_as_they_happen() {
    let answer =
        Answer::new()
            .call("a", "wait", json!({"ms": 20}))
            .call("b", "wait", json!({"ms": "10"}));
    TestHost::new([answer, Answer::say("done")])
        .check(expect![[r#"
            agent start
            turn start
            user: go
            answer: <a><b> [ToolUse]
              start a
              start b
              update a 1
              update b 1
              update b 0
              end b
              update a 0
              end a
            result a: wait 20
            result b: wait 10
            turn end: 2
            turn start
            answer: done [Stop]
            turn end: 0
            agent end: 5"#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_see_files_wait_for_earlier_changes_while_a_person_reviews() {
    let answer = Answer::new()
        .call("a", "wait", json!({"ms": 1}))
        .call("b", "change", json!({"ms": 50}))
        .call("c", "wait", json!({"ms": 1}))
        .call("d", "change", json!({"ms": 5}));
    let mut host = TestHost::new([answer, Answer::say("done")]);
    host.person = true;
    host.check(expect![[r#"
        agent start
        turn start
        user: go
        answer: <a><b><c><d> [ToolUse]
          start a
          start b
          start c
          start d
          waits c
          update a 1
          update b 1
          update d 1
          update a 0
          end a
          update d 0
          end d
          update b 0
          end b
          update c 1
          update c 0
          end c
        result a: wait 1
        result b: change 50
        result c: wait 1
        result d: change 5
        turn end: 4
        turn start
        answer: done [Stop]
        turn end: 0
        agent end: 7"#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_sequential_tool_makes_the_whole_batch_sequential() {
    let answer =
        Answer::new()
            .call("a", "wait", json!({"ms": 20}))
            .call("b", "alone", json!({"ms": 1}));
    TestHost::new([answer, Answer::say("done")])
        .check(expect![[r#"
            agent start
            turn start
            user: go
            answer: <a><b> [ToolUse]
              start a
              update a 1
              update a 0
              end a
            result a: wait 20
              start b
              update b 1
              update b 0
              end b
            result b: alone 1
            turn end: 2
            turn start
            answer: done [Stop]
            turn end: 0
            agent end: 5"#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_may_not_run_get_error_results() {
    let answer = Answer::new()
        .call("a", "nothing", json!({}))
        .call("b", "wait", json!({"ms": {}}))
        .call("c", "wait", json!({"block": true}))
        .call("hook", "wait", json!({}))
        .call("d", "boom", json!({}));
    TestHost::new([answer, Answer::say("done")])
        .check(expect![[r#"
            agent start
            turn start
            user: go
            answer: <a><b><c><hook><d> [ToolUse]
              start a
              end a
              start b
              end b
              start c
              end c
              start hook
              end hook
              start d
              end d
            result a failed: Tool nothing not found
            result b failed: Validation failed for tool "wait":
              - ms: expected number, got object

            Received arguments:
            {
              "ms": {}
            }
            result c failed: Tool execution was blocked
            result hook failed: hook broke
            result d failed: The tool failed unexpectedly: tool went wrong
            turn end: 5
            turn start
            answer: done [Stop]
            turn end: 0
            agent end: 8"#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_abort_in_a_batch_leaves_one_result_per_call_and_an_empty_answer() {
    let answer = Answer::new()
        .call("a", "stuck", json!({}))
        .call("b", "wait", json!({"ms": 1}));
    let mut host = TestHost::new([answer]);
    host.abort_at = Some("  end b");
    host.check(expect![[r#"
        agent start
        turn start
        user: go
        answer: <a><b> [ToolUse]
          start a
          start b
          update a 1
          update b 1
          update b 0
          end b
          end a
        result a failed: stopped
        result b: wait 1
        turn end: 2
        turn start
        answer:  [Aborted: This operation was aborted]
        turn end: 0
        agent end: 5"#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_abort_before_a_sequential_call_begins_keeps_it_from_running() {
    let answer =
        Answer::new()
            .call("a", "alone", json!({"ms": 1}))
            .call("b", "alone", json!({"ms": 1}));
    let mut host = TestHost::new([answer]);
    host.abort_at = Some("result a: alone 0");
    host.check(expect![[r#"
        agent start
        turn start
        user: go
        answer: <a><b> [ToolUse]
          start a
          update a 1
          update a 0
          end a
        result a: alone 1
          start b
          update b 1
          update b 0
          end b
        result b: alone 1
        turn end: 2
        turn start
        answer:  [Error: script exhausted]
        turn end: 0
        agent end: 5"#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_ends_soon_after_an_abort() {
    let host = TestHost::new([Answer::new().text("Hel").hang()]);
    let cancel = host.cancel.clone();
    let stop = async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        cancel.cancel();
    };
    let began = tokio::time::Instant::now();
    let check = host.check(expect![[r#"
        agent start
        turn start
        user: go
        answer: Hel [Aborted: Request was aborted]
        turn end: 0
        agent end: 2"#]]);
    tokio::join!(check, stop);
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn an_answer_cut_off_by_the_output_limit_runs_no_call_and_the_loop_goes_on() {
    let answer = Answer::new()
        .call("a", "wait", json!({}))
        .stop(StopReason::Length);
    TestHost::new([answer, Answer::say("smaller")])
        .check(expect![[r#"
            agent start
            turn start
            user: go
            answer: <a> [Length]
              start a
              end a
            result a failed: Tool call "wait" was not executed: the response hit the output token limit, so its arguments may be truncated. Issue the call again with complete arguments, in smaller pieces if it is large.
            turn end: 1
            turn start
            answer: smaller [Stop]
            turn end: 0
            agent end: 4"#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_terminating_results_ends_the_run_but_queues_still_speak() {
    let answer = Answer::new().call("a", "finish", json!({"ms": 1}));
    let host = TestHost::new([answer, Answer::say("next")]);
    host.state.lock().follow_up.push_back(user("and then"));
    host.check(expect![[r#"
        agent start
        turn start
        user: go
        answer: <a> [ToolUse]
          start a
          update a 1
          update a 0
          end a
        result a: finish 1
        turn end: 1
        turn start
        user: and then
        answer: next [Stop]
        turn end: 0
        agent end: 5"#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_wish_to_continue_gives_one_more_request() {
    let host = TestHost::new([Answer::say("one"), Answer::say("two")]);
    host.state
        .lock()
        .decisions
        .push_back(TurnDecision::Continue);
    host.check(expect![[r#"
        agent start
        turn start
        user: go
        answer: one [Stop]
        turn end: 0
        turn start
        answer: two [Stop]
        turn end: 0
        agent end: 3"#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn changed_tools_are_declared_before_the_first_message() {
    let mut host = TestHost::new([Answer::say("one")]);
    host.tools.truncate(5);
    host.check(expect![[r#"
        agent start
        turn start
        system +0 -1
        user: go
        answer: one [Stop]
        turn end: 0
        agent end: 3"#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn steering_queued_while_idle_follows_the_prompt() {
    let host = TestHost::new([Answer::say("one"), Answer::say("two")]);
    host.state
        .lock()
        .steering
        .extend([user("also"), user("later")]);
    host.check(expect![[r#"
        agent start
        turn start
        user: go
        user: also
        answer: one [Stop]
        turn end: 0
        turn start
        user: later
        answer: two [Stop]
        turn end: 0
        agent end: 5"#]])
        .await;
}
