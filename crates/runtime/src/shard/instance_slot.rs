//! An instance in the memory of a shard: the state known of it, and the work items queued for it.
//!
//! Only data: [`instance_queue`](super::instance_queue) processes the items, [`load`](super::load) fills in the state.
//! The run itself is in [`run_state`](super::run_state).

use std::collections::VecDeque;

use abide_ids::{IdempotencyKey, KeyDigest, PageNumber, RunId, Sequence};
use abide_store::tables::expiries::EndedRun;
use abide_store::tables::idempotency::IdempotencyRow;
use abide_store::tables::instances::{InstanceRow, RunStatus};
use abide_store::tables::timers::TimerKey;
use abide_workflow::{CommandId, Message, Status};

use super::commit_queue::BatchNumber;
use super::run_state::{AttemptOutcome, ResidentRun};
use crate::entity::SessionEvent;
use crate::event::LookupDepth;
use crate::lease::Monotonic;
use crate::request::{RequestId, RequestIdempotency, ShardRequest};
use crate::run_message::{ChildStart, RunMessage};

/// An instance that has work, or had some recently.
#[derive(Debug)]
pub(super) struct InstanceSlot {
    pub(super) state: SlotState,
    /// Work items that wait until enough of the instance is loaded.
    pub(super) queue: VecDeque<WorkItem>,
    /// How many of them recovery found and are not yet due. They do not count as queued.
    pub(super) recovered_items: usize,
    /// The idempotency key that was looked up, and the reply stored under it. Valid until the request with the key is
    /// handled.
    pub(super) looked_up_key: Option<KeyDigest>,
    pub(super) stored_reply: Option<IdempotencyRow>,
    /// Work items of a parked run, until it is resumed.
    pub(super) parked_items: VecDeque<WorkItem>,
    /// The first work item waits for the turns of the run.
    pub(super) blocked: bool,
    /// The idempotency key that is to be looked up again at this time.
    pub(super) key_lookup_retry: Option<(Monotonic, KeyDigest)>,
    /// A parked run is being loaded again, to resume or terminate it.
    pub(super) resuming: bool,
    /// The batch with the newest row of the instance, if there is no run in memory with its own number.
    pub(super) written_batch: BatchNumber,
    /// A child run whose plan is being looked up.
    pub(super) pending_child: Option<PendingChild>,
    /// A session event that is to start a run whose plan is being looked up, with the sequence of its inbox row.
    pub(super) pending_event: Option<(Sequence, Box<SessionEvent>)>,
}

/// A child run that is to be started.
#[derive(Debug)]
pub(super) struct PendingChild {
    /// The sequence of its inbox row.
    pub(super) inbox_sequence: Sequence,
    /// The key of the parent's item that started it. Requests of older versions have none.
    pub(super) parent_item: Option<IdempotencyKey>,
    pub(super) start: ChildStart,
}

impl PendingChild {
    /// The work item it came from.
    pub(super) fn into_work_item(self) -> WorkItem {
        let start = self.start;
        let message = match self.parent_item {
            Some(item) => RunMessage::StartChildOf { item, start },
            None => RunMessage::LegacyStartChild(start),
        };
        WorkItem::RunMessage { sequence: self.inbox_sequence, message }
    }
}

/// The state of an instance, as far as it is known.
#[derive(Debug)]
pub(super) enum SlotState {
    Unknown,
    LookingUp(LookupDepth),
    /// The lookup failed and is repeated at this time.
    LookupRetry(LookupDepth, Monotonic),
    /// The row of its id, if there is one.
    Row(Option<InstanceRow>),
    /// The run is in memory.
    Run(Box<ResidentRun>),
    /// The boxed state holds, and something else is being looked up: a plan, or a stored reply.
    SideLookup(Box<SlotState>),
    /// The instance exists, but its run is parked or cannot be read.
    Unreadable {
        row: Option<Box<InstanceRow>>,
        last_page: PageNumber,
        last_event: Option<u64>,
        reason: String,
    },
}

/// One piece of work for an instance.
#[derive(Debug)]
pub(super) enum WorkItem {
    Request(RequestId, ShardRequest),
    Message {
        run_id: RunId,
        envelope: QueuedMessage,
    },
    /// A run message, in the inbox of the shard under this sequence.
    RunMessage {
        sequence: Sequence,
        message: RunMessage,
    },
    /// A call may need its next attempt.
    AttemptCall {
        run_id: RunId,
        command: CommandId,
    },
    /// A recorded attempt was withdrawn before anything of it was sent.
    WithdrawAttempt {
        run_id: RunId,
        command: CommandId,
        attempt: u32,
    },
    /// The stuck timer of the run fired.
    StuckTimer(TimerKey),
    /// An attempt of the run takes long, so the run needs a stuck timer.
    WatchStuck {
        run_id: RunId,
    },
    /// The public row of the run may be outdated. `needs_run` if the instance row does not say enough to write it.
    RefreshIndex {
        run_id: RunId,
        revision: u64,
        needs_run: bool,
    },
    /// Damage was found that may concern the run.
    CheckDamage,
    /// The retention of the run has ended.
    Expire {
        ended: EndedRun,
        expiry: super::gc::ExpiryKey,
    },
}

