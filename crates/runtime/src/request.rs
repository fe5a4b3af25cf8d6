//! The requests a client can send to a shard, and the shard's replies.
//!
//! A reply is sent only after what it says is durable. No transport is known here: the server maps these types to HTTP.

use std::borrow::Cow;
use std::sync::Arc;

use abide_ids::{Digest, KeyDigest, RunId};
use abide_workflow::history::RedrivenStep;
use abide_workflow::instance::{CompensationCounts, CurrentState};
use abide_workflow::json::Json;
use abide_workflow::{Failure, InstanceId, Message, MessageRefusal, Plan, RunNumber, Timestamp};

use crate::entity::{OperationError, OperationReply, OperationRequest};
use crate::placement::ShardId;
use crate::run::HeldBack;

/// Identifies one request of a driver; the reply carries it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// A client's request to a shard.
#[derive(Clone, Debug)]
pub enum ShardRequest {
    /// Start a run.
    Start(Box<StartRequest>),
    /// Send an event or a control operation to a run.
    SendMessage {
        instance_id: InstanceId,
        /// `EventRaised`, `Suspend`, `Resume`, `Terminate`, `Rewind`, `RewindWithNewKeys` or
        /// `RetryCompensation`.
        message: Message,
    },
    /// Start a new run with the input and the version of the last one, which must have ended.
    Restart { instance_id: InstanceId },
    /// Delete the last run of an instance, which must have ended, and its earlier runs.
    Purge {
        instance_id: InstanceId,
        /// Only the last run, and only if this is its number; earlier runs stay.
        run_number: Option<RunNumber>,
    },
    /// Delete a run that a later run has replaced.
    PurgeEarlierRun { instance_id: InstanceId, run_number: RunNumber, run_id: RunId },
    /// One operation on an entity.
    Operate(Box<OperationRequest>),
    /// Reply when a run has ended, or be refused when it is parked.
    AwaitEnd {
        instance_id: InstanceId,
        /// Only if this is the current run; none accepts any.
        run_number: Option<RunNumber>,
    },
    /// The inner request, unless it was done before under this key: then the stored reply is returned, and nothing is
    /// done.
    Idempotent(RequestIdempotency, Box<ShardRequest>),
    /// Return the stored reply of a start under this key. Starts nothing.
    GetStoredReply {
        /// The instance that the start created.
        instance_id: InstanceId,
        idempotency: RequestIdempotency,
    },
}

impl ShardRequest {
    /// The instance the request is for; none if it is for an entity.
    pub fn instance_id(&self) -> Option<&InstanceId> {
        match self {
            Self::Start(start) => Some(&start.instance_id),
            Self::SendMessage { instance_id, .. }
            | Self::Restart { instance_id }
            | Self::Purge { instance_id, .. }
            | Self::PurgeEarlierRun { instance_id, .. }
            | Self::AwaitEnd { instance_id, .. }
            | Self::GetStoredReply { instance_id, .. } => Some(instance_id),
            Self::Idempotent(_, request) => request.instance_id(),
            Self::Operate(_) => None,
        }
    }

    /// True if the request ends a run: it comes before all that waits for this run.
    pub(crate) fn terminates(&self) -> bool {
        match self {
            Self::SendMessage { message, .. } => message.terminates(),
            Self::Idempotent(_, request) => request.terminates(),
            _ => false,
        }
    }

