//! The report that an attempt could not be sent, made from what the driver says. Only data: what follows from it is in
//! [`hold`](super::hold).

use abide_dispatch::{CallFailure, HoldNotice, HoldReason};
use abide_ids::{Duration, RunId};
use abide_workflow::CommandId;

use crate::event::AttemptId;

/// The report that an attempt could not be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::shard) struct HoldReport {
    pub(in crate::shard) run_id: RunId,
    pub(in crate::shard) command: CommandId,
    pub(in crate::shard) attempt: u32,
    pub(in crate::shard) reason: HoldReason,
    pub(in crate::shard) code: String,
    pub(in crate::shard) message: String,
    /// When the driver tries it again; none if it has given up and the shard does.
    pub(in crate::shard) retry_in: Option<Duration>,
    /// How long the failure asks to wait.
    pub(in crate::shard) wait: Option<Duration>,
}

impl HoldReport {
    /// The driver goes on waiting with the attempt.
    pub(in crate::shard) fn of_notice(call: &AttemptId, notice: HoldNotice) -> Self {
        let AttemptId { run_id, command, attempt, .. } = *call;
        let HoldNotice { reason, message, retry_in } = notice;
        let code = reason.code().to_owned();
        Self { run_id, command, attempt, reason, code, message, retry_in: Some(retry_in.into()), wait: None }
    }

    /// The attempt has ended without having been sent; none if its failure is of another kind.
    pub(in crate::shard) fn of_failure(call: &AttemptId, failure: &CallFailure) -> Option<Self> {
        let AttemptId { run_id, command, attempt, .. } = *call;
        let reason = failure.hold.filter(|_| failure.not_sent && failure.retryable)?;
        let (code, message) = (failure.code.clone(), failure.message.clone());
        let wait = failure.retry_after_ms.map(Duration);
        Some(Self { run_id, command, attempt, reason, code, message, retry_in: None, wait })
    }
}
