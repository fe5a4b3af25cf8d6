//! One delivery of one call over some wire, and the answers it can have.
//!
//! A transport delivers once and reports; it never retries. Whether to try again is decided where the workflow advances.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::metadata::Metadata;

/// The code of a call whose deadline passed before anything was sent.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

/// One delivery of an activity call.
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    /// The activity's registered name.
    pub activity: String,
    /// The input.
    pub input: Arc<Value>,
    /// The seven canonical keys.
    pub metadata: Metadata,
    /// This delivery's own time limit.
    pub attempt_timeout_ms: u64,
    /// An earlier delivery was never answered and may have run: a receiver that can say is asked before it is given the work again.
    pub ask_first: bool,
    /// The places in the input, JSON pointers, where the author of a definition wrote a reference to a secret. Whoever delivers puts the
    /// secret there; what is in other places is data, whatever it looks like.
    pub secrets: Vec<String>,
    /// How long ago it left when it is handed over. What was left of its deadline then is less by as much; its own limit is not.
    pub waited: Duration,
}

impl Call {
    /// This delivery's limit: its own, or what was left of the whole call when it was sent. Nothing left is the end of it.
    ///
    /// Reads no clock: the call itself tells when it left.
    pub(crate) fn time_left(&self) -> Result<Duration, Failure> {
        let own = Duration::from_millis(self.attempt_timeout_ms);
        match self.deadline_left() {
            None => Ok(own),
            Some(left) if !left.is_zero() => Ok(own.min(left)),
            Some(_) => Err(Failure::expired()),
        }
    }

    /// What is left of the whole call when it is handed over, if that is limited.
    pub fn deadline_left(&self) -> Option<Duration> {
        let left = self.metadata.deadline_epoch_ms?.saturating_sub(self.metadata.dispatched_at_epoch_ms);
        Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)).saturating_sub(self.waited))
    }
}

impl fmt::Debug for Call {
    /// The input may hold resolved secrets, so it is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("activity", &self.activity)
            .field("metadata", &self.metadata)
            .field("attempt_timeout_ms", &self.attempt_timeout_ms)
            .field("ask_first", &self.ask_first)
            .finish_non_exhaustive()
    }
}

/// What came back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The activity ran and this is its result.
    Completed(Arc<Value>),
    /// The activity, or the way to it, failed.
    Failed(Failure),
}

/// A failed delivery, classified by the one table that all transports share.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    /// Stable code, matched by `onError` and `nonRetryable`.
    pub code: String,
    /// For people.
    pub message: String,
    /// Whether another delivery may help.
    pub retryable: bool,
    /// Whether the activity may have run: true for timeouts and broken connections after sending, for answers that leave it open, such as a bare
    /// 503, and where only somebody was asked about an earlier delivery.
    pub outcome_unknown: bool,
    /// Whether it surely never left: such a delivery counts as none.
    pub not_sent: bool,
    /// When another delivery makes sense, at the earliest, if the service said so. Whoever decides on retries waits at least so long.
    pub retry_after_ms: Option<u64>,
    /// What the wire said, for diagnostics: such as `503 UNAVAILABLE`. None where nothing was answered.
    pub status: Option<String>,
    /// Who was called, for diagnostics: scheme, host and port. None where nobody outside was.
    pub target: Option<String>,
}

impl Failure {
    /// A failure that no other delivery can cure.
    pub fn for_good(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            retryable: false,
            outcome_unknown: false,
            not_sent: false,
            retry_after_ms: None,
            status: None,
            target: None,
        }
    }

    /// A failure that another delivery may cure.
    pub fn retryable(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { retryable: true, ..Self::for_good(code, message) }
    }

    /// The same failure, of a delivery of which nobody knows whether the activity ran.
    #[must_use]
    pub fn with_outcome_unknown(self) -> Self {
        Self { outcome_unknown: true, ..self }
    }

    /// The same failure, of a delivery that surely never left.
    #[must_use]
    pub fn with_not_sent(self) -> Self {
        Self { not_sent: true, ..self }
    }

    /// Whether it was turned away before the activity, be it for now, or may have been, because a bare number says nothing of who answered: that says
    /// nothing of earlier deliveries. Of a 503 whoever read it knows whether it was one that says so.
    pub fn is_turned_away(&self) -> bool {
        let bare = self.status.as_deref().is_some_and(|status| !status.contains(' '));
        !self.outcome_unknown && (bare || matches!(self.status_number(), Some(401 | 403 | 429 | 503)))
    }

    /// The number in what the wire said.
    pub(crate) fn status_number(&self) -> Option<u16> {
        self.status.as_deref()?.split(' ').next()?.parse().ok()
    }

    /// The deadline of the whole call has passed, and nothing was sent.
    pub(crate) fn expired() -> Self {
        let message = "the deadline had passed before the activity was called";
        Self::for_good(DEADLINE_EXCEEDED, message).with_not_sent()
    }

    /// The same failure, with what the wire said.
    #[must_use]
    pub fn with_status(self, status: impl Into<String>) -> Self {
        Self { status: Some(status.into()), ..self }
    }

    /// The same failure, with who was called. A URL's path and query hold secrets and do not belong here.
    #[must_use]
    pub fn with_target(self, target: impl Into<String>) -> Self {
        Self { target: Some(target.into()), ..self }
    }
}

/// Room for deliveries, shared by all of them.
pub trait Room: Sync {
    /// What holds it. Dropping gives it back.
    type Held: Send;

    /// Waits for room; a failure if there is none in time.
    fn take(&self) -> impl Future<Output = Result<Self::Held, Failure>> + Send;

    /// Gives room back that was not used for the work itself, of which nothing has left: it is waited for again.
    fn give_back(&self, held: Self::Held) {
        drop(held);
    }
}

/// Room without end.
#[derive(Clone, Copy, Debug)]
pub struct Unbounded;

impl Room for Unbounded {
    type Held = ();

    async fn take(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// A way to reach activities.
pub trait Transport: Send + Sync {
    /// Delivers the call once. Dropping the future cancels the delivery as far as the wire allows.
    fn deliver(&self, call: Call) -> impl Future<Output = Answer> + Send;

    /// Delivers the call once, in room that whoever calls has to share out among all calls.
    ///
    /// Room is asked for when nothing else stands in the way, and held until there is an answer: a call that waits for its target takes none from
    /// calls to others. Waiting for room is no part of the attempt. Nothing of the work must leave before there is room: until then whoever calls may
    /// take the call back, and deliver it again as one that never left.
    fn deliver_in<R: Room>(&self, call: Call, room: &R) -> impl Future<Output = Answer> + Send {
        async move {
            let begun = Instant::now();
            match room.take().await {
                Ok(_held) => {
                    let waited = call.waited + begun.elapsed();
                    self.deliver(Call { waited, ..call }).await
                }
                Err(failure) => Answer::Failed(failure),
            }
        }
    }
}