    /// The key that decides which shard the request is for.
    pub fn placement_key(&self) -> Cow<'_, str> {
        match self {
            Self::Operate(operate) => operate.entity.placement_key(),
            Self::Idempotent(_, request) => request.placement_key(),
            other => Cow::Borrowed(other.instance_id().map_or("", InstanceId::placement_key)),
        }
    }

    /// True for the control operations and deletions of an operator, which must get through to a shard that has too
    /// much to do. They are small.
    pub(crate) fn is_control(&self) -> bool {
        match self {
            // No wildcard: whoever adds a message decides here whether load may refuse it.
            Self::SendMessage { message, .. } => match message {
                Message::Suspend { .. }
                | Message::Resume { .. }
                | Message::Terminate { .. }
                | Message::TerminateTree { .. }
                | Message::Rewind { .. }
                | Message::RewindWithNewKeys { .. }
                | Message::RetryCompensation { .. } => true,
                Message::ActivityCompleted { .. }
                | Message::ActivityFailed { .. }
                | Message::ActivityResultRejected { .. }
                | Message::ActivityDeferred { .. }
                | Message::ActivityUnanswered { .. }
                | Message::TimerFired { .. }
                | Message::EventRaised { .. }
                | Message::ChildCompleted { .. }
                | Message::ChildFailed { .. } => false,
            },
            Self::Purge { .. } | Self::PurgeEarlierRun { .. } => true,
            Self::Idempotent(_, request) => request.is_control(),
            Self::Start(_)
            | Self::Restart { .. }
            | Self::Operate(_)
            | Self::AwaitEnd { .. }
            | Self::GetStoredReply { .. } => false,
        }
    }

    /// The key by which a repeated request is recognised. That of an entity operation is not here: the entity looks for
    /// its reply itself.
    pub(crate) fn idempotency(&self) -> Option<RequestIdempotency> {
        match self {
            Self::Start(start) => start.idempotency,
            Self::Idempotent(idempotency, _) | Self::GetStoredReply { idempotency, .. } => Some(*idempotency),
            _ => None,
        }
    }

    /// True if the instance's row, and the reply stored under the request's key, are enough to serve the request;
    /// otherwise the shard loads the run first. Asked for a request at the front of its instance's queue, where an
    /// entity operation never is.
    pub(crate) fn needs_row_only(&self) -> bool {
        match self {
            Self::Start(_)
            | Self::Purge { .. }
            | Self::PurgeEarlierRun { .. }
            | Self::GetStoredReply { .. } => true,
            Self::Idempotent(_, request) => request.needs_row_only(),
            Self::SendMessage { .. } | Self::Restart { .. } | Self::AwaitEnd { .. } | Self::Operate(_) => {
                false
            }
        }
    }

    /// True if the reply stored for this request is a [`StartedRun`]; otherwise it is an [`IdempotentReply`].
    pub(crate) fn starts_run(&self) -> bool {
        match self {
            Self::Start(_) | Self::Restart { .. } | Self::GetStoredReply { .. } => true,
            Self::Idempotent(_, request) => request.starts_run(),
            Self::SendMessage { .. }
            | Self::Purge { .. }
            | Self::PurgeEarlierRun { .. }
            | Self::AwaitEnd { .. }
            | Self::Operate(_) => false,
        }
    }
}

/// A run to start. The caller has chosen the plan and checked the input.
#[derive(Clone, Debug)]
pub struct StartRequest {
    /// The id of the instance; the placement key in it led to this shard.
    pub instance_id: InstanceId,
    pub plan: Arc<Plan>,
    /// `$.input`
    pub input: Json,
    /// `$.event`, if an event triggered the run.
    pub event: Option<Json>,
    pub correlation_id: String,
    pub entity_id: Option<String>,
    /// The type of that entity, in lower case, if the caller knows it.
    pub entity_type: Option<String>,
    /// Recognises a repetition of this request.
    pub idempotency: Option<RequestIdempotency>,
    /// The id of a second reply, sent when the run has ended. Callers leave it empty; the driver fills it in.
    pub await_end: Option<RequestId>,
}

/// The digests by which a repeated request is recognised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestIdempotency {
    /// The digest of the client's idempotency key.
    pub key_digest: KeyDigest,
    /// The digest of the request's content: the same key with different content is an error.
    pub payload_digest: Digest,
    /// True if the instance id was derived from the key: then an instance with that id was created under this key, even
    /// if the reply is no longer stored.
    pub derives_instance_id: bool,
}

impl RequestIdempotency {
    /// For a request whose target has an id of its own.
    pub fn new(key_digest: KeyDigest, payload_digest: Digest) -> Self {
        Self { key_digest, payload_digest, derives_instance_id: false }
    }
}

/// A shard's reply to a request.
#[derive(Clone, Debug)]
pub enum ShardReply {
    /// The run was started, now or by an earlier copy of the request.
    Started(StartedRun),
    /// The message was accepted.
    Accepted,
    /// The run was rewound: the steps that are done again, and their keys.
    Rewound(Vec<RedrivenStep>),
    /// The operation was done, now or by an earlier copy of the request.
    Operated(Box<OperationReply>),
    /// The instance was deleted.
    Purged,
    /// The request was done, now or by an earlier copy of it; and the time until which a copy is recognised.
    Idempotent(IdempotentReply, Timestamp),
    /// The run has ended.
    Ended(Box<RunView>),
    /// Nothing was done, for this reason.
    Refused(RequestError),
}

/// A run that was started.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct StartedRun {
    pub instance_id: InstanceId,
    pub run_number: RunNumber,
    pub created_at: Timestamp,
    /// The time until which a copy of the request is recognised, if it had a key. Stored beside this value, not in it.
    #[serde(skip)]
    pub idempotent_until: Option<Timestamp>,
}