impl InstanceSlot {
    pub(super) fn new() -> Self {
        Self {
            state: SlotState::Unknown,
            queue: VecDeque::new(),
            recovered_items: 0,
            looked_up_key: None,
            stored_reply: None,
            parked_items: VecDeque::new(),
            blocked: false,
            key_lookup_retry: None,
            resuming: false,
            written_batch: BatchNumber::NONE,
            pending_child: None,
            pending_event: None,
        }
    }

    /// Keeps the state while something else is looked up.
    pub(super) fn begin_side_lookup(&mut self) {
        let state = std::mem::replace(&mut self.state, SlotState::Unknown);
        self.state = SlotState::SideLookup(Box::new(state));
    }

    /// Restores the state after the side lookup. False if there was none.
    pub(super) fn end_side_lookup(&mut self) -> bool {
        match std::mem::replace(&mut self.state, SlotState::Unknown) {
            SlotState::SideLookup(state) => {
                self.state = *state;
                true
            }
            other => {
                self.state = other;
                false
            }
        }
    }

    /// The idempotency key of the first request in the queue, if it has not been looked up yet. The run may be in
    /// memory; the stored reply is in the store.
    pub(super) fn key_to_look_up(&self) -> Option<KeyDigest> {
        let Some(WorkItem::Request(_, request)) = self.queue.front() else { return None };
        let key = request.idempotency().map(|idempotency| idempotency.key_digest)?;
        (self.looked_up_key != Some(key)).then_some(key)
    }

    /// The run in memory, also during a side lookup.
    pub(super) fn run_mut(&mut self) -> Option<&mut ResidentRun> {
        let mut state = &mut self.state;
        loop {
            match state {
                SlotState::Run(run) => return Some(run),
                SlotState::SideLookup(inner) => state = inner,
                _ => return None,
            }
        }
    }
}

impl WorkItem {
    /// How much of the instance must be loaded to process the item.
    pub(super) fn lookup_depth(&self) -> LookupDepth {
        match self {
            Self::Request(_, request) if request.needs_row_only() => LookupDepth::Row {
                key_digest: request.idempotency().map(|idempotency| idempotency.key_digest),
            },
            Self::RefreshIndex { needs_run: false, .. } | Self::Expire { .. } => {
                LookupDepth::Row { key_digest: None }
            }
            Self::RunMessage { message, .. } if message.starts_child() => {
                LookupDepth::Row { key_digest: None }
            }
            _ => LookupDepth::Run,
        }
    }
}

/// A message for a run, and its source.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    pub(super) message: Message,
    pub(super) source: MessageSource,
}

/// The source of a message. It decides what else happens in the commit that consumes the message.
#[derive(Clone, Debug)]
pub(super) enum MessageSource {
    /// A client: send the reply, and store it if the request has an idempotency key.
    Client(RequestId, Option<RequestIdempotency>),
    /// A call: settle it. `status` is the transport status of a failure, for diagnostics. There is no outcome if no
    /// attempt was made.
    Call { command: CommandId, status: Option<String>, outcome: Option<AttemptOutcome> },
    /// A timer: delete its row.
    Timer(TimerKey),
    /// The inbox: delete its row.
    Inbox(Sequence),
    /// The inbox, for a session event: delete its row, and dead-letter the event if the run refuses it.
    SessionEvent(Sequence, Box<SessionEvent>),
}

/// The status of a run as its row stores it.
pub(crate) fn row_status(status: Status) -> RunStatus {
    match status {
        Status::Pending => RunStatus::Pending,
        Status::Running => RunStatus::Running,
        Status::Suspended => RunStatus::Suspended,
        Status::Completed | Status::ContinuedAsNew => RunStatus::Completed,
        Status::Failed | Status::Canceled => RunStatus::Failed,
        Status::Terminated => RunStatus::Terminated,
    }
}

/// Returns whether a run with this status has ended.
pub(super) fn is_terminal(status: RunStatus) -> bool {
    use RunStatus::{Completed, Failed, Parked, Pending, Purged, Running, Suspended, Terminated};
    match status {
        Completed | Failed | Terminated | Purged => true,
        Pending | Running | Suspended | Parked => false,
    }
}
