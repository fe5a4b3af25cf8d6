//! One attempt of one call over some transport, and the results it can have.
//!
//! A transport makes one attempt and reports its result; it never retries. The workflow decides about retries.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::hold::{HoldNotice, HoldReason};
use crate::metadata::Metadata;

/// The code of a call whose deadline passed before anything was sent.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

/// One attempt of an activity call.
#[derive(Clone, PartialEq, Eq)]
pub struct CallAttempt {
    /// The activity's registered name.
    pub activity: String,
    pub input: Arc<Value>,
    /// The seven canonical keys.
    pub metadata: Metadata,
    /// The timeout of this attempt alone; the deadline of the whole call is in the metadata.
    pub attempt_timeout_ms: u64,
    /// An earlier attempt was never answered and may have run: a receiver that supports probes is probed before the
    /// work is sent again.
    pub probe_first: bool,
    /// JSON pointers to the places in the input where the author of the definition wrote a reference to a secret. The
    /// sender puts the secret there; everything else in the input is data, whatever it looks like.
    pub secret_pointers: Vec<String>,
    /// The time between the dispatch and the moment when the attempt is handed to the transport. It shortens the time
    /// to the deadline, but not the attempt timeout.
    pub elapsed_since_dispatch: Duration,
}

impl CallAttempt {
    /// The time limit of this attempt: its own timeout, or the time to the deadline of the call if that is shorter.
    /// Fails if no time is left.
    ///
    /// Reads no clock: the call itself says when it was dispatched.
    pub(crate) fn time_left(&self) -> Result<Duration, CallFailure> {
        let own = Duration::from_millis(self.attempt_timeout_ms);
        match self.time_to_deadline() {
            None => Ok(own),
            Some(left) if !left.is_zero() => Ok(own.min(left)),
            Some(_) => Err(CallFailure::deadline_exceeded()),
        }
    }

    /// The time to the deadline of the call when the attempt is handed over, if there is a deadline.
    pub fn time_to_deadline(&self) -> Option<Duration> {
        let left = self.metadata.deadline?.since(self.metadata.dispatched_at);
        Some(Duration::from_millis(left.0).saturating_sub(self.elapsed_since_dispatch))
    }
}

impl fmt::Debug for CallAttempt {
    /// The input may hold resolved secrets, so it is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallAttempt")
            .field("activity", &self.activity)
            .field("metadata", &self.metadata)
            .field("attempt_timeout_ms", &self.attempt_timeout_ms)
            .field("probe_first", &self.probe_first)
            .finish_non_exhaustive()
    }
}

/// The result of one attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttemptResult {
    /// The activity ran and this is its result.
    Completed(Arc<Value>),
    /// The activity failed, or could not be reached.
    Failed(CallFailure),
}

/// A failed attempt, classified by the one table that all transports share.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct CallFailure {
    /// Stable code, matched by `onError` and `nonRetryable`.
    pub code: String,
    pub message: String,
    /// True if another attempt may help.
    pub retryable: bool,
    /// True if the activity may have run: for timeouts and lost connections after sending, for responses that leave it
    /// open, such as a bare 503, and if only a probe about an earlier attempt was sent.
    pub outcome_unknown: bool,
    /// True if the attempt certainly never left: such an attempt is not counted.
    pub not_sent: bool,
    /// What holds the attempt back, if it was not sent for a reason that passes without the activity. Such an attempt
    /// uses up neither an attempt nor a failure of its call.
    pub hold: Option<HoldReason>,
    /// The delay before another attempt makes sense, if the service gave one. A retry waits at least that long.
    pub retry_after_ms: Option<u64>,
    /// The status of the response, for diagnostics, such as `503 UNAVAILABLE`. None if there was no response.
    pub status: Option<String>,
    /// The called scheme, host and port, for diagnostics. None if no other system was called.
    pub target: Option<String>,
}