/// The result of an idempotent request. Stored by variant position: append only.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum IdempotentReply {
    /// The message was accepted.
    Accepted,
    /// The instance was deleted.
    Purged,
    /// The run was rewound.
    Rewound(Vec<RedrivenStep>),
}

/// The limit that a full shard has reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueLimit {
    Items,
    Bytes,
}

impl std::fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Items => "requests",
            Self::Bytes => "bytes of requests",
        })
    }
}

/// The reason why nothing was done. After [`Self::Busy`], [`Self::NotReady`] and [`Self::Draining`] the same request
/// may simply be retried; the others hold as long as the request and the state of the instance or entity are the same.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum RequestError {
    /// There is no such instance.
    #[error("instance {instance_id} not found")]
    NotFound { instance_id: InstanceId },
    /// A run of the instance is live.
    #[error(
        "instance {instance_id} is already running (run {run_number}): wait for it to end before starting a new run"
    )]
    AlreadyRunning { instance_id: InstanceId, run_number: RunNumber },
    /// The run does not accept this message.
    #[error(transparent)]
    Message(#[from] MessageRefusal),
    /// The run is parked.
    #[error("instance {instance_id} is parked: {reason}")]
    Parked { instance_id: InstanceId, reason: String },
    /// The rows of the instance, or the stored reply of the request, cannot be read.
    #[error("instance {instance_id} is damaged: {reason}")]
    Damaged { instance_id: InstanceId, reason: String },
    /// The entity's rows cannot be read.
    #[error("entity {entity} is damaged: {reason}")]
    EntityDamaged { entity: String, reason: String },
    /// The entity holds as many events as the limit allows.
    #[error("entity {entity} holds {events} events; clear some first")]
    EntityFull { entity: String, events: u64 },
    /// The entity's kind refused the operation.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// Something is larger than the payload limit.
    #[error("{what} is {bytes} bytes, over the payload limit")]
    TooLarge { what: &'static str, bytes: usize },
    /// The same key was used before with different content.
    #[error("this Idempotency-Key was already used for a different request")]
    KeyReused,
    /// The instance created with this key exists, but the stored reply of the key has expired.
    #[error(
        "this Idempotency-Key created instance {instance_id}, but its stored reply has expired, so it is unknown whether \
         this is the same request: inspect the instance, or use a new key to start another one"
    )]
    KeyExpired { instance_id: InstanceId },
    /// The run is not the current one of its instance.
    #[error("run {run_number} is not the current run of instance {instance_id}")]
    NotCurrent { instance_id: InstanceId, run_number: RunNumber },
    /// Too many requests and messages are queued, or too many bytes of them.
    #[error("too many {limit} wait in {shard}; try again later")]
    Busy { shard: ShardId, limit: QueueLimit },
    /// This node does not own the shard, or does not own it yet.
    #[error("the shard is not ready on this node; try again")]
    NotReady,
    /// The node is shutting down.
    #[error("the node is shutting down; try again")]
    Draining,
}

impl RequestError {
    /// True if the same request may succeed later or on another node. Nothing of it was done.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::NotReady | Self::Draining)
    }
}

/// A run as it is shown to clients.
#[derive(Clone, PartialEq, Debug)]
pub struct RunView {
    pub instance_id: InstanceId,
    pub run_number: RunNumber,
    pub workflow: String,
    pub version: String,
    pub status: ViewStatus,
    pub input: Json,
    pub output: Option<Json>,
    pub error: Option<Failure>,
    pub correlation_id: String,
    pub entity_id: Option<String>,
    /// The type of that entity, if it is known.
    pub entity_type: Option<String>,
    pub created_at: Timestamp,
    /// The time of the last change.
    pub updated_at: Timestamp,
    /// The current states of its branches, and what each waits for.
    pub current_states: Vec<BranchView>,
    /// The counts of its compensation steps, if any compensation has begun.
    pub compensation: Option<CompensationCounts>,
}

/// The status of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ViewStatus {
    /// The run's own status.
    Run(abide_workflow::Status),
    /// The run is parked or cannot be read, with the reason.
    Parked(String),
}

/// The position of one branch in the workflow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BranchView {
    /// The state and what it waits for.
    pub state: CurrentState,
    /// The activity it called, if it waits for a call.
    pub activity: Option<String>,
    /// The attempt in progress, numbered from 0, if it waits for a call.
    pub attempt: Option<u32>,
    /// The time at which the timer is due, the next attempt starts or the call's deadline passes, if there is one.
    pub until: Option<Timestamp>,
    /// What holds the call back that it waits for, if anything does.
    pub held: Option<HeldBack>,
    /// The child it waits for, if any.
    pub child: Option<InstanceId>,
}
