//! What an attempt reports to its shard task: events while it waits, and exactly one result. Knows nothing of permits.

use abide_dispatch::{AttemptResult, CallFailure};
use tokio::sync::mpsc;

use super::shard_task::ShardTaskMessage;
use crate::event::{AttemptId, Event};

/// Sends events about one attempt to its shard task.
#[derive(Clone, Debug)]
pub(super) struct Reporter<'a> {
    pub(super) id: &'a AttemptId,
    pub(super) ownership_epoch: u64,
    pub(super) task_sender: &'a mpsc::UnboundedSender<ShardTaskMessage>,
}

impl Reporter<'_> {
    /// A shard task that has ended needs no event.
    pub(super) fn report(&self, event: impl FnOnce(AttemptId) -> Event) {
        let event = event(self.id.clone());
        drop(self.task_sender.send(ShardTaskMessage::Event(self.ownership_epoch, event)));
    }
}

/// Makes sure that an attempt has a result, even if the transport panics. The result of a cancelled attempt is ignored.
pub(super) struct ResultGuard<'a> {
    reporter: Option<Reporter<'a>>,
}

impl<'a> ResultGuard<'a> {
    pub(super) fn new(reporter: Reporter<'a>) -> Self {
        Self { reporter: Some(reporter) }
    }

    pub(super) fn send(mut self, result: AttemptResult) {
        if let Some(reporter) = self.reporter.take() {
            reporter.report(|id| Event::AttemptFinished(id, result));
        }
    }
}

impl Drop for ResultGuard<'_> {
    fn drop(&mut self) {
        if let Some(reporter) = self.reporter.take() {
            let failure =
                CallFailure::retryable("DeliveryAborted", "the attempt was aborted").with_outcome_unknown();
            reporter.report(|id| Event::AttemptFinished(id, AttemptResult::Failed(failure)));
        }
    }
}
