//! What a person types: sending, drafts and history. Drafts and history are files of our own state directory, so that
//! they survive Neovim; the Lua side stores nothing.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::edit;
use super::face::{Answer, Answering, Face, Request};
use super::json::at;
use super::mention;
use super::requests::done;
use super::slot::Slot;
use crate::ai::Block;
use crate::files::state::{StateDir, fingerprint};
use crate::review::{ApprovalAnswer, ReviewAction};
use crate::session::Command;
use crate::session::protocol::Behavior;

/// Prompts remembered per project.
const HISTORY: usize = 200;

pub(super) fn start(face: &Arc<Face>, slot: &Arc<Slot>, request: &Request) -> Answering {
    match request.name.as_str() {
        "prompt.send" => send(face, slot, request),
        "prompt.draft" => done(save_draft(&face.state, slot, request)),
        "prompt.load" => done(Ok(json!({
            "draft": load_draft(&face.state, &slot.id()),
            "history": load_history(&face.state, slot),
        }))),
        name => done(Err(format!("the backend knows no request {name}"))),
    }
}

/// Sends a text. It counts as taken only when the answer says so: the Lua side keeps it until then.
fn send(face: &Arc<Face>, slot: &Arc<Slot>, request: &Request) -> Answering {
    let Some(text) = request.text("text").filter(|text| !text.trim().is_empty()) else {
        return done(Err("there is nothing to send".into()));
    };
    let text = text.trim_end().to_owned();
    let followup = request.text("how") == Some("followup");
    if !followup && shell(&text).is_none() && slot.waits_for_person() {
        return talk_back(slot, &text, request.flag("again"));
    }
    let behavior = if followup {
        Behavior::FollowUp
    } else {
        Behavior::Steer
    };
    if let Some((command, exclude)) = shell(&text) {
        let ran = slot.shell(command, exclude);
        remember(face, slot, &text);
        let outbox = face.outbox.clone();
        // The prompt is free at once; the answer comes when the command has ended.
        tokio::spawn(async move {
            if let Err(line) = ran.await {
                outbox.push(super::face::notice("error", &line));
            }
        });
        return done(Ok(json!({"disposition": "handled"})));
    }
    let context = at(&request.params, "/context").clone();
    let pictures = at(&request.params, "/images").clone();
    let (face, slot) = (face.clone(), slot.clone());
    if !mention::has_live(&text) && at(&pictures, "/0").is_null() {
        return hand_in(&face, &slot, text, &context, Vec::new(), behavior);
    }
    Box::pin(async move {
        let images = mention::pictures(&pictures).await?;
        let context = mention::gather(face.opener.gate(), &slot, &text, &context).await;
        hand_in(&face, &slot, text, &context, images, behavior).await
    })
}

/// Hands a prompt in, at its place among the commands.
fn hand_in(
    face: &Arc<Face>,
    slot: &Arc<Slot>,
    text: String,
    context: &Json,
    images: Vec<Block>,
    behavior: Behavior,
) -> Answering {
    let command = Command::Prompt {
        text: with_context(&text, context),
        images,
        behavior: Some(behavior),
    };
    // Before the prompt, and in the order of the requests: an edit may have left its tools behind.
    let tools = edit::bring_back(&face.state, slot);
    let sent = slot.command(command);
    let (face, slot) = (face.clone(), slot.clone());
    Box::pin(async move {
        let set = match tools {
            Some(tools) => tools.await.is_ok(),
            None => false,
        };
        let answer = sent.await?;
        if set {
            edit::forget(&face.state, &slot);
        }
        remember(&face, &slot, &text);
        Ok(answer)
    })
}

/// A text sent while the run waits only for the person. The first time it asks what is meant; the second time everything
/// pending is rejected with the text as the reason, which then is not a message as well.
fn talk_back(slot: &Arc<Slot>, text: &str, again: bool) -> Answering {
    if !again {
        let question = "sent while a review waits: the same key again rejects what is pending, with this text as the \
                        reason; <C-q> keeps reviewing and delivers it after";
        return done(Ok(json!({ "talk_back": question })));
    }
    let gate = slot.runtime.gate();
    let id = slot.id();
    let reason = Some(text.to_owned());
    for (question, _) in gate.questions(Some(&id)) {
        let reason = reason.clone();
        gate.answer(question, ApprovalAnswer::Refused { reason });
    }
    let rejected = gate.act(ReviewAction::RejectAll {
        session: Some(id),
        note: reason,
    });
    done(rejected.map(|_| json!({"disposition": "rejected"})))
}

/// Adds what the text mentions and only Neovim knows (the selection, diagnostics ...), each under its name.
pub(super) fn with_context(text: &str, context: &Json) -> String {
    let mut out = text.to_owned();
    for item in context.as_array().into_iter().flatten() {
        if let (Some(name), Some(text)) = (at(item, "/name").as_str(), at(item, "/text").as_str()) {
            out.push_str(&format!("\n\n<{name}>\n{}\n</{name}>", text.trim_end()));
        }
    }
    out
}

/// `!cmd` and `!!cmd` are the person's own shell commands; the second stays out of the context.
fn shell(text: &str) -> Option<(&str, bool)> {
    let rest = text.strip_prefix('!')?;
    let (command, exclude) = match rest.strip_prefix('!') {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let command = command.trim();
    (!command.is_empty()).then_some((command, exclude))
}

fn draft_name(session: &str) -> String {
    format!("drafts/{}", fingerprint(session.as_bytes()))
}

fn save_draft(state: &StateDir, slot: &Slot, request: &Request) -> Answer {
    let name = draft_name(&slot.id());
    let text = request.text("text").unwrap_or_default();
    let saved = if text.trim().is_empty() {
        state.remove(&name)
    } else {
        state.write(&name, text.as_bytes())
    };
    saved
        .map(|()| Json::Null)
        .map_err(|error| format!("keep the draft: {error}"))
}

fn load_draft(state: &StateDir, session: &str) -> String {
    let bytes = state
        .read(&draft_name(session))
        .ok()
        .flatten()
        .unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn history_name(slot: &Slot) -> String {
    let cwd = slot.cwd();
    format!(
        "history/{}.json",
        fingerprint(cwd.to_string_lossy().as_bytes())
    )
}

/// Prompts of this project, oldest first.
fn load_history(state: &StateDir, slot: &Slot) -> Vec<String> {
    let bytes = state
        .read(&history_name(slot))
        .ok()
        .flatten()
        .unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

fn remember(face: &Face, slot: &Slot, text: &str) {
    let state = &face.state;
    face.outbox
        .push(json!({"op": "prompt.remember", "session": slot.id(), "text": text}));
    let mut history = load_history(state, slot);
    history.retain(|old| old != text);
    history.push(text.to_owned());
    let first = history.len().saturating_sub(HISTORY);
    let kept = history.get(first..).unwrap_or_default();
    let bytes = serde_json::to_vec(kept).unwrap_or_default();
    if let Err(error) = state.write(&history_name(slot), &bytes) {
        tracing::warn!("keep the prompt history: {error}");
    }
    state.remove(&draft_name(&slot.id())).ok();
}

#[cfg(test)]
mod tests {
    use super::shell;
    use pretty_assertions::assert_eq;

    #[test]
    fn shell_commands_are_told_apart() {
        assert_eq!(shell("!ls -l"), Some(("ls -l", false)));
        assert_eq!(shell("!! secret"), Some(("secret", true)));
        assert_eq!(shell("! "), None);
        assert_eq!(shell("hello !x"), None);
    }
}