impl CallFailure {
    /// A failure that no other attempt can cure.
    pub fn permanent(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            retryable: false,
            outcome_unknown: false,
            not_sent: false,
            hold: None,
            retry_after_ms: None,
            status: None,
            target: None,
        }
    }

    /// A failure that another attempt may cure.
    pub fn retryable(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { retryable: true, ..Self::permanent(code, message) }
    }

    /// An attempt that was not sent, because of something that passes without the activity.
    pub fn held(reason: HoldReason, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { hold: Some(reason), not_sent: true, ..Self::retryable(code, message) }
    }

    /// The same failure, for an attempt of which it is unknown whether the activity ran.
    #[must_use]
    pub fn with_outcome_unknown(self) -> Self {
        Self { outcome_unknown: true, ..self }
    }

    /// The same failure, for an attempt that certainly never left.
    #[must_use]
    pub fn with_not_sent(self) -> Self {
        Self { not_sent: true, ..self }
    }

    /// True if the attempt was, or may have been, rejected before it reached the activity. Such a failure says nothing
    /// about earlier attempts. A bare status code counts, because any proxy could have sent it. A 503 counts only if it
    /// says that it is a rejection: otherwise `outcome_unknown` is set.
    pub fn is_rejected_before_handler(&self) -> bool {
        let bare = self.status.as_deref().is_some_and(|status| !status.contains(' '));
        !self.outcome_unknown && (bare || matches!(self.status_code(), Some(401 | 403 | 429 | 503)))
    }

    /// The number in the status of the response.
    pub(crate) fn status_code(&self) -> Option<u16> {
        self.status.as_deref()?.split(' ').next()?.parse().ok()
    }

    /// The deadline of the whole call has passed, and nothing was sent.
    pub(crate) fn deadline_exceeded() -> Self {
        let message = "the deadline had passed before the activity was called";
        Self::permanent(DEADLINE_EXCEEDED, message).with_not_sent()
    }

    /// The same failure, with the status of the response.
    #[must_use]
    pub fn with_status(self, status: impl Into<String>) -> Self {
        Self { status: Some(status.into()), ..self }
    }

    /// The same failure, with the called target. The path and query of a URL may hold secrets and do not belong here.
    #[must_use]
    pub fn with_target(self, target: impl Into<String>) -> Self {
        Self { target: Some(target.into()), ..self }
    }
}

/// Concurrency permits, shared by all attempts.
pub trait PermitSource: Sync {
    /// Holds one permit. Dropping it gives the permit back.
    type Permit: Send;

    /// Waits for a permit; fails if none is free in time.
    fn acquire(&self) -> impl Future<Output = Result<Self::Permit, CallFailure>> + Send;

    /// Gives back a permit without having sent the work. The attempt will acquire another one before it sends the work.
    fn return_unused(&self, permit: Self::Permit) {
        drop(permit);
    }

    /// The attempt is held back. True if it may wait until it can be sent, or until its deadline; otherwise it fails
    /// now. Called again whenever the reason may have changed.
    fn hold_back(&self, _notice: HoldNotice) -> bool {
        false
    }

    /// Called when everything is ready, a connection included, just before the work is sent for the first time and
    /// perhaps again. An attempt that was held back waits here until it is recorded that it may have been sent.
    fn confirm_send(&self) -> impl Future<Output = Result<(), CallFailure>> + Send {
        std::future::ready(Ok(()))
    }
}

/// Permits without a limit.
#[derive(Clone, Copy, Debug)]
pub struct UnlimitedPermits;

impl PermitSource for UnlimitedPermits {
    type Permit = ();

    async fn acquire(&self) -> Result<(), CallFailure> {
        Ok(())
    }
}

/// A way to reach activities.
pub trait ActivityTransport: Send + Sync {
    /// Makes one attempt. Dropping the future cancels it as far as the wire allows.
    fn run_attempt(&self, call: CallAttempt) -> impl Future<Output = AttemptResult> + Send;

    /// Makes one attempt under a permit that the caller shares out among all calls.
    ///
    /// The permit is acquired when nothing else stands in the way, and held until there is a result: a call that waits
    /// for its target takes no permit from calls to other targets. Waiting for the permit is not part of the attempt.
    /// No byte of the work may be sent before the permit is acquired: until then the caller may withdraw the attempt,
    /// and make it again as one that never left.
    fn run_attempt_with_permit<R: PermitSource>(
        &self,
        call: CallAttempt,
        permits: &R,
    ) -> impl Future<Output = AttemptResult> + Send {
        async move {
            let begun = Instant::now();
            match permits.acquire().await {
                Ok(_permit) => {
                    if let Err(failure) = permits.confirm_send().await {
                        return AttemptResult::Failed(failure);
                    }
                    let elapsed_since_dispatch = call.elapsed_since_dispatch + begun.elapsed();
                    self.run_attempt(CallAttempt { elapsed_since_dispatch, ..call }).await
                }
                Err(failure) => AttemptResult::Failed(failure),
            }
        }
    }
}
