//! The pieces of work that queues hold for instances, and the messages among them with their sources.
//!
//! Only data: `root::instance_queue` takes the items in order, and
//! `root::apply_item` applies them. The source of a message
//! decides what else happens in the commit that consumes it.

use abide_dispatch::call_journal::AttemptOutcome;
use abide_ids::{IdempotencyKey, KeyDigest, RunId, Sequence};
use abide_store::rows::Key;
use abide_store::tables::expiries::EndedRun;
use abide_store::tables::instances::Lineage;
use abide_store::tables::timers::TimerKey;
use abide_workflow::{CommandId, Message};

use crate::entity::SessionEvent;
use crate::event::{LookupDepth, SendTicket};
use crate::request::{RequestId, RequestIdempotency, ShardRequest};
use crate::run_message::{ChildStart, RunMessage};
use crate::shard::calls::hold_report::HoldReport;

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
    TakeUpCall {
        run_id: RunId,
        command: CommandId,
    },
    /// A recorded attempt was withdrawn before anything of it was sent.
    WithdrawAttempt {
        run_id: RunId,
        command: CommandId,
        attempt: u32,
    },
    /// An attempt could not be sent and waits, or a failed one shows that it was not sent.
    HoldCall(Box<HoldReport>),
    /// The driver could send a held call now.
    ConfirmSend {
        run_id: RunId,
        command: CommandId,
        attempt: u32,
        ticket: SendTicket,
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
    /// The process ended while it did the work of this instance.
    ParkMarked,
    /// The retention of the run has ended.
    Expire {
        ended: EndedRun,
        /// The key of the expiry row.
        expiry: Key,
    },
}

impl WorkItem {
    /// How much of the instance must be loaded to process the item.
    pub(super) fn lookup_depth(&self) -> LookupDepth {
        match self {
            Self::Request(_, request) if request.needs_row_only() => LookupDepth::Row {
                key_digest: request.idempotency().map(|idempotency| idempotency.key_digest),
            },
            Self::RefreshIndex { needs_run: false, .. } | Self::Expire { .. } | Self::ParkMarked => {
                LookupDepth::Row { key_digest: None }
            }
            Self::RunMessage { message, .. }
                if message.starts_child() || matches!(message, RunMessage::OrderChildren { .. }) =>
            {
                LookupDepth::Row { key_digest: None }
            }
            _ => LookupDepth::Run,
        }
    }

    /// Returns whether stored work may be done for the item: a run is loaded, or the input of a new one is checked.
    pub(super) fn does_stored_work(&self) -> bool {
        self.lookup_depth() == LookupDepth::Run
            || matches!(self, Self::RunMessage { message, .. } if message.starts_child())
    }

    /// True for a client's request that ends the run.
    pub(super) fn terminates(&self) -> bool {
        matches!(self, Self::Request(_, request) if request.terminates())
    }

    /// The idempotency key of a client's request.
    pub(super) fn key_digest(&self) -> Option<KeyDigest> {
        let Self::Request(_, request) = self else { return None };
        request.idempotency().map(|idempotency| idempotency.key_digest)
    }

    /// Returns whether the item replaces or removes the current run, or may repeat a message that still waits for a
    /// turn.
    pub(super) fn waits_for_turns(&self) -> bool {
        match self {
            Self::Request(
                _,
                ShardRequest::Restart { .. }
                | ShardRequest::Purge { .. }
                | ShardRequest::PurgeEarlierRun { .. }
                | ShardRequest::Start(_),
            ) => true,
            Self::Request(_, request) => request.idempotency().is_some(),
            Self::Expire { .. } | Self::RunMessage { message: RunMessage::SessionEvent(_), .. } => true,
            Self::RunMessage { message, .. } => message.starts_child(),
            _ => false,
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

/// A child run that is to be started.
#[derive(Debug)]
pub(super) struct PendingChild {
    /// The sequence of its inbox row.
    pub(super) inbox_sequence: Sequence,
    /// The key of the parent's item that started it. Requests of older versions have none.
    pub(super) parent_item: Option<IdempotencyKey>,
    /// Its place in the tree of runs. Requests of older versions have none.
    pub(super) lineage: Option<Lineage>,
    pub(super) start: ChildStart,
}

impl PendingChild {
    /// The work item it came from.
    pub(super) fn into_work_item(self) -> WorkItem {
        let start = self.start;
        let message = match (self.parent_item, self.lineage) {
            (Some(item), Some(lineage)) => RunMessage::StartDescendant { item, lineage, start },
            (Some(item), None) => RunMessage::StartChildOf { item, start },
            (None, _) => RunMessage::LegacyStartChild(start),
        };
        WorkItem::RunMessage { sequence: self.inbox_sequence, message }
    }
}
