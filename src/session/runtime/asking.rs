//! Requests for summaries: the same provider, the same patience with failures as the run has, told step by step.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::core::Core;
use crate::ai::retry::{delay, is_retryable};
use crate::ai::{AssistantMessage, Request};
use crate::session::compaction::{Asker, Once, SummaryModel};
use crate::session::protocol::Event;

/// Asks and tries again.
pub(super) struct Patient<'a> {
    pub(super) core: &'a Arc<Core>,
    /// Reason of the compaction; none for a branch summary.
    pub(super) reason: Option<&'a str>,
    pub(super) cancel: CancellationToken,
}

impl Patient<'_> {
    async fn ask_patiently(&self, request: Request) -> AssistantMessage {
        let once = Once(Arc::clone(&self.core.config.provider));
        let window = request.model.context_window;
        let retry = self.core.with(|state| state.settings().retry);
        let mut attempt = 0;
        loop {
            let answer = once.ask(request.clone()).await;
            if attempt > 0 {
                self.tell(json!({"type": "summarization_retry_finished"}));
            }
            let again = retry.enabled
                && attempt < retry.max_retries
                && !self.cancel.is_cancelled()
                && is_retryable(&answer, window);
            if !again {
                return answer;
            }
            attempt += 1;
            let wait = delay(retry.policy, attempt, None);
            self.tell(json!({
                "type": "summarization_retry_scheduled",
                "attempt": attempt,
                "maxAttempts": retry.max_retries,
                "delayMs": u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                "errorMessage": answer.error_message.clone().unwrap_or_default(),
            }));
            if !self.sleep(wait).await {
                return answer;
            }
            self.tell(match self.reason {
                Some(reason) => json!({
                    "type": "summarization_retry_attempt_start", "source": "compaction", "reason": reason,
                }),
                None => json!({"type": "summarization_retry_attempt_start", "source": "branchSummary"}),
            });
        }
    }

    fn tell(&self, record: serde_json::Value) {
        self.core.tell(Event::Summarization { record });
    }

    async fn sleep(&self, time: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => false,
            () = tokio::time::sleep(time) => true,
        }
    }
}

impl Asker for Patient<'_> {
    fn ask(&self, request: Request) -> BoxFuture<'_, AssistantMessage> {
        Box::pin(self.ask_patiently(request))
    }
}

/// The selected model as it stands now, for a summary; `None` without one.
pub(super) fn summary_model(core: &Core, cancel: &CancellationToken) -> Option<SummaryModel> {
    let (model, thinking) = core.with(|state| (state.model.clone(), state.thinking));
    Some(SummaryModel {
        model: model?,
        thinking,
        options: core.request_options(),
        cancel: cancel.clone(),
    })
}
