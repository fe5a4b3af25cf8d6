//! The interface of a shard: the events it handles and the effects it asks its driver to execute.
//!
//! A shard does no I/O itself. A driver executes its effects, in any order and as slowly as it likes, and reports their
//! results as events. An effect that follows from a change is issued only after the change is durable.

use std::sync::Arc;

use abide_dispatch::{AttemptResult, CallAttempt, HoldNotice};
use abide_ids::{KeyDigest, RunId};
use abide_store::public::{PublicWrite, TableSchema};
use abide_store::rows::{Batch, CommitOutcome, Row, Scan, StoreError, TolerantPage};
use abide_store::tables::entities::EntityRow;
use abide_store::tables::heads::CommitId;
use abide_store::tables::idempotency::IdempotencyRow;
use abide_store::tables::instances::InstanceRow;
use abide_workflow::{CommandId, InstanceId, Plan};
use semver::VersionReq;

use crate::definitions::DefinitionError;
use crate::entity::EntityId;
use crate::placement::ShardId;
use crate::request::{RequestId, ShardReply, ShardRequest};
use crate::run::{StoredRun, UnreadableRun};

/// Something that happened outside a shard, reported by its driver.
#[derive(Debug)]
pub enum Event {
    /// Time has passed. A new shard gets one first: it begins to acquire ownership.
    Tick,
    /// A client's request.
    RequestReceived(RequestId, ShardRequest),
    /// Clients' requests that are accepted together in this order, or all refused.
    RequestGroupReceived(Vec<(RequestId, ShardRequest)>),
    /// The head was read: to acquire the shard, or to learn if the commit in flight was applied.
    HeadRead(Result<Option<Row>, StoreError>),
    /// A commit ended with this outcome, which may be unknown.
    CommitFinished(CommitId, CommitOutcome),
    /// Rows were scanned; damaged ones were skipped.
    Scanned(ScanPurpose, Result<TolerantPage, StoreError>),
    InstanceLookedUp(InstanceId, Box<InstanceLookup>),
    /// An entity was looked up, for the operation with this number.
    EntityLookedUp(EntityId, u64, Box<EntityLookup>),
    /// The plan for a run was found, or not.
    PlanFound(InstanceId, Result<Arc<Plan>, PlanError>),
    /// An attempt ended: with the activity's result, or with a failure.
    AttemptFinished(AttemptId, AttemptResult),
    /// An attempt could not be sent yet; the driver goes on trying.
    AttemptHeld(AttemptId, HoldNotice),
    /// A held call could be sent now. [`Effect::AllowSend`] with the same ticket lets it go, once that is recorded.
    SendRequested(AttemptId, SendTicket),
    /// The node is shutting down and withdrew this attempt while it was still waiting. The work was not sent, at most a
    /// probe for it.
    AttemptWithdrawn(AttemptId),
    /// The public rows were written, or not.
    PublicIndexWritten(Result<(), String>),
    /// Messages were put into another shard's inbound partition, or not.
    MessagesSent(ShardId, CommitOutcome),
    /// Inbound messages that were already accepted were deleted from the inbound partition, or not.
    InboundDeleted(CommitOutcome),
    /// There may be inbound messages.
    InboundHinted,
    /// These clients no longer wait for their reply. Their requests are done all the same.
    ClientsGone(Vec<RequestId>),
    /// Finish the work in progress, accept nothing new, release the shard. A shard that is not owned stops at once.
    Drain,
}

