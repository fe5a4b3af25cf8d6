//! The two languages of a shard: what it is told, and what it wants done.
//!
//! A shard does nothing itself. A driver carries out its effects, in any order and as slowly as it likes, and reports what came of them as
//! events. An effect that follows from a change is given out only after the change is durable.

use std::sync::Arc;

use abide_dispatch::{Answer, Call};
use abide_store::public::{PublicWrite, TableSchema};
use abide_store::rows::{Batch, CommitOutcome, Passed, Row, Scan, StoreError};
use abide_store::tables::dedupe::Answer as KeptAnswer;
use abide_store::tables::entities::Entity as EntityRow;
use abide_store::tables::heads::CommitId;
use abide_store::tables::instances::Instance as InstanceRow;
use abide_workflow::{CommandId, InstanceId, Plan};
use semver::VersionReq;

use crate::definitions::DefinitionError;
use crate::entity::EntityId;
use crate::placement::ShardId;
use crate::request::{Reply, Request, Ticket};
use crate::run::{StoredRun, UnreadableRun};

/// What a shard is told.
#[derive(Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A client asks.
    Asked(Ticket, Request),
    /// Clients' requests that are taken in this order, or refused, all of them.
    AskedTogether(Vec<(Ticket, Request)>),
    /// The head was read.
    HeadRead(Result<Option<Row>, StoreError>),
    /// A commit was answered.
    CommitAnswered(CommitId, CommitOutcome),
    /// Rows were scanned, past what is damaged.
    Scanned(ScanPurpose, Result<Passed, StoreError>),
    /// An instance was looked up.
    LookedUp(InstanceId, Box<LookedUp>),
    /// An entity was looked up, for the operation of this number.
    EntityLookedUp(EntityId, u64, Box<FoundEntity>),
    /// A plan for a child was looked for.
    PlanFound(InstanceId, Result<Arc<Plan>, PlanError>),
    /// An activity answered, or its delivery failed.
    Answered(CallId, Answer),
    /// A call that went no further than waiting here will not be made: the node goes down. Nothing of it left.
    Withdrawn(CallId),
    /// The public rows were written, or not.
    Fed(Result<(), String>),
    /// Messages were put into another shard's inbox, or not.
    Posted(ShardId, CommitOutcome),
    /// Arrivals that were taken over were deleted, or not.
    ArrivalsDropped(CommitOutcome),
    /// There may be arrivals.
    ArrivalsHinted,
    /// These clients do not wait for an answer any more.
    Gone(Vec<Ticket>),
    /// Finish what is under way, take nothing new, give the shard up.
    Drain,
}

/// What a shard wants done.
#[derive(Debug)]
pub enum Effect {
    /// Read the head: [`Event::HeadRead`].
    ReadHead,
    /// Commit to the shard's own partition: [`Event::CommitAnswered`].
    Commit(CommitId, Arc<Batch>),
    /// Scan the shard's own partition, or its inbox partition for arrivals: [`Event::Scanned`].
    Scan(ScanPurpose, Scan),
    /// Read what is stored of an instance: [`Event::LookedUp`].
    LookUp(InstanceId, Depth),
    /// Read what is stored of an entity, and whether an operation came before: [`Event::EntityLookedUp`].
    LookUpEntity {
        /// Which.
        entity: EntityId,
        /// The number of the operation that is waiting.
        number: u64,
        /// Among which ids to look, and the digest of the operation's.
        repeat: Option<(&'static str, [u8; 32])>,
    },
    /// Find the plan for a run: [`Event::PlanFound`].
    FindPlan {
        /// The child.
        instance_id: InstanceId,
        /// Its definition.
        workflow: String,
        /// The versions that will do.
        range: Option<VersionReq>,
    },
    /// Call an activity: [`Event::Answered`], always, unless it is cancelled.
    Call(CallId, Box<Call>),
    /// Stop a call; its answer is not wanted any more.
    CancelCall(CallId),
    /// Answer a client.
    Reply(Ticket, Reply),
    /// Write to a public table: [`Event::Fed`].
    Feed(&'static TableSchema, Vec<PublicWrite>),
    /// Commit to the inbox partition of another shard: [`Event::Posted`].
    Post(ShardId, Batch),
    /// Commit to the shard's own inbox partition: [`Event::ArrivalsDropped`].
    DropArrivals(Batch),
    /// Something an operator should know.
    Tell(Notice),
    /// The shard is no longer here: drop it.
    Stopped(Stopped),
}

/// Which delivery of which call.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId {
    /// Who calls.
    pub instance_id: InstanceId,
    /// The run's number in its shard.
    pub run: u64,
    /// The command that asked for it.
    pub command: CommandId,
    /// The delivery.
    pub attempt: u32,
}

/// How much of an instance is needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Depth {
    /// The row of its id, and an answer kept under this digest of a client's key.
    Row {
        /// The digest.
        repeat: Option<[u8; 32]>,
    },
    /// Everything of its current run.
    Run,
}

