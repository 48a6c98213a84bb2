//! Questions about commands.

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::super::{ApprovalAnswer, ApprovalRequest, ReviewEvent, ReviewMode};
use super::policy::simple_words;
use super::{Reviewer, Shared, State};
use crate::agent::{ErrorClass, ToolError};

/// A question that waits for its answer.
pub(super) struct Question {
    request: ApprovalRequest,
    reply: oneshot::Sender<ApprovalAnswer>,
}

impl Shared {
    pub(super) async fn approve(
        &self,
        request: ApprovalRequest,
        cancel: CancellationToken,
    ) -> Result<(), ToolError> {
        if cancel.is_cancelled() {
            return Err(ToolError::aborted());
        }
        let Some((id, answer)) = self.state.lock().ask(request) else {
            return Ok(());
        };
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            answer = answer => answer.ok(),
        };
        match answer {
            Some(ApprovalAnswer::Once | ApprovalAnswer::Prefix { .. }) => Ok(()),
            Some(ApprovalAnswer::Refused { reason }) => Err(refused(reason.as_deref())),
            // Aborted, or the question was taken back.
            None => {
                self.state.lock().take_question(id);
                Err(ToolError::aborted())
            }
        }
    }
}

fn refused(reason: Option<&str>) -> ToolError {
    let text = match reason {
        Some(reason) => {
            format!("The user did not allow this command; it was not run. Reason: {reason}")
        }
        None => "The user did not allow this command; it was not run. Do not run the same command again; ask or propose something different.".to_owned(),
    };
    ToolError::new(ErrorClass::Rejected, text)
}

impl State {
    /// Puts a question; `None` when the command may run without one.
    fn ask(
        &mut self,
        request: ApprovalRequest,
    ) -> Option<(u64, oneshot::Receiver<ApprovalAnswer>)> {
        let asks = matches!(self.mode, ReviewMode::Ask | ReviewMode::Readonly);
        if self.reviewer != Reviewer::Person || !asks || self.is_allowed(&request) {
            return None;
        }
        let (reply, answer) = oneshot::channel();
        self.next_id += 1;
        let id = self.next_id;
        self.questions.insert(
            id,
            Question {
                request: request.clone(),
                reply,
            },
        );
        self.emit(&ReviewEvent::Approval { id, request });
        Some((id, answer))
    }

    /// Whether a prefix granted for the session covers the command.
    fn is_allowed(&self, request: &ApprovalRequest) -> bool {
        let Some(words) = simple_words(&request.command) else {
            return false;
        };
        self.grants
            .prefixes
            .iter()
            .any(|(session, prefix)| *session == request.session && words.starts_with(prefix))
    }

    pub(super) fn answer(&mut self, id: u64, answer: ApprovalAnswer) {
        let Some(question) = self.take_question(id) else {
            return;
        };
        if let ApprovalAnswer::Prefix { prefix } = &answer {
            // A prefix that is no simple command grants nothing beyond this once.
            if let Some(words) = simple_words(prefix) {
                self.grants
                    .prefixes
                    .push((question.request.session.clone(), words));
            }
        }
        // The asker may have been aborted at this moment; it then hears nothing.
        question.reply.send(answer).ok();
    }

    fn take_question(&mut self, id: u64) -> Option<Question> {
        let question = self.questions.remove(&id)?;
        self.emit(&ReviewEvent::ApprovalGone { id });
        Some(question)
    }

    pub(super) fn open_questions(&self, session: Option<&str>) -> Vec<(u64, ApprovalRequest)> {
        self.questions
            .iter()
            .filter(|(_, question)| {
                session.is_none_or(|session| question.request.session == session)
            })
            .map(|(id, question)| (*id, question.request.clone()))
            .collect()
    }

    /// Refuses every question of a session; returns how many.
    pub(super) fn refuse_questions(
        &mut self,
        session: Option<&str>,
        reason: Option<&str>,
    ) -> usize {
        let ids = self.open_questions(session);
        for (id, _) in &ids {
            let reason = reason.map(str::to_owned);
            self.answer(*id, ApprovalAnswer::Refused { reason });
        }
        ids.len()
    }

    /// Takes back every question of a session.
    pub(super) fn drop_questions(&mut self, session: Option<&str>) {
        for (id, _) in self.open_questions(session) {
            drop(self.take_question(id));
        }
    }
}