/// Something a shard asks its driver to do. Each names the event that reports its result, if there is one.
#[derive(Debug)]
pub enum Effect {
    /// Read the head: [`Event::HeadRead`].
    ReadHead,
    /// Commit to the shard's own partition: [`Event::CommitFinished`].
    Commit(CommitId, Arc<Batch>),
    /// Scan the shard's own partition, or its inbound partition for inbound messages: [`Event::Scanned`].
    Scan(ScanPurpose, Scan),
    /// Read an instance: [`Event::InstanceLookedUp`].
    LookUpInstance(InstanceId, LookupDepth),
    /// Read an entity, and the stored reply of an earlier copy of the operation: [`Event::EntityLookedUp`].
    LookUpEntity {
        entity: EntityId,
        /// The number of the operation that waits for it.
        operation_number: u64,
        /// The scope and the digest of the operation's idempotency key.
        idempotency_key: Option<(&'static str, KeyDigest)>,
    },
    /// Find the plan for a run: [`Event::PlanFound`].
    FindPlan {
        instance_id: InstanceId,
        workflow: String,
        /// The accepted versions; none for the default version.
        range: Option<VersionReq>,
    },
    /// Start an attempt: always ends in [`Event::AttemptFinished`] or [`Event::AttemptWithdrawn`], unless it is
    /// cancelled.
    StartAttempt(AttemptId, Box<CallAttempt>),
    /// Try to send a held call, as far as that is possible without sending a byte of the work:
    /// [`Event::SendRequested`] when it could be sent, otherwise as for [`Effect::StartAttempt`].
    TryHeldCall(AttemptId, Box<CallAttempt>),
    /// The held call that requested it with this ticket may be sent now. Without such a request, nothing is sent.
    AllowSend(AttemptId, SendTicket, Box<CallAttempt>),
    /// Stop an attempt; its result is no longer wanted.
    CancelAttempt(AttemptId),
    /// Send a reply to a client.
    Reply(RequestId, ShardReply),
    /// Write to a public table: [`Event::PublicIndexWritten`].
    WritePublicIndex(&'static TableSchema, Vec<PublicWrite>),
    /// Commit to the inbound partition of another shard: [`Event::MessagesSent`].
    SendMessages(ShardId, Batch),
    /// Commit to the shard's own inbound partition: [`Event::InboundDeleted`].
    DeleteInbound(Batch),
    /// Log and count an operator event.
    Notify(OperatorEvent),
    /// The shard has stopped: drop it. A new one must acquire the shard again.
    Stopped(StopReason),
}

/// Identifies one attempt of one call.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttemptId {
    pub instance_id: InstanceId,
    pub run_id: RunId,
    /// The command that made the call.
    pub command: CommandId,
    /// Numbered from 0.
    pub attempt: u32,
}

/// Tells the tries of one attempt apart: the permission for one that has given up is no permission for the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendTicket(pub u64);

/// The part of an instance that is needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LookupDepth {
    /// The row of its id, and the reply stored under a client's idempotency key.
    Row {
        /// The digest of that key; none if there is no key.
        key_digest: Option<KeyDigest>,
    },
    /// Its whole current run, unless that is parked.
    Run,
    /// Its whole current run, which is parked and to be resumed or terminated.
    ParkedRun,
}

/// The result of looking up an instance.
#[derive(Debug)]
pub enum InstanceLookup {
    /// The row of its id, if there is one, and the stored reply.
    Row(Option<InstanceRow>, StoredReplyLookup),
    /// Its current run, if there is one.
    Run(Option<Box<StoredRun>>),
    /// The instance exists but cannot be read; and the stored reply.
    Unreadable(UnreadableRun, StoredReplyLookup),
    /// The store is unavailable: the lookup should be retried.
    Unavailable(String),
}

/// The reply stored under the client's idempotency key, if there is one; or the reason why it cannot be read.
pub type StoredReplyLookup = Result<Option<IdempotencyRow>, String>;

/// The result of looking up an entity.
#[derive(Debug)]
pub enum EntityLookup {
    /// Its row and the stored reply of an earlier copy of the operation, as far as they exist.
    Found(Option<EntityRow>, Option<IdempotencyRow>),
    /// The row of the entity, or the stored reply, cannot be read.
    Damaged(String),
    /// The store is unavailable: the lookup should be retried.
    Unavailable(String),
}