/// What is stored of an instance.
#[derive(Debug)]
pub enum LookedUp {
    /// The row of its id, if there is one, and what is kept.
    Row(Option<InstanceRow>, Kept),
    /// Its current run, if there is one.
    Run(Option<Box<StoredRun>>),
    /// It is there and cannot be read; and what is kept.
    Unreadable(UnreadableRun, Kept),
    /// The store could not say; ask again.
    Unavailable(String),
}

/// The answer kept under the client's key that was looked for, if there is one; or why it cannot be read.
pub type Kept = Result<Option<KeptAnswer>, String>;

/// What is stored of an entity.
#[derive(Debug)]
pub enum FoundEntity {
    /// Its row and the answer to an earlier copy of the operation, as far as they exist.
    Found(Option<EntityRow>, Option<KeptAnswer>),
    /// It is there and cannot be read.
    Damaged(String),
    /// The store could not say; ask again.
    Unavailable(String),
}

/// Why there is no plan for a child.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlanError {
    /// There is none, for good.
    NotFound(String),
    /// The store could not say; ask again.
    Unavailable(String),
}

impl From<DefinitionError> for PlanError {
    fn from(error: DefinitionError) -> Self {
        match error {
            DefinitionError::Store(StoreError::Unavailable { reason }) => Self::Unavailable(reason),
            DefinitionError::Busy { id } => Self::Unavailable(format!("{id} is being changed")),
            other => Self::NotFound(other.to_string()),
        }
    }
}

/// Why a shard scans.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ScanPurpose {
    /// Recovery: calls that are not settled.
    Dispatches,
    /// Recovery: messages nobody has taken.
    Inbox,
    /// Recovery: messages and public rows on their way.
    Outbox,
    /// Recovery: how far each source has been taken over.
    Sources,
    /// Timers that will be due soon.
    Timers,
    /// What is to be deleted.
    Expiries,
    /// Rows of a run that is being deleted.
    Remains,
    /// Messages from elsewhere, in the inbox partition.
    Arrivals,
    /// Every instance, to see which are hit by damage.
    Instances,
    /// Calls that are not settled, to see whether somebody has to do with each.
    Reconciliation,
}

/// What an operator should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The shard is owned and works.
    Owned {
        /// The token it is owned under.
        fencing_token: u64,
    },
    /// A run has been alive for longer than its definition says it should. Told once.
    Stuck {
        /// Which.
        instance_id: InstanceId,
        /// What its branches wait for.
        why: String,
    },
    /// A run was set aside.
    Parked {
        /// Which.
        instance_id: InstanceId,
        /// Why.
        reason: String,
    },
    /// A call failed for good.
    CallFailed {
        /// Who called.
        instance_id: InstanceId,
        /// What.
        activity: String,
        /// The last delivery, from 0.
        attempt: u32,
    },
    /// A run ended.
    Ended {
        /// How.
        status: abide_workflow::Status,
        /// After how many milliseconds.
        took_ms: u64,
    },
    /// A run began.
    Began,
    /// A call was delivered again.
    Redelivered,
    /// An operation changed an entity.
    Operated,
    /// A message was given up.
    DeadLettered {
        /// In whose name.
        engine: &'static str,
        /// Why.
        reason: String,
    },
    /// Something stored cannot be read, and was passed over. Told once for each place.
    Unreadable {
        /// What, and why.
        reason: String,
    },
}

/// Why a shard stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// Another node has it, or may have it.
    Lost,
    /// It was given up in order.
    Drained,
    /// The store refused what must be right; a mistake in this program. The shard must be taken anew.
    Broken(String),
}
