//! What a client can ask of a shard, and what it is answered.
//!
//! Every answer is given after what it says is durable. Knows no transport: the server spells these as HTTP.

use std::borrow::Cow;
use std::sync::Arc;

use abide_workflow::instance::CurrentState;
use abide_workflow::json::Json;
use abide_workflow::{Failure, InstanceId, Message, Plan, Refusal, RunNumber, Timestamp};
use sha2::{Digest, Sha256};

use crate::entity::{Operate, Operated, OperationError};

/// Names one request of a driver; answers carry it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// What can be asked.
#[derive(Clone, Debug)]
pub enum Request {
    /// Begin a run.
    Start(Box<Start>),
    /// Give a run an event or an order.
    Deliver {
        /// To whom.
        instance_id: InstanceId,
        /// What: `EventRaised`, `Suspend`, `Resume`, `Terminate` or `Rewind`.
        message: Message,
    },
    /// Begin a new run with the input and the version of the last one, which must have ended.
    Restart {
        /// Of whom.
        instance_id: InstanceId,
    },
    /// Forget an instance whose last run has ended.
    Purge {
        /// Whom.
        instance_id: InstanceId,
        /// Only if this is its last run.
        run: Option<RunNumber>,
    },
    /// Forget a run that another one has replaced.
    PurgeEarlier {
        /// Whose.
        instance_id: InstanceId,
        /// Which life of it.
        run: RunNumber,
        /// The number the shard gave it.
        number: u64,
    },
    /// One operation on an entity.
    Operate(Box<Operate>),
    /// Answer when a run has ended.
    AwaitEnd {
        /// Whose.
        instance_id: InstanceId,
        /// Which, if it is to be that one and no other; else the current one.
        run: Option<RunNumber>,
    },
    /// The same, unless it was done under this key before: then it is answered as it was then, and not done again.
    Once(Repeat, Box<Request>),
    /// How a start under this key was answered. Begins nothing.
    Recall {
        /// What it began.
        instance_id: InstanceId,
        /// The key.
        repeat: Repeat,
    },
}

impl Request {
    /// The instance it is for, unless it is for an entity.
    pub fn instance_id(&self) -> Option<&InstanceId> {
        match self {
            Self::Start(start) => Some(&start.instance_id),
            Self::Deliver { instance_id, .. }
            | Self::Restart { instance_id }
            | Self::Purge { instance_id, .. }
            | Self::PurgeEarlier { instance_id, .. }
            | Self::AwaitEnd { instance_id, .. }
            | Self::Recall { instance_id, .. } => Some(instance_id),
            Self::Once(_, request) => request.instance_id(),
            Self::Operate(_) => None,
        }
    }

    /// What decides which shard it is for.
    pub fn placement_key(&self) -> Cow<'_, str> {
        match self {
            Self::Operate(operate) => operate.entity.placement_key(),
            Self::Once(_, request) => request.placement_key(),
            other => Cow::Borrowed(other.instance_id().map_or("", InstanceId::placement_key)),
        }
    }

    /// What it is recognised by when it comes again.
    pub(crate) fn repeat(&self) -> Option<Repeat> {
        match self {
            Self::Start(start) => start.repeat,
            Self::Once(repeat, _) | Self::Recall { repeat, .. } => Some(*repeat),
            _ => None,
        }
    }

    /// Whether the row of its instance is enough to serve it; else the run is needed.
    pub(crate) fn needs_row_only(&self) -> bool {
        match self {
            Self::Start(_) | Self::Purge { .. } | Self::PurgeEarlier { .. } | Self::Recall { .. } => true,
            Self::Once(_, request) => request.needs_row_only(),
            Self::Deliver { .. } | Self::Restart { .. } | Self::AwaitEnd { .. } | Self::Operate(_) => false,
        }
    }

    /// Whether a run that has begun is the answer.
    pub(crate) fn begins(&self) -> bool {
        match self {
            Self::Start(_) | Self::Restart { .. } | Self::Recall { .. } => true,
            Self::Once(_, request) => request.begins(),
            Self::Deliver { .. }
            | Self::Purge { .. }
            | Self::PurgeEarlier { .. }
            | Self::AwaitEnd { .. }
            | Self::Operate(_) => false,
        }
    }
}

/// A run to begin. The plan is chosen and the input checked by whoever asks.
#[derive(Clone, Debug)]
pub struct Start {
    /// The name it will have; the placement key in it has led to this shard.
    pub instance_id: InstanceId,
    /// What it runs.
    pub plan: Arc<Plan>,
    /// `$.input`
    pub input: Json,
    /// `$.event`, if something triggered it.
    pub event: Option<Json>,
    /// The trace it belongs to.
    pub correlation_id: String,
    /// The entity it acts for.
    pub entity_id: Option<String>,
    /// How to tell a repeat of this request from another.
    pub repeat: Option<Repeat>,
    /// Answer again when the run has ended.
    pub await_end: Option<Ticket>,
}

/// What makes a request recognisable when it comes again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repeat {
    /// The digest of the client's key.
    pub key: [u8; 32],
    /// The digest of what it asked for: the same key with another request is a mistake.
    pub payload: [u8; 32],
    /// Whether the instance's id was made of the key: then an instance of that id is the work of this key, also when the answer is no
    /// longer kept.
    pub names_instance: bool,
}

impl Repeat {
    /// For a request to somebody that has a name of its own.
    pub fn new(key: [u8; 32], payload: [u8; 32]) -> Self {
        Self { key, payload, names_instance: false }
    }