/// The reason why there is no plan for a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlanError {
    /// There is no usable plan; a retry does not help.
    NotFound(String),
    /// The store is unavailable: the lookup should be retried.
    Unavailable(String),
}

impl From<DefinitionError> for PlanError {
    fn from(error: DefinitionError) -> Self {
        match error {
            DefinitionError::Store(StoreError::Unavailable { reason }) => Self::Unavailable(reason),
            DefinitionError::Busy { id } => Self::Unavailable(format!("workflow {id} is being changed")),
            other => Self::NotFound(other.to_string()),
        }
    }
}

/// The purpose of a scan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ScanPurpose {
    /// Recovery: calls that are not settled.
    Calls,
    /// Recovery: messages that are not yet processed.
    Inbox,
    /// Recovery: messages to other shards and public rows that are not yet written.
    Outbox,
    /// Recovery: the watermark of each source of inbound messages.
    Watermarks,
    /// Timers that will be due soon.
    Timers,
    /// Expiry rows that are due.
    Expiries,
    /// Rows that a due expiry names, to be deleted: of a run, stored replies, events of an entity, or earlier runs.
    RunDeletion,
    /// Expiry rows that are not due, after the retention became shorter.
    RetentionReview,
    /// Messages from other shards, in the inbound partition.
    Inbound,
    /// All instances, to find those that are damaged.
    Instances,
    /// Calls that are not settled, to check that each of them is in progress.
    Reconciliation,
}

/// Something to be counted, and logged if an operator should know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OperatorEvent {
    /// This node owns the shard; recovery begins.
    Owned {
        fencing_token: u64,
        /// Claims in a row, up to this one, that followed an unclean end.
        unclean_claims: u32,
        /// Recovery is careful, because there were too many of them.
        carefully: bool,
    },
    /// A run has been live for longer than its definition expects. Reported once.
    Stuck { instance_id: InstanceId, waiting_for: String },
    /// A run took longer than its workflow allows; escalation begins.
    WorkflowTimedOut {
        instance_id: InstanceId,
        /// The workflow's own timeout.
        timeout: String,
        /// The states that its branches were in, at most the first twenty.
        states: String,
    },
    /// A run was set aside.
    Parked { instance_id: InstanceId, reason: String },
    /// A call failed permanently and was put into the dead-letter queue.
    CallFailed(Box<FailedCall>),
    /// A run has ended; a rewound run ends again. The duration is from its first turn, by wall clock; 0 if the run was
    /// terminated without being read.
    RunEnded { status: abide_workflow::Status, duration_ms: u64 },
    /// A run was started. The next run after a continue-as-new is not reported, nor is the end of the one before.
    RunStarted,
    /// A call is attempted again because its last attempt was orphaned: the owner stopped before the result was known.
    CallRecovered,
    /// An operation changed an entity.
    EntityChanged,
    /// An external event that no run takes was put into the dead-letter queue. For calls there is
    /// [`OperatorEvent::CallFailed`].
    DeadLettered {
        /// The engine that the message belongs to.
        engine: &'static str,
        reason: String,
    },
    /// Something in the store cannot be read and was skipped. Reported once for each place.
    Unreadable {
        /// Names the place.
        reason: String,
    },
}

/// A call that failed permanently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedCall {
    pub instance_id: InstanceId,
    pub activity: String,
    /// The path of the state that made the call.
    pub step: String,
    /// The last attempt, numbered from 0.
    pub attempt: u32,
    /// Why there is no further attempt.
    pub terminal_reason: &'static str,
    /// The code and message of the last failure; empty if there was none.
    pub failure: String,
}

/// The reason why a shard stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StopReason {
    /// Another node owns the shard, or may own it.
    Lost,
    /// The shard was drained. Its last commit has released it, unless there was none to do so or the shard was not
    /// owned.
    Drained,
    /// The shard cannot go on: the store rejected a batch that must be valid, the shard could not be read when it was
    /// acquired, or its task panicked. It must be acquired again.
    Broken(String),
}
