//! Every event of the documentation, in one table: where it comes from, with which fields, in which order.

use std::collections::BTreeSet;

use expect_test::expect;
use pi_nvim::extensions::{CommandInfo, DialogOptions, EVENTS, Hooks as _, WarmingPlan};
use pi_nvim::session::protocol::SummaryWish;
use pi_nvim::session::{Command, Event};
use serde_json::{Map, Value, json};

use super::world::{Ground, Log, World, call, does, say};

/// Where an event comes from.
enum From {
    /// The played session.
    Session,
    /// Nothing in the program does this yet, whatever is said here; the place is there.
    Nowhere(&'static str),
}

use From::{Nowhere, Session};

/// Name, origin, fields that are always there, fields that may be there.
type Row = (&'static str, From, &'static str, &'static str);

static TABLE: [Row; 41] = [
    ("project_trust", Session, "cwd", ""),
    ("resources_discover", Session, "cwd reason", ""),
    ("session_start", Session, "reason", "previousSessionFile"),
    ("session_info_changed", Session, "", "name"),
    (
        "session_before_switch",
        Session,
        "reason",
        "targetSessionFile",
    ),
    ("session_before_fork", Session, "entryId position", ""),
    (
        "session_before_compact",
        Session,
        "preparation branchEntries reason willRetry",
        "customInstructions",
    ),
    (
        "session_compact",
        Session,
        "compactionEntry fromExtension reason willRetry",
        "",
    ),
    (
        "session_compact_failed",
        Session,
        "reason aborted willRetry fromExtension",
        "errorMessage",
    ),
    ("session_before_tree", Session, "preparation", ""),
    (
        "session_tree",
        Session,
        "newLeafId oldLeafId",
        "summaryEntry fromExtension",
    ),
    ("session_shutdown", Session, "reason", "targetSessionFile"),
    ("input", Session, "text source", "images streamingBehavior"),
    (
        "before_agent_start",
        Session,
        "messageType systemPrompt systemPromptOptions",
        "prompt images message",
    ),
    ("agent_start", Session, "", ""),
    ("agent_end", Session, "messages", ""),
    (
        "agent_before_settle",
        Session,
        "entries continue context outcome",
        "",
    ),
    ("agent_settled", Session, "aborted", ""),
    ("turn_start", Session, "turnIndex timestamp", ""),
    (
        "turn_end",
        Session,
        "turnIndex message toolResults messageEntryId toolResultEntryIds entries continue context outcome",
        "",
    ),
    ("message_start", Session, "message", ""),
    (
        "message_update",
        Session,
        "message assistantMessageEvent",
        "",
    ),
    ("message_end", Session, "message", ""),
    (
        "tool_execution_start",
        Session,
        "toolCallId toolName args",
        "parentToolCallId",
    ),
    (
        "tool_execution_update",
        Session,
        "toolCallId toolName args partialResult",
        "parentToolCallId",
    ),
    (
        "tool_execution_end",
        Session,
        "toolCallId toolName result isError",
        "durationMs parentToolCallId",
    ),
    (
        "tool_call",
        Session,
        "toolName toolCallId input",
        "parentToolCallId",
    ),
    (
        "tool_result",
        Session,
        "toolName toolCallId input content isError",
        "details structuredContent usage parentToolCallId",
    ),
    ("user_bash", Session, "command excludeFromContext cwd", ""),
    ("context", Session, "messages", ""),
    ("context_with_system", Session, "messages", ""),
    ("before_provider_headers", Session, "headers", ""),
    ("before_provider_request", Session, "payload", ""),
    ("after_provider_response", Session, "status headers", ""),
    (
        "provider_stream_event",
        Session,
        "provider api model data",
        "",
    ),
    (
        "cache_warming_decision",
        Nowhere("no cache is asked to stay while a session is idle"),
        "warmCost missCost continuationProbability action",
        "",
    ),
    ("model_select", Session, "model source", "previousModel"),
    ("thinking_level_select", Session, "level previousLevel", ""),
    ("ui_prompt_start", Session, "reason kind", "title"),
    ("ui_prompt_end", Session, "reason kind", "title"),
    (
        "mcp_servers_change",
        Nowhere("there are no MCP servers"),
        "servers",
        "",
    ),
];

fn words(text: &str) -> BTreeSet<&str> {
    text.split_whitespace().collect()
}

/// What is wrong with the fields of an event, if anything.
fn misfit(event: &Map<String, Value>, (name, _, always, maybe): &Row) -> Option<String> {
    let have: BTreeSet<&str> = event.keys().map(String::as_str).collect();
    let mut always = words(always);
    always.insert("type");
    let missing: Vec<&&str> = always.iter().filter(|it| !have.contains(*it)).collect();
    let odd: Vec<&&str> = have
        .iter()
        .filter(|it| !always.contains(*it) && !words(maybe).contains(**it))
        .collect();
    (!missing.is_empty() || !odd.is_empty())
        .then(|| format!("{name}: missing {missing:?}, not documented {odd:?}"))
}

fn row(name: &str) -> &'static Row {
    TABLE.iter().find(|row| row.0 == name).unwrap()
}

/// Listens to everything. Handlers answer nothing, but for trust, the summary of a compaction and a skill.
async fn listening() -> (World, Log) {
    let script = vec![
        call("c1", "bash", &json!({"command": "echo out"})),
        say("done"),
        say("again"),
    ];
    let ground = Ground::new(script).await;
    ground.write("project/.pi/settings.json", "{\"hideThinkingBlock\": true}");
    ground.write(
        "found/extra/SKILL.md",
        "---\nname: extra\ndescription: An extra skill.\n---\nDo.\n",
    );
    let skill = ground.path("found/extra/SKILL.md");
    let log = Log::default();
    for name in EVENTS {
        let (log, skill) = (log.clone(), skill.clone());
        ground.host.on(
            name,
            does(move |event| {
                log.add(event);
                Ok(match name {
                    "project_trust" => Some(json!({"trusted": "yes"})),
                    "resources_discover" => Some(json!({"skillPaths": [skill]})),
                    "session_before_compact" => Some(json!({"compaction": {
                        "summary": "so far", "firstKeptEntryId": event["preparation"]["firstKeptEntryId"],
                        "tokensBefore": 1}})),
                    _ => None,
                })
            }),
        );
    }
    let ui = ground.host.ui().clone();
    ground.host.command(
        CommandInfo {
            name: "ask".into(),
            description: None,
            source_info: json!({}),
        },
        move |_| {
            let ui = ui.clone();
            Box::pin(async move {
                ui.confirm("Sure?", "Really", DialogOptions::default())
                    .await;
                Ok(())
            })
        },
    );
    (ground.open().await, log)
}

/// Plays a session that passes every point. Returns the events of the first prompt apart.
async fn play(world: &mut World, log: &Log) -> (Vec<Map<String, Value>>, Vec<Map<String, Value>>) {
    let commands = world.request(Command::GetCommands).await;
    assert!(commands.to_string().contains("skill:extra"), "{commands}");
    let mut all = log.take();
    world.prompt("go").await;
    let prompted = log.take();
    all.extend(prompted.clone());
    let name = Command::SetSessionName { name: "n".into() };
    world.request(name).await;
    let (provider, id) = ("mock".to_owned(), "two".to_owned());
    world.request(Command::SetModel { provider, id }).await;
    let level = Command::SetThinkingLevel {
        level: "high".into(),
    };
    world.request(level).await;
    let bash = Command::Bash {
        command: "true".into(),
        exclude_from_context: true,
        tag: None,
    };
    world.request(bash).await;
    dialog(world, log).await;
    world.prompt(&"more ".repeat(30_000)).await;
    let compact = || Command::Compact { instructions: None };
    world.request(compact()).await;
    world.runtime.request(compact()).await.unwrap_err();
    let entries = world.entries();
    let is_user = |entry: &&Value| entry["message"]["role"] == "user";
    let user = entries.iter().find(is_user).unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let navigate = Command::Navigate {
        target: Some(user.clone()),
        summary: SummaryWish::None,
        label: None,
    };
    world.request(navigate).await;
    world.request(Command::Fork { entry: user }).await;
    let fresh = Command::NewSession {
        parent: None,
        name: Some("fresh".into()),
    };
    world.request(fresh).await;
    world.request(Command::Reload).await;
    world.runtime.shutdown().await;
    all.extend(log.take());
    (prompted, all)
}

/// Runs the command that asks, and answers. The end of the prompt is told beside the run: it is waited for.
async fn dialog(world: &mut World, log: &Log) {
    world.runtime.submit(Command::prompt("/ask"), 7);
    let shown = world
        .until(|event| matches!(event, Event::ExtensionUi { .. }))
        .await;
    let Event::ExtensionUi { record } = &*shown else {
        return;
    };
    let record = json!({"id": record["id"], "confirmed": true});
    let before = log.len();
    world.request(Command::UiAnswer { record }).await;
    world
        .until(|event| matches!(event, Event::Response { tag: 7, .. }))
        .await;
    let waiting = async {
        while log.len() <= before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::world::LIMIT, waiting)
        .await
        .unwrap();
}

#[tokio::test]
async fn every_event_is_fired_with_its_fields() {
    assert_eq!(TABLE.each_ref().map(|row| row.0), EVENTS);
    let (mut world, log) = listening().await;
    let (_, all) = play(&mut world, &log).await;
    let fired: BTreeSet<&str> = all.iter().map(|it| it["type"].as_str().unwrap()).collect();
    let mut wrong = Vec::new();
    for (name, origin, ..) in &TABLE {
        match origin {
            Session if !fired.contains(name) => wrong.push(format!("{name} was not fired")),
            Nowhere(why) if fired.contains(name) => wrong.push(format!("{name} was: {why}")),
            _ => {}
        }
    }
    wrong.extend(
        all.iter()
            .filter_map(|event| misfit(event, row(event["type"].as_str().unwrap()))),
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn events_that_nothing_fires_yet_reach_their_handlers() {
    let (world, log) = listening().await;
    world.request(Command::GetState).await;
    log.take();
    let plan = WarmingPlan {
        warm: true,
        ..WarmingPlan::default()
    };
    assert_eq!(world.host.cache_warming(&plan).await, None);
    let record = json!({"type": "mcp_servers_change", "servers": []});
    world.host.observe(&record).await;
    let seen = log.take();
    let wrong: Vec<String> = seen
        .iter()
        .filter_map(|event| misfit(event, row(event["type"].as_str().unwrap())))
        .collect();
    assert!(seen.len() == 2 && wrong.is_empty(), "{wrong:?}");
    world.on(
        "cache_warming_decision",
        super::world::says(json!({"action": "stop"})),
    );
    assert_eq!(world.host.cache_warming(&plan).await, Some(false));
}

#[tokio::test]
async fn the_events_of_a_prompt_have_their_order() {
    let (mut world, log) = listening().await;
    let (prompted, all) = play(&mut world, &log).await;
    let mut lines: Vec<String> = prompted.iter().map(line).collect();
    // How the server's pieces arrive, and in how many parts a command shows its output, is not of interest.
    let mut pieces: Vec<String> = Vec::new();
    lines.retain(|line| {
        let is_piece = line.contains("update") || line.contains("stream");
        if !is_piece {
            pieces.clear();
        }
        let new = !pieces.contains(line);
        pieces.push(line.clone());
        new
    });
    expect![[r#"
        input
        before_agent_start
        agent_start
        turn_start 0
        message_start system
        message_end system
        message_start user
        message_end user
        context
        context_with_system
        before_provider_headers
        before_provider_request
        after_provider_response 200
        message_start assistant
        provider_stream_event
        message_update
        message_end assistant
        tool_execution_start
        tool_call
        tool_execution_update
        tool_result
        tool_execution_end
        message_start toolResult
        message_end toolResult
        turn_end 0
        turn_start 1
        context
        context_with_system
        before_provider_headers
        before_provider_request
        after_provider_response 200
        message_start assistant
        provider_stream_event
        message_update
        message_end assistant
        turn_end 1
        agent_end
        agent_before_settle
        agent_settled"#]]
    .assert_eq(&lines.join("\n"));
    let life: Vec<String> = all
        .iter()
        .filter(|event| {
            let name = event["type"].as_str().unwrap();
            name.starts_with("session_") || name == "resources_discover" || name == "project_trust"
        })
        .map(line)
        .collect();
    expect![[r#"
        project_trust
        session_start startup
        resources_discover startup
        session_info_changed
        session_before_compact manual
        session_compact manual
        session_compact_failed manual
        session_before_tree
        session_tree
        session_before_fork
        session_shutdown fork
        session_start fork
        session_before_switch new
        session_shutdown new
        session_start new
        session_info_changed
        session_shutdown reload
        session_start reload
        resources_discover reload
        session_shutdown quit"#]]
    .assert_eq(&life.join("\n"));
}

/// An event in a few words.
fn line(event: &Map<String, Value>) -> String {
    let name = event["type"].as_str().unwrap();
    let more = match name {
        "message_start" | "message_end" => event["message"]["role"].clone(),
        "turn_start" | "turn_end" => event["turnIndex"].clone(),
        "after_provider_response" => event["status"].clone(),
        _ => event.get("reason").cloned().unwrap_or_default(),
    };
    match more {
        Value::Null => name.to_owned(),
        Value::String(text) => format!("{name} {text}"),
        other => format!("{name} {other}"),
    }
}