    /// A digest over parts with their lengths, so that ("ab", "c") and ("a", "bc") differ.
    pub fn digest(parts: &[&[u8]]) -> [u8; 32] {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }
}

/// What is answered.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The run has begun, or had begun already by an earlier copy of the request.
    Started(Started),
    /// The message is taken.
    Accepted,
    /// The operation is done, or was done already by an earlier copy of the request.
    Operated(Box<Operated>),
    /// The instance is forgotten.
    Purged,
    /// It was done, now or by an earlier copy of the request; and until when a copy is recognised.
    Once(Done, Timestamp),
    /// The run has ended.
    Ended(Box<RunView>),
    /// Nothing was done, and why.
    Refused(Refused),
}

/// A run that has begun.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Started {
    /// Its instance.
    pub instance_id: InstanceId,
    /// Which of its runs.
    pub run: RunNumber,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// Until when a copy of the request is recognised, if it had a key. Stored beside it, not in it.
    #[serde(skip)]
    pub repeat_until: Option<Timestamp>,
}

/// What was done under a key. Stored by place: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Done {
    /// The message is taken.
    Accepted,
    /// The instance is forgotten.
    Purged,
}

/// Why nothing was done. Every reason is final for this request but the last group, which may be tried again.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Refused {
    /// No such instance.
    #[error("there is no instance {instance_id}")]
    NotFound {
        /// What was asked for.
        instance_id: InstanceId,
    },
    /// The id is in use.
    #[error("instance {instance_id} is live (run {}): a new run can begin when it has ended", run.0)]
    Live {
        /// Which.
        instance_id: InstanceId,
        /// The run that lives.
        run: RunNumber,
    },
    /// The run does not take this message.
    #[error(transparent)]
    Message(#[from] Refusal),
    /// The run is parked.
    #[error("instance {instance_id} is parked: {reason}")]
    Parked {
        /// Which.
        instance_id: InstanceId,
        /// Why.
        reason: String,
    },
    /// Its rows cannot be read.
    #[error("instance {instance_id} is damaged: {reason}")]
    Damaged {
        /// Which.
        instance_id: InstanceId,
        /// What is wrong.
        reason: String,
    },
    /// The entity's rows cannot be read.
    #[error("entity {entity} is damaged: {reason}")]
    EntityDamaged {
        /// Which.
        entity: String,
        /// What is wrong.
        reason: String,
    },
    /// The entity holds as many events as it may.
    #[error("entity {entity} holds {events} events; clear some first")]
    EntityFull {
        /// Which.
        entity: String,
        /// How many it holds.
        events: u64,
    },
    /// The entity's kind refused the operation.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// Something has more bytes than a payload may have.
    #[error("{what} has {bytes} bytes, which is more than a payload may have")]
    TooLarge {
        /// What.
        what: &'static str,
        /// How many.
        bytes: usize,
    },
    /// The same key came with another request before.
    #[error("this Idempotency-Key was used for another request")]
    KeyReused,
    /// The instance that was made of this key is there, and the answer to the key is not kept any more.
    #[error(
        "this Idempotency-Key began instance {instance_id} long ago, and it is not known any more whether with this request: \
         look at the instance, or use a new key to begin another"
    )]
    KeyExpired {
        /// What the key began.
        instance_id: InstanceId,
    },
    /// Another run has the id by now.
    #[error("run {} of instance {instance_id} is not its current one", run.0)]
    NotCurrent {
        /// Which instance.
        instance_id: InstanceId,
        /// The run that was asked for.
        run: RunNumber,
    },
    /// Too much waits already.
    #[error("too much is waiting; try again later")]
    Busy,
    /// This node does not own the shard, or not yet.
    #[error("the shard is not ready on this node; try again")]
    NotReady,
    /// The node is going down.
    #[error("the node is shutting down; try again")]
    Draining,
}

impl Refused {
    /// Whether the same request may succeed later or elsewhere. None of it was done.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Busy | Self::NotReady | Self::Draining)
    }
}

/// A run as people see it.
#[derive(Clone, PartialEq, Debug)]
pub struct RunView {
    /// The instance.
    pub instance_id: InstanceId,
    /// Which of its runs.
    pub run: RunNumber,
    /// What it runs.
    pub workflow: String,
    /// In which version.
    pub version: String,
    /// Where it stands.
    pub status: ViewStatus,
    /// What it began with.
    pub input: Json,
    /// What it ended with.
    pub output: Option<Json>,
    /// Why it failed.
    pub error: Option<Failure>,
    /// The trace it belongs to.
    pub correlation_id: String,
    /// The entity it acts for.
    pub entity_id: Option<String>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it last moved.
    pub updated_at: Timestamp,
    /// Where its branches are and what they wait for.
    pub current_states: Vec<Standing>,
}

/// Where a run stands: what the workflow says, or that it cannot be said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ViewStatus {
    /// As the run itself has it.
    Run(abide_workflow::Status),
    /// Set aside, with the reason; nothing of it is lost.
    Parked(String),
}

/// Where one branch is, and until when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The state and what it waits for.
    pub state: CurrentState,
    /// The activity it called, if it waits for one.
    pub activity: Option<String>,
    /// The delivery that is out, from 0, if it waits for an activity.
    pub attempt: Option<u32>,
    /// When the timer is due, the next delivery is made or the call is given up, if there is such a moment.
    pub until: Option<Timestamp>,
    /// The child it waits for.
    pub child: Option<InstanceId>,
}
