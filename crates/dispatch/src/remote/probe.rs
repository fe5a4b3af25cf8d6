//! Probes for the outcome of an attempt without a known result, before the work is sent again.
//!
//! A probe runs nothing. Knows nothing about how a probe is sent: it waits for permits and rate limits like an attempt.

use std::sync::Arc;

use tokio::time::Instant;

use super::activity::RemoteActivity;
use super::exchange::RequestKind;
use crate::status::RpcCode;
use crate::status::reason::IN_PROGRESS;
use crate::transport::{AttemptResult, CallAttempt, CallFailure, PermitSource};

/// The outcome of a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ProbeOutcome {
    /// The work is finished, with this result.
    Finished(AttemptResult),
    /// The work is neither finished nor in progress: it can be sent again.
    Unknown,
    /// The work is in progress, as this failure says.
    InProgress(CallFailure),
    /// The activity does not support probes.
    Unsupported,
    /// The activity did not answer the probe.
    Unanswered(CallFailure),
}

impl RemoteActivity {
    /// The result of a call whose work must not be sent again, or not now.
    pub(super) async fn probe_before_retry(
        &self,
        call: &CallAttempt,
        begun: Instant,
        permits: &impl PermitSource,
    ) -> Option<AttemptResult> {
        match self.probe(call, begun, permits).await {
            ProbeOutcome::Finished(result) => Some(result),
            ProbeOutcome::InProgress(failure) => Some(AttemptResult::Failed(unsent_and_unknown(failure))),
            // A target that does not answer the probe would not answer the attempt either.
            ProbeOutcome::Unanswered(failure) if failure.retryable => {
                Some(AttemptResult::Failed(unsent_and_unknown(failure)))
            }
            ProbeOutcome::Unknown | ProbeOutcome::Unsupported | ProbeOutcome::Unanswered(_) => None,
        }
    }

    pub(super) async fn probe(
        &self,
        call: &CallAttempt,
        begun: Instant,
        permits: &impl PermitSource,
    ) -> ProbeOutcome {
        if !self.declaration().probe {
            return ProbeOutcome::Unsupported;
        }
        let failure = match self.send_request(call, RequestKind::Probe, begun, permits).await {
            Ok(output) => return ProbeOutcome::Finished(AttemptResult::Completed(Arc::new(output))),
            Err(failure) => failure.with_target(self.target().to_string()),
        };
        // If the stored result is itself such a failure, sending the work again returns it.
        let code = failure.status.as_deref().and_then(|status| RpcCode::from_name(status.split_once(' ')?.1));
        match code {
            Some(RpcCode::NotFound) => ProbeOutcome::Unknown,
            Some(RpcCode::Aborted) => {
                ProbeOutcome::InProgress(CallFailure { code: IN_PROGRESS.to_owned(), ..failure })
            }
            Some(RpcCode::Unimplemented) => ProbeOutcome::Unsupported,
            // The answer of a proxy in front of the activity, which did not get the probe.
            Some(RpcCode::Unauthenticated | RpcCode::PermissionDenied) => ProbeOutcome::Unanswered(failure),
            Some(code) if !code.is_retryable() => ProbeOutcome::Finished(AttemptResult::Failed(failure)),
            // The stored result cannot be used, and would be the same if the work were sent again.
            None if failure.status.is_none() && !failure.retryable && !failure.not_sent => {
                ProbeOutcome::Finished(AttemptResult::Failed(failure))
            }
            _ => ProbeOutcome::Unanswered(failure),
        }
    }
}

/// The outcome of the earlier attempt is as unknown as before, and no other attempt was made.
fn unsent_and_unknown(failure: CallFailure) -> CallFailure {
    failure.with_outcome_unknown().with_not_sent()
}
