//! The gate: every proposal, its decisions, and the one path to the disk.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::mpsc;

use super::{
    ApprovalAnswer, ApprovalRequest, Change, ChangeResult, Proposal, ProposalId, ReviewAction,
    ReviewEvent, ReviewMode,
};
use crate::agent::ToolError;

/// Holds proposals, the queue, the decision log and the policy; one per process, shared by all sessions.
#[derive(Clone)]
pub struct Gate {}

impl Gate {
    /// Takes the change's place in the queue of its file *before returning*; the future reads, plans, reviews, writes
    /// and gives the result text.
    pub fn submit(&self, _change: Change) -> BoxFuture<'static, ChangeResult> {
        Box::pin(async { Err(ToolError::aborted()) })
    }

    /// Asks whether a command may run, by mode, grants and, if need be, the person. `Ok` = run it.
    pub fn approve(
        &self,
        _request: ApprovalRequest,
        _cancel: tokio_util::sync::CancellationToken,
    ) -> BoxFuture<'static, Result<(), ToolError>> {
        Box::pin(async { Ok(()) })
    }

    /// Answers a question.
    pub fn answer(&self, _id: u64, _answer: ApprovalAnswer) {}

    /// Carries out what a person did; returns one line to show, or one line why it could not be done.
    pub fn act(&self, _action: ReviewAction) -> Result<String, String> {
        Ok(String::new())
    }

    /// Returns a snapshot.
    pub fn proposal(&self, _id: ProposalId) -> Option<Arc<Proposal>> {
        None
    }

    /// Returns all proposals of a session (all sessions when `None`), oldest first.
    pub fn proposals(&self, _session: Option<&str>) -> Vec<Arc<Proposal>> {
        Vec::new()
    }

    /// Returns the mode.
    pub fn mode(&self) -> ReviewMode {
        ReviewMode::Auto
    }

    /// Whether a person decides now: calls that can see files then wait for earlier changes of the same response.
    pub fn asks(&self) -> bool {
        false
    }

    /// Subscribes to what happens from now on.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<ReviewEvent> {
        mpsc::unbounded_channel().1
    }

    /// Tells the gate that a file or buffer changed: open proposals on it are merged again and get new rows.
    pub fn file_changed(&self, _path: &std::path::Path) {}

    /// Ends all proposals and questions of a session (all when `None`) as cancelled; one being written is awaited.
    pub fn cancel<'a>(&'a self, _session: Option<&'a str>) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}
