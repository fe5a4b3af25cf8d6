//! Messages to an instance, in the order of its inbox: results, fired timers, events and control operations.
//!
//! Messages are facts that happened outside. This module does not decide whether a message still matters: `advance`
//! checks each one against the instance.

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::ids::CommandId;
use crate::instance::codec;
use crate::json::Json;
use crate::time::Timestamp;

/// One message of an instance's inbox.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// An activity returned a result.
    ActivityCompleted {
        command: CommandId,
        #[serde(with = "codec::json")]
        result: Json,
    },
    /// An attempt failed, or the call's deadline passed (code `Timeout`, not retryable).
    ActivityFailed {
        command: CommandId,
        /// Number of the failed attempt as the journal counts: attempts before it that may have been sent.
        attempt: u32,
        failure: Failure,
    },
    /// A timer is due.
    TimerFired { timer: CommandId },
    /// An external event.
    EventRaised {
        /// The event's name; case does not matter.
        name: String,
        #[serde(with = "codec::json")]
        payload: Json,
    },
    /// A child run completed.
    ChildCompleted {
        /// The command that started the child.
        command: CommandId,
        #[serde(with = "codec::json")]
        output: Json,
    },
    /// A child run failed, was terminated, or could not be started.
    ChildFailed {
        /// The command that started the child.
        command: CommandId,
        failure: Failure,
    },
    /// Stop moving; keep accepting messages.
    Suspend {
        /// The requester and the reason, for history.
        reason: String,
    },
    /// Continue after a suspension or a park.
    Resume {
        /// The requester and the reason, for history.
        reason: String,
    },
    /// End now, from any state.
    Terminate {
        /// The requester and the reason, for history.
        reason: String,
    },
    /// Continue a failed run at its failed state.
    Rewind {
        /// The requester and the reason, for history.
        reason: String,
    },
    /// An activity has run and returned a result that cannot be stored. `advance` makes it from `ActivityCompleted`.
    ActivityResultRejected { command: CommandId, failure: Failure },
    /// As `ActivityFailed`, but the receiver said when to try again, or was not reached at all.
    ActivityDeferred {
        command: CommandId,
        /// Number of the failed attempt as the journal counts: attempts before it that may have been sent.
        attempt: u32,
        failure: Failure,
        /// The earliest time of another attempt. Absolute, so that it does not move while the message is held.
        not_before: Timestamp,
        /// True if the attempt may have reached the receiver: only those attempts are counted.
        possibly_sent: bool,
    },
    /// As `ActivityFailed` or `ActivityDeferred`, but an attempt of the call may have run whose result is unknown: if
    /// the step fails now, a rewind repeats the call under the same key.
    ActivityUnanswered {
        command: CommandId,
        /// Number of the failed attempt as the journal counts: attempts before it that may have been sent.
        attempt: u32,
        failure: Failure,
        /// The earliest time of another attempt, if the receiver named one or was not reached.
        not_before: Option<Timestamp>,
        /// True if the attempt may have reached the receiver.
        possibly_sent: bool,
    },
    /// As `Rewind`, but calls whose outcome is unknown get new keys, too.
    RewindWithNewKeys {
        /// The requester and the reason, for history.
        reason: String,
    },
    /// As `Terminate`. The runtime also ends all descendants of the run, abandoned ones included.
    TerminateTree {
        /// The requester and the reason, for history.
        reason: String,
    },
    /// Run the failed compensation steps of an ended run again.
    RetryCompensation {
        /// The requester and the reason, for history.
        reason: String,
    },
}

impl Message {
    /// The same failure of a call of which an attempt may have run without an answer. Other messages stay as they are.
    #[must_use]
    pub fn unanswered(self) -> Self {
        match self {
            Self::ActivityFailed { command, attempt, failure } => {
                Self::ActivityUnanswered { command, attempt, failure, not_before: None, possibly_sent: true }
            }
            Self::ActivityDeferred { command, attempt, failure, not_before, possibly_sent } => {
                Self::ActivityUnanswered {
                    command,
                    attempt,
                    failure,
                    not_before: Some(not_before),
                    possibly_sent,
                }
            }
            other => other,
        }
    }

    /// The failed call and its failure, if the message reports one.
    pub fn call_failure(&self) -> Option<(CommandId, &Failure)> {
        match self {
            Self::ActivityFailed { command, failure, .. }
            | Self::ActivityDeferred { command, failure, .. }
            | Self::ActivityUnanswered { command, failure, .. } => Some((*command, failure)),
            _ => None,
        }
    }

    /// True if the message ends the run.
    pub fn terminates(&self) -> bool {
        matches!(self, Self::Terminate { .. } | Self::TerminateTree { .. })
    }
}

/// Why a message was refused. [`crate::Instance::check_message`] gives the same reason before the message enters an
/// inbox.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageRefusal {
    /// The run has ended: events and control operations come too late.
    #[error("the run has ended ({status}) and accepts no more messages")]
    RunEnded { status: crate::Status },
    /// Rewind is for failed runs.
    #[error("only a failed run can be rewound; this one is {status}")]
    NotFailed { status: crate::Status },
    /// The run has been compensated: continuing at the failed state would build on work that no longer exists.
    #[error("the run has already been compensated and cannot be rewound: start a new run")]
    AlreadyCompensated,
    /// The run failed by reaching a `fail` state with no failed state before it.
    #[error("there is no failed state to rewind to: the run ended in a fail state, or timed out as a whole")]
    NothingToRewind,
    /// No compensation step of the run has failed, or none that can be run again.
    #[error("no failed compensation step can be run again")]
    NoFailedCompensation,
    /// The run is live: its compensation can be retried when it has ended.
    #[error("the run is {status}: failed compensation steps can be run again once it has ended")]
    NotEnded { status: crate::Status },
    /// The run has ended, and is running its failed compensation steps again.
    #[error("the run has ended and is running failed compensation steps again; it accepts no such message")]
    RetryingCompensation,
    /// Resume is for suspended runs.
    #[error("the run is {status}, not suspended")]
    NotSuspended { status: crate::Status },
    /// The buffer for early events, or for messages held while suspended, is full.
    #[error("{buffered} messages are already buffered; the limit is {limit}")]
    BufferFull { buffered: u32, limit: u32 },
    /// The payload exceeds the size limit.
    #[error("the payload has {bytes} bytes; the limit is {limit}")]
    PayloadTooLarge { bytes: u64, limit: u64 },
    /// The payload is nested beyond the limit.
    #[error("the payload is nested more than {limit} levels deep")]
    PayloadTooDeep { limit: usize },
    /// The event has no usable name.
    #[error(
        "an event's name must have 1 to 128 visible characters; this one has {chars} or an invisible one"
    )]
    InvalidEventName { chars: usize },
}
