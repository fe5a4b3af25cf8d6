//! What reaches an instance: answers, firings, events and orders, in the order of its inbox.
//!
//! Messages are facts that happened outside. Whether one still matters is decided by `advance`, which re-checks each against
//! the instance.

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::ids::CommandId;
use crate::instance::codec;
use crate::json::Json;
use crate::time::Timestamp;

/// One message of an instance's inbox.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// An activity answered.
    ActivityCompleted {
        /// Which dispatch.
        command: CommandId,
        /// Its result.
        #[serde(with = "codec::json")]
        result: Json,
    },
    /// A delivery failed, or the dispatch's deadline passed (code `Timeout`, not retryable).
    ActivityFailed {
        /// Which dispatch.
        command: CommandId,
        /// The attempt that failed, as the journal counts: possible deliveries before it.
        attempt: u32,
        /// Why.
        failure: Failure,
    },
    /// A timer is due.
    TimerFired {
        /// Which timer.
        timer: CommandId,
    },
    /// An external event.
    EventRaised {
        /// Its name; case does not matter.
        name: String,
        /// Its payload.
        #[serde(with = "codec::json")]
        payload: Json,
    },
    /// A child run completed.
    ChildCompleted {
        /// The command that started it.
        command: CommandId,
        /// Its output.
        #[serde(with = "codec::json")]
        output: Json,
    },
    /// A child run failed, was terminated, or could not be started.
    ChildFailed {
        /// The command that started it.
        command: CommandId,
        /// Why.
        failure: Failure,
    },
    /// Stop moving; keep taking messages.
    Suspend {
        /// Who asked and why, for history.
        reason: String,
    },
    /// Go on, after a suspension or a park.
    Resume {
        /// Who asked and why, for history.
        reason: String,
    },
    /// End now, from whatever state.
    Terminate {
        /// Who asked and why, for history.
        reason: String,
    },
    /// Go on at the failed state of a failed run.
    Rewind {
        /// Who asked and why, for history.
        reason: String,
    },
    /// An activity has run and answered with something that cannot be kept. Made of `ActivityCompleted` as it is taken.
    ActivityUnkeepable {
        /// Which dispatch.
        command: CommandId,
        /// Why not.
        failure: Failure,
    },
    /// As `ActivityFailed`, and whoever was called said when it makes sense to come back, or was not reached at all.
    ActivityDeferred {
        /// Which dispatch.
        command: CommandId,
        /// The attempt that failed, as the journal counts: possible deliveries before it.
        attempt: u32,
        /// Why.
        failure: Failure,
        /// Not earlier than this, if there is another delivery. A moment, so that it does not move while the message is held.
        not_before: Timestamp,
        /// Whether it may have reached anybody: the attempt counts only those that may.
        sent: bool,
    },
}

/// Why a message was not taken. The same answer is available before it is put into an inbox: [`crate::Instance::accepts`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The run has ended: events and orders come too late.
    #[error("the run has ended ({status}) and takes no more messages")]
    RunEnded {
        /// How it ended.
        status: crate::Status,
    },
    /// Rewind is for failed runs.
    #[error("only a failed run can be rewound; this one is {status}")]
    NotFailed {
        /// What it is.
        status: crate::Status,
    },
    /// What was done has been undone: going on from the failed state would build on nothing.
    #[error("the run has compensated already and cannot be rewound: start it again")]
    AlreadyCompensated,
    /// The run failed by reaching a `fail` state with no failed state before it.
    #[error("there is no failed state to go back to: the run chose to fail, or timed out as a whole")]
    NothingToRewind,
    /// Resume is for suspended runs.
    #[error("the run is {status}, not suspended")]
    NotSuspended {
        /// What it is.
        status: crate::Status,
    },
    /// The buffer for early events, or for messages held while suspended, is full.
    #[error("{buffered} messages are buffered already; the limit is {limit}")]
    BufferFull {
        /// How many there are.
        buffered: u32,
        /// How many there may be.
        limit: u32,
    },
    /// A payload beyond its limit.
    #[error("the payload has {bytes} bytes; the limit is {limit}")]
    PayloadTooLarge {
        /// How many it has.
        bytes: u64,
        /// How many it may have.
        limit: u64,
    },
    /// A payload nested beyond the limit.
    #[error("the payload is nested more than {limit} levels deep")]
    PayloadTooDeep {
        /// How deep it may be.
        limit: usize,
    },
    /// An event without a usable name.
    #[error("an event's name has 1 to 128 visible characters; this one has {chars} or an invisible one")]
    EventName {
        /// How many it has.
        chars: usize,
    },
}
